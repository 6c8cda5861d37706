//! ConsumerGroupDescribe (key 69): state and members of groups of the new protocol (KIP-848).

use thalweg_model::TopicId;

message! {
    ConsumerGroupDescribeRequest: ConsumerGroupDescribe, 0..=1, flexible 0; {
        [0..] group_ids: Vec<String>;
        [0..] include_authorized_operations: bool;
    }
}

message! {
    ConsumerGroupDescribeResponse: ConsumerGroupDescribe, 0..=1, flexible 0; {
        [0..] throttle_time_ms: i32;
        [0..] groups: Vec<DescribedGroup>;
    }
}

structure! {
    DescribedGroup {
        [0..] error_code: i16;
        [0.., null 0..] error_message: Option<String> = None;
        [0..] group_id: String;
        [0..] group_state: String;
        [0..] group_epoch: i32;
        [0..] assignment_epoch: i32;
        [0..] assignor_name: String;
        [0..] members: Vec<Member>;
        [0..] authorized_operations: i32 = i32::MIN;
    }

    Member {
        [0..] member_id: String;
        [0.., null 0..] instance_id: Option<String> = None;
        [0.., null 0..] rack_id: Option<String> = None;
        [0..] member_epoch: i32;
        [0..] client_id: String;
        [0..] client_host: String;
        [0..] subscribed_topic_names: Vec<String>;
        [0.., null 0..] subscribed_topic_regex: Option<String> = None;
        [0..] assignment: Assignment;
        [0..] target_assignment: Assignment;
        [1..] member_type: i8 = -1;
    }

    Assignment {
        [0..] topic_partitions: Vec<TopicPartitions>;
    }

    TopicPartitions {
        [0..] topic_id: TopicId;
        [0..] topic_name: String;
        [0..] partitions: Vec<i32>;
    }
}
