//! IncrementalAlterConfigs (key 44): sets, deletes, appends to or subtracts from single keys (KIP-339).

message! {
    IncrementalAlterConfigsRequest: IncrementalAlterConfigs, 0..=1, flexible 1; {
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
        /// 0 set, 1 delete, 2 append, 3 subtract; on [`IncrementalAlterConfigsRequest`] only.
        [0..] config_operation: i8;
        [0.., null 0..] value: Option<String> = Some(String::new());
    }
}

message! {
    IncrementalAlterConfigsResponse: IncrementalAlterConfigs, 0..=1, flexible 1; {
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
