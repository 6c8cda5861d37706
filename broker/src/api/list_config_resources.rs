//! ListConfigResources (key 74, versions 0-1): what can be configured (KIP-1142).
//!
//! Version 0 knows client metrics only, of which there are none here. From version 1 on the request names kinds, none for
//! all of them; kinds without any resource here (loggers, client metrics, groups) list nothing, unknown ones are 35.

use thalweg_model::ErrorCode;
use thalweg_wire::messages::list_config_resources::ConfigResource;
use thalweg_wire::messages::{ListConfigResourcesRequest, ListConfigResourcesResponse};

use super::config_resource::{KIND_BROKER, KIND_TOPIC};
use super::context::RequestContext;
use crate::machine::image::Image;
use crate::services::Services;

pub async fn handle(
    services: &Services,
    cx: &RequestContext,
    request: ListConfigResourcesRequest,
) -> ListConfigResourcesResponse {
    let kinds = if cx.version() == 0 { vec![KIND_CLIENT_METRICS] } else { request.resource_types };
    answer(&services.image(), &kinds)
}

fn answer(image: &Image, kinds: &[i8]) -> ListConfigResourcesResponse {
    if kinds.iter().any(|kind| !KINDS.contains(kind)) {
        return ListConfigResourcesResponse { error_code: ErrorCode::UnsupportedVersion.code(), ..Default::default() };
    }
    let wants = |kind: i8| kinds.is_empty() || kinds.contains(&kind);
    let resource = |resource_type: i8, resource_name: String| ConfigResource { resource_name, resource_type };
    let topics = image.topics().filter(|_| wants(KIND_TOPIC)).map(|topic| resource(KIND_TOPIC, topic.name.to_string()));
    let brokers = image.brokers.keys().filter(|_| wants(KIND_BROKER)).map(|id| resource(KIND_BROKER, id.to_string()));
    ListConfigResourcesResponse { config_resources: topics.chain(brokers).collect(), ..Default::default() }
}

const KIND_LOGGER: i8 = 8;
const KIND_CLIENT_METRICS: i8 = 16;
const KIND_GROUP: i8 = 32;
const KINDS: [i8; 5] = [KIND_TOPIC, KIND_BROKER, KIND_LOGGER, KIND_CLIENT_METRICS, KIND_GROUP];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::testing;

    #[test]
    fn kinds_choose_what_is_listed() {
        let image = testing::image(&[("a", 1), ("b", 1)]);
        let names = |kinds: &[i8]| -> Vec<(i8, String)> {
            let resources = answer(&image, kinds).config_resources.into_iter();
            resources.map(|resource| (resource.resource_type, resource.resource_name)).collect()
        };
        let (a, b, zero) = ((2, "a".to_owned()), (2, "b".to_owned()), (4, "0".to_owned()));
        assert_eq!(names(&[]), [a.clone(), b.clone(), zero.clone()]);
        assert_eq!(names(&[2]), [a, b]);
        assert_eq!(names(&[4, 16]), [zero]);
        assert_eq!(names(&[16]), []);
        assert_eq!(answer(&image, &[2, 3]).error_code, 35);
    }
}
