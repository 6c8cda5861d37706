//! One replica of a partition on this broker: role, watermarks, what may be acknowledged.
//!
//! ```text
//! Idle --lead--> Leader --lead (larger epoch)--> Leader
//!   ^              |
//!   +---resign-----+   (follower, fenced, offline: this version has one replica per partition and copies nothing)
//! ```
//! The log itself is elsewhere; the owner of the log tells this machine what happened to it.

use thalweg_model::invariant::InvariantId;
use thalweg_model::{Durability, LeaderEpoch, NodeId, Offset, check};

use super::leader::{Leader, Registration};

/// A replica's state. All offsets but `log_start_offset` exclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    node: NodeId,
    durability: Durability,
    log_end_offset: Offset,
    flushed_offset: Offset,
    high_watermark: Offset,
    leader: Option<Leader>,
}

impl Replica {
    /// A replica as its log was found. `high_watermark` is the checkpointed lower bound (G6); it is put within the log.
    pub fn new(node: NodeId, durability: Durability, log: LogEnds, high_watermark: Offset) -> Replica {
        Replica {
            node,
            durability,
            log_end_offset: log.log_end_offset,
            flushed_offset: log.flushed_offset,
            high_watermark: high_watermark.max(log.log_start_offset).min(log.log_end_offset),
            leader: None,
        }
    }

    pub fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    pub fn log_end_offset(&self) -> Offset {
        self.log_end_offset
    }

    /// Everything below is on stable storage here (FLO).
    pub fn flushed_offset(&self) -> Offset {
        self.flushed_offset
    }

    pub fn leader(&self) -> Option<&Leader> {
        self.leader.as_ref()
    }

    pub fn leader_epoch(&self) -> Option<LeaderEpoch> {
        self.leader.as_ref().map(Leader::epoch)
    }

    /// K of this replica: below it, records may be counted (REPLICATION 3.1).
    pub fn counted(&self) -> Offset {
        match self.durability {
            Durability::Flushed => self.flushed_offset,
            Durability::Replicated => self.log_end_offset,
        }
    }

    /// Leads from now on, or takes news of the same epoch. Older epochs are ignored. Returns whether the epoch is new.
    pub fn lead(&mut self, registration: &Registration, min_insync_replicas: usize) -> bool {
        match &mut self.leader {
            Some(leader) if registration.leader_epoch < leader.epoch() => false,
            Some(leader) if registration.leader_epoch == leader.epoch() => {
                leader.set_min_insync_replicas(min_insync_replicas);
                leader.isr_mut().agreed(registration.isr.iter().copied(), registration.partition_epoch);
                false
            }
            Some(_) | None => {
                let leader = Leader::new(self.node, registration, self.log_end_offset, min_insync_replicas);
                self.leader = Some(leader);
                true
            }
        }
    }

    pub fn resign(&mut self) {
        self.leader = None;
    }

    pub fn configure(&mut self, durability: Durability, min_insync_replicas: usize) {
        self.durability = durability;
        if let Some(leader) = &mut self.leader {
            leader.set_min_insync_replicas(min_insync_replicas);
        }
    }

    pub fn appended(&mut self, log_end_offset: Offset) {
        check!(InvariantId::Log2, log_end_offset >= self.log_end_offset);
        self.log_end_offset = log_end_offset;
    }

    pub fn flushed(&mut self, flushed_offset: Offset) {
        check!(InvariantId::Log3, flushed_offset <= self.log_end_offset, "flushed {flushed_offset}");
        self.flushed_offset = self.flushed_offset.max(flushed_offset);
    }

    /// Records below `log_start_offset` are gone; the watermark is never left among them.
    pub fn log_started(&mut self, log_start_offset: Offset) {
        check!(InvariantId::Log1, log_start_offset <= self.log_end_offset);
        self.high_watermark = self.high_watermark.max(log_start_offset);
    }

