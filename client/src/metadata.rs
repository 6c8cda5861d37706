//! What is known of the cluster: brokers, topics, leaders. A snapshot that is replaced as a whole.

use std::collections::BTreeMap;

use thalweg_model::{ErrorCode, LeaderEpoch, NodeId, TopicId};
use thalweg_wire::messages::MetadataResponse;
use thalweg_wire::messages::metadata::{MetadataResponsePartition, MetadataResponseTopic};

/// One answer of a broker, or the sum of several.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    pub cluster_id: Option<String>,
    pub controller: Option<NodeId>,
    pub brokers: BTreeMap<NodeId, BrokerInfo>,
    pub topics: BTreeMap<String, TopicInfo>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerInfo {
    pub node: NodeId,
    pub host: String,
    pub port: u16,
    pub rack: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicInfo {
    pub name: String,
    /// Zero from brokers older than topic ids.
    pub id: TopicId,
    pub is_internal: bool,
    /// `None` for a good topic; then `partitions` is not empty.
    pub error: Option<i16>,
    /// In order of their numbers, which run from 0 without holes.
    pub partitions: Vec<PartitionInfo>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionInfo {
    pub index: i32,
    pub leader: Option<NodeId>,
    pub leader_epoch: LeaderEpoch,
    pub replicas: Vec<NodeId>,
    pub isr: Vec<NodeId>,
    pub offline: Vec<NodeId>,
}

impl BrokerInfo {
    /// `host:port`, an IPv6 host in brackets.
    pub fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl TopicInfo {
    pub fn partition_count(&self) -> i32 {
        i32::try_from(self.partitions.len()).unwrap_or(i32::MAX)
    }

    pub fn partition(&self, index: i32) -> Option<&PartitionInfo> {
        self.partitions.get(usize::try_from(index).ok()?)
    }

    /// Partitions that records can be sent to now, or all if there is none.
    pub(crate) fn sendable(&self) -> Vec<i32> {
        let with_leader: Vec<i32> = self.partitions.iter().filter(|p| p.leader.is_some()).map(|p| p.index).collect();
        if with_leader.is_empty() { self.partitions.iter().map(|p| p.index).collect() } else { with_leader }
    }
}

impl Metadata {
    pub(crate) fn from_answer(answer: &MetadataResponse) -> Metadata {
        let brokers = answer.brokers.iter().filter_map(|broker| {
            let port = u16::try_from(broker.port).ok()?;
            let node = NodeId(broker.node_id);
            Some((node, BrokerInfo { node, host: broker.host.clone(), port, rack: broker.rack.clone() }))
        });
        let topics = answer.topics.iter().filter_map(topic);
        Metadata {
            cluster_id: answer.cluster_id.clone(),
            controller: (answer.controller_id >= 0).then_some(NodeId(answer.controller_id)),
            brokers: brokers.collect(),
            topics: topics.map(|topic| (topic.name.clone(), topic)).collect(),
        }
    }

    /// The sum of `self` and a newer answer. Topics that the answer does not name stay, but for a leader epoch
    /// that goes back within one life of a topic: a broker that lags behind must not undo what another told.
    pub(crate) fn merged(&self, newer: Metadata) -> Metadata {
        let mut topics = self.topics.clone();
        for (name, mut topic) in newer.topics {
            if let Some(known) = topics.get(&name).filter(|known| known.id == topic.id) {
                for partition in &mut topic.partitions {
                    let known = known.partition(partition.index);
                    if let Some(known) = known.filter(|known| known.leader_epoch > partition.leader_epoch) {
                        *partition = known.clone();
                    }
                }
            }
            topics.insert(name, topic);
        }
        Metadata { cluster_id: newer.cluster_id, controller: newer.controller, brokers: newer.brokers, topics }
    }

    pub(crate) fn without_topic(&self, topic: &str) -> Metadata {
        let mut copy = self.clone();
        copy.topics.remove(topic);
        copy
    }

    pub fn topic(&self, name: &str) -> Option<&TopicInfo> {
        self.topics.get(name)
    }

    /// The leader of a partition, if it is known and alive.
    pub fn leader(&self, topic: &str, partition: i32) -> Option<(NodeId, LeaderEpoch)> {
        let partition = self.topic(topic)?.partition(partition)?;
        let leader = partition.leader.filter(|leader| self.brokers.contains_key(leader))?;
        Some((leader, partition.leader_epoch))
    }
}

/// `None` for a topic without a name: one asked for by an id that is gone.
fn topic(topic: &MetadataResponseTopic) -> Option<TopicInfo> {
    let name = topic.name.clone()?;
    let mut partitions: Vec<PartitionInfo> = topic.partitions.iter().map(partition).collect();
    partitions.sort_by_key(|p| p.index);
    let whole = partitions.iter().zip(0..).all(|(p, index)| p.index == index);
    let error = match topic.error_code {
        0 if !whole || partitions.is_empty() => Some(ErrorCode::LeaderNotAvailable as i16),
        0 => None,
        code => Some(code),
    };
    Some(TopicInfo { name, id: topic.topic_id, is_internal: topic.is_internal, error, partitions })
}

fn partition(partition: &MetadataResponsePartition) -> PartitionInfo {
    let nodes = |ids: &[i32]| ids.iter().map(|id| NodeId(*id)).collect();
    PartitionInfo {
        index: partition.partition_index,
        leader: (partition.leader_id >= 0).then_some(NodeId(partition.leader_id)),
        leader_epoch: LeaderEpoch(partition.leader_epoch),
        replicas: nodes(&partition.replica_nodes),
        isr: nodes(&partition.isr_nodes),
        offline: nodes(&partition.offline_replicas),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_leader(id: u8, leader: i32, epoch: i32) -> Metadata {
        let partition = MetadataResponsePartition {
            leader_id: leader,
            leader_epoch: epoch,
            ..MetadataResponsePartition::default()
        };
        let topic = MetadataResponseTopic {
            name: Some("t".into()),
            topic_id: TopicId([id; 16]),
            partitions: vec![partition],
            ..MetadataResponseTopic::default()
        };
        let brokers = [1, 2]
            .map(|node_id| thalweg_wire::messages::metadata::MetadataResponseBroker { node_id, ..Default::default() });
        Metadata::from_answer(&MetadataResponse { brokers: brokers.into(), topics: vec![topic], ..Default::default() })
    }

    #[test]
    fn an_older_leader_epoch_does_not_undo_a_newer_one() {
        let merged = with_leader(1, 2, 5).merged(with_leader(1, 1, 4));
        assert_eq!(merged.leader("t", 0), Some((NodeId(2), LeaderEpoch(5))));
    }

    #[test]
    fn a_topic_that_was_created_anew_starts_over() {
        let merged = with_leader(1, 2, 5).merged(with_leader(2, 1, 0));
        assert_eq!(merged.leader("t", 0), Some((NodeId(1), LeaderEpoch(0))));
    }

    #[test]
    fn a_leader_that_is_not_among_the_brokers_is_none() {
        assert_eq!(with_leader(1, 7, 0).leader("t", 0), None);
        assert_eq!(with_leader(1, -1, 0).leader("t", 0), None);
    }

    #[test]
    fn a_topic_with_holes_is_not_ready() {
        let mut answer = MetadataResponse::default();
        let partition = |index| MetadataResponsePartition { partition_index: index, ..Default::default() };
        answer.topics.push(MetadataResponseTopic {
            name: Some("t".into()),
            partitions: vec![partition(2), partition(0)],
            ..Default::default()
        });
        assert!(Metadata::from_answer(&answer).topics["t"].error.is_some());
    }
}
