//! Who counts: the agreed in-sync replicas, and those that may be agreed at any moment (REPLICATION L1, L4, L7).

use std::collections::BTreeSet;

use thalweg_model::{NodeId, PartitionEpoch};

/// A leader's view of its ISR within one leader epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Isr {
    agreed: BTreeSet<NodeId>,
    partition_epoch: PartitionEpoch,
    /// What was proposed to the coordinator and not yet answered by metadata.
    pending: Option<BTreeSet<NodeId>>,
}

impl Isr {
    pub fn new(agreed: impl IntoIterator<Item = NodeId>, partition_epoch: PartitionEpoch) -> Isr {
        Isr { agreed: agreed.into_iter().collect(), partition_epoch, pending: None }
    }

    pub fn agreed_count(&self) -> usize {
        self.agreed.len()
    }

    pub fn partition_epoch(&self) -> PartitionEpoch {
        self.partition_epoch
    }

    /// The agreed ISR and whoever is proposed: a member that the coordinator may have accepted counts at once. Else:
    /// 1. it accepts broker 2, we have not heard; 2. we ack without 2; 3. we crash; 4. broker 2 leads without the record.
    pub fn maximal(&self) -> impl Iterator<Item = NodeId> + '_ {
        let proposed = self.pending.iter().flatten().filter(|id| !self.agreed.contains(id));
        self.agreed.iter().chain(proposed).copied()
    }

    /// Notes what is being proposed. `false`, and nothing changes, while another proposal is open.
    pub fn propose(&mut self, isr: impl IntoIterator<Item = NodeId>) -> bool {
        if self.pending.is_some() {
            return false;
        }
        self.pending = Some(isr.into_iter().collect());
        true
    }

    /// Takes metadata of the same leader epoch. A partition epoch that is not larger than the known one is ignored.
    pub fn agreed(&mut self, isr: impl IntoIterator<Item = NodeId>, partition_epoch: PartitionEpoch) -> bool {
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

    #[test]
    fn a_proposed_member_counts_at_once_and_a_proposed_leaver_until_it_is_gone() {
        let mut isr = Isr::new([NodeId(1), NodeId(2)], PartitionEpoch(4));
        assert!(isr.propose([NodeId(1), NodeId(3)]));
        assert_eq!(maximal(&isr), [1, 2, 3]);
        assert_eq!(isr.agreed_count(), 2);
        assert!(!isr.propose([NodeId(1)]), "one proposal at a time");
        assert_eq!(maximal(&isr), [1, 2, 3]);
        assert!(isr.agreed([NodeId(1), NodeId(3)], PartitionEpoch(5)));
        assert_eq!(maximal(&isr), [1, 3]);
    }

    #[test]
    fn metadata_that_is_not_newer_neither_shrinks_the_set_nor_ends_the_proposal() {
        let mut isr = Isr::new([NodeId(1)], PartitionEpoch(4));
        isr.propose([NodeId(1), NodeId(2)]);
        assert!(!isr.agreed([NodeId(1)], PartitionEpoch(4)));
        assert_eq!(maximal(&isr), [1, 2]);
    }
}
