//! One classic group: its members, and the barrier at which they meet (KIP-62, 345, 394, 429, 559, 814).
//!
//! ```text
//!            join                     barrier closes, generation stored
//! Empty ───────────────► Preparing ──────────────────────────────────────► Completing
//!   ▲                     ▲  │   ▲                                            │
//!   │  closes without     │  │   │ join, leave, expiry,                       │ leader's assignment stored
//!   └──── members ────────│──┘   │ changed metadata, no sync in time          ▼
//!                         └──────┴───────────────────────────────────────── Stable
//! ```
//! While a generation or an assignment is on its way through Raft, the group takes nothing else: calls wait for the
//! outcome, timers stand still. Heartbeats and commits are answered from the phase before.

mod barrier;
mod join;
mod member;
mod sync;

use std::collections::BTreeMap;

use bytes::Bytes;
use thalweg_model::{ErrorCode, MonoTime, mutant};
use thalweg_proto::v1::command::Kind;
use thalweg_proto::v1::{
    GroupCommit, GroupMember, GroupRecord, JoinRequest, JoinResponse, KafkaError, LeaveRequest, LeaveResponse,
    LeftMember, MemberHeartbeat, SyncAssignment, SyncRequest, SyncResponse,
};

use member::{Member, Waiter};

use super::journal::{Departure, Note, Who};
use super::{Reply, Ticket, subscription};
use crate::registry::state::State;
use crate::registry::{Outcome, error, ok};
use crate::settings::CoordinatorSettings;

/// What waits for an answer that only the group can give.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum GroupCall {
    Join { request: JoinRequest, fresh_id: String },
    Sync(SyncRequest),
    Leave(LeaveRequest),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum GroupEffect {
    Reply(Ticket, Reply),
    /// A command of the group; told back by [`Group::settled`].
    Propose(Kind),
}

/// What every step of a group may use.
pub(super) struct Cx<'a> {
    pub now: MonoTime,
    pub settings: &'a CoordinatorSettings,
    pub state: &'a State,
    pub out: &'a mut Vec<GroupEffect>,
}

pub(super) struct Group {
    id: String,
    /// `None` until the first member.
    protocol_type: Option<String>,
    protocol_name: Option<String>,
    generation: i32,
    phase: Phase,
    /// Invariant: a member, if there is one.
    leader: Option<String>,
    members: BTreeMap<String, Member>,
    /// Member ids by instance id (KIP-345).
    instances: BTreeMap<String, String>,
    /// Ids given out that did not join yet, and how long they may take (KIP-394).
    pending: BTreeMap<String, MonoTime>,
    in_flight: Option<InFlight>,
    deferred: Vec<(Ticket, GroupCall)>,
    rebalances: u64,
    /// For the journal; taken after every step.
    notes: Vec<Note>,
}

#[derive(Clone, Debug, PartialEq)]
enum Phase {
    Empty,
    /// The barrier is open until `deadline`, or until all have joined.
    Preparing {
        deadline: MonoTime,
        initial: Option<Initial>,
    },
    /// Members know their generation and wait for the assignment.
    Completing {
        sync_deadline: MonoTime,
    },
    /// `sync_deadline`: when members that have not asked for their assignment are dropped.
    Stable {
        sync_deadline: MonoTime,
    },
}

/// The first rebalance of an empty group waits for others, longer if some come (KIP-134).
#[derive(Clone, Debug, PartialEq)]
struct Initial {
    remaining_ms: u64,
    has_new_member: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum InFlight {
    Generation {
        protocol_name: Option<String>,
    },
    Assignment {
        assignments: Vec<SyncAssignment>,
    },
    /// A static member under a new id is answered when the change is stored.
    Replacement {
        ticket: Ticket,
        answer: JoinResponse,
    },
}

impl Group {
    /// A group without members, going on from its stored generation if it has one.
    pub fn new(id: &str, stored: Option<&GroupRecord>) -> Group {
        Group {
            id: id.to_owned(),
            protocol_type: None,
            protocol_name: None,
            generation: stored.map_or(0, |stored| stored.generation_id),
            phase: Phase::Empty,
            leader: None,
            members: BTreeMap::new(),
            instances: BTreeMap::new(),
            pending: BTreeMap::new(),
            in_flight: None,
            deferred: Vec::new(),
            rebalances: 0,
            notes: Vec::new(),
        }
    }

