//! SyncGroup (key 14): brings the leader's assignment, or fetches one's own.
//!
//! 3 adds the instance id, 5 the protocol that is expected (KIP-559).

use bytes::Bytes;

message! {
    SyncGroupRequest: SyncGroup, 0..=5, flexible 4; {
        [0..] group_id: String;
        [0..] generation_id: i32;
        [0..] member_id: String;
        [3.., null 3..] group_instance_id: Option<String> = None;
        [5.., null 5..] protocol_type: Option<String> = None;
        [5.., null 5..] protocol_name: Option<String> = None;
        [0..] assignments: Vec<SyncGroupRequestAssignment>;
    }
}

structure! {
    SyncGroupRequestAssignment {
        [0..] member_id: String;
        /// Opaque; returned to the member verbatim.
        [0..] assignment: Bytes;
    }
}

message! {
    SyncGroupResponse: SyncGroup, 0..=5, flexible 4; {
        [1..] throttle_time_ms: i32;
        [0..] error_code: i16;
        [5.., null 5..] protocol_type: Option<String> = None;
        [5.., null 5..] protocol_name: Option<String> = None;
        /// Opaque; what the leader sent for this member.
        [0..] assignment: Bytes;
    }
}
