//! ListConfigResources (key 74): which resources have a configuration of their own (KIP-1142).
//!
//! 0 lists client metrics only.

message! {
    ListConfigResourcesRequest: ListConfigResources, 0..=1, flexible 0; {
        [1..] resource_types: Vec<i8>;
    }
}

message! {
    ListConfigResourcesResponse: ListConfigResources, 0..=1, flexible 0; {
        [0..] throttle_time_ms: i32;
        [0..] error_code: i16;
        [0..] config_resources: Vec<ConfigResource>;
    }
}

structure! {
    ConfigResource {
        [0..] resource_name: String;
        [1..] resource_type: i8 = 16;
    }
}
