//! One seed's world: every node, the events to come, and the only clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use thalweg_coordinator::session;
use thalweg_model::MonoTime;

use crate::broker::Broker;
use crate::checker::{Checker, Violation};
use crate::client::{Consumer, Producer};
use crate::coordinator::Coordinator;
use crate::members::Member;
use crate::message::{Event, Life, Message, Node, Timer};
use crate::net::Links;
use crate::parts::Parts;
use crate::plan::{Acks, MS, Plan};
use crate::rng::Rng;

/// Everything that a seed consists of.
pub struct World {
    pub plan: Plan,
    pub rng: Rng,
    pub now: u64,
    pub coordinator: Coordinator,
    pub brokers: Vec<Broker>,
    pub producers: Vec<Producer>,
    pub consumers: Vec<Consumer>,
    pub members: Vec<Member>,
    pub links: Links,
    pub parts: Parts,
    /// Calls to be repeated.
    pub echoes: Vec<Message>,
    /// See [`crate::hosting::Hosted::number`].
    pub next_hosting: u64,
    pub checker: Checker,
    pub phase: Phase,
    pub counts: Counts,
    /// Whoever asks for a story gets every step of it in words.
    pub story: Option<Vec<String>>,
    events: BinaryHeap<Reverse<Due>>,
    next_event: u64,
}

/// Where a seed stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Brokers come up, the topic is made.
    Setup,
    /// Faults, until the time given.
    Faults {
        until: u64,
    },
    /// No more faults; everything has to become well, at the latest at the time given.
    Heal {
        until: u64,
    },
    Done,
}

/// What a seed came to, for sums over many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub events: u64,
    pub faults: u64,
    pub acked: u64,
    pub committed: u64,
    pub elections: u64,
    pub simulated_ns: u64,
}

impl Counts {
    pub fn add(&mut self, other: Counts) {
        self.events += other.events;
        self.faults += other.faults;
        self.acked += other.acked;
        self.committed += other.committed;
        self.elections += other.elections;
        self.simulated_ns += other.simulated_ns;
    }
}

struct Due {
    at: u64,
    number: u64,
    event: Event,
}

impl World {
    pub fn new(seed: u64, is_told: bool) -> World {
        let mut rng = Rng::new(seed);
        let plan = Plan::draw(&mut rng);
        let brokers = (1..=plan.broker_count).map(|id| Broker::new(id, &mut rng)).collect();
        let coordinator = Coordinator::new(&plan, &mut rng);
        let producers = plan.producers.iter().enumerate();
        let producer =
            |(index, acks): (usize, &Acks)| Producer::new(index, *acks, plan.is_idempotent && *acks == Acks::All);
        let producers = producers.map(producer).collect();
        let consumers = (0..plan.consumer_count).map(|_| Consumer::default()).collect();
        let mut members = Vec::new();
        for (group, size) in plan.groups.sizes.iter().enumerate() {
            for index in 0..*size {
                let instance = rng.chance(300).then(|| format!("i{group}-{index}"));
                members.push(Member::new(group, instance));
            }
        }
        let mut world = World {
            checker: Checker::new(&plan),
            links: Links::default(),
            parts: Parts::default(),
            echoes: Vec::new(),
            next_hosting: 0,
            plan,
            rng,
            now: 0,
            coordinator,
            brokers,
            producers,
            consumers,
            members,
            phase: Phase::Setup,
            counts: Counts::default(),
            story: is_told.then(Vec::new),
            events: BinaryHeap::new(),
            next_event: 0,
        };
        if world.story.is_some() {
            let plan = format!("{:?}", world.plan);
            world.tell(|_| plan);
        }
        world.begin_leadership();
        for broker in 0..world.brokers.len() {
            let at = world.rng.below(200 * MS);
            world.at(at, Event::Start { broker });
        }
        world
    }

    /// Runs to the end, or to the first violation.
    pub fn run(&mut self) -> Result<(), Violation> {
        while self.phase != Phase::Done {
            let Some(Reverse(due)) = self.events.pop() else {
                self.checker.fail(21, "nothing is left to happen".to_owned());
                break;
            };
            self.now = due.at;
            self.counts.events += 1;
            self.happen(due.event);
            self.advance_phase();
            if self.checker.has_failed() {
                break;
            }
        }
        self.counts.simulated_ns = self.now;
        self.counts.committed = self.checker.committed_count();
        let violation = self.checker.take_violation();
        if let Some(violation) = &violation {
            self.tell(|_| format!("VIOLATION {violation}"));
        }
        violation.map_or(Ok(()), Err)
    }

