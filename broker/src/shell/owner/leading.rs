//! What the owner of a log does for followers while it leads.

use thalweg_model::{BrokerEpoch, ErrorCode, MonoTime};

use super::Owner;
use crate::machine::follower::FetchPosition;
use crate::machine::isr::{IsrProposal, ProposalAnswer};
use crate::machine::leader::{FetchVerdict, FollowerId};
use crate::shell::isr::Outgoing;

impl Owner {
    /// A follower asks for what comes after its position. Accepted, it may move the watermark and change the ISR.
    ///
    /// # Errors
    /// As [`crate::machine::replica::Replica::follower_fetched`].
    pub fn follower_fetched(
        &mut self,
        now: MonoTime,
        follower: FollowerId,
        position: &FetchPosition,
    ) -> Result<FetchVerdict, ErrorCode> {
        let view = self.partition.view();
        let log_start_offset = view.log_start_offset();
        let end_of_epoch = |epoch| view.epoch_end_offset(epoch);
        let verdict = self.replica.follower_fetched(now, follower, position, log_start_offset, end_of_epoch)?;
        self.advance();
        if self.replica.leader().is_some_and(|leader| !leader.is_complete()) {
            self.consider_isr(now);
        }
        Ok(verdict)
    }

    /// From time to time, and when brokers come and go: looks whether the ISR should be another one.
    pub fn tick(&mut self, now: MonoTime) {
        self.consider_isr(now);
        let ends = super::ends_of(&self.partition);
        self.partition.publish_replica_lag(self.replica.leader().map_or(0, |leader| leader.replica_lag(ends)));
    }

    pub fn proposal_answered(&mut self, asked: &IsrProposal, answer: ProposalAnswer) {
        self.replica.proposal_answered(asked, answer);
        self.consider_isr(self.env.clock.mono());
    }

    pub(super) fn consider_isr(&mut self, now: MonoTime) {
        if self.replica.leader().is_none() || !self.env.lease.may_lead(now) {
            return;
        }
        let image = self.env.image.load();
        let broker_epoch = image.brokers.get(&self.replica.node()).map_or(BrokerEpoch::NONE, |broker| broker.epoch);
        if let Some(proposal) = self.replica.proposal(now, broker_epoch, &image.brokers) {
            // Fails only when the broker goes down.
            let _ = self.env.proposals.send(Outgoing { partition: self.partition.clone(), proposal });
        }
    }
}
