//! Inspect (key 1000): Thalweg's own, for its command line. Kafka has no such API, and no Kafka client is told of it.
//!
//! `document` is JSON; `crate::inspect` has its shapes, by `kind`.

message! {
    InspectRequest: Inspect, 0..=0, flexible 0; {
        [0..] kind: i8;
        [0..] subject: String;
    }
}

message! {
    InspectResponse: Inspect, 0..=0, flexible 0; {
        [0..] throttle_time_ms: i32;
        [0..] error_code: i16;
        [0.., null 0..] error_message: Option<String> = None;
        [0..] document: String;
    }
}
