//! Everything that survives: the sum of all records.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use thalweg_model::{NodeId, TopicId};
use thalweg_proto::v1::config_record::Resource;
use thalweg_proto::v1::record::Kind;
use thalweg_proto::v1::{
    BrokerRecord, ClusterRecord, ConfigRecord, CoordinatorRecord, FeatureRecord, GroupRecord, NodeIdsRecord,
    OffsetRecord, PartitionRecord, PlanRecord, ProducerIdsRecord, Record, TokenRecord, TopicRecord,
};

use super::election::Partition;

/// The registries. Only [`State::replay`] changes them, so records are all that a copy needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    cluster_id: Option<String>,
    features: BTreeMap<String, u32>,
    brokers: BTreeMap<NodeId, BrokerRecord>,
    topics: BTreeMap<String, Topic>,
    topic_names: BTreeMap<TopicId, String>,
    partitions: BTreeMap<(TopicId, i32), Partition>,
    configs: BTreeMap<(i32, String), BTreeMap<String, String>>,
    groups: BTreeMap<String, GroupRecord>,
    offsets: BTreeMap<String, GroupOffsets>,
    next_producer_id: i64,
    coordinators: BTreeMap<u64, CoordinatorRecord>,
    plan: Option<PlanRecord>,
    tokens: BTreeMap<String, TokenRecord>,
    node_ids: NodeIdsRecord,
}

/// A group's offsets by topic and partition.
pub type GroupOffsets = BTreeMap<String, BTreeMap<i32, CommittedOffset>>;

#[derive(Clone, Debug, PartialEq)]
pub struct Topic {
    pub id: TopicId,
    pub internal: bool,
    pub created_at_ms: i64,
    /// Gains replicas when brokers join.
    pub grows: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The life of the topic that was committed to.
    pub topic_id: Bytes,
    pub offset: i64,
    pub leader_epoch: i32,
    pub metadata: String,
    pub committed_at_ms: i64,
}

/// Why a record cannot be part of a state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    #[error("a stored record is of a kind that this version does not know")]
    UnknownKind,
    #[error("a stored record has a topic id of {length} bytes instead of 16")]
    TopicId { length: usize },
    #[error("a stored configuration record has the unknown resource type {resource}")]
    Resource { resource: i32 },
}

impl State {
    /// 22 characters; `None` until the cluster's first command.
    pub fn cluster_id(&self) -> Option<&str> {
        self.cluster_id.as_deref()
    }

    /// The level of a feature; 0 if it is off.
    pub fn feature_level(&self, name: &str) -> u32 {
        self.features.get(name).copied().unwrap_or(0)
    }

    pub fn broker(&self, id: NodeId) -> Option<&BrokerRecord> {
        self.brokers.get(&id)
    }

    pub fn brokers(&self) -> impl Iterator<Item = (NodeId, &BrokerRecord)> {
        self.brokers.iter().map(|(id, broker)| (*id, broker))
    }

    /// Whether the broker may lead and enter an ISR.
    pub fn is_eligible(&self, id: NodeId) -> bool {
        self.brokers.get(&id).is_some_and(|broker| !broker.fenced && !broker.shutting_down)
    }

    /// Whether new replicas may be placed there: eligible, and no operator has said otherwise.
    pub fn takes_replicas(&self, id: NodeId) -> bool {
        self.is_eligible(id) && self.brokers.get(&id).is_some_and(|broker| !broker.cordoned && !broker.draining)
    }

    /// The moves under way that belong together.
    pub fn plan(&self) -> Option<&PlanRecord> {
        self.plan.as_ref()
    }

    pub fn topic(&self, name: &str) -> Option<&Topic> {
        self.topics.get(name)
    }

    pub fn topic_name(&self, id: TopicId) -> Option<&str> {
        self.topic_names.get(&id).map(String::as_str)
    }

    pub fn topics(&self) -> impl Iterator<Item = (&str, &Topic)> {
        self.topics.iter().map(|(name, topic)| (name.as_str(), topic))
    }

