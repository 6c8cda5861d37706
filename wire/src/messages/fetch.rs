//! Fetch (key 1): reads record batches, for consumers and followers.
//!
//! 4 is the first with transactions (KIP-98), 7 adds sessions (KIP-227), 10 zstd, 11 the rack (KIP-392), 12 the
//! diverging epoch (KIP-595), 13 topic ids (KIP-516), 15 the replica state (KIP-903), 16 node endpoints (KIP-951),
//! 17 the directory id (KIP-853), 18 the follower's high watermark (KIP-1166). The broker answers with
//! [`crate::fetch_response`]; the response here is for readers.

use bytes::Bytes;
use thalweg_model::TopicId;

message! {
    FetchRequest: Fetch, 4..=18, flexible 12; {
        [12.., null 12.., tag 0] cluster_id: Option<String> = None;
        [0..=14] replica_id: i32 = -1;
        [15.., tag 1] replica_state: ReplicaState;
        [0..] max_wait_ms: i32;
        [0..] min_bytes: i32;
        [0..] max_bytes: i32 = i32::MAX;
        /// 0: up to the high watermark; 1: up to the last stable offset.
        [0..] isolation_level: i8;
        /// 0: no session yet.
        [7..] session_id: i32;
        /// 0: starts a session; -1: none.
        [7..] session_epoch: i32 = -1;
        [0..] topics: Vec<FetchTopic>;
        [7..] forgotten_topics_data: Vec<ForgottenTopic>;
        /// Empty for none.
        [11..] rack_id: String;
    }
}

structure! {
    ReplicaState {
        [15..] replica_id: i32 = -1;
        [15..] replica_epoch: i64 = -1;
    }

    FetchTopic {
        [0..=12] topic: String;
        [13..] topic_id: TopicId;
        [0..] partitions: Vec<FetchPartition>;
    }

    FetchPartition {
        [0..] partition: i32;
        /// -1: do not check.
        [9..] current_leader_epoch: i32 = -1;
        [0..] fetch_offset: i64;
        [12..] last_fetched_epoch: i32 = -1;
        [5..] log_start_offset: i64 = -1;
        [0..] partition_max_bytes: i32;
        [17.., tag 0] replica_directory_id: TopicId;
        [18.., tag 1] high_watermark: i64 = i64::MAX;
        /// Thalweg's own, between its brokers: below it the follower's records count; -1: all that it has.
        [15.., tag 10000] counted_offset: i64 = -1;
    }

    ForgottenTopic {
        [7..=12] topic: String;
        [13..] topic_id: TopicId;
        [7..] partitions: Vec<i32>;
    }
}

message! {
    FetchResponse: Fetch, 4..=18, flexible 12; {
        [0..] throttle_time_ms: i32;
        [7..] error_code: i16;
        [7..] session_id: i32;
        [0..] responses: Vec<FetchableTopicResponse>;
        [16.., tag 0] node_endpoints: Vec<NodeEndpoint>;
    }
}

structure! {
    FetchableTopicResponse {
        [0..=12] topic: String;
        [13..] topic_id: TopicId;
        [0..] partitions: Vec<PartitionData>;
    }

    PartitionData {
        [0..] partition_index: i32;
        [0..] error_code: i16;
        [0..] high_watermark: i64;
        /// Exclusive; never above the high watermark.
        [0..] last_stable_offset: i64 = -1;
        [5..] log_start_offset: i64 = -1;
        [12.., tag 0] diverging_epoch: EpochEndOffset;
        [12.., tag 1] current_leader: LeaderIdAndEpoch;
        [12.., tag 2] snapshot_id: SnapshotId;
        /// Null unless the request reads committed records only.
        [0.., null 0..] aborted_transactions: Option<Vec<AbortedTransaction>> = Some(Vec::new());
        [11..] preferred_read_replica: i32 = -1;
        [0.., null 0..] records: Option<Bytes> = None;
    }

    EpochEndOffset {
        [12..] epoch: i32 = -1;
        [12..] end_offset: i64 = -1;
    }

    LeaderIdAndEpoch {
        [12..] leader_id: i32 = -1;
        [12..] leader_epoch: i32 = -1;
    }

    SnapshotId {
        [0..] end_offset: i64 = -1;
        [0..] epoch: i32 = -1;
    }

    AbortedTransaction {
        [0..] producer_id: i64;
        [0..] first_offset: i64;
    }

    NodeEndpoint {
        [16..] node_id: i32;
        [16..] host: String;
        [16..] port: i32;
        [16.., null 16..] rack: Option<String> = None;
    }
}
