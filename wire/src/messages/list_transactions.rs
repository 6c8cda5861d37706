//! ListTransactions (key 66): the transactions that a broker coordinates (KIP-664).
//!
//! 1 filters by duration (KIP-994), 2 by a pattern of the transactional id.

message! {
    ListTransactionsRequest: ListTransactions, 0..=2, flexible 0; {
        [0..] state_filters: Vec<String>;
        [0..] producer_id_filters: Vec<i64>;
        [1..] duration_filter: i64 = -1;
        [2.., null 2..] transactional_id_pattern: Option<String> = None;
    }
}

message! {
    ListTransactionsResponse: ListTransactions, 0..=2, flexible 0; {
        [0..] throttle_time_ms: i32;
        [0..] error_code: i16;
        [0..] unknown_state_filters: Vec<String>;
        [0..] transaction_states: Vec<TransactionState>;
    }
}

structure! {
    TransactionState {
        [0..] transactional_id: String;
        [0..] producer_id: i64;
        [0..] transaction_state: String;
    }
}
