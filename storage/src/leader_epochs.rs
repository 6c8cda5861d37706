//! Which leader epoch starts where in a log (KIP-101): the basis of truncation after an election.

use std::path::Path;

use thalweg_model::invariant::InvariantId;
use thalweg_model::{LeaderEpoch, Offset, check};
use thalweg_world::disk::Disk;

use crate::checkpoint::{self, CheckpointError};

/// A log's epochs with their first offsets.
///
/// Invariant: epochs and start offsets both grow strictly along the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderEpochs {
    entries: Vec<EpochEntry>,
}

/// From `start_offset` on, batches carry `epoch`, until the next entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEntry {
    pub epoch: LeaderEpoch,
    pub start_offset: Offset,
}

impl LeaderEpochs {
    pub fn entries(&self) -> &[EpochEntry] {
        &self.entries
    }

    pub fn latest(&self) -> Option<EpochEntry> {
        self.entries.last().copied()
    }

    /// Records that `epoch` begins at `start_offset`; returns whether anything changed.
    ///
    /// Entries that claim offsets from there on, or an epoch not smaller, go first: they had no
    /// records (REPLICATION L1). An epoch that is known already keeps its start.
    pub fn assign(&mut self, epoch: LeaderEpoch, start_offset: Offset) -> bool {
        if epoch < LeaderEpoch(0) || self.latest().is_some_and(|last| last.epoch >= epoch) {
            return false;
        }
        while self.latest().is_some_and(|last| last.start_offset >= start_offset) {
            self.entries.pop();
        }
        self.entries.push(EpochEntry { epoch, start_offset });
        let grows = |pair: &[EpochEntry]| pair[0].epoch < pair[1].epoch && pair[0].start_offset < pair[1].start_offset;
        check!(InvariantId::Epoch1, self.entries.windows(2).all(grows));
        true
    }

    /// Forgets epochs that start at or after `end`; returns whether there were any.
    pub fn truncate_from_end(&mut self, end: Offset) -> bool {
        let before = self.entries.len();
        self.entries.retain(|entry| entry.start_offset < end);
        self.entries.len() != before
    }

    /// Forgets epochs that end at or before `start`; the one that holds `start` now begins there.
    pub fn truncate_from_start(&mut self, start: Offset) -> bool {
        let keep_from = self.entries.partition_point(|entry| entry.start_offset <= start).saturating_sub(1);
        let first_moves = self.entries.get(keep_from).is_some_and(|entry| entry.start_offset < start);
        if keep_from == 0 && !first_moves {
            return false;
        }
        self.entries.drain(..keep_from);
        if first_moves && let Some(first) = self.entries.first_mut() {
            first.start_offset = start;
        }
        true
    }

    /// Whether it says something of every offset from `start` on; an empty list, that none of the records has an epoch.
    ///
    /// Not so after a crash between the two files that a log's start is in: the list has moved up, the start has not. The epochs
    /// in between would pass for ones that end where the list begins, and what a deposed leader wrote there for what was
    /// committed.
    pub fn reaches(&self, start: Offset) -> bool {
        self.entries.first().is_none_or(|first| first.start_offset <= start)
    }

    /// Gives back the room that growing left over: the list stays in memory as long as its log is open.
    pub(crate) fn shrink(&mut self) {
        self.entries.shrink_to_fit();
    }

    /// The largest known epoch not above `asked` and its exclusive end (REPLICATION L3).
    ///
    /// If every known epoch is larger: `asked` itself and the start of the first. `None` if none is known.
    pub fn end_offset(&self, asked: LeaderEpoch, log_end_offset: Offset) -> Option<(LeaderEpoch, Offset)> {
        let after = self.entries.partition_point(|entry| entry.epoch <= asked);
        let end = self.entries.get(after).map_or(log_end_offset, |next| next.start_offset);
        match after.checked_sub(1) {
            Some(index) => Some((self.entries[index].epoch, end)),
            None => self.entries.first().map(|first| (asked, first.start_offset)),
        }
    }

    /// The epoch of the batch at `offset`.
    pub fn epoch_for(&self, offset: Offset) -> Option<LeaderEpoch> {
        let after = self.entries.partition_point(|entry| entry.start_offset <= offset);
        after.checked_sub(1).map(|index| self.entries[index].epoch)
    }

    /// # Errors
    /// [`CheckpointError::Malformed`]: the file is there and breaks a rule; the log itself knows better.
    pub fn read(disk: &dyn Disk, path: &Path) -> Result<Option<LeaderEpochs>, CheckpointError> {
        match checkpoint::read_small(disk, path)? {
            Some(bytes) => LeaderEpochs::parse(&bytes).map(Some),
            None => Ok(None),
        }
    }

