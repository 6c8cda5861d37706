//! Calls on many groups at once: commits, deletions; and the expiry of what empty groups keep.

use thalweg_model::{ErrorCode, MonoTime};
use thalweg_proto::v1;
use thalweg_proto::v1::command::Kind;
use thalweg_proto::v1::{
    CommitRequest, CommitResponse, DeleteGroup, DeleteOffsets, DeleteOffsetsRequest, DeleteOffsetsResponse,
    DeleteRequest, DeleteResponse, DeletedGroup, DeletedOffset, ExpireOffsets, GroupCommit, GroupCommitResult,
    KafkaError,
};

use super::brokers::refusal;
use super::{Effect, Purpose, Reply, Session, Ticket};
use crate::registry::state::State;
use crate::registry::{Outcome, error, offsets, ok};

/// An answer whose parts come one by one.
pub(super) struct Gathered {
    missing: usize,
    parts: Parts,
}

enum Parts {
    /// For each group, what is known of each offset; `None` comes with the command's outcome, in order.
    Commit(Vec<Vec<Option<KafkaError>>>),
    Delete(Vec<DeletedGroup>),
}

impl Session {
    pub(super) fn commit(
        &mut self,
        now: MonoTime,
        state: &State,
        ticket: Ticket,
        request: CommitRequest,
        out: &mut Vec<Effect>,
    ) {
        let mut parts = Vec::with_capacity(request.groups.len());
        let mut proposed = Vec::new();
        for (position, mut commit) in request.groups.into_iter().enumerate() {
            if let Err(refused) = self.check_commit(now, state, &commit) {
                parts.push(vec![Some(refused); commit.offsets.len()]);
                continue;
            }
            let known: Vec<Option<KafkaError>> =
                commit.offsets.iter().map(|offset| self.oversized(&offset.metadata)).collect();
            let mut refused = known.iter().map(Option::is_some);
            commit.offsets.retain(|_| !refused.next().unwrap_or(false));
            if !commit.offsets.is_empty() {
                self.groups.committing(now, &commit);
                proposed.push((position, commit));
            }
            parts.push(known);
        }
        self.gathered.insert(ticket, Gathered { missing: proposed.len(), parts: Parts::Commit(parts) });
        for (position, commit) in proposed {
            self.propose(Purpose::Part { call: ticket, position }, Kind::CommitOffsets(commit), out);
        }
        self.answer_if_complete(ticket, out);
    }

    pub(super) fn delete_groups(
        &mut self,
        state: &State,
        ticket: Ticket,
        request: DeleteRequest,
        out: &mut Vec<Effect>,
    ) {
        let mut parts = Vec::with_capacity(request.group_ids.len());
        let mut proposed = Vec::new();
        for (position, group_id) in request.group_ids.into_iter().enumerate() {
            let refused = if self.groups.get(&group_id).is_some_and(|group| group.has_members()) {
                Some(error(ErrorCode::NonEmptyGroup, format!("group '{group_id}' has members; stop them first")))
            } else if state.group(&group_id).is_none() {
                Some(error(ErrorCode::GroupIdNotFound, format!("there is no group '{group_id}'")))
            } else {
                proposed.push((position, DeleteGroup { group_id: group_id.clone() }));
                None
            };
            parts.push(DeletedGroup { group_id, error: refused });
        }
        self.gathered.insert(ticket, Gathered { missing: proposed.len(), parts: Parts::Delete(parts) });
        for (position, command) in proposed {
            self.propose(Purpose::Part { call: ticket, position }, Kind::DeleteGroup(command), out);
        }
        self.answer_if_complete(ticket, out);
    }

    /// Offsets of topics that members are subscribed to stay (KIP-496).
    pub(super) fn delete_offsets(
        &mut self,
        state: &State,
        ticket: Ticket,
        request: DeleteOffsetsRequest,
        out: &mut Vec<Effect>,
    ) {
        let DeleteOffsetsRequest { group_id, topics } = request;
        let mut refused = Vec::new();
        let mut allowed = topics;
        if let Some(group) = self.groups.get(&group_id).filter(|group| group.has_members()) {
            if group.protocol_type() != Some(CONSUMER) {
                let message = format!("group '{group_id}' has members that are no consumers; stop them first");
                let answer = DeleteOffsetsResponse {
                    error: Some(error(ErrorCode::NonEmptyGroup, message)),
                    offsets: Vec::new(),
                };
                out.push(Effect::Reply(ticket, Reply::DeleteOffsets(answer)));
                return;
            }
            let (subscribed, others): (Vec<_>, Vec<_>) =
                allowed.into_iter().partition(|topic| group.is_subscribed_to(&topic.topic));
            allowed = others;
            for topic in subscribed {
                let message = format!("members of group '{group_id}' are subscribed to '{}'", topic.topic);
                let refusal = error(ErrorCode::GroupSubscribedToTopic, message);
                refused.extend(topic.partitions.iter().map(|partition| DeletedOffset {
                    topic: topic.topic.clone(),
                    partition: *partition,
                    error: Some(refusal.clone()),
                }));
            }
        }
        if state.group(&group_id).is_none() && self.groups.get(&group_id).is_none() {
            let message = format!("there is no group '{group_id}'");
            let answer =
                DeleteOffsetsResponse { error: Some(error(ErrorCode::GroupIdNotFound, message)), offsets: Vec::new() };
            out.push(Effect::Reply(ticket, Reply::DeleteOffsets(answer)));
            return;
        }
        let command = DeleteOffsets { group_id, topics: allowed };
        self.propose(Purpose::DeleteOffsets { call: ticket, refused }, Kind::DeleteOffsets(command), out);
    }

