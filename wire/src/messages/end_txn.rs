//! EndTxn (key 26): commits or aborts.
//!
//! 5 returns the next producer id and epoch (KIP-890).

message! {
    EndTxnRequest: EndTxn, 0..=5, flexible 3; {
        [0..] transactional_id: String;
        [0..] producer_id: i64;
        [0..] producer_epoch: i16;
        [0..] committed: bool;
    }
}

message! {
    EndTxnResponse: EndTxn, 0..=5, flexible 3; {
        [0..] throttle_time_ms: i32;
        [0..] error_code: i16;
        [5..] producer_id: i64 = -1;
        [5..] producer_epoch: i16 = -1;
    }
}
