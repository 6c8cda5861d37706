//! What is remembered of a producer's writing.

use thalweg_model::{Offset, Timestamp};

/// The last batches of a producer's epoch, oldest first, at most [`BATCHES_KEPT`].
///
/// A log may remember very many producers that wrote one batch each: the last batch lies here, without an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecentBatches {
    /// [`NO_BATCH`] if there is none.
    last: StoredBatch,
    /// Invariant: `None` rather than empty.
    #[expect(clippy::box_collection, reason = "8 bytes where there is nothing, as nearly everywhere")]
    older: Option<Box<Vec<StoredBatch>>>,
}

/// A stored batch, as far as a repeat of it must be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredBatch {
    /// Never negative.
    pub last_sequence: i32,
    pub last_offset: Offset,
    /// Last offset less base offset; also last sequence less first, modulo 2^31.
    pub offset_delta: i32,
    pub timestamp: Timestamp,
}

impl RecentBatches {
    pub fn back(&self) -> Option<&StoredBatch> {
        Some(&self.last).filter(|last| **last != NO_BATCH)
    }

    pub fn older(&self) -> &[StoredBatch] {
        self.older.as_deref().map_or(&[], Vec::as_slice)
    }

    pub fn iter(&self) -> impl Iterator<Item = &StoredBatch> {
        self.older().iter().chain(self.back())
    }

    pub fn clear(&mut self) {
        *self = RecentBatches::default();
    }

    /// Adds the newest; forgets the oldest if there are too many.
    pub fn push(&mut self, batch: StoredBatch) {
        if let Some(last) = self.back().copied() {
            self.push_older(last);
        }
        self.last = batch;
    }

    /// Adds one that is newer than all but the last.
    pub fn push_older(&mut self, batch: StoredBatch) {
        let older = self.older.get_or_insert_default();
        if older.len() == BATCHES_KEPT - 1 {
            older.remove(0);
        }
        older.push(batch);
    }
}

impl Default for RecentBatches {
    fn default() -> RecentBatches {
        RecentBatches { last: NO_BATCH, older: None }
    }
}

impl StoredBatch {
    pub fn first_sequence(&self) -> i32 {
        let back = self.last_sequence.wrapping_sub(self.offset_delta);
        // Sequences are 31 bits: below 0 lies the end of the range.
        back & i32::MAX
    }

    pub fn base_offset(&self) -> Offset {
        Offset(self.last_offset.0 - i64::from(self.offset_delta))
    }
}

/// As many batches as a producer may have in flight.
pub(crate) const BATCHES_KEPT: usize = 5;
const NO_BATCH: StoredBatch =
    StoredBatch { last_sequence: -1, last_offset: Offset(-1), offset_delta: 0, timestamp: Timestamp(-1) };
