//! ElectLeaders (key 43, versions 0-2): elects preferred leaders, or whoever is left (KIP-460).
//!
//! Partitions null asks for all; of those, only where something happened or could not happen is answered. Version 0 knows
//! preferred elections only, and has no error of the whole.

use thalweg_model::ErrorCode;
use thalweg_proto::v1;
use thalweg_wire::messages::elect_leaders::{PartitionResult, ReplicaElectionResult};
use thalweg_wire::messages::{ElectLeadersRequest, ElectLeadersResponse};

use super::admin_calls;
use super::context::RequestContext;
use super::group_gateway::{by_topic, code_and_message};
use crate::services::Services;

pub async fn handle(services: &Services, _: &RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse {
    let named: Vec<v1::TopicPartitions> = request
        .topic_partitions
        .iter()
        .flatten()
        .map(|topic| v1::TopicPartitions {
            topic: topic.topic.clone(),
            partitions: topic.partitions.clone(),
            ..v1::TopicPartitions::default()
        })
        .collect();
    let forwarded = v1::ElectLeadersRequest {
        election: i32::from(request.election_type),
        all: request.topic_partitions.is_none(),
        topics: named.clone(),
    };
    let (code, results) = match admin_calls::elect_leaders(services, forwarded).await {
        Ok(answers) => {
            let results = answers.into_iter().map(|answer| {
                let (code, error_message) = code_and_message(answer.error.as_ref());
                (
                    answer.topic,
                    PartitionResult { partition_id: answer.partition, error_code: code.code(), error_message },
                )
            });
            (ErrorCode::None, results.collect())
        }
        Err((code, message)) => (code, refused(named, code, &message)),
    };
    let results = by_topic(results).into_iter();
    let results = results.map(|(topic, partition_result)| ReplicaElectionResult { topic, partition_result });
    ElectLeadersResponse { error_code: code.code(), replica_election_results: results.collect(), ..Default::default() }
}

/// The same for each partition: version 0 has no other place for it.
fn refused(named: Vec<v1::TopicPartitions>, code: ErrorCode, message: &str) -> Vec<(String, PartitionResult)> {
    let each =
        named.into_iter().flat_map(|topic| topic.partitions.into_iter().map(move |index| (topic.topic.clone(), index)));
    each.map(|(topic, partition_id)| {
        let error_message = Some(message.to_owned());
        (topic, PartitionResult { partition_id, error_code: code.code(), error_message })
    })
    .collect()
}
