//! Brokers that have been heard from, and until when they may lead (REPLICATION B2, B4, B5).

use std::collections::BTreeMap;

use thalweg_model::{ErrorCode, MonoTime, NodeId};
use thalweg_proto::v1::command::Kind;
use thalweg_proto::v1::{
    BeginShutdown, BrokerHeartbeatRequest, BrokerHeartbeatResponse, BrokerRecord, FenceBroker, Levels, RegisterBroker,
    RegisterBrokerRequest, RegisterBrokerResponse, ReportUnreachableRequest, ReportUnreachableResponse, TakeOffline,
    UnfenceBroker,
};

use super::{Effect, Life, Purpose, Reply, Session, Ticket};
use crate::registry::brokers::{is_same_storage, needs};
use crate::registry::offline::has_any;
use crate::registry::state::State;
use crate::registry::{Machine, Outcome, error, ok};
use crate::settings::CoordinatorSettings;

/// One session for each broker that may lead or wants to.
pub(super) struct BrokerSessions(BTreeMap<NodeId, BrokerSession>);

struct BrokerSession {
    /// The end of the lease; the broker is fenced then.
    deadline: MonoTime,
    /// The broker has the feed up to here.
    metadata_index: u64,
    /// Its registration and its last fencing are in the feed up to here; it is let in once it has that. Else it would lead
    /// for a moment where another one was elected while it was away.
    needed_index: u64,
    /// That it is to stop, and what moved away from it, is in the feed up to here; `None` while it is still needed.
    shutdown_index: Option<u64>,
    /// A command about this broker is under way.
    is_settling: bool,
    /// When it was heard from.
    heard_at: MonoTime,
    hearing: Hearing,
    /// As it says with its heartbeats; `None` before the first, and of a version that does not say.
    levels: Option<Levels>,
}

/// Whether there is an open connection over which the broker was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hearing {
    Open,
    /// It has ended, or this leader has not heard from the broker yet; its listener is to be tried.
    Lost,
    /// As before, and its listener has been tried.
    Probed,
}

impl BrokerSession {
    fn new(needed_index: u64, heard_at: MonoTime, deadline: MonoTime) -> BrokerSession {
        BrokerSession {
            deadline,
            metadata_index: 0,
            needed_index,
            shutdown_index: None,
            is_settling: false,
            heard_at,
            hearing: Hearing::Open,
            levels: None,
        }
    }
}

impl BrokerSessions {
    pub fn restore(machine: &Machine, settings: &CoordinatorSettings, now: MonoTime) -> BrokerSessions {
        let deadline = now.plus_ms(u64::from(settings.broker_lease_ms));
        let live = machine.state().brokers().filter(|(_, broker)| !broker.fenced);
        let sessions = live.map(|(id, broker)| {
            let mut session = BrokerSession::new(registered_at(machine, broker), now, deadline);
            session.hearing = Hearing::Lost;
            session.shutdown_index = broker.shutting_down.then(|| machine.feed_index());
            (id, session)
        });
        BrokerSessions(sessions.collect())
    }

    pub fn next_deadline(&self) -> Option<MonoTime> {
        self.0.values().filter(|session| !session.is_settling).map(|session| session.deadline).min()
    }

    /// That this life of the broker can do, if it has said so.
    pub fn levels(&self, id: NodeId) -> Option<Levels> {
        self.0.get(&id)?.levels
    }

    /// A command about the broker was applied, and brokers know of it at `feed_index`.
    pub fn settled(&mut self, machine: &Machine, id: NodeId, feed_index: u64) {
        if let Some(session) = self.0.get_mut(&id) {
            session.is_settling = false;
            if machine.state().broker(id).is_some_and(|stored| stored.fenced) {
                session.needed_index = session.needed_index.max(feed_index);
            }
        }
    }
}

impl Session {
    pub(super) fn register_broker(
        &mut self,
        now: MonoTime,
        machine: &Machine,
        ticket: Ticket,
        request: RegisterBrokerRequest,
        out: &mut Vec<Effect>,
    ) {
        let id = NodeId(request.broker_id);
        let live = self.brokers.0.get(&id).filter(|session| session.deadline > now);
        if let Some(stored) = machine.state().broker(id).filter(|stored| !stored.fenced)
            && let Some(session) = live
            && !(stored.incarnation == request.incarnation && is_same_storage(stored, &request))
            && (session.hearing == Hearing::Open || !took_over(stored, &request))
        {
            let message = format!(
                "broker {id} is alive in another process; stop that one, or give this one an id and log directories of its \
                 own: a copy of another broker's directories is no broker of its own"
            );
            let answer = RegisterBrokerResponse {
                error: Some(error(ErrorCode::DuplicateBrokerRegistration, message)),
                broker_id: -1,
                broker_epoch: -1,
                ..RegisterBrokerResponse::default()
            };
            out.push(Effect::Reply(ticket, Reply::RegisterBroker(answer)));
            return;
        }
        let command = RegisterBroker { request: Some(request) };
        self.propose(Purpose::Register(ticket), Kind::RegisterBroker(command), out);
    }

