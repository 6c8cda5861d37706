//! The leader's short-lived state: who has been heard from, who waits for a rebalance.
//!
//! Pure: events and the time go in, effects come out. Thrown away when leadership ends; a new leader rebuilds it from the
//! registries, with every timer in full. A heartbeat changes only this state, so it costs no Raft entry.

mod brokers;
mod commits;
mod group;
mod groups;
mod growth;
mod journal;
mod levels;
mod plans;
mod progress;
mod subscription;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use thalweg_model::{MonoTime, NodeId, Timestamp};
use thalweg_proto::v1;
use thalweg_proto::v1::Command;
use thalweg_proto::v1::command::Kind;

use crate::registry::context::{Context, Seed};
use crate::registry::{Machine, Outcome};
use crate::registry::{features, leaders};
use crate::settings::CoordinatorSettings;

/// Names one call that waits for an answer. Chosen by the caller, never twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Names one command on its way through Raft.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProposalId(pub u64);

/// What happens to the leader.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A call that waits for [`Effect::Reply`] under the ticket.
    Call(Ticket, Call),
    /// Nobody waits for this call's answer any more. The member, if it is one, stays.
    Withdrawn(Ticket),
    /// The connection over which this life of a broker was heard last has ended.
    ConnectionLost(Life),
    /// The listener of this life of a broker refuses connections.
    ConnectionRefused(Life),
    /// A proposed command was applied, and brokers know of it at `feed_index`.
    Settled { proposal: ProposalId, outcome: Outcome, feed_index: u64 },
    /// Time has passed.
    Tick,
}

/// One registration of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Life {
    pub id: NodeId,
    pub epoch: i64,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    ReportUnreachable(v1::ReportUnreachableRequest),
    RegisterBroker(v1::RegisterBrokerRequest),
    BrokerHeartbeat(v1::BrokerHeartbeatRequest),
    /// `fresh_id` is random and used where the member needs an id.
    Join {
        request: v1::JoinRequest,
        fresh_id: String,
    },
    Sync(v1::SyncRequest),
    Heartbeat(v1::HeartbeatRequest),
    Leave(v1::LeaveRequest),
    Commit(v1::CommitRequest),
    Delete(v1::DeleteRequest),
    DeleteOffsets(v1::DeleteOffsetsRequest),
    Describe(v1::DescribeRequest),
    List(v1::ListRequest),
    Explain(v1::ExplainRequest),
    /// Of brokers only.
    DescribeLevels,
    /// Every coordinator can do the level.
    RaiseLevel {
        level: u32,
        validate_only: bool,
    },
}

