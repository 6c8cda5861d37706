//! What the cluster looks like: the coordinator's committed records, folded into one value.
//!
//! [`ImageBuilder::apply`] takes feed items in index order and says what changed; handlers read the [`Image`] snapshots
//! that it hands out. A snapshot never changes; parts that did not change are shared with the one before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use thalweg_model::{
    BrokerEpoch, LeaderEpoch, NodeId, PartitionEpoch, PartitionIndex, TopicConfig, TopicId, TopicName,
};
use thalweg_proto::v1;
use v1::record::Kind;

use crate::config::{Network, properties};

/// A snapshot of the cluster as of [`Image::index`].
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// The coordinator's log index that this is the state of.
    pub index: u64,
    pub cluster_id: Arc<str>,
    pub brokers: Arc<BTreeMap<NodeId, BrokerImage>>,
    pub(crate) topics: Arc<BTreeMap<TopicName, Arc<TopicImage>>>,
    pub(crate) names: Arc<BTreeMap<TopicId, TopicName>>,
    pub(crate) configs: Arc<BTreeMap<ConfigScope, BTreeMap<String, String>>>,
    pub features: Arc<BTreeMap<String, u32>>,
    /// Moves under way that belong together.
    pub plan: Option<Arc<v1::PlanRecord>>,
}

/// A registered broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerImage {
    pub epoch: BrokerEpoch,
    pub endpoints: Vec<Endpoint>,
    pub rack: Option<String>,
    pub fenced: bool,
    pub shutting_down: bool,
    /// Is given no replicas.
    pub cordoned: bool,
    /// Is to hold nothing.
    pub draining: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub listener: String,
    pub host: String,
    pub port: u16,
    /// Told only to clients that come from there.
    pub clients: Option<Network>,
    /// The broker's interface has this address in this network. `None` for an address that its operator gave.
    pub network: Option<Network>,
}

/// One life of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicImage {
    pub name: TopicName,
    pub id: TopicId,
    pub internal: bool,
    /// Invariant: keyed without holes from 0 once the image is complete.
    pub partitions: BTreeMap<PartitionIndex, PartitionImage>,
}

/// A partition's registration (REPLICATION 3.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionImage {
    /// Ordered; the first is the preferred leader.
    pub replicas: Vec<NodeId>,
    /// Invariant: sorted; contains the leader when there is one.
    pub isr: Vec<NodeId>,
    pub elr: Vec<NodeId>,
    pub lost: Vec<NodeId>,
    pub leader: Option<NodeId>,
    pub leader_epoch: LeaderEpoch,
    pub partition_epoch: PartitionEpoch,
    /// Of `replicas`: on their way in (KIP-455).
    pub adding: Vec<NodeId>,
    /// Of `replicas`: to go once those are in sync.
    pub removing: Vec<NodeId>,
    pub recovering: bool,
}

/// Whom a configuration override belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigScope {
    Topic(String),
    Broker(NodeId),
    /// Every broker that does not say otherwise.
    BrokerDefault,
}

/// What one feed item changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Partitions whose registration is new or changed.
    pub partitions: BTreeSet<(TopicName, PartitionIndex)>,
    /// Lives of topics that are gone.
    pub removed: Vec<(TopicName, TopicId)>,
    /// Topics whose configuration may differ.
    pub configs: BTreeSet<TopicName>,
    pub brokers: bool,
}

impl PartitionImage {
    /// Whether replicas are on their way in or out.
    pub fn is_moving(&self) -> bool {
        !self.adding.is_empty() || !self.removing.is_empty()
    }

    /// The number of replicas that `min.insync.replicas` is held against: without those that a move only has meanwhile. The
    /// coordinator counts the same.
    pub fn factor(&self) -> usize {
        self.replicas.len() - self.adding.len().max(self.removing.len()).min(self.replicas.len().saturating_sub(1))
    }
}

