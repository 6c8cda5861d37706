//! DeleteGroups (key 42): removes empty groups with their offsets.

message! {
    DeleteGroupsRequest: DeleteGroups, 0..=3, flexible 2; {
        [0..] groups_names: Vec<String>;
    }
}

message! {
    DeleteGroupsResponse: DeleteGroups, 0..=3, flexible 2; {
        [0..] throttle_time_ms: i32;
        [0..] results: Vec<DeletableGroupResult>;
    }
}

structure! {
    DeletableGroupResult {
        [0..] group_id: String;
        [0..] error_code: i16;
        [3.., null 3..] error_message: Option<String> = None;
    }
}
