//! All groups that have members, and when each of them is to be looked at.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_model::{ErrorCode, MonoTime};
use thalweg_proto::v1::{
    DescribeRequest, DescribeResponse, DescribedGroup, DescribedMember, GroupCommit, GroupRecord, JoinRequest,
    KafkaError, LeaveResponse, LeftMember, ListRequest, ListResponse, ListedGroup, MemberHeartbeat,
};

use super::group::{Cx, Group, GroupCall, GroupEffect, refused_join, refused_sync};
use super::journal::Journals;
use super::{Effect, Purpose, Reply, Session, Ticket};
use crate::registry::state::State;
use crate::registry::{Machine, Outcome, error, ok};
use crate::settings::CoordinatorSettings;

/// Groups without members, pending members or waiting calls are not here; the registries know all of them.
pub(super) struct Groups {
    groups: BTreeMap<String, Group>,
    /// When a group is to be looked at. Not later than its deadline; heartbeats only move that on.
    due: BTreeSet<(MonoTime, String)>,
    due_of: BTreeMap<String, MonoTime>,
    /// Which group an open call waits at.
    waiting: BTreeMap<Ticket, String>,
    /// Of groups that are here no more.
    rebalances: u64,
    journals: Journals,
}

impl Groups {
    pub fn restore(state: &State, now: MonoTime) -> Groups {
        let mut groups = Groups {
            groups: BTreeMap::new(),
            due: BTreeSet::new(),
            due_of: BTreeMap::new(),
            waiting: BTreeMap::new(),
            rebalances: 0,
            journals: Journals::new(now),
        };
        for (id, stored) in state.groups().filter(|(_, stored)| !stored.members.is_empty()) {
            groups.groups.insert(id.to_owned(), Group::restore(stored, now));
            groups.schedule(id);
        }
        groups
    }

    pub fn count(&self) -> usize {
        self.groups.len()
    }

    pub fn rebalance_count(&self) -> u64 {
        self.rebalances + self.groups.values().map(Group::rebalances).sum::<u64>()
    }

    pub fn next_deadline(&self) -> Option<MonoTime> {
        self.due.first().map(|(due, _)| *due)
    }

    pub fn get(&self, id: &str) -> Option<&Group> {
        self.groups.get(id)
    }

    pub fn journals(&self) -> &Journals {
        &self.journals
    }

    /// A commit that is on its way.
    pub fn committing(&mut self, now: MonoTime, commit: &GroupCommit) {
        self.journals.committed(now, commit);
    }

    pub fn heartbeat(&mut self, now: MonoTime, heartbeat: &MemberHeartbeat) -> KafkaError {
        match self.groups.get_mut(&heartbeat.group_id) {
            Some(group) => group.heartbeat(now, heartbeat),
            None if heartbeat.group_id.is_empty() => no_group_id(),
            None => unknown_member(&heartbeat.group_id, &heartbeat.member_id),
        }
    }

    /// # Errors
    /// What to answer to the commit instead of proposing it.
    pub fn check_commit(&mut self, now: MonoTime, commit: &GroupCommit) -> Result<(), KafkaError> {
        self.groups.get_mut(&commit.group_id).map_or(Ok(()), |group| group.check_commit(now, commit))
    }

    pub fn withdraw(&mut self, now: MonoTime, ticket: Ticket) {
        let Some(id) = self.waiting.remove(&ticket) else { return };
        if let Some(group) = self.groups.get_mut(&id) {
            group.withdraw(now, ticket);
        }
        self.schedule(&id);
    }

