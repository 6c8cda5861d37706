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

    /// The last entry whose offset is at most `relative_offset`, with its number.
    pub fn lookup(&self, relative_offset: u32) -> io::Result<Option<(u32, OffsetPosition)>> {
        self.last_where(|entry| entry.relative_offset <= relative_offset)
    }

    /// The last entry whose position is at most `position`.
    pub fn lookup_position(&self, position: u32) -> io::Result<Option<OffsetPosition>> {
        Ok(self.last_where(|entry| entry.position <= position)?.map(|(_, entry)| entry))
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
    fn last_where(&self, holds: impl Fn(OffsetPosition) -> bool) -> io::Result<Option<(u32, OffsetPosition)>> {
        let (mut low, mut high) = (0, self.0.count()?);
        let mut found = None;
        while high - low > CHUNK {
            let middle = low + (high - low) / 2;
            let mut bytes = [0; ENTRY_LEN];
            self.0.read(middle, &mut bytes)?;
            let entry = decode(&bytes);
            if holds(entry) {
                found = Some((middle, entry));
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let mut bytes = [0; CHUNK as usize * ENTRY_LEN];
        let bytes = &mut bytes[..(high - low) as usize * ENTRY_LEN];
        if !bytes.is_empty() {
            self.0.read(low, bytes)?;
        }
        for (number, entry) in (low..high).zip(bytes.chunks_exact(ENTRY_LEN)) {
            let entry = decode(entry);
            if !holds(entry) {
                break;
            }
            found = Some((number, entry));
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
/// The last part of a search is one read of this many entries: half a page.
const CHUNK: u32 = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use thalweg_world::disk::SimDisk;

    #[test]
    fn lookup_finds_the_last_entry_not_above() {
        let place = Arc::new(Place { disk: Arc::new(SimDisk::new()), dir: PathBuf::from("/") });
        let index = OffsetIndex::unopened(&place, Offset(0));
        assert_eq!(index.lookup(5).unwrap(), None);
        let entry = |i: u32| OffsetPosition { relative_offset: 10 * i + 9, position: 4096 * (i + 1) };
        index.append(&(0..5000).map(entry).collect::<Vec<_>>()).unwrap();
        for offset in [0, 8, 9, 10, 18, 19, 20, 2569, 25_688, 49_998, 49_999, 50_000, u32::MAX] {
            let expected = (0..5000).rev().find(|i| entry(*i).relative_offset <= offset).map(|i| (i, entry(i)));
            assert_eq!(index.lookup(offset).unwrap(), expected, "{offset}");
        }
        for position in [0, 4095, 4096, 4097, 1_000_000, u32::MAX] {
            let expected = (0..5000).rev().map(entry).find(|e| e.position <= position);
            assert_eq!(index.lookup_position(position).unwrap(), expected, "{position}");
        }
    }
}
