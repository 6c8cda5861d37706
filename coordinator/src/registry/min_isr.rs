//! How many replicas must be in sync: the same number for the coordinator and for every leader.
//!
//! A leader acknowledges with as few replicas as its `min.insync.replicas` allows; the coordinator keeps as eligible whom
//! its own number allows. Were the coordinator's larger, it could elect a replica that lacks what was acknowledged. So the
//! number is a matter of the registries alone, and a change of it changes the partitions in the same entry (KIP-966).

use std::collections::BTreeMap;

use thalweg_model::{ErrorCode, TopicId};
use thalweg_proto::v1::config_record::Resource;
use thalweg_proto::v1::record::Kind;
use thalweg_proto::v1::{KafkaError, Record};

use super::context::Context;
use super::election::Rules;
use super::error;
use super::state::{State, partition_record};

/// Its key, on topics and on all brokers; never on one broker.
pub const MIN_ISR: &str = "min.insync.replicas";

/// Of topics that do not set it.
pub fn default(state: &State, context: &Context) -> i32 {
    let set = state.config(Resource::Broker, "").and_then(|config| config.get(MIN_ISR));
    parsed(set, context.default_min_isr)
}

/// Of a topic's partitions, before it is held against the number of replicas.
pub fn of_topic(state: &State, context: &Context, topic: TopicId) -> i32 {
    let config = state.topic_name(topic).and_then(|name| state.config(Resource::Topic, name));
    parsed(config.and_then(|config| config.get(MIN_ISR)), default(state, context))
}

/// A partition never has more replicas in sync than it has replicas, so a larger minimum would refuse every acks=all.
///
/// # Errors
/// Whoever sets it is at fault.
pub fn check(min_isr: i32, factor: usize) -> Result<(), KafkaError> {
    if usize::try_from(min_isr).is_ok_and(|min_isr| min_isr <= factor) {
        return Ok(());
    }
    let message = format!(
        "min.insync.replicas is {min_isr}, and the topic has {factor} replicas: no write with acks=all could ever succeed; \
         set it to {factor} or less"
    );
    Err(error(ErrorCode::InvalidConfig, message))
}

/// What becomes of partitions once these configurations are set: whoever is eligible only under the old number leaves.
pub fn consequences(state: &State, context: &Context, configs: &[Record]) -> Vec<Record> {
    let mut changed: BTreeMap<(i32, &str), Option<&String>> = BTreeMap::new();
    for record in configs {
        if let Some(Kind::Config(config)) = &record.kind
            && config.key == MIN_ISR
        {
            changed.insert((config.resource, &config.name), config.value.as_ref());
        }
    }
    if changed.is_empty() {
        return Vec::new();
    }
    let value = |resource: Resource, name: &str| match changed.get(&(resource as i32, name)) {
        Some(value) => *value,
        None => state.config(resource, name).and_then(|config| config.get(MIN_ISR)),
    };
    let default = parsed(value(Resource::Broker, ""), context.default_min_isr);
    let is_eligible = |id| state.is_eligible(id);
    let mut records = Vec::new();
    for (name, topic) in state.topics() {
        let wanted = parsed(value(Resource::Topic, name), default);
        if wanted == of_topic(state, context, topic.id) {
            continue;
        }
        for (index, partition) in state.partitions_of(topic.id) {
            let rules = Rules { min_isr: bounded(wanted, partition.factor()), is_eligible: &is_eligible };
            if let Ok(next) = partition.change(&partition.isr, rules)
                && next != *partition
            {
                records.push(partition_record(topic.id, index, &next));
            }
        }
    }
    records
}

/// Beyond the number of replicas it counts as that number.
pub fn bounded(min_isr: i32, factor: usize) -> usize {
    usize::try_from(min_isr).unwrap_or(1).clamp(1, factor.max(1))
}

fn parsed(text: Option<&String>, default: i32) -> i32 {
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}