    /// A group as stored, every timer in full.
    pub fn restore(stored: &GroupRecord, now: MonoTime) -> Group {
        let mut group = Group::new(&stored.group_id, Some(stored));
        if stored.members.is_empty() {
            return group;
        }
        group.protocol_type = Some(stored.protocol_type.clone());
        group.protocol_name = stored.protocol_name.clone();
        for member in &stored.members {
            if let Some(instance) = &member.instance_id {
                group.instances.insert(instance.clone(), member.member_id.clone());
            }
            let restored = Member::restore(member, stored.assigned, now);
            group.members.insert(member.member_id.clone(), restored);
        }
        let first = group.members.keys().next().cloned();
        group.leader = stored.leader_id.clone().filter(|id| group.members.contains_key(id)).or(first);
        let sync_deadline = now.plus_ms(group.rebalance_timeout_ms());
        group.phase =
            if stored.assigned { Phase::Stable { sync_deadline } } else { Phase::Completing { sync_deadline } };
        group
    }

    /// Nothing here that the registries do not know.
    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Empty
            && self.members.is_empty()
            && self.pending.is_empty()
            && self.in_flight.is_none()
            && self.deferred.is_empty()
    }

    /// Not while the generation that the last member left behind is on its way: whatever is proposed next comes after it.
    pub fn has_members(&self) -> bool {
        !self.members.is_empty()
    }

    pub fn rebalances(&self) -> u64 {
        self.rebalances
    }

    pub fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    pub fn generation(&self) -> i32 {
        self.generation
    }

    /// Whether members may still subscribe to `topic`: also when what they sent cannot be read.
    pub fn is_subscribed_to(&self, topic: &str) -> bool {
        self.members
            .values()
            .flat_map(|member| &member.protocols)
            .any(|protocol| subscription::topics(&protocol.metadata).is_none_or(|topics| topics.contains(&topic)))
    }

    pub fn protocol_type(&self) -> Option<&str> {
        self.protocol_type.as_deref()
    }

