//! What can be configured, and what of it a client may change while the broker runs.

use thalweg_model::{ErrorCode, NodeId};

use super::admin_calls::Refusal;
use crate::config::properties::{self, PropertyError, Scope};
use crate::machine::image::{ConfigScope, Image};

/// Kafka's number of topics as configurable resources.
pub const KIND_TOPIC: i8 = 2;
/// Kafka's number of brokers.
pub const KIND_BROKER: i8 = 4;

/// Whose dynamic values a broker resource's name stands for: this broker's, or those of all brokers if it is empty.
///
/// # Errors
/// 42 for another broker: clients send such requests to the broker itself.
pub fn broker_scope(name: &str, own: NodeId) -> Result<ConfigScope, Refusal> {
    if name.is_empty() {
        return Ok(ConfigScope::BrokerDefault);
    }
    if name.parse() == Ok(own.0) {
        return Ok(ConfigScope::Broker(own));
    }
    Err((ErrorCode::InvalidRequest, format!("this is broker {own}; '{name}' is to be asked itself")))
}

/// Checks a value for a broker's key; `None` is a deletion.
///
/// # Errors
/// 40 for an unknown key (with the nearest) or a bad value, 42 for a key that is fixed while the broker runs.
pub fn check_broker_value(scope: &ConfigScope, key: &str, value: Option<&str>) -> Result<(), Refusal> {
    let Some(property) = properties::property(key) else {
        let nearest = properties::nearest_property(key);
        let error = PropertyError::UnknownKey { key: key.to_owned(), nearest };
        return Err((ErrorCode::InvalidConfig, error.to_string()));
    };
    if property.scope == Scope::Cluster && *scope != ConfigScope::BrokerDefault {
        let message = format!("{key} is the cluster's, not that of one broker; set it for all brokers");
        return Err((ErrorCode::InvalidConfig, message));
    }
    if !matches!(property.scope, Scope::TopicDefault(_) | Scope::Running | Scope::Cluster) {
        let message = format!("{key} cannot be changed while the broker runs; set it in its configuration file");
        return Err((ErrorCode::InvalidRequest, message));
    }
    match value {
        Some(value) => {
            properties::check(property, value).map_err(|error| (ErrorCode::InvalidConfig, error.to_string()))
        }
        None => Ok(()),
    }
}

/// What APPEND and SUBTRACT of a broker's list start from: the value that holds now.
///
/// # Errors
/// 40 if the key is no list.
pub fn broker_list<'a>(
    image: &'a Image,
    scope: &ConfigScope,
    properties: &'a crate::config::Properties,
    key: &str,
) -> Result<&'a str, Refusal> {
    let is_list =
        properties::property(key).is_some_and(|known| known.kind == thalweg_model::topic_config::ConfigType::List);
    if !is_list {
        return Err((ErrorCode::InvalidConfig, format!("{key} is no list; only lists take APPEND and SUBTRACT")));
    }
    let set = image.overrides(scope).get(key).or_else(|| image.overrides(&ConfigScope::BrokerDefault).get(key));
    Ok(set.map_or_else(|| properties.text(key).map_or("", |(text, _)| text), String::as_str))
}

/// A list with items added at its end, or taken out.
pub fn edited_list(before: &str, change: &str, append: bool) -> String {
    let items = |text: &str| -> Vec<String> {
        text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
    };
    let (mut list, change) = (items(before), items(change));
    if append {
        for item in change {
            if !list.contains(&item) {
                list.push(item);
            }
        }
    } else {
        list.retain(|item| !change.contains(item));
    }
    list.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brokers_take_defaults_of_topics_and_what_may_change_while_they_run() {
        assert_eq!(check_broker_value(&ConfigScope::BrokerDefault, "log.retention.ms", Some("5")), Ok(()));
        assert_eq!(check_broker_value(&ConfigScope::BrokerDefault, "log.retention.ms", None), Ok(()));
        assert_eq!(
            check_broker_value(&ConfigScope::BrokerDefault, "follower.replication.throttled.rate", Some("5")),
            Ok(())
        );
        let code = |key, value| check_broker_value(&ConfigScope::BrokerDefault, key, Some(value)).unwrap_err().0;
        assert_eq!(check_broker_value(&ConfigScope::BrokerDefault, "coordinators", Some("5")), Ok(()));
        let of_one = check_broker_value(&ConfigScope::Broker(NodeId(1)), "coordinators", Some("5")).unwrap_err();
        assert!(of_one.1.contains("the cluster's"), "{}", of_one.1);
        assert_eq!(code("log.retention.ms", "never"), ErrorCode::InvalidConfig);
        assert_eq!(code("max.connections", "5"), ErrorCode::InvalidRequest);
        assert_eq!(code("no.such.key", "5"), ErrorCode::InvalidConfig);
        assert!(
            check_broker_value(&ConfigScope::BrokerDefault, "log.retention.m", None)
                .unwrap_err()
                .1
                .contains("log.retention.ms")
        );
    }

    #[test]
    fn a_broker_answers_for_itself_and_for_all() {
        assert_eq!(broker_scope("3", NodeId(3)), Ok(ConfigScope::Broker(NodeId(3))));
        assert_eq!(broker_scope("", NodeId(3)), Ok(ConfigScope::BrokerDefault));
        for name in ["4", "x", "03x"] {
            assert_eq!(broker_scope(name, NodeId(3)).unwrap_err().0, ErrorCode::InvalidRequest, "{name}");
        }
    }

    #[test]
    fn lists_grow_without_repeats_and_shrink() {
        assert_eq!(edited_list("delete", "compact,delete", true), "delete,compact");
        assert_eq!(edited_list("compact, delete", "delete", false), "compact");
        assert_eq!(edited_list("", "delete", false), "");
    }
}
