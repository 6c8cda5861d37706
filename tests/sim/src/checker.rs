//! The invariants of replication, looked at with open eyes: every step, on the state itself (numbers as in docs/INVARIANTS.md).

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use thalweg_coordinator::registry::election::Partition;
use thalweg_model::{Durability, LeaderEpoch, NodeId, Offset, ProducerId};
use thalweg_proto::v1::RegisterBrokerRequest;

use crate::broker::Doubt;
use crate::groups::GroupWatch;
use crate::hosting::Waiting;
use crate::log::{SimLog, SimRecord};
use crate::plan::{Acks, Plan};
use crate::world::World;

/// A rule that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// 0: a rule of the simulator itself, or a panic in a machine.
    pub invariant: u8,
    pub message: String,
}

/// What is known from the outside, and what was seen so far.
pub struct Checker {
    violation: Option<Violation>,
    watched: Vec<Watched>,
    pub groups: GroupWatch,
    /// Of each broker, the log directory and the life that were registered last.
    lives: BTreeMap<usize, (Bytes, u64)>,
    broker_count: usize,
    min_isr: usize,
    durability: Durability,
}

struct Watched {
    /// `Commit`: what was exposed first at each offset.
    commit: Vec<SimRecord>,
    /// By offset: every epoch that any log ever held there, with what stands for its prefix.
    prefixes: Vec<Vec<(LeaderEpoch, u64)>>,
    /// The next sequence of each idempotent producer, as far as it is committed.
    sequences: BTreeMap<ProducerId, i32>,
    /// Who acted as leader in each epoch.
    leaders: BTreeMap<LeaderEpoch, usize>,
    /// The registration after the last command.
    registered: Option<Partition>,
    /// Replicas that a disk event has hit and that were not in sync since; what the budget counts.
    damaged: Vec<bool>,
    /// How many copies there are at least of what is committed, were no disk hit: min.insync.replicas, held against the number of
    /// replicas. A move may raise that, or take a copy that was hit away: then it takes
    /// more in sync.
    copies: usize,
    /// Of each leader epoch, the least number of replicas that min.insync.replicas was held against.
    factors: BTreeMap<LeaderEpoch, usize>,
}

impl Checker {
    pub fn new(plan: &Plan) -> Checker {
        Checker {
            violation: None,
            watched: Vec::new(),
            groups: GroupWatch::default(),
            lives: BTreeMap::new(),
            broker_count: plan.broker_count,
            min_isr: plan.min_isr,
            durability: plan.durability,
        }
    }

    /// There is one more partition. `damaged`: brokers that a disk event has hit and that have not told of it.
    pub fn watch(&mut self, damaged: Vec<bool>) {
        self.watched.push(Watched {
            commit: Vec::new(),
            prefixes: Vec::new(),
            sequences: BTreeMap::new(),
            leaders: BTreeMap::new(),
            registered: None,
            damaged,
            copies: usize::MAX,
            factors: BTreeMap::new(),
        });
    }

    /// The partition's topic is gone: nobody is promised anything of it any more.
    pub fn forget(&mut self, partition: usize) {
        self.watched[partition].registered = None;
    }

    /// What min.insync.replicas comes to in a leader epoch, moves considered.
    fn min_isr_in(&self, partition: usize, epoch: LeaderEpoch) -> usize {
        self.watched[partition].factors.get(&epoch).map_or(self.min_isr, |factor| self.min_isr.min(*factor))
    }

    /// The first violation counts.
    pub fn fail(&mut self, invariant: u8, message: String) {
        self.violation.get_or_insert(Violation { invariant, message });
    }

    pub fn has_failed(&self) -> bool {
        self.violation.is_some()
    }

    pub fn take_violation(&mut self) -> Option<Violation> {
        self.violation.take()
    }

    pub fn committed_count(&self) -> u64 {
        self.watched.iter().map(|watched| watched.commit.len() as u64).sum()
    }

    /// What stands for all that is committed.
    pub fn committed_chain(&self, partition: usize) -> Option<u64> {
        self.watched[partition].commit.last().map(|record| record.chain)
    }

    pub fn committed(&self, partition: usize) -> Offset {
        Offset(self.watched[partition].commit.len() as i64)
    }

    /// What may be counted of a log, dead or alive (K).
    fn counted(&self, log: &SimLog) -> Offset {
        match self.durability {
            Durability::Flushed => log.flushed(),
            Durability::Replicated => log.end(),
        }
    }

