//! SaslAuthenticate (key 36): one round of a SASL mechanism.
//!
//! 1 adds the session's lifetime (KIP-368).

use bytes::Bytes;

message! {
    SaslAuthenticateRequest: SaslAuthenticate, 0..=2, flexible 2; {
        [0..] auth_bytes: Bytes;
    }
}

message! {
    SaslAuthenticateResponse: SaslAuthenticate, 0..=2, flexible 2; {
        [0..] error_code: i16;
        [0.., null 0..] error_message: Option<String> = Some(String::new());
        [0..] auth_bytes: Bytes;
        [1..] session_lifetime_ms: i64;
    }
}