    pub(super) fn broker_registered(
        &mut self,
        now: MonoTime,
        ticket: Ticket,
        outcome: Outcome,
        feed_index: u64,
        out: &mut Vec<Effect>,
    ) {
        let answer = match outcome {
            Outcome::Registered(mut answer) => {
                if answer.broker_id >= 0 {
                    answer.index = feed_index;
                    let deadline = now.plus_ms(u64::from(self.settings.broker_lease_ms));
                    self.brokers.0.insert(NodeId(answer.broker_id), BrokerSession::new(feed_index, now, deadline));
                }
                answer
            }
            other => RegisterBrokerResponse {
                error: Some(refusal(other)),
                broker_id: -1,
                broker_epoch: -1,
                ..RegisterBrokerResponse::default()
            },
        };
        out.push(Effect::Reply(ticket, Reply::RegisterBroker(answer)));
    }

    pub(super) fn broker_heartbeat(
        &mut self,
        now: MonoTime,
        machine: &Machine,
        ticket: Ticket,
        request: &BrokerHeartbeatRequest,
        out: &mut Vec<Effect>,
    ) {
        let id = NodeId(request.broker_id);
        let stored = match current(machine.state(), request) {
            Ok(stored) => stored,
            Err(refused) => {
                let answer = BrokerHeartbeatResponse {
                    error: Some(refused),
                    fenced: true,
                    ..BrokerHeartbeatResponse::default()
                };
                out.push(Effect::Reply(ticket, Reply::BrokerHeartbeat(answer)));
                return;
            }
        };
        let lease = u64::from(self.settings.broker_lease_ms);
        // When it was fenced is not known any more; everything up to now tells of it.
        let needed_index = if stored.fenced { machine.feed_index() } else { registered_at(machine, stored) };
        let new = || BrokerSession::new(needed_index, now, now);
        let session = self.brokers.0.entry(id).or_insert_with(new);
        session.deadline = now.plus_ms(lease);
        session.heard_at = now;
        session.hearing = Hearing::Open;
        session.levels = request.levels;
        session.metadata_index = request.metadata_index.max(session.metadata_index);
        if session.is_settling {
            self.answer_heartbeat(machine, id, ticket, machine.feed_index(), out);
            return;
        }
        let (broker_id, broker_epoch) = (stored.id, stored.epoch);
        let is_current = session.metadata_index >= session.needed_index;
        let is_settling = session.is_settling;
        if let Some(offline) = offline(request, stored).filter(|_| !is_settling)
            && has_any(machine.state(), &self.context(machine), &offline)
        {
            self.propose(Purpose::Unwatched, Kind::TakeOffline(offline), out);
        }
        let wanted = if request.want_shutdown && !stored.shutting_down {
            Some(Kind::BeginShutdown(BeginShutdown { broker_id, broker_epoch }))
        } else if request.want_shutdown || stored.shutting_down {
            None
        } else if request.want_fence && !stored.fenced {
            Some(Kind::FenceBroker(FenceBroker { broker_id, broker_epoch }))
        } else if !request.want_fence && stored.fenced && is_current {
            Some(Kind::UnfenceBroker(UnfenceBroker { broker_id, broker_epoch }))
        } else {
            None
        };
        match wanted {
            Some(kind) => {
                if let Some(session) = self.brokers.0.get_mut(&id) {
                    session.is_settling = true;
                }
                self.propose(Purpose::Broker { id, heartbeat: ticket }, kind, out);
            }
            None => self.answer_heartbeat(machine, id, ticket, machine.feed_index(), out),
        }
    }

