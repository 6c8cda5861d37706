//! FindCoordinator (key 10): which broker fronts a group or a transactional id.
//!
//! 1 adds the key type, 4 several keys at once (KIP-699), 6 share groups (KIP-932).

message! {
    FindCoordinatorRequest: FindCoordinator, 0..=6, flexible 3; {
        [0..=3] key: String;
        /// 0 group, 1 transactional id, 2 share group.
        [1..] key_type: i8;
        [4..] coordinator_keys: Vec<String>;
    }
}

message! {
    FindCoordinatorResponse: FindCoordinator, 0..=6, flexible 3; {
        [1..] throttle_time_ms: i32;
        [0..=3] error_code: i16;
        [1..=3, null 1..=3] error_message: Option<String> = Some(String::new());
        [0..=3] node_id: i32;
        [0..=3] host: String;
        [0..=3] port: i32;
        [4..] coordinators: Vec<Coordinator>;
    }
}

structure! {
    Coordinator {
        [4..] key: String;
        [4..] node_id: i32;
        [4..] host: String;
        [4..] port: i32;
        [4..] error_code: i16;
        [4.., null 4..] error_message: Option<String> = Some(String::new());
    }
}