    pub fn state_name(&self) -> &'static str {
        match self.phase {
            Phase::Empty => "Empty",
            // The last member has left; the generation that says so is on its way, and nothing comes before it.
            Phase::Preparing { .. } if self.members.is_empty() && self.in_flight.is_some() => "Empty",
            Phase::Preparing { .. } => "PreparingRebalance",
            Phase::Completing { .. } => "CompletingRebalance",
            Phase::Stable { .. } => "Stable",
        }
    }

    pub fn is_stable(&self) -> bool {
        matches!(self.phase, Phase::Stable { .. })
    }

    pub fn protocol_name(&self) -> Option<&str> {
        self.protocol_name.as_deref()
    }

    pub fn leader(&self) -> Option<&str> {
        self.leader.as_deref()
    }

    /// Members as they would be stored.
    pub fn member_records(&self) -> impl Iterator<Item = GroupMember> {
        self.members.iter().map(|(id, member)| member.to_record(id))
    }

    /// The metadata that a member joined with under the group's protocol.
    pub fn metadata_of(&self, member_id: &str) -> Bytes {
        let member = self.members.get(member_id);
        member.map(|member| member.metadata(self.protocol_name.as_deref())).unwrap_or_default()
    }

    /// The next time at which [`Group::tick`] has something to do.
    pub fn next_deadline(&self) -> Option<MonoTime> {
        if self.in_flight.is_some() {
            return None;
        }
        let phase = match self.phase {
            Phase::Empty => None,
            Phase::Preparing { deadline, .. } => Some(deadline),
            Phase::Completing { sync_deadline } => Some(sync_deadline),
            Phase::Stable { sync_deadline } => {
                self.members.values().any(|member| !member.has_synced).then_some(sync_deadline)
            }
        };
        let members = self.members.values().map(|member| member.deadline);
        members.chain(self.pending.values().copied()).chain(phase).min()
    }

    pub fn call(&mut self, cx: &mut Cx<'_>, ticket: Ticket, call: GroupCall) {
        if self.in_flight.is_some() {
            self.deferred.push((ticket, call));
            return;
        }
        match call {
            GroupCall::Join { request, fresh_id } => self.join(cx, ticket, request, &fresh_id),
            GroupCall::Sync(request) => self.sync(cx, ticket, request),
            GroupCall::Leave(request) => self.leave(cx, ticket, &request),
        }
    }

    /// Nobody waits for this call's answer any more. The member stays, for as long as its session lasts.
    pub fn withdraw(&mut self, now: MonoTime, ticket: Ticket) {
        self.deferred.retain(|(waiting, _)| *waiting != ticket);
        for member in self.members.values_mut() {
            if member.joining == Some(Waiter(ticket)) {
                member.joining = None;
                member.renew(now);
            }
            if member.syncing == Some(ticket) {
                member.syncing = None;
                member.renew(now);
            }
        }
    }

    /// Answers a heartbeat; the caller's session goes on from now.
    pub fn heartbeat(&mut self, now: MonoTime, heartbeat: &MemberHeartbeat) -> KafkaError {
        let instance = heartbeat.instance_id.as_deref();
        if let Err(refused) = self.check(&heartbeat.member_id, instance, Some(heartbeat.generation_id)) {
            return refused;
        }
        if let Some(member) = self.members.get_mut(&heartbeat.member_id) {
            member.renew(now);
        }
        match self.phase {
            Phase::Empty => self.unknown(&heartbeat.member_id),
            Phase::Preparing { .. } => self.rebalancing(),
            Phase::Completing { .. } | Phase::Stable { .. } => ok(),
        }
    }

    /// Whether a commit may be proposed; its member's session goes on from now.
    ///
    /// # Errors
    /// What to answer instead.
    pub fn check_commit(&mut self, now: MonoTime, commit: &GroupCommit) -> Result<(), KafkaError> {
        if commit.generation_id < 0 && self.phase == Phase::Empty {
            return Ok(());
        }
        let instance = commit.instance_id.as_deref();
        self.check(&commit.member_id, instance, Some(commit.generation_id))?;
        if matches!(self.phase, Phase::Completing { .. }) {
            return Err(self.rebalancing());
        }
        if let Some(member) = self.members.get_mut(&commit.member_id) {
            member.renew(now);
        }
        Ok(())
    }

    /// A command of this group was applied. `false`: it was refused, and the group must be restored from the registries.
    pub fn settled(&mut self, cx: &mut Cx<'_>, outcome: &Outcome) -> bool {
        let Some(in_flight) = self.in_flight.take() else { return true };
        if *outcome != Outcome::Done {
            self.give_up(cx, in_flight);
            return false;
        }
        match in_flight {
            InFlight::Generation { protocol_name } => self.closed(cx, protocol_name),
            InFlight::Assignment { assignments } => self.assigned(cx, assignments),
            InFlight::Replacement { ticket, answer } => cx.reply(ticket, Reply::Join(answer)),
        }
        for (ticket, call) in std::mem::take(&mut self.deferred) {
            self.call(cx, ticket, call);
        }
        true
    }

    /// Drops whoever did not show up, and closes a barrier that has been open long enough.
    pub fn tick(&mut self, cx: &mut Cx<'_>) {
        if self.in_flight.is_some() {
            return;
        }
        let now = cx.now;
        let before = self.pending.len();
        self.pending.retain(|_, deadline| *deadline > now);
        if self.pending.len() < before {
            self.try_close(cx);
        }
        while self.in_flight.is_none() {
            let expired = self.members.iter().find(|(_, member)| member.deadline <= now);
            let Some(id) = expired.map(|(id, _)| id.clone()) else { break };
            self.expire(cx, &id);
        }
        if self.in_flight.is_some() {
            return;
        }
        match &self.phase {
            Phase::Preparing { deadline, .. } if *deadline <= now => self.barrier_due(cx),
            Phase::Completing { sync_deadline } | Phase::Stable { sync_deadline } if *sync_deadline <= now => {
                self.drop_unsynced(cx);
            }
            Phase::Empty | Phase::Preparing { .. } | Phase::Completing { .. } | Phase::Stable { .. } => {}
        }
    }

    fn leave(&mut self, cx: &mut Cx<'_>, ticket: Ticket, request: &LeaveRequest) {
        let mut left = Vec::with_capacity(request.members.len());
        let mut leaving = Vec::new();
        for member in &request.members {
            let instance = member.instance_id.as_deref();
            // A static member may be named by its instance alone.
            let id = match instance.filter(|_| member.member_id.is_empty()) {
                Some(instance) => self.instances.get(instance).cloned().unwrap_or_default(),
                None => member.member_id.clone(),
            };
            let outcome = if instance.is_none() && self.pending.remove(&id).is_some() {
                ok()
            } else {
                match self.check(&id, instance, None) {
                    Ok(()) => {
                        leaving.push((id, member.reason.clone()));
                        ok()
                    }
                    Err(refused) => refused,
                }
            };
            left.push(LeftMember {
                member_id: member.member_id.clone(),
                instance_id: member.instance_id.clone(),
                error: Some(outcome),
            });
        }
        cx.reply(ticket, Reply::Leave(LeaveResponse { error: Some(ok()), members: left }));
        let is_nobody = leaving.is_empty();
        for (id, reason) in leaving {
            self.take_out(cx, &id, Departure::Left(reason));
        }
        if is_nobody {
            // Only ids that had not joined may have gone; the barrier waits for those, too.
            self.try_close(cx);
        } else {
            self.after_removal(cx);
        }
    }

    fn expire(&mut self, cx: &mut Cx<'_>, id: &str) {
        self.take_out(cx, id, Departure::SessionExpired);
        self.after_removal(cx);
    }

    fn take_out(&mut self, cx: &mut Cx<'_>, id: &str, why: Departure) {
        let Some(member) = self.members.remove(id) else { return };
        self.notes.push(Note::Left(Who::of(&member.to_record(id)), why));
        if let Some(instance) = &member.instance_id {
            self.instances.remove(instance);
        }
        if let Some(Waiter(ticket)) = member.joining {
            let refused = self.unknown(id);
            cx.reply(ticket, refused_join("", refused));
        }
        if let Some(ticket) = member.syncing {
            let refused = self.unknown(id);
            cx.reply(ticket, refused_sync(refused));
        }
        if self.leader.as_deref() == Some(id) {
            self.leader = self.members.keys().next().cloned();
        }
    }

    fn after_removal(&mut self, cx: &mut Cx<'_>) {
        match self.phase {
            Phase::Empty => {}
            Phase::Preparing { .. } => self.try_close(cx),
            Phase::Completing { .. } | Phase::Stable { .. } => self.prepare(cx),
        }
    }

    fn give_up(&mut self, cx: &mut Cx<'_>, in_flight: InFlight) {
        let failed = || error(ErrorCode::CoordinatorNotAvailable, "the group's change was refused; try again");
        if let InFlight::Replacement { ticket, .. } = in_flight {
            cx.reply(ticket, refused_join("", failed()));
        }
        for (id, member) in &mut self.members {
            if let Some(Waiter(ticket)) = member.joining.take() {
                cx.reply(ticket, refused_join(id, failed()));
            }
            if let Some(ticket) = member.syncing.take() {
                cx.reply(ticket, refused_sync(failed()));
            }
        }
        for (ticket, call) in self.deferred.drain(..) {
            let refused = match call {
                GroupCall::Join { request, .. } => refused_join(&request.member_id, failed()),
                GroupCall::Sync(_) => refused_sync(failed()),
                GroupCall::Leave(_) => Reply::Leave(LeaveResponse { error: Some(failed()), members: Vec::new() }),
            };
            cx.reply(ticket, refused);
        }
    }

    /// # Errors
    /// FENCED_INSTANCE_ID if the instance has moved on, UNKNOWN_MEMBER_ID, then ILLEGAL_GENERATION.
    fn check(&self, id: &str, instance: Option<&str>, generation: Option<i32>) -> Result<(), KafkaError> {
        if let Some(instance) = instance {
            match self.instances.get(instance) {
                None => return Err(self.unknown(id)),
                Some(current) if current != id => {
                    let message =
                        format!("instance '{instance}' of group '{}' is now another member than '{id}'", self.id);
                    return Err(error(ErrorCode::FencedInstanceId, message));
                }
                Some(_) => {}
            }
        }
        if !self.members.contains_key(id) {
            return Err(self.unknown(id));
        }
        if let Some(generation) = generation
            && generation != self.generation
            && !mutant!("session-generation")
        {
            let message = format!("group '{}' is at generation {}, not {generation}", self.id, self.generation);
            return Err(error(ErrorCode::IllegalGeneration, message));
        }
        Ok(())
    }

    fn unknown(&self, id: &str) -> KafkaError {
        error(ErrorCode::UnknownMemberId, format!("group '{}' has no member '{id}'; join it again", self.id))
    }

    fn rebalancing(&self) -> KafkaError {
        error(ErrorCode::RebalanceInProgress, format!("group '{}' is rebalancing", self.id))
    }
}

impl Cx<'_> {
    pub fn reply(&mut self, ticket: Ticket, reply: Reply) {
        self.out.push(GroupEffect::Reply(ticket, reply));
    }
}

pub(super) fn refused_join(member_id: &str, refused: KafkaError) -> Reply {
    Reply::Join(JoinResponse {
        error: Some(refused),
        generation_id: -1,
        member_id: member_id.to_owned(),
        ..JoinResponse::default()
    })
}

pub(super) fn refused_sync(refused: KafkaError) -> Reply {
    Reply::Sync(SyncResponse { error: Some(refused), ..SyncResponse::default() })
}

/// JoinGroup version from which a member joins in two steps (KIP-394).
const MEMBER_ID_REQUIRED_SINCE: i32 = 4;
/// JoinGroup version from which a leader can be told not to assign (KIP-814).
const SKIP_ASSIGNMENT_SINCE: i32 = 9;
/// How long a new member may wait at the barrier; Kafka's value.
const NEW_MEMBER_WAIT_MS: u64 = 300_000;
const NEVER: MonoTime = MonoTime(u64::MAX);
