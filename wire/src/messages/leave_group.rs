//! LeaveGroup (key 13): leaves a classic group.
//!
//! 3 names several members, by member id or instance id (KIP-345); 5 adds a reason.

message! {
    LeaveGroupRequest: LeaveGroup, 0..=5, flexible 4; {
        [0..] group_id: String;
        [0..=2] member_id: String;
        [3..] members: Vec<MemberIdentity>;
    }
}

structure! {
    MemberIdentity {
        [3..] member_id: String;
        [3.., null 3..] group_instance_id: Option<String> = None;
        [5.., null 5..] reason: Option<String> = None;
    }
}

message! {
    LeaveGroupResponse: LeaveGroup, 0..=5, flexible 4; {
        [1..] throttle_time_ms: i32;
        [0..] error_code: i16;
        [3..] members: Vec<MemberResponse>;
    }
}

structure! {
    MemberResponse {
        [3..] member_id: String;
        [3.., null 3..] group_instance_id: Option<String> = Some(String::new());
        [3..] error_code: i16;
    }
}
