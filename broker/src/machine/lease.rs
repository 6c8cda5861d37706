//! The broker's right to lead: a lease that heartbeats renew (REPLICATION B4, B5).
//!
//! ```text
//! Unregistered --registered--> Fenced --heartbeat says unfenced--> Active
//!      ^                          ^                                  |
//!      | stale epoch              +-- heartbeat says fenced, or 0.9 L since the send of the last granted heartbeat
//!      +--------------------------+----------------------------------+
//! ```
//! Safety never relies on the lease; it bounds how long a cut-off broker goes on answering.

use thalweg_model::{BrokerEpoch, MonoTime};

/// What the broker may do, and until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    state: State,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Unregistered,
    Fenced { epoch: BrokerEpoch },
    Active { epoch: BrokerEpoch, until: MonoTime },
}

/// The coordinator's answer to one heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeartbeatAnswer {
    Granted { lease_ms: u32 },
    Fenced,
    StaleBrokerEpoch,
}

impl Default for Lease {
    fn default() -> Lease {
        Lease { state: State::Unregistered }
    }
}

impl Lease {
    pub fn registered(&mut self, epoch: BrokerEpoch) {
        self.state = State::Fenced { epoch };
    }

    /// `sent` is when the heartbeat left, not when the answer came: what the coordinator counts from lies in between.
    /// An answer to a heartbeat of an earlier registration changes nothing.
    pub fn answered(&mut self, sent: MonoTime, of_epoch: BrokerEpoch, answer: HeartbeatAnswer) {
        let Some(epoch) = self.epoch().filter(|epoch| *epoch == of_epoch) else { return };
        self.state = match answer {
            HeartbeatAnswer::Granted { lease_ms } => {
                let until = sent.plus_ms(u64::from(lease_ms) * 9 / 10);
                match self.state {
                    // Answers may overtake each other; a later grant stands.
                    State::Active { until: known, .. } => State::Active { epoch, until: until.max(known) },
                    State::Fenced { .. } | State::Unregistered => State::Active { epoch, until },
                }
            }
            HeartbeatAnswer::Fenced => State::Fenced { epoch },
            HeartbeatAnswer::StaleBrokerEpoch => State::Unregistered,
        };
    }

    /// `None`: the broker must register (again).
    pub fn epoch(&self) -> Option<BrokerEpoch> {
        match self.state {
            State::Unregistered => None,
            State::Fenced { epoch } | State::Active { epoch, .. } => Some(epoch),
        }
    }

    /// Until when, exclusive, this broker may lead; `MonoTime::ZERO` when it may not.
    pub fn until(&self) -> MonoTime {
        match self.state {
            State::Unregistered | State::Fenced { .. } => MonoTime::ZERO,
            State::Active { until, .. } => until,
        }
    }

    pub fn may_lead(&self, now: MonoTime) -> bool {
        now < self.until()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: BrokerEpoch = BrokerEpoch(4);
    const GRANT: HeartbeatAnswer = HeartbeatAnswer::Granted { lease_ms: 9_000 };

    fn at(ms: u64) -> MonoTime {
        MonoTime::ZERO.plus_ms(ms)
    }

    fn active() -> Lease {
        let mut lease = Lease::default();
        lease.registered(EPOCH);
        lease.answered(at(1_000), EPOCH, GRANT);
        lease
    }

    #[test]
    fn leading_ends_at_nine_tenths_of_the_lease_counted_from_the_send() {
        let lease = active();
        assert!(lease.may_lead(at(9_099)));
        assert!(!lease.may_lead(at(9_100)));
    }

    #[test]
    fn a_registered_broker_does_not_lead_before_it_is_unfenced() {
        let mut lease = Lease::default();
        assert!(!lease.may_lead(at(0)));
        lease.registered(EPOCH);
        assert!(!lease.may_lead(at(0)));
        lease.answered(at(0), EPOCH, HeartbeatAnswer::Fenced);
        assert!(!lease.may_lead(at(1)));
    }

    #[test]
    fn a_fence_or_a_stale_epoch_ends_it_at_once() {
        let mut lease = active();
        lease.answered(at(2_000), EPOCH, HeartbeatAnswer::Fenced);
        assert_eq!((lease.may_lead(at(2_001)), lease.epoch()), (false, Some(EPOCH)));
        let mut lease = active();
        lease.answered(at(2_000), EPOCH, HeartbeatAnswer::StaleBrokerEpoch);
        assert_eq!((lease.may_lead(at(2_001)), lease.epoch()), (false, None));
    }

    #[test]
    fn answers_to_an_earlier_life_or_out_of_order_never_shorten_or_revive_it() {
        let mut lease = active();
        lease.answered(at(500), EPOCH, GRANT);
        assert!(lease.may_lead(at(9_099)));
        lease.answered(at(9_000), BrokerEpoch(3), GRANT);
        assert!(!lease.may_lead(at(9_100)));
    }
}
