//! Moves of partitions, through the replicated machine's door.

use std::collections::BTreeSet;

use proptest::prelude::*;
use thalweg_coordinator::registry::context::{Context, Seed};
use thalweg_coordinator::registry::election::Partition;
use thalweg_coordinator::registry::{Machine, Outcome, features};
use thalweg_coordinator::session::command;
use thalweg_model::{NodeId, Timestamp, TopicId};
use thalweg_proto::v1::command::Kind;
use thalweg_proto::v1::*;

/// Brokers 1 to 5 alive; topic `t` with one partition and `min.insync.replicas` 2.
struct World {
    machine: Machine,
    index: u64,
}

impl World {
    fn new(replicas: &[i32]) -> World {
        let mut world = World { machine: Machine::default(), index: 0 };
        world.apply(features::first_command([3; 16]));
        for id in 1..=5 {
            let request = RegisterBrokerRequest {
                broker_id: id,
                incarnation: 1,
                log_dirs: vec![LogDir { dir_id: vec![id as u8; 16].into(), ..LogDir::default() }],
                endpoints: vec![Endpoint { host: "h".into(), port: 1, ..Endpoint::default() }],
                levels: Some(Levels::ours()),
                ..RegisterBrokerRequest::default()
            };
            world.apply(Kind::RegisterBroker(RegisterBroker { request: Some(request) }));
            world.unfence(id);
        }
        let min_isr = replicas.len().min(2).to_string();
        let topic = NewTopic {
            name: "t".into(),
            partitions: -1,
            replication_factor: -1,
            assignments: vec![ReplicaAssignment { partition: 0, replicas: replicas.to_vec() }],
            configs: vec![ConfigEntry { key: "min.insync.replicas".into(), value: Some(min_isr) }],
            ..NewTopic::default()
        };
        let created = world.apply(Kind::CreateTopics(CreateTopics { topics: vec![topic], partitions_max: 9 }));
        assert!(matches!(created, Outcome::CreatedTopics(topics) if topics[0].error == Some(KafkaError::default())));
        world
    }

    fn apply(&mut self, kind: Kind) -> Outcome {
        self.index += 1;
        let context =
            Context { index: self.index, time: Timestamp(0), seed: Seed::new(1, self.index), default_min_isr: 1 };
        let (outcome, _) = self.machine.apply(&context, &command(kind)).unwrap();
        self.machine.end_entry(self.index);
        outcome
    }

    fn epoch(&self, id: i32) -> i64 {
        self.machine.state().broker(NodeId(id)).unwrap().epoch
    }

    fn unfence(&mut self, id: i32) {
        let broker_epoch = self.epoch(id);
        self.apply(Kind::UnfenceBroker(UnfenceBroker { broker_id: id, broker_epoch }));
    }

    fn fence(&mut self, id: i32) {
        let broker_epoch = self.epoch(id);
        self.apply(Kind::FenceBroker(FenceBroker { broker_id: id, broker_epoch }));
    }

    fn topic(&self) -> TopicId {
        self.machine.state().topic("t").unwrap().id
    }

    fn partition(&self) -> &Partition {
        self.machine.state().partition(self.topic(), 0).unwrap()
    }

    /// (replicas, adding, removing, isr, leader)
    fn seen(&self) -> (Vec<i32>, Vec<i32>, Vec<i32>, Vec<i32>, i32) {
        let record = self.partition().to_record(&[], 0);
        (record.replicas, record.adding, record.removing, record.isr, record.leader)
    }

    fn reassign(&mut self, replicas: &[i32], cancel: bool, is_fixed: bool) -> (i32, String) {
        let wanted = Reassignment { topic: "t".into(), partition: 0, replicas: replicas.to_vec(), cancel };
        let request = AlterReassignmentsRequest { partitions: vec![wanted], fixed_replication_factor: is_fixed };
        let Outcome::Reassigned(mut answers) = self.apply(Kind::AlterReassignments(request)) else { panic!("odd") };
        let error = answers.remove(0).error.unwrap();
        (error.code, error.message)
    }

