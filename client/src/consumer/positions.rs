//! Where a consumer stands in each of its partitions, without I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use thalweg_model::{LeaderEpoch, MonoTime, NodeId, Offset, TopicPartition};

use crate::offsets::OffsetSpec;

/// The partitions that a consumer reads.
///
/// ```text
/// Committed --committed offset--> At          (none committed: Reset by the policy)
/// Reset --listed offset--> At                 (offset out of range: At -> Reset by the policy)
/// ```
/// There are two offsets in `At`: the *position* is the next record for the application, the *fetch offset*
/// runs ahead of it by what is buffered. A seek changes both and the partition's `life`, so that answers to
/// fetches of an earlier life are dropped.
#[derive(Debug, Default)]
pub(crate) struct Positions {
    partitions: BTreeMap<TopicPartition, Partition>,
    next_life: u64,
}

/// Where a partition starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// At the group's committed offset.
    Committed,
    /// At an offset that must be asked for.
    Reset(OffsetSpec),
    At(Offset),
}

#[derive(Debug)]
struct Partition {
    state: State,
    life: u64,
    is_paused: bool,
    is_in_flight: bool,
    buffered_bytes: usize,
    retry_at: Option<MonoTime>,
    high_watermark: Option<Offset>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Committed,
    Reset(OffsetSpec),
    At { position: Offset, fetch_offset: Offset },
}

/// A partition to fetch now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ToFetch {
    pub(crate) tp: TopicPartition,
    pub(crate) life: u64,
    pub(crate) offset: Offset,
    pub(crate) leader_epoch: LeaderEpoch,
}

/// What can be fetched now.
#[derive(Debug, Default)]
pub(crate) struct Fetchable {
    pub(crate) by_leader: BTreeMap<NodeId, Vec<ToFetch>>,
    /// Leaders of partitions that have enough buffered: soon they are fetchable too, so a fetch of the others must
    /// not wait at the broker for data that may never come.
    pub(crate) hurried: BTreeSet<NodeId>,
    /// Some partition has no known leader.
    pub(crate) leader_unknown: bool,
}

impl Positions {
    /// Reads exactly these partitions from now on; those that were there keep their positions.
    pub(crate) fn assign(&mut self, wanted: impl IntoIterator<Item = (TopicPartition, Start)>) {
        let mut old = std::mem::take(&mut self.partitions);
        for (tp, start) in wanted {
            let partition = old.remove(&tp).unwrap_or_else(|| self.new_partition(start));
            self.partitions.insert(tp, partition);
        }
    }

    pub(crate) fn unassign(&mut self, gone: &BTreeSet<TopicPartition>) {
        self.partitions.retain(|tp, _| !gone.contains(tp));
    }

    pub(crate) fn assigned(&self) -> BTreeSet<TopicPartition> {
        self.partitions.keys().cloned().collect()
    }

    pub(crate) fn contains(&self, tp: &TopicPartition) -> bool {
        self.partitions.contains_key(tp)
    }

    /// Moves a partition; `false` if it is not assigned.
    pub(crate) fn seek(&mut self, tp: &TopicPartition, start: Start) -> bool {
        let fresh = self.new_partition(start);
        match self.partitions.get_mut(tp) {
            Some(partition) => {
                *partition = Partition { is_paused: partition.is_paused, ..fresh };
                true
            }
            None => false,
        }
    }

    /// `false` if it is not assigned.
    pub(crate) fn set_paused(&mut self, tp: &TopicPartition, is_paused: bool) -> bool {
        self.partitions.get_mut(tp).map(|partition| partition.is_paused = is_paused).is_some()
    }

    pub(crate) fn is_paused(&self, tp: &TopicPartition) -> bool {
        self.partitions.get(tp).is_some_and(|partition| partition.is_paused)
    }

    /// The next record for the application; `None` until it is known.
    pub(crate) fn position(&self, tp: &TopicPartition) -> Option<Offset> {
        match self.partitions.get(tp)?.state {
            State::At { position, .. } => Some(position),
            State::Committed | State::Reset(_) => None,
        }
    }