impl Image {
    /// Of the feature thalweg.version: what the cluster may do (REPLICATION R4). 0 until it is known.
    pub fn level(&self) -> u32 {
        self.features.get(VERSION_FEATURE).copied().unwrap_or(0)
    }

    pub fn topic(&self, name: &str) -> Option<&Arc<TopicImage>> {
        self.topics.get(name)
    }

    pub fn topic_by_id(&self, id: TopicId) -> Option<&Arc<TopicImage>> {
        self.topics.get(self.names.get(&id)?)
    }

    /// In the order of names.
    pub fn topics(&self) -> impl Iterator<Item = &Arc<TopicImage>> {
        self.topics.values()
    }

    pub fn partition(&self, topic: &str, partition: PartitionIndex) -> Option<&PartitionImage> {
        self.topics.get(topic)?.partitions.get(&partition)
    }

    /// What was set on this resource itself; empty if nothing was.
    pub fn overrides(&self, scope: &ConfigScope) -> &BTreeMap<String, String> {
        self.configs.get(scope).unwrap_or(&NO_OVERRIDES)
    }

    /// A topic's overrides laid over the defaults of this broker: its own dynamic ones, those of all brokers, its static ones.
    pub fn topic_overrides(
        &self,
        topic: &str,
        node: NodeId,
        static_defaults: &BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        let mut merged = static_defaults.clone();
        for scope in [ConfigScope::BrokerDefault, ConfigScope::Broker(node)] {
            let overrides = self.overrides(&scope).iter();
            merged
                .extend(overrides.filter_map(|(name, value)| {
                    properties::topic_key(name).map(|key| (key.to_owned(), value.clone()))
                }));
        }
        merged.extend(self.overrides(&ConfigScope::Topic(topic.to_owned())).clone());
        merged
    }

    /// A topic's configuration on this broker. A value that this version cannot read counts as not set.
    pub fn topic_config(&self, topic: &str, node: NodeId, static_defaults: &BTreeMap<String, String>) -> TopicConfig {
        let mut overrides = self.topic_overrides(topic, node, static_defaults);
        TopicConfig::from_overrides(&overrides).unwrap_or_else(|_| {
            overrides.retain(|key, value| {
                TopicConfig::from_overrides(&BTreeMap::from([(key.clone(), value.clone())])).is_ok()
            });
            TopicConfig::from_overrides(&overrides).unwrap_or_default()
        })
    }

    /// Brokers that may be told to clients, in the order of ids.
    pub fn live_brokers(&self) -> impl Iterator<Item = (NodeId, &BrokerImage)> {
        self.brokers.iter().filter(|(_, broker)| !broker.fenced).map(|(id, broker)| (*id, broker))
    }
}

/// Folds feed items into images.
#[derive(Debug, Default)]
pub struct ImageBuilder {
    image: Image,
    /// The image before an `image_start`, against which the new one is compared when it is complete.
    before: Option<Image>,
}

impl ImageBuilder {
    /// The state as of the last complete item.
    pub fn image(&self) -> Image {
        self.before.as_ref().unwrap_or(&self.image).clone()
    }

    /// Applies one feed item. `None` while a whole image is under way.
    ///
    /// Records that this version does not know, or that make no sense, are skipped: the coordinator checked them.
    pub fn apply(&mut self, item: &v1::FeedItem) -> Option<Changes> {
        if item.image_start {
            self.before.get_or_insert_with(|| std::mem::take(&mut self.image));
            self.image = Image::default();
        }
        let mut changes = Changes::default();
        for kind in item.records.iter().filter_map(|record| record.kind.as_ref()) {
            self.record(kind, &mut changes);
        }
        self.image.index = self.image.index.max(item.index);
        if !item.image_complete && self.before.is_some() {
            return None;
        }
        Some(match self.before.take() {
            Some(before) => difference(&before, &self.image),
            None => changes,
        })
    }

