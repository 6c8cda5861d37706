//! A partition's leader within one leader epoch (REPLICATION 3.5).

use std::collections::BTreeMap;

use thalweg_model::{LeaderEpoch, NodeId, Offset, PartitionEpoch};

use super::isr::Isr;

/// What a leader knows beyond its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    node: NodeId,
    epoch: LeaderEpoch,
    /// Log end offset when the epoch was taken (LESO).
    epoch_start_offset: Offset,
    isr: Isr,
    /// By follower: how far it may be counted, as of its last fetch in this epoch.
    counted: BTreeMap<NodeId, Offset>,
    min_insync_replicas: usize,
}

/// How a partition is registered, as far as its leader cares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    pub leader_epoch: LeaderEpoch,
    pub partition_epoch: PartitionEpoch,
    pub isr: Vec<NodeId>,
}

impl Leader {
    /// Takes the epoch with an empty view of the followers (L1).
    pub fn new(
        node: NodeId,
        registration: &Registration,
        log_end_offset: Offset,
        min_insync_replicas: usize,
    ) -> Leader {
        Leader {
            node,
            epoch: registration.leader_epoch,
            epoch_start_offset: log_end_offset,
            isr: Isr::new(registration.isr.iter().copied(), registration.partition_epoch),
            counted: BTreeMap::new(),
            min_insync_replicas,
        }
    }

    pub fn epoch(&self) -> LeaderEpoch {
        self.epoch
    }

    pub fn epoch_start_offset(&self) -> Offset {
        self.epoch_start_offset
    }

    pub fn isr(&self) -> &Isr {
        &self.isr
    }

    pub fn isr_mut(&mut self) -> &mut Isr {
        &mut self.isr
    }

    pub fn set_min_insync_replicas(&mut self, count: usize) {
        self.min_insync_replicas = count;
    }

    /// Whether acks=all may be taken on (L2).
    pub fn has_min_isr(&self) -> bool {
        self.isr.agreed_count() >= self.min_insync_replicas
    }

    /// Notes how far a follower may be counted: `k` of a fetch that was checked against this epoch (L3).
    pub fn follower_fetched(&mut self, follower: NodeId, k: Offset) {
        self.counted.insert(follower, k);
    }

    /// The least counted offset of the maximal ISR, where `own` is the leader's; `None` while it must not move (L4).
    pub fn committed(&self, own: Offset) -> Option<Offset> {
        if !self.has_min_isr() {
            return None;
        }
        let counted = |id: NodeId| {
            if id == self.node { Some(own) } else { self.counted.get(&id).copied() }
        };
        // A member that was not heard of in this epoch holds the watermark where it is.
        self.isr.maximal().map(counted).collect::<Option<Vec<Offset>>>()?.into_iter().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SELF: NodeId = NodeId(1);

    fn leader(isr: &[i32], min_insync_replicas: usize) -> Leader {
        let registration = Registration {
            leader_epoch: LeaderEpoch(3),
            partition_epoch: PartitionEpoch(7),
            isr: isr.iter().copied().map(NodeId).collect(),
        };
        Leader::new(SELF, &registration, Offset(10), min_insync_replicas)
    }

    #[test]
    fn alone_in_the_isr_the_leader_commits_what_it_counts_itself() {
        assert_eq!(leader(&[1], 1).committed(Offset(12)), Some(Offset(12)));
    }

    #[test]
    fn nothing_commits_below_min_insync_replicas() {
        assert_eq!(leader(&[1], 2).committed(Offset(12)), None);
        assert!(!leader(&[1], 2).has_min_isr());
    }

    #[test]
    fn a_member_that_was_not_heard_of_in_this_epoch_holds_the_watermark() {
        let mut leader = leader(&[1, 2], 1);
        assert_eq!(leader.committed(Offset(12)), None);
        leader.follower_fetched(NodeId(2), Offset(11));
        assert_eq!(leader.committed(Offset(12)), Some(Offset(11)));
    }

    #[test]
    fn a_joining_follower_counts_as_soon_as_it_is_proposed() {
        let mut leader = leader(&[1], 1);
        leader.follower_fetched(NodeId(2), Offset(9));
        assert_eq!(leader.committed(Offset(12)), Some(Offset(12)));
        leader.isr_mut().propose([SELF, NodeId(2)]);
        assert_eq!(leader.committed(Offset(12)), Some(Offset(9)));
    }
}
