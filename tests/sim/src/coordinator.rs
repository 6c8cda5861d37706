//! The coordinators: the product's registries and sessions over a replicated log that never loses what it committed.

use std::collections::{BTreeMap, VecDeque};

use thalweg_broker::machine::isr::IsrProposal;
use thalweg_coordinator::CoordinatorSettings;
use thalweg_coordinator::registry::context::{Context, Seed};
use thalweg_coordinator::registry::state::is_fed;
use thalweg_coordinator::registry::{Machine, Outcome, features};
use thalweg_coordinator::session::{self, Call, Effect, ProposalId, Reply, Session, Ticket};
use thalweg_model::{BrokerEpoch, MonoTime, NodeId, Timestamp};
use thalweg_proto::v1;
use thalweg_proto::v1::command::Kind;

use crate::deposed::Deposed;
use crate::feed::Stream;
use crate::groups::GroupAnswer;
use crate::message::{Body, Event, Life, Message, Node};
use crate::plan::{MS, Plan};
use crate::rng::Rng;
use crate::world::{Phase, World};

/// All coordinators as one node: commands commit in order after a while; leadership comes and goes.
pub struct Coordinator {
    pub machine: Machine,
    /// `None` while nobody leads.
    pub session: Option<Session>,
    settings: CoordinatorSettings,
    leadership: u64,
    proposed: VecDeque<Entry>,
    commit_max: u64,
    tick_at: Option<u64>,
    askers: BTreeMap<Ticket, Asker>,
    next_ticket: u64,
    pub kept: VecDeque<v1::FeedItem>,
    pub kept_max: usize,
    /// Every item after this index is in `kept`.
    pub floor: u64,
    pub streams: Vec<Option<Stream>>,
    pub next_stream: u64,
    /// The wall clock; jumps.
    pub wall_ms: i64,
    /// A leader that does not know that it is not one any more.
    pub deposed: Option<Deposed>,
    /// Whether an administrator wants there to be a topic.
    pub is_topic_wanted: bool,
}

struct Entry {
    ready: u64,
    command: v1::Command,
    origin: Origin,
}

enum Origin {
    Nobody,
    Session { leadership: u64, proposal: ProposalId },
    Isr { broker: Node, life: Life, partition: usize, asked: IsrProposal },
}

pub enum Asker {
    Register { broker: Node, life: Life },
    Heartbeat { broker: Node, life: Life, sent: MonoTime, broker_epoch: i64 },
    Member { node: Node, call: u64 },
}

impl Coordinator {
    pub fn new(plan: &Plan, rng: &mut Rng) -> Coordinator {
        Coordinator {
            machine: Machine::default(),
            session: None,
            settings: CoordinatorSettings {
                broker_lease_ms: plan.lease_ms,
                broker_heartbeat_interval_ms: (plan.heartbeat / MS) as u32,
                preferred_leader_interval_ms: plan.preferred_leader_interval_ms,
                group_initial_rebalance_delay_ms: plan.groups.initial_delay_ms,
                group_min_session_timeout_ms: 1,
                offsets_retention_ms: plan.groups.retention_ms,
                offsets_retention_check_interval_ms: plan.groups.expiry_interval_ms,
                ..CoordinatorSettings::default()
            },
            leadership: 0,
            proposed: VecDeque::new(),
            commit_max: rng.between(1, 15) * MS,
            tick_at: None,
            askers: BTreeMap::new(),
            next_ticket: 0,
            kept: VecDeque::new(),
            kept_max: plan.feed_kept,
            floor: 0,
            streams: (0..plan.broker_count).map(|_| None).collect(),
            next_stream: 0,
            wall_ms: 1_700_000_000_000,
            deposed: None,
            is_topic_wanted: false,
        }
    }

    pub fn is_led(&self) -> bool {
        self.session.is_some()
    }

    /// A member's call that waits here, and that its member does not wait for.
    pub fn unwanted_call(&self, is_wanted: impl Fn(Node, u64) -> bool) -> Option<(Node, u64)> {
        self.askers.values().find_map(|asker| match asker {
            Asker::Member { node, call } => Some((*node, *call)).filter(|(node, call)| !is_wanted(*node, *call)),
            Asker::Register { .. } | Asker::Heartbeat { .. } => None,
        })
    }

    /// Those under which a member's call waits; they wait no more.
    pub fn tickets_of(&mut self, from: Node, from_call: u64) -> Vec<Ticket> {
        let is_it =
            |asker: &Asker| matches!(asker, Asker::Member { node, call } if (*node, *call) == (from, from_call));
        let tickets: Vec<Ticket> =
            self.askers.iter().filter(|(_, asker)| is_it(asker)).map(|(ticket, _)| *ticket).collect();
        self.askers.retain(|ticket, _| !tickets.contains(ticket));
        tickets
    }

