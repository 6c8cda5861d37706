//! What is set on topics and brokers.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_model::topic_config::{ConfigType, key};
use thalweg_model::{ErrorCode, TopicConfig};
use thalweg_proto::v1::config_change::Op;
use thalweg_proto::v1::config_record::Resource;
use thalweg_proto::v1::record::Kind;
use thalweg_proto::v1::{AlteredConfig, ConfigChange, ConfigRecord, ConfigResource, KafkaError, Record};

use super::context::Context;
use super::min_isr::{self, MIN_ISR};
use super::state::State;
use super::{error, features, ok};

/// What is set on a topic; `None` if nothing is.
pub fn of_topic<'a>(state: &'a State, name: &str) -> Option<&'a BTreeMap<String, String>> {
    state.config(Resource::Topic, name)
}

/// Whether topics that left the number of their replicas to the cluster gain some when brokers join.
pub fn grows_replicas(state: &State) -> bool {
    let set = state.config(Resource::Broker, "").and_then(|set| set.get(GROW_REPLICAS));
    set.is_none_or(|text| text != "false")
}

/// Changes configurations, each resource on its own: all changes of one are made, or none.
///
/// Values of topics are checked here; those of brokers by the broker that took the request, which knows its keys.
pub fn alter(state: &State, context: &Context, resources: &[ConfigResource]) -> (Vec<AlteredConfig>, Vec<Record>) {
    let mut results = Vec::with_capacity(resources.len());
    let mut records = Vec::new();
    for resource in resources {
        let same = |other: &&ConfigResource| other.kind == resource.kind && other.name == resource.name;
        let result = if resources.iter().filter(same).count() > 1 {
            Err(error(ErrorCode::InvalidRequest, format!("'{}' is named more than once", resource.name)))
        } else {
            alter_one(state, resource)
        };
        let outcome = match result {
            Ok(changes) => {
                records.extend(changes);
                ok()
            }
            Err(refused) => refused,
        };
        results.push(AlteredConfig { kind: resource.kind, name: resource.name.clone(), error: Some(outcome) });
    }
    let consequences = min_isr::consequences(state, context, &records);
    records.extend(consequences);
    (results, records)
}

fn alter_one(state: &State, request: &ConfigResource) -> Result<Vec<Record>, KafkaError> {
    let resource = resource(state, request)?;
    let empty = BTreeMap::new();
    let before = state.config(resource, &request.name).unwrap_or(&empty);
    let mut after = if request.replace_all { BTreeMap::new() } else { before.clone() };
    let mut seen = BTreeSet::new();
    for change in &request.changes {
        if !seen.insert(&change.key) {
            return Err(error(ErrorCode::InvalidRequest, format!("{} is changed more than once", change.key)));
        }
        apply(resource, change, &mut after)?;
    }
    if resource == Resource::Broker && state.feature_level(features::VERSION) >= features::LEVEL_OF_CLUSTER_KEYS {
        check_cluster_keys(&request.name, before, &after)?;
    }
    if resource == Resource::Broker {
        keep_one_min_isr(&request.name, before, &mut after)?;
    }
    if resource == Resource::Topic {
        let config = TopicConfig::from_overrides(&after);
        let config = config.map_err(|cause| error(ErrorCode::InvalidConfig, cause.to_string()))?;
        if after.contains_key(MIN_ISR) && after.get(MIN_ISR) != before.get(MIN_ISR) {
            min_isr::check(config.min_insync_replicas, replication_factor(state, &request.name))?;
        }
    }
    Ok(differences(resource, &request.name, before, &after))
}

/// What the coordinators' leader itself goes by is the cluster's, not a broker's, and one of few values.
fn check_cluster_keys(
    name: &str,
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
) -> Result<(), KafkaError> {
    let known: [(&str, &[&str]); 2] = [(COORDINATORS, &["1", "3", "5"]), (GROW_REPLICAS, &["true", "false"])];
    for (key, values) in known {
        let Some(value) = after.get(key).filter(|value| before.get(key) != Some(value)) else { continue };
        if !name.is_empty() {
            return Err(error(ErrorCode::InvalidConfig, format!("{key} is the cluster's, not that of one broker")));
        }
        if !values.contains(&value.as_str()) {
            let message = format!("{key} is {}, not '{value}'", values.join(" or "));
            return Err(error(ErrorCode::InvalidConfig, message));
        }
    }
    Ok(())
}

/// The coordinator and every leader must go by one number, so it is that of all brokers, and there always is one.
fn keep_one_min_isr(
    name: &str,
    before: &BTreeMap<String, String>,
    after: &mut BTreeMap<String, String>,
) -> Result<(), KafkaError> {
    if !name.is_empty() && after.contains_key(MIN_ISR) {
        let message = "min.insync.replicas holds for all brokers or for a topic, not for one broker";
        return Err(error(ErrorCode::InvalidConfig, message));
    }
    match after.get(MIN_ISR).map(|text| text.parse::<i32>()) {
        Some(Ok(1..)) => {}
        Some(_) => return Err(error(ErrorCode::InvalidConfig, "min.insync.replicas is a number from 1")),
        None => {
            if let Some(value) = before.get(MIN_ISR) {
                after.insert(MIN_ISR.to_owned(), value.clone());
            }
        }
    }
    Ok(())
}

