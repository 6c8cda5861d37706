//! Who counts: the agreed in-sync replicas, and those that may be agreed at any moment (REPLICATION L1, L4, L7).
//!
//! ```text
//! settled --propose--> due --sent--> asked --decided--> awaiting metadata
//!                       ^              |
//!                       +----retry-----+          (the identical proposal)
//! any --metadata with a larger partition epoch--> settled
//! ```

use std::collections::BTreeSet;

use thalweg_model::{BrokerEpoch, LeaderEpoch, NodeId, PartitionEpoch, mutant};

/// A leader's view of its ISR within one leader epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Isr {
    agreed: BTreeSet<NodeId>,
    partition_epoch: PartitionEpoch,
    /// What was proposed to the coordinator and not yet answered by metadata.
    pending: Option<Pending>,
}

/// Another ISR, as the coordinator is asked for it. A repetition is this very value: were it made anew, it could carry the
/// broker epoch of a follower that has lost its log since (FAILURES row 22).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsrProposal {
    /// The proposing leader's own.
    pub broker_epoch: BrokerEpoch,
    pub leader_epoch: LeaderEpoch,
    /// What the proposal builds on.
    pub partition_epoch: PartitionEpoch,
    /// Sorted by id; contains the leader.
    pub isr: Vec<IsrMember>,
    /// An unclean election is over: the records of this leader are the partition's from now on.
    pub recovered: bool,
}

/// A replica in the life that it was seen in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IsrMember {
    pub id: NodeId,
    pub broker_epoch: BrokerEpoch,
}

/// What became of sending a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProposalAnswer {
    /// Accepted or refused: metadata with a larger partition epoch is on its way.
    Decided,
    /// Nobody decided, or the answer was lost: the same is to be asked again.
    Retry,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pending {
    proposal: IsrProposal,
    progress: Progress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Due,
    Asked,
    AwaitingMetadata,
}

impl Isr {
    pub fn new(agreed: impl IntoIterator<Item = NodeId>, partition_epoch: PartitionEpoch) -> Isr {
        Isr { agreed: agreed.into_iter().collect(), partition_epoch, pending: None }
    }

    pub fn agreed(&self) -> &BTreeSet<NodeId> {
        &self.agreed
    }

    pub fn partition_epoch(&self) -> PartitionEpoch {
        self.partition_epoch
    }

    pub fn is_settled(&self) -> bool {
        self.pending.is_none()
    }

    /// The agreed ISR and whoever is proposed: a member that the coordinator may have accepted counts at once. Else:
    /// 1. it accepts broker 2, we have not heard; 2. we ack without 2; 3. we crash; 4. broker 2 leads without the record.
    pub fn maximal(&self) -> impl Iterator<Item = NodeId> + '_ {
        let counted = self.pending.iter().filter(|_| !mutant!("maximal-isr"));
        let proposed = counted.flat_map(|pending| &pending.proposal.isr).map(|member| member.id);
        self.agreed.iter().copied().chain(proposed.filter(|id| !self.agreed.contains(id)))
    }

    /// Opens a proposal. `false`, and nothing changes, while another one is open (L7).
    pub fn propose(&mut self, proposal: IsrProposal) -> bool {
        if self.pending.is_some() {
            return false;
        }
        self.pending = Some(Pending { proposal, progress: Progress::Due });
        true
    }

    /// The open proposal if it is to be sent now; from here on it counts as sent.
    pub fn take_due(&mut self) -> Option<IsrProposal> {
        let pending = self.pending.as_mut().filter(|pending| pending.progress == Progress::Due)?;
        pending.progress = Progress::Asked;
        Some(pending.proposal.clone())
    }

    /// Takes the answer to `asked`; one to another proposal changes nothing. No answer closes a proposal: a delayed copy of
    /// it may still be accepted until the partition epoch has moved (FAILURES row 23).
    pub fn answered(&mut self, asked: &IsrProposal, answer: ProposalAnswer) {
        if let Some(pending) = &mut self.pending
            && pending.proposal == *asked
            && pending.progress == Progress::Asked
        {
            pending.progress = match answer {
                ProposalAnswer::Decided => Progress::AwaitingMetadata,
                ProposalAnswer::Retry => Progress::Due,
            };
            if answer == ProposalAnswer::Decided && mutant!("partition-epoch-on-refusal") {
                self.pending = None;
            }
        }
    }

    /// Takes metadata of the same leader epoch. A partition epoch that is not larger than the known one is ignored.
    pub fn registered(&mut self, isr: impl IntoIterator<Item = NodeId>, partition_epoch: PartitionEpoch) -> bool {
        if partition_epoch <= self.partition_epoch {
            return false;
        }
        *self = Isr::new(isr, partition_epoch);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maximal(isr: &Isr) -> Vec<i32> {
        isr.maximal().map(|id| id.0).collect()
    }

    fn proposal(ids: &[i32]) -> IsrProposal {
        let member = |id: &i32| IsrMember { id: NodeId(*id), broker_epoch: BrokerEpoch(10) };
        IsrProposal {
            broker_epoch: BrokerEpoch(10),
            leader_epoch: LeaderEpoch(1),
            partition_epoch: PartitionEpoch(4),
            isr: ids.iter().map(member).collect(),
            recovered: false,
        }
    }

    #[test]
    fn a_proposed_member_counts_at_once_and_a_proposed_leaver_until_it_is_gone() {
        let mut isr = Isr::new([NodeId(1), NodeId(2)], PartitionEpoch(4));
        assert!(isr.propose(proposal(&[1, 3])));
        assert_eq!(maximal(&isr), [1, 2, 3]);
        assert_eq!(isr.agreed().len(), 2);
        assert!(!isr.propose(proposal(&[1])), "one proposal at a time");
        assert_eq!(maximal(&isr), [1, 2, 3]);
        assert!(isr.registered([NodeId(1), NodeId(3)], PartitionEpoch(5)));
        assert_eq!(maximal(&isr), [1, 3]);
    }

    #[test]
    fn metadata_that_is_not_newer_neither_shrinks_the_set_nor_ends_the_proposal() {
        let mut isr = Isr::new([NodeId(1)], PartitionEpoch(4));
        isr.propose(proposal(&[1, 2]));
        assert!(!isr.registered([NodeId(1)], PartitionEpoch(4)));
        assert_eq!(maximal(&isr), [1, 2]);
    }

    #[test]
    fn a_proposal_is_sent_once_per_retry_unchanged_and_no_answer_closes_it() {
        let mut isr = Isr::new([NodeId(1)], PartitionEpoch(4));
        isr.propose(proposal(&[1, 2]));
        assert_eq!(isr.take_due(), Some(proposal(&[1, 2])));
        assert_eq!(isr.take_due(), None);
        isr.answered(&proposal(&[1, 3]), ProposalAnswer::Retry);
        assert_eq!(isr.take_due(), None, "the answer to something else");
        isr.answered(&proposal(&[1, 2]), ProposalAnswer::Retry);
        assert_eq!(isr.take_due(), Some(proposal(&[1, 2])));
        isr.answered(&proposal(&[1, 2]), ProposalAnswer::Decided);
        isr.answered(&proposal(&[1, 2]), ProposalAnswer::Retry);
        assert_eq!((isr.take_due(), isr.is_settled()), (None, false));
        assert_eq!(maximal(&isr), [1, 2]);
    }
}
