//! Every state that three replicas of one partition can get into, by the registries' own commands.

use std::collections::{BTreeMap, VecDeque};

use thalweg_coordinator::registry::context::{Context, Seed};
use thalweg_coordinator::registry::election::Partition;
use thalweg_coordinator::registry::{Machine, features};
use thalweg_coordinator::session::command;
use thalweg_model::{NodeId, Timestamp, TopicId};
use thalweg_proto::v1;
use thalweg_proto::v1::command::Kind;

/// A state: what the registries say, and what is true of the disks.
#[derive(Clone)]
struct World {
    machine: Machine,
    topic: TopicId,
    min_isr: usize,
    /// Who holds every committed record.
    holders: Set,
    /// Whose disk was wiped and has not told the coordinator.
    in_doubt: Set,
    /// Whose disk was wiped and who was not in sync since: what the budget counts (REPLICATION 3.8).
    damaged: Set,
}

/// Brokers 1 to 3, as bits.
type Set = u8;

/// What makes two states the same: epochs and incarnations only count.
type Key = ([(bool, bool); 3], [Set; 3], i32, [Set; 3]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Fence(i32),
    LetIn(i32),
    /// A new life of the broker registers; it says so if its disk was wiped.
    Register(i32),
    BeginStop(i32),
    Wipe(i32),
    /// The leader proposes this set.
    Propose(Set),
    /// A record is acknowledged: it is on every member of the ISR, and on nobody else.
    Commit,
}

/// Goal: whoever the rules let be elected holds everything that is committed, in every state there is; sets keep their
/// shape, epochs count, and once everybody is back somebody leads. Method: breadth first over all commands, for each
/// `min.insync.replicas`; wipes within the budget of REPLICATION 3.8.
#[test]
fn in_every_reachable_state_whoever_may_be_elected_holds_all_that_is_committed() {
    let mut total = 0;
    // Stops and wipes apart: together they are a hundred times as many states.
    for (min_isr, trouble) in
        [(1, Trouble::Stops), (2, Trouble::Stops), (3, Trouble::Stops), (2, Trouble::Wipes), (3, Trouble::Wipes)]
    {
        let (states, steps) = explore(min_isr, trouble);
        println!("min.insync.replicas={min_isr}, {trouble:?}: {states} states, {steps} steps between them");
        assert!(states > 100, "the world has become smaller than it is: {states}");
        total += states;
    }
    println!("{total} states");
}

/// Goal: the search can see. Method: records of a broker whose wiped disk was not told of count as held.
#[test]
#[should_panic(expected = "may be elected")]
fn a_broker_that_conceals_its_wiped_disk_is_found() {
    let mut world = World::new(3);
    world.apply(Kind::FenceBroker(v1::FenceBroker { broker_id: 2, broker_epoch: world.epoch(2) }));
    world.holders &= !bit(2);
    world.check("concealed");
}

/// What happens beside fences, new lives and other ISRs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    Stops,
    Wipes,
}

fn explore(min_isr: usize, trouble: Trouble) -> (usize, usize) {
    let first = World::new(min_isr);
    let mut seen: BTreeMap<Key, ()> = BTreeMap::from([(first.key(), ())]);
    let mut queue = VecDeque::from([first]);
    let mut steps = 0;
    while let Some(world) = queue.pop_front() {
        for step in world.steps(trouble) {
            let mut next = world.clone();
            next.take(step);
            steps += 1;
            let story = format!("{step:?} in {:?}", world.partition());
            next.check(&story);
            if seen.insert(next.key(), ()).is_none() {
                next.check_recovery(&story);
                queue.push_back(next);
            }
        }
    }
    (seen.len(), steps)
}

impl World {
    fn new(min_isr: usize) -> World {
        let mut world = World {
            machine: Machine::default(),
            topic: TopicId([0; 16]),
            min_isr,
            holders: ALL,
            in_doubt: 0,
            damaged: 0,
        };
        world.apply(features::first_command([1; 16]));
        for id in 1..=3 {
            world.register(id);
            world.let_in(id);
        }
        let config = v1::ConfigEntry { key: "min.insync.replicas".to_owned(), value: Some(min_isr.to_string()) };
        let topic = v1::NewTopic {
            name: "t".to_owned(),
            partitions: -1,
            replication_factor: -1,
            assignments: vec![v1::ReplicaAssignment { partition: 0, replicas: vec![1, 2, 3] }],
            configs: vec![config],
            ..v1::NewTopic::default()
        };
        world.apply(Kind::CreateTopics(v1::CreateTopics { topics: vec![topic], partitions_max: 1 }));
        world.topic = world.machine.state().topic("t").unwrap().id;
        world
    }

