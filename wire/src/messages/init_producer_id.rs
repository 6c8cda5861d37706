//! InitProducerId (key 22): a producer id and epoch, new or renewed.
//!
//! 3 carries the current id and epoch for recovery (KIP-360), 4 and 5 add error codes. Version 6 is unstable in Kafka.

message! {
    InitProducerIdRequest: InitProducerId, 0..=5, flexible 2; {
        [0.., null 0..] transactional_id: Option<String> = Some(String::new());
        [0..] transaction_timeout_ms: i32;
        [3..] producer_id: i64 = -1;
        [3..] producer_epoch: i16 = -1;
    }
}

message! {
    InitProducerIdResponse: InitProducerId, 0..=5, flexible 2; {
        [0..] throttle_time_ms: i32;
        [0..] error_code: i16;
        [0..] producer_id: i64 = -1;
        [0..] producer_epoch: i16;
    }
}