    /// A topic's partitions in order.
    pub fn partitions_of(&self, topic: TopicId) -> impl Iterator<Item = (i32, &Partition)> {
        self.partitions.range((topic, 0)..=(topic, i32::MAX)).map(|((_, index), partition)| (*index, partition))
    }

    pub fn partitions(&self) -> impl Iterator<Item = (TopicId, i32, &Partition)> {
        self.partitions.iter().map(|((topic, index), partition)| (*topic, *index, partition))
    }

    pub fn partition(&self, topic: TopicId, index: i32) -> Option<&Partition> {
        self.partitions.get(&(topic, index))
    }

    /// What is set on a resource; `None` if nothing is.
    pub fn config(&self, resource: Resource, name: &str) -> Option<&BTreeMap<String, String>> {
        self.configs.get(&(resource as i32, name.to_owned()))
    }

    pub fn group(&self, id: &str) -> Option<&GroupRecord> {
        self.groups.get(id)
    }

    pub fn groups(&self) -> impl Iterator<Item = (&str, &GroupRecord)> {
        self.groups.iter().map(|(id, group)| (id.as_str(), group))
    }

    pub fn offsets_of(&self, group: &str) -> Option<&GroupOffsets> {
        self.offsets.get(group)
    }

    pub fn offset(&self, group: &str, topic: &str, partition: i32) -> Option<&CommittedOffset> {
        self.offsets.get(group)?.get(topic)?.get(&partition)
    }

    pub fn offsets(&self) -> impl Iterator<Item = (&str, &GroupOffsets)> {
        self.offsets.iter().map(|(group, offsets)| (group.as_str(), offsets))
    }

    /// Every id below it is given out.
    pub fn next_producer_id(&self) -> i64 {
        self.next_producer_id
    }

    /// Every id that a coordinator ever had.
    pub fn coordinator(&self, id: u64) -> Option<&CoordinatorRecord> {
        self.coordinators.get(&id)
    }

    pub fn coordinators(&self) -> impl Iterator<Item = &CoordinatorRecord> {
        self.coordinators.values()
    }

    /// What lets new nodes in; also if it expired lately.
    pub fn token(&self, id: &str) -> Option<&TokenRecord> {
        self.tokens.get(id)
    }

    pub fn tokens(&self) -> impl Iterator<Item = &TokenRecord> {
        self.tokens.values()
    }

    /// Every number below these is given out; others may be too, see [`super::tokens::next_ids`].
    pub fn node_ids(&self) -> NodeIdsRecord {
        self.node_ids
    }

    /// Takes a record in. The only way in which a state changes.
    ///
    /// # Errors
    /// A record that no version of this program wrote: the store is damaged, or newer than the program.
    pub fn replay(&mut self, record: &Record) -> Result<(), ReplayError> {
        match record.kind.as_ref().ok_or(ReplayError::UnknownKind)? {
            Kind::Cluster(cluster) => self.cluster_id = Some(cluster.cluster_id.clone()),
            Kind::Feature(feature) => {
                self.features.insert(feature.name.clone(), feature.level);
            }
            Kind::Broker(broker) => {
                self.brokers.insert(NodeId(broker.id), broker.clone());
            }
            Kind::BrokerRemoved(removed) => {
                self.brokers.remove(&NodeId(removed.id));
            }
            Kind::Topic(topic) => self.replay_topic(topic)?,
            Kind::TopicRemoved(removed) => {
                let id = topic_id(&removed.topic_id)?;
                self.topics.remove(&removed.name);
                self.topic_names.remove(&id);
                let gone: Vec<i32> = self.partitions_of(id).map(|(index, _)| index).collect();
                for index in gone {
                    self.partitions.remove(&(id, index));
                }
            }
            Kind::Partition(partition) => {
                let id = topic_id(&partition.topic_id)?;
                self.partitions.insert((id, partition.partition), Partition::from_record(partition));
            }
            Kind::Config(config) => self.replay_config(config)?,
            Kind::ProducerIds(ids) => self.next_producer_id = ids.next_producer_id,
            Kind::Group(group) => {
                self.groups.insert(group.group_id.clone(), group.clone());
            }
            Kind::GroupRemoved(removed) => {
                self.groups.remove(&removed.group_id);
            }
            Kind::Offset(offset) => self.replay_offset(offset),
            Kind::Coordinator(node) => {
                self.coordinators.insert(node.id, node.clone());
            }
            Kind::Plan(plan) => self.plan = Some(plan.clone()),
            Kind::PlanRemoved(removed) => {
                self.plan.take_if(|plan| plan.id == removed.id);
            }
            Kind::Token(token) => {
                self.tokens.insert(token.id.clone(), token.clone());
            }
            Kind::TokenRemoved(removed) => {
                self.tokens.remove(&removed.id);
            }
            Kind::NodeIds(ids) => self.node_ids = *ids,
            Kind::OffsetRemoved(removed) => {
                remove_offset(&mut self.offsets, &removed.group_id, &removed.topic, removed.partition);
            }
        }
        Ok(())
    }

