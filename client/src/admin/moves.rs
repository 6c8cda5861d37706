//! Where partitions lie, and who leads them.

use std::collections::BTreeMap;

use thalweg_model::{ErrorCode, NodeId, TopicPartition};
use thalweg_wire::messages::alter_partition_reassignments::{ReassignablePartition, ReassignableTopic};
use thalweg_wire::messages::elect_leaders::TopicPartitions;
use thalweg_wire::messages::{
    AlterPartitionReassignmentsRequest, ElectLeadersRequest, ListPartitionReassignmentsRequest, UnregisterBrokerRequest,
};

use super::Admin;
use crate::consumer::topic_partition;
use crate::error::{ClientError, Result};

/// A move under way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reassignment {
    /// All that hold it now, those that come and those that go too.
    pub replicas: Vec<NodeId>,
    pub adding: Vec<NodeId>,
    pub removing: Vec<NodeId>,
}

impl Admin {
    /// Begins moves to these replicas, the first preferred as leader; `None` calls a move off. What the cluster said of each.
    ///
    /// # Errors
    /// Of the whole: no broker answers, or the cluster does not move partitions.
    pub async fn reassign(
        &self,
        moves: &BTreeMap<TopicPartition, Option<Vec<NodeId>>>,
    ) -> Result<BTreeMap<TopicPartition, Result<()>>> {
        let mut topics: BTreeMap<&str, Vec<ReassignablePartition>> = BTreeMap::new();
        for (tp, replicas) in moves {
            let replicas = replicas.as_ref().map(|ids| ids.iter().map(|id| id.0).collect());
            let wanted = ReassignablePartition { partition_index: tp.partition.0, replicas };
            topics.entry(tp.topic.as_str()).or_default().push(wanted);
        }
        let topic = |(name, partitions): (&str, _)| ReassignableTopic { name: name.to_owned(), partitions };
        let request = AlterPartitionReassignmentsRequest {
            timeout_ms: self.timeout_ms(),
            topics: topics.into_iter().map(topic).collect(),
            ..AlterPartitionReassignmentsRequest::default()
        };
        let answer = self.client.call_controller(&request, self.timeout()).await?;
        ClientError::check(answer.error_code, || "moving partitions".to_owned(), answer.error_message)?;
        let mut told = BTreeMap::new();
        for topic in answer.responses {
            for partition in topic.partitions {
                let tp = topic_partition(&topic.name, partition.partition_index)?;
                let subject = || format!("partition {tp}");
                let result = ClientError::check(partition.error_code, subject, partition.error_message);
                told.insert(tp, result);
            }
        }
        Ok(told)
    }

    /// Every move under way.
    ///
    /// # Errors
    /// No broker answers, or the cluster does not move partitions.
    pub async fn reassignments(&self) -> Result<BTreeMap<TopicPartition, Reassignment>> {
        let request = ListPartitionReassignmentsRequest { timeout_ms: self.timeout_ms(), topics: None };
        let answer = self.client.call_controller(&request, self.timeout()).await?;
        ClientError::check(answer.error_code, || "moves of partitions".to_owned(), answer.error_message)?;
        let mut moves = BTreeMap::new();
        for topic in answer.topics {
            for partition in topic.partitions {
                let nodes = |ids: Vec<i32>| ids.into_iter().map(NodeId).collect();
                let found = Reassignment {
                    replicas: nodes(partition.replicas),
                    adding: nodes(partition.adding_replicas),
                    removing: nodes(partition.removing_replicas),
                };
                moves.insert(topic_partition(&topic.name, partition.partition_index)?, found);
            }
        }
        Ok(moves)
    }

    /// Forgets a broker that is gone for good.
    ///
    /// # Errors
    /// It lives, or holds replicas.
    pub async fn unregister_broker(&self, node: NodeId) -> Result<()> {
        let request = UnregisterBrokerRequest { broker_id: node.0 };
        let answer = self.client.call_controller(&request, self.timeout()).await?;
        ClientError::check(answer.error_code, || format!("broker {node}"), answer.error_message)
    }

    /// Gives the lead of these partitions to their first replicas; where those lead already nothing happens.
    ///
    /// # Errors
    /// The first that may not lead now.
    pub async fn elect_preferred(&self, partitions: &[TopicPartition]) -> Result<()> {
        let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
        for tp in partitions {
            topics.entry(tp.topic.as_str()).or_default().push(tp.partition.0);
        }
        let topic = |(topic, partitions): (&str, _)| TopicPartitions { topic: topic.to_owned(), partitions };
        let request = ElectLeadersRequest {
            election_type: 0,
            topic_partitions: Some(topics.into_iter().map(topic).collect()),
            timeout_ms: self.timeout_ms(),
        };
        let answer = self.client.call_controller(&request, self.timeout()).await?;
        ClientError::check(answer.error_code, || "electing leaders".to_owned(), None)?;
        for topic in answer.replica_election_results {
            for result in topic.partition_result {
                let subject = || format!("partition {}-{}", topic.topic, result.partition_id);
                if result.error_code != ErrorCode::ElectionNotNeeded.code() {
                    ClientError::check(result.error_code, subject, result.error_message)?;
                }
            }
        }
        Ok(())
    }
}