    /// 0 if that can begin, or needs no beginning.
    fn move_to(&mut self, replicas: &[i32]) -> i32 {
        self.reassign(replicas, false, false).0
    }

    fn cancel(&mut self) -> i32 {
        self.reassign(&[], true, false).0
    }

    /// The leader asks for another ISR.
    fn alter_isr(&mut self, isr: &[i32]) -> bool {
        let partition = self.partition().clone();
        let Some(leader) = partition.leader else { return false };
        let member = |id: &i32| IsrMember { broker_id: *id, broker_epoch: self.epoch(*id) };
        let wanted = PartitionIsr {
            topic_id: self.topic().0.to_vec().into(),
            leader_epoch: partition.leader_epoch.0,
            partition_epoch: partition.partition_epoch.0,
            isr: isr.iter().map(member).collect(),
            ..PartitionIsr::default()
        };
        let request =
            AlterIsrRequest { broker_id: leader.0, broker_epoch: self.epoch(leader.0), partitions: vec![wanted] };
        let Outcome::AlteredIsr(answer) = self.apply(Kind::AlterIsr(request)) else { panic!("odd") };
        answer.partitions[0].error.as_ref().unwrap().code == 0
    }
}

#[test]
fn a_move_grows_waits_for_the_newcomers_and_ends_in_one_step() {
    let mut world = World::new(&[1, 2, 3]);
    assert_eq!(world.move_to(&[4, 5, 3]), 0);
    assert_eq!(world.seen(), (vec![4, 5, 3, 1, 2], vec![4, 5], vec![1, 2], vec![1, 2, 3], 1));
    assert_eq!(world.partition().leader_epoch.0, 1, "the old leader's followers are told anew");
    assert!(world.alter_isr(&[1, 2, 3, 4]));
    assert_eq!(world.seen().1, [4, 5], "5 is missing");
    let before = world.partition().clone();
    assert!(world.alter_isr(&[1, 2, 3, 4, 5]));
    assert_eq!(world.seen(), (vec![4, 5, 3], vec![], vec![], vec![3, 4, 5], 4));
    let after = world.partition();
    assert_eq!(after.leader_epoch.0, before.leader_epoch.0 + 1);
    assert_eq!(after.partition_epoch.0, before.partition_epoch.0 + 1, "one step");
    assert!(after.elr.is_empty() && after.lost.is_empty());
}

#[test]
fn those_who_go_stay_until_those_who_stay_are_enough() {
    let mut world = World::new(&[1, 2, 3]);
    world.fence(3);
    assert_eq!(world.move_to(&[3, 4]), 0);
    assert!(world.alter_isr(&[1, 2, 4]));
    assert_eq!(world.seen().2, [1, 2], "4 alone is below min.insync.replicas");
    world.unfence(3);
    assert!(world.alter_isr(&[1, 2, 3, 4]));
    assert_eq!(world.seen(), (vec![3, 4], vec![], vec![], vec![3, 4], 3));
    assert_eq!(world.move_to(&[4, 3]), 0);
    assert_eq!(world.seen(), (vec![4, 3], vec![], vec![], vec![3, 4], 3), "another order is done at once");
}

#[test]
fn a_dead_leader_on_the_way_out_ends_nothing_early_and_its_successor_goes_on() {
    let mut world = World::new(&[1, 2]);
    world.move_to(&[3, 4]);
    world.fence(1);
    assert_eq!(world.seen(), (vec![3, 4, 1, 2], vec![3, 4], vec![1, 2], vec![2], 2));
    assert!(world.alter_isr(&[2, 3]));
    assert!(world.alter_isr(&[2, 3, 4]));
    assert_eq!(world.seen(), (vec![3, 4], vec![], vec![], vec![3, 4], 3));
}

