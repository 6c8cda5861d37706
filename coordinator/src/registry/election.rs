//! Who is in sync, who may lead, who leads: pure rules of one partition (REPLICATION 3.4).

use thalweg_model::{LeaderEpoch, NodeId, PartitionEpoch, mutant};
use thalweg_proto::v1::PartitionRecord;

/// A partition as the coordinator sees it (REPLICATION 3.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Ordered; the first is preferred as leader. Never empty.
    pub replicas: Vec<NodeId>,
    /// Invariant: sorted; contains the leader when there is one.
    pub isr: Vec<NodeId>,
    /// May lead though not in sync, since they hold every acknowledged record (KIP-966).
    /// Invariant: sorted; apart from `isr`; empty when `isr` has min ISR members.
    pub elr: Vec<NodeId>,
    /// Removed from the sets above because their disk is in doubt. Invariant: sorted.
    pub lost: Vec<NodeId>,
    pub leader: Option<NodeId>,
    pub leader_epoch: LeaderEpoch,
    pub partition_epoch: PartitionEpoch,
    pub last_leader: Option<NodeId>,
    /// On their way in. Invariant: of `replicas`; empty when nothing moves.
    pub adding: Vec<NodeId>,
    /// To go once those are in sync. Invariant: of `replicas`, apart from `adding`.
    pub removing: Vec<NodeId>,
    /// The leader may lack acknowledged records and has not shrunk the damage yet.
    pub recovering: bool,
}

/// What a change is judged by.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    /// `min.insync.replicas`, at least 1.
    pub min_isr: usize,
    /// Whether a broker may lead and enter the ISR: unfenced and not shutting down.
    pub is_eligible: &'a dyn Fn(NodeId) -> bool,
}

/// Why a wanted ISR is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    #[error("broker {0} is not a replica")]
    NotAReplica(NodeId),
    #[error("broker {0} is fenced or shutting down")]
    Ineligible(NodeId),
}

impl Partition {
    /// A new partition on live brokers: all in sync, the first leads.
    pub fn new(replicas: Vec<NodeId>) -> Partition {
        let leader = replicas.first().copied();
        let isr = sorted(replicas.iter().copied());
        Partition {
            replicas,
            isr,
            elr: Vec::new(),
            lost: Vec::new(),
            leader,
            leader_epoch: LeaderEpoch(0),
            partition_epoch: PartitionEpoch(0),
            last_leader: leader,
            adding: Vec::new(),
            removing: Vec::new(),
            recovering: false,
        }
    }

    /// `change(P, isr')`: the partition with another ISR, its ELR and leader following.
    ///
    /// Leader epoch +1 if the leader changed, also to none; partition epoch +1 if anything changed.
    ///
    /// # Errors
    /// A member of `isr` that is no replica, or that would enter without being eligible.
    ///
    /// Source: REPLICATION 3.4, KIP-497, KIP-966.
    pub fn change(&self, isr: &[NodeId], rules: Rules<'_>) -> Result<Partition, ChangeError> {
        self.change_losing(isr, &[], rules)
    }

    /// [`Partition::change`] after `doubtful` replicas turned out wiped, corrupt or lossy (B3): they leave ISR and ELR and
    /// are not elected until they are in sync again.
    ///
    /// # Errors
    /// As [`Partition::change`].
    pub fn change_losing(
        &self,
        isr: &[NodeId],
        doubtful: &[NodeId],
        rules: Rules<'_>,
    ) -> Result<Partition, ChangeError> {
        let isr = sorted(isr.iter().copied().filter(|id| !doubtful.contains(id)));
        for id in &isr {
            if !self.replicas.contains(id) {
                return Err(ChangeError::NotAReplica(*id));
            }
            if !self.isr.contains(id) && !(rules.is_eligible)(*id) {
                return Err(ChangeError::Ineligible(*id));
            }
        }
        let mut next = self.clone();
        next.lost = sorted(self.lost.iter().chain(doubtful).copied());
        next.set_isr(isr, rules.min_isr);
        next.settle(rules);
        next.count_changes_since(self);
        Ok(next)
    }

    /// Whether replicas are on their way in or out.
    pub fn is_moving(&self) -> bool {
        !self.adding.is_empty() || !self.removing.is_empty()
    }

    /// The replicas that a move ends with; all of them when nothing moves.
    pub fn target(&self) -> Vec<NodeId> {
        apart(&self.replicas, &self.removing)
    }

    /// The replicas that a move began with; all of them when nothing moves.
    pub fn origin(&self) -> Vec<NodeId> {
        apart(&self.replicas, &self.adding)
    }

