//! AddOffsetsToTxn (key 25): puts a group's offsets into a transaction.

message! {
    AddOffsetsToTxnRequest: AddOffsetsToTxn, 0..=4, flexible 3; {
        [0..] transactional_id: String;
        [0..] producer_id: i64;
        [0..] producer_epoch: i16;
        [0..] group_id: String;
    }
}

message! {
    AddOffsetsToTxnResponse: AddOffsetsToTxn, 0..=4, flexible 3; {
        [0..] throttle_time_ms: i32;
        [0..] error_code: i16;
    }
}
