//! CreateTopics (key 19, versions 2-7).
//!
//! - -1 for partitions or replication factor takes the cluster's default (4+, KIP-464).
//! - A topic named twice is error 42 for each mention; a bad name 17, a topic that exists 36: each topic stands on its own.
//! - The answer comes when this broker serves the topics; from version 5 on it shows their configuration, also the one that a
//!   topic would get that is only validated.

use std::collections::{BTreeMap, HashMap};

use thalweg_model::{ErrorCode, TopicId, topic_config};
use thalweg_proto::v1;
use thalweg_proto::v1::admin_client::AdminClient;
use thalweg_wire::messages::create_topics::{CreatableTopic, CreatableTopicConfigs, CreatableTopicResult};
use thalweg_wire::messages::{CreateTopicsRequest, CreateTopicsResponse};

use super::context::RequestContext;
use super::metadata::kafka_code;
use crate::machine::image::{ConfigScope, Image};
use crate::services::Services;

pub async fn handle(services: &Services, _: &RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse {
    let mut mentions: HashMap<&str, usize> = HashMap::new();
    for topic in &request.topics {
        *mentions.entry(&topic.name).or_default() += 1;
    }
    let (once, twice): (Vec<&CreatableTopic>, Vec<&CreatableTopic>) =
        request.topics.iter().partition(|topic| mentions.get(topic.name.as_str()) == Some(&1));
    // The coordinator takes an absent value for "the default"; here it is a mistake.
    let has_null = |topic: &&CreatableTopic| topic.configs.iter().any(|config| config.value.is_none());
    let (null_valued, once): (Vec<&CreatableTopic>, Vec<&CreatableTopic>) = once.into_iter().partition(has_null);
    let mut created = create(services, &once, request.validate_only, request.timeout_ms).await;
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in once {
        let outcome = created.remove(&topic.name).unwrap_or_else(|| {
            let message = "the coordinator did not answer for this topic".to_owned();
            failed(&topic.name, ErrorCode::UnknownServerError, message)
        });
        topics.push(outcome);
    }
    topics.extend(
        null_valued
            .into_iter()
            .map(|topic| failed(&topic.name, ErrorCode::InvalidConfig, "a configuration has no value".to_owned())),
    );
    let mut named: Vec<&str> = twice.iter().map(|topic| topic.name.as_str()).collect();
    named.sort_unstable();
    named.dedup();
    topics.extend(
        named.into_iter().map(|name| {
            failed(name, ErrorCode::InvalidRequest, "the request names this topic more than once".to_owned())
        }),
    );
    CreateTopicsResponse { topics, ..Default::default() }
}

async fn create(
    services: &Services,
    topics: &[&CreatableTopic],
    validate_only: bool,
    timeout_ms: i32,
) -> HashMap<String, CreatableTopicResult> {
    if topics.is_empty() {
        return HashMap::new();
    }
    let request = v1::CreateTopicsRequest {
        topics: topics.iter().map(|topic| new_topic(topic)).collect(),
        validate_only,
        timeout_ms,
    };
    let patience = super::patience(timeout_ms);
    let call = services.coordinators.call(patience, |channel| {
        let request = request.clone();
        async move { super::in_time(patience, AdminClient::new(channel).create_topics(request)).await }
    });
    let response = match call.await {
        Ok(response) => response,
        Err(error) => {
            let code = error.admin_code();
            let each = topics.iter().map(|topic| (topic.name.clone(), failed(&topic.name, code, error.to_string())));
            return each.collect();
        }
    };
    if !validate_only {
        services.applied(response.index).await;
    }
    let image = services.image();
    let asked: HashMap<&str, &CreatableTopic> = topics.iter().map(|topic| (topic.name.as_str(), *topic)).collect();
    let results = response.topics.into_iter().map(|topic| {
        // The image has no topic that was only looked at.
        let own = match asked.get(topic.name.as_str()).filter(|_| validate_only) {
            Some(asked) => asked.configs.iter().filter_map(|c| Some((c.name.clone(), c.value.clone()?))).collect(),
            None => image.overrides(&ConfigScope::Topic(topic.name.clone())).clone(),
        };
        (topic.name.clone(), result(services, &image, topic, &own))
    });
    results.collect()
}

fn new_topic(topic: &CreatableTopic) -> v1::NewTopic {
    let assignments = topic.assignments.iter().map(|assignment| v1::ReplicaAssignment {
        partition: assignment.partition_index,
        replicas: assignment.broker_ids.clone(),
    });
    let configs =
        topic.configs.iter().map(|config| v1::ConfigEntry { key: config.name.clone(), value: config.value.clone() });
    v1::NewTopic {
        name: topic.name.clone(),
        partitions: topic.num_partitions,
        replication_factor: i32::from(topic.replication_factor),
        assignments: assignments.collect(),
        configs: configs.collect(),
        default_factor: false,
    }
}

fn result(
    services: &Services,
    image: &Image,
    topic: v1::CreatedTopic,
    own: &BTreeMap<String, String>,
) -> CreatableTopicResult {
    let code = kafka_code(topic.error.as_ref());
    if code.is_error() {
        let message = topic.error.map(|error| error.message).filter(|message| !message.is_empty());
        return failed(&topic.name, code, message.unwrap_or_else(|| code.message().to_owned()));
    }
    let topic_id = <[u8; 16]>::try_from(&topic.topic_id[..]).map_or(TopicId::ZERO, TopicId);
    CreatableTopicResult {
        topic_id,
        error_message: None,
        num_partitions: topic.partitions,
        replication_factor: i16::try_from(topic.replication_factor).unwrap_or(-1),
        configs: Some(configs(services, image, &topic.name, own)),
        name: topic.name,
        ..Default::default()
    }
}

/// Every topic key with its value and where it comes from (KIP-525). `own`: what the topic sets itself.
fn configs(
    services: &Services,
    image: &Image,
    topic: &str,
    own: &BTreeMap<String, String>,
) -> Vec<CreatableTopicConfigs> {
    let defaults = services.config.properties.topic_defaults();
    let mut merged = image.topic_overrides(topic, services.node_id(), &defaults);
    merged.extend(own.iter().map(|(key, value)| (key.clone(), value.clone())));
    let entries = topic_config::KEYS.iter().map(|key| CreatableTopicConfigs {
        name: key.name.to_owned(),
        value: Some(merged.get(key.name).cloned().unwrap_or_else(|| key.default.to_owned())),
        read_only: false,
        config_source: match (own.contains_key(key.name), defaults.contains_key(key.name)) {
            (true, _) => SOURCE_TOPIC,
            (false, true) => SOURCE_STATIC_BROKER,
            (false, false) => SOURCE_DEFAULT,
        },
        is_sensitive: false,
    });
    entries.collect()
}

fn failed(name: &str, code: ErrorCode, message: String) -> CreatableTopicResult {
    CreatableTopicResult {
        name: name.to_owned(),
        error_code: code.code(),
        error_message: Some(message),
        configs: Some(Vec::new()),
        ..Default::default()
    }
}

const SOURCE_TOPIC: i8 = 1;
const SOURCE_STATIC_BROKER: i8 = 4;
const SOURCE_DEFAULT: i8 = 5;