    /// Runs a step of one group and looks after what follows from it.
    fn step(
        &mut self,
        now: MonoTime,
        settings: &CoordinatorSettings,
        state: &State,
        id: &str,
        step: impl FnOnce(&mut Group, &mut Cx<'_>),
    ) -> Vec<GroupEffect> {
        let mut out = Vec::new();
        if let Some(group) = self.groups.get_mut(id) {
            let mut cx = Cx { now, settings, state, out: &mut out };
            step(group, &mut cx);
            // A timer of no length is over at once.
            group.tick(&mut cx);
            self.journals.take(now, id, group.take_notes());
        }
        for effect in &out {
            if let GroupEffect::Reply(ticket, _) = effect {
                self.waiting.remove(ticket);
            }
        }
        if self.groups.get(id).is_some_and(Group::is_idle)
            && let Some(idle) = self.groups.remove(id)
        {
            self.rebalances += idle.rebalances();
        }
        self.schedule(id);
        out
    }

    fn schedule(&mut self, id: &str) {
        if let Some(before) = self.due_of.remove(id) {
            self.due.remove(&(before, id.to_owned()));
        }
        if let Some(due) = self.groups.get(id).and_then(Group::next_deadline) {
            self.due.insert((due, id.to_owned()));
            self.due_of.insert(id.to_owned(), due);
        }
    }
}

impl Session {
    pub(super) fn group_call(
        &mut self,
        now: MonoTime,
        machine: &Machine,
        ticket: Ticket,
        call: GroupCall,
        out: &mut Vec<Effect>,
    ) {
        let state = machine.state();
        if let Some(refused) = self.enter(state, &call) {
            out.push(Effect::Reply(ticket, refused));
            return;
        }
        let id = match &call {
            GroupCall::Join { request, .. } => request.group_id.clone(),
            GroupCall::Sync(request) => request.group_id.clone(),
            GroupCall::Leave(request) => request.group_id.clone(),
        };
        self.groups.waiting.insert(ticket, id.clone());
        let step = |group: &mut Group, cx: &mut Cx<'_>| group.call(cx, ticket, call);
        let effects = self.groups.step(now, &self.settings, state, &id, step);
        self.emit(&id, effects, out);
    }

    /// Makes the group for a first member. `Some`: the refusal of who needs a group that is not there.
    fn enter(&mut self, state: &State, call: &GroupCall) -> Option<Reply> {
        match call {
            GroupCall::Join { request, .. } => {
                if let Err(refused) = self.check_join(request) {
                    return Some(refused_join(&request.member_id, refused));
                }
                if self.groups.groups.contains_key(&request.group_id) {
                    return None;
                }
                if !request.member_id.is_empty() {
                    let refused = unknown_member(&request.group_id, &request.member_id);
                    return Some(refused_join(&request.member_id, refused));
                }
                let group = Group::new(&request.group_id, state.group(&request.group_id));
                self.groups.groups.insert(request.group_id.clone(), group);
                None
            }
            GroupCall::Sync(request) if request.group_id.is_empty() => Some(refused_sync(no_group_id())),
            GroupCall::Sync(request) if !self.groups.groups.contains_key(&request.group_id) => {
                Some(refused_sync(unknown_member(&request.group_id, &request.member_id)))
            }
            GroupCall::Leave(request) if !self.groups.groups.contains_key(&request.group_id) => {
                let left = request.members.iter().map(|member| LeftMember {
                    member_id: member.member_id.clone(),
                    instance_id: member.instance_id.clone(),
                    error: Some(unknown_member(&request.group_id, &member.member_id)),
                });
                Some(Reply::Leave(LeaveResponse { error: Some(ok()), members: left.collect() }))
            }
            GroupCall::Sync(_) | GroupCall::Leave(_) => None,
        }
    }

    fn check_join(&self, request: &JoinRequest) -> Result<(), KafkaError> {
        if request.group_id.is_empty() {
            return Err(no_group_id());
        }
        let (min, max) = (self.settings.group_min_session_timeout_ms, self.settings.group_max_session_timeout_ms);
        if !(min..=max).contains(&request.session_timeout_ms) {
            let message = format!(
                "session.timeout.ms {} lies outside {min} to {max} \
                 (group.min.session.timeout.ms, group.max.session.timeout.ms)",
                request.session_timeout_ms
            );
            return Err(error(ErrorCode::InvalidSessionTimeout, message));
        }
        Ok(())
    }

    pub(super) fn group_settled(
        &mut self,
        now: MonoTime,
        machine: &Machine,
        id: &str,
        outcome: &Outcome,
        out: &mut Vec<Effect>,
    ) {
        let state = machine.state();
        let step = |group: &mut Group, cx: &mut Cx<'_>| {
            if !group.settled(cx, outcome) {
                *group = match state.group(id) {
                    Some(stored) => Group::restore(stored, cx.now),
                    None => Group::new(id, None),
                };
            }
        };
        let effects = self.groups.step(now, &self.settings, state, id, step);
        self.emit(id, effects, out);
    }

