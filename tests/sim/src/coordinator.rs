//! The coordinators: the product's registries and sessions over a replicated log that never loses what it committed.

use std::collections::{BTreeMap, VecDeque};

use thalweg_broker::machine::isr::IsrProposal;
use thalweg_coordinator::CoordinatorSettings;
use thalweg_coordinator::registry::context::{Context, Seed};
use thalweg_coordinator::registry::state::is_fed;
use thalweg_coordinator::registry::{Machine, Outcome, features};
use thalweg_coordinator::session::{self, Call, Effect, ProposalId, Reply, Session, Ticket};
use thalweg_model::{BrokerEpoch, MonoTime, NodeId, Timestamp, TopicId};
use thalweg_proto::v1;
use thalweg_proto::v1::command::Kind;

use crate::message::{Body, Event, Life, Message, Node};
use crate::plan::{MS, Plan};
use crate::rng::Rng;
use crate::world::{Phase, World};

/// All coordinators as one node: commands commit in order after a while; leadership comes and goes.
pub struct Coordinator {
    pub machine: Machine,
    /// `None` while nobody leads.
    session: Option<Session>,
    settings: CoordinatorSettings,
    leadership: u64,
    proposed: VecDeque<Entry>,
    commit_max: u64,
    tick_at: Option<u64>,
    askers: BTreeMap<Ticket, Asker>,
    next_ticket: u64,
    kept: VecDeque<v1::FeedItem>,
    kept_max: usize,
    /// Every item after this index is in `kept`.
    floor: u64,
    streams: Vec<Option<Stream>>,
    next_stream: u64,
    /// The wall clock; jumps.
    pub wall_ms: i64,
    pub topic: Option<TopicId>,
    is_topic_asked: bool,
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

enum Asker {
    Register { broker: Node, life: Life },
    Heartbeat { broker: Node, life: Life, sent: MonoTime, broker_epoch: i64 },
}

struct Stream {
    id: u64,
    life: Life,
    queue: VecDeque<v1::FeedItem>,
    is_due: bool,
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
            topic: None,
            is_topic_asked: false,
        }
    }

    pub fn is_led(&self) -> bool {
        self.session.is_some()
    }

    fn has_stream(&self, broker: usize, life: Life) -> bool {
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
            let name = [7; 16];
            self.propose(session::command(features::first_command(name)), Origin::Nobody);
        }
        self.plan_tick();
    }

    /// The leader of the coordinators is gone: its sessions with it, and of what it had proposed, a part.
    pub fn end_leadership(&mut self, downtime: u64) {
        if self.coordinator.session.take().is_none() {
            return;
        }
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
            Body::Registered { .. }
            | Body::HeartbeatAnswer { .. }
            | Body::AlterIsrAnswer { .. }
            | Body::Fetch { .. }
            | Body::FetchAnswer { .. }
            | Body::Produce { .. }
            | Body::ProduceAnswer { .. }
            | Body::Consume { .. }
            | Body::ConsumeAnswer { .. } => {}
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
        if !self.coordinator.is_topic_asked {
            self.coordinator.is_topic_asked = true;
            let command = session::command(self.create_topic());
            return self.propose(command, Origin::Nobody);
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
        }
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
        };
        Kind::CreateTopics(v1::CreateTopics { topics: vec![topic], partitions_max: 100 })
    }

    /// A broker whose feed does not flow asks for it from where it stands.
    pub fn open_stream(&mut self, broker: usize) {
        let Some(process) = &self.brokers[broker].process else { return };
        let (life, from_index, node) = (process.life, process.image.index, Node(broker + 1));
        let is_cut = self.links.is_cut(node, Node::COORDINATOR) || self.links.is_cut(Node::COORDINATOR, node);
        let coordinator = &mut self.coordinator;
        if coordinator.session.is_none() || is_cut || coordinator.has_stream(broker, life) {
            return;
        }
        let machine = &coordinator.machine;
        let is_at_hand = from_index > 0 && (coordinator.floor..=machine.feed_index()).contains(&from_index);
        let queue = if is_at_hand {
            coordinator.kept.iter().filter(|item| item.index > from_index).cloned().collect()
        } else {
            image(machine, &mut self.rng)
        };
        let id = coordinator.next_stream;
        coordinator.next_stream += 1;
        coordinator.streams[broker] = Some(Stream { id, life, queue, is_due: false });
        self.feed_later(broker);
    }

    /// Items reach the broker, in order; on a link that is cut they wait, or the stream breaks.
    pub fn feed(&mut self, broker: usize, stream: u64) {
        let life = self.life(broker);
        let is_cut = self.links.is_cut(Node::COORDINATOR, Node(broker + 1));
        let Some(open) = self.coordinator.streams[broker].as_mut().filter(|open| open.id == stream) else { return };
        if life != Some(open.life) || (is_cut && self.rng.chance(100)) {
            self.coordinator.streams[broker] = None;
            return;
        }
        if is_cut {
            return self.after(100 * MS, Event::Feed { broker, stream });
        }
        open.is_due = false;
        let count = self.rng.between(1, 4) as usize;
        let items: Vec<v1::FeedItem> = open.queue.drain(..count.min(open.queue.len())).collect();
        for item in &items {
            self.feed_item(broker, item);
        }
        self.feed_later(broker);
    }

    fn feed_later(&mut self, broker: usize) {
        let network = self.plan.network;
        let mut delay = self.rng.between(network.delay_min, network.delay_max);
        if matches!(self.phase, Phase::Faults { .. }) && self.rng.chance(network.slow_per_mille) {
            delay += self.rng.between(50, 1_500) * MS;
        }
        let Some(stream) = &mut self.coordinator.streams[broker] else { return };
        if stream.queue.is_empty() || stream.is_due {
            return;
        }
        stream.is_due = true;
        let stream = stream.id;
        self.after(delay, Event::Feed { broker, stream });
    }

    fn ticket(&mut self, asker: Asker) -> Ticket {
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

    fn publish(&mut self, index: u64, records: Vec<v1::Record>) {
        if records.is_empty() {
            return;
        }
        let item = v1::FeedItem { index, records, image_start: false, image_complete: false };
        let coordinator = &mut self.coordinator;
        for stream in coordinator.streams.iter_mut().flatten() {
            stream.queue.push_back(item.clone());
        }
        coordinator.kept.push_back(item);
        while coordinator.kept.len() > coordinator.kept_max {
            coordinator.floor = coordinator.kept.pop_front().map_or(index, |oldest| oldest.index);
        }
        for broker in 0..self.brokers.len() {
            self.feed_later(broker);
        }
    }

    /// A command has changed the registries, or has not: everything that holds after each.
    fn applied(&mut self, command: &v1::Command, outcome: &Outcome) {
        if self.coordinator.topic.is_none() {
            self.coordinator.topic = self.coordinator.machine.state().topic(TOPIC).map(|topic| topic.id);
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
        self.coordinator.machine.state().partition(self.coordinator.topic?, partition as i32)
    }

    pub fn is_unfenced(&self, broker: usize) -> bool {
        let stored = self.coordinator.machine.state().broker(NodeId(broker as i32 + 1));
        stored.is_some_and(|stored| !stored.fenced)
    }
}

/// The whole state, in pieces of any size.
fn image(machine: &Machine, rng: &mut Rng) -> VecDeque<v1::FeedItem> {
    let index = machine.feed_index();
    let mut items = VecDeque::from([v1::FeedItem { index, image_start: true, ..v1::FeedItem::default() }]);
    for record in machine.state().records().filter(is_fed) {
        if rng.chance(200) {
            items.push_back(v1::FeedItem { index, ..v1::FeedItem::default() });
        }
        if let Some(last) = items.back_mut() {
            last.records.push(record);
        }
    }
    if let Some(last) = items.back_mut() {
        last.image_complete = true;
    }
    items
}

pub const TOPIC: &str = "t";
