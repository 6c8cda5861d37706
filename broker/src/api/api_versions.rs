//! ApiVersions (key 18, versions 0-4): what this broker speaks.
//!
//! - A version above ours is answered in version 0 with error 35 and the one entry of key 18, so that the client can come
//!   down (KIP-511); see [`unsupported`].
//! - From version 3 on the client names itself; a name or version that breaks Kafka's pattern is error 42.
//! - Inspect, which is our own, is listed to our own client only: no other need cope with a key that it does not know.
//! - The one feature is thalweg.version, from version 3 on. Its three tags stand together or not at all: librdkafka before 2.2
//!   misreads tagged fields, and copes with these. The epoch is the level itself: like the level it only rises.

use bytes::{Bytes, BytesMut};
use thalweg_model::ErrorCode;
use thalweg_proto::LEVELS;
use thalweg_wire::ApiKey;
use thalweg_wire::header::{self, EncodeFrameError};
use thalweg_wire::messages::api_versions::{ApiVersion, FinalizedFeatureKey, SupportedFeatureKey};
use thalweg_wire::messages::{ApiVersionsRequest, ApiVersionsResponse};

use super::context::RequestContext;
use crate::machine::image::VERSION_FEATURE;
use crate::services::Services;

pub async fn handle(services: &Services, cx: &RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse {
    let named = is_software_name(&request.client_software_name) && is_software_name(&request.client_software_version);
    if cx.version() >= 3 && !named {
        return ApiVersionsResponse { error_code: ErrorCode::InvalidRequest.code(), ..Default::default() };
    }
    services.clients.note(&request.client_software_name, &request.client_software_version);
    let response = ApiVersionsResponse { api_keys: served(&request.client_software_name), ..Default::default() };
    if cx.version() >= 3 { with_features(response, services.image().level()) } else { response }
}

/// Without, as long as this broker does not know the cluster's level.
fn with_features(response: ApiVersionsResponse, level: u32) -> ApiVersionsResponse {
    let Some(finalized) = i16::try_from(level).ok().filter(|level| *level > 0) else { return response };
    let narrow = |level: u32| i16::try_from(level).unwrap_or(i16::MAX);
    let name = VERSION_FEATURE.to_owned();
    let supported = SupportedFeatureKey {
        name: name.clone(),
        min_version: narrow(*LEVELS.start()),
        max_version: narrow(*LEVELS.end()),
    };
    // A range in Kafka's words, of which only the upper end means anything since KIP-778.
    let finalized_key = FinalizedFeatureKey { name, max_version_level: finalized, min_version_level: finalized };
    ApiVersionsResponse {
        supported_features: vec![supported],
        finalized_features_epoch: i64::from(finalized),
        finalized_features: vec![finalized_key],
        ..response
    }
}

/// The answer to a version that we do not know.
///
/// # Errors
/// Ours; see [`EncodeFrameError`].
pub fn unsupported(correlation_id: i32) -> Result<Bytes, EncodeFrameError> {
    let response = ApiVersionsResponse {
        error_code: ErrorCode::UnsupportedVersion.code(),
        api_keys: served("").into_iter().filter(|api| api.api_key == ApiKey::ApiVersions.code()).collect(),
        ..Default::default()
    };
    let mut out = BytesMut::new();
    header::encode_response(&mut out, 0, correlation_id, &response)?;
    Ok(out.freeze())
}

fn served(software: &str) -> Vec<ApiVersion> {
    let is_listed = |key: &ApiKey| super::is_served(*key) && (!key.is_private() || software == OUR_CLIENT);
    let served = ApiKey::ALL.iter().filter(|key| is_listed(key));
    let ranges = served.filter_map(|key| Some((key, key.advertised_versions()?)));
    ranges
        .map(|(key, versions)| ApiVersion {
            api_key: key.code(),
            min_version: *versions.start(),
            max_version: *versions.end(),
        })
        .collect()
}

/// As our client names itself.
const OUR_CLIENT: &str = "thalweg";

/// `[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?`
fn is_software_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    ends(bytes.first())
        && ends(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_names_follow_kafkas_pattern() {
        for name in ["librdkafka", "apache-kafka-java", "4.4.0", "a"] {
            assert!(is_software_name(name), "{name}");
        }
        for name in ["", "-a", "a-", ".", "a b", "ä"] {
            assert!(!is_software_name(name), "{name}");
        }
    }

    #[test]
    fn an_unknown_version_is_answered_with_our_range_of_this_api_alone() {
        let frame = unsupported(7).unwrap();
        // Size, correlation id, error 35, one entry: key 18, versions 0 to 4.
        assert_eq!(&frame[..], [0, 0, 0, 16, 0, 0, 0, 7, 0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 4]);
    }

    #[test]
    fn the_level_is_told_with_all_three_tags_or_with_none() {
        let told = |level| with_features(ApiVersionsResponse::default(), level);
        assert_eq!(told(0), ApiVersionsResponse::default(), "before the cluster is known");
        let known = told(3);
        let supported = &known.supported_features[0];
        assert_eq!((supported.min_version, supported.max_version), (1, *LEVELS.end() as i16));
        let finalized = &known.finalized_features[0];
        assert_eq!((finalized.max_version_level, known.finalized_features_epoch), (3, 3));
        assert_eq!((supported.name.as_str(), finalized.name.as_str()), ("thalweg.version", "thalweg.version"));
    }

    #[test]
    fn old_librdkafka_finds_what_it_needs_to_compress() {
        let served = served("librdkafka");
        let range = |key: ApiKey| served.iter().find(|api| api.api_key == key.code()).map(|api| api.min_version);
        assert_eq!(range(ApiKey::Produce), Some(0));
        assert_eq!(range(ApiKey::FindCoordinator), super::super::is_served(ApiKey::FindCoordinator).then_some(0));
    }

    #[test]
    fn our_own_api_is_listed_to_our_own_client_alone() {
        let lists_it = |software| served(software).iter().any(|api| api.api_key == ApiKey::Inspect.code());
        assert!(lists_it("thalweg"));
        assert!(!lists_it("") && !lists_it("librdkafka") && !lists_it("apache-kafka-java"));
    }
}