    /// The number of replicas that `min.insync.replicas` is held against. While a move has more replicas than the partition
    /// had before or will have, the additional ones must not raise what a write needs.
    pub fn factor(&self) -> usize {
        self.replicas.len() - self.adding.len().max(self.removing.len()).min(self.replicas.len().saturating_sub(1))
    }

    /// Ends a move that can end, and elects: what follows from any change of the sets.
    pub(super) fn settle(&mut self, rules: Rules<'_>) {
        self.arrive(rules);
        self.elect(rules);
    }

    /// Ends the move in one step once everybody who is to come is in sync, and those who stay suffice and can lead: the others
    /// go, out of every set. Whatever is committed is on those who stay, because they are in sync.
    ///
    /// Source: REPLICATION 3.4 (reassignment), KIP-455.
    fn arrive(&mut self, rules: Rules<'_>) {
        if !self.is_moving() || self.recovering {
            return;
        }
        let target = self.target();
        let isr: Vec<NodeId> = self.isr.iter().copied().filter(|id| target.contains(id)).collect();
        let is_there = self.adding.iter().all(|id| isr.contains(id)) || mutant!("move-awaits-all");
        let suffices = isr.len() >= rules.min_isr.max(1) || mutant!("move-keeps-min-isr");
        if is_there && suffices && isr.iter().any(|id| (rules.is_eligible)(*id)) {
            self.replicas = target;
            self.adding.clear();
            self.removing.clear();
            self.set_isr(isr, rules.min_isr);
        }
    }

    /// Gives the lead to the preferred replica if it is in sync and may lead; `None` if nothing changes.
    pub fn prefer(&self, rules: Rules<'_>) -> Option<Partition> {
        let preferred = *self.replicas.first()?;
        if self.leader == Some(preferred)
            || !self.isr.contains(&preferred)
            || !(rules.is_eligible)(preferred)
            || self.isr.len() < rules.min_isr
        {
            return None;
        }
        let mut next = self.clone();
        next.leader = Some(preferred);
        next.count_changes_since(self);
        Some(next)
    }

    /// Gives the lead to whoever is left, when nobody who is known to have every acknowledged record is: the first replica in
    /// order that may lead. Acknowledged records may be lost; the new leader is alone until it has said that it recovered.
    ///
    /// `None` if there is a leader, or nobody may lead. Somebody in ISR or ELR is elected first, without loss.
    ///
    /// Source: REPLICATION 3.4 (recovery), KIP-460.
    pub fn recover(&self, rules: Rules<'_>) -> Option<Partition> {
        if self.leader.is_some() {
            return None;
        }
        let mut next = self.clone();
        next.elect(rules);
        if next.leader.is_none() {
            // One that has just begun to copy has less than any other.
            let settled = self.replicas.iter().filter(|id| !self.adding.contains(id));
            let mut left = settled.chain(&self.adding).copied();
            let left = left.find(|id| (rules.is_eligible)(*id))?;
            next.lost = sorted(self.lost.iter().chain(&self.isr).chain(&self.elr).copied());
            next.elr.clear();
            next.set_isr(vec![left], rules.min_isr);
            next.leader = Some(left);
            next.recovering = true;
        }
        next.count_changes_since(self);
        Some(next)
    }

    pub(super) fn set_isr(&mut self, isr: Vec<NodeId>, min_isr: usize) {
        if isr.len() >= min_isr.max(1) {
            self.elr.clear();
            self.lost.clear();
        } else {
            self.lost.retain(|id| !isr.contains(id));
            let lost = &self.lost;
            let candidates = self.elr.iter().chain(&self.isr).copied();
            let stays = |id: &NodeId| !isr.contains(id) && !lost.contains(id) && !mutant!("elr-kept");
            self.elr = sorted(candidates.filter(stays));
        }
        self.isr = isr;
    }

    fn elect(&mut self, rules: Rules<'_>) {
        let eligible = |id: &NodeId| (rules.is_eligible)(*id) || mutant!("elect-the-unfenced");
        if self.leader.is_some_and(|leader| self.isr.contains(&leader) && eligible(&leader)) {
            return;
        }
        self.leader = self.replicas.iter().copied().find(|id| self.isr.contains(id) && eligible(id));
        if self.leader.is_none() && self.isr.is_empty() {
            let candidate = |id: &NodeId| self.elr.contains(id) || mutant!("elect-the-eligible");
            self.leader = self.replicas.iter().copied().find(|id| candidate(id) && eligible(id));
            if let Some(leader) = self.leader {
                self.set_isr(vec![leader], rules.min_isr);
            }
        }
    }

    pub(super) fn count_changes_since(&mut self, before: &Partition) {
        if self.leader != before.leader || self.replicas != before.replicas {
            self.leader_epoch = LeaderEpoch(before.leader_epoch.0.saturating_add(1));
        }
        if let Some(leader) = self.leader {
            self.last_leader = Some(leader);
        }
        if self != before {
            self.partition_epoch = PartitionEpoch(before.partition_epoch.0.saturating_add(1));
        }
    }

