//! Runs the session machine while this node leads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use openraft::ChangeMembers;
use openraft::async_runtime::WatchReceiver;
use thalweg_proto::v1::command::Kind;
use thalweg_proto::v1::config_change::Op;
use thalweg_proto::v1::config_record::Resource;
use thalweg_proto::v1::{AdmitCoordinator, AlterConfigs, ConfigChange, ConfigResource, Endpoint};
use thalweg_world::Clock;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::batcher::{Batcher, Raft, Settled, confirm_lead};
use super::members::{Members, MembersError};
use super::staffing::Staffing;
use super::state_machine::Shared;
use super::types::CoordinatorNode;
use crate::error::ProposeError;
use crate::metrics::CoordinatorMetrics;
use crate::registry::configs::KIND_BROKER;
use crate::registry::features;
use crate::registry::min_isr::MIN_ISR;
use crate::session::{Call, Effect, Event, Life, ProposalId, Reply, Session, Ticket, command};
use crate::settings::CoordinatorSettings;

/// A call and where its answer goes.
struct Asked {
    ticket: Ticket,
    call: Call,
    reply: oneshot::Sender<Answer>,
}

type Answer = Result<Reply, ProposeError>;

/// The way to the present leader's sessions, if this node leads.
#[derive(Clone)]
pub struct Sessions {
    entrance: watch::Receiver<Option<Entrance>>,
    tickets: Arc<AtomicU64>,
}

#[derive(Clone)]
struct Entrance {
    calls: mpsc::Sender<Asked>,
    notices: mpsc::UnboundedSender<Event>,
}

impl Sessions {
    /// Asks the sessions. Dropping the future withdraws the call.
    ///
    /// # Errors
    /// This node does not lead, or ceased to while the call waited; then its outcome is not known.
    pub async fn ask(&self, call: Call) -> Result<Reply, ProposeError> {
        let Some(entrance) = self.entrance.borrow().clone() else {
            return Err(ProposeError::NotLeader { leader: None });
        };
        let can_be_repeated = call.can_be_repeated();
        let ticket = Ticket(self.tickets.fetch_add(1, Ordering::Relaxed));
        let (reply, answer) = oneshot::channel();
        let asked = Asked { ticket, call, reply };
        entrance.calls.send(asked).await.map_err(|_| ProposeError::NotLeader { leader: None })?;
        let mut withdrawal = Withdrawal { ticket: Some(ticket), notices: entrance.notices };
        let answer = answer.await;
        withdrawal.ticket = None;
        match answer {
            Ok(answer) => answer,
            Err(_) if can_be_repeated => Err(ProposeError::NotLeader { leader: None }),
            Err(_) => Err(ProposeError::Unknown),
        }
    }

    /// Tells the sessions of something that nobody waits for an answer to. Nothing happens if this node does not lead.
    pub fn notice(&self, event: Event) {
        if let Some(entrance) = &*self.entrance.borrow() {
            // The leadership may just have ended.
            drop(entrance.notices.send(event));
        }
    }

    /// Returns once this node leads and answers.
    pub async fn wait_until_leading(&mut self) -> bool {
        self.entrance.wait_for(Option::is_some).await.is_ok()
    }
}

impl Asked {
    /// It has not been looked at, so it can safely be asked elsewhere.
    fn turn_away(self) {
        drop(self.reply.send(Err(ProposeError::NotLeader { leader: None })));
    }
}

fn turn_away(asked: &mut mpsc::Receiver<Asked>) {
    asked.close();
    while let Ok(call) = asked.try_recv() {
        call.turn_away();
    }
}

fn set_min_isr(value: i32) -> Kind {
    let change = ConfigChange { key: MIN_ISR.to_owned(), op: Op::Set as i32, value: Some(value.to_string()) };
    let brokers = ConfigResource { kind: KIND_BROKER, changes: vec![change], ..ConfigResource::default() };
    Kind::AlterConfigs(AlterConfigs { resources: vec![brokers] })
}

/// The broker, if its listener refuses: nobody is there. Whatever else goes wrong says nothing about it.
async fn probe(life: Life, endpoint: Endpoint) -> Option<Life> {
    let port = u16::try_from(endpoint.port).ok()?;
    let connecting = TcpStream::connect((endpoint.host.as_str(), port));
    let outcome = tokio::time::timeout(PROBE_TIMEOUT, connecting).await.ok()?;
    outcome.is_err_and(|cause| cause.kind() == std::io::ErrorKind::ConnectionRefused).then_some(life)
}

struct Withdrawal {
    ticket: Option<Ticket>,
    notices: mpsc::UnboundedSender<Event>,
}

impl Drop for Withdrawal {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            // One message for each call at most; after the leadership ended there is nothing to withdraw from.
            let _ = self.notices.send(Event::Withdrawn(ticket));
        }
    }
}

