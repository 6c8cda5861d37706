//! SaslHandshake (key 17): chooses the SASL mechanism.
//!
//! After version 0 bare tokens follow instead of SaslAuthenticate requests.

message! {
    SaslHandshakeRequest: SaslHandshake, 0..=1, flexible i16::MAX; {
        [0..] mechanism: String;
    }
}

message! {
    SaslHandshakeResponse: SaslHandshake, 0..=1, flexible i16::MAX; {
        [0..] error_code: i16;
        [0..] mechanisms: Vec<String>;
    }
}
