//! IncrementalAlterConfigs (key 44, versions 0-1): sets, deletes, appends to or subtracts from single keys (KIP-339).
//!
//! What is not named stays. Errors as for AlterConfigs; APPEND and SUBTRACT of what is no list are 40.

use thalweg_model::ErrorCode;
use thalweg_proto::v1;
use thalweg_wire::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterConfigsResourceResponse, AlterableConfig,
};
use thalweg_wire::messages::{IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse};
use v1::config_change::Op;

use super::admin_calls::Refusal;
use super::alter_configs::alter;
use super::config_resource::{KIND_BROKER, broker_list, broker_scope, check_broker_value, edited_list};
use super::context::RequestContext;
use crate::config::Properties;
use crate::machine::image::{ConfigScope, Image};
use crate::services::Services;

pub async fn handle(
    services: &Services,
    _: &RequestContext,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let checked = request.resources.into_iter().map(|resource| {
        let id = (resource.resource_type, resource.resource_name.clone());
        (id, changes(services, resource))
    });
    let outcomes = alter(services, checked.collect(), request.validate_only).await;
    let responses = outcomes.into_iter().map(|outcome| AlterConfigsResourceResponse {
        error_code: outcome.error_code,
        error_message: outcome.error_message,
        resource_type: outcome.resource_type,
        resource_name: outcome.resource_name,
    });
    IncrementalAlterConfigsResponse { responses: responses.collect(), ..Default::default() }
}

fn changes(services: &Services, resource: AlterConfigsResource) -> Result<v1::ConfigResource, Refusal> {
    let configs = resource.configs.into_iter();
    let changes: Vec<v1::ConfigChange> = if resource.resource_type == KIND_BROKER {
        let scope = broker_scope(&resource.resource_name, services.node_id())?;
        let (image, properties) = (services.image(), &services.config.properties);
        configs.map(|config| broker_change(&image, properties, &scope, config)).collect::<Result<_, _>>()?
    } else {
        configs.map(change).collect::<Result<_, _>>()?
    };
    Ok(v1::ConfigResource {
        kind: i32::from(resource.resource_type),
        name: resource.resource_name,
        changes,
        replace_all: false,
    })
}

fn change(config: AlterableConfig) -> Result<v1::ConfigChange, Refusal> {
    let op = match config.config_operation {
        0 => Op::Set,
        1 => Op::Delete,
        2 => Op::Append,
        3 => Op::Subtract,
        unknown => {
            return Err((ErrorCode::InvalidRequest, format!("{}: unknown operation {unknown}", config.name)));
        }
    };
    if op != Op::Delete && config.value.is_none() {
        return Err((ErrorCode::InvalidRequest, format!("{}: this operation needs a value", config.name)));
    }
    Ok(v1::ConfigChange { key: config.name, op: op.into(), value: config.value.filter(|_| op != Op::Delete) })
}

/// The coordinators do not know the brokers' keys and defaults: a change of a list becomes its new value here.
fn broker_change(
    image: &Image,
    properties: &Properties,
    scope: &ConfigScope,
    config: AlterableConfig,
) -> Result<v1::ConfigChange, Refusal> {
    let mut change = change(config)?;
    check_broker_value(scope, &change.key, None)?;
    if matches!(change.op(), Op::Append | Op::Subtract) {
        let before = broker_list(image, scope, properties, &change.key)?;
        let after = edited_list(before, change.value.as_deref().unwrap_or_default(), change.op() == Op::Append);
        change.value = Some(after);
        change.set_op(Op::Set);
    }
    check_broker_value(scope, &change.key, change.value.as_deref())?;
    Ok(change)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::testing;

    fn config(name: &str, config_operation: i8, value: Option<&str>) -> AlterableConfig {
        AlterableConfig { name: name.into(), config_operation, value: value.map(str::to_owned) }
    }

    #[test]
    fn only_known_operations_with_what_they_need_pass() {
        assert_eq!(change(config("k", 4, Some("v"))).unwrap_err().0, ErrorCode::InvalidRequest);
        assert_eq!(change(config("k", -1, Some("v"))).unwrap_err().0, ErrorCode::InvalidRequest);
        for op in [0, 2, 3] {
            assert_eq!(change(config("k", op, None)).unwrap_err().0, ErrorCode::InvalidRequest, "{op}");
        }
        assert_eq!(change(config("k", 1, Some("left over"))).unwrap().value, None);
    }

    #[test]
    fn a_change_of_a_brokers_list_becomes_its_new_value() {
        let image = testing::image(&[]);
        let (properties, scope) = (Properties::default(), ConfigScope::BrokerDefault);
        let change = |config| broker_change(&image, &properties, &scope, config);
        let added = change(config("log.cleanup.policy", 2, Some("compact"))).unwrap();
        assert_eq!((added.op(), added.value.as_deref()), (Op::Set, Some("delete,compact")));
        let emptied = change(config("log.cleanup.policy", 3, Some("delete"))).unwrap_err();
        assert_eq!(emptied.0, ErrorCode::InvalidConfig, "no policy at all is none");
        assert_eq!(change(config("log.retention.ms", 2, Some("1"))).unwrap_err().0, ErrorCode::InvalidConfig);
    }
}