    fn steps(&self, trouble: Trouble) -> Vec<Step> {
        let partition = self.partition();
        let mut steps = Vec::new();
        for id in 1..=3 {
            let broker = self.machine.state().broker(NodeId(id)).unwrap();
            steps.push(Step::Register(id));
            if broker.fenced {
                // Only a life that has told of its disk is let in.
                if self.in_doubt & bit(id) == 0 && !broker.shutting_down {
                    steps.push(Step::LetIn(id));
                }
            } else {
                steps.push(Step::Fence(id));
                if !broker.shutting_down && trouble == Trouble::Stops {
                    steps.push(Step::BeginStop(id));
                }
            }
            let is_within_budget = (self.damaged & !bit(id)).count_ones() as usize + 1 < self.min_isr;
            if is_within_budget && trouble == Trouble::Wipes {
                steps.push(Step::Wipe(id));
            }
        }
        let isr = set(&partition.isr);
        if let Some(leader) = partition.leader.filter(|leader| self.in_doubt & bit(leader.0) == 0) {
            let is_leaders = |wanted: &Set| wanted & bit(leader.0) != 0;
            // Who enters has just fetched everything, so its disk is the one that it registered with.
            let is_honest = |wanted: &Set| wanted & !isr & self.in_doubt == 0;
            steps.extend((1..=ALL).filter(is_leaders).filter(is_honest).map(Step::Propose));
            if partition.isr.len() >= self.min_isr && isr & self.in_doubt == 0 {
                steps.push(Step::Commit);
            }
        }
        steps
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Fence(id) => {
                let broker_epoch = self.epoch(id);
                self.apply(Kind::FenceBroker(v1::FenceBroker { broker_id: id, broker_epoch }));
            }
            Step::LetIn(id) => self.let_in(id),
            Step::Register(id) => self.register(id),
            Step::BeginStop(id) => {
                let broker_epoch = self.epoch(id);
                self.apply(Kind::BeginShutdown(v1::BeginShutdown { broker_id: id, broker_epoch }));
            }
            Step::Wipe(id) => {
                self.holders &= !bit(id);
                self.in_doubt |= bit(id);
                self.damaged |= bit(id);
            }
            Step::Propose(wanted) => self.propose(wanted),
            Step::Commit => self.holders = set(&self.partition().isr),
        }
        // In sync again, and not by a registration that is out of date.
        self.damaged &= !(set(&self.partition().isr) & !self.in_doubt);
    }

    fn let_in(&mut self, id: i32) {
        let broker_epoch = self.epoch(id);
        self.apply(Kind::UnfenceBroker(v1::UnfenceBroker { broker_id: id, broker_epoch }));
    }

    fn register(&mut self, id: i32) {
        let stored = self.machine.state().broker(NodeId(id)).cloned().unwrap_or_default();
        let mut dir_id = stored.log_dir_ids.first().map_or(vec![id as u8; 16], |dir| dir.to_vec());
        if self.in_doubt & bit(id) != 0 {
            dir_id[15] ^= 1;
            self.in_doubt &= !bit(id);
        }
        let request = v1::RegisterBrokerRequest {
            broker_id: id,
            incarnation: stored.incarnation + 1,
            boot_id: "b".to_owned(),
            log_dirs: vec![v1::LogDir { dir_id: dir_id.into(), ..v1::LogDir::default() }],
            endpoints: vec![v1::Endpoint { listener: "L".into(), host: "h".into(), port: 1, ..Default::default() }],
            metadata_index: u64::try_from(stored.epoch).unwrap_or(0),
            levels: Some(v1::Levels::ours()),
            ..v1::RegisterBrokerRequest::default()
        };
        self.apply(Kind::RegisterBroker(v1::RegisterBroker { request: Some(request) }));
    }

    fn propose(&mut self, wanted: Set) {
        let partition = self.partition();
        let leader = partition.leader.unwrap().0;
        let members = (1..=3).filter(|id| wanted & bit(*id) != 0);
        let isr = members.map(|id| v1::IsrMember { broker_id: id, broker_epoch: self.epoch(id) }).collect();
        let request = v1::AlterIsrRequest {
            broker_id: leader,
            broker_epoch: self.epoch(leader),
            partitions: vec![v1::PartitionIsr {
                topic_id: self.topic.0.to_vec().into(),
                partition: 0,
                leader_epoch: partition.leader_epoch.0,
                partition_epoch: partition.partition_epoch.0,
                isr,
                recovered: false,
            }],
        };
        // Who asks to enter holds everything by then (L6), and counts for the watermark from then on (L7).
        self.holders |= wanted & !self.in_doubt;
        self.apply(Kind::AlterIsr(request));
    }

    /// One entry of one command. Epochs count in each (invariant 6).
    fn apply(&mut self, kind: Kind) {
        let before = self.machine.state().partition(self.topic, 0).cloned();
        let index = self.machine.progress().next_index.max(1);
        let context = Context { index, time: Timestamp(0), seed: Seed::new(1, index), default_min_isr: 1 };
        self.machine.apply(&context, &command(kind)).unwrap();
        self.machine.end_entry(index);
        let (Some(before), Some(now)) = (before, self.machine.state().partition(self.topic, 0)) else { return };
        if before != *now {
            assert_eq!(now.partition_epoch.0, before.partition_epoch.0 + 1, "{before:?} then {now:?}");
            let has_moved = i32::from(before.leader != now.leader);
            assert_eq!(now.leader_epoch.0, before.leader_epoch.0 + has_moved, "{before:?} then {now:?}");
        }
        if let Some(leader) = now.leader.filter(|leader| before.leader != Some(*leader)) {
            // Whoever lets itself in by a proposal may lead at once, when the one that proposed is to stop.
            let is_electable =
                before.isr.contains(&leader) || before.elr.contains(&leader) || now.isr.contains(&leader);
            assert!(is_electable && !now.lost.contains(&leader), "{before:?} then {now:?}");
            assert!(self.machine.state().is_eligible(leader), "{leader} leads and may not: {now:?}");
        }
    }

    /// Invariants 10 and 2, and that nothing is lost.
    fn check(&self, story: &str) {
        let partition = self.partition();
        let (isr, elr, lost) = (set(&partition.isr), set(&partition.elr), set(&partition.lost));
        let fenced = |id: &NodeId| self.machine.state().broker(*id).is_none_or(|broker| broker.fenced);
        assert!(partition.leader.is_none_or(|leader| isr & bit(leader.0) != 0), "{story}: {partition:?}");
        assert_eq!((isr & elr, (isr | elr) & lost), (0, 0), "{story}: {partition:?}");
        assert!(!partition.isr.iter().any(fenced), "{story}: {partition:?}");
        assert!(partition.isr.len() < self.min_isr || elr == 0, "{story}: {partition:?}");
        let hollow = (isr | elr) & !self.in_doubt & !self.holders;
        assert_eq!(hollow, 0, "{story}: {hollow:b} may be elected and lacks records: {partition:?}");
        assert!(self.holders != 0, "{story}: no replica holds what was committed: {partition:?}");
    }

    /// 21: with everybody back, somebody leads.
    fn check_recovery(&self, story: &str) {
        let mut back = self.clone();
        for id in 1..=3 {
            back.register(id);
            back.let_in(id);
        }
        assert!(back.partition().leader.is_some(), "{story}: all are back, nobody leads: {:?}", back.partition());
        back.check(story);
    }

    fn partition(&self) -> &Partition {
        self.machine.state().partition(self.topic, 0).unwrap()
    }

    fn epoch(&self, id: i32) -> i64 {
        self.machine.state().broker(NodeId(id)).unwrap().epoch
    }

    fn key(&self) -> Key {
        let standing = |id: i32| {
            let broker = self.machine.state().broker(NodeId(id)).unwrap();
            (broker.fenced, broker.shutting_down)
        };
        let partition = self.partition();
        let sets = [set(&partition.isr), set(&partition.elr), set(&partition.lost)];
        let leader = partition.leader.map_or(-1, |leader| leader.0);
        ([standing(1), standing(2), standing(3)], sets, leader, [self.holders, self.in_doubt, self.damaged])
    }
}

fn bit(id: i32) -> Set {
    1 << (id - 1)
}

fn set(ids: &[NodeId]) -> Set {
    ids.iter().fold(0, |set, id| set | bit(id.0))
}

const ALL: Set = 0b111;
