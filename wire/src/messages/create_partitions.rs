//! CreatePartitions (key 37): gives a topic more partitions.

message! {
    CreatePartitionsRequest: CreatePartitions, 0..=3, flexible 2; {
        [0..] topics: Vec<CreatePartitionsTopic>;
        [0..] timeout_ms: i32;
        [0..] validate_only: bool;
    }
}

structure! {
    CreatePartitionsTopic {
        [0..] name: String;
        [0..] count: i32;
        [0.., null 0..] assignments: Option<Vec<CreatePartitionsAssignment>> = Some(Vec::new());
    }

    CreatePartitionsAssignment {
        [0..] broker_ids: Vec<i32>;
    }
}

message! {
    CreatePartitionsResponse: CreatePartitions, 0..=3, flexible 2; {
        [0..] throttle_time_ms: i32;
        [0..] results: Vec<CreatePartitionsTopicResult>;
    }
}

structure! {
    CreatePartitionsTopicResult {
        [0..] name: String;
        [0..] error_code: i16;
        [0.., null 0..] error_message: Option<String> = None;
    }
}
