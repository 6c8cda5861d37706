//! OffsetFetch (key 9): reads a group's positions.
//!
//! Topics null (2 and later) asks for every committed offset; 7 adds `require_stable`, 8 asks for several groups at
//! once, 9 carries member and epoch (KIP-848), 10 topic ids.

use thalweg_model::TopicId;

message! {
    OffsetFetchRequest: OffsetFetch, 1..=10, flexible 6; {
        [0..=7] group_id: String;
        /// Null (2 and later) for every committed offset.
        [0..=7, null 2..=7] topics: Option<Vec<OffsetFetchRequestTopic>> = Some(Vec::new());
        [8..] groups: Vec<OffsetFetchRequestGroup>;
        [7..] require_stable: bool;
    }
}

structure! {
    OffsetFetchRequestTopic {
        [0..=7] name: String;
        [0..=7] partition_indexes: Vec<i32>;
    }

    OffsetFetchRequestGroup {
        [8..] group_id: String;
        [9.., null 9..] member_id: Option<String> = None;
        [9..] member_epoch: i32 = -1;
        /// Null for every committed offset.
        [8.., null 8..] topics: Option<Vec<OffsetFetchRequestTopics>> = Some(Vec::new());
    }

    OffsetFetchRequestTopics {
        [8..=9] name: String;
        [10..] topic_id: TopicId;
        [8..] partition_indexes: Vec<i32>;
    }
}

message! {
    OffsetFetchResponse: OffsetFetch, 1..=10, flexible 6; {
        [3..] throttle_time_ms: i32;
        [0..=7] topics: Vec<OffsetFetchResponseTopic>;
        [2..=7] error_code: i16;
        [8..] groups: Vec<OffsetFetchResponseGroup>;
    }
}

structure! {
    OffsetFetchResponseTopic {
        [0..=7] name: String;
        [0..=7] partitions: Vec<OffsetFetchResponsePartition>;
    }

    OffsetFetchResponsePartition {
        [0..=7] partition_index: i32;
        [0..=7] committed_offset: i64;
        [5..=7] committed_leader_epoch: i32 = -1;
        [0..=7, null 0..=7] metadata: Option<String> = Some(String::new());
        [0..=7] error_code: i16;
    }

    OffsetFetchResponseGroup {
        [8..] group_id: String;
        [8..] topics: Vec<OffsetFetchResponseTopics>;
        [8..] error_code: i16;
    }

    OffsetFetchResponseTopics {
        [8..=9] name: String;
        [10..] topic_id: TopicId;
        [8..] partitions: Vec<OffsetFetchResponsePartitions>;
    }

    OffsetFetchResponsePartitions {
        [8..] partition_index: i32;
        [8..] committed_offset: i64;
        [8..] committed_leader_epoch: i32 = -1;
        [8.., null 8..] metadata: Option<String> = Some(String::new());
        [8..] error_code: i16;
    }
}