    fn replay_topic(&mut self, topic: &TopicRecord) -> Result<(), ReplayError> {
        let id = topic_id(&topic.topic_id)?;
        self.topic_names.insert(id, topic.name.clone());
        let stored = Topic { id, internal: topic.internal, created_at_ms: topic.created_at_ms, grows: topic.grows };
        self.topics.insert(topic.name.clone(), stored);
        Ok(())
    }

    fn replay_config(&mut self, config: &ConfigRecord) -> Result<(), ReplayError> {
        Resource::try_from(config.resource).map_err(|_| ReplayError::Resource { resource: config.resource })?;
        let key = (config.resource, config.name.clone());
        match &config.value {
            Some(value) => {
                self.configs.entry(key).or_default().insert(config.key.clone(), value.clone());
            }
            None => {
                if let Some(values) = self.configs.get_mut(&key) {
                    values.remove(&config.key);
                    if values.is_empty() {
                        self.configs.remove(&key);
                    }
                }
            }
        }
        Ok(())
    }

    fn replay_offset(&mut self, offset: &OffsetRecord) {
        let committed = CommittedOffset {
            topic_id: offset.topic_id.clone(),
            offset: offset.offset,
            leader_epoch: offset.leader_epoch,
            metadata: offset.metadata.clone(),
            committed_at_ms: offset.committed_at_ms,
        };
        // Most commits hit an entry that exists; then no key is copied.
        let known = self.offsets.get_mut(&offset.group_id).and_then(|topics| topics.get_mut(&offset.topic));
        match known {
            Some(partitions) => partitions.insert(offset.partition, committed),
            None => {
                let topics = self.offsets.entry(offset.group_id.clone()).or_default();
                topics.entry(offset.topic.clone()).or_default().insert(offset.partition, committed)
            }
        };
    }