#[test]
fn a_cancelled_move_goes_back_only_where_enough_are_in_sync() {
    let mut world = World::new(&[1, 2, 3]);
    assert_eq!(world.cancel(), 85);
    world.move_to(&[1, 4, 5]);
    world.alter_isr(&[1, 4]);
    assert_eq!(world.cancel(), 39, "1 alone would be left in sync");
    assert_eq!(world.seen().1, [4, 5]);
    world.alter_isr(&[1, 2, 4]);
    assert_eq!(world.cancel(), 0);
    let (mut replicas, adding, removing, isr, leader) = world.seen();
    replicas.sort_unstable();
    assert_eq!((replicas, adding, removing, isr, leader), (vec![1, 2, 3], vec![], vec![], vec![1, 2], 1));
}

#[test]
fn a_move_can_be_sent_elsewhere_and_keeps_where_it_began() {
    let mut world = World::new(&[1, 2]);
    world.move_to(&[3, 4]);
    world.alter_isr(&[1, 2, 3]);
    assert_eq!(world.move_to(&[3, 5]), 0);
    assert_eq!(world.seen(), (vec![3, 5, 1, 2], vec![3, 5], vec![1, 2], vec![1, 2, 3], 1));
    assert_eq!(world.move_to(&[2, 1]), 0, "back, in another order");
    assert_eq!(world.seen(), (vec![2, 1], vec![], vec![], vec![1, 2], 1));
}

#[test]
fn more_replicas_for_a_while_do_not_raise_what_a_write_needs() {
    let mut world = World::new(&[1]);
    world.apply(Kind::AlterConfigs(AlterConfigs {
        resources: vec![ConfigResource {
            kind: 4,
            changes: vec![ConfigChange { key: "min.insync.replicas".into(), op: 0, value: Some("3".into()) }],
            ..ConfigResource::default()
        }],
    }));
    world.move_to(&[1, 2, 3]);
    assert_eq!(world.partition().factor(), 1);
    world.move_to(&[2]);
    assert_eq!((world.partition().factor(), world.partition().replicas.len()), (1, 2));
    assert!(world.alter_isr(&[1, 2]));
    assert_eq!(world.seen(), (vec![2], vec![], vec![], vec![2], 2));
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let mut world = World::new(&[1, 2, 3]);
    let before = world.machine.state().clone();
    for (replicas, is_fixed, code, reason) in [
        (&[][..], false, 39, "at least one"),
        (&[1, 1], false, 39, "more than once"),
        (&[1, 2, 9], false, 39, "9 is not registered"),
        (&[1, 2, -1], false, 39, "not registered"),
        (&[1, 2], true, 38, "the number is to stay"),
        (&[1], false, 38, "min.insync.replicas is 2"),
    ] {
        let (told, message) = world.reassign(replicas, false, is_fixed);
        assert_eq!(told, code, "{replicas:?}: {message}");
        assert!(message.contains(reason), "{message}");
    }
    let named = |topic: &str, partition| Reassignment { topic: topic.into(), partition, ..Reassignment::default() };
    let partitions = vec![named("none", 0), named("t", 1), named("t", -1), named("none", 0)];
    let request = AlterReassignmentsRequest { partitions, ..AlterReassignmentsRequest::default() };
    let Outcome::Reassigned(answers) = world.apply(Kind::AlterReassignments(request)) else { panic!("odd") };
    let codes: Vec<i32> = answers.into_iter().map(|one| one.error.unwrap().code).collect();
    assert_eq!(codes, [3, 3, 3, 42]);
    assert_eq!(*world.machine.state(), before);
}

#[test]
fn an_unclean_election_takes_no_newcomer_while_an_old_replica_lives() {
    let mut world = World::new(&[1, 2]);
    world.move_to(&[3, 4]);
    world.fence(1);
    world.fence(2);
    assert_eq!(world.seen().4, -1, "nobody who has everything is alive");
    let election = |world: &mut World| {
        let topics = vec![TopicPartitions { topic: "t".into(), partitions: vec![0], ..TopicPartitions::default() }];
        let request = ElectLeadersRequest { election: 1, all: false, topics };
        world.apply(Kind::ElectLeaders(request));
        world.seen().4
    };
    let mut alone = World::new(&[1, 2]);
    alone.move_to(&[3, 4]);
    alone.fence(1);
    alone.fence(2);
    assert_eq!(election(&mut alone), 3, "better than nothing");
    world.unfence(2);
    assert_eq!(world.seen().4, 2);
}

