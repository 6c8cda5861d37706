//! DescribeQuorum (key 55): who votes on the metadata, and how far each has come (KIP-595).
//!
//! 1 adds times (KIP-836), 2 directories, errors in words, and addresses of the voters (KIP-853).

use thalweg_model::TopicId;

message! {
    DescribeQuorumRequest: DescribeQuorum, 0..=2, flexible 0; {
        [0..] topics: Vec<DescribeQuorumTopic>;
    }
}

structure! {
    DescribeQuorumTopic {
        [0..] topic_name: String;
        [0..] partitions: Vec<DescribeQuorumPartition>;
    }

    DescribeQuorumPartition {
        [0..] partition_index: i32;
    }
}

message! {
    DescribeQuorumResponse: DescribeQuorum, 0..=2, flexible 0; {
        [0..] error_code: i16;
        [2.., null 2..] error_message: Option<String> = Some(String::new());
        [0..] topics: Vec<QuorumTopic>;
        [2..] nodes: Vec<QuorumNode>;
    }
}

structure! {
    QuorumTopic {
        [0..] topic_name: String;
        [0..] partitions: Vec<QuorumPartition>;
    }

    QuorumPartition {
        [0..] partition_index: i32;
        [0..] error_code: i16;
        [2.., null 2..] error_message: Option<String> = Some(String::new());
        [0..] leader_id: i32;
        [0..] leader_epoch: i32;
        [0..] high_watermark: i64;
        [0..] current_voters: Vec<QuorumReplica>;
        [0..] observers: Vec<QuorumReplica>;
    }

    QuorumReplica {
        [0..] replica_id: i32;
        /// Any UUID; no topic's.
        [2..] replica_directory_id: TopicId;
        [0..] log_end_offset: i64;
        [1..] last_fetch_timestamp: i64 = -1;
        [1..] last_caught_up_timestamp: i64 = -1;
    }

    QuorumNode {
        [0..] node_id: i32;
        [0..] listeners: Vec<QuorumListener>;
    }

    QuorumListener {
        [0..] name: String;
        [0..] host: String;
        [0..] port: u16;
    }
}
