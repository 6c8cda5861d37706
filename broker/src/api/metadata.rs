//! Metadata (key 3, versions 0-13): brokers, topics, partitions and their leaders.
//!
//! - Topics null asks for all, empty for none; in version 0 empty asks for all.
//! - A missing topic is created if both the request and `auto.create.topics.enable` allow it; the answer comes when it serves.
//! - From version 12 on topics can be asked for by id; 10 and 11 have the fields but must not use them (error 42).
//! - The controller is a live broker of the list: any broker forwards what a controller does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use thalweg_model::{ErrorCode, NodeId, TopicId, TopicName};
use thalweg_proto::v1;
use thalweg_proto::v1::admin_client::AdminClient;
use thalweg_wire::messages::metadata::{
    MetadataRequestTopic, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use thalweg_wire::messages::{MetadataRequest, MetadataResponse};
use tracing::warn;

use super::authorized_operations::{CLUSTER_OPERATIONS, TOPIC_OPERATIONS, told};
use super::context::RequestContext;
use crate::machine::image::{Image, PartitionImage, TopicImage};
use crate::services::Services;
use crate::shell::unreachable;

pub async fn handle(services: &Services, cx: &RequestContext, request: MetadataRequest) -> MetadataResponse {
    let asked = request.topics.filter(|topics| cx.version() > 0 || !topics.is_empty());
    let mut topics: Vec<MetadataResponseTopic> = match asked {
        None => {
            let image = services.image();
            image.topics().map(|topic| describe(&image, topic)).collect()
        }
        Some(topics) if names_by_id_too_early(cx.version(), &topics) => topics.into_iter().map(refused).collect(),
        Some(topics) => {
            let may_create =
                request.allow_auto_topic_creation && services.config.properties.boolean("auto.create.topics.enable");
            let failed = if may_create { create_missing(services, &topics).await } else { BTreeMap::new() };
            let image = services.image();
            topics.iter().map(|topic| answer(&image, topic, &failed)).collect()
        }
    };
    withhold(&mut topics, |leader| unreachable::is_suspect(services, leader));
    for topic in topics.iter_mut().filter(|topic| topic.error_code == ErrorCode::None.code()) {
        topic.topic_authorized_operations = told(TOPIC_OPERATIONS, request.include_topic_authorized_operations);
    }
    let image = services.image();
    let brokers: Vec<MetadataResponseBroker> = live_brokers(services, cx, &image);
    MetadataResponse {
        controller_id: controller(services.node_id(), &brokers),
        brokers,
        cluster_id: Some(image.cluster_id.to_string()),
        topics,
        cluster_authorized_operations: told(CLUSTER_OPERATIONS, request.include_cluster_authorized_operations),
        ..Default::default()
    }
}

/// Creates those of the named topics that are missing and waits until they serve here. Returns why others could not be.
async fn create_missing(services: &Services, topics: &[MetadataRequestTopic]) -> BTreeMap<String, ErrorCode> {
    let image = services.image();
    let names = topics.iter().filter(|topic| topic.topic_id.is_zero()).filter_map(|topic| topic.name.as_deref());
    let missing: BTreeSet<&str> =
        names.filter(|name| image.topic(name).is_none() && TopicName::new(name).is_ok()).collect();
    if missing.is_empty() {
        return BTreeMap::new();
    }
    let new_topic = |name: &&str| v1::NewTopic {
        name: (*name).to_owned(),
        partitions: -1,
        replication_factor: -1,
        ..Default::default()
    };
    let request = v1::CreateTopicsRequest {
        topics: missing.iter().map(new_topic).collect(),
        timeout_ms: CREATE_TIMEOUT_MS,
        ..Default::default()
    };
    let call = services.coordinators.call(CREATE_PATIENCE, |channel| {
        let request = request.clone();
        async move { AdminClient::new(channel).create_topics(request).await }
    });
    match call.await {
        Ok(response) => {
            services.applied(response.index).await;
            let codes = response.topics.into_iter().map(|topic| (topic.name, kafka_code(topic.error.as_ref())));
            // Somebody else was faster: as good as created.
            codes.filter(|(_, code)| code.is_error() && *code != ErrorCode::TopicAlreadyExists).collect()
        }
        Err(error) => {
            warn!(%error, topics = ?missing, "topics could not be created on demand");
            missing.into_iter().map(|name| (name.to_owned(), ErrorCode::LeaderNotAvailable)).collect()
        }
    }
}

fn answer(image: &Image, topic: &MetadataRequestTopic, failed: &BTreeMap<String, ErrorCode>) -> MetadataResponseTopic {
    let missing = |error: ErrorCode, name: Option<String>, topic_id: TopicId| MetadataResponseTopic {
        error_code: error.code(),
        name,
        topic_id,
        ..Default::default()
    };
    let Some(name) = topic.name.as_ref().filter(|_| topic.topic_id.is_zero()) else {
        return match image.topic_by_id(topic.topic_id) {
            Some(found) => describe(image, found),
            None => missing(ErrorCode::UnknownTopicId, None, topic.topic_id),
        };
    };
    match image.topic(name) {
        Some(found) => describe(image, found),
        None => {
            let error = match (TopicName::new(name), failed.get(name)) {
                (Err(_), _) => ErrorCode::InvalidTopicException,
                (Ok(_), Some(error)) => *error,
                (Ok(_), None) => ErrorCode::UnknownTopicOrPartition,
            };
            missing(error, Some(name.clone()), TopicId::ZERO)
        }
    }
}

/// A topic as Metadata and DescribeTopicPartitions show it.
pub(super) fn describe(image: &Image, topic: &TopicImage) -> MetadataResponseTopic {
    let partitions = topic.partitions.iter();
    MetadataResponseTopic {
        name: Some(topic.name.to_string()),
        topic_id: topic.id,
        is_internal: topic.internal,
        partitions: partitions.map(|(index, partition)| describe_partition(image, index.0, partition)).collect(),
        ..Default::default()
    }
}

fn describe_partition(image: &Image, partition_index: i32, partition: &PartitionImage) -> MetadataResponsePartition {
    let is_live = |id: &NodeId| image.brokers.get(id).is_some_and(|broker| !broker.fenced);
    let ids = |nodes: &[NodeId]| nodes.iter().map(|id| id.0).collect::<Vec<_>>();
    let leader = partition.leader.filter(is_live);
    MetadataResponsePartition {
        error_code: if leader.is_some() { ErrorCode::None } else { ErrorCode::LeaderNotAvailable }.code(),
        partition_index,
        leader_id: leader.unwrap_or(NodeId::NONE).0,
        leader_epoch: partition.leader_epoch.0,
        replica_nodes: ids(&partition.replicas),
        isr_nodes: ids(&partition.isr),
        offline_replicas: partition.replicas.iter().filter(|id| !is_live(id)).map(|id| id.0).collect(),
    }
}

/// No leader is better than one that has just gone: the client asks again soon.
fn withhold(topics: &mut [MetadataResponseTopic], is_suspect: impl Fn(NodeId) -> bool) {
    let leaders: BTreeSet<i32> = topics.iter().flat_map(|topic| &topic.partitions).map(|p| p.leader_id).collect();
    let suspects: BTreeSet<i32> = leaders.into_iter().filter(|id| is_suspect(NodeId(*id))).collect();
    if suspects.is_empty() {
        return;
    }
    for partition in topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
        if suspects.contains(&partition.leader_id) {
            partition.leader_id = NodeId::NONE.0;
            partition.error_code = ErrorCode::LeaderNotAvailable.code();
        }
    }
}

