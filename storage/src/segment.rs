//! One segment: a `.log` file, what is known of its end, and its indexes. Shared by the writer and all readers.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use thalweg_model::{Offset, Timestamp};
use thalweg_world::disk::{DiskFile, OpenMode};

use crate::batch_walk::{BatchWalk, FoundBatch};
use crate::offset_index::{OffsetIndex, OffsetPosition};
use crate::place::{LOG, Place};
use crate::time_index::TimeIndex;
use crate::txn_index::TxnIndex;

/// See the module's page. The writer alone changes files; readers take no lock.
#[derive(Debug)]
pub(crate) struct Segment {
    pub place: Arc<Place>,
    pub base_offset: Offset,
    pub offset_index: OffsetIndex,
    pub time_index: TimeIndex,
    pub txn_index: TxnIndex,
    log: OnceLock<Arc<dyn DiskFile>>,
    /// [`SegmentEnd`] in one word, so that no reader sees a size of one append with an offset of another.
    end: AtomicU64,
    /// Where recent reads ended, by offset: a consumer goes on there without a search. Packed as `end` is.
    recent: [AtomicU64; RECENT],
    /// A reader met an index entry that is not true.
    index_damaged: AtomicBool,
}

/// The readable part of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentEnd {
    pub next_offset: Offset,
    pub size: u32,
}

impl Segment {
    pub fn new(place: &Arc<Place>, base_offset: Offset, end: SegmentEnd) -> Segment {
        Segment {
            place: Arc::clone(place),
            base_offset,
            offset_index: OffsetIndex::unopened(place, base_offset),
            time_index: TimeIndex::unopened(place, base_offset),
            txn_index: TxnIndex::unopened(place, base_offset),
            log: OnceLock::new(),
            end: AtomicU64::new(pack(relative(base_offset, end.next_offset), end.size)),
            recent: Default::default(),
            index_damaged: AtomicBool::new(false),
        }
    }

    /// The `.log` file, opened at its first use.
    pub fn log(&self) -> io::Result<&Arc<dyn DiskFile>> {
        if let Some(file) = self.log.get() {
            return Ok(file);
        }
        let file = self.place.open(self.base_offset, LOG, OpenMode::Write)?;
        Ok(self.log.get_or_init(|| file))
    }

    /// Makes the `.log` file of a segment that begins now.
    ///
    /// # Errors
    /// `AlreadyExists`: another log's bytes must not be taken for this one's.
    pub fn create_log(&self) -> io::Result<()> {
        let file = self.place.open(self.base_offset, LOG, OpenMode::CreateNew)?;
        self.log.get_or_init(|| file);
        Ok(())
    }

    pub fn end(&self) -> SegmentEnd {
        let (relative, size) = unpack(self.end.load(Ordering::Acquire));
        SegmentEnd { next_offset: self.base_offset.plus(i64::from(relative)), size }
    }

    /// Shows readers what the writer has appended.
    pub fn publish_end(&self, end: SegmentEnd) {
        self.end.store(pack(relative(self.base_offset, end.next_offset), end.size), Ordering::Release);
    }

    /// `offset` less the base; at the ends of the range if it lies outside.
    pub fn relative(&self, offset: Offset) -> u32 {
        relative(self.base_offset, offset)
    }

    /// The first batch whose last offset is at least `offset`, within `end`.
    pub fn find(&self, offset: Offset, end: SegmentEnd) -> io::Result<Option<FoundBatch>> {
        let file = &**self.log()?;
        if let Some(position) = self.recent_end(offset, end) {
            let found = BatchWalk::new(file, position, u64::from(end.size)).next_batch()?;
            if found.is_some_and(|found| found.header.base_offset == offset) {
                return Ok(found);
            }
        }
        let indexed = self.indexed_before(offset, end)?;
        let mut walk = BatchWalk::new(file, indexed.map_or(0, |found| found.position), u64::from(end.size));
        while let Some(found) = walk.next_batch()? {
            let last_offset = found.header.last_offset();
            if last_offset >= offset {
                // Beyond the segment's end no batch can reach: a changed bit would send a reader there.
                return Ok((last_offset < end.next_offset).then_some(found));
            }
        }
        Ok(None)
    }

