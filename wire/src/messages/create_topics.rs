//! CreateTopics (key 19).
//!
//! 4 allows -1 for partitions and replication factor (KIP-464), 5 returns the configuration (KIP-525), 7 the topic id.

use thalweg_model::TopicId;

message! {
    CreateTopicsRequest: CreateTopics, 2..=7, flexible 5; {
        [0..] topics: Vec<CreatableTopic>;
        [0..] timeout_ms: i32 = 60000;
        [0..] validate_only: bool;
    }
}

structure! {
    CreatableTopic {
        [0..] name: String;
        /// -1 for the default, or with manual assignments.
        [0..] num_partitions: i32;
        /// -1 for the default, or with manual assignments.
        [0..] replication_factor: i16;
        [0..] assignments: Vec<CreatableReplicaAssignment>;
        [0..] configs: Vec<CreatableTopicConfig>;
    }

    CreatableReplicaAssignment {
        [0..] partition_index: i32;
        [0..] broker_ids: Vec<i32>;
    }

    CreatableTopicConfig {
        [0..] name: String;
        [0.., null 0..] value: Option<String> = Some(String::new());
    }
}

message! {
    CreateTopicsResponse: CreateTopics, 2..=7, flexible 5; {
        [0..] throttle_time_ms: i32;
        [0..] topics: Vec<CreatableTopicResult>;
    }
}

structure! {
    CreatableTopicResult {
        [0..] name: String;
        [7..] topic_id: TopicId;
        [0..] error_code: i16;
        [0.., null 0..] error_message: Option<String> = Some(String::new());
        [5.., tag 0] topic_config_error_code: i16;
        [5..] num_partitions: i32 = -1;
        [5..] replication_factor: i16 = -1;
        [5.., null 5..] configs: Option<Vec<CreatableTopicConfigs>> = Some(Vec::new());
    }

    CreatableTopicConfigs {
        [5..] name: String;
        [5.., null 5..] value: Option<String> = Some(String::new());
        [5..] read_only: bool;
        [5..] config_source: i8 = -1;
        [5..] is_sensitive: bool;
    }
}
