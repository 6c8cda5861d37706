//! ConsumerGroupHeartbeat (key 68): the one call of the new group protocol (KIP-848).

use thalweg_model::TopicId;

message! {
    ConsumerGroupHeartbeatRequest: ConsumerGroupHeartbeat, 0..=1, flexible 0; {
        [0..] group_id: String;
        [0..] member_id: String;
        [0..] member_epoch: i32;
        [0.., null 0..] instance_id: Option<String> = None;
        [0.., null 0..] rack_id: Option<String> = None;
        [0..] rebalance_timeout_ms: i32 = -1;
        [0.., null 0..] subscribed_topic_names: Option<Vec<String>> = None;
        [1.., null 1..] subscribed_topic_regex: Option<String> = None;
        [0.., null 0..] server_assignor: Option<String> = None;
        [0.., null 0..] topic_partitions: Option<Vec<TopicPartitions>> = None;
    }
}

structure! {
    TopicPartitions {
        [0..] topic_id: TopicId;
        [0..] partitions: Vec<i32>;
    }
}

message! {
    ConsumerGroupHeartbeatResponse: ConsumerGroupHeartbeat, 0..=1, flexible 0; {
        [0..] throttle_time_ms: i32;
        [0..] error_code: i16;
        [0.., null 0..] error_message: Option<String> = None;
        [0.., null 0..] member_id: Option<String> = None;
        [0..] member_epoch: i32;
        [0..] heartbeat_interval_ms: i32;
        [0.., null 0..] assignment: Option<Assignment> = None;
    }
}

structure! {
    Assignment {
        [0..] topic_partitions: Vec<TopicPartitions>;
    }
}