    pub(super) fn tick_groups(&mut self, now: MonoTime, machine: &Machine, out: &mut Vec<Effect>) {
        while let Some((due, id)) = self.groups.due.first().cloned() {
            if due > now {
                break;
            }
            // The step itself ticks. What is due then lies in the future, or the group waits for Raft.
            let effects = self.groups.step(now, &self.settings, machine.state(), &id, |_, _| {});
            self.emit(&id, effects, out);
        }
    }

    fn emit(&mut self, id: &str, effects: Vec<GroupEffect>, out: &mut Vec<Effect>) {
        for effect in effects {
            match effect {
                GroupEffect::Reply(ticket, reply) => out.push(Effect::Reply(ticket, reply)),
                GroupEffect::Propose(kind) => self.propose(Purpose::Group(id.to_owned()), kind, out),
            }
        }
    }

    pub(super) fn describe(&self, state: &State, request: &DescribeRequest) -> DescribeResponse {
        let groups = request.group_ids.iter();
        let described = groups.map(|id| match (self.groups.get(id), state.group(id)) {
            (Some(group), stored) if group.has_members() || stored.is_none() => described(id, group),
            (_, Some(stored)) => described_empty(id, stored),
            (_, None) => DescribedGroup {
                group_id: id.clone(),
                error: Some(error(ErrorCode::GroupIdNotFound, format!("there is no group '{id}'"))),
                state: "Dead".to_owned(),
                ..DescribedGroup::default()
            },
        });
        DescribeResponse { groups: described.collect() }
    }

    pub(super) fn list(&self, state: &State, request: &ListRequest) -> ListResponse {
        let mut groups = Vec::new();
        let stored = state.groups().map(|(id, stored)| (id, Some(stored)));
        let only_here =
            self.groups.groups.keys().map(|id| (id.as_str(), None)).filter(|(id, _)| state.group(id).is_none());
        for (id, stored) in stored.chain(only_here) {
            let here = self.groups.get(id);
            let name = here.map_or("Empty", Group::state_name);
            let protocol = stored.map(|stored| stored.protocol_type.as_str());
            let protocol = here.and_then(Group::protocol_type).or(protocol).unwrap_or_default();
            let matches = |wanted: &[String], own: &str| {
                wanted.is_empty() || wanted.iter().any(|one| one.eq_ignore_ascii_case(own))
            };
            if matches(&request.states, name) && matches(&request.types, CLASSIC) {
                groups.push(ListedGroup {
                    group_id: id.to_owned(),
                    protocol_type: protocol.to_owned(),
                    state: name.to_owned(),
                    group_type: CLASSIC.to_owned(),
                });
            }
        }
        groups.sort_by(|a, b| a.group_id.cmp(&b.group_id));
        ListResponse { error: Some(ok()), groups }
    }
}

fn described(id: &str, group: &Group) -> DescribedGroup {
    // Between generations, metadata and assignments mean nothing; Kafka leaves them out, too.
    let is_stable = group.is_stable();
    let members = group.member_records().map(|member| DescribedMember {
        metadata: if is_stable { group.metadata_of(&member.member_id) } else { bytes::Bytes::new() },
        assignment: if is_stable { member.assignment } else { bytes::Bytes::new() },
        member_id: member.member_id,
        instance_id: member.instance_id,
        client_id: member.client_id,
        client_host: member.client_host,
    });
    DescribedGroup {
        group_id: id.to_owned(),
        error: Some(ok()),
        state: group.state_name().to_owned(),
        protocol_type: group.protocol_type().unwrap_or_default().to_owned(),
        protocol_name: group.protocol_name().filter(|_| is_stable).unwrap_or_default().to_owned(),
        members: members.collect(),
        generation_id: group.generation(),
        leader: group.leader().unwrap_or_default().to_owned(),
    }
}

fn no_group_id() -> KafkaError {
    error(ErrorCode::InvalidGroupId, "a group id cannot be empty; set group.id")
}

fn described_empty(id: &str, stored: &GroupRecord) -> DescribedGroup {
    DescribedGroup {
        group_id: id.to_owned(),
        error: Some(ok()),
        state: "Empty".to_owned(),
        protocol_type: stored.protocol_type.clone(),
        generation_id: stored.generation_id,
        ..DescribedGroup::default()
    }
}

fn unknown_member(group_id: &str, member_id: &str) -> KafkaError {
    error(ErrorCode::UnknownMemberId, format!("group '{group_id}' has no member '{member_id}'; join it again"))
}

const CLASSIC: &str = "classic";
