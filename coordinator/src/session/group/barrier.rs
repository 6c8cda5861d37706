//! The barrier: when it opens, when it closes, and what comes of it.

use std::collections::BTreeMap;

use bytes::Bytes;
use thalweg_proto::v1::command::Kind;
use thalweg_proto::v1::{GroupRecord, SaveGeneration};

use super::member::Waiter;
use super::{Cx, Group, GroupEffect, InFlight, Initial, Phase, refused_sync};
use crate::session::Reply;
use crate::session::journal::{Departure, Note};

impl Group {
    /// Members have changed: opens the barrier, or closes it if all are there now.
    pub(super) fn rebalance(&mut self, cx: &mut Cx<'_>) {
        match self.phase {
            Phase::Preparing { .. } => self.try_close(cx),
            Phase::Empty | Phase::Completing { .. } | Phase::Stable { .. } => self.prepare(cx),
        }
    }

    pub(super) fn prepare(&mut self, cx: &mut Cx<'_>) {
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
        self.notes.push(Note::Opened);
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

    pub(super) fn try_close(&mut self, cx: &mut Cx<'_>) {
        let Phase::Preparing { initial: None, .. } = self.phase else { return };
        let all_joined = self.members.values().all(|member| member.joining.is_some());
        if all_joined && self.pending.is_empty() {
            self.close(cx);
        }
    }

    pub(super) fn barrier_due(&mut self, cx: &mut Cx<'_>) {
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
    pub(super) fn close(&mut self, cx: &mut Cx<'_>) {
        let absent = self.members.iter().filter(|(_, m)| m.joining.is_none() && m.instance_id.is_none());
        let absent: Vec<String> = absent.map(|(id, _)| id.clone()).collect();
        for id in absent {
            self.take_out(cx, &id, Departure::MissedBarrier);
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

    pub(super) fn closed(&mut self, cx: &mut Cx<'_>, protocol_name: Option<String>) {
        self.generation = self.generation.saturating_add(1);
        self.rebalances += 1;
        self.protocol_name = protocol_name;
        self.notes.push(Note::Closed {
            generation_id: self.generation,
            protocol: self.protocol_name.clone().unwrap_or_default(),
            member_count: self.members.len(),
        });
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
    pub(super) fn drop_unsynced(&mut self, cx: &mut Cx<'_>) {
        let silent = self.members.iter().filter(|(_, member)| !member.has_synced).map(|(id, _)| id.clone());
        let silent: Vec<String> = silent.collect();
        if silent.is_empty() && self.is_stable() {
            return;
        }
        for id in silent {
            self.take_out(cx, &id, Departure::NeverSynced);
        }
        self.prepare(cx);
    }

    /// Each member votes for its first choice among what all know; ties go to the leader's preference.
    pub(super) fn elected_protocol(&self) -> Option<String> {
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

    /// The longest that any member may take.
    pub(super) fn rebalance_timeout_ms(&self) -> u64 {
        let longest = self.members.values().map(|member| member.rebalance_timeout_ms).max();
        u64::try_from(longest.unwrap_or(0)).unwrap_or(0)
    }
}