    pub(super) fn answer_heartbeat(
        &mut self,
        machine: &Machine,
        id: NodeId,
        ticket: Ticket,
        feed_index: u64,
        out: &mut Vec<Effect>,
    ) {
        let stored = machine.state().broker(id);
        if stored.is_some_and(|stored| stored.shutting_down) {
            let is_needed = self.is_needed(machine, id);
            if let Some(session) = self.brokers.0.get_mut(&id) {
                // What moved away last is in the feed up to here.
                match is_needed {
                    true => session.shutdown_index = None,
                    false => drop(session.shutdown_index.get_or_insert(feed_index.max(machine.feed_index()))),
                }
            }
        }
        let may_shut_down = self.may_shut_down(machine, id);
        let answer = BrokerHeartbeatResponse {
            error: Some(ok()),
            fenced: stored.is_none_or(|stored| stored.fenced),
            may_shut_down,
            lease_ms: self.settings.broker_lease_ms,
        };
        out.push(Effect::Reply(ticket, Reply::BrokerHeartbeat(answer)));
        // It stops now. Its session need not run out first.
        if may_shut_down && let Some(stored) = stored.filter(|stored| !stored.fenced) {
            self.fence(id, stored, out);
        }
    }

    fn fence(&mut self, id: NodeId, stored: &BrokerRecord, out: &mut Vec<Effect>) {
        if let Some(session) = self.brokers.0.get_mut(&id) {
            session.is_settling = true;
        }
        self.propose(Purpose::Fence(id), fencing(stored), out);
    }

    /// Whether no partition needs it and every live broker knows so (REPLICATION 3.4, controlled shutdown). Refused for as long
    /// as some partition would lose its leader or fall below its minimum while another replica may still come into sync; the
    /// broker waits as long as it likes.
    fn may_shut_down(&self, machine: &Machine, id: NodeId) -> bool {
        let state = machine.state();
        let decided = self.brokers.0.get(&id).and_then(|session| session.shutdown_index);
        let Some(index) = decided.filter(|_| state.broker(id).is_some_and(|stored| stored.shutting_down)) else {
            return false;
        };
        let others_know = state
            .brokers()
            .filter(|(other, broker)| *other != id && !broker.fenced)
            .all(|(other, _)| self.brokers.0.get(&other).is_some_and(|session| session.metadata_index >= index));
        others_know && !self.is_needed(machine, id)
    }

    fn is_needed(&self, machine: &Machine, id: NodeId) -> bool {
        let (state, context) = (machine.state(), self.context(machine));
        state.partitions().any(|(topic, _, partition)| needs(state, &context, topic, partition, id))
    }

    pub(super) fn connection_lost(&mut self, life: Life) {
        if let Some(session) = self.brokers.0.get_mut(&life.id) {
            session.hearing = Hearing::Lost;
        }
    }

    /// Asks for the listeners of brokers that are not heard any more; once for each silence.
    pub(super) fn probe_silent(&mut self, machine: &Machine, out: &mut Vec<Effect>) {
        for (id, session) in self.brokers.0.iter_mut().filter(|(_, session)| session.hearing == Hearing::Lost) {
            session.hearing = Hearing::Probed;
            let stored = machine.state().broker(*id).filter(|stored| !stored.fenced);
            if let Some((stored, endpoint)) = stored.and_then(|stored| Some((stored, stored.endpoints.first()?))) {
                out.push(Effect::Probe(Life { id: *id, epoch: stored.epoch }, endpoint.clone()));
            }
        }
    }

    /// Fences a broker whose listener is gone, if this leader has lost it too (B5): how a killed broker's partitions move
    /// before its lease runs out. Fencing early is always safe.
    pub(super) fn connection_refused(
        &mut self,
        now: MonoTime,
        machine: &Machine,
        suspect: Life,
        report: Option<Ticket>,
        out: &mut Vec<Effect>,
    ) {
        let overdue = 3 * u64::from(self.settings.broker_heartbeat_interval_ms);
        let stored =
            machine.state().broker(suspect.id).filter(|stored| stored.epoch == suspect.epoch && !stored.fenced);
        let session = self.brokers.0.get_mut(&suspect.id).filter(|session| {
            !session.is_settling && (session.hearing != Hearing::Open || session.heard_at.plus_ms(overdue) <= now)
        });
        match (stored, session, report) {
            (Some(stored), Some(session), None) => {
                session.is_settling = true;
                self.propose(Purpose::Fence(suspect.id), fencing(stored), out);
            }
            (Some(stored), Some(session), Some(report)) => {
                session.is_settling = true;
                self.propose(Purpose::Reported { suspect, report }, fencing(stored), out);
            }
            (_, _, Some(report)) => self.answer_report(machine, suspect, report, out),
            (_, _, None) => {}
        }
    }

