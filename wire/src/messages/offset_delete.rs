//! OffsetDelete (key 47): removes committed offsets of topics that nobody in the group reads (KIP-496).

message! {
    OffsetDeleteRequest: OffsetDelete, 0..=0, flexible i16::MAX; {
        [0..] group_id: String;
        [0..] topics: Vec<OffsetDeleteRequestTopic>;
    }
}

structure! {
    OffsetDeleteRequestTopic {
        [0..] name: String;
        [0..] partitions: Vec<OffsetDeleteRequestPartition>;
    }

    OffsetDeleteRequestPartition {
        [0..] partition_index: i32;
    }
}

message! {
    OffsetDeleteResponse: OffsetDelete, 0..=0, flexible i16::MAX; {
        [0..] error_code: i16;
        [0..] throttle_time_ms: i32;
        [0..] topics: Vec<OffsetDeleteResponseTopic>;
    }
}

structure! {
    OffsetDeleteResponseTopic {
        [0..] name: String;
        [0..] partitions: Vec<OffsetDeleteResponsePartition>;
    }

    OffsetDeleteResponsePartition {
        [0..] partition_index: i32;
        [0..] error_code: i16;
    }
}
