//! ListOffsets (key 2): an offset by timestamp, or by one of the negative special values.
//!
//! 2 adds the isolation level, 4 leader epochs, 7 the maximum timestamp, 8 the earliest local offset, 9 the latest
//! tiered one, 10 a timeout, 11 the earliest pending upload.

message! {
    ListOffsetsRequest: ListOffsets, 1..=11, flexible 6; {
        [0..] replica_id: i32;
        [2..] isolation_level: i8;
        [0..] topics: Vec<ListOffsetsTopic>;
        [10..] timeout_ms: i32;
    }
}

structure! {
    ListOffsetsTopic {
        [0..] name: String;
        [0..] partitions: Vec<ListOffsetsPartition>;
    }

    ListOffsetsPartition {
        [0..] partition_index: i32;
        [4..] current_leader_epoch: i32 = -1;
        /// Milliseconds, or -1 latest, -2 earliest, -3 of the maximum timestamp, -4 earliest local, -5 latest tiered,
        /// -6 earliest pending upload.
        [0..] timestamp: i64;
    }
}

message! {
    ListOffsetsResponse: ListOffsets, 1..=11, flexible 6; {
        [2..] throttle_time_ms: i32;
        [0..] topics: Vec<ListOffsetsTopicResponse>;
    }
}

structure! {
    ListOffsetsTopicResponse {
        [0..] name: String;
        [0..] partitions: Vec<ListOffsetsPartitionResponse>;
    }

    ListOffsetsPartitionResponse {
        [0..] partition_index: i32;
        [0..] error_code: i16;
        [0..] timestamp: i64 = -1;
        [0..] offset: i64 = -1;
        [4..] leader_epoch: i32 = -1;
    }
}
