//! Produce (key 0): appends record batches.
//!
//! Versions 3-8 carry `acks`, one batch per partition; 8 adds `record_errors` (KIP-467), 10 the current leader
//! (KIP-951), 12 adds partitions to the transaction by itself (KIP-890), 13 names topics by id (KIP-516).
//! Kafka lists 0-2 in ApiVersions but refuses them: old librdkafka compresses only if the range starts at 0.

use bytes::Bytes;
use thalweg_model::TopicId;

message! {
    ProduceRequest: Produce, 3..=13, flexible 9; {
        [0.., null 0..] transactional_id: Option<String> = None;
        /// 0: no answer at all; 1: the leader; -1: every in-sync replica.
        [0..] acks: i16;
        [0..] timeout_ms: i32;
        [0..] topic_data: Vec<TopicProduceData>;
    }
}

structure! {
    TopicProduceData {
        [0..=12] name: String;
        [13..] topic_id: TopicId;
        [0..] partition_data: Vec<PartitionProduceData>;
    }

    PartitionProduceData {
        [0..] index: i32;
        /// Exactly one record batch, as sent; see [`crate::batch`].
        [0.., null 0..] records: Option<Bytes> = None;
    }
}

message! {
    ProduceResponse: Produce, 3..=13, flexible 9; {
        [0..] responses: Vec<TopicProduceResponse>;
        [0..] throttle_time_ms: i32;
        [10.., tag 0] node_endpoints: Vec<NodeEndpoint>;
    }
}

structure! {
    TopicProduceResponse {
        [0..=12] name: String;
        [13..] topic_id: TopicId;
        [0..] partition_responses: Vec<PartitionProduceResponse>;
    }

    PartitionProduceResponse {
        [0..] index: i32;
        [0..] error_code: i16;
        /// Offset of the first record; -1 on error.
        [0..] base_offset: i64;
        /// -1 unless the broker stamps timestamps.
        [0..] log_append_time_ms: i64 = -1;
        [5..] log_start_offset: i64 = -1;
        [8..] record_errors: Vec<BatchIndexAndErrorMessage>;
        [8.., null 8..] error_message: Option<String> = None;
        [10.., tag 0] current_leader: LeaderIdAndEpoch;
    }

    BatchIndexAndErrorMessage {
        [8..] batch_index: i32;
        [8.., null 8..] batch_index_error_message: Option<String> = None;
    }

    LeaderIdAndEpoch {
        [10..] leader_id: i32 = -1;
        [10..] leader_epoch: i32 = -1;
    }

    NodeEndpoint {
        [10..] node_id: i32;
        [10..] host: String;
        [10..] port: i32;
        [10.., null 10..] rack: Option<String> = None;
    }
}
