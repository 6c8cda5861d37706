//! ApiVersions (key 18): what the broker speaks.
//!
//! The response's header is always version 0. 3 adds the client's name and the features (KIP-511, KIP-584), 4 allows
//! features from version 0, 5 names the cluster and node that the client expects (KIP-1242).

message! {
    ApiVersionsRequest: ApiVersions, 0..=5, flexible 3; {
        [3..] client_software_name: String;
        [3..] client_software_version: String;
        [5.., null 5..] cluster_id: Option<String> = None;
        [5..] node_id: i32 = -1;
    }
}

message! {
    ApiVersionsResponse: ApiVersions, 0..=5, flexible 3; {
        [0..] error_code: i16;
        [0..] api_keys: Vec<ApiVersion>;
        [1..] throttle_time_ms: i32;
        [3.., tag 0] supported_features: Vec<SupportedFeatureKey>;
        /// -1: not known; then the finalized features do not count.
        [3.., tag 1] finalized_features_epoch: i64 = -1;
        [3.., tag 2] finalized_features: Vec<FinalizedFeatureKey>;
        [3.., tag 3] zk_migration_ready: bool;
    }
}

structure! {
    ApiVersion {
        [0..] api_key: i16;
        [0..] min_version: i16;
        [0..] max_version: i16;
    }

    SupportedFeatureKey {
        [3..] name: String;
        [3..] min_version: i16;
        [3..] max_version: i16;
    }

    FinalizedFeatureKey {
        [3..] name: String;
        [3..] max_version_level: i16;
        [3..] min_version_level: i16;
    }
}
