//! ApiVersions (key 18, versions 0-4): what this broker speaks.
//!
//! - A version above ours is answered in version 0 with error 35 and the one entry of key 18, so that the client can come
//!   down (KIP-511); see [`unsupported`].
//! - From version 3 on the client names itself; a name or version that breaks Kafka's pattern is error 42.
//! - Inspect, which is our own, is listed to our own client only: no other need cope with a key that it does not know.
//! - Features are left out as long as none is finalized: librdkafka before 2.2 misreads tagged fields.

use bytes::{Bytes, BytesMut};
use thalweg_model::ErrorCode;
use thalweg_wire::ApiKey;
use thalweg_wire::header::{self, EncodeFrameError};
use thalweg_wire::messages::api_versions::ApiVersion;
use thalweg_wire::messages::{ApiVersionsRequest, ApiVersionsResponse};

use super::context::RequestContext;
use crate::services::Services;

pub async fn handle(services: &Services, cx: &RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse {
    let named = is_software_name(&request.client_software_name) && is_software_name(&request.client_software_version);
    if cx.version() >= 3 && !named {
        return ApiVersionsResponse { error_code: ErrorCode::InvalidRequest.code(), ..Default::default() };
    }
    services.clients.note(&request.client_software_name, &request.client_software_version);
    ApiVersionsResponse { api_keys: served(&request.client_software_name), ..Default::default() }
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
