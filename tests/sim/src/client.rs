//! Producers of unique values and consumers that read each record once.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use thalweg_model::{ErrorCode, LeaderEpoch, Offset, ProducerId};

use crate::log::{Sequence, SimRecord};
use crate::message::{Body, Event, Message, Node};
use crate::plan::{Acks, MS};
use crate::world::{Phase, World};

/// Writes to random partitions, a few batches at a time; asks again a few times if it hears nothing good.
pub struct Producer {
    index: usize,
    acks: Acks,
    /// The next sequence in each partition, if the producer is idempotent: it then has one batch under way in each, and never
    /// gives it up.
    sequences: Option<Vec<i32>>,
    next_value: u64,
    next_request: u64,
    leaders: Vec<Option<usize>>,
    /// Of the newest leaders heard of; older news is not taken (KIP-320).
    epochs: Vec<LeaderEpoch>,
    outstanding: BTreeMap<u64, Batch>,
    again: VecDeque<Batch>,
    /// Partitions that took a batch after the faults were over.
    is_proved: Vec<bool>,
}

#[derive(Clone, Debug)]
struct Batch {
    partition: usize,
    values: Vec<u64>,
    sequence: Option<Sequence>,
    tries: u32,
}

/// Reads every partition from its start.
#[derive(Default)]
pub struct Consumer {
    positions: Vec<Position>,
}

#[derive(Clone, Debug)]
struct Position {
    next: Offset,
    read_epoch: LeaderEpoch,
    /// A leader and its epoch; never an older one than before (KIP-320).
    leader: Option<(usize, LeaderEpoch)>,
    epoch: LeaderEpoch,
    request: u64,
    asked_at: Option<u64>,
}

impl Producer {
    pub fn new(index: usize, acks: Acks, is_idempotent: bool) -> Producer {
        Producer {
            index,
            acks,
            sequences: is_idempotent.then(Vec::new),
            next_value: 1,
            next_request: 0,
            leaders: Vec::new(),
            epochs: Vec::new(),
            outstanding: BTreeMap::new(),
            again: VecDeque::new(),
            is_proved: Vec::new(),
        }
    }

    /// There is one more than there were.
    pub fn add_partition(&mut self) {
        self.sequences.iter_mut().for_each(|sequences| sequences.push(0));
        self.leaders.push(None);
        self.epochs.push(LeaderEpoch::NONE);
        self.is_proved.push(false);
    }

    fn batch(&mut self, partition: usize, count: u64) -> Batch {
        let first = (self.index as u64) << 40 | self.next_value;
        self.next_value += count;
        let producer = ProducerId(self.index as i64);
        let sequence = self.sequences.as_mut().map(|sequences| {
            let number = sequences[partition];
            sequences[partition] += count as i32;
            Sequence { producer, number }
        });
        Batch { partition, values: (first..first + count).collect(), sequence, tries: 0 }
    }

    fn is_busy_with(&self, partition: usize) -> bool {
        self.outstanding.values().chain(&self.again).any(|batch| batch.partition == partition)
    }

    fn is_done(&self, live: Range<usize>) -> bool {
        self.outstanding.is_empty() && self.again.is_empty() && self.is_proved[live].iter().all(|is_proved| *is_proved)
    }
}

impl Consumer {
    /// There is one more than there were.
    pub fn add_partition(&mut self) {
        let position = Position {
            next: Offset::ZERO,
            read_epoch: LeaderEpoch::NONE,
            leader: None,
            epoch: LeaderEpoch::NONE,
            request: 0,
            asked_at: None,
        };
        self.positions.push(position);
    }
}

impl World {
    pub fn start_clients(&mut self) {
        for producer in 0..self.producers.len() {
            let at = self.rng.below(50 * MS);
            self.after(at, Event::Produce { producer });
        }
        for consumer in 0..self.consumers.len() {
            let at = self.rng.below(50 * MS);
            self.after(at, Event::Consume { consumer });
        }
    }