impl Call {
    /// Whether asking the next leader the same again has the effect that asking once has, also if the first call had it.
    ///
    /// Not so for the rest: a commit that comes late could undo a newer one, and what was removed already is not found.
    pub fn can_be_repeated(&self) -> bool {
        match self {
            Call::ReportUnreachable(_)
            | Call::RegisterBroker(_)
            | Call::BrokerHeartbeat(_)
            | Call::Join { .. }
            | Call::Sync(_)
            | Call::Heartbeat(_)
            | Call::Describe(_)
            | Call::List(_)
            | Call::Explain(_)
            | Call::DescribeLevels
            | Call::RaiseLevel { .. } => true,
            Call::Leave(_) | Call::Commit(_) | Call::Delete(_) | Call::DeleteOffsets(_) => false,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    Reply(Ticket, Reply),
    /// Try to connect to the broker; tell as [`Event::ConnectionRefused`] if nobody listens there.
    Probe(Life, v1::Endpoint),
    /// Replicate this; tell the end as [`Event::Settled`].
    Propose(ProposalId, Command),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    ReportUnreachable(v1::ReportUnreachableResponse),
    RegisterBroker(v1::RegisterBrokerResponse),
    BrokerHeartbeat(v1::BrokerHeartbeatResponse),
    Join(v1::JoinResponse),
    Sync(v1::SyncResponse),
    Heartbeat(v1::HeartbeatResponse),
    Leave(v1::LeaveResponse),
    Commit(v1::CommitResponse),
    Delete(v1::DeleteResponse),
    DeleteOffsets(v1::DeleteOffsetsResponse),
    Describe(v1::DescribeResponse),
    List(v1::ListResponse),
    Explain(v1::ExplainResponse),
    DescribeLevels(Vec<v1::NodeLevels>),
    RaiseLevel(v1::RaiseLevelResponse),
}

/// Why a command was proposed.
#[derive(Clone, Debug, PartialEq)]
enum Purpose {
    Register(Ticket),
    /// The heartbeat is answered afterwards.
    Broker {
        id: NodeId,
        heartbeat: Ticket,
    },
    Fence(NodeId),
    /// The report is answered afterwards.
    Reported {
        suspect: Life,
        report: Ticket,
    },
    /// A group waits for it: its barrier closes, or its assignment is stored.
    Group(String),
    /// Part `position` of a call on many groups.
    Part {
        call: Ticket,
        position: usize,
    },
    DeleteOffsets {
        call: Ticket,
        refused: Vec<v1::DeletedOffset>,
    },
    /// Moves of the plan begin.
    PlanMoves,
    PlanEnd,
    RaiseLevel {
        ticket: Ticket,
        level: u32,
    },
    Unwatched,
}

/// The leader's sessions. Lives as long as one leadership.
pub struct Session {
    settings: CoordinatorSettings,
    brokers: brokers::BrokerSessions,
    groups: groups::Groups,
    plan: plans::PlanRun,
    growth: growth::Growth,
    proposals: BTreeMap<ProposalId, Purpose>,
    next_proposal: u64,
    gathered: BTreeMap<Ticket, commits::Gathered>,
    next_expiry: MonoTime,
    next_preferred: MonoTime,
    verified_index: u64,
}

impl Session {
    /// Starts from the registries, every timer in full.
    pub fn restore(settings: CoordinatorSettings, machine: &Machine, now: MonoTime) -> Session {
        Session {
            brokers: brokers::BrokerSessions::restore(machine, &settings, now),
            groups: groups::Groups::restore(machine.state(), now),
            plan: plans::PlanRun::restore(machine, now),
            growth: growth::Growth::restore(&settings, now),
            proposals: BTreeMap::new(),
            next_proposal: 0,
            gathered: BTreeMap::new(),
            next_expiry: now.plus_ms(u64::from(settings.offsets_retention_check_interval_ms)),
            next_preferred: now.plus_ms(u64::from(settings.preferred_leader_interval_ms)),
            verified_index: machine.progress().checked_index,
            settings,
        }
    }

    /// Takes an event in. `machine` is the registries as applied so far, only to read.
    pub fn on(&mut self, now: MonoTime, machine: &Machine, event: Event, out: &mut Vec<Effect>) {
        match event {
            Event::Call(ticket, call) => self.call(now, machine, ticket, call, out),
            Event::Withdrawn(ticket) => self.withdraw(now, ticket),
            Event::ConnectionLost(life) => self.connection_lost(life),
            Event::ConnectionRefused(life) => self.connection_refused(now, machine, life, None, out),
            Event::Settled { proposal, outcome, feed_index } => {
                if let Some(purpose) = self.proposals.remove(&proposal) {
                    self.settled(now, machine, purpose, outcome, feed_index, out);
                }
            }
            Event::Tick => {}
        }
        self.tick(now, machine, out);
    }

    /// When [`Event::Tick`] is due next.
    pub fn next_deadline(&self) -> MonoTime {
        let plan = self.plan.next_deadline();
        let brokers = self.brokers.next_deadline();
        let groups = self.groups.next_deadline();
        let growth = self.growth.next_deadline();
        [brokers, groups, plan, growth, Some(self.next_preferred)]
            .into_iter()
            .flatten()
            .fold(self.next_expiry, MonoTime::min)
    }

    /// Groups with members.
    pub fn group_count(&self) -> usize {
        self.groups.count()
    }

    /// Rebalances completed under this leadership.
    pub fn rebalance_count(&self) -> u64 {
        self.groups.rebalance_count()
    }

    fn call(&mut self, now: MonoTime, machine: &Machine, ticket: Ticket, call: Call, out: &mut Vec<Effect>) {
        match call {
            Call::ReportUnreachable(request) => self.report_unreachable(now, machine, ticket, request, out),
            Call::RegisterBroker(request) => self.register_broker(now, machine, ticket, request, out),
            Call::BrokerHeartbeat(request) => self.broker_heartbeat(now, machine, ticket, &request, out),
            Call::Heartbeat(request) => {
                let errors = request.members.iter().map(|member| self.groups.heartbeat(now, member)).collect();
                out.push(Effect::Reply(ticket, Reply::Heartbeat(v1::HeartbeatResponse { errors })));
            }
            Call::Commit(request) => self.commit(now, machine.state(), ticket, request, out),
            Call::Delete(request) => self.delete_groups(machine.state(), ticket, request, out),
            Call::DeleteOffsets(request) => self.delete_offsets(machine.state(), ticket, request, out),
            Call::Describe(request) => {
                let answer = self.describe(machine.state(), &request);
                out.push(Effect::Reply(ticket, Reply::Describe(answer)));
            }
            Call::List(request) => {
                let answer = self.list(machine.state(), &request);
                out.push(Effect::Reply(ticket, Reply::List(answer)));
            }
            Call::Explain(request) => {
                let answer = self.explain(now, machine.state(), &request);
                out.push(Effect::Reply(ticket, Reply::Explain(answer)));
            }
            Call::DescribeLevels => {
                let answer = self.broker_levels(machine);
                out.push(Effect::Reply(ticket, Reply::DescribeLevels(answer)));
            }
            Call::RaiseLevel { level, validate_only } => self.raise_level(machine, ticket, level, validate_only, out),
            Call::Join { request, fresh_id } => {
                let call = group::GroupCall::Join { request, fresh_id };
                self.group_call(now, machine, ticket, call, out);
            }
            Call::Sync(request) => self.group_call(now, machine, ticket, group::GroupCall::Sync(request), out),
            Call::Leave(request) => self.group_call(now, machine, ticket, group::GroupCall::Leave(request), out),
        }
    }

    fn withdraw(&mut self, now: MonoTime, ticket: Ticket) {
        self.gathered.remove(&ticket);
        self.groups.withdraw(now, ticket);
    }

    fn settled(
        &mut self,
        now: MonoTime,
        machine: &Machine,
        purpose: Purpose,
        outcome: Outcome,
        feed_index: u64,
        out: &mut Vec<Effect>,
    ) {
        match purpose {
            Purpose::Register(ticket) => self.broker_registered(now, ticket, outcome, feed_index, out),
            Purpose::Broker { id, heartbeat } => {
                self.brokers.settled(machine, id, feed_index);
                self.answer_heartbeat(machine, id, heartbeat, feed_index, out);
            }
            Purpose::Fence(id) => self.brokers.settled(machine, id, feed_index),
            Purpose::Reported { suspect, report } => {
                self.brokers.settled(machine, suspect.id, feed_index);
                self.answer_report(machine, suspect, report, out);
            }
            Purpose::Group(id) => self.group_settled(now, machine, &id, &outcome, out),
            Purpose::Part { call, position } => self.part_settled(call, position, outcome, out),
            Purpose::DeleteOffsets { call, refused } => self.offsets_deleted(call, refused, outcome, out),
            Purpose::PlanMoves => self.plan_moves_settled(outcome),
            Purpose::PlanEnd => self.plan_ended(),
            Purpose::RaiseLevel { ticket, level } => {
                self.level_raised(machine, ticket, level, outcome, feed_index, out);
            }
            Purpose::Unwatched => {}
        }
    }

    fn tick(&mut self, now: MonoTime, machine: &Machine, out: &mut Vec<Effect>) {
        self.fence_expired(now, machine, out);
        self.probe_silent(machine, out);
        self.tick_groups(now, machine, out);
        self.tick_plan(now, machine, out);
        self.tick_growth(now, machine, out);
        if now >= self.next_expiry {
            self.next_expiry = now.plus_ms(u64::from(self.settings.offsets_retention_check_interval_ms));
            self.expire_offsets(machine.state(), out);
        }
        if now >= self.next_preferred {
            self.next_preferred = now.plus_ms(u64::from(self.settings.preferred_leader_interval_ms));
            if leaders::would_prefer(machine.state(), &self.context(machine)) {
                let all = v1::ElectLeadersRequest { all: true, ..v1::ElectLeadersRequest::default() };
                self.propose(Purpose::Unwatched, Kind::ElectLeaders(all), out);
            }
        }
        let progress = machine.progress();
        if progress.checked_index > self.verified_index {
            self.verified_index = progress.checked_index;
            let verify = v1::VerifyHash { index: progress.checked_index, hash: progress.checked_hash.0 };
            self.propose(Purpose::Unwatched, Kind::VerifyHash(verify), out);
        }
    }

    /// To think a command through that is not proposed yet.
    fn context(&self, machine: &Machine) -> Context {
        Context {
            index: machine.progress().next_index,
            time: Timestamp(0),
            seed: Seed::new(0, 0),
            default_min_isr: self.settings.default_min_isr,
        }
    }

    fn propose(&mut self, purpose: Purpose, kind: Kind, out: &mut Vec<Effect>) {
        let id = ProposalId(self.next_proposal);
        self.next_proposal += 1;
        self.proposals.insert(id, purpose);
        out.push(Effect::Propose(id, command(kind)));
    }
}

/// A command at the level that it needs.
pub fn command(kind: Kind) -> Command {
    Command { level: features::level_of(&kind), kind: Some(kind) }
}
