//! Leaders that have just gone from our sight.
//!
//! Between the end of a broker's process and the election that follows (REPLICATION B5) the image still names it as leader. A
//! client that is told so believes to know the leader and asks again only some time later; one that is told that there is no
//! leader at the moment (error 5) asks again at once. So for a short while after a leader refused a connection we say that.

use std::collections::BTreeMap;
use std::time::Duration;

use thalweg_model::{BrokerEpoch, MonoTime, NodeId};

/// Brokers that refused us a connection, until one stands again.
#[derive(Debug, Default)]
pub struct Suspects(BTreeMap<NodeId, Suspect>);

#[derive(Debug)]
struct Suspect {
    /// A broker that has registered anew is another one.
    epoch: BrokerEpoch,
    since: MonoTime,
}

impl Suspects {
    /// It refused a connection: only the first time counts.
    pub fn refused(&mut self, now: MonoTime, broker: NodeId, epoch: BrokerEpoch) {
        let suspect = self.0.entry(broker).or_insert(Suspect { epoch, since: now });
        if suspect.epoch != epoch {
            *suspect = Suspect { epoch, since: now };
        }
    }

    /// A connection to it stands.
    pub fn answers(&mut self, broker: NodeId) {
        self.0.remove(&broker);
    }

    /// Whether clients are not to be sent there for now.
    pub fn holds(&self, now: MonoTime, broker: NodeId, epoch: BrokerEpoch) -> bool {
        self.0.get(&broker).is_some_and(|suspect| suspect.epoch == epoch && now.since(suspect.since) < SUSPICION_MAX)
    }
}

/// A broker that we cannot reach for longer may still be reached by clients; whether it leads is the coordinator's to say.
const SUSPICION_MAX: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    const LEADER: NodeId = NodeId(1);
    const FIRST: BrokerEpoch = BrokerEpoch(7);

    #[test]
    fn a_leader_is_suspected_from_its_refusal_until_it_answers() {
        let mut suspects = Suspects::default();
        let now = MonoTime::ZERO.plus_ms(500);
        assert!(!suspects.holds(now, LEADER, FIRST));
        suspects.refused(now, LEADER, FIRST);
        assert!(suspects.holds(now, LEADER, FIRST) && !suspects.holds(now, NodeId(2), FIRST));
        suspects.answers(LEADER);
        assert!(!suspects.holds(now, LEADER, FIRST));
    }

    /// Goal: a broken path between two brokers does not hide a leader that clients reach. Method: it goes on refusing.
    #[test]
    fn a_suspicion_ends_however_often_the_connection_fails() {
        let mut suspects = Suspects::default();
        let at = |ms| MonoTime::ZERO.plus_ms(ms);
        for ms in (0..10_000).step_by(500) {
            suspects.refused(at(ms), LEADER, FIRST);
            assert_eq!(suspects.holds(at(ms), LEADER, FIRST), ms < 3_000, "{ms} ms");
        }
        suspects.answers(LEADER);
        suspects.refused(at(20_000), LEADER, FIRST);
        assert!(suspects.holds(at(20_000), LEADER, FIRST), "it had come back in between");
    }

    #[test]
    fn a_broker_that_registered_anew_starts_without_suspicion() {
        let mut suspects = Suspects::default();
        let now = MonoTime::ZERO;
        suspects.refused(now, LEADER, FIRST);
        let second = BrokerEpoch(8);
        assert!(!suspects.holds(now, LEADER, second));
        suspects.refused(now, LEADER, second);
        assert!(suspects.holds(now, LEADER, second));
    }
}