#[derive(Clone, Debug)]
enum Step {
    Move(Vec<i32>),
    Cancel,
    AlterIsr(u8),
    Fence(i32),
    Unfence(i32),
    Commit,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(vec![1, 2, 3, 4, 5]).prop_shuffle().prop_flat_map(|ids| (2..4usize)
            .prop_map(move |count| Step::Move(ids[..count].to_vec()))),
        1 => Just(Step::Cancel),
        6 => any::<u8>().prop_map(Step::AlterIsr),
        2 => (1..6i32).prop_map(Step::Fence),
        3 => (1..6i32).prop_map(Step::Unfence),
        3 => Just(Step::Commit),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// Goal: moves lose nothing, whatever dies meanwhile. Method: follow who holds all that was committed: a commit is on
    /// the in-sync replicas, a replica that is taken away forgets, and one that joins has copied. Whoever may lead must hold
    /// everything, at every step; when all live again there is a leader, and the move ends.
    #[test]
    fn whoever_may_lead_has_every_committed_record(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::new(&[1, 2, 3]);
        let mut holders: BTreeSet<NodeId> = world.partition().isr.iter().copied().collect();
        for step in steps {
            let before = world.partition().clone();
            match step {
                Step::Move(target) => drop(world.move_to(&target)),
                Step::Cancel => drop(world.cancel()),
                Step::AlterIsr(bits) => {
                    let wanted: Vec<i32> = before.replicas.iter().map(|id| id.0)
                        .filter(|id| bits >> id & 1 == 1 || before.leader == Some(NodeId(*id))).collect();
                    if world.alter_isr(&wanted) {
                        holders.extend(wanted.into_iter().map(NodeId));
                    }
                }
                Step::Fence(id) => world.fence(id),
                Step::Unfence(id) => world.unfence(id),
                Step::Commit => {
                    if before.leader.is_some() && before.isr.len() >= 2 {
                        holders = before.isr.iter().copied().collect();
                    }
                }
            }
            let now = world.partition();
            holders.retain(|id| now.replicas.contains(id));
            prop_assert!(now.isr.iter().chain(&now.elr).all(|id| holders.contains(id)), "{now:?} {holders:?}");
            prop_assert!(now.leader.is_none_or(|leader| now.isr.contains(&leader)));
            prop_assert!(now.isr.iter().chain(&now.elr).chain(&now.lost).all(|id| now.replicas.contains(id)));
            prop_assert!(now.adding.iter().all(|id| now.replicas.contains(id) && !now.removing.contains(id)));
            prop_assert!(now.removing.iter().all(|id| now.replicas.contains(id)));
            prop_assert_eq!(now.leader_epoch > before.leader_epoch,
                now.leader != before.leader || now.replicas != before.replicas);
            prop_assert_eq!(now.partition_epoch > before.partition_epoch, *now != before);
            let fresh = now.replicas.iter().filter(|id| !before.replicas.contains(id));
            prop_assert!(fresh.clone().all(|id| !now.isr.contains(id)), "nobody comes in sync by being added");
        }
        (1..=5).for_each(|id| world.unfence(id));
        let leader = world.partition().leader;
        prop_assert!(leader.is_some_and(|leader| holders.contains(&leader)));
        // Two rounds: one may still be below the minimum, where only the leader counts.
        for _ in 0..2 {
            let all: Vec<i32> = world.partition().replicas.iter().map(|id| id.0).collect();
            prop_assert!(world.alter_isr(&all));
        }
        prop_assert!(!world.partition().is_moving() && world.partition().isr.len() == world.partition().replicas.len());
    }
}