    /// A disk event of the broker hits these logs of its.
    pub fn damage(&mut self, broker: usize) {
        self.watched.iter_mut().for_each(|watched| watched.damaged[broker] = true);
    }

    /// How many disks must be hit at a time before replication promises nothing of the partition.
    pub fn copies(&self, partition: usize) -> usize {
        self.watched[partition].copies
    }

    pub fn is_damaged(&self, partition: usize, broker: usize) -> bool {
        self.watched[partition].damaged[broker]
    }

    /// Whether one more disk event is within what replication promises to survive (REPLICATION 3.8): fewer than min ISR
    /// at a time.
    pub fn may_damage(&self, broker: usize) -> bool {
        let mut live =
            self.watched.iter().filter_map(|watched| Some((watched, watched.registered.as_ref()?))).peekable();
        live.peek().is_some()
            && live.all(|(watched, partition)| {
                let is_hit = |id: &&NodeId| watched.damaged[(id.0 - 1) as usize] && **id != node(broker);
                let others = partition.replicas.iter().filter(is_hit).count();
                let is_replica = partition.replicas.contains(&node(broker));
                !is_replica || others + 1 < watched.copies
            })
    }

    /// 7: equal offset and epoch, equal prefix.
    fn appended(&mut self, partition: usize, broker: usize, offset: Offset, records: &[SimRecord]) {
        let prefixes = &mut self.watched[partition].prefixes;
        let first = offset.0.max(0) as usize;
        if prefixes.len() < first + records.len() {
            prefixes.resize(first + records.len(), Vec::new());
        }
        for (index, record) in records.iter().enumerate() {
            let known = &mut prefixes[first + index];
            match known.iter().find(|(epoch, _)| *epoch == record.epoch) {
                Some((_, chain)) if *chain != record.chain => {
                    let at = first + index;
                    let what = format!("offset {at} of epoch {} has another past than elsewhere", record.epoch);
                    return self.fail(7, format!("partition {partition}, broker {}: {what}", broker + 1));
                }
                Some(_) => {}
                None => known.push((record.epoch, record.chain)),
            }
        }
    }

    /// 1: what a watermark passes is what any other exposed there. Returns whether more is exposed now than ever before.
    fn exposed(&mut self, partition: usize, broker: usize, log: &SimLog, high_watermark: Offset) -> bool {
        let watched = &mut self.watched[partition];
        let known = (watched.commit.len() as i64).min(high_watermark.0);
        let expected = usize::try_from(known - 1).ok().and_then(|last| watched.commit.get(last));
        let is_same = match (log.chain_below(Offset(known)), expected) {
            (Some(chain), Some(expected)) => chain == expected.chain,
            // Below where the log begins there is nothing to compare.
            (None, Some(_)) => log.starts_at(Offset(known)),
            (_, None) => true,
        };
        if !is_same {
            let held = log.base()..log.end();
            let mine = (held.start.0..known).map(|offset| (offset, log.record(Offset(offset))));
            let differs = |(offset, record): &(i64, Option<&SimRecord>)| {
                let committed = usize::try_from(*offset).ok().and_then(|at| watched.commit.get(at));
                record.map(|record| record.chain) != committed.map(|record| record.chain)
            };
            let first = mine.clone().find(differs);
            let was = first.and_then(|(offset, _)| watched.commit.get(usize::try_from(offset).ok()?));
            let what = format!(
                "exposes below {high_watermark} what differs from what was committed below {known}; it holds {held:?}, \
                 first other record {first:?}, committed was {was:?}"
            );
            self.fail(1, format!("partition {partition}, broker {}: {what}", broker + 1));
            return false;
        }
        let fresh = log.slice(Offset(known), high_watermark);
        watched.commit.extend_from_slice(fresh);
        for sequence in fresh.iter().filter_map(|record| record.sequence) {
            let next = watched.sequences.entry(sequence.producer).or_default();
            // 15: each once, in order.
            if sequence.number != *next {
                let what =
                    format!("producer {}: {} is committed where {next} is next", sequence.producer, sequence.number);
                self.fail(15, format!("partition {partition}, broker {}: {what}", broker + 1));
                break;
            }
            *next += 1;
        }
        !fresh.is_empty()
    }
}

