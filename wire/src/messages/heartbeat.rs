//! Heartbeat (key 12): keeps a member of a classic group alive.
//!
//! 3 adds the instance id (KIP-345).

message! {
    HeartbeatRequest: Heartbeat, 0..=4, flexible 4; {
        [0..] group_id: String;
        [0..] generation_id: i32;
        [0..] member_id: String;
        [3.., null 3..] group_instance_id: Option<String> = None;
    }
}

message! {
    HeartbeatResponse: Heartbeat, 0..=4, flexible 4; {
        [1..] throttle_time_ms: i32;
        [0..] error_code: i16;
    }
}