    pub fn has_stream(&self, broker: usize, life: Life) -> bool {
        self.streams[broker].as_ref().is_some_and(|stream| stream.life == life)
    }
}

impl World {
    pub fn begin_leadership(&mut self) {
        if self.coordinator.session.is_some() {
            return;
        }
        let now = MonoTime(self.now);
        let coordinator = &mut self.coordinator;
        coordinator.leadership += 1;
        let session = Session::restore(coordinator.settings.clone(), &coordinator.machine, now);
        coordinator.session = Some(session);
        coordinator.tick_at = None;
        if coordinator.machine.state().cluster_id().is_none() {
            self.propose(session::command(first_command()), Origin::Nobody);
        }
        self.plan_tick();
    }

    /// The leader of the coordinators is gone: its sessions with it, and of what it had proposed, a part.
    pub fn end_leadership(&mut self, downtime: u64) {
        if self.coordinator.session.take().is_none() {
            return;
        }
        self.depose(downtime);
        self.coordinator.askers.clear();
        self.coordinator.streams.iter_mut().for_each(|stream| *stream = None);
        let kept = self.rng.index(self.coordinator.proposed.len() + 1);
        let mut entries = std::mem::take(&mut self.coordinator.proposed);
        entries.truncate(kept);
        if !entries.is_empty() {
            self.apply_entry(entries.into());
        }
        self.after(downtime, Event::Elected);
    }

    pub fn coordinator_received(&mut self, message: Message) {
        if self.is_for_deposed() {
            return self.deposed_received(message);
        }
        if self.coordinator.session.is_none() {
            return;
        }
        let broker = message.from;
        match message.body {
            Body::Register { life, request } => {
                let ticket = self.ticket(Asker::Register { broker, life });
                self.session_event(session::Event::Call(ticket, Call::RegisterBroker(request)));
            }
            Body::Heartbeat { life, sent, request } => {
                let broker_epoch = request.broker_epoch;
                let ticket = self.ticket(Asker::Heartbeat { broker, life, sent, broker_epoch });
                self.session_event(session::Event::Call(ticket, Call::BrokerHeartbeat(request)));
            }
            Body::AlterIsr { life, partition, asked, request } => {
                let origin = Origin::Isr { broker, life, partition, asked };
                self.propose(session::command(Kind::AlterIsr(request)), origin);
            }
            Body::Group { call, request } => self.group_asked(broker, call, request),
            Body::GroupWithdrawn { call } => self.group_withdrawn(broker, call),
            Body::Registered { .. }
            | Body::HeartbeatAnswer { .. }
            | Body::AlterIsrAnswer { .. }
            | Body::Fetch { .. }
            | Body::FetchAnswer { .. }
            | Body::Produce { .. }
            | Body::ProduceAnswer { .. }
            | Body::Consume { .. }
            | Body::ConsumeAnswer { .. }
            | Body::GroupAnswer { .. } => {}
        }
    }

    pub fn session_tick(&mut self, leadership: u64) {
        if leadership == self.coordinator.leadership {
            self.coordinator.tick_at = None;
            self.session_event(session::Event::Tick);
        }
    }

    /// Whatever is due in the coordinators' log becomes one entry.
    pub fn commit(&mut self) {
        let mut entries = Vec::new();
        let proposed = &mut self.coordinator.proposed;
        while proposed.front().is_some_and(|entry| entry.ready <= self.now) {
            entries.extend(proposed.pop_front());
        }
        if !entries.is_empty() {
            self.apply_entry(entries);
        }
    }

    /// Makes the topic once every broker is there, then lets faults begin once every broker knows it.
    pub fn set_up(&mut self) {
        let state = self.coordinator.machine.state();
        let live = state.brokers().filter(|(_, broker)| !broker.fenced).count();
        if live < self.brokers.len() {
            return;
        }
        if !self.coordinator.is_topic_wanted {
            self.coordinator.is_topic_wanted = true;
            return self.after(0, Event::Administer);
        }
        let Some(topic) = state.topic(TOPIC).map(|topic| topic.id) else { return };
        let knows = |broker: &crate::broker::Broker| {
            broker.process.as_ref().is_some_and(|process| process.image.topic_by_id(topic).is_some())
        };
        if self.brokers.iter().all(knows) {
            self.phase = Phase::Faults { until: self.now + self.plan.fault_time };
            self.tell(|_| "the topic is there; faults begin".to_owned());
            self.after(self.plan.fault_pause, Event::Fault);
            self.start_clients();
            self.start_members();
        }
    }

