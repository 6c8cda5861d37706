//! OffsetForLeaderEpoch (key 23): where a leader epoch ended.
//!
//! 2 adds the current leader epoch (KIP-320), 3 the replica id.

message! {
    OffsetForLeaderEpochRequest: OffsetForLeaderEpoch, 2..=4, flexible 4; {
        [3..] replica_id: i32 = -2;
        [0..] topics: Vec<OffsetForLeaderTopic>;
    }
}

structure! {
    OffsetForLeaderTopic {
        [0..] topic: String;
        [0..] partitions: Vec<OffsetForLeaderPartition>;
    }

    OffsetForLeaderPartition {
        [0..] partition: i32;
        [0..] current_leader_epoch: i32 = -1;
        [0..] leader_epoch: i32;
    }
}

message! {
    OffsetForLeaderEpochResponse: OffsetForLeaderEpoch, 2..=4, flexible 4; {
        [0..] throttle_time_ms: i32;
        [0..] topics: Vec<OffsetForLeaderTopicResult>;
    }
}

structure! {
    OffsetForLeaderTopicResult {
        [0..] topic: String;
        [0..] partitions: Vec<EpochEndOffset>;
    }

    EpochEndOffset {
        [0..] error_code: i16;
        [0..] partition: i32;
        [0..] leader_epoch: i32 = -1;
        [0..] end_offset: i64 = -1;
    }
}
