//! ListGroups (key 16): the groups that a broker fronts.
//!
//! 4 filters by state (KIP-518), 5 by type (KIP-848).

message! {
    ListGroupsRequest: ListGroups, 0..=5, flexible 3; {
        [4..] states_filter: Vec<String>;
        [5..] types_filter: Vec<String>;
    }
}

message! {
    ListGroupsResponse: ListGroups, 0..=5, flexible 3; {
        [1..] throttle_time_ms: i32;
        [0..] error_code: i16;
        [0..] groups: Vec<ListedGroup>;
    }
}

structure! {
    ListedGroup {
        [0..] group_id: String;
        [0..] protocol_type: String;
        [4..] group_state: String;
        [5..] group_type: String;
    }
}
