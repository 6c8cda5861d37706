//! JoinGroup (key 11): enters a rebalance of a classic group.
//!
//! 4 asks new members to join again with a given id (KIP-394), 5 adds the instance id (KIP-345), 8 a reason, 9 tells
//! a rejoining static leader to skip the assignment (KIP-814).

use bytes::Bytes;

message! {
    JoinGroupRequest: JoinGroup, 0..=9, flexible 6; {
        [0..] group_id: String;
        [0..] session_timeout_ms: i32;
        /// -1 (version 0): the session timeout.
        [1..] rebalance_timeout_ms: i32 = -1;
        [0..] member_id: String;
        [5.., null 5..] group_instance_id: Option<String> = None;
        [0..] protocol_type: String;
        [0..] protocols: Vec<JoinGroupRequestProtocol>;
        [8.., null 8..] reason: Option<String> = None;
    }
}

structure! {
    JoinGroupRequestProtocol {
        [0..] name: String;
        [0..] metadata: Bytes;
    }
}

message! {
    JoinGroupResponse: JoinGroup, 0..=9, flexible 6; {
        [2..] throttle_time_ms: i32;
        [0..] error_code: i16;
        [0..] generation_id: i32 = -1;
        [7.., null 7..] protocol_type: Option<String> = None;
        [0.., null 7..] protocol_name: Option<String> = Some(String::new());
        [0..] leader: String;
        [9..] skip_assignment: bool;
        [0..] member_id: String;
        [0..] members: Vec<JoinGroupResponseMember>;
    }
}

structure! {
    JoinGroupResponseMember {
        [0..] member_id: String;
        [5.., null 5..] group_instance_id: Option<String> = None;
        /// Opaque.
        [0..] metadata: Bytes;
    }
}
