//! Consumer groups as far as they survive: generation, members, assignment (REPLICATION Q3).

use thalweg_model::{ErrorCode, mutant};
use thalweg_proto::v1::record::Kind;
use thalweg_proto::v1::{
    GroupMember, GroupRecord, GroupRemoved, KafkaError, Record, ReplaceMember, SaveAssignment, SaveGeneration,
};

use super::context::Context;
use super::state::State;
use super::{Outcome, error, offsets};

/// The join barrier closed. Refused unless it is the direct successor of the stored generation, so that a generation is
/// never given out twice.
pub fn save_generation(state: &State, context: &Context, command: &SaveGeneration) -> (Outcome, Vec<Record>) {
    let Some(wanted) = &command.group else { return refused(ErrorCode::InvalidRequest, "no group") };
    let stored = state.group(&wanted.group_id);
    let generation_id = stored.map_or(0, |group| group.generation_id);
    if generation_id.checked_add(1) != Some(wanted.generation_id) && !mutant!("generation-follows") {
        let message = format!(
            "group '{}' is at generation {generation_id}, {} does not follow",
            wanted.group_id, wanted.generation_id
        );
        return refused(ErrorCode::IllegalGeneration, message);
    }
    let mut group = wanted.clone();
    group.members.sort_by(|a, b| a.member_id.cmp(&b.member_id));
    group.assigned = group.members.is_empty();
    let was_empty = stored.is_none_or(|group| group.members.is_empty());
    group.changed_at_ms = match stored {
        Some(stored) if was_empty == group.members.is_empty() => stored.changed_at_ms,
        Some(_) | None => context.time.0,
    };
    (Outcome::Done, vec![group_record(group)])
}

/// The leader's assignment of the generation that is stored. Members that it left out get an empty one.
pub fn save_assignment(state: &State, command: &SaveAssignment) -> (Outcome, Vec<Record>) {
    let group = match at_generation(state, &command.group_id, command.generation_id) {
        Ok(group) => group,
        Err(refused) => return (Outcome::Refused(refused), Vec::new()),
    };
    let mut group = group.clone();
    group.assigned = true;
    for member in &mut group.members {
        let given = command.assignments.iter().find(|given| given.member_id == member.member_id);
        member.assignment = given.map(|given| given.assignment.clone()).unwrap_or_default();
    }
    (Outcome::Done, vec![group_record(group)])
}

/// A static member took another member id; its place and assignment stay (KIP-345).
pub fn replace_member(state: &State, command: &ReplaceMember) -> (Outcome, Vec<Record>) {
    let group = match at_generation(state, &command.group_id, command.generation_id) {
        Ok(group) => group,
        Err(refused) => return (Outcome::Refused(refused), Vec::new()),
    };
    let Some(wanted) = &command.member else { return refused(ErrorCode::InvalidRequest, "no member") };
    let mut group = group.clone();
    let old = group.members.iter_mut().find(|member| member.member_id == command.old_member_id);
    let Some(member) = old else {
        return refused(ErrorCode::UnknownMemberId, format!("no member '{}'", command.old_member_id));
    };
    *member = GroupMember { assignment: member.assignment.clone(), ..wanted.clone() };
    group.members.sort_by(|a, b| a.member_id.cmp(&b.member_id));
    group.leader_id = command.leader_id.clone();
    (Outcome::Done, vec![group_record(group)])
}

/// Deletes an empty group and its offsets.
pub fn delete(state: &State, group_id: &str) -> (Outcome, Vec<Record>) {
    let Some(group) = state.group(group_id) else {
        return refused(ErrorCode::GroupIdNotFound, format!("there is no group '{group_id}'"));
    };
    if !group.members.is_empty() {
        let message = format!("group '{group_id}' has {} members; stop them first", group.members.len());
        return refused(ErrorCode::NonEmptyGroup, message);
    }
    let mut records = offsets::removals(state, group_id);
    records.push(removed(group_id));
    (Outcome::Done, records)
}

pub fn removed(group_id: &str) -> Record {
    Record { kind: Some(Kind::GroupRemoved(GroupRemoved { group_id: group_id.to_owned() })) }
}

pub fn group_record(group: GroupRecord) -> Record {
    Record { kind: Some(Kind::Group(group)) }
}

pub fn find_member<'a>(group: &'a GroupRecord, member_id: &str) -> Option<&'a GroupMember> {
    let found = group.members.binary_search_by(|member| member.member_id.as_str().cmp(member_id));
    found.ok().and_then(|i| group.members.get(i))
}

fn at_generation<'a>(state: &'a State, group_id: &str, generation_id: i32) -> Result<&'a GroupRecord, KafkaError> {
    let Some(group) = state.group(group_id) else {
        return Err(error(ErrorCode::GroupIdNotFound, format!("there is no group '{group_id}'")));
    };
    if group.generation_id != generation_id {
        let message = format!("group '{group_id}' is at generation {}, not {generation_id}", group.generation_id);
        return Err(error(ErrorCode::IllegalGeneration, message));
    }
    Ok(group)
}

fn refused(code: ErrorCode, message: impl Into<String>) -> (Outcome, Vec<Record>) {
    (Outcome::Refused(error(code, message)), Vec::new())
}
