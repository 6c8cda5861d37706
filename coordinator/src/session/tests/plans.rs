//! Plans: begun a few moves at a time, ended when all is done, by whoever leads.

use thalweg_model::NodeId;
use thalweg_proto::v1::command::Kind;
use thalweg_proto::v1::*;

use super::Leader;
use crate::registry::Outcome;
use crate::registry::election::Partition;
use crate::session::command;

const PARTITIONS: i32 = 10;

/// Brokers 1 to 3 alive; topic `t` with ten partitions, each on broker 1 alone. Broker sessions are none of this test's.
fn leader() -> Leader {
    let mut leader = Leader::new();
    for broker_id in 1..=3 {
        let request = RegisterBrokerRequest {
            broker_id,
            incarnation: 1,
            log_dirs: vec![LogDir { dir_id: vec![broker_id as u8; 16].into(), ..LogDir::default() }],
            endpoints: vec![Endpoint { host: "h".into(), port: 1, ..Endpoint::default() }],
            levels: Some(Levels::ours()),
            ..RegisterBrokerRequest::default()
        };
        leader.apply(&command(Kind::RegisterBroker(RegisterBroker { request: Some(request) })));
        let broker_epoch = leader.machine.state().broker(NodeId(broker_id)).unwrap().epoch;
        leader.apply(&command(Kind::UnfenceBroker(UnfenceBroker { broker_id, broker_epoch })));
    }
    let assignments = (0..PARTITIONS).map(|partition| ReplicaAssignment { partition, replicas: vec![1] }).collect();
    let topic =
        NewTopic { name: "t".into(), partitions: -1, replication_factor: -1, assignments, ..NewTopic::default() };
    leader.apply(&command(Kind::CreateTopics(CreateTopics { topics: vec![topic], partitions_max: 100 })));
    leader
}

fn partition(leader: &Leader, index: i32) -> Partition {
    let state = leader.machine.state();
    state.partition(state.topic("t").unwrap().id, index).unwrap().clone()
}

fn moving(leader: &Leader) -> Vec<i32> {
    (0..PARTITIONS).filter(|index| partition(leader, *index).is_moving()).collect()
}

fn step(leader: &Leader, partition: i32, to: &[i32]) -> PlanStep {
    let topic_id = leader.machine.state().topic("t").unwrap().id.0.to_vec().into();
    PlanStep { topic: "t".into(), topic_id, partition, from: vec![1], to: to.to_vec(), ..PlanStep::default() }
}

/// 0, or the code and the reason.
fn start(leader: &mut Leader, steps: Vec<PlanStep>) -> (i32, String) {
    match leader.apply(&command(Kind::StartPlan(StartPlan { steps }))) {
        Outcome::Done => (0, String::new()),
        Outcome::Refused(error) => (error.code, error.message),
        other => panic!("{other:?}"),
    }
}

/// The newcomers of a partition have caught up.
fn arrive(leader: &mut Leader, index: i32) {
    let now = partition(leader, index);
    let epoch = |id: i32| leader.machine.state().broker(NodeId(id)).unwrap().epoch;
    let isr = now.replicas.iter().map(|id| IsrMember { broker_id: id.0, broker_epoch: epoch(id.0) }).collect();
    let wanted = PartitionIsr {
        topic_id: leader.machine.state().topic("t").unwrap().id.0.to_vec().into(),
        partition: index,
        leader_epoch: now.leader_epoch.0,
        partition_epoch: now.partition_epoch.0,
        isr,
        ..PartitionIsr::default()
    };
    let request = AlterIsrRequest { broker_id: 1, broker_epoch: epoch(1), partitions: vec![wanted] };
    leader.apply(&command(Kind::AlterIsr(request)));
}

#[test]
fn a_plan_begins_few_moves_at_a_time_and_the_next_leader_goes_on() {
    let mut leader = leader();
    let mut steps: Vec<PlanStep> = (0..6).map(|index| step(&leader, index, &[2])).collect();
    steps.extend((6..8).map(|index| step(&leader, index, &[3])));
    assert_eq!(start(&mut leader, steps.clone()), (0, String::new()));
    let (code, message) = start(&mut leader, steps);
    assert!(code == 60 && message.contains("is under way"), "two plans at once: {message}");
    leader.pass_ms(1_000);
    assert_eq!(moving(&leader), [0, 1, 2, 3, 6, 7], "four arrive at 2, two at 3");
    leader.fail_over();
    for index in [0, 3, 7] {
        arrive(&mut leader, index);
    }
    leader.pass_ms(1_000);
    assert_eq!(moving(&leader), [1, 2, 4, 5, 6]);
    // Somebody moves one elsewhere meanwhile: the plan lets go of it.
    let elsewhere = Reassignment { topic: "t".into(), partition: 5, replicas: vec![1], cancel: false };
    let request = AlterReassignmentsRequest { partitions: vec![elsewhere], ..AlterReassignmentsRequest::default() };
    leader.apply(&command(Kind::AlterReassignments(request)));
    leader.pass_ms(1_000);
    assert_eq!(moving(&leader), [1, 2, 4, 5, 6], "back where it began, it is begun again");
    for index in [1, 2, 4, 5, 6] {
        arrive(&mut leader, index);
    }
    leader.pass_ms(1_000);
    assert!(leader.machine.state().plan().is_none(), "it has ended by itself");
    for (index, on) in (0..).zip([2, 2, 2, 2, 2, 2, 3, 3, 1, 1]) {
        assert_eq!(partition(&leader, index).replicas, [NodeId(on)], "partition {index}");
    }
}