    /// The batch of the last index entry that is at most at `offset`. An entry that is not true counts as none.
    pub fn indexed_before(&self, offset: Offset, end: SegmentEnd) -> io::Result<Option<FoundBatch>> {
        let Some(entry) = self.index_entry_before(offset, end)? else { return Ok(None) };
        self.verify(entry.relative_offset, entry.position, end)
    }

    /// The last index entry that is at most at `offset`, true or not.
    pub fn index_entry_before(&self, offset: Offset, end: SegmentEnd) -> io::Result<Option<OffsetPosition>> {
        let relative = self.relative(offset);
        let near = self.offset_index.number_at(relative, self.relative(end.next_offset))?;
        Ok(self.offset_index.lookup(relative, near)?.map(|(_, entry)| entry))
    }

    /// The batch that an index entry speaks of; `None` if there is no such batch.
    pub fn verify(&self, relative_offset: u32, position: u32, end: SegmentEnd) -> io::Result<Option<FoundBatch>> {
        let found = BatchWalk::new(&**self.log()?, u64::from(position), u64::from(end.size)).next_batch()?;
        let true_entry = |found: &FoundBatch| self.relative(found.header.last_offset()) == relative_offset;
        let found = found.filter(true_entry);
        // The writer publishes entries after the bytes and before the end: beyond the end is no damage.
        if found.is_none() && position < end.size {
            self.index_damaged.store(true, Ordering::Relaxed);
        }
        Ok(found)
    }

    /// The largest timestamp of any batch within `end`; `None` if there is none.
    pub fn max_timestamp(&self, end: SegmentEnd) -> io::Result<Option<Timestamp>> {
        // The time index knows the largest up to the last offset index entry; look at the rest.
        let indexed = self.indexed_before(Offset(end.next_offset.0 - 1), end)?;
        let mut largest = self.time_index.last()?.map(|entry| entry.timestamp);
        let mut walk = BatchWalk::new(&**self.log()?, indexed.map_or(0, |found| found.position), u64::from(end.size));
        while let Some(found) = walk.next_batch()? {
            largest = largest.max(Some(found.header.max_timestamp));
        }
        Ok(largest)
    }

    /// As [`Segment::max_timestamp`], for batches below `bound`.
    pub fn max_timestamp_below(&self, bound: Offset, end: SegmentEnd) -> io::Result<Option<Timestamp>> {
        let mut largest = None;
        let mut walk = BatchWalk::new(&**self.log()?, 0, u64::from(end.size));
        while let Some(found) = walk.next_batch()? {
            if found.header.last_offset() >= bound {
                break;
            }
            largest = largest.max(Some(found.header.max_timestamp));
        }
        Ok(largest)
    }

    /// Remembers that a read ended where the batch of `next_offset` begins.
    pub fn remember_end(&self, next_offset: Offset, position: u64) {
        let relative = self.relative(next_offset);
        let Ok(position) = u32::try_from(position) else { return };
        self.recent[relative as usize % RECENT].store(pack(relative, position), Ordering::Relaxed);
    }

    pub fn is_index_damaged(&self) -> bool {
        self.index_damaged.load(Ordering::Relaxed)
    }

    fn recent_end(&self, offset: Offset, end: SegmentEnd) -> Option<u64> {
        let wanted = self.relative(offset);
        let (relative, position) = unpack(self.recent[wanted as usize % RECENT].load(Ordering::Relaxed));
        (relative == wanted && 0 < position && position < end.size).then_some(u64::from(position))
    }
}

fn relative(base_offset: Offset, offset: Offset) -> u32 {
    u32::try_from(offset.since(base_offset).max(0)).unwrap_or(u32::MAX)
}

fn pack(relative: u32, size: u32) -> u64 {
    u64::from(relative) << 32 | u64::from(size)
}

fn unpack(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

const RECENT: usize = 4;
