//! AddPartitionsToTxn (key 24): puts partitions into a transaction.
//!
//! 0-3 are what clients send; 4 and 5 hold several transactions, from broker to broker (KIP-890).

message! {
    AddPartitionsToTxnRequest: AddPartitionsToTxn, 0..=5, flexible 3; {
        [4..] transactions: Vec<AddPartitionsToTxnTransaction>;
        [0..=3] v3_and_below_transactional_id: String;
        [0..=3] v3_and_below_producer_id: i64;
        [0..=3] v3_and_below_producer_epoch: i16;
        [0..=3] v3_and_below_topics: Vec<AddPartitionsToTxnTopic>;
    }
}

structure! {
    AddPartitionsToTxnTransaction {
        [4..] transactional_id: String;
        [4..] producer_id: i64;
        [4..] producer_epoch: i16;
        [4..] verify_only: bool;
        [4..] topics: Vec<AddPartitionsToTxnTopic>;
    }

    AddPartitionsToTxnTopic {
        [0..] name: String;
        [0..] partitions: Vec<i32>;
    }
}

message! {
    AddPartitionsToTxnResponse: AddPartitionsToTxn, 0..=5, flexible 3; {
        [0..] throttle_time_ms: i32;
        [4..] error_code: i16;
        [4..] results_by_transaction: Vec<AddPartitionsToTxnResult>;
        [0..=3] results_by_topic_v3_and_below: Vec<AddPartitionsToTxnTopicResult>;
    }
}

structure! {
    AddPartitionsToTxnResult {
        [4..] transactional_id: String;
        [4..] topic_results: Vec<AddPartitionsToTxnTopicResult>;
    }

    AddPartitionsToTxnTopicResult {
        [0..] name: String;
        [0..] results_by_partition: Vec<AddPartitionsToTxnPartitionResult>;
    }

    AddPartitionsToTxnPartitionResult {
        [0..] partition_index: i32;
        [0..] partition_error_code: i16;
    }
}
