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
    assert!(!leader.beat(one).fenced);
    assert_eq!(leader.partitions(), [(1, vec![1], vec![])]);
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
    let again = leader.register(registration(1, 1));
    assert_eq!((code(&again.error), again.broker_epoch), (0, one.broker_epoch), "the same request, the same answer");
    let next = leader.register(registration(1, 2));
    assert_eq!(code(&next.error), 0, "it holds the lock on the directories, so the first has ended");
    assert!(next.broker_epoch > one.broker_epoch);
    let stale = leader.beat(one);
    assert_eq!((code(&stale.error), stale.fenced), (77, true));
    assert_eq!(code(&leader.register(registration(1, 1)).error), 101, "an older life");
    leader.pass_ms(9_000);
    let stranger = RegisterBrokerRequest { incarnation: 3, ..stranger };
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