#[test]
fn a_cancelled_plan_calls_off_what_is_under_way_and_keeps_what_is_done() {
    let mut leader = leader();
    let steps = (0..6).map(|index| step(&leader, index, &[2])).collect();
    start(&mut leader, steps);
    leader.pass_ms(1_000);
    arrive(&mut leader, 0);
    let cancel = command(Kind::EndPlan(EndPlan { id: 0, cancel: true }));
    assert_eq!(leader.apply(&cancel), Outcome::Done);
    leader.pass_ms(1_000);
    assert_eq!((moving(&leader), leader.machine.state().plan()), (vec![], None));
    assert_eq!(partition(&leader, 0).replicas, [NodeId(2)]);
    assert!((1..6).all(|index| partition(&leader, index).replicas == [NodeId(1)]));
    assert!(matches!(leader.apply(&cancel), Outcome::Refused(error) if error.code == 85));
}

#[test]
fn an_order_of_replicas_is_changed_at_once_and_its_leader_at_the_end() {
    let mut leader = leader();
    let steps = vec![step(&leader, 0, &[2, 1])];
    start(&mut leader, steps);
    leader.pass_ms(1_000);
    arrive(&mut leader, 0);
    leader.pass_ms(1_000);
    let now = partition(&leader, 0);
    assert_eq!((now.replicas, now.leader), (vec![NodeId(2), NodeId(1)], Some(NodeId(2))));
}

/// A plan for another cluster, an old one, or one that somebody has edited.
#[test]
fn a_plan_that_does_not_fit_the_cluster_is_refused_as_a_whole() {
    let mut leader = leader();
    let mark = |cordoned| MarkBroker { broker_id: 3, cordoned: Some(cordoned), draining: None };
    leader.apply(&command(Kind::MarkBroker(mark(true))));
    let good = step(&leader, 0, &[2]);
    let with = |change: &dyn Fn(&mut PlanStep)| {
        let mut step = good.clone();
        step.partition = 1;
        change(&mut step);
        vec![good.clone(), step]
    };
    for (steps, reason) in [
        (vec![], "without moves"),
        (with(&|step| step.topic = "other".into()), "is gone, or has no such partition"),
        (with(&|step| step.topic_id = vec![1; 16].into()), "is gone, or has no such partition"),
        (with(&|step| step.topic_id = vec![1; 3].into()), "is gone, or has no such partition"),
        (with(&|step| step.partition = 77), "is gone, or has no such partition"),
        (with(&|step| step.partition = 0), "more than once"),
        (with(&|step| step.from = vec![2]), "others than when"),
        (with(&|step| step.to = vec![]), "at least one"),
        (with(&|step| step.to = vec![2, 2]), "more than once"),
        (with(&|step| step.to = vec![9]), "not alive"),
        (with(&|step| step.to = vec![3]), "cordoned"),
    ] {
        let (code, message) = start(&mut leader, steps);
        assert!(code != 0 && message.contains(reason), "{reason}: {code} {message}");
        assert!(leader.machine.state().plan().is_none());
    }
    leader.apply(&command(Kind::MarkBroker(mark(false))));
    let steps = with(&|step| step.to = vec![3]);
    assert_eq!(start(&mut leader, steps).0, 0);
}

#[test]
fn brokers_are_forgotten_only_when_they_are_empty_and_gone_and_the_last_does_not_drain() {
    let mut leader = leader();
    let remove = |leader: &mut Leader, broker_id| match leader
        .apply(&command(Kind::UnregisterBroker(UnregisterBroker { broker_id })))
    {
        Outcome::Done => String::new(),
        Outcome::Refused(error) => error.message,
        other => panic!("{other:?}"),
    };
    assert!(remove(&mut leader, 1).contains("holds 10 replicas"));
    assert!(remove(&mut leader, 2).contains("stop it first"));
    assert!(remove(&mut leader, 9).contains("no broker 9"));
    let mark = |broker_id, draining| Kind::MarkBroker(MarkBroker { broker_id, cordoned: None, draining });
    for id in [2, 3] {
        assert_eq!(leader.apply(&command(mark(id, Some(true)))), Outcome::Done);
    }
    let last = leader.apply(&command(mark(1, Some(true))));
    assert!(matches!(last, Outcome::Refused(error) if error.message.contains("the last that takes replicas")));
    let topic = NewTopic { name: "u".into(), partitions: 1, replication_factor: 2, ..NewTopic::default() };
    let made = leader.apply(&command(Kind::CreateTopics(CreateTopics { topics: vec![topic], partitions_max: 9 })));
    assert!(matches!(made, Outcome::CreatedTopics(topics) if topics[0].error.as_ref().unwrap().code == 38));
    let broker_epoch = leader.machine.state().broker(NodeId(2)).unwrap().epoch;
    leader.apply(&command(Kind::FenceBroker(FenceBroker { broker_id: 2, broker_epoch })));
    assert_eq!(remove(&mut leader, 2), "");
    assert!(leader.machine.state().broker(NodeId(2)).is_none());
}