    pub fn to_record(&self, topic_id: &[u8], partition: i32) -> PartitionRecord {
        PartitionRecord {
            topic_id: bytes::Bytes::copy_from_slice(topic_id),
            partition,
            replicas: numbers(&self.replicas),
            isr: numbers(&self.isr),
            elr: numbers(&self.elr),
            lost: numbers(&self.lost),
            leader: self.leader.unwrap_or(NodeId::NONE).0,
            leader_epoch: self.leader_epoch.0,
            partition_epoch: self.partition_epoch.0,
            last_leader: self.last_leader.unwrap_or(NodeId::NONE).0,
            adding: numbers(&self.adding),
            removing: numbers(&self.removing),
            recovering: self.recovering,
        }
    }

    pub fn from_record(record: &PartitionRecord) -> Partition {
        Partition {
            replicas: ids(&record.replicas),
            isr: ids(&record.isr),
            elr: ids(&record.elr),
            lost: ids(&record.lost),
            leader: node(record.leader),
            leader_epoch: LeaderEpoch(record.leader_epoch),
            partition_epoch: PartitionEpoch(record.partition_epoch),
            last_leader: node(record.last_leader),
            adding: ids(&record.adding),
            removing: ids(&record.removing),
            recovering: record.recovering,
        }
    }
}

/// `ids` without `gone`.
pub fn without(ids: &[NodeId], gone: NodeId) -> Vec<NodeId> {
    ids.iter().copied().filter(|id| *id != gone).collect()
}

/// `ids` without all of `gone`, in order.
pub(super) fn apart(ids: &[NodeId], gone: &[NodeId]) -> Vec<NodeId> {
    ids.iter().copied().filter(|id| !gone.contains(id)).collect()
}

