//! ElectLeaders (key 43): asks for a preferred or unclean election (KIP-460).

message! {
    ElectLeadersRequest: ElectLeaders, 0..=2, flexible 2; {
        [1..] election_type: i8;
        [0.., null 0..] topic_partitions: Option<Vec<TopicPartitions>> = Some(Vec::new());
        [0..] timeout_ms: i32 = 60000;
    }
}

structure! {
    TopicPartitions {
        [0..] topic: String;
        [0..] partitions: Vec<i32>;
    }
}

message! {
    ElectLeadersResponse: ElectLeaders, 0..=2, flexible 2; {
        [0..] throttle_time_ms: i32;
        [1..] error_code: i16;
        [0..] replica_election_results: Vec<ReplicaElectionResult>;
    }
}

structure! {
    ReplicaElectionResult {
        [0..] topic: String;
        [0..] partition_result: Vec<PartitionResult>;
    }

    PartitionResult {
        [0..] partition_id: i32;
        [0..] error_code: i16;
        [0.., null 0..] error_message: Option<String> = Some(String::new());
    }
}
