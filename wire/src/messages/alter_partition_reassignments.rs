//! AlterPartitionReassignments (key 45): moves partitions (KIP-455).

message! {
    AlterPartitionReassignmentsRequest: AlterPartitionReassignments, 0..=1, flexible 0; {
        [0..] timeout_ms: i32 = 60000;
        [1..] allow_replication_factor_change: bool = true;
        [0..] topics: Vec<ReassignableTopic>;
    }
}

structure! {
    ReassignableTopic {
        [0..] name: String;
        [0..] partitions: Vec<ReassignablePartition>;
    }

    ReassignablePartition {
        [0..] partition_index: i32;
        [0.., null 0..] replicas: Option<Vec<i32>> = None;
    }
}

message! {
    AlterPartitionReassignmentsResponse: AlterPartitionReassignments, 0..=1, flexible 0; {
        [0..] throttle_time_ms: i32;
        [1..] allow_replication_factor_change: bool = true;
        [0..] error_code: i16;
        [0.., null 0..] error_message: Option<String> = Some(String::new());
        [0..] responses: Vec<ReassignableTopicResponse>;
    }
}

structure! {
    ReassignableTopicResponse {
        [0..] name: String;
        [0..] partitions: Vec<ReassignablePartitionResponse>;
    }

    ReassignablePartitionResponse {
        [0..] partition_index: i32;
        [0..] error_code: i16;
        [0.., null 0..] error_message: Option<String> = Some(String::new());
    }
}
