//! DescribeGroups (key 15): state and members of classic groups.
//!
//! 3 adds authorized operations, 4 the instance id, 6 an error message and the error for unknown groups (KIP-1043).

use bytes::Bytes;

message! {
    DescribeGroupsRequest: DescribeGroups, 0..=6, flexible 5; {
        [0..] groups: Vec<String>;
        [3..] include_authorized_operations: bool;
    }
}

message! {
    DescribeGroupsResponse: DescribeGroups, 0..=6, flexible 5; {
        [1..] throttle_time_ms: i32;
        [0..] groups: Vec<DescribedGroup>;
    }
}

structure! {
    DescribedGroup {
        [0..] error_code: i16;
        [6.., null 6..] error_message: Option<String> = None;
        [0..] group_id: String;
        [0..] group_state: String;
        [0..] protocol_type: String;
        [0..] protocol_data: String;
        [0..] members: Vec<DescribedGroupMember>;
        [3..] authorized_operations: i32 = i32::MIN;
    }

    DescribedGroupMember {
        [0..] member_id: String;
        [4.., null 4..] group_instance_id: Option<String> = None;
        [0..] client_id: String;
        [0..] client_host: String;
        [0..] member_metadata: Bytes;
        [0..] member_assignment: Bytes;
    }
}