    /// All known positions, as a commit stores them.
    pub(crate) fn positions(&self) -> BTreeMap<TopicPartition, Offset> {
        self.partitions.keys().filter_map(|tp| Some((tp.clone(), self.position(tp)?))).collect()
    }

    pub(crate) fn high_watermark(&self, tp: &TopicPartition) -> Option<Offset> {
        self.partitions.get(tp)?.high_watermark
    }

    /// Partitions that wait for their committed offset.
    pub(crate) fn want_committed(&self, now: MonoTime) -> Vec<TopicPartition> {
        self.due(now).filter(|(_, p)| p.state == State::Committed).map(|(tp, _)| tp.clone()).collect()
    }

    /// Partitions that wait for an end of their log, or a time's offset.
    pub(crate) fn want_reset(&self, now: MonoTime) -> BTreeMap<TopicPartition, OffsetSpec> {
        let spec = |partition: &Partition| match partition.state {
            State::Reset(spec) => Some(spec),
            State::Committed | State::At { .. } => None,
        };
        self.due(now).filter_map(|(tp, partition)| Some((tp.clone(), spec(partition)?))).collect()
    }

    /// Partitions to fetch from each leader: known position, not paused, none under way, little buffered.
    pub(crate) fn fetchable(
        &self,
        now: MonoTime,
        buffer_max: usize,
        leader_of: impl Fn(&TopicPartition) -> Option<(NodeId, LeaderEpoch)>,
    ) -> Fetchable {
        let mut fetchable = Fetchable::default();
        for (tp, partition) in self.due(now) {
            let State::At { fetch_offset, .. } = partition.state else { continue };
            if partition.is_paused || partition.is_in_flight {
                continue;
            }
            match leader_of(tp) {
                Some((node, _)) if partition.buffered_bytes >= buffer_max => {
                    fetchable.hurried.insert(node);
                }
                Some((node, leader_epoch)) => fetchable.by_leader.entry(node).or_default().push(ToFetch {
                    tp: tp.clone(),
                    life: partition.life,
                    offset: fetch_offset,
                    leader_epoch,
                }),
                None => fetchable.leader_unknown = true,
            }
        }
        fetchable
    }

    pub(crate) fn set_in_flight(&mut self, tp: &TopicPartition, life: u64, is_in_flight: bool) {
        if let Some(partition) = self.living(tp, life) {
            partition.is_in_flight = is_in_flight;
        }
    }

    /// Data came: `next` follows its last record. `false` if nobody waits for it any more.
    pub(crate) fn on_fetched(
        &mut self,
        tp: &TopicPartition,
        life: u64,
        next: Option<Offset>,
        bytes: usize,
        high_watermark: Offset,
    ) -> bool {
        let Some(partition) = self.living(tp, life) else { return false };
        partition.is_in_flight = false;
        partition.high_watermark = Some(high_watermark);
        if let (State::At { fetch_offset, .. }, Some(next)) = (&mut partition.state, next) {
            *fetch_offset = next.max(*fetch_offset);
            partition.buffered_bytes += bytes;
        }
        true
    }

    /// The application takes buffered data: the position moves behind it. `false` if it is of an earlier life.
    pub(crate) fn on_taken(&mut self, tp: &TopicPartition, life: u64, next: Offset, bytes: usize) -> bool {
        let Some(partition) = self.living(tp, life) else { return false };
        partition.buffered_bytes = partition.buffered_bytes.saturating_sub(bytes);
        if let State::At { position, .. } = &mut partition.state {
            *position = next;
        }
        true
    }

    /// The fetch failed in a way that another one may heal.
    pub(crate) fn on_fetch_failed(&mut self, tp: &TopicPartition, life: u64, retry_at: MonoTime) {
        if let Some(partition) = self.living(tp, life) {
            partition.is_in_flight = false;
            partition.retry_at = Some(retry_at);
        }
    }