    /// An administrator who does not let go makes the topic whenever it should be there and is not.
    pub fn administer(&mut self) {
        self.after(200 * MS, Event::Administer);
        let is_there = self.coordinator.machine.state().topic(TOPIC).is_some();
        if !is_there {
            // Nothing is written, so no sync would ever fail.
            self.brokers.iter_mut().for_each(|broker| broker.disk.is_failing = false);
        }
        // More disk events at once than replication promises to survive could hit the new topic before it has any records.
        let in_trouble = self.brokers.iter().filter(|broker| broker.is_in_trouble()).count();
        let is_safe = in_trouble < self.plan.min_isr;
        if self.coordinator.is_topic_wanted && !is_there && is_safe && self.coordinator.is_led() {
            let command = session::command(self.create_topic());
            self.propose(command, Origin::Nobody);
        }
    }

    /// Proposes what an administrator asks for. Whatever becomes of it, nobody waits.
    pub fn ask_coordinator(&mut self, kind: Kind) -> bool {
        let is_led = self.coordinator.is_led();
        if is_led {
            self.propose(session::command(kind), Origin::Nobody);
        }
        is_led
    }

    fn create_topic(&mut self) -> Kind {
        let mut assignments = Vec::new();
        for partition in 0..self.plan.partition_count {
            let mut ids: Vec<i32> = (1..=self.brokers.len() as i32).collect();
            let mut replicas = Vec::new();
            for _ in 0..self.plan.replication_factor {
                replicas.push(ids.remove(self.rng.index(ids.len())));
            }
            assignments.push(v1::ReplicaAssignment { partition: partition as i32, replicas });
        }
        let config = |key: &str, value: String| v1::ConfigEntry { key: key.to_owned(), value: Some(value) };
        let topic = v1::NewTopic {
            name: TOPIC.to_owned(),
            partitions: -1,
            replication_factor: -1,
            assignments,
            configs: vec![
                config("min.insync.replicas", self.plan.min_isr.to_string()),
                config("durability", self.plan.durability.to_string()),
            ],
            ..v1::NewTopic::default()
        };
        Kind::CreateTopics(v1::CreateTopics { topics: vec![topic], partitions_max: 100 })
    }

    pub fn ticket(&mut self, asker: Asker) -> Ticket {
        let ticket = Ticket(self.coordinator.next_ticket);
        self.coordinator.next_ticket += 1;
        self.coordinator.askers.insert(ticket, asker);
        ticket
    }

    /// A process has ended, and not its machine: the kernel closes its connections.
    pub fn close_connections(&mut self, broker: usize, epoch: Option<BrokerEpoch>) {
        let is_cut = self.links.is_cut(Node(broker + 1), Node::COORDINATOR);
        if let Some(BrokerEpoch(epoch)) = epoch.filter(|_| !is_cut) {
            let delay = self.rng.between(self.plan.network.delay_min, self.plan.network.delay_max);
            let life = session::Life { id: NodeId(broker as i32 + 1), epoch };
            self.after(delay, Event::ConnectionLost { life });
        }
    }

    /// Nobody listens where no process runs; on a link that is cut nobody answers either way.
    pub fn probe(&mut self, life: session::Life) {
        let broker = (life.id.0 - 1) as usize;
        let node = Node(broker + 1);
        let is_cut = self.links.is_cut(node, Node::COORDINATOR) || self.links.is_cut(Node::COORDINATOR, node);
        if !is_cut && !self.brokers[broker].is_up() {
            self.session_event(session::Event::ConnectionRefused(life));
        }
    }

    pub fn session_event(&mut self, event: session::Event) {
        let mut effects = Vec::new();
        let coordinator = &mut self.coordinator;
        let Some(session) = &mut coordinator.session else { return };
        session.on(MonoTime(self.now), &coordinator.machine, event, &mut effects);
        let leadership = coordinator.leadership;
        for effect in effects {
            match effect {
                Effect::Reply(ticket, reply) => self.reply(ticket, reply),
                Effect::Probe(life, _) => {
                    let delay = self.rng.between(self.plan.network.delay_min, self.plan.network.delay_max);
                    self.after(delay, Event::Probe { life });
                }
                Effect::Propose(proposal, command) => self.propose(command, Origin::Session { leadership, proposal }),
            }
        }
        self.plan_tick();
    }

    fn reply(&mut self, ticket: Ticket, reply: Reply) {
        let (to, body) = match (self.coordinator.askers.remove(&ticket), reply) {
            (Some(Asker::Register { broker, life }), Reply::RegisterBroker(answer)) => {
                (broker, Body::Registered { life, answer })
            }
            (Some(Asker::Heartbeat { broker, life, sent, broker_epoch }), Reply::BrokerHeartbeat(answer)) => {
                (broker, Body::HeartbeatAnswer { life, sent, broker_epoch, answer })
            }
            (Some(Asker::Member { node, call }), reply) => {
                (node, Body::GroupAnswer { call, answer: GroupAnswer::Session(reply) })
            }
            (_, reply) => return self.checker.fail(0, format!("an answer that nobody asked for: {reply:?}")),
        };
        self.send(Node::COORDINATOR, to, body);
    }

