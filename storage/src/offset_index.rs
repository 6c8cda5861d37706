//! `.index`: from an offset to the position of its batch, sparsely.
//!
//! An entry is the last offset of a batch relative to the segment's base, and the batch's position,
//! 4 bytes each, big endian. Both grow along the file. There is one entry about every
//! `index.interval.bytes` (Kafka's OffsetIndex).

use std::io;
use std::sync::Arc;

use thalweg_model::Offset;

use crate::entry_file::EntryFile;
use crate::place::{OFFSET_INDEX, Place};

/// A segment's offset index.
#[derive(Debug)]
pub(crate) struct OffsetIndex(EntryFile);

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OffsetPosition {
    /// The batch's last offset, less the segment's base.
    pub relative_offset: u32,
    pub position: u32,
}

impl OffsetIndex {
    pub fn unopened(place: &Arc<Place>, base_offset: Offset) -> OffsetIndex {
        OffsetIndex(EntryFile::unopened(place, base_offset, OFFSET_INDEX, ENTRY_LEN as u32))
    }

    pub fn file(&self) -> &EntryFile {
        &self.0
    }

    /// The last entry whose offset is at most `relative_offset`, with its number. The search begins at entry `near`.
    pub fn lookup(&self, relative_offset: u32, near: u32) -> io::Result<Option<(u32, OffsetPosition)>> {
        self.last_where(near, |entry| entry.relative_offset <= relative_offset)
    }

    /// The last entry whose position is at most `position`. The search begins at entry `near`.
    pub fn lookup_position(&self, position: u32, near: u32) -> io::Result<Option<OffsetPosition>> {
        Ok(self.last_where(near, |entry| entry.position <= position)?.map(|(_, entry)| entry))
    }

    /// The number of the entry `part / whole` along the file: where a lookup does best to begin, as entries stand
    /// about equally dense.
    pub fn number_at(&self, part: u32, whole: u32) -> io::Result<u32> {
        let count = self.0.count()?;
        let number = u64::from(count) * u64::from(part.min(whole)) / u64::from(whole.max(1));
        Ok(u32::try_from(number).unwrap_or(count))
    }

    /// Whether offsets and positions grow along the first `count` entries.
    pub fn is_ordered(&self, count: u32) -> io::Result<bool> {
        self.0.is_ordered(count, |a, b| {
            let (a, b) = (decode(a), decode(b));
            a.relative_offset < b.relative_offset && a.position < b.position
        })
    }

    pub fn append(&self, entries: &[OffsetPosition]) -> io::Result<()> {
        self.0.append(&encode(entries))
    }

    /// The last entry for which `holds`, which is true for a first part of the file and false after it.
    ///
    /// Reads a chunk around entry `near`, then halves what is left.
    fn last_where(
        &self,
        near: u32,
        holds: impl Fn(OffsetPosition) -> bool,
    ) -> io::Result<Option<(u32, OffsetPosition)>> {
        let (mut low, mut high) = (0, self.0.count()?);
        let mut middle = near;
        let mut found = None;
        let mut bytes = [0; CHUNK as usize * ENTRY_LEN];
        while low < high {
            let first = middle.saturating_sub(CHUNK / 2).min(high.saturating_sub(CHUNK)).max(low);
            let count = CHUNK.min(high - first);
            let bytes = &mut bytes[..count as usize * ENTRY_LEN];
            self.0.read(first, bytes)?;
            let entries = bytes.chunks_exact(ENTRY_LEN).map(decode);
            let Some((number, entry)) = (first..).zip(entries).take_while(|(_, entry)| holds(*entry)).last() else {
                high = first;
                middle = low + (high - low) / 2;
                continue;
            };
            found = Some((number, entry));
            if number + 1 < first + count {
                break;
            }
            low = first + count;
            middle = low + (high - low) / 2;
        }
        Ok(found)
    }
}

pub(crate) fn encode(entries: &[OffsetPosition]) -> Vec<u8> {
    let parts = entries.iter().flat_map(|entry| [entry.relative_offset.to_be_bytes(), entry.position.to_be_bytes()]);
    parts.flatten().collect()
}

fn decode(bytes: &[u8]) -> OffsetPosition {
    let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    OffsetPosition { relative_offset: word(0), position: word(4) }
}

pub(crate) const ENTRY_LEN: usize = 8;
/// A search reads this many entries at a time: half a page.
const CHUNK: u32 = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use thalweg_world::disk::SimDisk;

    const NEAR: [u32; 7] = [0, 128, 257, 2500, 4999, 5000, u32::MAX];

    #[test]
    fn lookup_finds_the_last_entry_not_above() {
        let place = Arc::new(Place::new(Arc::new(SimDisk::new()), PathBuf::from("/")));
        let index = OffsetIndex::unopened(&place, Offset(0));
        assert_eq!(index.lookup(5, 3).unwrap(), None);
        let entry = |i: u32| OffsetPosition { relative_offset: 10 * i + 9, position: 4096 * (i + 1) };
        index.append(&(0..5000).map(entry).collect::<Vec<_>>()).unwrap();
        for offset in [0, 8, 9, 10, 18, 19, 20, 2569, 25_688, 49_998, 49_999, 50_000, u32::MAX] {
            let expected = (0..5000).rev().find(|i| entry(*i).relative_offset <= offset).map(|i| (i, entry(i)));
            for near in NEAR {
                assert_eq!(index.lookup(offset, near).unwrap(), expected, "{offset} {near}");
            }
        }
        for position in [0, 4095, 4096, 4097, 1_000_000, u32::MAX] {
            let expected = (0..5000).rev().map(entry).find(|e| e.position <= position);
            for near in NEAR {
                assert_eq!(index.lookup_position(position, near).unwrap(), expected, "{position} {near}");
            }
        }
    }
}
