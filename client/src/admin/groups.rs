//! Groups and their offsets.

use std::collections::BTreeMap;
use std::time::Duration;

use thalweg_model::{ErrorCode, NodeId, TopicPartition};
use thalweg_wire::codec::Request;
use thalweg_wire::messages::describe_groups::{DescribedGroup, DescribedGroupMember};
use thalweg_wire::messages::offset_delete::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use thalweg_wire::messages::offset_fetch::OffsetFetchRequestGroup;
use thalweg_wire::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest, OffsetDeleteRequest, OffsetFetchRequest,
};

use super::{Admin, missing};
use crate::client::Lane;
use crate::consumer::protocol::{Assignment, Subscription, TopicPartitions};
use crate::consumer::{CommittedOffset, committed_of};
use crate::error::{ClientError, Result};

/// A group in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupListing {
    pub group_id: String,
    /// `consumer` for consumers; other programs have their own.
    pub protocol_type: String,
    /// Empty from brokers before Kafka 2.6.
    pub state: String,
    /// `classic` or `consumer`; empty from brokers before Kafka 3.8.
    pub kind: String,
    /// The broker that coordinates it.
    pub coordinator: NodeId,
}

/// A group with its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDescription {
    pub group_id: String,
    pub state: String,
    pub protocol_type: String,
    /// The assignor that the group chose; empty without members.
    pub protocol: String,
    pub coordinator: NodeId,
    pub members: Vec<GroupMember>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMember {
    pub member_id: String,
    pub group_instance_id: Option<String>,
    pub client_id: String,
    pub client_host: String,
    /// `None` if it is not a consumer's.
    pub subscription: Option<Vec<String>>,
    /// `None` if it is not a consumer's.
    pub assignment: Option<TopicPartitions>,
}

impl Admin {
    /// All groups, by id: each broker lists those it coordinates.
    ///
    /// # Errors
    /// A broker that does not answer.
    pub async fn groups(&self) -> Result<Vec<GroupListing>> {
        let cluster = self.client.fetch_all_metadata().await?;
        let mut groups = BTreeMap::new();
        for node in cluster.brokers.into_keys() {
            let request = ListGroupsRequest::default();
            let answer = self.client.call_node(node, Lane::Control, &request, Duration::ZERO).await?;
            ClientError::check(answer.error_code, || format!("groups of broker {node}"), None)?;
            for group in answer.groups {
                groups.insert(
                    group.group_id.clone(),
                    GroupListing {
                        group_id: group.group_id,
                        protocol_type: group.protocol_type,
                        state: group.group_state,
                        kind: group.group_type,
                        coordinator: node,
                    },
                );
            }
        }
        Ok(groups.into_values().collect())
    }

    /// # Errors
    /// [`ErrorCode::GroupIdNotFound`] if there is no such group.
    pub async fn describe_group(&self, group_id: &str) -> Result<GroupDescription> {
        let request = DescribeGroupsRequest { groups: vec![group_id.to_owned()], include_authorized_operations: false };
        let (coordinator, answer) = self.call_coordinator(group_id, &request, i16::MAX).await?;
        let group = answer.groups.into_iter().next().ok_or_else(|| missing("DescribeGroups", group_id))?;
        ClientError::check(group.error_code, || format!("group {group_id}"), group.error_message.clone())?;
        // Versions before 6 call a group that does not exist dead (KIP-1043).
        if group.group_state == "Dead" {
            return Err(ClientError::from_code(ErrorCode::GroupIdNotFound as i16, format!("group {group_id}"), None));
        }
        Ok(describe(group, coordinator))
    }

    /// Every offset that the group has stored.
    ///
    /// # Errors
    /// The coordinator does not answer.
    pub async fn group_offsets(&self, group_id: &str) -> Result<BTreeMap<TopicPartition, CommittedOffset>> {
        let request = OffsetFetchRequest {
            group_id: group_id.to_owned(),
            topics: None,
            groups: vec![OffsetFetchRequestGroup {
                group_id: group_id.to_owned(),
                topics: None,
                ..OffsetFetchRequestGroup::default()
            }],
            require_stable: false,
        };
        let (_, answer) = self.call_coordinator(group_id, &request, LAST_FETCH_VERSION_WITH_NAMES).await?;
        committed_of(group_id, answer)
    }

    /// Removes a group and its offsets.
    ///
    /// # Errors
    /// It has members, or does not exist.
    pub async fn delete_group(&self, group_id: &str) -> Result<()> {
        let request = DeleteGroupsRequest { groups_names: vec![group_id.to_owned()] };
        let (_, answer) = self.call_coordinator(group_id, &request, i16::MAX).await?;
        let result = answer.results.into_iter().next().ok_or_else(|| missing("DeleteGroups", group_id))?;
        ClientError::check(result.error_code, || format!("group {group_id}"), result.error_message)
    }

    /// Removes a group's offsets of some partitions.
    ///
    /// # Errors
    /// A member is subscribed to the topic, or the group does not exist.
    pub async fn delete_group_offsets(&self, group_id: &str, partitions: &[TopicPartition]) -> Result<()> {
        let mut topics: BTreeMap<&str, Vec<OffsetDeleteRequestPartition>> = BTreeMap::new();
        for tp in partitions {
            let partition = OffsetDeleteRequestPartition { partition_index: tp.partition.0 };
            topics.entry(tp.topic.as_str()).or_default().push(partition);
        }
        let topic = |(name, partitions): (&str, _)| OffsetDeleteRequestTopic { name: name.to_owned(), partitions };
        let request =
            OffsetDeleteRequest { group_id: group_id.to_owned(), topics: topics.into_iter().map(topic).collect() };
        let (_, answer) = self.call_coordinator(group_id, &request, i16::MAX).await?;
        ClientError::check(answer.error_code, || format!("group {group_id}"), None)?;
        for topic in answer.topics {
            for p in topic.partitions {
                let subject = || format!("offset of {}-{} in group {group_id}", topic.name, p.partition_index);
                ClientError::check(p.error_code, subject, None)?;
            }
        }
        Ok(())
    }

    pub(super) async fn call_coordinator<R: Request>(
        &self,
        group_id: &str,
        request: &R,
        version_max: i16,
    ) -> Result<(NodeId, R::Response)> {
        self.client
            .retrying(|| async {
                let node = self.client.find_group_coordinator(group_id).await?;
                let connection = self.client.connection(node, Lane::Control).await?;
                Ok((node, connection.call_at_most(request, version_max, Duration::ZERO).await?))
            })
            .await
    }
}

fn describe(group: DescribedGroup, coordinator: NodeId) -> GroupDescription {
    let is_consumer = group.protocol_type == "consumer";
    GroupDescription {
        group_id: group.group_id,
        state: group.group_state,
        protocol_type: group.protocol_type,
        protocol: group.protocol_data,
        coordinator,
        members: group.members.into_iter().map(|member| describe_member(member, is_consumer)).collect(),
    }
}

fn describe_member(member: DescribedGroupMember, is_consumer: bool) -> GroupMember {
    let subscription = || Subscription::decode(member.member_metadata.clone()).ok().map(|read| read.topics);
    let assignment = || Assignment::decode(member.member_assignment.clone()).ok().map(|read| read.partitions);
    GroupMember {
        subscription: is_consumer.then(subscription).flatten(),
        assignment: is_consumer.then(assignment).flatten(),
        member_id: member.member_id,
        group_instance_id: member.group_instance_id,
        client_id: member.client_id,
        client_host: member.client_host,
    }
}

const LAST_FETCH_VERSION_WITH_NAMES: i16 = 9;
