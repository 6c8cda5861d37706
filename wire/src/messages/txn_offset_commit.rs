//! TxnOffsetCommit (key 28): stores positions as part of a transaction.
//!
//! 3 adds member and generation (KIP-447), 6 topic ids.

use thalweg_model::TopicId;

message! {
    TxnOffsetCommitRequest: TxnOffsetCommit, 0..=6, flexible 3; {
        [0..] transactional_id: String;
        [0..] group_id: String;
        [0..] producer_id: i64;
        [0..] producer_epoch: i16;
        [3..] generation_id_or_member_epoch: i32 = -1;
        [3..] member_id: String;
        [3.., null 3..] group_instance_id: Option<String> = None;
        [0..] topics: Vec<TxnOffsetCommitRequestTopic>;
    }
}

structure! {
    TxnOffsetCommitRequestTopic {
        [0..=5] name: String;
        [6..] topic_id: TopicId;
        [0..] partitions: Vec<TxnOffsetCommitRequestPartition>;
    }

    TxnOffsetCommitRequestPartition {
        [0..] partition_index: i32;
        [0..] committed_offset: i64;
        [2..] committed_leader_epoch: i32 = -1;
        [0.., null 0..] committed_metadata: Option<String> = Some(String::new());
    }
}

message! {
    TxnOffsetCommitResponse: TxnOffsetCommit, 0..=6, flexible 3; {
        [0..] throttle_time_ms: i32;
        [0..] topics: Vec<TxnOffsetCommitResponseTopic>;
    }
}

structure! {
    TxnOffsetCommitResponseTopic {
        [0..=5] name: String;
        [6..] topic_id: TopicId;
        [0..] partitions: Vec<TxnOffsetCommitResponsePartition>;
    }

    TxnOffsetCommitResponsePartition {
        [0..] partition_index: i32;
        [0..] error_code: i16;
    }
}