    /// The group's offset came; `None`: there is none.
    pub(crate) fn on_committed(&mut self, tp: &TopicPartition, committed: Option<Offset>, policy: Option<OffsetSpec>) {
        let Some(partition) = self.partitions.get_mut(tp).filter(|p| p.state == State::Committed) else { return };
        match (committed, policy) {
            (Some(offset), _) => partition.state = at(offset),
            (None, Some(spec)) => partition.state = State::Reset(spec),
            (None, None) => {}
        }
    }

    /// An offset asked for by [`Positions::want_reset`] came.
    pub(crate) fn on_listed(&mut self, tp: &TopicPartition, asked: OffsetSpec, offset: Offset) {
        if let Some(partition) = self.partitions.get_mut(tp).filter(|p| p.state == State::Reset(asked)) {
            partition.state = at(offset);
        }
    }

    /// Postpones the next question about a partition's start.
    pub(crate) fn on_start_failed(&mut self, tp: &TopicPartition, retry_at: MonoTime) {
        if let Some(partition) = self.partitions.get_mut(tp) {
            partition.retry_at = Some(retry_at);
        }
    }

    /// The earliest moment at which something that waits may be tried again.
    pub(crate) fn next_retry(&self, now: MonoTime) -> Option<Duration> {
        self.partitions.values().filter_map(|p| p.retry_at).filter(|at| *at > now).min().map(|at| at.since(now))
    }

    fn due(&self, now: MonoTime) -> impl Iterator<Item = (&TopicPartition, &Partition)> {
        self.partitions.iter().filter(move |(_, partition)| partition.retry_at.is_none_or(|at| at <= now))
    }

    fn living(&mut self, tp: &TopicPartition, life: u64) -> Option<&mut Partition> {
        self.partitions.get_mut(tp).filter(|partition| partition.life == life)
    }

    fn new_partition(&mut self, start: Start) -> Partition {
        self.next_life += 1;
        let state = match start {
            Start::Committed => State::Committed,
            Start::Reset(spec) => State::Reset(spec),
            Start::At(offset) => at(offset),
        };
        Partition {
            state,
            life: self.next_life,
            is_paused: false,
            is_in_flight: false,
            buffered_bytes: 0,
            retry_at: None,
            high_watermark: None,
        }
    }
}

fn at(offset: Offset) -> State {
    State::At { position: offset, fetch_offset: offset }
}

#[cfg(test)]
mod tests {
    use thalweg_model::{PartitionIndex, TopicName};

    use super::*;

    fn tp() -> TopicPartition {
        TopicPartition::new(TopicName::new("t").unwrap(), PartitionIndex(0))
    }

    fn reading_from(offset: i64) -> Positions {
        let mut positions = Positions::default();
        positions.assign([(tp(), Start::At(Offset(offset)))]);
        positions
    }

    fn to_fetch(positions: &Positions) -> Vec<ToFetch> {
        let fetchable = positions.fetchable(MonoTime::ZERO, 100, |_| Some((NodeId(1), LeaderEpoch(0))));
        fetchable.by_leader.into_values().flatten().collect()
    }

    #[test]
    fn fetching_runs_ahead_of_the_application_until_the_buffer_is_full() {
        let mut positions = reading_from(5);
        let first = to_fetch(&positions).remove(0);
        positions.set_in_flight(&tp(), first.life, true);
        assert_eq!(to_fetch(&positions), []);
        assert!(positions.on_fetched(&tp(), first.life, Some(Offset(9)), 60, Offset(20)));
        assert_eq!(to_fetch(&positions)[0].offset, Offset(9));
        assert_eq!(positions.position(&tp()), Some(Offset(5)));
        positions.on_fetched(&tp(), first.life, Some(Offset(12)), 60, Offset(20));
        assert_eq!(to_fetch(&positions), []);
        assert!(positions.on_taken(&tp(), first.life, Offset(9), 60));
        assert_eq!((positions.position(&tp()), to_fetch(&positions)[0].offset), (Some(Offset(9)), Offset(12)));
    }