    fn record(&mut self, kind: &Kind, changes: &mut Changes) {
        match kind {
            Kind::Cluster(cluster) => self.image.cluster_id = Arc::from(cluster.cluster_id.as_str()),
            Kind::Feature(feature) => {
                Arc::make_mut(&mut self.image.features).insert(feature.name.clone(), feature.level);
            }
            Kind::Broker(broker) => {
                Arc::make_mut(&mut self.image.brokers).insert(NodeId(broker.id), broker_image(broker));
                changes.brokers = true;
            }
            Kind::BrokerRemoved(broker) => {
                Arc::make_mut(&mut self.image.brokers).remove(&NodeId(broker.id));
                changes.brokers = true;
            }
            Kind::Topic(topic) => self.topic(topic, changes),
            Kind::TopicRemoved(topic) => self.topic_removed(topic, changes),
            Kind::Partition(partition) => self.partition(partition, changes),
            Kind::Config(config) => self.config(config, changes),
            Kind::Plan(plan) => self.image.plan = Some(Arc::new(plan.clone())),
            Kind::PlanRemoved(removed) => drop(self.image.plan.take_if(|plan| plan.id == removed.id)),
            Kind::ProducerIds(_)
            | Kind::Group(_)
            | Kind::GroupRemoved(_)
            | Kind::Offset(_)
            | Kind::OffsetRemoved(_)
            | Kind::Coordinator(_)
            | Kind::Token(_)
            | Kind::TokenRemoved(_)
            | Kind::NodeIds(_) => {}
        }
    }

    fn topic(&mut self, topic: &v1::TopicRecord, changes: &mut Changes) {
        let (Ok(name), Some(id)) = (TopicName::new(&topic.name), topic_id(&topic.topic_id)) else { return };
        let kept = self.image.topics.get(&name).filter(|known| known.id == id).map(|known| known.partitions.clone());
        if kept.is_none() {
            self.forget_topic(&name, changes);
        }
        let image =
            TopicImage { name: name.clone(), id, internal: topic.internal, partitions: kept.unwrap_or_default() };
        Arc::make_mut(&mut self.image.names).insert(id, name.clone());
        Arc::make_mut(&mut self.image.topics).insert(name, Arc::new(image));
    }

    fn topic_removed(&mut self, topic: &v1::TopicRemoved, changes: &mut Changes) {
        let Some(id) = topic_id(&topic.topic_id) else { return };
        if let Some(name) = self.image.names.get(&id).cloned() {
            self.forget_topic(&name, changes);
        }
    }

    fn forget_topic(&mut self, name: &TopicName, changes: &mut Changes) {
        if let Some(topic) = Arc::make_mut(&mut self.image.topics).remove(name) {
            Arc::make_mut(&mut self.image.names).remove(&topic.id);
            changes.partitions.retain(|(changed, _)| changed != name);
            changes.removed.push((name.clone(), topic.id));
        }
    }

    fn partition(&mut self, partition: &v1::PartitionRecord, changes: &mut Changes) {
        let Some(name) = topic_id(&partition.topic_id).and_then(|id| self.image.names.get(&id).cloned()) else {
            return;
        };
        let index = PartitionIndex(partition.partition);
        let Some(topic) = Arc::make_mut(&mut self.image.topics).get_mut(&name) else { return };
        Arc::make_mut(topic).partitions.insert(index, partition_image(partition));
        changes.partitions.insert((name, index));
    }

    fn config(&mut self, config: &v1::ConfigRecord, changes: &mut Changes) {
        let scope = match config.resource() {
            v1::config_record::Resource::Topic => ConfigScope::Topic(config.name.clone()),
            v1::config_record::Resource::Broker if config.name.is_empty() => ConfigScope::BrokerDefault,
            v1::config_record::Resource::Broker => match config.name.parse() {
                Ok(id) => ConfigScope::Broker(NodeId(id)),
                Err(_) => return,
            },
        };
        match &scope {
            ConfigScope::Topic(name) => changes.configs.extend(TopicName::new(name)),
            ConfigScope::Broker(_) | ConfigScope::BrokerDefault => {
                changes.configs.extend(self.image.topics.keys().cloned());
            }
        }
        let configs = Arc::make_mut(&mut self.image.configs);
        match &config.value {
            Some(value) => {
                configs.entry(scope).or_default().insert(config.key.clone(), value.clone());
            }
            None => {
                let empty = configs.get_mut(&scope).is_some_and(|overrides| {
                    overrides.remove(&config.key);
                    overrides.is_empty()
                });
                if empty {
                    configs.remove(&scope);
                }
            }
        }
    }
}