    fn plan_tick(&mut self) {
        let Some(session) = &self.coordinator.session else { return };
        let MonoTime(deadline) = session.next_deadline();
        if self.coordinator.tick_at.is_none_or(|at| deadline < at) {
            self.coordinator.tick_at = Some(deadline);
            let leadership = self.coordinator.leadership;
            self.at(deadline, Event::SessionTick { leadership });
        }
    }

    fn propose(&mut self, command: v1::Command, origin: Origin) {
        let last = self.coordinator.proposed.back().map_or(0, |entry| entry.ready);
        let ready = last.max(self.now + self.rng.between(MS / 5, self.coordinator.commit_max));
        self.coordinator.proposed.push_back(Entry { ready, command, origin });
        self.at(ready, Event::Commit);
    }

    fn apply_entry(&mut self, entries: Vec<Entry>) {
        let index = self.coordinator.machine.progress().next_index.max(1);
        let seed = Seed::new(self.rng.next_u64(), self.rng.next_u64());
        let time = Timestamp(self.coordinator.wall_ms + (self.now / MS) as i64);
        let mut fed = Vec::new();
        let mut outcomes = Vec::new();
        for (position, entry) in entries.into_iter().enumerate() {
            let context = Context { index, time, seed: seed.of_command(position), default_min_isr: 1 };
            let (outcome, records) = match self.coordinator.machine.apply(&context, &entry.command) {
                Ok(applied) => applied,
                Err(error) => return self.checker.fail(0, format!("a command cannot be applied: {error}")),
            };
            fed.extend(records.into_iter().filter(is_fed));
            self.applied(&entry.command, &outcome);
            outcomes.push((entry.origin, outcome));
        }
        self.coordinator.machine.end_entry(index);
        self.publish(index, fed);
        let feed_index = self.coordinator.machine.feed_index();
        for (origin, outcome) in outcomes {
            match (origin, outcome) {
                (Origin::Nobody, _) => {}
                (Origin::Session { leadership, proposal }, outcome) => {
                    if leadership == self.coordinator.leadership {
                        self.session_event(session::Event::Settled { proposal, outcome, feed_index });
                    }
                }
                (Origin::Isr { broker, life, partition, asked }, Outcome::AlteredIsr(mut answer)) => {
                    answer.index = feed_index;
                    if self.coordinator.session.is_some() {
                        let body = Body::AlterIsrAnswer { life, partition, asked, answer };
                        self.send(Node::COORDINATOR, broker, body);
                    }
                }
                (Origin::Isr { .. }, outcome) => {
                    self.checker.fail(0, format!("a proposal of an ISR came to {outcome:?}"));
                }
            }
        }
    }

    /// A command has changed the registries, or has not: everything that holds after each.
    fn applied(&mut self, command: &v1::Command, outcome: &Outcome) {
        self.follow_topic();
        if let Some(kind) = &command.kind {
            self.check_groups(kind, outcome);
        }
        if let (Some(Kind::RegisterBroker(command)), Outcome::Registered(answer)) = (&command.kind, outcome)
            && let (Some(request), Ok(id @ 1..)) = (&command.request, usize::try_from(answer.broker_id))
        {
            self.tell(|_| format!("coordinator: broker {id} is registered, epoch {}", answer.broker_epoch));
            self.check_registered(id - 1, request);
        }
        if let Some(Kind::FenceBroker(fence)) = &command.kind {
            self.tell(|_| format!("coordinator: broker {} is fenced", fence.broker_id));
        }
        if let Some(Kind::UnfenceBroker(unfence)) = &command.kind {
            self.tell(|_| format!("coordinator: broker {} is let in", unfence.broker_id));
        }
        self.check_registrations();
    }

    pub fn partition(&self, partition: usize) -> Option<&thalweg_coordinator::registry::election::Partition> {
        let part = self.parts.get(partition);
        self.coordinator.machine.state().partition(part.topic, part.index.0)
    }

    pub fn is_unfenced(&self, broker: usize) -> bool {
        let stored = self.coordinator.machine.state().broker(NodeId(broker as i32 + 1));
        stored.is_some_and(|stored| !stored.fenced)
    }
}

/// The cluster begins at the highest level of which there are rules.
fn first_command() -> Kind {
    let level = features::LEVEL.max(4);
    let features = vec![v1::FeatureRecord { name: features::VERSION.to_owned(), level }];
    Kind::InitCluster(v1::InitCluster { cluster_id: vec![7; 16].into(), features })
}

pub const TOPIC: &str = "t";
