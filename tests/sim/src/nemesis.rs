//! What goes wrong, when, and how it ends.

use std::collections::BTreeSet;

use thalweg_model::{Durability, NodeId, Offset};
use thalweg_proto::v1;
use thalweg_proto::v1::command::Kind;

use crate::coordinator::TOPIC;
use crate::message::{Event, Node};
use crate::plan::MS;
use crate::rng::Rng;
use crate::world::{Phase, World};

/// A kind of fault. Each seed has some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// SIGKILL; the page cache survives.
    Kill,
    KillAll,
    /// What was not synced may be gone.
    PowerCut,
    PowerCutAll,
    /// The disk comes back empty.
    Wipe,
    /// SIGSTOP for a while, or a long garbage collection somewhere below.
    Pause,
    CleanStop,
    /// A broker and the coordinators do not hear each other, or one of them not the other.
    CutCoordinator,
    /// Two brokers do not hear each other, or one not the other.
    CutPair,
    /// A broker hears no other node; clients reach it still.
    Isolate,
    /// The coordinators lose their leader.
    Failover,
    /// A sync fails.
    SyncError,
    SlowDisk,
    /// The coordinators' wall clock jumps by up to a day.
    WallClock,
    DeleteRecords,
    /// The topic is deleted, and made again a while later.
    DeleteTopic,
    /// A partition is to be moved, to be moved elsewhere, or not to be moved after all.
    Move,
    /// A member of a group leaves, ends without a word, or stands still.
    Member,
    /// Calls from long ago come once more.
    Echo,
}

/// The end of a fault.
#[derive(Clone, Debug)]
pub enum Remedy {
    Mend(Vec<(Node, Node)>),
    QuickDisk(usize),
}

impl Fault {
    const ALL: [Fault; 19] = [
        Fault::Kill,
        Fault::KillAll,
        Fault::PowerCut,
        Fault::PowerCutAll,
        Fault::Wipe,
        Fault::Pause,
        Fault::CleanStop,
        Fault::CutCoordinator,
        Fault::CutPair,
        Fault::Isolate,
        Fault::Failover,
        Fault::SyncError,
        Fault::SlowDisk,
        Fault::WallClock,
        Fault::DeleteRecords,
        Fault::DeleteTopic,
        Fault::Move,
        Fault::Member,
        Fault::Echo,
    ];

    /// At least one.
    pub fn draw_subset(rng: &mut Rng) -> BTreeSet<Fault> {
        let mut faults: BTreeSet<Fault> = Fault::ALL.into_iter().filter(|_| rng.chance(400)).collect();
        faults.insert(Fault::ALL[rng.index(Fault::ALL.len())]);
        faults
    }
}

impl World {
    /// One fault, and the time of the next.
    pub fn fault(&mut self) {
        if !matches!(self.phase, Phase::Faults { .. }) {
            return;
        }
        let pause = self.rng.between(self.plan.fault_pause / 4, self.plan.fault_pause * 7 / 4);
        self.after(pause, Event::Fault);
        let kinds: Vec<Fault> = self.plan.faults.iter().copied().collect();
        let Some(fault) = self.rng.pick(&kinds).copied() else { return };
        if self.strike(fault) {
            self.counts.faults += 1;
        }
    }

