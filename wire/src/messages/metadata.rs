//! Metadata (key 3): brokers, topics, partitions and their leaders.
//!
//! Topics null asks for all, empty for none; in version 0 empty asks for all. 4 adds `allow_auto_topic_creation`,
//! 10 topic ids, 12 asking by id, 13 a top-level error.

use thalweg_model::TopicId;

message! {
    MetadataRequest: Metadata, 0..=13, flexible 9; {
        /// Null for all; empty for none, but for all in version 0.
        [0.., null 1..] topics: Option<Vec<MetadataRequestTopic>> = Some(Vec::new());
        [4..] allow_auto_topic_creation: bool = true;
        [8..=10] include_cluster_authorized_operations: bool;
        [8..] include_topic_authorized_operations: bool;
    }
}

structure! {
    MetadataRequestTopic {
        [10..] topic_id: TopicId;
        [0.., null 10..] name: Option<String> = Some(String::new());
    }
}

message! {
    MetadataResponse: Metadata, 0..=13, flexible 9; {
        [3..] throttle_time_ms: i32;
        [0..] brokers: Vec<MetadataResponseBroker>;
        [2.., null 2..] cluster_id: Option<String> = None;
        /// A live broker of the list.
        [1..] controller_id: i32 = -1;
        [0..] topics: Vec<MetadataResponseTopic>;
        [8..=10] cluster_authorized_operations: i32 = i32::MIN;
        [13..] error_code: i16;
    }
}

structure! {
    MetadataResponseBroker {
        [0..] node_id: i32;
        [0..] host: String;
        [0..] port: i32;
        [1.., null 1..] rack: Option<String> = None;
    }

    MetadataResponseTopic {
        [0..] error_code: i16;
        [0.., null 12..] name: Option<String> = Some(String::new());
        [10..] topic_id: TopicId;
        [1..] is_internal: bool;
        [0..] partitions: Vec<MetadataResponsePartition>;
        [8..] topic_authorized_operations: i32 = i32::MIN;
    }

    MetadataResponsePartition {
        [0..] error_code: i16;
        [0..] partition_index: i32;
        [0..] leader_id: i32;
        [7..] leader_epoch: i32 = -1;
        [0..] replica_nodes: Vec<i32>;
        [0..] isr_nodes: Vec<i32>;
        [5..] offline_replicas: Vec<i32>;
    }
}