    /// Reads the text of a `leader-epoch-checkpoint`.
    ///
    /// # Errors
    /// [`CheckpointError::Malformed`] names the line.
    pub fn parse(bytes: &[u8]) -> Result<LeaderEpochs, CheckpointError> {
        let mut entries: Vec<EpochEntry> = Vec::new();
        checkpoint::parse_lines(bytes, |line| {
            let mut words = line.split(' ');
            let epoch = LeaderEpoch(checkpoint::number(words.next()?)?);
            let start_offset = Offset(checkpoint::number(words.next()?)?);
            let grows = entries.last().is_none_or(|last| last.epoch < epoch && last.start_offset < start_offset);
            entries.push(EpochEntry { epoch, start_offset });
            (grows && words.next().is_none()).then_some(())
        })?;
        Ok(LeaderEpochs { entries })
    }

    /// Durable on return.
    ///
    /// # Errors
    /// Whatever the file system says; the old file is then still whole.
    pub fn write(&self, disk: &dyn Disk, path: &Path) -> std::io::Result<()> {
        let mut text = format!("0\n{}\n", self.entries.len());
        for entry in &self.entries {
            text.push_str(&format!("{} {}\n", entry.epoch, entry.start_offset));
        }
        checkpoint::replace(disk, path, text.as_bytes())
    }
}

/// The file's name in a partition's directory.
pub(crate) const FILE_NAME: &str = "leader-epoch-checkpoint";

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_world::disk::SimDisk;

    fn epochs(list: &[(i32, i64)]) -> LeaderEpochs {
        let mut epochs = LeaderEpochs::default();
        for (epoch, start) in list {
            assert!(epochs.assign(LeaderEpoch(*epoch), Offset(*start)));
        }
        epochs
    }

    #[test]
    fn an_epoch_without_records_gives_way_to_the_next() {
        let mut found = epochs(&[(0, 0), (2, 10)]);
        assert!(found.assign(LeaderEpoch(3), Offset(10)));
        assert_eq!(found, epochs(&[(0, 0), (3, 10)]));
        assert!(!found.assign(LeaderEpoch(3), Offset(12)), "a known epoch keeps its start");
        assert!(!found.assign(LeaderEpoch(1), Offset(12)), "epochs never fall");
    }

    #[test]
    fn an_epoch_ends_where_the_next_begins() {
        let found = epochs(&[(1, 0), (3, 10), (5, 20)]);
        let end = |epoch| found.end_offset(LeaderEpoch(epoch), Offset(30)).map(|(epoch, end)| (epoch.0, end.0));
        assert_eq!(end(0), Some((0, 0)));
        assert_eq!(end(1), Some((1, 10)));
        assert_eq!(end(2), Some((1, 10)));
        assert_eq!(end(5), Some((5, 30)));
        assert_eq!(end(9), Some((5, 30)));
        assert_eq!(LeaderEpochs::default().end_offset(LeaderEpoch(1), Offset(0)), None);
        assert_eq!(found.epoch_for(Offset(9)), Some(LeaderEpoch(1)));
        assert_eq!(found.epoch_for(Offset(10)), Some(LeaderEpoch(3)));
    }

    #[test]
    fn both_ends_can_be_cut() {
        let mut found = epochs(&[(1, 0), (3, 10), (5, 20)]);
        assert!(found.truncate_from_end(Offset(20)));
        assert!(found.truncate_from_start(Offset(5)));
        assert_eq!(found, epochs(&[(1, 5), (3, 10)]));
        assert!(!found.truncate_from_start(Offset(5)));
        assert!(found.truncate_from_start(Offset(10)));
        assert_eq!(found, epochs(&[(3, 10)]));
        assert!(!found.truncate_from_end(Offset(11)));
    }

    #[test]
    fn the_file_is_kafkas() {
        let disk = SimDisk::new();
        let found = epochs(&[(1, 0), (3, 10)]);
        found.write(&disk, Path::new("/e")).unwrap();
        assert_eq!(disk.contents(Path::new("/e")).unwrap(), b"0\n2\n1 0\n3 10\n");
        assert_eq!(LeaderEpochs::read(&disk, Path::new("/e")).unwrap(), Some(found));
        assert!(LeaderEpochs::parse(b"0\n2\n3 0\n1 10\n").is_err());
        assert!(LeaderEpochs::parse(b"0\n2\n1 10\n3 10\n").is_err());
    }
}
