//! DescribeLogDirs (key 35): sizes of partitions per log directory.
//!
//! 3 adds a top-level error, 4 the volume's size (KIP-827), 5 cordoned directories (KIP-1066).

message! {
    DescribeLogDirsRequest: DescribeLogDirs, 1..=5, flexible 2; {
        [0.., null 0..] topics: Option<Vec<DescribableLogDirTopic>> = Some(Vec::new());
    }
}

structure! {
    DescribableLogDirTopic {
        [0..] topic: String;
        [0..] partitions: Vec<i32>;
    }
}

message! {
    DescribeLogDirsResponse: DescribeLogDirs, 1..=5, flexible 2; {
        [0..] throttle_time_ms: i32;
        [3..] error_code: i16;
        [0..] results: Vec<DescribeLogDirsResult>;
    }
}

structure! {
    DescribeLogDirsResult {
        [0..] error_code: i16;
        [0..] log_dir: String;
        [0..] topics: Vec<DescribeLogDirsTopic>;
        [4..] total_bytes: i64 = -1;
        [4..] usable_bytes: i64 = -1;
        [5..] is_cordoned: bool;
    }

    DescribeLogDirsTopic {
        [0..] name: String;
        [0..] partitions: Vec<DescribeLogDirsPartition>;
    }

    DescribeLogDirsPartition {
        [0..] partition_index: i32;
        [0..] partition_size: i64;
        [0..] offset_lag: i64;
        [0..] is_future_key: bool;
    }
}