    /// Moves the high watermark up to the least counted offset of the maximal ISR.
    ///
    /// Returns the new value, or `None` if it did not move. Never falls within one leader epoch (HW-1).
    ///
    /// Source: KIP-497 (maximal ISR), KIP-966 (min ISR).
    pub fn advance_high_watermark(&mut self) -> Option<Offset> {
        let committed = self.leader.as_ref()?.committed(self.counted())?;
        if committed <= self.high_watermark {
            return None;
        }
        check!(InvariantId::Log1, committed <= self.log_end_offset);
        self.high_watermark = committed;
        Some(committed)
    }

    /// Below it, a new leader cannot yet say what is committed (L9): ListOffsets(latest) waits.
    pub fn knows_latest(&self) -> bool {
        self.leader.as_ref().is_some_and(|leader| self.high_watermark >= leader.epoch_start_offset())
    }
}

/// What a log says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnds {
    pub log_start_offset: Offset,
    pub log_end_offset: Offset,
    pub flushed_offset: Offset,
}

#[cfg(test)]
mod tests {
    use thalweg_model::PartitionEpoch;

    use super::*;

    fn ends(start: i64, end: i64, flushed: i64) -> LogEnds {
        LogEnds { log_start_offset: Offset(start), log_end_offset: Offset(end), flushed_offset: Offset(flushed) }
    }

    fn registration(epoch: i32) -> Registration {
        Registration { leader_epoch: LeaderEpoch(epoch), partition_epoch: PartitionEpoch(epoch), isr: vec![NodeId(1)] }
    }

    fn leading(durability: Durability) -> Replica {
        let mut replica = Replica::new(NodeId(1), durability, ends(0, 0, 0), Offset(0));
        assert!(replica.lead(&registration(0), 1));
        replica
    }

    #[test]
    fn flushed_topics_commit_what_is_on_disk_and_no_more() {
        let mut replica = leading(Durability::Flushed);
        replica.appended(Offset(5));
        assert_eq!(replica.advance_high_watermark(), None);
        replica.flushed(Offset(3));
        assert_eq!(replica.advance_high_watermark(), Some(Offset(3)));
        assert_eq!(replica.advance_high_watermark(), None);
    }

    #[test]
    fn replicated_topics_commit_what_the_kernel_has() {
        let mut replica = leading(Durability::Replicated);
        replica.appended(Offset(5));
        assert_eq!(replica.advance_high_watermark(), Some(Offset(5)));
    }

    #[test]
    fn without_a_leader_nothing_moves() {
        let mut replica = leading(Durability::Replicated);
        replica.resign();
        replica.appended(Offset(5));
        assert_eq!(replica.advance_high_watermark(), None);
    }

    #[test]
    fn a_checkpointed_watermark_is_put_within_the_log() {
        let found = |high_watermark| {
            Replica::new(NodeId(1), Durability::Flushed, ends(4, 9, 9), Offset(high_watermark)).high_watermark()
        };
        assert_eq!((found(0), found(6), found(99)), (Offset(4), Offset(6), Offset(9)));
    }

    #[test]
    fn an_older_epoch_changes_nothing_and_a_newer_one_starts_at_the_log_end() {
        let mut replica = leading(Durability::Replicated);
        replica.appended(Offset(5));
        assert!(!replica.lead(&registration(-1), 1));
        assert_eq!(replica.leader_epoch(), Some(LeaderEpoch(0)));
        assert!(replica.lead(&registration(2), 1));
        assert_eq!(replica.leader().map(Leader::epoch_start_offset), Some(Offset(5)));
        assert!(!replica.knows_latest());
        replica.advance_high_watermark();
        assert!(replica.knows_latest());
    }

    #[test]
    fn a_log_start_above_the_watermark_takes_it_along() {
        let mut replica = leading(Durability::Flushed);
        replica.appended(Offset(5));
        replica.log_started(Offset(4));
        assert_eq!(replica.high_watermark(), Offset(4));
    }
}
