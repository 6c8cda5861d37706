//! AlterConfigs (key 33, versions 0-2): replaces the whole configuration of a resource.
//!
//! What is not named goes back to its default. Unknown keys and bad values are 40, a missing topic 3, a null value, a
//! resource or key that is named twice, or a broker's fixed key 42; a refused resource stays as it was.

use thalweg_proto::v1;
use thalweg_wire::messages::alter_configs::{AlterConfigsResource, AlterConfigsResourceResponse};
use thalweg_wire::messages::{AlterConfigsRequest, AlterConfigsResponse};

use super::admin_calls::{self, Refusal};
use super::config_resource::{KIND_BROKER, broker_scope, check_broker_value};
use super::context::RequestContext;
use super::group_gateway::code_and_message;
use crate::services::Services;

pub async fn handle(services: &Services, _: &RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse {
    let checked = request.resources.into_iter().map(|resource| {
        let id = (resource.resource_type, resource.resource_name.clone());
        (id, replacement(services, resource))
    });
    let outcomes = alter(services, checked.collect(), request.validate_only).await;
    let responses = outcomes.into_iter().map(|outcome| AlterConfigsResourceResponse {
        error_code: outcome.error_code,
        error_message: outcome.error_message,
        resource_type: outcome.resource_type,
        resource_name: outcome.resource_name,
    });
    AlterConfigsResponse { responses: responses.collect(), ..Default::default() }
}

fn replacement(services: &Services, resource: AlterConfigsResource) -> Result<v1::ConfigResource, Refusal> {
    if resource.resource_type == KIND_BROKER {
        let scope = broker_scope(&resource.resource_name, services.node_id())?;
        for config in &resource.configs {
            check_broker_value(&scope, &config.name, config.value.as_deref())?;
        }
    }
    let set = v1::config_change::Op::Set.into();
    let configs = resource.configs.into_iter();
    Ok(v1::ConfigResource {
        kind: i32::from(resource.resource_type),
        name: resource.resource_name,
        changes: configs.map(|config| v1::ConfigChange { key: config.name, op: set, value: config.value }).collect(),
        replace_all: true,
    })
}

/// What became of one resource.
pub(super) struct Outcome {
    pub error_code: i16,
    /// Null on success.
    pub error_message: Option<String>,
    pub resource_type: i8,
    pub resource_name: String,
}

/// Has the coordinators make those changes that passed this broker's checks; one outcome for each, in order.
pub(super) async fn alter(
    services: &Services,
    checked: Vec<((i8, String), Result<v1::ConfigResource, Refusal>)>,
    validate_only: bool,
) -> Vec<Outcome> {
    let resources: Vec<_> = checked.iter().filter_map(|(_, resource)| resource.as_ref().ok().cloned()).collect();
    let count = resources.len();
    let altered = if resources.is_empty() {
        Ok(Vec::new())
    } else {
        admin_calls::alter_configs(services, v1::AlterConfigsRequest { resources, validate_only }).await
    };
    let mut decided = match altered {
        Ok(altered) => altered.iter().map(|altered| code_and_message(altered.error.as_ref())).collect(),
        Err((code, message)) => vec![(code, Some(message)); count],
    }
    .into_iter();
    let outcomes = checked.into_iter().map(|((resource_type, resource_name), resource)| {
        let (code, error_message) = match resource {
            Ok(_) => decided.next().unwrap_or((thalweg_model::ErrorCode::UnknownServerError, None)),
            Err((code, message)) => (code, Some(message)),
        };
        Outcome { error_code: code.code(), error_message, resource_type, resource_name }
    });
    outcomes.collect()
}