    /// Every record that the state consists of, in a fixed order. Replaying them into an empty state gives an equal one.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        let cluster = self.cluster_id.iter().map(|id| Kind::Cluster(ClusterRecord { cluster_id: id.clone() }));
        let features = self
            .features
            .iter()
            .map(|(name, level)| Kind::Feature(FeatureRecord { name: name.clone(), level: *level }));
        let brokers = self.brokers.values().map(|broker| Kind::Broker(broker.clone()));
        let topics = self.topics.iter().map(|(name, topic)| Kind::Topic(topic.to_record(name)));
        let partitions =
            self.partitions.iter().map(|((id, index), partition)| Kind::Partition(partition.to_record(&id.0, *index)));
        let ids = (self.next_producer_id > 0)
            .then_some(Kind::ProducerIds(ProducerIdsRecord { next_producer_id: self.next_producer_id }));
        let groups = self.groups.values().map(|group| Kind::Group(group.clone()));
        cluster
            .chain(features)
            .chain(brokers)
            .chain(topics)
            .chain(partitions)
            .chain(self.config_records())
            .chain(ids)
            .chain(groups)
            .chain(self.offset_records())
            .chain(self.coordinators.values().map(|node| Kind::Coordinator(node.clone())))
            .chain(self.plan.iter().cloned().map(Kind::Plan))
            .chain(self.tokens.values().cloned().map(Kind::Token))
            .chain((self.node_ids != NodeIdsRecord::default()).then_some(Kind::NodeIds(self.node_ids)))
            .map(|kind| Record { kind: Some(kind) })
    }

    fn config_records(&self) -> impl Iterator<Item = Kind> {
        self.configs.iter().flat_map(|((resource, name), values)| {
            values.iter().map(move |(key, value)| {
                Kind::Config(ConfigRecord {
                    resource: *resource,
                    name: name.clone(),
                    key: key.clone(),
                    value: Some(value.clone()),
                })
            })
        })
    }

    fn offset_records(&self) -> impl Iterator<Item = Kind> {
        self.offsets.iter().flat_map(|(group, topics)| {
            topics.iter().flat_map(move |(topic, partitions)| {
                partitions.iter().map(move |(partition, committed)| {
                    Kind::Offset(OffsetRecord {
                        group_id: group.clone(),
                        topic: topic.clone(),
                        topic_id: committed.topic_id.clone(),
                        partition: *partition,
                        offset: committed.offset,
                        leader_epoch: committed.leader_epoch,
                        metadata: committed.metadata.clone(),
                        committed_at_ms: committed.committed_at_ms,
                    })
                })
            })
        })
    }

    /// Groups from `after` on, exclusive, for work in slices.
    pub fn groups_after(&self, after: Option<&str>) -> impl Iterator<Item = (&str, &GroupRecord)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.groups.range::<str, _>((from, Bound::Unbounded)).map(|(id, group)| (id.as_str(), group))
    }
}

impl Topic {
    pub fn to_record(&self, name: &str) -> TopicRecord {
        TopicRecord {
            name: name.to_owned(),
            topic_id: id_bytes(self.id),
            internal: self.internal,
            created_at_ms: self.created_at_ms,
            grows: self.grows,
        }
    }
}

/// Whether brokers keep records of this kind (the F marks of record.proto).
pub fn is_fed(record: &Record) -> bool {
    match &record.kind {
        Some(
            Kind::Cluster(_)
            | Kind::Feature(_)
            | Kind::Broker(_)
            | Kind::BrokerRemoved(_)
            | Kind::Topic(_)
            | Kind::TopicRemoved(_)
            | Kind::Partition(_)
            | Kind::Config(_)
            | Kind::Plan(_)
            | Kind::PlanRemoved(_),
        ) => true,
        Some(
            Kind::ProducerIds(_)
            | Kind::Group(_)
            | Kind::GroupRemoved(_)
            | Kind::Offset(_)
            | Kind::OffsetRemoved(_)
            | Kind::Coordinator(_)
            | Kind::Token(_)
            | Kind::TokenRemoved(_)
            | Kind::NodeIds(_),
        )
        | None => false,
    }
}

/// # Errors
/// Not 16 bytes.
pub fn topic_id(bytes: &[u8]) -> Result<TopicId, ReplayError> {
    bytes.try_into().map(TopicId).map_err(|_| ReplayError::TopicId { length: bytes.len() })
}

pub fn id_bytes(id: TopicId) -> Bytes {
    Bytes::copy_from_slice(&id.0)
}

/// One partition's record as of now.
pub fn partition_record(topic: TopicId, index: i32, partition: &Partition) -> Record {
    let record: PartitionRecord = partition.to_record(&topic.0, index);
    Record { kind: Some(Kind::Partition(record)) }
}

fn remove_offset(offsets: &mut BTreeMap<String, GroupOffsets>, group: &str, topic: &str, partition: i32) {
    let Some(topics) = offsets.get_mut(group) else { return };
    if let Some(partitions) = topics.get_mut(topic) {
        partitions.remove(&partition);
        if partitions.is_empty() {
            topics.remove(topic);
        }
    }
    if topics.is_empty() {
        offsets.remove(group);
    }
}
