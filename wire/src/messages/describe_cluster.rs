//! DescribeCluster (key 60): brokers without topics (KIP-700).
//!
//! 1 tells brokers and controllers apart, 2 shows fenced brokers (KIP-1073).

message! {
    DescribeClusterRequest: DescribeCluster, 0..=2, flexible 0; {
        [0..] include_cluster_authorized_operations: bool;
        [1..] endpoint_type: i8 = 1;
        [2..] include_fenced_brokers: bool;
    }
}

message! {
    DescribeClusterResponse: DescribeCluster, 0..=2, flexible 0; {
        [0..] throttle_time_ms: i32;
        [0..] error_code: i16;
        [0.., null 0..] error_message: Option<String> = None;
        [1..] endpoint_type: i8 = 1;
        [0..] cluster_id: String;
        [0..] controller_id: i32 = -1;
        [0..] brokers: Vec<DescribeClusterBroker>;
        [0..] cluster_authorized_operations: i32 = i32::MIN;
    }
}

structure! {
    DescribeClusterBroker {
        [0..] broker_id: i32;
        [0..] host: String;
        [0..] port: i32;
        [0.., null 0..] rack: Option<String> = None;
        [2..] is_fenced: bool;
    }
}
