//! Raising the level past brokers (REPLICATION R4).

use super::*;

const EARLIER: Levels = Levels { min: 1, max: 3 };

impl Leader {
    /// A cluster at an earlier level, as one that was founded by an earlier version.
    fn at_level(level: u32) -> Leader {
        let mut leader = Leader::new();
        leader.machine = Machine::default();
        leader.apply(&command(features::founding([9; 16], level)));
        leader.fail_over();
        leader
    }

    /// The life before has ended.
    fn broker(&mut self, id: i32, incarnation: u64, levels: Option<Levels>) -> BrokerHeartbeatRequest {
        if let Some(broker_epoch) = self.machine.state().broker(thalweg_model::NodeId(id)).map(|known| known.epoch) {
            let ended = v1::command::Kind::FenceBroker(FenceBroker { broker_id: id, broker_epoch });
            self.apply(&command(ended));
        }
        let request = RegisterBrokerRequest {
            broker_id: id,
            incarnation,
            log_dirs: vec![LogDir { dir_id: vec![id as u8; 16].into(), ..LogDir::default() }],
            endpoints: vec![Endpoint { host: "h".into(), port: 9092, ..Endpoint::default() }],
            version: "0".into(),
            levels,
            ..RegisterBrokerRequest::default()
        };
        let ticket = self.call(Call::RegisterBroker(request));
        let Reply::RegisterBroker(registered) = self.reply(ticket) else { panic!() };
        let beat = BrokerHeartbeatRequest {
            broker_id: registered.broker_id,
            broker_epoch: registered.broker_epoch,
            metadata_index: registered.index,
            levels,
            ..BrokerHeartbeatRequest::default()
        };
        let ticket = self.call(Call::BrokerHeartbeat(beat.clone()));
        self.reply(ticket);
        beat
    }

    fn raise(&mut self, level: u32, validate_only: bool) -> (i32, String) {
        let ticket = self.call(Call::RaiseLevel { level, validate_only });
        let Reply::RaiseLevel(answer) = self.reply(ticket) else { panic!() };
        let error = answer.error.unwrap();
        (error.code, error.message)
    }

    fn level(&self) -> u32 {
        self.machine.state().feature_level(features::VERSION)
    }
}

#[test]
fn a_level_waits_for_every_registered_broker_and_says_for_which() {
    let mut leader = Leader::at_level(3);
    leader.broker(1, 1, Some(Levels::ours()));
    leader.broker(2, 1, None);
    let (code, message) = leader.raise(4, false);
    assert!(code == 95 && message.contains("broker 2 (version 0) has not said"), "{message}");
    assert!(message.contains("broker remove 2"), "{message}");
    leader.broker(2, 2, Some(EARLIER));
    assert!(leader.raise(4, false).1.contains("broker 2 (version 0) can do levels 1 to 3"));
    leader.broker(2, 3, Some(Levels::ours()));
    assert_eq!((leader.raise(4, true).0, leader.level()), (0, 3), "only looked at");
    assert!(
        leader.machine.state().brokers().all(|(_, broker)| broker.levels.is_none()),
        "records of level 3 are as ever"
    );
    assert_eq!((leader.raise(4, false).0, leader.level()), (0, 4));
    assert_eq!(leader.raise(4, false).0, 0, "again");
    assert!(leader.raise(3, false).1.contains("never lowered"));
}

/// Goal: what a leader has heard counts for that life of the broker alone. Method: the old version comes back between the
/// leader's look and the command; and a new leader has heard of nobody.
#[test]
fn what_was_heard_of_another_life_does_not_count() {
    let mut leader = Leader::at_level(3);
    leader.broker(1, 1, Some(Levels::ours()));
    leader.hold = true;
    let ticket = leader.call(Call::RaiseLevel { level: 4, validate_only: false });
    let raise = std::mem::take(&mut leader.held);
    leader.hold = false;
    leader.broker(1, 2, None);
    leader.held = raise;
    leader.release();
    let Reply::RaiseLevel(answer) = leader.reply(ticket) else { panic!() };
    assert_eq!((answer.error.unwrap().code, leader.level()), (95, 3));

    let beat = leader.broker(1, 3, Some(Levels::ours()));
    leader.fail_over();
    assert_eq!(leader.raise(4, false).0, 95);
    let ticket = leader.call(Call::BrokerHeartbeat(beat));
    leader.reply(ticket);
    assert_eq!((leader.raise(4, false).0, leader.level()), (0, 4));
}

#[test]
fn a_broker_that_cannot_do_the_level_is_told_to_be_newer() {
    let mut leader = Leader::at_level(4);
    for (incarnation, levels) in [(1, None), (2, Some(EARLIER)), (3, Some(Levels { min: 5, max: 6 }))] {
        let request = RegisterBrokerRequest {
            broker_id: 1,
            incarnation,
            log_dirs: vec![LogDir { dir_id: vec![1; 16].into(), ..LogDir::default() }],
            endpoints: vec![Endpoint { host: "h".into(), port: 9092, ..Endpoint::default() }],
            levels,
            ..RegisterBrokerRequest::default()
        };
        let ticket = leader.call(Call::RegisterBroker(request));
        let Reply::RegisterBroker(answer) = leader.reply(ticket) else { panic!() };
        let error = answer.error.unwrap();
        let way_out =
            if levels.is_some_and(|levels| levels.min > 4) { "a version in between" } else { "newer version" };
        assert!(error.code == 119 && error.message.contains(way_out), "{}", error.message);
    }
    assert_eq!(leader.machine.state().brokers().count(), 0);
}
