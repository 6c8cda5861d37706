//! OffsetCommit (key 8): stores a group's positions.
//!
//! 7 adds the instance id (KIP-345), 9 the errors of KIP-848, 10 topic ids.

use thalweg_model::TopicId;

message! {
    OffsetCommitRequest: OffsetCommit, 2..=10, flexible 8; {
        [0..] group_id: String;
        /// -1 for a commit from outside the group.
        [0..] generation_id_or_member_epoch: i32 = -1;
        [0..] member_id: String;
        [7.., null 7..] group_instance_id: Option<String> = None;
        [0..=4] retention_time_ms: i64 = -1;
        [0..] topics: Vec<OffsetCommitRequestTopic>;
    }
}

structure! {
    OffsetCommitRequestTopic {
        [0..=9] name: String;
        [10..] topic_id: TopicId;
        [0..] partitions: Vec<OffsetCommitRequestPartition>;
    }

    OffsetCommitRequestPartition {
        [0..] partition_index: i32;
        [0..] committed_offset: i64;
        [6..] committed_leader_epoch: i32 = -1;
        [0.., null 0..] committed_metadata: Option<String> = Some(String::new());
    }
}

message! {
    OffsetCommitResponse: OffsetCommit, 2..=10, flexible 8; {
        [3..] throttle_time_ms: i32;
        [0..] topics: Vec<OffsetCommitResponseTopic>;
    }
}

structure! {
    OffsetCommitResponseTopic {
        [0..=9] name: String;
        [10..] topic_id: TopicId;
        [0..] partitions: Vec<OffsetCommitResponsePartition>;
    }

    OffsetCommitResponsePartition {
        [0..] partition_index: i32;
        [0..] error_code: i16;
    }
}