/// Leads whenever Raft says so.
pub struct LeaderRunner {
    pub node_id: u64,
    /// How others reach this node.
    pub address: String,
    pub raft: Raft,
    pub members: Members,
    pub shared: Arc<Shared>,
    pub batcher: Batcher,
    pub settings: CoordinatorSettings,
    pub clock: Clock,
    pub metrics: Arc<CoordinatorMetrics>,
    pub stop: CancellationToken,
}

type Proposed = (ProposalId, Result<Settled, ProposeError>);

impl LeaderRunner {
    /// The way in, and the task to spawn; the task ends with `stop`.
    pub fn start(self) -> (Sessions, impl Future<Output = ()> + Send) {
        let (opener, entrance) = watch::channel(None);
        (Sessions { entrance, tickets: Arc::default() }, self.run(opener))
    }

    async fn run(self, opener: watch::Sender<Option<Entrance>>) {
        let stop = self.stop.clone();
        loop {
            let led = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                term = self.wait_for_leadership() => term,
            };
            let Some(term) = led else { return };
            let (calls, mut asked) = mpsc::channel(CALLS_MAX);
            let (notices, mut noticed) = mpsc::unbounded_channel();
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                raft_goes_on = self.wait_for_end(term) => if raft_goes_on { continue } else { return },
                () = self.prepare() => {}
            }
            info!(term, "leading the coordinators");
            self.metrics.is_leader.store(1, Ordering::Relaxed);
            opener.send_replace(Some(Entrance { calls, notices }));
            let delay_ms = self.settings.coordinator_replacement_delay_ms;
            let staffing = Staffing::new(self.node_id, self.members.clone(), delay_ms);
            let raft_goes_on = tokio::select! {
                biased;
                () = stop.cancelled() => false,
                raft_goes_on = self.wait_for_end(term) => {
                    warn!(term, "leading the coordinators no more");
                    raft_goes_on
                }
                () = self.lead(&mut asked, &mut noticed) => true,
                () = staffing.run() => true,
            };
            opener.send_replace(None);
            self.metrics.is_leader.store(0, Ordering::Relaxed);
            self.shared.feed.cut(None);
            turn_away(&mut asked);
            if !raft_goes_on {
                return;
            }
        }
    }

    /// Returns once this node knows everything that earlier leaders committed, and the registries know the cluster and its
    /// coordinators.
    async fn prepare(&self) {
        let mut is_told = false;
        while let Err(cause) = self.introduce().await {
            if !std::mem::replace(&mut is_told, true) {
                warn!(%cause, "leads, and reaches too few other coordinators");
            }
            tokio::time::sleep(PREPARE_INTERVAL).await;
        }
    }

    async fn introduce(&self) -> Result<(), ProposeError> {
        confirm_lead(&self.raft).await?;
        if self.shared.machine().state().cluster_id().is_none() {
            let cluster = self.members.me.cluster().and_then(|id| <[u8; 16]>::try_from(&id[..]).ok());
            let level = self.founding_level().await;
            let first = features::founding(cluster.unwrap_or_else(rand::random), level);
            self.batcher.propose(command(first)).await?;
        }
        let is_settled =
            self.shared.machine().state().config(Resource::Broker, "").is_some_and(|set| set.contains_key(MIN_ISR));
        if !is_settled {
            // From the file this once; then it is a matter of the registries, where it is the same for everybody.
            self.batcher.propose(command(set_min_isr(self.settings.default_min_isr))).await?;
        }
        // This very node may listen elsewhere than before; nobody else can say so while it leads.
        let own = CoordinatorNode { address: self.address.clone(), identity: self.members.me.identity.clone() };
        if self.members.membership().get_node(&self.node_id).is_some_and(|node| *node != own) {
            let change = ChangeMembers::SetNodes(BTreeMap::from([(self.node_id, own)]));
            self.members.change(change).await.map_err(|cause| match cause {
                MembersError::Propose(cause) => cause,
                MembersError::Refused(_) => ProposeError::Unknown,
            })?;
        }
        let unknown: Vec<AdmitCoordinator> = {
            let machine = self.shared.machine();
            let membership = self.members.membership();
            let nodes = membership.nodes().filter(|(id, _)| machine.state().coordinator(**id).is_none());
            nodes.map(|(id, node)| AdmitCoordinator { id: *id, identity: node.identity.clone() }).collect()
        };
        for admission in unknown {
            self.batcher.propose(command(Kind::AdmitCoordinator(admission))).await?;
        }
        Ok(())
    }

    /// The highest that every founder can do. One that is away now and cannot do it says so and stops when it is back.
    async fn founding_level(&self) -> u32 {
        let founders = self.members.describe_levels().await;
        let levels = founders.iter().filter_map(|node| match node.levels {
            Some(levels) => Some(levels.max),
            None if node.answers => Some(features::LEVEL_OF_LEVELS - 1),
            None => None,
        });
        levels.min().unwrap_or(self.members.levels.max)
    }

    async fn lead(&self, asked: &mut mpsc::Receiver<Asked>, noticed: &mut mpsc::UnboundedReceiver<Event>) {
        let mut session = {
            let machine = self.shared.machine();
            Session::restore(self.settings.clone(), &machine, self.clock.mono())
        };
        let mut replies: BTreeMap<Ticket, oneshot::Sender<Answer>> = BTreeMap::new();
        let mut proposed: FuturesUnordered<BoxFuture<'_, Proposed>> = FuturesUnordered::new();
        let mut probes: FuturesUnordered<BoxFuture<'_, Option<Life>>> = FuturesUnordered::new();
        let mut calls = Vec::new();
        let mut events = Vec::new();
        loop {
            let timer = self.until(&session);
            tokio::select! {
                biased;
                Some((proposal, result)) = proposed.next(), if !proposed.is_empty() => match result {
                    Ok(Settled { outcome, feed_index }) => events.push(Event::Settled { proposal, outcome, feed_index }),
                    // What was asked may or may not have happened; a new leadership finds out from the registries.
                    Err(cause) => {
                        warn!(%cause, "a command came to no outcome");
                        return;
                    }
                },
                Some(event) = noticed.recv() => {
                    if let Event::Withdrawn(ticket) = &event {
                        replies.remove(ticket);
                    }
                    events.push(event);
                }
                Some(refused) = probes.next(), if !probes.is_empty() => {
                    events.extend(refused.map(Event::ConnectionRefused));
                }
                count = asked.recv_many(&mut calls, CALLS_AT_ONCE) => {
                    // One barrier for all: an answer that grants something comes from who still leads (REPLICATION R6).
                    if count == 0 {
                        return;
                    }
                    if let Err(cause) = confirm_lead(&self.raft).await {
                        warn!(%cause, "cannot tell whether this node still leads");
                        calls.drain(..).for_each(Asked::turn_away);
                        return;
                    }
                    for Asked { ticket, call, reply } in calls.drain(..) {
                        replies.insert(ticket, reply);
                        events.push(Event::Call(ticket, call));
                    }
                }
                () = tokio::time::sleep(timer) => events.push(Event::Tick),
            }
            for effect in self.step(&mut session, &mut events) {
                match effect {
                    Effect::Reply(ticket, reply) => {
                        if let Some(waiting) = replies.remove(&ticket) {
                            // Whoever asked may have gone away.
                            drop(waiting.send(Ok(reply)));
                        }
                    }
                    Effect::Probe(life, endpoint) => probes.push(Box::pin(probe(life, endpoint))),
                    Effect::Propose(id, command) => {
                        let batcher = &self.batcher;
                        proposed.push(Box::pin(async move { (id, batcher.propose(command).await) }));
                    }
                }
            }
        }
    }

    fn step(&self, session: &mut Session, events: &mut Vec<Event>) -> Vec<Effect> {
        let mut effects = Vec::new();
        let machine = self.shared.machine();
        for event in events.drain(..) {
            session.on(self.clock.mono(), &machine, event, &mut effects);
        }
        drop(machine);
        self.metrics.groups_with_members.store(session.group_count() as u64, Ordering::Relaxed);
        self.metrics.rebalances.store(session.rebalance_count(), Ordering::Relaxed);
        effects
    }

    fn until(&self, session: &Session) -> Duration {
        session.next_deadline().since(self.clock.mono())
    }

    /// The term in which this node leads; `None` if Raft has stopped.
    async fn wait_for_leadership(&self) -> Option<u64> {
        let mut raft = self.raft.server_metrics();
        loop {
            {
                let now = raft.borrow_watched();
                if now.state.is_leader() {
                    return Some(now.vote.leader_id.term);
                }
            }
            raft.changed().await.ok()?;
        }
    }

    /// Returns once this node does not lead in `term` any more: whether Raft goes on without it. What Raft said last still names
    /// it as the leader when Raft itself has ended.
    async fn wait_for_end(&self, term: u64) -> bool {
        let mut raft = self.raft.server_metrics();
        loop {
            {
                let now = raft.borrow_watched();
                if !now.state.is_leader() || now.vote.leader_id.term != term {
                    return true;
                }
            }
            if raft.changed().await.is_err() {
                return false;
            }
        }
    }
}

const CALLS_MAX: usize = 4_096;
const CALLS_AT_ONCE: usize = 256;
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
const PREPARE_INTERVAL: Duration = Duration::from_millis(100);