    /// Returns whether anything went wrong.
    fn strike(&mut self, fault: Fault) -> bool {
        let broker = self.victim();
        match fault {
            Fault::Kill => self.kill(broker),
            Fault::KillAll => (0..self.brokers.len()).filter(|broker| self.kill(*broker)).count() > 0,
            Fault::PowerCut => self.cut_power(broker),
            Fault::PowerCutAll => (0..self.brokers.len()).filter(|broker| self.cut_power(*broker)).count() > 0,
            Fault::Wipe => self.wipe(broker),
            Fault::Pause => {
                let duration = self.rng.between(50, 3_000) * MS;
                self.brokers[broker].paused_until = self.now + duration;
                self.tell(|_| format!("FAULT broker {} stands still for {} ms", broker + 1, duration / MS));
                self.brokers[broker].is_up()
            }
            Fault::CleanStop => {
                self.tell(|_| format!("FAULT broker {} is told to stop", broker + 1));
                self.begin_stop(broker);
                self.brokers[broker].is_up()
            }
            Fault::CutCoordinator => {
                let pairs = self.directions(Node(broker + 1), Node::COORDINATOR);
                self.cut(pairs)
            }
            Fault::CutPair => {
                let other = (broker + self.rng.between(1, self.brokers.len() as u64 - 1) as usize) % self.brokers.len();
                let pairs = self.directions(Node(broker + 1), Node(other + 1));
                self.cut(pairs)
            }
            Fault::Isolate => {
                let one = Node(broker + 1);
                let others = (0..=self.brokers.len()).map(Node).filter(|other| *other != one);
                self.cut(others.flat_map(|other| [(one, other), (other, one)]).collect())
            }
            Fault::Failover => {
                let downtime = self.rng.between(5, 2_500) * MS;
                self.tell(|_| format!("FAULT the coordinators have no leader for {} ms", downtime / MS));
                let was_led = self.coordinator.is_led();
                self.end_leadership(downtime);
                was_led
            }
            Fault::SyncError => {
                // The coordinators hear that the directory is offline: whatever was flushed, nobody counts on it then.
                let is_allowed = self.brokers[broker].is_up() && self.checker.may_damage(broker);
                if is_allowed {
                    self.tell(|_| format!("FAULT the next sync of broker {} fails", broker + 1));
                    self.checker.damage(broker);
                    self.brokers[broker].disk.is_failing = true;
                }
                is_allowed
            }
            Fault::SlowDisk => {
                self.brokers[broker].disk.slowness = self.rng.between(20, 2_000) * MS;
                let duration = self.rng.between(100, 4_000) * MS;
                self.tell(|_| format!("FAULT the disk of broker {} is slow for {} ms", broker + 1, duration / MS));
                self.after(duration, Event::Remedy(Remedy::QuickDisk(broker)));
                true
            }
            Fault::WallClock => {
                let day_ms = 86_400_000;
                self.coordinator.wall_ms += self.rng.between(0, 2 * day_ms) as i64 - day_ms as i64;
                self.tell(|_| "FAULT the coordinators' wall clock jumps".to_owned());
                true
            }
            Fault::DeleteRecords => self.delete_some_records(broker),
            Fault::DeleteTopic => self.delete_topic(),
            Fault::Move => self.move_something(),
            Fault::Member => self.disturb_member(),
            Fault::Echo => self.echo(),
        }
    }

    pub fn remedy(&mut self, remedy: Remedy) {
        match remedy {
            Remedy::Mend(pairs) => {
                // Healing has mended everything already.
                if matches!(self.phase, Phase::Faults { .. }) {
                    self.tell(|_| format!("links work again: {pairs:?}"));
                    for (from, to) in pairs {
                        self.links.mend(from, to);
                    }
                }
            }
            Remedy::QuickDisk(broker) => self.brokers[broker].disk.slowness = 0,
        }
    }

    /// Faults end; what they left behind is up to the machines.
    pub fn heal(&mut self) {
        let bound = 40_000 * MS + 6 * (u64::from(self.plan.lease_ms) * MS + self.plan.lag_max);
        self.phase = Phase::Heal { until: self.now + bound };
        self.tell(|_| "faults end".to_owned());
        self.links.mend_all();
        self.coordinator.deposed = None;
        for broker in 0..self.brokers.len() {
            let this = &mut self.brokers[broker];
            this.paused_until = this.paused_until.min(self.now);
            this.disk.slowness = 0;
            if !this.is_up() {
                self.after(0, Event::Start { broker });
            }
        }
        for member in &mut self.members {
            member.paused_until = member.paused_until.min(self.now);
            member.away_until = member.away_until.min(self.now);
        }
        if !self.coordinator.is_led() {
            self.after(0, Event::Elected);
        }
    }

    /// Whoever leads is hit more often than others.
    fn victim(&mut self) -> usize {
        let partition = self.any_live();
        let leader = partition.and_then(|partition| self.partition(partition)?.leader);
        match leader {
            Some(leader) if self.rng.chance(500) => (leader.0 - 1) as usize,
            _ => self.rng.index(self.brokers.len()),
        }
    }

    fn kill(&mut self, broker: usize) -> bool {
        let Some(process) = self.brokers[broker].process.take() else { return false };
        self.tell(|_| format!("FAULT broker {} is killed", broker + 1));
        self.close_connections(broker, process.lease.epoch());
        self.start_later(broker);
        true
    }

    fn cut_power(&mut self, broker: usize) -> bool {
        if !self.may_lose_unflushed(broker) {
            return false;
        }
        self.damage_unflushed(broker);
        let was_up = self.brokers[broker].is_up();
        self.brokers[broker].power_cut(&mut self.rng);
        self.tell(|world| {
            let ends: Vec<i64> = world.brokers[broker].disk.logs.iter().map(|log| log.end().0).collect();
            format!("FAULT broker {} loses power; left on its disk: {ends:?}", broker + 1)
        });
        if was_up {
            self.start_later(broker);
        }
        true
    }

    fn wipe(&mut self, broker: usize) -> bool {
        if !self.checker.may_damage(broker) {
            return false;
        }
        self.checker.damage(broker);
        let was_up = self.brokers[broker].is_up();
        self.brokers[broker].wipe(&mut self.rng);
        self.tell(|_| format!("FAULT broker {} gets an empty disk", broker + 1));
        if was_up {
            self.start_later(broker);
        }
        true
    }