    /// Goal: after a seek no record of the old place is given out, whenever it arrives.
    #[test]
    fn a_seek_drops_what_was_fetched_and_what_is_under_way() {
        let mut positions = reading_from(5);
        let old = to_fetch(&positions).remove(0);
        positions.set_in_flight(&tp(), old.life, true);
        assert!(positions.seek(&tp(), Start::At(Offset(0))));
        assert!(!positions.on_fetched(&tp(), old.life, Some(Offset(9)), 10, Offset(9)));
        assert!(!positions.on_taken(&tp(), old.life, Offset(9), 10));
        assert_eq!(positions.position(&tp()), Some(Offset(0)));
        assert_eq!(to_fetch(&positions)[0].offset, Offset(0));
    }

    #[test]
    fn without_a_committed_offset_the_policy_decides() {
        let mut positions = Positions::default();
        positions.assign([(tp(), Start::Committed)]);
        assert_eq!(positions.want_committed(MonoTime::ZERO), [tp()]);
        positions.on_committed(&tp(), None, Some(OffsetSpec::Earliest));
        assert_eq!(positions.want_reset(MonoTime::ZERO), [(tp(), OffsetSpec::Earliest)].into());
        positions.on_listed(&tp(), OffsetSpec::Latest, Offset(7));
        assert_eq!(positions.position(&tp()), None, "an answer to another question");
        positions.on_listed(&tp(), OffsetSpec::Earliest, Offset(3));
        assert_eq!(positions.position(&tp()), Some(Offset(3)));
    }

    #[test]
    fn a_partition_that_stays_keeps_its_position_and_a_paused_one_is_not_fetched() {
        let mut positions = reading_from(5);
        positions.assign([(tp(), Start::Committed)]);
        assert_eq!(positions.position(&tp()), Some(Offset(5)));
        assert!(positions.set_paused(&tp(), true));
        assert_eq!(to_fetch(&positions), []);
        positions.unassign(&positions.assigned());
        assert!(!positions.set_paused(&tp(), false));
    }

    /// Goal: a partition at its end does not hold up another that has more. Method: one has a full buffer.
    #[test]
    fn a_fetch_beside_a_full_buffer_is_hurried() {
        let other = TopicPartition::new(TopicName::new("t").unwrap(), PartitionIndex(1));
        let mut positions = Positions::default();
        positions.assign([(tp(), Start::At(Offset(0))), (other.clone(), Start::At(Offset(0)))]);
        let leader = |_: &TopicPartition| Some((NodeId(1), LeaderEpoch(0)));
        assert!(positions.fetchable(MonoTime::ZERO, 100, leader).hurried.is_empty());
        let full = to_fetch(&positions).remove(0);
        positions.on_fetched(&tp(), full.life, Some(Offset(9)), 100, Offset(20));
        let fetchable = positions.fetchable(MonoTime::ZERO, 100, leader);
        assert_eq!(fetchable.hurried, [NodeId(1)].into());
        assert_eq!(fetchable.by_leader[&NodeId(1)].iter().map(|want| &want.tp).collect::<Vec<_>>(), [&other]);
    }

    #[test]
    fn a_failed_fetch_waits_for_its_time() {
        let mut positions = reading_from(5);
        let fetch = to_fetch(&positions).remove(0);
        positions.set_in_flight(&tp(), fetch.life, true);
        positions.on_fetch_failed(&tp(), fetch.life, MonoTime::ZERO.plus_ms(10));
        assert_eq!(to_fetch(&positions), []);
        assert_eq!(positions.next_retry(MonoTime::ZERO), Some(Duration::from_millis(10)));
        let later = positions.fetchable(MonoTime::ZERO.plus_ms(10), 100, |_| Some((NodeId(1), LeaderEpoch(0))));
        assert_eq!(later.by_leader.len(), 1);
    }
}