/// What changed between two complete images.
fn difference(before: &Image, after: &Image) -> Changes {
    let gone = before.topics().filter(|topic| after.topic_by_id(topic.id).is_none());
    let mut changes = Changes {
        removed: gone.map(|topic| (topic.name.clone(), topic.id)).collect(),
        brokers: before.brokers != after.brokers,
        ..Changes::default()
    };
    for topic in after.topics() {
        let known = before.topic_by_id(topic.id);
        for (index, partition) in &topic.partitions {
            if known.and_then(|known| known.partitions.get(index)) != Some(partition) {
                changes.partitions.insert((topic.name.clone(), *index));
            }
        }
        if before.configs != after.configs {
            changes.configs.insert(topic.name.clone());
        }
    }
    changes
}

fn broker_image(broker: &v1::BrokerRecord) -> BrokerImage {
    let endpoints = broker.endpoints.iter().filter_map(|endpoint| {
        let port = u16::try_from(endpoint.port).ok()?;
        // A rule that cannot be read is left out rather than told to everybody.
        let network = |text: &str| if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) };
        let (listener, host) = (endpoint.listener.clone(), endpoint.host.clone());
        Some(Endpoint {
            listener,
            host,
            port,
            clients: network(&endpoint.clients)?,
            network: network(&endpoint.network)?,
        })
    });
    BrokerImage {
        epoch: BrokerEpoch(broker.epoch),
        endpoints: endpoints.collect(),
        rack: broker.rack.clone(),
        fenced: broker.fenced,
        shutting_down: broker.shutting_down,
        cordoned: broker.cordoned,
        draining: broker.draining,
    }
}

fn partition_image(partition: &v1::PartitionRecord) -> PartitionImage {
    let nodes = |ids: &[i32]| ids.iter().copied().map(NodeId).collect::<Vec<_>>();
    PartitionImage {
        replicas: nodes(&partition.replicas),
        isr: nodes(&partition.isr),
        elr: nodes(&partition.elr),
        lost: nodes(&partition.lost),
        leader: (partition.leader >= 0).then_some(NodeId(partition.leader)),
        leader_epoch: LeaderEpoch(partition.leader_epoch),
        partition_epoch: PartitionEpoch(partition.partition_epoch),
        adding: nodes(&partition.adding),
        removing: nodes(&partition.removing),
        recovering: partition.recovering,
    }
}

fn topic_id(bytes: &[u8]) -> Option<TopicId> {
    <[u8; 16]>::try_from(bytes).ok().map(TopicId).filter(|id| !id.is_zero())
}

static NO_OVERRIDES: BTreeMap<String, String> = BTreeMap::new();

