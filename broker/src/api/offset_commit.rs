//! OffsetCommit (key 8, versions 2-9): stores a group's positions.
//!
//! - A partition that does not exist is error 3; the others of the request are committed all the same.
//! - The member's errors (22, 25, 27, 82) stand at every partition. For a group that is gone the code is 69 only from
//!   version 9 on (KIP-848); before, clients expect 22.
//! - Null metadata counts as empty.

use thalweg_model::{ErrorCode, PartitionIndex};
use thalweg_proto::v1;
use thalweg_wire::messages::offset_commit::{
    OffsetCommitRequestPartition, OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use thalweg_wire::messages::{OffsetCommitRequest, OffsetCommitResponse};

use super::context::RequestContext;
use super::metadata::kafka_code;
use crate::machine::image::Image;
use crate::services::Services;

pub async fn handle(services: &Services, cx: &RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse {
    let mut topics = outline(&services.image(), &request);
    let commit = forwarded(request, &topics);
    if !commit.offsets.is_empty() {
        let count = commit.offsets.len();
        let codes = match services.groups.commit(commit).await {
            Ok(result) if result.errors.len() == count => {
                result.errors.iter().map(|error| for_version(cx.version(), kafka_code(Some(error)))).collect()
            }
            Ok(_) => vec![ErrorCode::UnknownServerError; count],
            Err(code) => vec![code; count],
        };
        fill(&mut topics, codes);
    }
    OffsetCommitResponse { topics, ..Default::default() }
}

/// The answer as far as the image knows it: 3 for what does not exist, 0 for what the coordinator is to decide.
fn outline(image: &Image, request: &OffsetCommitRequest) -> Vec<OffsetCommitResponseTopic> {
    let partition = |topic: &str, partition_index: i32| {
        let exists = image.partition(topic, PartitionIndex(partition_index)).is_some();
        let code = if exists { ErrorCode::None } else { ErrorCode::UnknownTopicOrPartition };
        OffsetCommitResponsePartition { partition_index, error_code: code.code() }
    };
    let topics = request.topics.iter();
    topics
        .map(|topic| OffsetCommitResponseTopic {
            name: topic.name.clone(),
            partitions: topic.partitions.iter().map(|asked| partition(&topic.name, asked.partition_index)).collect(),
            ..Default::default()
        })
        .collect()
}

/// What of the request the outline leaves to the coordinator, in order.
fn forwarded(request: OffsetCommitRequest, outline: &[OffsetCommitResponseTopic]) -> v1::GroupCommit {
    let offset = |topic: &str, asked: OffsetCommitRequestPartition| v1::CommitOffset {
        topic: topic.to_owned(),
        partition: asked.partition_index,
        offset: asked.committed_offset,
        leader_epoch: asked.committed_leader_epoch,
        metadata: asked.committed_metadata.unwrap_or_default(),
    };
    let mut offsets = Vec::new();
    for (topic, answers) in request.topics.into_iter().zip(outline) {
        let undecided = topic.partitions.into_iter().zip(&answers.partitions);
        let undecided = undecided.filter(|(_, answer)| answer.error_code == ErrorCode::None.code());
        offsets.extend(undecided.map(|(asked, _)| offset(&topic.name, asked)));
    }
    v1::GroupCommit {
        group_id: request.group_id,
        generation_id: request.generation_id_or_member_epoch,
        member_id: request.member_id,
        instance_id: request.group_instance_id,
        offsets,
    }
}

/// Puts the coordinator's codes where the outline left room for them.
fn fill(topics: &mut [OffsetCommitResponseTopic], codes: Vec<ErrorCode>) {
    let open = topics.iter_mut().flat_map(|topic| &mut topic.partitions).filter(|partition| partition.error_code == 0);
    open.zip(codes).for_each(|(partition, code)| partition.error_code = code.code());
}

fn for_version(version: i16, code: ErrorCode) -> ErrorCode {
    match code {
        ErrorCode::GroupIdNotFound | ErrorCode::StaleMemberEpoch if version < 9 => ErrorCode::IllegalGeneration,
        code => code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::testing;
    use thalweg_wire::messages::offset_commit::OffsetCommitRequestTopic;

    /// Goal: one missing partition does not spoil the others. Method: 5 partitions of 2 topics, 2 of them missing.
    #[test]
    fn missing_partitions_are_answered_here_and_the_coordinators_codes_land_at_the_others() {
        let image = testing::image(&[("a", 2)]);
        let topic = |name: &str, partitions: &[i32]| OffsetCommitRequestTopic {
            name: name.into(),
            partitions: partitions
                .iter()
                .map(|index| OffsetCommitRequestPartition {
                    partition_index: *index,
                    committed_metadata: None,
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        };
        let request =
            OffsetCommitRequest { topics: vec![topic("b", &[0]), topic("a", &[0, 2, 1, -1])], ..Default::default() };
        let mut topics = outline(&image, &request);
        let commit = forwarded(request, &topics);
        let sent: Vec<_> = commit.offsets.iter().map(|offset| (offset.topic.as_str(), offset.partition)).collect();
        assert_eq!(sent, [("a", 0), ("a", 1)]);
        assert!(commit.offsets.iter().all(|offset| offset.metadata.is_empty() && offset.leader_epoch == -1));
        fill(&mut topics, vec![ErrorCode::None, ErrorCode::RebalanceInProgress]);
        let codes: Vec<Vec<i16>> = topics
            .iter()
            .map(|topic| topic.partitions.iter().map(|partition| partition.error_code).collect())
            .collect();
        assert_eq!(codes, [vec![3], vec![0, 3, 27, 3]]);
    }

    #[test]
    fn a_vanished_group_is_an_old_generation_to_old_clients() {
        assert_eq!(for_version(8, ErrorCode::GroupIdNotFound), ErrorCode::IllegalGeneration);
        assert_eq!(for_version(9, ErrorCode::GroupIdNotFound), ErrorCode::GroupIdNotFound);
        assert_eq!(for_version(2, ErrorCode::UnknownMemberId), ErrorCode::UnknownMemberId);
    }
}
