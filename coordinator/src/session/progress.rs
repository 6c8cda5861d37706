//! How fast each group commits: the rate at which it reads, as far as anybody but its members can know.

use std::collections::BTreeMap;

use thalweg_model::MonoTime;
use thalweg_proto::v1::{CommitProgress, GroupCommit};

/// Commits of the last minute or two, by group, topic and partition.
#[derive(Default)]
pub(super) struct Progress {
    groups: BTreeMap<String, BTreeMap<String, BTreeMap<i32, Window>>>,
    /// Of all groups.
    partition_count: usize,
    pruned_at: MonoTime,
}

/// Two beginnings and an end: a rate that covers between one and two windows' time while commits come.
#[derive(Clone, Copy, Debug)]
struct Window {
    older: Sample,
    newer: Sample,
    last: Sample,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: MonoTime,
    offset: i64,
}

impl Progress {
    pub fn take(&mut self, now: MonoTime, commit: &GroupCommit) {
        if now.since(self.pruned_at).as_millis() >= WINDOW_MS.into() {
            self.pruned_at = now;
            self.prune(now);
        }
        for offset in &commit.offsets {
            let sample = Sample { at: now, offset: offset.offset };
            let known = self.groups.get_mut(&commit.group_id).and_then(|topics| topics.get_mut(&offset.topic));
            if let Some(window) = known.and_then(|partitions| partitions.get_mut(&offset.partition)) {
                window.take(sample);
            } else if self.partition_count < PARTITIONS_MAX {
                self.partition_count += 1;
                let topics = self.groups.entry(commit.group_id.clone()).or_default();
                let partitions = topics.entry(offset.topic.clone()).or_default();
                partitions.insert(offset.partition, Window { older: sample, newer: sample, last: sample });
            }
        }
    }

    pub fn answer(&self, now: MonoTime, group_id: &str) -> Vec<CommitProgress> {
        let ms = |from: MonoTime, to: MonoTime| i64::try_from(to.since(from).as_millis()).unwrap_or(i64::MAX);
        let topics = self.groups.get(group_id).into_iter().flatten();
        let partitions =
            topics.flat_map(|(topic, partitions)| partitions.iter().map(move |(index, w)| (topic, index, w)));
        partitions
            .map(|(topic, index, window)| CommitProgress {
                topic: topic.clone(),
                partition: *index,
                records: window.last.offset - window.older.offset,
                over_ms: ms(window.older.at, window.last.at),
                age_ms: ms(window.last.at, now),
            })
            .collect()
    }

    /// Forgets who has not committed for a while.
    fn prune(&mut self, now: MonoTime) {
        let is_quiet = |window: &Window| now.since(window.last.at).as_millis() > QUIET_MS.into();
        for topics in self.groups.values_mut() {
            for partitions in topics.values_mut() {
                partitions.retain(|_, window| !is_quiet(window));
            }
            topics.retain(|_, partitions| !partitions.is_empty());
        }
        self.groups.retain(|_, topics| !topics.is_empty());
        self.partition_count = self.groups.values().flat_map(BTreeMap::values).map(BTreeMap::len).sum();
    }
}

impl Window {
    fn take(&mut self, sample: Sample) {
        if sample.offset < self.last.offset {
            // Somebody moved it back: what was read before says nothing of what is read now.
            *self = Window { older: sample, newer: sample, last: sample };
            return;
        }
        if sample.at.since(self.newer.at).as_millis() >= WINDOW_MS.into() {
            self.older = self.newer;
            self.newer = self.last;
        }
        self.last = sample;
    }
}

const WINDOW_MS: u32 = 60_000;
const QUIET_MS: u32 = 600_000;
/// At about 100 bytes each.
const PARTITIONS_MAX: usize = 100_000;

#[cfg(test)]
mod tests {
    use thalweg_proto::v1::CommitOffset;

    use super::*;

    fn commit(progress: &mut Progress, at_s: u64, partition: i32, offset: i64) {
        let offset = CommitOffset { topic: "t".into(), partition, offset, ..CommitOffset::default() };
        let commit = GroupCommit { group_id: "g".into(), offsets: vec![offset], ..GroupCommit::default() };
        progress.take(MonoTime::default().plus_ms(at_s * 1_000), &commit);
    }

    fn rate(progress: &Progress, at_s: u64) -> (i64, i64, i64) {
        let answer = progress.answer(MonoTime::default().plus_ms(at_s * 1_000), "g");
        (answer[0].records, answer[0].over_ms, answer[0].age_ms)
    }

    #[test]
    fn the_rate_is_of_the_last_one_or_two_minutes() {
        let mut progress = Progress::default();
        // 10 a second for five minutes, then 100 a second for three.
        (0..=60).for_each(|i| commit(&mut progress, 5 * i, 0, 50 * i64::try_from(i).unwrap()));
        (1..=36).for_each(|i| commit(&mut progress, 300 + 5 * i, 0, 3_000 + 500 * i64::try_from(i).unwrap()));
        let (records, over_ms, age_ms) = rate(&progress, 490);
        assert!((60_000..=125_000).contains(&over_ms), "{over_ms}");
        assert_eq!((records * 1_000 / over_ms, age_ms), (100, 10_000));
    }

    #[test]
    fn a_group_that_is_moved_back_begins_anew() {
        let mut progress = Progress::default();
        commit(&mut progress, 0, 0, 1_000);
        commit(&mut progress, 10, 0, 5);
        commit(&mut progress, 20, 0, 25);
        assert_eq!(rate(&progress, 20), (20, 10_000, 0));
    }

    #[test]
    fn who_is_quiet_is_forgotten_and_there_is_a_limit() {
        let mut progress = Progress::default();
        for partition in 0..i32::try_from(PARTITIONS_MAX).unwrap() + 10 {
            commit(&mut progress, 0, partition, 0);
        }
        assert_eq!(progress.partition_count, PARTITIONS_MAX);
        commit(&mut progress, 700, 1, 1);
        assert_eq!(progress.partition_count, 1);
        assert_eq!(progress.answer(MonoTime::default(), "g").len(), 1);
    }
}
