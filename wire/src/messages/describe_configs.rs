//! DescribeConfigs (key 32): configuration of topics, brokers, groups.
//!
//! Keys null asks for all. 3 adds types and documentation (KIP-569).

message! {
    DescribeConfigsRequest: DescribeConfigs, 1..=4, flexible 4; {
        [0..] resources: Vec<DescribeConfigsResource>;
        [0..] include_synonyms: bool;
        [3..] include_documentation: bool;
    }
}

structure! {
    DescribeConfigsResource {
        [0..] resource_type: i8;
        [0..] resource_name: String;
        /// Null for all.
        [0.., null 0..] configuration_keys: Option<Vec<String>> = Some(Vec::new());
    }
}

message! {
    DescribeConfigsResponse: DescribeConfigs, 1..=4, flexible 4; {
        [0..] throttle_time_ms: i32;
        [0..] results: Vec<DescribeConfigsResult>;
    }
}

structure! {
    DescribeConfigsResult {
        [0..] error_code: i16;
        [0.., null 0..] error_message: Option<String> = Some(String::new());
        [0..] resource_type: i8;
        [0..] resource_name: String;
        [0..] configs: Vec<DescribeConfigsResourceResult>;
    }

    DescribeConfigsResourceResult {
        [0..] name: String;
        [0.., null 0..] value: Option<String> = Some(String::new());
        [0..] read_only: bool;
        [0..] config_source: i8 = -1;
        [0..] is_sensitive: bool;
        [0..] synonyms: Vec<DescribeConfigsSynonym>;
        [3..] config_type: i8;
        [3.., null 0..] documentation: Option<String> = Some(String::new());
    }

    DescribeConfigsSynonym {
        [0..] name: String;
        [0.., null 0..] value: Option<String> = Some(String::new());
        [0..] source: i8;
    }
}