    pub fn produce(&mut self, producer: usize) {
        let pause = self.rng.between(MS, self.plan.produce_pause);
        self.after(pause, Event::Produce { producer });
        let Some(partition) = self.any_live() else { return };
        let count = self.rng.between(1, 6);
        let is_healing = matches!(self.phase, Phase::Heal { .. });
        let this = &mut self.producers[producer];
        // What was meant for a topic that is gone is given up.
        this.again.retain(|batch| self.parts.is_live(batch.partition));
        if let Some(batch) = this.again.pop_front() {
            return self.send_batch(producer, batch);
        }
        let wants = if is_healing {
            // Each partition has to take one more batch.
            !this.is_proved[partition] && !this.is_busy_with(partition)
        } else {
            this.outstanding.len() < 5 && (this.sequences.is_none() || !this.is_busy_with(partition))
        };
        if wants {
            if is_healing && this.acks == Acks::None {
                this.is_proved[partition] = true;
            }
            let batch = this.batch(partition, count);
            self.send_batch(producer, batch);
        }
    }

    fn send_batch(&mut self, producer: usize, mut batch: Batch) {
        let partition = batch.partition;
        let Some(leader) = self.producers[producer].leaders[partition].or_else(|| self.ask_leader(producer, partition))
        else {
            self.producers[producer].again.push_back(batch);
            return;
        };
        batch.tries += 1;
        let from = self.producer_node(producer);
        let this = &mut self.producers[producer];
        this.leaders[partition] = Some(leader);
        let (request, acks, values, sequence) = (this.next_request, this.acks, batch.values.clone(), batch.sequence);
        this.next_request += 1;
        if acks != Acks::None {
            this.outstanding.insert(request, batch);
            self.after(1_500 * MS, Event::ProduceTimeout { producer, request });
        }
        self.send(from, Node(leader + 1), Body::Produce { request, partition, acks, values, sequence });
    }

    pub fn produce_timeout(&mut self, producer: usize, request: u64) {
        self.produce_failed(producer, request);
    }

    fn produce_failed(&mut self, producer: usize, request: u64) {
        let is_healing = matches!(self.phase, Phase::Heal { .. });
        let this = &mut self.producers[producer];
        let Some(batch) = this.outstanding.remove(&request) else { return };
        this.leaders[batch.partition] = None;
        let is_live = self.parts.is_live(batch.partition);
        if !is_live {
            return;
        }
        if batch.tries < 4 || is_healing || this.sequences.is_some() {
            this.again.push_back(batch);
        }
    }

    pub fn client_received(&mut self, message: Message) {
        let Node(to) = message.to;
        let index = to - self.brokers.len() - 1;
        let clients = self.producers.len() + self.consumers.len();
        match message.body {
            Body::ProduceAnswer { request, result: Ok(_) } => {
                let is_healing = matches!(self.phase, Phase::Heal { .. });
                let this = &mut self.producers[index];
                if let Some(batch) = this.outstanding.remove(&request) {
                    this.is_proved[batch.partition] |= is_healing;
                }
            }
            Body::ProduceAnswer { request, result: Err(error) } => {
                let asked = self.producers[index].outstanding.get(&request);
                let is_asked = asked.is_some_and(|batch| self.parts.is_live(batch.partition));
                if error == ErrorCode::OutOfOrderSequenceNumber && is_asked {
                    self.checker
                        .fail(15, format!("producer {index} is told that a batch before request {request} is missing"));
                }
                self.produce_failed(index, request);
            }
            Body::ConsumeAnswer { partition, request, result } => {
                self.consume_answered(index - self.producers.len(), partition, request, result);
            }
            Body::GroupAnswer { call, answer } => self.group_answered(index - clients, call, answer),
            Body::Register { .. }
            | Body::Registered { .. }
            | Body::Heartbeat { .. }
            | Body::HeartbeatAnswer { .. }
            | Body::AlterIsr { .. }
            | Body::AlterIsrAnswer { .. }
            | Body::Fetch { .. }
            | Body::FetchAnswer { .. }
            | Body::Produce { .. }
            | Body::Consume { .. }
            | Body::Group { .. }
            | Body::GroupWithdrawn { .. } => {}
        }
    }

