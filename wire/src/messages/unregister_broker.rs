//! UnregisterBroker (key 64): forgets a broker.

message! {
    UnregisterBrokerRequest: UnregisterBroker, 0..=0, flexible 0; {
        [0..] broker_id: i32;
    }
}

message! {
    UnregisterBrokerResponse: UnregisterBroker, 0..=0, flexible 0; {
        [0..] throttle_time_ms: i32;
        [0..] error_code: i16;
        [0.., null 0..] error_message: Option<String> = Some(String::new());
    }
}