/// Live brokers with the address of the listener that the request came in on.
fn live_brokers(services: &Services, cx: &RequestContext, image: &Image) -> Vec<MetadataResponseBroker> {
    let live = image.live_brokers().filter_map(|(id, broker)| {
        let (host, port) = cx.address_of(services, id, broker)?;
        Some(MetadataResponseBroker { node_id: id.0, host, port: i32::from(port), rack: broker.rack.clone() })
    });
    live.collect()
}

/// This broker if it is live, so that the client need not connect elsewhere.
fn controller(own: NodeId, brokers: &[MetadataResponseBroker]) -> i32 {
    let ids = || brokers.iter().map(|broker| broker.node_id);
    ids().find(|id| *id == own.0).or_else(|| ids().next()).unwrap_or(NodeId::NONE.0)
}

/// Versions 10 and 11 carry topic ids and null names, but Kafka serves them only from 12 on.
fn names_by_id_too_early(version: i16, topics: &[MetadataRequestTopic]) -> bool {
    version < 12 && topics.iter().any(|topic| !topic.topic_id.is_zero() || topic.name.is_none())
}

fn refused(topic: MetadataRequestTopic) -> MetadataResponseTopic {
    MetadataResponseTopic {
        error_code: ErrorCode::InvalidRequest.code(),
        // Before version 12 a null name cannot be written.
        name: Some(topic.name.unwrap_or_default()),
        topic_id: topic.topic_id,
        ..Default::default()
    }
}

/// The code within a coordinator's answer; absent means success.
pub(crate) fn kafka_code(error: Option<&v1::KafkaError>) -> ErrorCode {
    let code = error.map_or(0, |error| error.code);
    i16::try_from(code).ok().and_then(ErrorCode::from_code).unwrap_or(ErrorCode::UnknownServerError)
}

const CREATE_TIMEOUT_MS: i32 = 10_000;
const CREATE_PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_that_has_just_gone_is_not_named_and_the_others_are() {
        let partition = |partition_index, leader_id| MetadataResponsePartition {
            partition_index,
            leader_id,
            leader_epoch: 3,
            ..Default::default()
        };
        let topic = MetadataResponseTopic { partitions: vec![partition(0, 1), partition(1, 2)], ..Default::default() };
        let mut topics = vec![topic.clone()];
        withhold(&mut topics, |_| false);
        assert_eq!(topics, std::slice::from_ref(&topic));
        withhold(&mut topics, |leader| leader == NodeId(1));
        let told: Vec<_> = topics[0].partitions.iter().map(|p| (p.leader_id, p.error_code, p.leader_epoch)).collect();
        assert_eq!(told, [(-1, ErrorCode::LeaderNotAvailable.code(), 3), (2, ErrorCode::None.code(), 3)]);
    }
}
