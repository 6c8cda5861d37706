//! Committed offsets (REPLICATION Q1, Q4).

use thalweg_model::{ErrorCode, mutant};
use thalweg_proto::v1::record::Kind;
use thalweg_proto::v1::{
    DeleteOffsets, DeleteOffsetsResponse, DeletedOffset, ExpireOffsets, GroupCommit, GroupCommitResult, GroupRecord,
    KafkaError, OffsetRecord, OffsetRemoved, Record,
};

use super::context::Context;
use super::groups::{find_member, group_record, removed};
use super::state::{CommittedOffset, State, id_bytes};
use super::{Outcome, error, ok};

/// Commits offsets of one group. The member and its generation must be the stored ones; without a member, the group must
/// be empty or new.
pub fn commit(state: &State, context: &Context, commit: &GroupCommit) -> (Outcome, Vec<Record>) {
    let stored = state.group(&commit.group_id);
    if let Err(refused) = check_member(stored, commit) {
        let errors = commit.offsets.iter().map(|_| refused.clone()).collect();
        return (Outcome::Committed(GroupCommitResult { errors }), Vec::new());
    }
    let mut records = Vec::with_capacity(commit.offsets.len());
    let mut errors = Vec::with_capacity(commit.offsets.len());
    for offset in &commit.offsets {
        let topic = state.topic(&offset.topic);
        let Some(topic) = topic.filter(|topic| state.partition(topic.id, offset.partition).is_some()) else {
            let message = format!("there is no partition {}-{}", offset.topic, offset.partition);
            errors.push(error(ErrorCode::UnknownTopicOrPartition, message));
            continue;
        };
        errors.push(ok());
        records.push(Record {
            kind: Some(Kind::Offset(OffsetRecord {
                group_id: commit.group_id.clone(),
                topic: offset.topic.clone(),
                topic_id: id_bytes(topic.id),
                partition: offset.partition,
                offset: offset.offset,
                leader_epoch: offset.leader_epoch,
                metadata: offset.metadata.clone(),
                committed_at_ms: context.time.0,
            })),
        });
    }
    if stored.is_none() && !records.is_empty() {
        let group = GroupRecord {
            group_id: commit.group_id.clone(),
            assigned: true,
            changed_at_ms: context.time.0,
            ..GroupRecord::default()
        };
        records.insert(0, group_record(group));
    }
    (Outcome::Committed(GroupCommitResult { errors }), records)
}

/// Deletes single offsets of a group.
pub fn delete(state: &State, command: &DeleteOffsets) -> (Outcome, Vec<Record>) {
    if state.group(&command.group_id).is_none() {
        let refused = error(ErrorCode::GroupIdNotFound, format!("there is no group '{}'", command.group_id));
        return (
            Outcome::DeletedOffsets(DeleteOffsetsResponse { error: Some(refused), offsets: Vec::new() }),
            Vec::new(),
        );
    }
    let mut records = Vec::new();
    let mut offsets = Vec::new();
    for (topic, partition) in
        command.topics.iter().flat_map(|topic| topic.partitions.iter().map(|partition| (&topic.topic, *partition)))
    {
        let exists = state.topic(topic).is_some_and(|stored| state.partition(stored.id, partition).is_some());
        let outcome = if exists {
            ok()
        } else {
            error(ErrorCode::UnknownTopicOrPartition, format!("there is no partition {topic}-{partition}"))
        };
        if state.offset(&command.group_id, topic, partition).is_some() {
            records.push(removal(&command.group_id, topic, partition));
        }
        offsets.push(DeletedOffset { topic: topic.clone(), partition, error: Some(outcome) });
    }
    (Outcome::DeletedOffsets(DeleteOffsetsResponse { error: Some(ok()), offsets }), records)
}

/// Removes what groups without members have kept for longer than `retention_ms`, and such groups that keep nothing
/// (KIP-211). A group that only commits, without ever having had members, keeps each offset from its commit on.
pub fn expire(state: &State, context: &Context, command: &ExpireOffsets) -> (Outcome, Vec<Record>) {
    let mut records = Vec::new();
    for group_id in &command.group_ids {
        let Some(group) = state.group(group_id).filter(|group| group.members.is_empty()) else { continue };
        let since = |committed: &CommittedOffset| match group.protocol_type.is_empty() {
            true => committed.committed_at_ms,
            false => committed.committed_at_ms.max(group.changed_at_ms),
        };
        let is_old = |from: i64| context.time.0.saturating_sub(from) >= command.retention_ms;
        let mut kept = 0;
        for (topic, partitions) in state.offsets_of(group_id).into_iter().flatten() {
            for (partition, committed) in partitions {
                if is_old(since(committed)) {
                    records.push(removal(group_id, topic, *partition));
                } else {
                    kept += 1;
                }
            }
        }
        if kept == 0 && is_old(group.changed_at_ms) {
            records.push(removed(group_id));
        }
    }
    (Outcome::Done, records)
}

/// The removal of every offset of a group.
pub fn removals(state: &State, group_id: &str) -> Vec<Record> {
    let topics = state.offsets_of(group_id).into_iter().flatten();
    topics
        .flat_map(|(topic, partitions)| partitions.keys().map(|partition| removal(group_id, topic, *partition)))
        .collect()
}

/// Whether the registries know this member at this generation, or no member is needed.
///
/// # Errors
/// ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID.
pub fn check_member(stored: Option<&GroupRecord>, commit: &GroupCommit) -> Result<(), KafkaError> {
    let id = &commit.group_id;
    let Some(group) = stored else {
        if commit.generation_id < 0 {
            return Ok(());
        }
        return Err(error(ErrorCode::IllegalGeneration, format!("there is no group '{id}' with generations")));
    };
    if commit.generation_id < 0 && group.members.is_empty() {
        return Ok(());
    }
    if commit.member_id.is_empty() || find_member(group, &commit.member_id).is_none() {
        let message = format!("group '{id}' has members, and '{}' is none of them", commit.member_id);
        return Err(error(ErrorCode::UnknownMemberId, message));
    }
    if commit.generation_id != group.generation_id && !mutant!("commit-generation") {
        let message = format!("group '{id}' is at generation {}, not {}", group.generation_id, commit.generation_id);
        return Err(error(ErrorCode::IllegalGeneration, message));
    }
    Ok(())
}

fn removal(group_id: &str, topic: &str, partition: i32) -> Record {
    let removed = OffsetRemoved { group_id: group_id.to_owned(), topic: topic.to_owned(), partition };
    Record { kind: Some(Kind::OffsetRemoved(removed)) }
}