    pub fn at(&mut self, at: u64, event: Event) {
        let number = self.next_event;
        self.next_event += 1;
        self.events.push(Reverse(Due { at: at.max(self.now), number, event }));
    }

    pub fn after(&mut self, delay: u64, event: Event) {
        self.at(self.now.saturating_add(delay), event);
    }

    /// Sets a timer of the broker's running process.
    pub fn timer(&mut self, broker: usize, delay: u64, timer: Timer) {
        if let Some(process) = &self.brokers[broker].process {
            let life = process.life;
            // The broker counts by its own clock.
            let delay = self.brokers[broker].clock.to_world(delay);
            self.after(delay, Event::Broker { broker, life, timer });
        }
    }

    /// What the broker's monotonic clock says.
    pub fn local(&self, broker: usize) -> MonoTime {
        self.brokers[broker].clock.read(self.now)
    }

    pub fn life(&self, broker: usize) -> Option<Life> {
        self.brokers[broker].process.as_ref().map(|process| process.life)
    }

    pub fn tell(&mut self, line: impl FnOnce(&World) -> String) {
        if self.story.is_some() {
            let line = format!("{:>10.3} ms  {}", self.now as f64 / MS as f64, line(self));
            if let Some(story) = &mut self.story {
                story.push(line);
            }
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Deliver(message) => self.deliver(message),
            Event::Broker { broker, life, timer } => {
                if self.life(broker) != Some(life) {
                    return;
                }
                match self.paused_until(broker) {
                    Some(until) => self.at(until, Event::Broker { broker, life, timer }),
                    None => self.broker_timer(broker, timer),
                }
            }
            Event::Commit => self.commit(),
            Event::SessionTick { leadership } => self.session_tick(leadership),
            Event::Elected => self.begin_leadership(),
            Event::ConnectionLost { life } => self.session_event(session::Event::ConnectionLost(life)),
            Event::Probe { life } => self.probe(life),
            Event::Feed { broker, stream } => match self.paused_until(broker) {
                Some(until) => self.at(until, Event::Feed { broker, stream }),
                None => self.feed(broker, stream),
            },
            Event::Produce { producer } => self.produce(producer),
            Event::ProduceTimeout { producer, request } => self.produce_timeout(producer, request),
            Event::Consume { consumer } => self.consume(consumer),
            Event::Start { broker } => self.start(broker),
            Event::Member { member } => self.member(member),
            Event::Fault => self.fault(),
            Event::Remedy(remedy) => self.remedy(remedy),
            Event::Administer => self.administer(),
            Event::WantTopic => self.coordinator.is_topic_wanted = true,
        }
    }

    fn deliver(&mut self, message: Box<Message>) {
        if self.links.is_cut(message.from, message.to) {
            return;
        }
        let Node(to) = message.to;
        if message.to == Node::COORDINATOR {
            return self.coordinator_received(*message);
        }
        if to > self.brokers.len() {
            return self.client_received(*message);
        }
        match self.paused_until(to - 1) {
            Some(until) => self.at(until, Event::Deliver(message)),
            None => self.broker_received(to - 1, *message),
        }
    }

    fn paused_until(&self, broker: usize) -> Option<u64> {
        let until = self.brokers[broker].paused_until;
        (until > self.now).then_some(until)
    }

    fn advance_phase(&mut self) {
        match self.phase {
            Phase::Setup => self.set_up(),
            Phase::Faults { until } if self.now >= until => self.heal(),
            Phase::Heal { until } => {
                // Looking at everything costs time; faults are over, so nothing is missed by looking now and then.
                if self.counts.events.is_multiple_of(64) && self.is_well().is_ok() {
                    self.phase = Phase::Done;
                } else if self.now >= until
                    && let Err(why) = self.is_well()
                {
                    self.checker.fail(21, format!("not well in time: {why}"));
                }
            }
            Phase::Faults { .. } | Phase::Done => {}
        }
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Due) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}
