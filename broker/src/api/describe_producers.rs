//! DescribeProducers (key 61, version 0): what a partition remembers of its producers (KIP-664). Only the leader answers: 6.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_model::{ErrorCode, LeaderEpoch};
use thalweg_storage::ProducerInfo;
use thalweg_wire::messages::describe_producers::{PartitionResponse, ProducerState, TopicResponse};
use thalweg_wire::messages::{DescribeProducersRequest, DescribeProducersResponse};

use super::context::RequestContext;
use crate::services::Services;

pub async fn handle(
    services: &Services,
    _: &RequestContext,
    request: DescribeProducersRequest,
) -> DescribeProducersResponse {
    // Once each, so that an answer is not larger than what there is.
    let mut asked: BTreeMap<String, BTreeSet<i32>> = BTreeMap::new();
    for topic in request.topics {
        asked.entry(topic.name).or_default().extend(topic.partition_indexes);
    }
    let mut topics = Vec::with_capacity(asked.len());
    for (name, indexes) in asked {
        let mut partitions = Vec::with_capacity(indexes.len());
        for index in indexes {
            partitions.push(match producers(services, &name, index).await {
                Ok(active_producers) => {
                    PartitionResponse { partition_index: index, active_producers, ..Default::default() }
                }
                Err(code) => PartitionResponse {
                    partition_index: index,
                    error_code: code.code(),
                    error_message: Some(code.message().to_owned()),
                    ..Default::default()
                },
            });
        }
        topics.push(TopicResponse { name, partitions });
    }
    DescribeProducersResponse { topics, ..Default::default() }
}

async fn producers(services: &Services, topic: &str, index: i32) -> Result<Vec<ProducerState>, ErrorCode> {
    let partition = super::leader(services, topic, index, LeaderEpoch::NONE)?;
    let known = services.workers().ask(&partition, |owner| owner.log().producer_state()).await;
    let known = known.map_err(|_| ErrorCode::NotLeaderOrFollower)?;
    Ok(known.iter().map(state).collect())
}

fn state(producer: &ProducerInfo) -> ProducerState {
    ProducerState {
        producer_id: producer.producer_id.0,
        producer_epoch: i32::from(producer.producer_epoch.0),
        last_sequence: producer.last_sequence,
        last_timestamp: producer.last_timestamp.0,
        coordinator_epoch: producer.coordinator_epoch,
        current_txn_start_offset: producer.open_txn_first_offset.map_or(-1, |offset| offset.0),
    }
}