    /// What is not synced counts only where a topic lets it count.
    fn may_lose_unflushed(&self, broker: usize) -> bool {
        self.plan.durability == Durability::Flushed || self.checker.may_damage(broker)
    }

    fn damage_unflushed(&mut self, broker: usize) {
        if self.plan.durability == Durability::Replicated {
            self.checker.damage(broker);
        }
    }

    fn delete_some_records(&mut self, broker: usize) -> bool {
        let Some(partition) = self.any_live() else { return false };
        let Some((hosted, log)) = self.hosted(broker, partition) else { return false };
        let (low, high) = (log.start(), hosted.replica.high_watermark());
        let start = Offset(self.rng.between(low.0 as u64, high.0.max(low.0) as u64) as i64);
        let is_done = self.delete_records(broker, partition, start);
        if is_done {
            self.tell(|_| format!("FAULT records of partition {partition} below {start} are deleted"));
        }
        is_done
    }

    fn delete_topic(&mut self) -> bool {
        let topic = v1::TopicRef { name: TOPIC.to_owned(), ..v1::TopicRef::default() };
        let is_asked = self.ask_coordinator(Kind::DeleteTopics(v1::DeleteTopics { topics: vec![topic] }));
        if is_asked {
            self.tell(|_| "FAULT the topic is deleted".to_owned());
            self.coordinator.is_topic_wanted = false;
            let downtime = self.rng.between(0, 3_000) * MS;
            self.after(downtime, Event::WantTopic);
        }
        is_asked
    }

    /// A disk event has hit the replica, or would hit it once it is there.
    fn is_hit(&self, partition: usize, id: &NodeId) -> bool {
        let broker = (id.0 - 1) as usize;
        self.brokers[broker].is_in_trouble() || self.checker.is_damaged(partition, broker)
    }

    fn disturb_member(&mut self) -> bool {
        if self.members.is_empty() {
            return false;
        }
        let member = self.rng.index(self.members.len());
        let until = self.now + self.rng.between(50, 7_000) * MS;
        let what = match self.rng.below(3) {
            0 => {
                self.leave_group(member);
                "leaves its group"
            }
            1 => {
                self.end_member(member, until);
                "ends"
            }
            _ => {
                self.members[member].paused_until = until;
                "stands still"
            }
        };
        self.tell(|_| format!("FAULT member {member} {what}"));
        true
    }

    /// Most moves keep the number of replicas.
    fn move_something(&mut self) -> bool {
        let Some(partition) = self.any_live() else { return false };
        let Some(registered) = self.partition(partition).cloned() else { return false };
        let cancel = registered.is_moving() && self.rng.chance(300);
        let count = registered.target().len();
        let count = match self.rng.below(10) {
            0 => count.saturating_sub(1).max(1),
            1 => (count + 1).min(self.brokers.len()),
            _ => count,
        };
        let mut ids: Vec<i32> = (1..=self.brokers.len() as i32).collect();
        let target: Vec<i32> = (0..count).map(|_| ids.remove(self.rng.index(ids.len()))).collect();
        // Replication promises nothing where as many disks are hit as must be in sync: of those who come, of those who stay, and of
        // both while the move is under way, as the ones that are in sync then may be any.
        let kept = if cancel { registered.origin() } else { target.iter().copied().map(NodeId).collect() };
        let together: BTreeSet<NodeId> = kept.iter().chain(&registered.replicas).copied().collect();
        let hit = together.iter().filter(|id| self.is_hit(partition, id)).count();
        if hit >= self.checker.copies(partition).min(kept.len()) {
            return false;
        }
        let wanted = v1::Reassignment {
            topic: TOPIC.to_owned(),
            partition: self.parts.get(partition).index.0,
            replicas: target.clone(),
            cancel,
        };
        let request = v1::AlterReassignmentsRequest { partitions: vec![wanted], ..Default::default() };
        let is_asked = self.ask_coordinator(Kind::AlterReassignments(request));
        if is_asked {
            let what = if cancel { "is to stay after all".to_owned() } else { format!("is to move to {target:?}") };
            self.tell(|_| format!("FAULT partition {partition} {what}"));
        }
        is_asked
    }

    /// One direction or both.
    fn directions(&mut self, one: Node, other: Node) -> Vec<(Node, Node)> {
        match self.rng.below(3) {
            0 => vec![(one, other)],
            1 => vec![(other, one)],
            _ => vec![(one, other), (other, one)],
        }
    }

    fn cut(&mut self, pairs: Vec<(Node, Node)>) -> bool {
        let duration = self.rng.between(100, 5_000) * MS;
        self.tell(|_| format!("FAULT links are cut for {} ms: {pairs:?}", duration / MS));
        for (from, to) in &pairs {
            self.links.cut(*from, *to);
        }
        self.after(duration, Event::Remedy(Remedy::Mend(pairs)));
        true
    }
}
