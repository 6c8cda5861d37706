//! DescribeProducers (key 61): a partition's producer state (KIP-664).

message! {
    DescribeProducersRequest: DescribeProducers, 0..=0, flexible 0; {
        [0..] topics: Vec<TopicRequest>;
    }
}

structure! {
    TopicRequest {
        [0..] name: String;
        [0..] partition_indexes: Vec<i32>;
    }
}

message! {
    DescribeProducersResponse: DescribeProducers, 0..=0, flexible 0; {
        [0..] throttle_time_ms: i32;
        [0..] topics: Vec<TopicResponse>;
    }
}

structure! {
    TopicResponse {
        [0..] name: String;
        [0..] partitions: Vec<PartitionResponse>;
    }

    PartitionResponse {
        [0..] partition_index: i32;
        [0..] error_code: i16;
        [0.., null 0..] error_message: Option<String> = None;
        [0..] active_producers: Vec<ProducerState>;
    }

    ProducerState {
        [0..] producer_id: i64;
        [0..] producer_epoch: i32;
        [0..] last_sequence: i32 = -1;
        [0..] last_timestamp: i64 = -1;
        [0..] coordinator_epoch: i32;
        [0..] current_txn_start_offset: i64 = -1;
    }
}