impl World {
    /// Everything that holds for a replica by itself, and what follows from what it exposes.
    pub fn check_replica(&mut self, broker: usize, partition: usize) {
        let who = || format!("partition {partition}, broker {}", broker + 1);
        let this = &mut self.brokers[broker];
        let log = &this.disk.logs[partition];
        let Some(hosted) = this.process.as_mut().and_then(|process| process.hosted[partition].as_mut()) else { return };
        let replica = &hosted.replica;
        let (start, high_watermark, end) = (log.start(), replica.high_watermark(), log.end());
        if replica.log_end_offset() != end || !(start <= high_watermark && high_watermark <= end) {
            let heard = replica.log_end_offset();
            let what = format!("log {start} to {end}, the replica thinks {heard}, watermark {high_watermark}");
            return self.checker.fail(8, format!("{}: {what}", who()));
        }
        if replica.flushed_offset() > end {
            return self.checker.fail(8, format!("{}: flushed beyond the end", who()));
        }
        if hosted.parked.len() >= self.checker.broker_count {
            let what = format!("{} fetches wait, more than there are followers", hosted.parked.len());
            return self.checker.fail(20, format!("{}: {what}", who()));
        }
        let epoch = replica.leader().map_or(LeaderEpoch::NONE, |leader| leader.epoch());
        let (seen, seen_epoch) = std::mem::replace(&mut hosted.seen, (high_watermark, epoch));
        if let Some(leader) = replica.leader() {
            let first = *self.checker.watched[partition].leaders.entry(epoch).or_insert(broker);
            if first != broker {
                let what = format!("leads in epoch {epoch}, as broker {} did", first + 1);
                return self.checker.fail(5, format!("{}: {what}", who()));
            }
            if epoch == seen_epoch && high_watermark < seen {
                return self.checker.fail(8, format!("{}: watermark fell from {seen} to {high_watermark}", who()));
            }
            if epoch == seen_epoch
                && high_watermark > seen
                && leader.isr().agreed().len() < self.checker.min_isr_in(partition, epoch)
            {
                let what = format!("watermark moved to {high_watermark} with in sync {:?}", leader.isr().agreed());
                return self.checker.fail(9, format!("{}: {what}", who()));
            }
        }
        if self.checker.exposed(partition, broker, log, high_watermark) {
            self.check_candidates(partition);
        } else {
            self.check_candidate(broker, partition);
        }
        self.check_leader(broker, partition);
    }

    /// 7, for what was appended from `from` on.
    pub fn check_appended(&mut self, broker: usize, partition: usize, from: Offset) {
        let log = &self.brokers[broker].disk.logs[partition];
        self.checker.appended(partition, broker, from, log.slice(from, log.end()));
    }

    /// 12: what an acknowledgement says is so, at the time that it leaves.
    pub fn check_ack(&mut self, broker: usize, partition: usize, waiting: &Waiting) {
        let Some((hosted, log)) = self.hosted(broker, partition) else { return };
        let (high_watermark, chain) = (hosted.replica.high_watermark(), log.chain_below(waiting.end));
        let epoch = hosted.replica.known_epoch().unwrap_or(LeaderEpoch::NONE);
        if waiting.base < Offset::ZERO || log.record(waiting.base).is_none_or(|record| !record.starts_batch) {
            return self.checker.fail(14, format!("partition {partition}: acknowledged at {}", waiting.base));
        }
        let holds = |other: usize| {
            let log = &self.brokers[other].disk.logs[partition];
            self.checker.counted(log) >= waiting.end && log.chain_below(waiting.end) == chain
        };
        let copies = (0..self.brokers.len()).filter(|other| holds(*other)).count();
        let damaged = self.checker.watched[partition].damaged.iter().filter(|damaged| **damaged).count();
        let min_isr = self.checker.min_isr_in(partition, epoch);
        let is_true = match waiting.acks {
            // Of a topic that is gone others have removed their copies.
            Acks::All => {
                waiting.end <= high_watermark && (copies + damaged >= min_isr || !self.parts.is_live(partition))
            }
            Acks::Leader => holds(broker),
            Acks::None => false,
        };
        if !is_true {
            let what =
                format!("acks {:?} up to {}: watermark {high_watermark}, {copies} copies", waiting.acks, waiting.end);
            self.checker.fail(12, format!("partition {partition}, broker {}: {what}", broker + 1));
        }
    }

    /// 13 and 1: what a consumer has got is committed, and is what was committed there.
    pub fn check_read(&mut self, partition: usize, next: Offset, last: SimRecord) {
        let commit = &self.checker.watched[partition].commit;
        let committed = usize::try_from(next.0 - 1).ok().and_then(|index| commit.get(index));
        if committed.is_none_or(|committed| committed.chain != last.chain) {
            self.checker.fail(13, format!("partition {partition}: a consumer has read another record below {next}"));
        }
    }

