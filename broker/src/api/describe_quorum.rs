//! DescribeQuorum (key 55, versions 0-2): who coordinates, and how far each has come (KIP-595).
//!
//! Answered for Kafka's name of the metadata alone. Voters are the coordinators that vote, observers those that only learn yet.
//! Coordinators have numbers of their own, apart from brokers'.

use thalweg_model::ErrorCode;
use thalweg_proto::v1;
use thalweg_wire::messages::describe_quorum::{
    DescribeQuorumTopic, QuorumListener, QuorumNode, QuorumPartition, QuorumReplica, QuorumTopic,
};
use thalweg_wire::messages::{DescribeQuorumRequest, DescribeQuorumResponse};

use super::admin_calls;
use super::context::RequestContext;
use crate::services::Services;

pub async fn handle(services: &Services, _: &RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse {
    match admin_calls::describe_coordinators(services).await {
        Ok(known) => answer(&known, &request.topics),
        Err((code, message)) => {
            DescribeQuorumResponse { error_code: code.code(), error_message: Some(message), ..Default::default() }
        }
    }
}

fn answer(known: &v1::DescribeCoordinatorsResponse, topics: &[DescribeQuorumTopic]) -> DescribeQuorumResponse {
    let topics = topics.iter().map(|topic| QuorumTopic {
        topic_name: topic.topic_name.clone(),
        partitions: topic
            .partitions
            .iter()
            .map(|partition| match (topic.topic_name.as_str(), partition.partition_index) {
                (METADATA_TOPIC, 0) => quorum(known),
                (_, partition_index) => unknown(partition_index),
            })
            .collect(),
    });
    DescribeQuorumResponse {
        error_message: None,
        topics: topics.collect(),
        nodes: known.nodes.iter().filter_map(node).collect(),
        ..Default::default()
    }
}

fn quorum(known: &v1::DescribeCoordinatorsResponse) -> QuorumPartition {
    let members = known.nodes.iter().filter(|node| !node.spare);
    let (voters, learners): (Vec<_>, Vec<_>) = members.partition(|node| node.voter);
    let leader = known.nodes.iter().find(|node| node.leader);
    QuorumPartition {
        partition_index: 0,
        error_code: ErrorCode::None.code(),
        error_message: None,
        leader_id: leader.map_or(-1, |node| number(node.id)),
        leader_epoch: i32::try_from(known.term).unwrap_or(i32::MAX),
        high_watermark: offset(known.last_applied.saturating_add(1)),
        current_voters: voters.into_iter().map(replica).collect(),
        observers: learners.into_iter().map(replica).collect(),
    }
}

fn replica(node: &v1::CoordinatorNode) -> QuorumReplica {
    let log_end_offset = node.log_end_offset.map_or(-1, offset);
    QuorumReplica { replica_id: number(node.id), log_end_offset, ..Default::default() }
}

fn node(node: &v1::CoordinatorNode) -> Option<QuorumNode> {
    let (host, port) = node.address.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let listener = QuorumListener { name: LISTENER.to_owned(), host, port: port.parse().ok()? };
    Some(QuorumNode { node_id: number(node.id), listeners: vec![listener] })
}

fn unknown(partition_index: i32) -> QuorumPartition {
    let message = format!("there is a quorum of {METADATA_TOPIC}, partition 0, alone");
    QuorumPartition {
        partition_index,
        error_code: ErrorCode::UnknownTopicOrPartition.code(),
        error_message: Some(message),
        leader_id: -1,
        ..Default::default()
    }
}

fn number(id: u64) -> i32 {
    i32::try_from(id).unwrap_or(i32::MAX)
}

fn offset(offset: u64) -> i64 {
    i64::try_from(offset).unwrap_or(i64::MAX)
}

/// Kafka's name of what its controllers keep.
const METADATA_TOPIC: &str = "__cluster_metadata";
/// Kafka's usual name of the listener of controllers.
const LISTENER: &str = "CONTROLLER";

#[cfg(test)]
mod tests {
    use thalweg_wire::messages::describe_quorum::DescribeQuorumPartition;

    use super::*;

    fn coordinator(id: u64, voter: bool, leader: bool, log_end_offset: Option<u64>) -> v1::CoordinatorNode {
        v1::CoordinatorNode { id, address: format!("h{id}:9093"), voter, leader, log_end_offset, spare: false }
    }

    #[test]
    fn voters_learners_and_positions_are_told_for_the_metadata_alone() {
        let known = v1::DescribeCoordinatorsResponse {
            nodes: vec![
                coordinator(1, true, false, Some(8)),
                coordinator(2, true, true, Some(9)),
                coordinator(3, false, false, None),
            ],
            term: 4,
            last_applied: 7,
            ..Default::default()
        };
        let topic = |name: &str, partition_index| DescribeQuorumTopic {
            topic_name: name.to_owned(),
            partitions: vec![DescribeQuorumPartition { partition_index }],
        };
        let answer = answer(&known, &[topic(METADATA_TOPIC, 0), topic(METADATA_TOPIC, 1), topic("other", 0)]);
        let quorum = &answer.topics[0].partitions[0];
        assert_eq!((quorum.leader_id, quorum.leader_epoch, quorum.high_watermark), (2, 4, 8));
        let ends = |replicas: &[QuorumReplica]| -> Vec<(i32, i64)> {
            replicas.iter().map(|replica| (replica.replica_id, replica.log_end_offset)).collect()
        };
        assert_eq!((ends(&quorum.current_voters), ends(&quorum.observers)), (vec![(1, 8), (2, 9)], vec![(3, -1)]));
        assert_eq!(answer.topics[1].partitions[0].error_code, 3);
        assert_eq!(answer.topics[2].partitions[0].error_code, 3);
        let listener = &answer.nodes[2].listeners[0];
        assert_eq!((listener.host.as_str(), listener.port, answer.nodes.len()), ("h3", 9093, 3));
    }
}
