//! What only Thalweg tells: its brokers have an API of their own for it, Apache Kafka's do not.

use std::time::Duration;

use thalweg_model::NodeId;
use thalweg_wire::inspect::{GroupReport, InspectKind, NodeReport, TopicReport, TrafficReport};
use thalweg_wire::messages::InspectRequest;
use thalweg_wire::placement::{Order, PlacementReport};

use super::Admin;
use crate::client::Lane;
use crate::error::{ClientError, Result};

impl Admin {
    /// What a group went through lately: its rebalances, and how fast it commits.
    ///
    /// # Errors
    /// [`ClientError::UnsupportedApi`] from Apache Kafka; error 69 if there is no such group.
    pub async fn explain_group(&self, group_id: &str) -> Result<GroupReport> {
        let (node, document) = self
            .client
            .retrying(|| async {
                let node = self.client.find_group_coordinator(group_id).await?;
                Ok((node, self.inspect(node, InspectKind::Group, group_id).await?))
            })
            .await?;
        read(node, &document)
    }

    /// Why each segment of a topic is kept, from all brokers that lead a part of it.
    ///
    /// # Errors
    /// [`ClientError::UnsupportedApi`] from Apache Kafka; the topic does not exist, or a leader does not answer.
    pub async fn explain_topic(&self, topic: &str) -> Result<TopicReport> {
        let info = self.topic(topic).await?;
        let leaders: std::collections::BTreeSet<NodeId> = info.partitions.iter().filter_map(|p| p.leader).collect();
        let mut sum = TopicReport::default();
        for node in leaders {
            let document = self.inspect(node, InspectKind::Topic, topic).await?;
            let part: TopicReport = read(node, &document)?;
            sum.partitions.extend(part.partitions);
            sum.left_out_count += part.left_out_count;
        }
        sum.partitions.sort_by_key(|partition| partition.partition);
        Ok(sum)
    }

    /// What a broker says of itself.
    ///
    /// # Errors
    /// [`ClientError::UnsupportedApi`] from Apache Kafka; the broker does not answer.
    pub async fn explain_broker(&self, node: NodeId) -> Result<NodeReport> {
        let document = self.inspect(node, InspectKind::Node, "").await?;
        read(node, &document)
    }

    /// What clients write to and read from the partitions that a broker leads.
    ///
    /// # Errors
    /// [`ClientError::UnsupportedApi`] from Apache Kafka; the broker does not answer, or is too old to measure it.
    pub async fn traffic(&self, node: NodeId) -> Result<TrafficReport> {
        let document = self.inspect(node, InspectKind::Traffic, "").await?;
        read(node, &document)
    }

    /// What the broker that answered first says of itself, wherever it tells clients to connect.
    ///
    /// # Errors
    /// [`ClientError::UnsupportedApi`] from Apache Kafka; no broker answers.
    pub async fn explain_any_broker(&self) -> Result<NodeReport> {
        let request = InspectRequest { kind: InspectKind::Node.code(), subject: String::new() };
        let answer = self.client.call_any(&request).await?;
        ClientError::check(answer.error_code, || "a broker".to_owned(), answer.error_message)?;
        read(NodeId::NONE, &answer.document)
    }

    /// Where replicas lie, as the broker that answers first knows it.
    ///
    /// # Errors
    /// [`ClientError::UnsupportedApi`] from Apache Kafka; no broker answers.
    pub async fn placement(&self) -> Result<PlacementReport> {
        let request = InspectRequest { kind: InspectKind::Placement.code(), subject: String::new() };
        let answer = self.client.call_any(&request).await?;
        ClientError::check(answer.error_code, || "a broker".to_owned(), answer.error_message)?;
        read(NodeId::NONE, &answer.document)
    }

    /// Has the coordinators carry out an order.
    ///
    /// # Errors
    /// [`ClientError::UnsupportedApi`] from Apache Kafka; the order is refused.
    pub async fn order(&self, order: &Order) -> Result<()> {
        let subject = serde_json::to_string(order)
            .map_err(|error| ClientError::InvalidUse { what: error.to_string(), remedy: "report it".to_owned() })?;
        let request = InspectRequest { kind: InspectKind::Order.code(), subject };
        let answer = self.client.call_controller(&request, self.timeout()).await?;
        ClientError::check(answer.error_code, || "refused".to_owned(), answer.error_message)
    }

    async fn inspect(&self, node: NodeId, kind: InspectKind, subject: &str) -> Result<String> {
        let request = InspectRequest { kind: kind.code(), subject: subject.to_owned() };
        let answer = self.client.call_node(node, Lane::Control, &request, Duration::ZERO).await?;
        let what = || match kind {
            InspectKind::Group => format!("group {subject}"),
            InspectKind::Topic => format!("topic {subject}"),
            InspectKind::Node | InspectKind::Placement | InspectKind::Order | InspectKind::Traffic => {
                format!("broker {node}")
            }
        };
        ClientError::check(answer.error_code, what, answer.error_message)?;
        Ok(answer.document)
    }
}

fn read<T: serde::de::DeserializeOwned>(node: NodeId, document: &str) -> Result<T> {
    serde_json::from_str(document).map_err(|error| ClientError::Malformed {
        what: "Inspect",
        address: format!("broker {node}"),
        detail: error.to_string(),
    })
}
