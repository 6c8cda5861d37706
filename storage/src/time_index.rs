//! `.timeindex`: from a timestamp to an offset, sparsely.
//!
//! An entry says: up to the batch that ends at this offset, the largest timestamp is this one, and it
//! is in that batch. 8 bytes of timestamp and 4 of offset relative to the segment's base, big endian;
//! both grow along the file (Kafka's TimeIndex).

use std::io;
use std::sync::Arc;

use thalweg_model::{Offset, Timestamp};

use crate::entry_file::EntryFile;
use crate::place::{Place, TIME_INDEX};

/// A segment's time index.
#[derive(Debug)]
pub(crate) struct TimeIndex(EntryFile);

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeOffset {
    pub timestamp: Timestamp,
    /// The last offset of the batch that has the timestamp, less the segment's base.
    pub relative_offset: u32,
}

impl TimeIndex {
    pub fn unopened(place: &Arc<Place>, base_offset: Offset) -> TimeIndex {
        TimeIndex(EntryFile::unopened(place, base_offset, TIME_INDEX, ENTRY_LEN as u32))
    }

    pub fn file(&self) -> &EntryFile {
        &self.0
    }

    pub fn last(&self) -> io::Result<Option<TimeOffset>> {
        match self.0.count()? {
            0 => Ok(None),
            count => self.entry(count - 1).map(Some),
        }
    }

    /// The last entry whose timestamp is below `timestamp`: everything up to its offset is older.
    pub fn lookup_below(&self, timestamp: Timestamp) -> io::Result<Option<TimeOffset>> {
        Ok(self.last_where(|entry| entry.timestamp < timestamp)?.map(|(_, entry)| entry))
    }

    /// The last entry whose offset is at most `relative_offset`, with its number.
    pub fn lookup_offset(&self, relative_offset: u32) -> io::Result<Option<(u32, TimeOffset)>> {
        self.last_where(|entry| entry.relative_offset <= relative_offset)
    }

    /// Whether timestamps and offsets grow along the first `count` entries.
    pub fn is_ordered(&self, count: u32) -> io::Result<bool> {
        self.0.is_ordered(count, |a, b| {
            let (a, b) = (decode(a), decode(b));
            a.timestamp < b.timestamp && a.relative_offset < b.relative_offset
        })
    }

    pub fn append(&self, entries: &[TimeOffset]) -> io::Result<()> {
        self.0.append(&encode(entries))
    }

    fn entry(&self, number: u32) -> io::Result<TimeOffset> {
        let mut bytes = [0; ENTRY_LEN];
        self.0.read(number, &mut bytes)?;
        Ok(decode(&bytes))
    }

    fn last_where(&self, holds: impl Fn(TimeOffset) -> bool) -> io::Result<Option<(u32, TimeOffset)>> {
        let (mut low, mut high) = (0, self.0.count()?);
        let mut found = None;
        while low < high {
            let middle = low + (high - low) / 2;
            let entry = self.entry(middle)?;
            if holds(entry) {
                found = Some((middle, entry));
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(found)
    }
}

pub(crate) fn encode(entries: &[TimeOffset]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(entries.len() * ENTRY_LEN);
    for entry in entries {
        bytes.extend_from_slice(&entry.timestamp.0.to_be_bytes());
        bytes.extend_from_slice(&entry.relative_offset.to_be_bytes());
    }
    bytes
}

fn decode(bytes: &[u8]) -> TimeOffset {
    let (time, offset) = bytes.split_at(8);
    let timestamp = time.iter().fold(0u64, |value, byte| value << 8 | u64::from(*byte)).cast_signed();
    let relative_offset = offset.iter().fold(0u32, |value, byte| value << 8 | u32::from(*byte));
    TimeOffset { timestamp: Timestamp(timestamp), relative_offset }
}

pub(crate) const ENTRY_LEN: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use thalweg_world::disk::SimDisk;

    #[test]
    fn lookups_find_the_last_entry_before() {
        let place = Arc::new(Place::new(Arc::new(SimDisk::new()), PathBuf::from("/")));
        let index = TimeIndex::unopened(&place, Offset(0));
        assert_eq!(index.last().unwrap(), None);
        let entry = |i: i64| TimeOffset { timestamp: Timestamp(100 * i), relative_offset: 10 * i as u32 + 9 };
        index.append(&(0..40).map(entry).collect::<Vec<_>>()).unwrap();
        assert_eq!(index.last().unwrap(), Some(entry(39)));
        assert_eq!(index.lookup_below(Timestamp(0)).unwrap(), None);
        assert_eq!(index.lookup_below(Timestamp(1)).unwrap(), Some(entry(0)));
        assert_eq!(index.lookup_below(Timestamp(200)).unwrap(), Some(entry(1)));
        assert_eq!(index.lookup_below(Timestamp(i64::MAX)).unwrap(), Some(entry(39)));
        assert_eq!(index.lookup_offset(8).unwrap(), None);
        assert_eq!(index.lookup_offset(20).unwrap(), Some((1, entry(1))));
    }
}
