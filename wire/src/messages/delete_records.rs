//! DeleteRecords (key 21): moves a partition's log start offset up.

message! {
    DeleteRecordsRequest: DeleteRecords, 0..=2, flexible 2; {
        [0..] topics: Vec<DeleteRecordsTopic>;
        [0..] timeout_ms: i32;
    }
}

structure! {
    DeleteRecordsTopic {
        [0..] name: String;
        [0..] partitions: Vec<DeleteRecordsPartition>;
    }

    DeleteRecordsPartition {
        [0..] partition_index: i32;
        /// New log start offset; -1 for the high watermark.
        [0..] offset: i64;
    }
}

message! {
    DeleteRecordsResponse: DeleteRecords, 0..=2, flexible 2; {
        [0..] throttle_time_ms: i32;
        [0..] topics: Vec<DeleteRecordsTopicResult>;
    }
}

structure! {
    DeleteRecordsTopicResult {
        [0..] name: String;
        [0..] partitions: Vec<DeleteRecordsPartitionResult>;
    }

    DeleteRecordsPartitionResult {
        [0..] partition_index: i32;
        [0..] low_watermark: i64;
        [0..] error_code: i16;
    }
}
