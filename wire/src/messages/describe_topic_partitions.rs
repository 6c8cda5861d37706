//! DescribeTopicPartitions (key 75): topics page by page, with the eligible leader replicas (KIP-966).

use thalweg_model::TopicId;

message! {
    DescribeTopicPartitionsRequest: DescribeTopicPartitions, 0..=0, flexible 0; {
        [0..] topics: Vec<TopicRequest>;
        [0..] response_partition_limit: i32 = 2000;
        [0.., null 0..] cursor: Option<Cursor> = None;
    }
}

structure! {
    TopicRequest {
        [0..] name: String;
    }

    Cursor {
        [0..] topic_name: String;
        [0..] partition_index: i32;
    }
}

message! {
    DescribeTopicPartitionsResponse: DescribeTopicPartitions, 0..=0, flexible 0; {
        [0..] throttle_time_ms: i32;
        [0..] topics: Vec<DescribeTopicPartitionsResponseTopic>;
        [0.., null 0..] next_cursor: Option<Cursor> = None;
    }
}

structure! {
    DescribeTopicPartitionsResponseTopic {
        [0..] error_code: i16;
        [0.., null 0..] name: Option<String> = Some(String::new());
        [0..] topic_id: TopicId;
        [0..] is_internal: bool;
        [0..] partitions: Vec<DescribeTopicPartitionsResponsePartition>;
        [0..] topic_authorized_operations: i32 = i32::MIN;
    }

    DescribeTopicPartitionsResponsePartition {
        [0..] error_code: i16;
        [0..] partition_index: i32;
        [0..] leader_id: i32;
        [0..] leader_epoch: i32 = -1;
        [0..] replica_nodes: Vec<i32>;
        [0..] isr_nodes: Vec<i32>;
        [0.., null 0..] eligible_leader_replicas: Option<Vec<i32>> = None;
        [0.., null 0..] last_known_elr: Option<Vec<i32>> = None;
        [0..] offline_replicas: Vec<i32>;
    }
}
