//! AlterReplicaLogDirs (key 34): in which of its directories a broker should keep replicas (KIP-113).

message! {
    AlterReplicaLogDirsRequest: AlterReplicaLogDirs, 1..=2, flexible 2; {
        [0..] dirs: Vec<AlterReplicaLogDir>;
    }
}

structure! {
    AlterReplicaLogDir {
        /// Absolute.
        [0..] path: String;
        [0..] topics: Vec<AlterReplicaLogDirTopic>;
    }

    AlterReplicaLogDirTopic {
        [0..] name: String;
        [0..] partitions: Vec<i32>;
    }
}

message! {
    AlterReplicaLogDirsResponse: AlterReplicaLogDirs, 1..=2, flexible 2; {
        [0..] throttle_time_ms: i32;
        [0..] results: Vec<AlterReplicaLogDirTopicResult>;
    }
}

structure! {
    AlterReplicaLogDirTopicResult {
        [0..] topic_name: String;
        [0..] partitions: Vec<AlterReplicaLogDirPartitionResult>;
    }

    AlterReplicaLogDirPartitionResult {
        [0..] partition_index: i32;
        [0..] error_code: i16;
    }
}
