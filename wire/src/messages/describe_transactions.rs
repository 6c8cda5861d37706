//! DescribeTransactions (key 65): state of transactions (KIP-664).

message! {
    DescribeTransactionsRequest: DescribeTransactions, 0..=0, flexible 0; {
        [0..] transactional_ids: Vec<String>;
    }
}

message! {
    DescribeTransactionsResponse: DescribeTransactions, 0..=0, flexible 0; {
        [0..] throttle_time_ms: i32;
        [0..] transaction_states: Vec<TransactionState>;
    }
}

structure! {
    TransactionState {
        [0..] error_code: i16;
        [0..] transactional_id: String;
        [0..] transaction_state: String;
        [0..] transaction_timeout_ms: i32;
        [0..] transaction_start_time_ms: i64;
        [0..] producer_id: i64;
        [0..] producer_epoch: i16;
        [0..] topics: Vec<TopicData>;
    }

    TopicData {
        [0..] topic: String;
        [0..] partitions: Vec<i32>;
    }
}