    pub(super) fn offsets_deleted(
        &mut self,
        call: Ticket,
        refused: Vec<DeletedOffset>,
        outcome: Outcome,
        out: &mut Vec<Effect>,
    ) {
        let answer = match outcome {
            Outcome::DeletedOffsets(mut answer) => {
                answer.offsets.extend(refused);
                answer
            }
            other => DeleteOffsetsResponse { error: Some(refusal(other)), offsets: Vec::new() },
        };
        out.push(Effect::Reply(call, Reply::DeleteOffsets(answer)));
    }

    pub(super) fn part_settled(&mut self, call: Ticket, position: usize, outcome: Outcome, out: &mut Vec<Effect>) {
        let Some(gathered) = self.gathered.get_mut(&call) else { return };
        gathered.missing = gathered.missing.saturating_sub(1);
        match &mut gathered.parts {
            Parts::Commit(parts) => {
                let Some(offsets) = parts.get_mut(position) else { return };
                let open = offsets.iter_mut().filter(|known| known.is_none());
                match outcome {
                    Outcome::Committed(GroupCommitResult { errors }) => {
                        open.zip(errors).for_each(|(open, outcome)| *open = Some(outcome));
                    }
                    other => {
                        let refused = refusal(other);
                        open.for_each(|open| *open = Some(refused.clone()));
                    }
                }
            }
            Parts::Delete(parts) => {
                if let Some(part) = parts.get_mut(position) {
                    part.error = Some(if outcome == Outcome::Done { ok() } else { refusal(outcome) });
                }
            }
        }
        self.answer_if_complete(call, out);
    }

    fn answer_if_complete(&mut self, call: Ticket, out: &mut Vec<Effect>) {
        if self.gathered.get(&call).is_none_or(|gathered| gathered.missing > 0) {
            return;
        }
        let Some(gathered) = self.gathered.remove(&call) else { return };
        let reply = match gathered.parts {
            Parts::Commit(parts) => {
                let groups = parts.into_iter().map(|offsets| GroupCommitResult {
                    errors: offsets.into_iter().map(Option::unwrap_or_default).collect(),
                });
                Reply::Commit(CommitResponse { groups: groups.collect() })
            }
            Parts::Delete(groups) => Reply::Delete(DeleteResponse { groups }),
        };
        out.push(Effect::Reply(call, reply));
    }

    /// The member's session says more than the registries: it knows who has left since the last generation.
    fn check_commit(&mut self, now: MonoTime, state: &State, commit: &GroupCommit) -> Result<(), KafkaError> {
        if commit.group_id.is_empty() {
            return Err(error(ErrorCode::InvalidGroupId, "a group id cannot be empty; set group.id"));
        }
        self.groups.check_commit(now, commit)?;
        offsets::check_member(state.group(&commit.group_id), commit)
    }

    fn oversized(&self, metadata: &str) -> Option<KafkaError> {
        let max = self.settings.offset_metadata_max_bytes;
        (metadata.len() > max).then(|| {
            let message = format!(
                "the metadata has {} bytes; at most {max} are kept (offset.metadata.max.bytes)",
                metadata.len()
            );
            error(ErrorCode::OffsetMetadataTooLarge, message)
        })
    }

    /// Looks for groups without members whose time may be over (REPLICATION Q4).
    pub(super) fn expire_offsets(&mut self, state: &State, out: &mut Vec<Effect>) {
        let empty = state.groups().filter(|(id, stored)| stored.members.is_empty() && self.groups.get(id).is_none());
        let ids: Vec<String> = empty.map(|(id, _)| id.to_owned()).collect();
        for chunk in ids.chunks(EXPIRE_AT_ONCE) {
            let command = ExpireOffsets { group_ids: chunk.to_vec(), retention_ms: self.settings.offsets_retention_ms };
            self.propose(Purpose::Unwatched, v1::command::Kind::ExpireOffsets(command), out);
        }
    }
}

const CONSUMER: &str = "consumer";
const EXPIRE_AT_ONCE: usize = 1_000;