/// Of the topic's partition that has the fewest replicas.
fn replication_factor(state: &State, topic: &str) -> usize {
    let partitions = state.topic(topic).into_iter().flat_map(|topic| state.partitions_of(topic.id));
    partitions.map(|(_, partition)| partition.factor()).min().unwrap_or(0)
}

fn resource(state: &State, request: &ConfigResource) -> Result<Resource, KafkaError> {
    match request.kind {
        KIND_TOPIC if state.topic(&request.name).is_some() => Ok(Resource::Topic),
        KIND_TOPIC => Err(error(ErrorCode::UnknownTopicOrPartition, format!("there is no topic '{}'", request.name))),
        KIND_BROKER if request.name.is_empty() || request.name.parse::<i32>().is_ok_and(|id| id >= 0) => {
            Ok(Resource::Broker)
        }
        KIND_BROKER => {
            let message =
                format!("a broker is named by its number, or not at all for every broker; not '{}'", request.name);
            Err(error(ErrorCode::InvalidRequest, message))
        }
        kind => {
            let message =
                format!("configuration of resource type {kind} cannot be changed; topics (2) and brokers (4) can");
            Err(error(ErrorCode::InvalidRequest, message))
        }
    }
}

fn apply(resource: Resource, change: &ConfigChange, after: &mut BTreeMap<String, String>) -> Result<(), KafkaError> {
    let name = &change.key;
    if name.is_empty() || name.len() > KEY_LENGTH_MAX {
        return Err(error(ErrorCode::InvalidConfig, format!("a key has 1 to {KEY_LENGTH_MAX} characters")));
    }
    let op = Op::try_from(change.op)
        .map_err(|_| error(ErrorCode::InvalidRequest, format!("{name}: unknown operation {}", change.op)))?;
    let value = || {
        let missing = || error(ErrorCode::InvalidRequest, format!("{name}: this operation needs a value"));
        change.value.as_deref().ok_or_else(missing)
    };
    match op {
        Op::Set => {
            after.insert(name.clone(), value()?.to_owned());
        }
        Op::Delete => {
            if resource == Resource::Topic && key(name).is_none() {
                // Refused as setting it would be, so that a typing error does not look like success.
                let one = BTreeMap::from([(name.clone(), String::new())]);
                let cause = TopicConfig::from_overrides(&one).err();
                let message = cause.map_or_else(|| format!("unknown key '{name}'"), |cause| cause.to_string());
                return Err(error(ErrorCode::InvalidConfig, message));
            }
            after.remove(name);
        }
        Op::Append | Op::Subtract => {
            let default = list_default(resource, name)?;
            let before = after.get(name).map_or(default, String::as_str);
            let list = edited(before, value()?, op == Op::Append);
            after.insert(name.clone(), list);
        }
    }
    Ok(())
}

/// The default of a list, to which or from which one adds and takes.
fn list_default(resource: Resource, name: &str) -> Result<&'static str, KafkaError> {
    if resource == Resource::Broker {
        return Ok("");
    }
    match key(name) {
        Some(known) if known.kind == ConfigType::List => Ok(known.default),
        Some(_) => {
            Err(error(ErrorCode::InvalidConfig, format!("{name} is no list; only lists take APPEND and SUBTRACT")))
        }
        None => Err(error(ErrorCode::InvalidConfig, format!("unknown topic configuration '{name}'"))),
    }
}

fn edited(before: &str, change: &str, append: bool) -> String {
    let items = |text: &str| -> Vec<String> {
        text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
    };
    let mut list = items(before);
    for item in items(change) {
        list.retain(|other| append || *other != item);
        if append && !list.contains(&item) {
            list.push(item);
        }
    }
    list.join(",")
}

fn differences(
    resource: Resource,
    name: &str,
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
) -> Vec<Record> {
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let changed = keys.into_iter().filter(|key| before.get(*key) != after.get(*key));
    changed
        .map(|key| {
            let record = ConfigRecord {
                resource: resource as i32,
                name: name.to_owned(),
                key: key.clone(),
                value: after.get(key).cloned(),
            };
            Record { kind: Some(Kind::Config(record)) }
        })
        .collect()
}

/// How many coordinators there should be; unset: three, and whatever more were put there by hand.
pub const COORDINATORS: &str = "coordinators";
/// Whether topics whose creator did not say how many replicas gain some when brokers join; unless set, they do.
pub const GROW_REPLICAS: &str = "auto.grow.replicas.enable";
const KIND_TOPIC: i32 = 2;
/// Kafka's number of the resource type.
pub const KIND_BROKER: i32 = 4;
const KEY_LENGTH_MAX: usize = 249;
