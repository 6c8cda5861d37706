//! AlterConfigs (key 33): replaces the whole configuration of a resource.

message! {
    AlterConfigsRequest: AlterConfigs, 0..=2, flexible 2; {
        [0..] resources: Vec<AlterConfigsResource>;
        [0..] validate_only: bool;
    }
}

structure! {
    AlterConfigsResource {
        [0..] resource_type: i8;
        [0..] resource_name: String;
        [0..] configs: Vec<AlterableConfig>;
    }

    AlterableConfig {
        [0..] name: String;
        [0.., null 0..] value: Option<String> = Some(String::new());
    }
}

message! {
    AlterConfigsResponse: AlterConfigs, 0..=2, flexible 2; {
        [0..] throttle_time_ms: i32;
        [0..] responses: Vec<AlterConfigsResourceResponse>;
    }
}

structure! {
    AlterConfigsResourceResponse {
        [0..] error_code: i16;
        [0.., null 0..] error_message: Option<String> = Some(String::new());
        [0..] resource_type: i8;
        [0..] resource_name: String;
    }
}