fn sorted(ids: impl Iterator<Item = NodeId>) -> Vec<NodeId> {
    let mut ids: Vec<NodeId> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

fn numbers(ids: &[NodeId]) -> Vec<i32> {
    ids.iter().map(|id| id.0).collect()
}

fn ids(numbers: &[i32]) -> Vec<NodeId> {
    numbers.iter().copied().map(NodeId).collect()
}

fn node(number: i32) -> Option<NodeId> {
    (number >= 0).then_some(NodeId(number))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn nodes(numbers: &[i32]) -> Vec<NodeId> {
        ids(numbers)
    }

    fn all(_: NodeId) -> bool {
        true
    }

    fn rules(min_isr: usize, is_eligible: &dyn Fn(NodeId) -> bool) -> Rules<'_> {
        Rules { min_isr, is_eligible }
    }

    /// (isr, elr, lost, leader, leader epoch, partition epoch)
    type Seen = (Vec<i32>, Vec<i32>, Vec<i32>, i32, i32, i32);

    fn seen(p: &Partition) -> Seen {
        let r = p.to_record(&[], 0);
        (r.isr, r.elr, r.lost, r.leader, r.leader_epoch, r.partition_epoch)
    }

    #[test]
    fn losing_the_leader_elects_the_first_replica_in_sync() {
        let p = Partition::new(nodes(&[3, 1, 2]));
        assert_eq!(seen(&p), (vec![1, 2, 3], vec![], vec![], 3, 0, 0));
        let alive = |id| id != NodeId(3);
        let p = p.change(&nodes(&[1, 2]), rules(2, &alive)).unwrap();
        assert_eq!(seen(&p), (vec![1, 2], vec![], vec![], 1, 1, 1));
    }

    #[test]
    fn a_follower_leaving_does_not_move_the_leader_epoch() {
        let p = Partition::new(nodes(&[1, 2, 3]));
        let p = p.change(&nodes(&[1, 2]), rules(2, &all)).unwrap();
        assert_eq!(seen(&p), (vec![1, 2], vec![], vec![], 1, 0, 1));
        assert_eq!(p.change(&nodes(&[2, 1]), rules(2, &all)).unwrap(), p, "nothing changed, so no epoch moves");
    }

    #[test]
    fn below_min_isr_those_who_leave_stay_eligible() {
        let p = Partition::new(nodes(&[1, 2, 3]));
        let alive = |id| id == NodeId(1);
        let p = p.change(&nodes(&[1]), rules(2, &alive)).unwrap();
        assert_eq!(seen(&p), (vec![1], vec![2, 3], vec![], 1, 0, 1));
        let none = |_| false;
        let p = p.change(&[], rules(2, &none)).unwrap();
        assert_eq!(seen(&p), (vec![], vec![1, 2, 3], vec![], -1, 1, 2));
        let back = |id| id == NodeId(3);
        let p = p.change(&[], rules(2, &back)).unwrap();
        assert_eq!(seen(&p), (vec![3], vec![1, 2], vec![], 3, 2, 3));
        assert_eq!(p.last_leader, Some(NodeId(3)));
    }

    #[test]
    fn a_doubtful_disk_is_not_elected_until_it_is_in_sync_again() {
        let p = Partition::new(nodes(&[1, 2]));
        let p = p.change_losing(&nodes(&[1, 2]), &nodes(&[1]), rules(2, &all)).unwrap();
        assert_eq!(seen(&p), (vec![2], vec![], vec![1], 2, 1, 1));
        let only_1 = |id| id == NodeId(1);
        let p = p.change(&[], rules(2, &only_1)).unwrap();
        assert_eq!(seen(&p), (vec![], vec![2], vec![1], -1, 2, 2));
        let p = p.change(&[], rules(2, &all)).unwrap();
        assert_eq!(p.leader, Some(NodeId(2)));
        let p = p.change(&nodes(&[1, 2]), rules(2, &all)).unwrap();
        assert_eq!(seen(&p), (vec![1, 2], vec![], vec![], 2, 3, 4));
    }

    #[test]
    fn a_sole_replica_leads_again_when_it_comes_back() {
        let p = Partition::new(nodes(&[1]));
        let dead = |_| false;
        let p = p.change(&[], rules(1, &dead)).unwrap();
        assert_eq!(seen(&p), (vec![], vec![1], vec![], -1, 1, 1));
        let p = p.change(&[], rules(1, &all)).unwrap();
        assert_eq!(seen(&p), (vec![1], vec![], vec![], 1, 2, 2));
    }

    #[test]
    fn strangers_and_the_fenced_do_not_enter() {
        let p = Partition::new(nodes(&[1, 2])).change(&nodes(&[1]), rules(1, &all)).unwrap();
        assert_eq!(p.change(&nodes(&[1, 7]), rules(1, &all)), Err(ChangeError::NotAReplica(NodeId(7))));
        let alive = |id| id == NodeId(1);
        assert_eq!(p.change(&nodes(&[1, 2]), rules(1, &alive)), Err(ChangeError::Ineligible(NodeId(2))));
    }

    #[test]
    fn the_preferred_replica_leads_only_from_the_isr() {
        let p = Partition::new(nodes(&[1, 2]));
        let no_1 = |id| id != NodeId(1);
        let moved = p.change(&nodes(&[2]), rules(1, &no_1)).unwrap();
        assert_eq!(moved.prefer(rules(1, &all)), None);
        let back = moved.change(&nodes(&[1, 2]), rules(1, &all)).unwrap();
        let preferred = back.prefer(rules(1, &all)).unwrap();
        assert_eq!((preferred.leader, preferred.leader_epoch.0), (Some(NodeId(1)), back.leader_epoch.0 + 1));
        assert_eq!(preferred.prefer(rules(1, &all)), None);
    }

    proptest! {
        /// Goal: REPLICATION 3.10 rules 6 and 10 hold whatever happens. Method: random sets of live brokers and ISRs.
        #[test]
        fn sets_keep_their_shape_and_epochs_only_grow(
            steps in proptest::collection::vec((0u8..16, 0u8..16, 0u8..16), 1..40),
            min_isr in 1usize..4,
        ) {
            let mut p = Partition::new(nodes(&[2, 0, 3, 1]));
            for (alive, wanted, doubtful) in steps {
                let is_alive = |id: NodeId| alive >> id.0 & 1 == 1;
                let pick = |bits: u8| (0..4).filter(|i| bits >> i & 1 == 1).map(NodeId).collect::<Vec<_>>();
                let wanted: Vec<_> =
                    pick(wanted).into_iter().filter(|id| is_alive(*id)).collect();
                let next = p.change_losing(&wanted, &pick(doubtful & !alive), rules(min_isr, &is_alive)).unwrap();
                prop_assert!(next.leader.is_none_or(|l| next.isr.contains(&l) && is_alive(l)));
                prop_assert!(next.isr.iter().all(|id| !next.elr.contains(id) && is_alive(*id)));
                prop_assert!(next.lost.iter().all(|id| !next.elr.contains(id) && !next.isr.contains(id)));
                prop_assert!(next.isr.len() < min_isr || next.elr.is_empty());
                prop_assert_eq!(next.leader_epoch > p.leader_epoch, next.leader != p.leader);
                prop_assert_eq!(next.partition_epoch > p.partition_epoch, next != p);
                prop_assert_eq!(&Partition::from_record(&next.to_record(&[1], 0)), &next);
                p = next;
            }
        }
    }
}
