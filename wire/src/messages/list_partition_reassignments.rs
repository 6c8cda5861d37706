//! ListPartitionReassignments (key 46): the moves under way (KIP-455).

message! {
    ListPartitionReassignmentsRequest: ListPartitionReassignments, 0..=0, flexible 0; {
        [0..] timeout_ms: i32 = 60000;
        [0.., null 0..] topics: Option<Vec<ListPartitionReassignmentsTopics>> = None;
    }
}

structure! {
    ListPartitionReassignmentsTopics {
        [0..] name: String;
        [0..] partition_indexes: Vec<i32>;
    }
}

message! {
    ListPartitionReassignmentsResponse: ListPartitionReassignments, 0..=0, flexible 0; {
        [0..] throttle_time_ms: i32;
        [0..] error_code: i16;
        [0.., null 0..] error_message: Option<String> = Some(String::new());
        [0..] topics: Vec<OngoingTopicReassignment>;
    }
}

structure! {
    OngoingTopicReassignment {
        [0..] name: String;
        [0..] partitions: Vec<OngoingPartitionReassignment>;
    }

    OngoingPartitionReassignment {
        [0..] partition_index: i32;
        [0..] replicas: Vec<i32>;
        [0..] adding_replicas: Vec<i32>;
        [0..] removing_replicas: Vec<i32>;
    }
}