    /// 3: whoever may be elected counts for the watermark.
    pub fn check_leader(&mut self, broker: usize, partition: usize) {
        let Some(registered) = &self.checker.watched[partition].registered else { return };
        let process = self.brokers[broker].process.as_ref();
        let Some(hosted) = process.and_then(|process| process.hosted[partition].as_ref()) else { return };
        let Some(leader) = hosted.replica.leader() else { return };
        let isr = leader.isr();
        let min_isr = self.checker.min_isr_in(partition, leader.epoch());
        if leader.epoch() != registered.leader_epoch || isr.agreed().len() < min_isr {
            return;
        }
        let mut electable = registered.isr.iter().chain(&registered.elr);
        if let Some(missing) = electable.find(|id| !isr.maximal().any(|member| member == **id)) {
            let what = format!("broker {missing} may be elected and does not count; maximal in sync");
            let maximal: Vec<NodeId> = isr.maximal().collect();
            self.checker.fail(3, format!("partition {partition}, broker {}: {what} {maximal:?}", broker + 1));
        }
    }

    /// 6: lives are registered in order. 11: what a registration says about lost records is settled in the same command.
    pub fn check_registered(&mut self, broker: usize, request: &RegisterBrokerRequest) {
        for dir in &request.log_dirs {
            // A disk that was replaced may come back; its lives count for nothing beside those of the other.
            let life = (dir.dir_id.clone(), request.incarnation);
            let (last_dir, last) = self.checker.lives.insert(broker, life).unwrap_or_default();
            if last_dir == dir.dir_id && request.incarnation < last {
                let what = format!("life {} is registered after life {last}", request.incarnation);
                self.checker.fail(6, format!("broker {}: {what}", broker + 1));
            }
        }
        let dir_id = self.brokers[broker].disk.dir_id;
        let is_this_disk = request.log_dirs.iter().any(|dir| dir.dir_id[..] == dir_id);
        let Some(doubt) = self.brokers[broker].doubt.filter(|_| is_this_disk) else { return };
        let tells = |first: u64| request.incarnation >= first;
        let is_wiped = doubt.wiped.is_some_and(tells);
        let left = Doubt { wiped: doubt.wiped.filter(|first| !tells(*first)), ..doubt };
        self.brokers[broker].doubt = Some(left).filter(|left| !tells(left.incarnation));
        if !is_wiped && (self.checker.durability == Durability::Flushed || !tells(doubt.incarnation)) {
            return;
        }
        for partition in self.parts.live() {
            let Some(registered) = self.partition(partition) else { continue };
            let is_candidate = registered.isr.contains(&node(broker)) || registered.elr.contains(&node(broker));
            let is_sole = registered.replicas.len() == 1 && !is_wiped;
            if is_candidate && !is_sole {
                let what = format!("may be elected though its records are in doubt: {registered:?}");
                self.checker.fail(11, format!("partition {partition}, broker {}: {what}", broker + 1));
            }
        }
    }

    /// 6 and 10 for every registration, then what follows from those that changed.
    pub fn check_registrations(&mut self) {
        for partition in self.parts.live() {
            let Some(now) = self.partition(partition).cloned() else { continue };
            let watched = &mut self.checker.watched[partition];
            let before = watched.registered.replace(now.clone());
            if before.as_ref() == Some(&now) {
                continue;
            }
            let min_isr = self.checker.min_isr.min(now.factor());
            let is_full = now.isr.len() >= min_isr;
            let is_gone = |id: &&NodeId| !now.replicas.contains(id) && watched.damaged[(id.0 - 1) as usize];
            let gone = before.iter().flat_map(|before| &before.replicas).filter(is_gone).count();
            watched.copies = if is_full { min_isr } else { watched.copies.min(min_isr).saturating_sub(gone) };
            let factor = watched.factors.entry(now.leader_epoch).or_insert(usize::MAX);
            *factor = now.factor().min(*factor);
            let story = now.clone();
            self.tell(|_| format!("coordinator: partition {partition} is {story:?}"));
            if let Some(broken) = before.as_ref().and_then(|before| broken_epochs(before, &now)) {
                self.checker.fail(6, format!("partition {partition}: {broken}: {before:?} then {now:?}"));
            }
            let broken = before.as_ref().and_then(|before| broken_move(before, &now, self.checker.min_isr));
            if let Some(broken) = broken {
                self.checker.fail(10, format!("partition {partition}: {broken}: {before:?} then {now:?}"));
            }
            if before.is_some_and(|before| before.leader_epoch < now.leader_epoch) {
                self.counts.elections += 1;
            }
            if let Some(broken) = self.broken_shape(&now) {
                self.checker.fail(10, format!("partition {partition}: {broken}: {now:?}"));
            }
            for broker in 0..self.brokers.len() {
                let this = &self.brokers[broker];
                // In sync again, in a life that has told of its losses and has no more to come.
                // Nor does it matter what became of a replica that was moved away, unless it is to come.
                if (now.isr.contains(&this.id) || !now.replicas.contains(&this.id)) && !this.is_in_trouble() {
                    self.checker.watched[partition].damaged[broker] = false;
                }
                self.check_leader(broker, partition);
            }
            self.check_candidates(partition);
        }
    }

