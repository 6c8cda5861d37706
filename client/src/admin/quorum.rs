//! Who decides in the cluster, and where that node is reached.

use thalweg_wire::messages::DescribeQuorumRequest;
use thalweg_wire::messages::describe_quorum::{DescribeQuorumPartition, DescribeQuorumTopic};

use super::{Admin, missing};
use crate::error::{ClientError, Result};

/// One that votes on the metadata, or learns to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuorumMember {
    /// Its number among those; no broker's.
    pub id: i32,
    /// host:port of what it serves to brokers and its like; not a Kafka listener.
    pub address: String,
    pub is_leader: bool,
}

impl Admin {
    /// Those whose addresses the cluster tells, the leader first.
    ///
    /// # Errors
    /// No broker answers, none of them reaches the leader now, or it is of a version that tells no addresses (KIP-853).
    pub async fn quorum(&self) -> Result<Vec<QuorumMember>> {
        let partitions = vec![DescribeQuorumPartition { partition_index: 0 }];
        let topic = DescribeQuorumTopic { topic_name: METADATA_TOPIC.to_owned(), partitions };
        let answer = self.client.call_any(&DescribeQuorumRequest { topics: vec![topic] }).await?;
        let subject = || "who decides in the cluster".to_owned();
        ClientError::check(answer.error_code, subject, answer.error_message)?;
        let partition = answer.topics.into_iter().flat_map(|topic| topic.partitions).next();
        let partition = partition.ok_or_else(|| missing("DescribeQuorum", METADATA_TOPIC))?;
        ClientError::check(partition.error_code, subject, partition.error_message)?;
        let mut members: Vec<QuorumMember> = answer
            .nodes
            .into_iter()
            .filter_map(|node| {
                let listener = node.listeners.into_iter().next()?;
                let address = match listener.host.contains(':') {
                    true => format!("[{}]:{}", listener.host, listener.port),
                    false => format!("{}:{}", listener.host, listener.port),
                };
                Some(QuorumMember { id: node.node_id, address, is_leader: node.node_id == partition.leader_id })
            })
            .collect();
        members.sort_by_key(|member| (!member.is_leader, member.id));
        Ok(members)
    }
}

/// Kafka's name of what its controllers keep.
const METADATA_TOPIC: &str = "__cluster_metadata";
