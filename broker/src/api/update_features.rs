//! UpdateFeatures (key 57, versions 0-2): raises the level of thalweg.version (KIP-584).
//!
//! The one feature there is. Lower than now, or above what some node can do, is 95 with the node's name; another feature is 95
//! too, as in Kafka. All updates of a request stand or fall together, so there is one at most, and an error is that of the whole.

use thalweg_model::ErrorCode;
use thalweg_wire::messages::update_features::{FeatureUpdateKey, UpdatableFeatureResult};
use thalweg_wire::messages::{UpdateFeaturesRequest, UpdateFeaturesResponse};

use super::admin_calls::{self, Refusal};
use super::context::RequestContext;
use crate::machine::image::VERSION_FEATURE;
use crate::services::Services;

pub async fn handle(
    services: &Services,
    cx: &RequestContext,
    request: UpdateFeaturesRequest,
) -> UpdateFeaturesResponse {
    let outcome = match request.feature_updates.as_slice() {
        [] => Ok(()),
        updates => match wanted(updates) {
            Ok(level) => admin_calls::raise_level(services, level, request.validate_only).await,
            Err(refusal) => Err(refusal),
        },
    };
    match outcome {
        Err((code, message)) => UpdateFeaturesResponse {
            error_code: code.code(),
            error_message: Some(message),
            ..UpdateFeaturesResponse::default()
        },
        // Up to version 1 each feature has a result of its own, unless the whole failed.
        Ok(()) if cx.version() <= 1 => UpdateFeaturesResponse {
            results: request.feature_updates.into_iter().map(done).collect(),
            ..UpdateFeaturesResponse::default()
        },
        Ok(()) => UpdateFeaturesResponse::default(),
    }
}

fn done(update: FeatureUpdateKey) -> UpdatableFeatureResult {
    UpdatableFeatureResult { feature: update.feature, ..UpdatableFeatureResult::default() }
}

/// The level that is asked for.
fn wanted(updates: &[FeatureUpdateKey]) -> Result<u32, Refusal> {
    let invalid = |message: String| Err((ErrorCode::InvalidUpdateVersion, message));
    let [update] = updates else {
        let message = format!("one update is taken at a time, of {VERSION_FEATURE}; the request has {}", updates.len());
        return Err((ErrorCode::InvalidRequest, message));
    };
    if update.feature != VERSION_FEATURE {
        return invalid(format!("there is no feature '{}' here; there is {VERSION_FEATURE}", update.feature));
    }
    match u32::try_from(update.max_version_level) {
        Ok(level @ 1..) => Ok(level),
        Ok(_) | Err(_) => invalid(format!("{VERSION_FEATURE} cannot be switched off")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(feature: &str, level: i16) -> FeatureUpdateKey {
        FeatureUpdateKey { feature: feature.to_owned(), max_version_level: level, ..Default::default() }
    }

    #[test]
    fn only_one_raise_of_the_one_feature_is_passed_on() {
        let message = |updates: &[FeatureUpdateKey]| wanted(updates).unwrap_err();
        assert_eq!(wanted(&[update(VERSION_FEATURE, 4)]), Ok(4));
        assert_eq!(message(&[update("metadata.version", 4)]).0.code(), 95);
        for level in [0, -1] {
            assert!(message(&[update(VERSION_FEATURE, level)]).1.contains("switched off"));
        }
        assert!(message(&[update(VERSION_FEATURE, 4), update(VERSION_FEATURE, 5)]).1.contains("has 2"));
    }
}
