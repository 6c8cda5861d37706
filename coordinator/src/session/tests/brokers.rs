//! Brokers' sessions: leases, fencing, coming back, stopping.

use super::*;

impl Leader {
    fn register(&mut self, request: RegisterBrokerRequest) -> RegisterBrokerResponse {
        let ticket = self.call(Call::RegisterBroker(request));
        match self.reply(ticket) {
            Reply::RegisterBroker(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    fn beat(&mut self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse {
        let ticket = self.call(Call::BrokerHeartbeat(request));
        match self.reply(ticket) {
            Reply::BrokerHeartbeat(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    /// Registers and is unfenced.
    fn live(&mut self, id: i32) -> BrokerHeartbeatRequest {
        let registered = self.register(registration(id, 1));
        let beat = beat(&registered);
        assert!(!self.beat(beat.clone()).fenced);
        beat
    }

    fn create(&mut self, partitions: i32, factor: i32) {
        let topic = NewTopic { name: "t".into(), partitions, replication_factor: factor, ..NewTopic::default() };
        self.apply(&command(v1::command::Kind::CreateTopics(CreateTopics { topics: vec![topic], partitions_max: 99 })));
    }

    /// (leader, isr, elr) of each partition.
    fn partitions(&self) -> Vec<(i32, Vec<i32>, Vec<i32>)> {
        let partitions = self.machine.state().partitions();
        partitions
            .map(|(_, _, partition)| partition.to_record(&[], 0))
            .map(|record| (record.leader, record.isr, record.elr))
            .collect()
    }
}

fn registration(id: i32, incarnation: u64) -> RegisterBrokerRequest {
    RegisterBrokerRequest {
        broker_id: id,
        incarnation,
        boot_id: "boot".into(),
        log_dirs: vec![LogDir { dir_id: vec![id as u8; 16].into(), ..LogDir::default() }],
        endpoints: vec![Endpoint { host: "h".into(), port: 9092, ..Endpoint::default() }],
        levels: Some(Levels::ours()),
        ..RegisterBrokerRequest::default()
    }
}

fn beat(registered: &RegisterBrokerResponse) -> BrokerHeartbeatRequest {
    BrokerHeartbeatRequest {
        broker_id: registered.broker_id,
        broker_epoch: registered.broker_epoch,
        metadata_index: registered.index,
        ..BrokerHeartbeatRequest::default()
    }
}

#[test]
fn a_broker_leads_only_once_it_knows_its_registration_and_has_recovered() {
    let mut leader = Leader::new();
    let registered = leader.register(registration(1, 1));
    let current = beat(&registered);
    let behind = BrokerHeartbeatRequest { metadata_index: registered.index - 1, ..current.clone() };
    assert!(leader.beat(behind).fenced);
    assert!(leader.beat(BrokerHeartbeatRequest { want_fence: true, ..current.clone() }).fenced);
    let answer = leader.beat(current.clone());
    assert_eq!((answer.fenced, answer.lease_ms), (false, 9_000));
    assert!(leader.beat(BrokerHeartbeatRequest { want_fence: true, ..current }).fenced);
}

#[test]
fn a_lease_that_runs_out_fences_and_a_heartbeat_brings_the_broker_back() {
    let mut leader = Leader::new();
    let one = leader.live(1);
    leader.create(1, 1);
    leader.pass_ms(8_999);
    assert_eq!(leader.partitions(), [(1, vec![1], vec![])]);
    leader.pass_ms(1);
    assert_eq!(leader.partitions(), [(-1, vec![], vec![1])]);
    assert!(!leader.beat_current(&one).fenced);
    assert_eq!(leader.partitions(), [(1, vec![1], vec![])]);
}

/// Goal: a broker that was cut off does not lead in its old epoch until its feed catches up. Method: its heartbeat is first.
#[test]
fn a_broker_that_was_fenced_is_let_in_once_it_has_heard_of_it() {
    let mut leader = Leader::new();
    let (one, two) = (leader.live(1), leader.live(2));
    leader.create(1, 2);
    let knows_all = leader.beat_current(&one);
    assert!(!knows_all.fenced);
    let before = leader.machine.feed_index();
    leader.pass_ms(5_000);
    leader.beat_current(&two);
    leader.pass_ms(4_000);
    assert_eq!(leader.partitions()[0].0, 2, "the other was elected");
    let late = BrokerHeartbeatRequest { metadata_index: before, ..one.clone() };
    assert!(leader.beat(late.clone()).fenced);
    leader.fail_over();
    assert!(leader.beat(late).fenced, "nor by a new leader, which does not know when it was fenced");
    assert!(!leader.beat_current(&one).fenced);
}

#[test]
fn heartbeats_cost_no_raft_entry() {
    let mut leader = Leader::new();
    let one = leader.live(1);
    let before = leader.proposals;
    for _ in 0..100 {
        leader.pass_ms(2_000);
        assert!(!leader.beat(one.clone()).fenced);
    }
    assert_eq!(leader.proposals, before);
}

#[test]
fn another_process_is_refused_while_the_first_lives_but_the_same_storage_is_not() {
    let mut leader = Leader::new();
    let one = leader.live(1);
    let stranger = RegisterBrokerRequest {
        log_dirs: vec![LogDir { dir_id: vec![99; 16].into(), ..LogDir::default() }],
        ..registration(1, 2)
    };
    assert_eq!(code(&leader.register(stranger.clone()).error), 101);
    let twin = RegisterBrokerRequest { incarnation: 1, ..stranger.clone() };
    assert_eq!(code(&leader.register(twin).error), 101, "as many lives, but in other directories");
    let again = leader.register(registration(1, 1));
    assert_eq!((code(&again.error), again.broker_epoch), (0, one.broker_epoch), "the same request, the same answer");
    assert_eq!(code(&leader.register(registration(1, 2)).error), 101, "on a copy: the first is still heard");
    leader.event(Event::ConnectionLost(life(&one)));
    let next = leader.register(registration(1, 2));
    assert_eq!(code(&next.error), 0, "it holds the lock on the directories, so the first has ended");
    assert!(next.broker_epoch > one.broker_epoch);
    let stale = leader.beat(one);
    assert_eq!((code(&stale.error), stale.fenced), (77, true));
    assert_eq!(code(&leader.register(registration(1, 1)).error), 119, "an older life");
    let known = beat(&next);
    assert!(!leader.beat(known).fenced);
    assert_eq!(code(&leader.register(RegisterBrokerRequest { incarnation: 3, ..stranger.clone() }).error), 101);
    leader.pass_ms(9_000);
    let metadata_index = next.broker_epoch as u64;
    let stranger = RegisterBrokerRequest { incarnation: 3, metadata_index, ..stranger };
    assert_eq!(code(&leader.register(stranger).error), 0, "its lease is over");
}

#[test]
fn an_unknown_broker_is_told_to_register() {
    let mut leader = Leader::new();
    let answer = leader.beat(BrokerHeartbeatRequest { broker_id: 5, broker_epoch: 1, ..Default::default() });
    assert_eq!(code(&answer.error), 102);
}

#[test]
fn a_controlled_stop_moves_the_lead_and_waits_until_the_others_know() {
    let mut leader = Leader::new();
    let (one, mut two) = (leader.live(1), leader.live(2));
    leader.create(2, 2);
    leader.beat(two.clone());
    let stop = BrokerHeartbeatRequest { want_shutdown: true, ..one };
    let answer = leader.beat(stop.clone());
    assert!(!answer.may_shut_down, "broker 2 does not know yet that it leads");
    assert!(leader.partitions().iter().all(|(led_by, isr, _)| *led_by == 2 && *isr == [2]));
    two.metadata_index = leader.machine.feed_index();
    leader.beat(two);
    assert!(leader.beat(stop).may_shut_down);
    assert!(leader.machine.state().broker(thalweg_model::NodeId(1)).unwrap().fenced);
}

#[test]
fn a_new_leader_gives_every_broker_a_full_lease() {
    let mut leader = Leader::new();
    let one = leader.live(1);
    leader.create(1, 1);
    leader.pass_ms(8_000);
    leader.fail_over();
    leader.pass_ms(8_000);
    assert_eq!(leader.partitions(), [(1, vec![1], vec![])]);
    assert!(!leader.beat(one).fenced);
    leader.fail_over();
    leader.pass_ms(9_000);
    assert_eq!(leader.partitions(), [(-1, vec![], vec![1])]);
}

fn life(beat: &BrokerHeartbeatRequest) -> Life {
    Life { id: thalweg_model::NodeId(beat.broker_id), epoch: beat.broker_epoch }
}

fn report(reporter: &BrokerHeartbeatRequest, suspect: &BrokerHeartbeatRequest) -> ReportUnreachableRequest {
    ReportUnreachableRequest {
        broker_id: reporter.broker_id,
        broker_epoch: reporter.broker_epoch,
        suspect_id: suspect.broker_id,
        suspect_epoch: suspect.broker_epoch,
    }
}

impl Leader {
    /// (code, fenced)
    fn told(&mut self, request: ReportUnreachableRequest) -> (i32, bool) {
        let ticket = self.call(Call::ReportUnreachable(request));
        match self.reply(ticket) {
            Reply::ReportUnreachable(answer) => (code(&answer.error), answer.fenced),
            other => panic!("{other:?}"),
        }
    }
}

/// Goal: a killed broker's partitions move long before its lease runs out, a live one's never (REPLICATION B5).
#[test]
fn a_refused_connection_fences_only_whom_the_coordinator_has_lost_too() {
    let mut leader = Leader::new();
    let (one, two) = (leader.live(1), leader.live(2));
    leader.create(1, 2);
    assert_eq!(leader.told(report(&two, &one)), (0, false), "it is heard");
    leader.pass_ms(5_999);
    assert_eq!(leader.told(report(&two, &one)), (0, false));
    leader.pass_ms(1);
    assert_eq!(leader.told(report(&two, &one)), (0, true), "two heartbeats overdue");
    assert_eq!(leader.partitions(), [(2, vec![2], vec![])]);
    assert!(!leader.beat_current(&one).fenced, "it was alive after all");

    leader.event(Event::ConnectionLost(life(&one)));
    assert_eq!(leader.probes, [life(&one)], "its listener is tried at once, and once");
    leader.event(Event::Tick);
    assert_eq!(leader.probes.len(), 1);
    leader.beat(one.clone());
    leader.event(Event::ConnectionRefused(life(&one)));
    assert!(!leader.machine.state().broker(life(&one).id).unwrap().fenced, "heard again meanwhile");
    leader.event(Event::ConnectionLost(life(&one)));
    leader.event(Event::ConnectionRefused(life(&one)));
    assert!(leader.machine.state().broker(life(&one).id).unwrap().fenced);
    assert_eq!(leader.told(ReportUnreachableRequest { broker_epoch: 0, ..report(&two, &one) }).0, 77);
    let former = BrokerHeartbeatRequest { broker_epoch: 0, ..two.clone() };
    assert_eq!(leader.told(report(&two, &former)), (0, true), "that life is over");
    assert!(!leader.machine.state().broker(life(&two).id).unwrap().fenced);
}

/// A coordinator that died with a broker leaves one behind that has heard neither; it asks at once.
#[test]
fn a_new_leader_tries_the_listeners_of_brokers_that_it_has_not_heard() {
    let mut leader = Leader::new();
    let (one, two) = (leader.live(1), leader.live(2));
    leader.fail_over();
    leader.beat(two.clone());
    let mut probed = leader.probes.clone();
    probed.sort_unstable();
    assert_eq!(probed, [life(&one)]);
    leader.event(Event::ConnectionRefused(life(&one)));
    let fenced = |leader: &Leader, beat| leader.machine.state().broker(life(beat).id).unwrap().fenced;
    assert!(fenced(&leader, &one) && !fenced(&leader, &two));
}

impl Leader {
    /// The leader of a partition, alive, asks for this ISR.
    fn propose_isr(&mut self, index: i32, isr: &[i32]) {
        let state = self.machine.state();
        let (topic, _, partition) = state.partitions().find(|(_, other, _)| *other == index).unwrap();
        let member = |id: i32| {
            let broker = state.broker(thalweg_model::NodeId(id)).unwrap();
            IsrMember { broker_id: id, broker_epoch: broker.epoch }
        };
        let sender = member(partition.leader.unwrap().0);
        let wanted = PartitionIsr {
            topic_id: crate::registry::state::id_bytes(topic),
            partition: index,
            leader_epoch: partition.leader_epoch.0,
            partition_epoch: partition.partition_epoch.0,
            isr: isr.iter().map(|id| member(*id)).collect(),
            recovered: false,
        };
        let IsrMember { broker_id, broker_epoch } = sender;
        let request = AlterIsrRequest { broker_id, broker_epoch, partitions: vec![wanted] };
        self.apply(&command(v1::command::Kind::AlterIsr(request)));
    }

    /// Beats with everything known that there is to know.
    fn beat_current(&mut self, beat: &BrokerHeartbeatRequest) -> BrokerHeartbeatResponse {
        self.beat(BrokerHeartbeatRequest { metadata_index: self.machine.feed_index(), ..beat.clone() })
    }
}

/// REPLICATION 3.4: a stop waits for as long as another replica may still take over, and for no longer.
#[test]
fn a_controlled_stop_waits_for_a_replica_that_may_come_into_sync() {
    let mut leader = Leader::new();
    let (one, two) = (leader.live(1), leader.live(2));
    leader.create(2, 2);
    // Wherever partition 0 is led from, its follower falls out of sync.
    let (leads, follows) = if leader.partitions()[0].0 == 1 { (one, two) } else { (two, one) };
    let (first, second) = (leads.broker_id, follows.broker_id);
    leader.propose_isr(0, &[first]);
    let stop = BrokerHeartbeatRequest { want_shutdown: true, ..leads };
    assert!(!leader.beat(stop.clone()).may_shut_down);
    leader.beat_current(&follows);
    assert!(!leader.beat(stop.clone()).may_shut_down, "the follower may still come in");
    assert_eq!(leader.partitions(), [(first, vec![first], vec![]), (second, vec![second], vec![])]);
    leader.propose_isr(0, &[first, second]);
    assert_eq!(leader.partitions()[0], (second, vec![second], vec![]), "it takes over, and suffices");
    assert!(!leader.beat(stop.clone()).may_shut_down, "it does not know yet");
    leader.beat_current(&follows);
    assert!(leader.beat(stop).may_shut_down);

    // The last one has nobody to wait for.
    let stop = BrokerHeartbeatRequest { want_shutdown: true, ..follows };
    assert!(leader.beat(stop).may_shut_down);
    assert_eq!(leader.partitions()[0], (-1, vec![], vec![second]));
}

/// Every five minutes a preferred replica that is in sync gets its lead back; nothing is proposed where nothing would change.
#[test]
fn preferred_leaders_come_back_by_themselves() {
    let mut leader = Leader::with(CoordinatorSettings { broker_lease_ms: 3_600_000, ..CoordinatorSettings::default() });
    let (one, _two) = (leader.live(1), leader.live(2));
    leader.create(2, 2);
    let led_by_1 = |leader: &Leader| leader.partitions().iter().filter(|(led_by, ..)| *led_by == 1).count();
    assert_eq!(led_by_1(&leader), 1);
    leader
        .apply(&command(v1::command::Kind::FenceBroker(FenceBroker { broker_id: 1, broker_epoch: one.broker_epoch })));
    leader.beat_current(&one);
    leader.propose_isr(0, &[1, 2]);
    leader.propose_isr(1, &[1, 2]);
    leader.pass_ms(299_999);
    assert_eq!(led_by_1(&leader), 0);
    leader.pass_ms(1);
    assert_eq!(led_by_1(&leader), 1);
    let before = leader.proposals;
    leader.pass_ms(600_000);
    assert_eq!(leader.proposals, before, "nothing is to be done");
}

/// REPLICATION B3, G2: what lay in a failed directory is in doubt; the broker lives on with the rest.
#[test]
fn replicas_of_a_failed_directory_leave_every_set() {
    let mut leader = Leader::new();
    let (one, _two) = (leader.live(1), leader.live(2));
    leader.create(2, 2);
    let topic = leader.machine.state().partitions().next().unwrap().0;
    let lost = TopicPartitions {
        topic_id: crate::registry::state::id_bytes(topic),
        partitions: vec![1],
        ..Default::default()
    };
    let some = BrokerHeartbeatRequest { offline_replicas: vec![lost], ..one.clone() };
    assert!(!leader.beat(some.clone()).fenced);
    let isrs: Vec<Vec<i32>> = leader.partitions().into_iter().map(|(_, isr, _)| isr).collect();
    assert_eq!(isrs, [vec![1, 2], vec![2]]);
    let before = leader.proposals;
    leader.beat(some);
    assert_eq!(leader.proposals, before, "said again, it is no news");
    leader.beat(BrokerHeartbeatRequest { offline_log_dirs: vec![vec![1; 16].into()], ..one });
    assert!(leader.partitions().iter().all(|(led_by, isr, elr)| *led_by == 2 && *isr == [2] && elr.is_empty()));
}