    pub(super) fn report_unreachable(
        &mut self,
        now: MonoTime,
        machine: &Machine,
        ticket: Ticket,
        request: ReportUnreachableRequest,
        out: &mut Vec<Effect>,
    ) {
        let reporter = NodeId(request.broker_id);
        if machine.state().broker(reporter).is_none_or(|stored| stored.epoch != request.broker_epoch) {
            let message = format!("broker {reporter} is not registered at epoch {}", request.broker_epoch);
            let refused = Some(error(ErrorCode::StaleBrokerEpoch, message));
            let answer = ReportUnreachableResponse { error: refused, fenced: false };
            out.push(Effect::Reply(ticket, Reply::ReportUnreachable(answer)));
            return;
        }
        let suspect = Life { id: NodeId(request.suspect_id), epoch: request.suspect_epoch };
        self.connection_refused(now, machine, suspect, Some(ticket), out);
    }

    pub(super) fn answer_report(&self, machine: &Machine, suspect: Life, report: Ticket, out: &mut Vec<Effect>) {
        let stored = machine.state().broker(suspect.id);
        let fenced = stored.is_none_or(|stored| stored.fenced || stored.epoch != suspect.epoch);
        let answer = ReportUnreachableResponse { error: Some(ok()), fenced };
        out.push(Effect::Reply(report, Reply::ReportUnreachable(answer)));
    }

    /// Fences brokers whose lease ran out.
    pub(super) fn fence_expired(&mut self, now: MonoTime, machine: &Machine, out: &mut Vec<Effect>) {
        let is_due = |session: &BrokerSession| !session.is_settling && session.deadline <= now;
        let expired: Vec<NodeId> =
            self.brokers.0.iter().filter(|(_, session)| is_due(session)).map(|(id, _)| *id).collect();
        for id in expired {
            match machine.state().broker(id).filter(|stored| !stored.fenced) {
                Some(stored) => self.fence(id, stored, out),
                None => drop(self.brokers.0.remove(&id)),
            }
        }
    }
}

fn fencing(stored: &BrokerRecord) -> Kind {
    Kind::FenceBroker(FenceBroker { broker_id: stored.id, broker_epoch: stored.epoch })
}

/// What the broker has lost with directories that failed.
fn offline(request: &BrokerHeartbeatRequest, stored: &BrokerRecord) -> Option<TakeOffline> {
    let gone = &request.offline_log_dirs;
    let all = !gone.is_empty() && stored.log_dir_ids.iter().all(|id| gone.contains(id));
    (all || !request.offline_replicas.is_empty()).then(|| TakeOffline {
        broker_id: stored.id,
        broker_epoch: stored.epoch,
        all,
        topics: request.offline_replicas.clone(),
    })
}

/// Whether the newcomer holds the very directories of the life before. It locks them, so that life has ended, unless they are
/// copies; then the life before is still heard. This is how a broker that was killed comes back without waiting for its lease
/// to run out. Fencing early is always safe.
fn took_over(stored: &BrokerRecord, request: &RegisterBrokerRequest) -> bool {
    let holds = |id: &bytes::Bytes| request.log_dirs.iter().any(|dir| dir.dir_id == *id);
    request.incarnation > stored.incarnation && !stored.log_dir_ids.is_empty() && stored.log_dir_ids.iter().all(holds)
}

/// Where the registration is in the feed: its epoch is the index of its entry.
fn registered_at(machine: &Machine, broker: &BrokerRecord) -> u64 {
    u64::try_from(broker.epoch).unwrap_or(0).min(machine.feed_index())
}

fn current<'a>(
    state: &'a State,
    request: &BrokerHeartbeatRequest,
) -> Result<&'a BrokerRecord, thalweg_proto::v1::KafkaError> {
    let id = request.broker_id;
    let Some(stored) = state.broker(NodeId(id)) else {
        return Err(error(ErrorCode::BrokerIdNotRegistered, format!("broker {id} is not registered")));
    };
    if stored.epoch != request.broker_epoch {
        let message = format!("broker {id} is at epoch {}, not {}; register again", stored.epoch, request.broker_epoch);
        return Err(error(ErrorCode::StaleBrokerEpoch, message));
    }
    Ok(stored)
}

pub(super) fn refusal(outcome: Outcome) -> thalweg_proto::v1::KafkaError {
    match outcome {
        Outcome::Refused(refused) => refused,
        _ => error(ErrorCode::UnknownServerError, "the coordinator's answer does not fit the question"),
    }
}