    pub fn consume(&mut self, consumer: usize) {
        let pause = self.rng.between(20, 120) * MS;
        self.after(pause, Event::Consume { consumer });
        let from = Node(self.brokers.len() + 1 + self.producers.len() + consumer);
        for partition in self.parts.live() {
            let position = &self.consumers[consumer].positions[partition];
            if position.asked_at.is_some_and(|at| self.now - at < 1_000 * MS) {
                continue;
            }
            if position.leader.is_none() || self.rng.chance(50) {
                self.refresh(consumer, partition);
            }
            let now = self.now;
            let position = &mut self.consumers[consumer].positions[partition];
            let Some((leader, leader_epoch)) = position.leader else { continue };
            position.request += 1;
            position.asked_at = Some(now);
            let (request, next, read_epoch) = (position.request, position.next, position.read_epoch);
            let body = Body::Consume { partition, request, position: next, leader_epoch, read_epoch };
            // KIP-392: some other replica may be nearer.
            let is_near = self.plan.reads_followers && self.rng.chance(400);
            let from_whom = if is_near { self.rng.index(self.brokers.len()) } else { leader };
            self.send(from, Node(from_whom + 1), body);
        }
    }

    fn refresh(&mut self, consumer: usize, partition: usize) {
        let Some((leader, epoch)) = self.ask_registration(partition) else { return };
        let position = &mut self.consumers[consumer].positions[partition];
        if epoch >= position.epoch {
            position.epoch = epoch;
            position.leader = leader.map(|leader| (leader, epoch));
        }
    }

    fn consume_answered(
        &mut self,
        consumer: usize,
        partition: usize,
        request: u64,
        result: Result<Vec<SimRecord>, ErrorCode>,
    ) {
        let position = &mut self.consumers[consumer].positions[partition];
        if position.request != request || position.asked_at.is_none() || !self.parts.is_live(partition) {
            return;
        }
        position.asked_at = None;
        match result {
            Ok(records) => {
                position.next = position.next.plus(records.len() as i64);
                let (next, last) = (position.next, records.last().copied());
                if let Some(last) = last {
                    position.read_epoch = last.epoch;
                    self.check_read(partition, next, last);
                }
            }
            Err(ErrorCode::OffsetOutOfRange) => {
                // Everything else than a start that has moved on was found wrong by the leader.
                if let Some((leader, _)) = position.leader {
                    let start = self.brokers[leader].disk.logs[partition].start();
                    position.next = position.next.max(start);
                    position.read_epoch = LeaderEpoch::NONE;
                }
            }
            Err(_) => position.leader = None,
        }
    }

    pub fn are_clients_well(&self) -> Result<(), String> {
        if let Some(index) = self.producers.iter().position(|producer| !producer.is_done(self.parts.live())) {
            return Err(format!("producer {index} is not done"));
        }
        for (index, consumer) in self.consumers.iter().enumerate() {
            for partition in self.parts.live() {
                let position = &consumer.positions[partition];
                let end = self.checker.committed(partition);
                if position.next != end {
                    return Err(format!("consumer {index} is at {} of {end} in partition {partition}", position.next));
                }
            }
        }
        Ok(())
    }

    fn producer_node(&self, producer: usize) -> Node {
        Node(self.brokers.len() + 1 + producer)
    }

    fn ask_leader(&mut self, producer: usize, partition: usize) -> Option<usize> {
        let (leader, epoch) = self.ask_registration(partition)?;
        let known = &mut self.producers[producer].epochs[partition];
        *known = epoch.max(*known);
        leader.filter(|_| epoch >= *known)
    }

    /// What some broker that runs thinks of a partition; old news, often.
    fn ask_registration(&mut self, partition: usize) -> Option<(Option<usize>, LeaderEpoch)> {
        let broker = self.rng.index(self.brokers.len());
        let process = self.brokers[broker].process.as_ref()?;
        let part = self.parts.get(partition);
        let registered = process.image.topic_by_id(part.topic)?.partitions.get(&part.index)?;
        let leader = registered.leader.map(|leader| (leader.0 - 1) as usize);
        Some((leader, registered.leader_epoch))
    }
}