/// The feature that says what commands and records may be used.
pub const VERSION_FEATURE: &str = "thalweg.version";

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: Kind) -> v1::Record {
        v1::Record { kind: Some(kind) }
    }

    fn topic(name: &str, id: u8) -> v1::Record {
        record(Kind::Topic(v1::TopicRecord { name: name.into(), topic_id: vec![id; 16].into(), ..Default::default() }))
    }

    fn partition(id: u8, partition_epoch: i32) -> v1::Record {
        record(Kind::Partition(v1::PartitionRecord {
            topic_id: vec![id; 16].into(),
            replicas: vec![1],
            isr: vec![1],
            leader: 1,
            partition_epoch,
            ..Default::default()
        }))
    }

    fn config(name: &str, key: &str, value: Option<&str>) -> v1::Record {
        record(Kind::Config(v1::ConfigRecord {
            resource: v1::config_record::Resource::Topic.into(),
            name: name.into(),
            key: key.into(),
            value: value.map(str::to_owned),
        }))
    }

    fn item(index: u64, records: Vec<v1::Record>) -> v1::FeedItem {
        v1::FeedItem { index, records, ..Default::default() }
    }

    fn name(name: &str) -> TopicName {
        TopicName::new(name).unwrap()
    }

    #[test]
    fn a_re_created_topic_is_another_life_and_the_old_one_is_reported_gone() {
        let mut builder = ImageBuilder::default();
        builder.apply(&item(1, vec![topic("a", 1), partition(1, 0)])).unwrap();
        let changes = builder.apply(&item(2, vec![topic("a", 2), partition(2, 0)])).unwrap();
        assert_eq!(changes.removed, [(name("a"), TopicId([1; 16]))]);
        assert_eq!(changes.partitions, BTreeSet::from([(name("a"), PartitionIndex(0))]));
        let image = builder.image();
        assert_eq!(image.topic("a").unwrap().id, TopicId([2; 16]));
        assert!(image.topic_by_id(TopicId([1; 16])).is_none());
        assert_eq!(image.index, 2);
    }

    #[test]
    fn a_snapshot_does_not_change_after_it_was_taken() {
        let mut builder = ImageBuilder::default();
        builder.apply(&item(1, vec![topic("a", 1), partition(1, 0)])).unwrap();
        let snapshot = builder.image();
        builder.apply(&item(2, vec![partition(1, 5)])).unwrap();
        assert_eq!(snapshot.partition("a", PartitionIndex(0)).unwrap().partition_epoch, PartitionEpoch(0));
        assert_eq!(builder.image().partition("a", PartitionIndex(0)).unwrap().partition_epoch, PartitionEpoch(5));
    }

    #[test]
    fn a_second_whole_image_reports_only_what_differs_and_shows_nothing_half_done() {
        let mut builder = ImageBuilder::default();
        builder.apply(&item(1, vec![topic("a", 1), partition(1, 0), topic("b", 2), partition(2, 0)])).unwrap();
        let start = v1::FeedItem { index: 9, records: vec![topic("b", 2)], image_start: true, image_complete: false };
        assert_eq!(builder.apply(&start), None);
        assert!(builder.image().topic("a").is_some(), "the old image stands until the new one is complete");
        let rest = v1::FeedItem {
            index: 9,
            records: vec![partition(2, 0), topic("c", 3), partition(3, 0)],
            image_start: false,
            image_complete: true,
        };
        let changes = builder.apply(&rest).unwrap();
        assert_eq!(changes.removed, [(name("a"), TopicId([1; 16]))]);
        assert_eq!(changes.partitions, BTreeSet::from([(name("c"), PartitionIndex(0))]));
        assert_eq!(builder.image().index, 9);
    }

    #[test]
    fn a_topics_own_value_wins_over_every_default_and_goes_back_when_removed() {
        let mut builder = ImageBuilder::default();
        builder.apply(&item(1, vec![topic("a", 1), config("a", "retention.ms", Some("7"))])).unwrap();
        let defaults = BTreeMap::from([("retention.ms".to_owned(), "9".to_owned())]);
        let retention = |image: &Image| image.topic_config("a", NodeId(1), &defaults).retention_ms;
        assert_eq!(retention(&builder.image()), 7);
        let dynamic = |value: Option<&str>, name: &str| {
            record(Kind::Config(v1::ConfigRecord {
                resource: v1::config_record::Resource::Broker.into(),
                name: name.into(),
                key: "log.retention.ms".into(),
                value: value.map(str::to_owned),
            }))
        };
        let changes = builder.apply(&item(2, vec![config("a", "retention.ms", None), dynamic(Some("8"), "")])).unwrap();
        assert_eq!(changes.configs, BTreeSet::from([name("a")]));
        assert_eq!(retention(&builder.image()), 8);
        builder.apply(&item(3, vec![dynamic(None, "")])).unwrap();
        assert_eq!(retention(&builder.image()), 9);
    }
}
