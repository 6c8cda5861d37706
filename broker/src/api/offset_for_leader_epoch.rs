//! OffsetForLeaderEpoch (key 23, versions 2-4): where a leader epoch ended, so that a client can tell whether its position
//! still exists (KIP-320).
//!
//! Answered by the leader alone (else 6). The largest known epoch not above the asked one, with its end; an epoch above the
//! current one, or none known: -1 and -1. Replica ids are not looked at.

use thalweg_model::{ErrorCode, LeaderEpoch, Offset};
use thalweg_wire::messages::offset_for_leader_epoch::{
    EpochEndOffset, OffsetForLeaderPartition, OffsetForLeaderTopicResult,
};
use thalweg_wire::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};

use super::context::RequestContext;
use crate::services::Services;

pub async fn handle(
    services: &Services,
    _: &RequestContext,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|asked| end_of(services, &topic.topic, asked));
        OffsetForLeaderTopicResult { partitions: partitions.collect(), topic: topic.topic }
    });
    OffsetForLeaderEpochResponse { topics: topics.collect(), ..Default::default() }
}

fn end_of(services: &Services, topic: &str, asked: &OffsetForLeaderPartition) -> EpochEndOffset {
    let default = EpochEndOffset { partition: asked.partition, ..Default::default() };
    match look(services, topic, asked) {
        Ok((epoch, end)) => EpochEndOffset { leader_epoch: epoch.0, end_offset: end.0, ..default },
        Err(error) => EpochEndOffset { error_code: error.code(), ..default },
    }
}

fn look(
    services: &Services,
    topic: &str,
    asked: &OffsetForLeaderPartition,
) -> Result<(LeaderEpoch, Offset), ErrorCode> {
    let current = LeaderEpoch(asked.current_leader_epoch);
    let partition = super::leader(services, topic, asked.partition, current)?;
    let leads_in = partition.leader_epoch().ok_or(ErrorCode::NotLeaderOrFollower)?;
    let asked = LeaderEpoch(asked.leader_epoch);
    let unknown = (LeaderEpoch::NONE, Offset::NONE);
    if asked > leads_in {
        return Ok(unknown);
    }
    Ok(partition.view().epoch_end_offset(asked).unwrap_or(unknown))
}