    fn broken_shape(&self, partition: &Partition) -> Option<&'static str> {
        let is_fenced = |id: &NodeId| !self.is_unfenced((id.0 - 1) as usize);
        let is_in_isr = |id: &NodeId| partition.isr.contains(id);
        if partition.leader.is_some_and(|leader| !partition.isr.contains(&leader)) {
            Some("the leader is not in sync")
        } else if partition.elr.iter().any(is_in_isr) {
            Some("a replica is both in sync and merely eligible")
        } else if partition.isr.iter().chain(&partition.elr).any(|id| !partition.replicas.contains(id)) {
            Some("who is no replica may be elected")
        } else if partition.isr.iter().any(is_fenced) {
            Some("who is fenced is in sync")
        } else if partition.isr.len() >= self.checker.min_isr.min(partition.factor()) && !partition.elr.is_empty() {
            Some("there are merely eligible replicas beside enough that are in sync")
        } else {
            None
        }
    }

    fn check_candidates(&mut self, partition: usize) {
        for broker in 0..self.brokers.len() {
            self.check_candidate(broker, partition);
        }
    }

    /// 2: whoever may be elected holds all that is committed.
    fn check_candidate(&mut self, broker: usize, partition: usize) {
        let this = &self.brokers[broker];
        let watched = &self.checker.watched[partition];
        let Some(registered) = &watched.registered else { return };
        if !registered.isr.contains(&this.id) && !registered.elr.contains(&this.id) {
            return;
        }
        let is_lossy = self.checker.durability == Durability::Replicated;
        if this.doubt.is_some_and(|doubt| doubt.wiped.is_some() || is_lossy) {
            return;
        }
        let log = &this.disk.logs[partition];
        let committed = Offset(watched.commit.len() as i64);
        let counted = self.checker.counted(log);
        let differs = match (log.chain_below(committed), watched.commit.last()) {
            (Some(chain), Some(last)) => chain != last.chain,
            _ => false,
        };
        if counted < committed || differs {
            let what = format!("may be elected; holds {counted} of {committed} committed records, equal: {}", !differs);
            self.checker.fail(2, format!("partition {partition}, broker {}: {what}", broker + 1));
        }
    }
}

/// What is wrong with the end of a move: replicas go once everybody who comes is in sync, and those who stay suffice.
fn broken_move(before: &Partition, now: &Partition, min_isr: usize) -> Option<&'static str> {
    let gone: Vec<&NodeId> = before.replicas.iter().filter(|id| !now.replicas.contains(id)).collect();
    let held = |id: &&&NodeId| before.isr.contains(id) || before.elr.contains(id);
    let is_arrival = before.is_moving() && !now.is_moving() && now.replicas == before.target();
    if is_arrival && before.adding.iter().any(|id| !now.isr.contains(id)) {
        Some("a move is over before everybody who comes is in sync")
    } else if gone.iter().any(|id| held(&id)) && now.isr.len() < min_isr.min(now.factor()) {
        Some("replicas go, and of those who stay too few are in sync")
    } else {
        None
    }
}

/// What is wrong with a change of a registration's epochs.
fn broken_epochs(before: &Partition, now: &Partition) -> Option<&'static str> {
    let has_moved = before.leader != now.leader || before.replicas != now.replicas;
    if now.partition_epoch.0 != before.partition_epoch.0 + 1 {
        Some("the partition epoch counts every change")
    } else if now.leader_epoch.0 != before.leader_epoch.0 + i32::from(has_moved) {
        Some("the leader epoch counts every change of leader")
    } else {
        None
    }
}

fn node(broker: usize) -> NodeId {
    NodeId(broker as i32 + 1)
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invariant {}: {}", self.invariant, self.message)
    }
}
