//! AlterPartitionReassignments (key 45, versions 0-1): moves partitions to other brokers, or calls moves off (KIP-455).
//!
//! Replicas null call the move off (85 if there is none). Answered when the moves have begun; each goes on by itself. Version 1
//! can ask that the number of replicas stays as it is (KIP-860).

use thalweg_model::ErrorCode;
use thalweg_proto::v1;
use thalweg_wire::messages::alter_partition_reassignments::{
    ReassignablePartitionResponse, ReassignableTopic, ReassignableTopicResponse,
};
use thalweg_wire::messages::{AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse};

use super::admin_calls;
use super::context::RequestContext;
use super::group_gateway::code_and_message;
use crate::services::Services;

pub async fn handle(
    services: &Services,
    _: &RequestContext,
    request: AlterPartitionReassignmentsRequest,
) -> AlterPartitionReassignmentsResponse {
    let allow_replication_factor_change = request.allow_replication_factor_change;
    let forwarded = v1::AlterReassignmentsRequest {
        partitions: request.topics.iter().flat_map(wanted).collect(),
        fixed_replication_factor: !allow_replication_factor_change,
    };
    let (code, error_message, answers) = match admin_calls::alter_reassignments(services, forwarded).await {
        Ok(answers) => (ErrorCode::None, None, answers),
        Err((code, message)) => (code, Some(message), Vec::new()),
    };
    let mut answers = answers.into_iter();
    let responses = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            let answer = answers.next();
            let (code, error_message) = match &answer {
                Some(answer) => code_and_message(answer.error.as_ref()),
                None => (code, error_message.clone()),
            };
            let partition_index = partition.partition_index;
            ReassignablePartitionResponse { partition_index, error_code: code.code(), error_message }
        });
        ReassignableTopicResponse { partitions: partitions.collect(), name: topic.name }
    });
    AlterPartitionReassignmentsResponse {
        allow_replication_factor_change,
        responses: responses.collect(),
        error_code: code.code(),
        error_message,
        ..Default::default()
    }
}

fn wanted(topic: &ReassignableTopic) -> impl Iterator<Item = v1::Reassignment> + '_ {
    topic.partitions.iter().map(|partition| v1::Reassignment {
        topic: topic.name.clone(),
        partition: partition.partition_index,
        replicas: partition.replicas.clone().unwrap_or_default(),
        cancel: partition.replicas.is_none(),
    })
}
