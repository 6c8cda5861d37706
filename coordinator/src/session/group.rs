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

use std::collections::BTreeMap;

use bytes::Bytes;
use thalweg_model::{ErrorCode, MonoTime};
use thalweg_proto::v1::command::Kind;
use thalweg_proto::v1::{
    GroupCommit, GroupMember, GroupProtocol, GroupRecord, JoinRequest, JoinResponse, JoinedMember, KafkaError,
    LeaveRequest, LeaveResponse, LeftMember, MemberHeartbeat, ReplaceMember, SaveAssignment, SaveGeneration,
    SyncAssignment, SyncRequest, SyncResponse,
};

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

struct Member {
    instance_id: Option<String>,
    client_id: String,
    client_host: String,
    session_timeout_ms: i32,
    rebalance_timeout_ms: i32,
    protocols: Vec<GroupProtocol>,
    assignment: Bytes,
    /// Waits at the barrier. Invariant: at most one of `join` and `sync`.
    joining: Option<Waiter>,
    syncing: Option<Ticket>,
    /// Has asked for the assignment of this generation.
    has_synced: bool,
    /// Has not been in a generation yet.
    is_new: bool,
    /// Dropped at this time. Far off while it waits for us.
    deadline: MonoTime,
}

/// Whoever called may have gone away since; the member has joined all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiter(Ticket);

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
            self.remove(cx, &id);
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

    fn join(&mut self, cx: &mut Cx<'_>, ticket: Ticket, request: JoinRequest, fresh_id: &str) {
        if let Err(refused) = self.admit(cx, &request) {
            cx.reply(ticket, refused_join(&request.member_id, refused));
        } else if request.member_id.is_empty() {
            self.join_as_new(cx, ticket, request, fresh_id);
        } else if request.instance_id.is_none() && self.pending.remove(&request.member_id).is_some() {
            let id = request.member_id.clone();
            self.add(cx, ticket, id, request);
        } else if let Err(refused) = self.check(&request.member_id, request.instance_id.as_deref(), None) {
            cx.reply(ticket, refused_join(&request.member_id, refused));
        } else {
            self.rejoin(cx, ticket, request);
        }
    }

    /// Whether the group has a protocol and a place for the member.
    fn admit(&mut self, cx: &Cx<'_>, request: &JoinRequest) -> Result<(), KafkaError> {
        let others = &self.members;
        let shares = |protocol: &thalweg_proto::v1::JoinProtocol| {
            others.values().all(|member| member.protocols.iter().any(|own| own.name == protocol.name))
        };
        let same_type = others.is_empty() || self.protocol_type.as_ref() == Some(&request.protocol_type);
        if request.protocol_type.is_empty() || !same_type || !request.protocols.iter().any(shares) {
            let ours = self.protocol_type.as_deref().unwrap_or("any");
            let message = format!(
                "group '{}' is of protocol type '{ours}', and the member must offer a protocol that all members know",
                self.id
            );
            return Err(error(ErrorCode::InconsistentGroupProtocol, message));
        }
        let max = cx.settings.group_max_size;
        let known = self.members.get(&request.member_id);
        let has_place = match self.phase {
            Phase::Empty => true,
            Phase::Preparing { .. } => {
                known.is_some_and(|member| member.joining.is_some())
                    || self.members.values().filter(|member| member.joining.is_some()).count() < max
            }
            Phase::Completing { .. } | Phase::Stable { .. } => known.is_some() || self.members.len() < max,
        };
        let replaces = request.instance_id.as_ref().is_some_and(|instance| self.instances.contains_key(instance));
        if !has_place && !replaces {
            self.pending.remove(&request.member_id);
            let message = format!("group '{}' is full with {max} members (group.max.size)", self.id);
            return Err(error(ErrorCode::GroupMaxSizeReached, message));
        }
        Ok(())
    }

    fn join_as_new(&mut self, cx: &mut Cx<'_>, ticket: Ticket, request: JoinRequest, fresh_id: &str) {
        if let Some(instance) = &request.instance_id {
            let id = format!("{instance}-{fresh_id}");
            match self.instances.get(instance).cloned() {
                Some(old) => self.replace(cx, ticket, &old, id, request),
                None => self.add(cx, ticket, id, request),
            }
            return;
        }
        let id = format!("{}-{fresh_id}", request.client_id);
        if request.api_version >= MEMBER_ID_REQUIRED_SINCE {
            let timeout = u64::try_from(request.session_timeout_ms).unwrap_or(0);
            self.pending.insert(id.clone(), cx.now.plus_ms(timeout));
            let message = format!("join group '{}' again as this member", self.id);
            cx.reply(ticket, refused_join(&id, error(ErrorCode::MemberIdRequired, message)));
        } else {
            self.add(cx, ticket, id, request);
        }
    }

    fn add(&mut self, cx: &mut Cx<'_>, ticket: Ticket, id: String, request: JoinRequest) {
        if let Some(instance) = &request.instance_id {
            self.instances.insert(instance.clone(), id.clone());
        }
        if self.members.is_empty() {
            self.protocol_type = Some(request.protocol_type.clone());
        }
        self.leader.get_or_insert_with(|| id.clone());
        if let Phase::Preparing { initial: Some(initial), .. } = &mut self.phase {
            initial.has_new_member = true;
        }
        let mut member = Member::new(request);
        member.wait_to_join(cx.now, ticket);
        self.members.insert(id, member);
        self.rebalance(cx);
    }

    /// A member that the group knows joins again.
    fn rejoin(&mut self, cx: &mut Cx<'_>, ticket: Ticket, request: JoinRequest) {
        let id = request.member_id.clone();
        let is_leader = self.leader.as_ref() == Some(&id);
        let is_unchanged = self.members.get(&id).is_some_and(|member| member.offers(&request));
        match self.phase {
            // It may have missed the answer: same generation again (case 59).
            Phase::Completing { .. } if is_unchanged => self.answer_at_once(cx, ticket, &id, is_leader),
            // A leader asks for a rebalance by joining, as when the topics have changed.
            Phase::Stable { .. } if is_unchanged && !is_leader => self.answer_at_once(cx, ticket, &id, false),
            Phase::Empty => {
                let refused = self.unknown(&id);
                cx.reply(ticket, refused_join(&id, refused));
            }
            Phase::Preparing { .. } | Phase::Completing { .. } | Phase::Stable { .. } => {
                if let Some(member) = self.members.get_mut(&id) {
                    if let Some(Waiter(earlier)) = member.joining.take() {
                        // The client gave that call up; it may still be open at a broker.
                        cx.reply(earlier, refused_join(&id, error(ErrorCode::RebalanceInProgress, "joined again")));
                    }
                    member.update(request);
                    member.wait_to_join(cx.now, ticket);
                }
                self.rebalance(cx);
            }
        }
    }

    fn answer_at_once(&mut self, cx: &mut Cx<'_>, ticket: Ticket, id: &str, with_members: bool) {
        if let Some(member) = self.members.get_mut(id) {
            member.renew(cx.now);
        }
        cx.reply(ticket, Reply::Join(self.joined(id, with_members)));
    }

    /// A static member comes back under a new id; whoever used the old one is fenced (KIP-345).
    fn replace(&mut self, cx: &mut Cx<'_>, ticket: Ticket, old: &str, id: String, request: JoinRequest) {
        let Some(mut member) = self.members.remove(old) else { return };
        let fenced =
            |id: &str| error(ErrorCode::FencedInstanceId, format!("instance of '{id}' joined again elsewhere"));
        if let Some(Waiter(waiting)) = member.joining.take() {
            cx.reply(waiting, refused_join(old, fenced(old)));
        }
        if let Some(waiting) = member.syncing.take() {
            cx.reply(waiting, refused_sync(fenced(old)));
        }
        let is_unchanged = member.offers(&request);
        let api_version = request.api_version;
        if let Some(instance) = &request.instance_id {
            self.instances.insert(instance.clone(), id.clone());
        }
        let old_leader = self.leader.clone();
        if self.leader.as_deref() == Some(old) {
            self.leader = Some(id.clone());
        }
        member.update(request);
        if is_unchanged && self.is_stable() {
            member.renew(cx.now);
            self.members.insert(id.clone(), member);
            self.store_replacement(cx, ticket, old, &id, old_leader, api_version);
            return;
        }
        member.wait_to_join(cx.now, ticket);
        self.members.insert(id, member);
        self.rebalance(cx);
    }

    /// Nothing but the id has changed: no rebalance, but the id must outlive this leader.
    fn store_replacement(
        &mut self,
        cx: &mut Cx<'_>,
        ticket: Ticket,
        old: &str,
        id: &str,
        old_leader: Option<String>,
        api_version: i32,
    ) {
        let is_leader = self.leader.as_deref() == Some(id);
        // From v9 on a leader is told not to assign; before, it is told of another leader, so that it does not (KIP-814).
        let knows_skip = api_version >= SKIP_ASSIGNMENT_SINCE;
        let mut answer = self.joined(id, is_leader && knows_skip);
        answer.skip_assignment = is_leader && knows_skip;
        if is_leader && !knows_skip {
            answer.leader = old_leader.unwrap_or_default();
        }
        let command = ReplaceMember {
            group_id: self.id.clone(),
            generation_id: self.generation,
            old_member_id: old.to_owned(),
            member: self.members.get(id).map(|member| member.to_record(id)),
            leader_id: self.leader.clone(),
        };
        self.in_flight = Some(InFlight::Replacement { ticket, answer });
        cx.out.push(GroupEffect::Propose(Kind::ReplaceMember(command)));
    }

    fn sync(&mut self, cx: &mut Cx<'_>, ticket: Ticket, request: SyncRequest) {
        if let Err(refused) = self.check_sync(&request) {
            cx.reply(ticket, refused_sync(refused));
            return;
        }
        let id = request.member_id;
        let Some(member) = self.members.get_mut(&id) else { return };
        member.has_synced = true;
        match self.phase {
            Phase::Empty => {
                let refused = self.unknown(&id);
                cx.reply(ticket, refused_sync(refused));
            }
            Phase::Preparing { .. } => {
                let refused = self.rebalancing();
                cx.reply(ticket, refused_sync(refused));
            }
            Phase::Stable { .. } => {
                member.renew(cx.now);
                let assignment = member.assignment.clone();
                cx.reply(ticket, self.synced(assignment));
            }
            Phase::Completing { .. } => {
                if let Some(earlier) = member.syncing.replace(ticket) {
                    cx.reply(earlier, refused_sync(error(ErrorCode::RebalanceInProgress, "synced again")));
                }
                member.deadline = NEVER;
                if self.leader.as_ref() == Some(&id) {
                    self.store_assignment(cx, request.assignments);
                }
            }
        }
    }

    fn check_sync(&self, request: &SyncRequest) -> Result<(), KafkaError> {
        self.check(&request.member_id, request.instance_id.as_deref(), Some(request.generation_id))?;
        let differs = |given: &Option<String>, ours: &Option<String>| given.is_some() && given != ours;
        if differs(&request.protocol_type, &self.protocol_type) || differs(&request.protocol_name, &self.protocol_name)
        {
            let message = format!(
                "group '{}' uses protocol '{}' of type '{}'",
                self.id,
                self.protocol_name.as_deref().unwrap_or_default(),
                self.protocol_type.as_deref().unwrap_or_default()
            );
            return Err(error(ErrorCode::InconsistentGroupProtocol, message));
        }
        Ok(())
    }

    fn store_assignment(&mut self, cx: &mut Cx<'_>, assignments: Vec<SyncAssignment>) {
        let command = SaveAssignment {
            group_id: self.id.clone(),
            generation_id: self.generation,
            assignments: assignments.clone(),
        };
        self.in_flight = Some(InFlight::Assignment { assignments });
        cx.out.push(GroupEffect::Propose(Kind::SaveAssignment(command)));
    }

    fn assigned(&mut self, cx: &mut Cx<'_>, assignments: Vec<SyncAssignment>) {
        let Phase::Completing { sync_deadline } = self.phase else { return };
        self.phase = Phase::Stable { sync_deadline };
        let mut given: BTreeMap<String, Bytes> =
            assignments.into_iter().map(|one| (one.member_id, one.assignment)).collect();
        let mut answers = Vec::new();
        for (id, member) in &mut self.members {
            member.assignment = given.remove(id).unwrap_or_default();
            if let Some(ticket) = member.syncing.take() {
                member.renew(cx.now);
                answers.push((ticket, member.assignment.clone()));
            }
        }
        for (ticket, assignment) in answers {
            cx.reply(ticket, self.synced(assignment));
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
                        leaving.push(id);
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
        for id in &leaving {
            self.take_out(cx, id);
        }
        if leaving.is_empty() {
            // Only ids that had not joined may have gone; the barrier waits for those, too.
            self.try_close(cx);
        } else {
            self.after_removal(cx);
        }
    }

    fn remove(&mut self, cx: &mut Cx<'_>, id: &str) {
        self.take_out(cx, id);
        self.after_removal(cx);
    }

    fn take_out(&mut self, cx: &mut Cx<'_>, id: &str) {
        let Some(member) = self.members.remove(id) else { return };
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

    /// Members have changed: opens the barrier, or closes it if all are there now.
    fn rebalance(&mut self, cx: &mut Cx<'_>) {
        match self.phase {
            Phase::Preparing { .. } => self.try_close(cx),
            Phase::Empty | Phase::Completing { .. } | Phase::Stable { .. } => self.prepare(cx),
        }
    }

    fn prepare(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now;
        let mut disturbed = Vec::new();
        for member in self.members.values_mut() {
            if let Some(ticket) = member.syncing.take() {
                member.renew(now);
                disturbed.push(ticket);
            }
        }
        for ticket in disturbed {
            let refused = self.rebalancing();
            cx.reply(ticket, refused_sync(refused));
        }
        let timeout = self.rebalance_timeout_ms();
        let delay = u64::from(cx.settings.group_initial_rebalance_delay_ms);
        if self.phase == Phase::Empty {
            let initial = Initial { remaining_ms: timeout.saturating_sub(delay), has_new_member: false };
            self.phase = Phase::Preparing { deadline: now.plus_ms(delay), initial: Some(initial) };
            return;
        }
        self.phase = Phase::Preparing { deadline: now.plus_ms(timeout), initial: None };
        self.try_close(cx);
    }

    fn try_close(&mut self, cx: &mut Cx<'_>) {
        let Phase::Preparing { initial: None, .. } = self.phase else { return };
        let all_joined = self.members.values().all(|member| member.joining.is_some());
        if all_joined && self.pending.is_empty() {
            self.close(cx);
        }
    }

    fn barrier_due(&mut self, cx: &mut Cx<'_>) {
        let delay = u64::from(cx.settings.group_initial_rebalance_delay_ms);
        if let Phase::Preparing { deadline, initial: Some(initial) } = &mut self.phase
            && initial.has_new_member
            && initial.remaining_ms > 0
        {
            *deadline = cx.now.plus_ms(delay.min(initial.remaining_ms));
            initial.remaining_ms = initial.remaining_ms.saturating_sub(delay);
            initial.has_new_member = false;
            return;
        }
        self.close(cx);
    }

    /// Ends the barrier: whoever has joined forms the next generation. Static members stay until their session ends.
    fn close(&mut self, cx: &mut Cx<'_>) {
        let absent = self.members.iter().filter(|(_, m)| m.joining.is_none() && m.instance_id.is_none());
        let absent: Vec<String> = absent.map(|(id, _)| id.clone()).collect();
        for id in absent {
            self.take_out(cx, &id);
        }
        let has_joined = |id: &String| self.members.get(id).is_some_and(|member| member.joining.is_some());
        if !self.leader.as_ref().is_some_and(has_joined) {
            let joined = self.members.iter().find(|(_, member)| member.joining.is_some());
            let joined = joined.map(|(id, _)| id.clone());
            if joined.is_none() && !self.members.is_empty() {
                // Only static members are left, and none is here: wait for them or for the end of their sessions.
                let deadline = cx.now.plus_ms(self.rebalance_timeout_ms());
                self.phase = Phase::Preparing { deadline, initial: None };
                return;
            }
            self.leader = joined;
        }
        // The registries know the last generation, also where a deleted group begins anew.
        self.generation = cx.state.group(&self.id).map_or(0, |stored| stored.generation_id);
        let protocol_name = self.elected_protocol();
        let group = GroupRecord {
            group_id: self.id.clone(),
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            generation_id: self.generation.saturating_add(1),
            protocol_name: protocol_name.clone(),
            leader_id: self.leader.clone(),
            members: self.members.iter().map(|(id, member)| member.to_record(id)).collect(),
            assigned: false,
            changed_at_ms: 0,
        };
        self.in_flight = Some(InFlight::Generation { protocol_name });
        cx.out.push(GroupEffect::Propose(Kind::SaveGeneration(SaveGeneration { group: Some(group) })));
    }

    fn closed(&mut self, cx: &mut Cx<'_>, protocol_name: Option<String>) {
        self.generation = self.generation.saturating_add(1);
        self.rebalances += 1;
        self.protocol_name = protocol_name;
        if self.members.is_empty() {
            self.phase = Phase::Empty;
            return;
        }
        self.phase = Phase::Completing { sync_deadline: cx.now.plus_ms(self.rebalance_timeout_ms()) };
        let mut answers = Vec::new();
        for (id, member) in &mut self.members {
            member.has_synced = false;
            member.is_new = false;
            member.assignment = Bytes::new();
            if let Some(Waiter(ticket)) = member.joining.take() {
                member.renew(cx.now);
                answers.push((ticket, id.clone()));
            }
        }
        for (ticket, id) in answers {
            let is_leader = self.leader.as_ref() == Some(&id);
            cx.reply(ticket, Reply::Join(self.joined(&id, is_leader)));
        }
    }

    /// Members that were told of the generation but never asked for their assignment are dropped (case 61).
    fn drop_unsynced(&mut self, cx: &mut Cx<'_>) {
        let silent = self.members.iter().filter(|(_, member)| !member.has_synced).map(|(id, _)| id.clone());
        let silent: Vec<String> = silent.collect();
        if silent.is_empty() && self.is_stable() {
            return;
        }
        for id in silent {
            self.take_out(cx, &id);
        }
        self.prepare(cx);
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

    /// Each member votes for its first choice among what all know; ties go to the leader's preference.
    fn elected_protocol(&self) -> Option<String> {
        let leader = self.leader.as_ref().and_then(|id| self.members.get(id))?;
        let known_to_all = |name: &str| self.members.values().all(|m| m.protocols.iter().any(|own| own.name == name));
        let candidates: Vec<&str> =
            leader.protocols.iter().map(|protocol| protocol.name.as_str()).filter(|name| known_to_all(name)).collect();
        let choices = self.members.values().filter_map(|member| {
            member.protocols.iter().map(|own| own.name.as_str()).find(|name| candidates.contains(name))
        });
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for choice in choices {
            *votes.entry(choice).or_default() += 1;
        }
        let most = votes.values().max()?;
        candidates.into_iter().find(|name| votes.get(name) == Some(most)).map(str::to_owned)
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
        {
            let message = format!("group '{}' is at generation {}, not {generation}", self.id, self.generation);
            return Err(error(ErrorCode::IllegalGeneration, message));
        }
        Ok(())
    }

    fn joined(&self, id: &str, with_members: bool) -> JoinResponse {
        let members = self.members.iter().filter(|_| with_members).map(|(id, member)| JoinedMember {
            member_id: id.clone(),
            instance_id: member.instance_id.clone(),
            metadata: member.metadata(self.protocol_name.as_deref()),
        });
        JoinResponse {
            error: Some(ok()),
            generation_id: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol_name: self.protocol_name.clone(),
            leader: self.leader.clone().unwrap_or_default(),
            skip_assignment: false,
            member_id: id.to_owned(),
            members: members.collect(),
        }
    }

    fn synced(&self, assignment: Bytes) -> Reply {
        Reply::Sync(SyncResponse {
            error: Some(ok()),
            protocol_type: self.protocol_type.clone(),
            protocol_name: self.protocol_name.clone(),
            assignment,
        })
    }

    fn unknown(&self, id: &str) -> KafkaError {
        error(ErrorCode::UnknownMemberId, format!("group '{}' has no member '{id}'; join it again", self.id))
    }

    fn rebalancing(&self) -> KafkaError {
        error(ErrorCode::RebalanceInProgress, format!("group '{}' is rebalancing", self.id))
    }

    /// The longest that any member may take.
    fn rebalance_timeout_ms(&self) -> u64 {
        let longest = self.members.values().map(|member| member.rebalance_timeout_ms).max();
        u64::try_from(longest.unwrap_or(0)).unwrap_or(0)
    }
}

impl Member {
    fn new(request: JoinRequest) -> Member {
        let mut member = Member {
            instance_id: request.instance_id.clone(),
            client_id: String::new(),
            client_host: String::new(),
            session_timeout_ms: 0,
            rebalance_timeout_ms: 0,
            protocols: Vec::new(),
            assignment: Bytes::new(),
            joining: None,
            syncing: None,
            has_synced: false,
            is_new: true,
            deadline: NEVER,
        };
        member.update(request);
        member
    }

    fn restore(stored: &GroupMember, assigned: bool, now: MonoTime) -> Member {
        let mut member = Member {
            instance_id: stored.instance_id.clone(),
            client_id: stored.client_id.clone(),
            client_host: stored.client_host.clone(),
            session_timeout_ms: stored.session_timeout_ms,
            rebalance_timeout_ms: stored.rebalance_timeout_ms,
            protocols: stored.protocols.clone(),
            assignment: stored.assignment.clone(),
            joining: None,
            syncing: None,
            // Whether it had is not stored; whoever has not, asks again.
            has_synced: assigned,
            is_new: false,
            deadline: NEVER,
        };
        member.renew(now);
        member
    }

    fn to_record(&self, id: &str) -> GroupMember {
        GroupMember {
            member_id: id.to_owned(),
            instance_id: self.instance_id.clone(),
            client_id: self.client_id.clone(),
            client_host: self.client_host.clone(),
            session_timeout_ms: self.session_timeout_ms,
            rebalance_timeout_ms: self.rebalance_timeout_ms,
            protocols: self.protocols.clone(),
            assignment: self.assignment.clone(),
        }
    }

    /// What it joins with now. Its place and assignment stay.
    fn update(&mut self, request: JoinRequest) {
        self.client_id = request.client_id;
        self.client_host = request.client_host;
        self.session_timeout_ms = request.session_timeout_ms;
        self.rebalance_timeout_ms = request.rebalance_timeout_ms;
        let protocols = request.protocols.into_iter();
        self.protocols = protocols.map(|one| GroupProtocol { name: one.name, metadata: one.metadata }).collect();
    }

    /// Whether it would join with just what it has.
    fn offers(&self, request: &JoinRequest) -> bool {
        self.protocols.len() == request.protocols.len()
            && self
                .protocols
                .iter()
                .zip(&request.protocols)
                .all(|(own, other)| own.name == other.name && own.metadata == other.metadata)
    }

    fn metadata(&self, protocol: Option<&str>) -> Bytes {
        let own = self.protocols.iter().find(|own| Some(own.name.as_str()) == protocol);
        own.map(|own| own.metadata.clone()).unwrap_or_default()
    }

    /// Has been heard from. Without effect while it waits for us: then nothing is heard from it.
    fn renew(&mut self, now: MonoTime) {
        if self.joining.is_none() && self.syncing.is_none() {
            self.deadline = now.plus_ms(u64::try_from(self.session_timeout_ms).unwrap_or(0));
        }
    }

    fn wait_to_join(&mut self, now: MonoTime, ticket: Ticket) {
        self.joining = Some(Waiter(ticket));
        // A member without a past may be a client that gave up and joined again as another; such must not pile up.
        self.deadline = if self.is_new { now.plus_ms(NEW_MEMBER_WAIT_MS) } else { NEVER };
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
