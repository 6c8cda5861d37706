//! `.txnindex`: the transactions that were aborted by a marker in this segment (KIP-98).
//!
//! An entry is 34 bytes, big endian: version (0), producer id, first offset, offset of the marker,
//! last stable offset once the marker was there. In the order of markers (Kafka's TransactionIndex).

use std::io;
use std::sync::Arc;

use thalweg_model::{Offset, ProducerId};

use crate::entry_file::EntryFile;
use crate::place::{Place, TXN_INDEX};

/// A segment's transaction index. The file exists only if there is an entry.
#[derive(Debug)]
pub(crate) struct TxnIndex(EntryFile);

/// A transaction that a `read_committed` consumer must skip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTxn {
    pub producer_id: ProducerId,
    pub first_offset: Offset,
    /// Where the abort marker stands.
    pub last_offset: Offset,
    /// The last stable offset right after the marker, exclusive.
    pub last_stable_offset: Offset,
}

impl TxnIndex {
    pub fn unopened(place: &Arc<Place>, base_offset: Offset) -> TxnIndex {
        TxnIndex(EntryFile::unopened(place, base_offset, TXN_INDEX, ENTRY_LEN as u32))
    }

    pub fn file(&self) -> &EntryFile {
        &self.0
    }

    /// Entries up to the first that this version cannot read.
    pub fn entries(&self) -> io::Result<Vec<AbortedTxn>> {
        let count = self.0.count()?;
        let mut entries = Vec::new();
        let mut bytes = [0; CHUNK as usize * ENTRY_LEN];
        let mut first = 0;
        while first < count {
            let here = CHUNK.min(count - first);
            let bytes = &mut bytes[..here as usize * ENTRY_LEN];
            self.0.read(first, bytes)?;
            for entry in bytes.chunks_exact(ENTRY_LEN) {
                match decode(entry) {
                    Some(entry) => entries.push(entry),
                    None => return Ok(entries),
                }
            }
            first += here;
        }
        Ok(entries)
    }

    pub fn append(&self, entries: &[AbortedTxn]) -> io::Result<()> {
        self.0.append(&encode(entries))
    }
}

pub(crate) fn encode(entries: &[AbortedTxn]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(entries.len() * ENTRY_LEN);
    for entry in entries {
        bytes.extend_from_slice(&VERSION.to_be_bytes());
        for word in [entry.producer_id.0, entry.first_offset.0, entry.last_offset.0, entry.last_stable_offset.0] {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
    }
    bytes
}

fn decode(bytes: &[u8]) -> Option<AbortedTxn> {
    let word = |at: usize| bytes[at..at + 8].iter().fold(0u64, |word, byte| word << 8 | u64::from(*byte)).cast_signed();
    let entry = AbortedTxn {
        producer_id: ProducerId(word(2)),
        first_offset: Offset(word(10)),
        last_offset: Offset(word(18)),
        last_stable_offset: Offset(word(26)),
    };
    let sane =
        entry.producer_id.is_some() && Offset::ZERO <= entry.first_offset && entry.first_offset <= entry.last_offset;
    (bytes[..2] == VERSION.to_be_bytes() && sane).then_some(entry)
}

pub(crate) const ENTRY_LEN: usize = 34;
const VERSION: i16 = 0;
const CHUNK: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use thalweg_world::disk::SimDisk;

    #[test]
    fn entries_read_back_until_one_is_unreadable() {
        let place = Arc::new(Place::new(Arc::new(SimDisk::new()), PathBuf::from("/")));
        let entry = |i: i64| AbortedTxn {
            producer_id: ProducerId(i),
            first_offset: Offset(10 * i),
            last_offset: Offset(10 * i + 5),
            last_stable_offset: Offset(10 * i + 6),
        };
        let index = TxnIndex::unopened(&place, Offset(0));
        let all: Vec<AbortedTxn> = (0..150).map(entry).collect();
        index.append(&all[..70]).unwrap();
        index.append(&all[70..]).unwrap();
        assert_eq!(index.entries().unwrap(), all);
        index.file().append(&[1; ENTRY_LEN]).unwrap();
        assert_eq!(index.entries().unwrap(), all);
    }
}
