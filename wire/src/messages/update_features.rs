//! UpdateFeatures (key 57): finalizes feature levels (KIP-584).

message! {
    UpdateFeaturesRequest: UpdateFeatures, 0..=2, flexible 0; {
        [0..] timeout_ms: i32 = 60000;
        [0..] feature_updates: Vec<FeatureUpdateKey>;
        [1..] validate_only: bool;
    }
}

structure! {
    FeatureUpdateKey {
        [0..] feature: String;
        [0..] max_version_level: i16;
        [0..=0] allow_downgrade: bool;
        [1..] upgrade_type: i8 = 1;
    }
}

message! {
    UpdateFeaturesResponse: UpdateFeatures, 0..=2, flexible 0; {
        [0..] throttle_time_ms: i32;
        [0..] error_code: i16;
        [0.., null 0..] error_message: Option<String> = Some(String::new());
        [0..=1] results: Vec<UpdatableFeatureResult>;
    }
}

structure! {
    UpdatableFeatureResult {
        [0..] feature: String;
        [0..] error_code: i16;
        [0.., null 0..] error_message: Option<String> = Some(String::new());
    }
}
