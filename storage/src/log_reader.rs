//! Reads a log without locks, while its one writer appends.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use arc_swap::ArcSwap;
use thalweg_model::{LeaderEpoch, Offset, Timestamp};
use thalweg_world::disk::DiskFile;

use crate::batch_walk::{BatchWalk, FoundBatch, Step};
use crate::error::ReadError;
use crate::leader_epochs::LeaderEpochs;
use crate::segment::{Segment, SegmentEnd};
use crate::txn_index::AbortedTxn;

/// What everyone but the writer sees of a log. Cheap to share; never blocks the writer.
///
/// A slice stays readable after retention deleted its segment. Truncation cuts files in place; it only
/// ever cuts what no consumer may see (above the high watermark), so a reader that stays below that
/// is never disturbed, and one that does not finds its slice short.
#[derive(Debug)]
pub struct ReadView {
    /// Never empty; ascending; the last is the active one.
    segments: ArcSwap<Vec<Arc<Segment>>>,
    epochs: ArcSwap<LeaderEpochs>,
    /// Offsets may have gaps.
    compact: bool,
    log_start_offset: AtomicI64,
    flushed_offset: AtomicI64,
    /// `i64::MAX` when no transaction is open.
    first_unstable_offset: AtomicI64,
}

/// Whole batches, as bytes of one file.
#[derive(Clone, Debug)]
pub struct LogSlice {
    pub file: Arc<dyn DiskFile>,
    /// Where the first batch begins.
    pub position: u64,
    /// 0 when there is nothing to read.
    pub len: usize,
    /// The base offset of the first batch; may be below the offset asked for.
    pub first_offset: Offset,
    /// Where to read on, exclusive end of the last batch.
    pub next_offset: Offset,
    /// It ends where its file did: only then may there be more within the same bounds, in the next file.
    pub to_segment_end: bool,
}

impl LogSlice {
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies the slice out, for whoever cannot use sendfile.
    ///
    /// # Errors
    /// `UnexpectedEof` if the log was truncated meanwhile.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.len];
        if self.file.read_at(&mut bytes, self.position)? < self.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(bytes)
    }
}

/// A record found by its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampOffset {
    pub timestamp: Timestamp,
    pub offset: Offset,
    /// The epoch of the batch that holds the record.
    pub leader_epoch: LeaderEpoch,
}

impl ReadView {
    pub(crate) fn new(
        segments: Vec<Arc<Segment>>,
        epochs: LeaderEpochs,
        log_start_offset: Offset,
        compact: bool,
    ) -> ReadView {
        ReadView {
            segments: ArcSwap::from_pointee(segments),
            epochs: ArcSwap::from_pointee(epochs),
            compact,
            log_start_offset: AtomicI64::new(log_start_offset.0),
            flushed_offset: AtomicI64::new(log_start_offset.0),
            first_unstable_offset: AtomicI64::new(i64::MAX),
        }
    }

    /// First readable offset.
    pub fn log_start_offset(&self) -> Offset {
        Offset(self.log_start_offset.load(Ordering::Acquire))
    }

    /// Next offset to be assigned: everything below is with the kernel.
    pub fn log_end_offset(&self) -> Offset {
        active(&self.segments.load()).end().next_offset
    }

    /// Everything below is on stable storage (FLO).
    pub fn flushed_offset(&self) -> Offset {
        Offset(self.flushed_offset.load(Ordering::Acquire))
    }

    /// Below it no transaction is open. The caller takes the lesser of this and its high watermark.
    pub fn last_stable_offset(&self) -> Offset {
        // First the end: the writer shows a transaction before it shows the batch that opens it, so whoever
        // sees the batch sees the transaction too.
        let log_end_offset = self.log_end_offset();
        log_end_offset.min(Offset(self.first_unstable_offset.load(Ordering::Acquire)))
    }

    /// Bytes of all `.log` files.
    pub fn size_bytes(&self) -> u64 {
        self.segments.load().iter().map(|segment| u64::from(segment.end().size)).sum()
    }

    /// The base offset of the oldest segment.
    pub fn first_base_offset(&self) -> Offset {
        self.segments.load().first().map_or(Offset::ZERO, |segment| segment.base_offset)
    }

    pub fn segment_count(&self) -> usize {
        self.segments.load().len()
    }

    /// Up to `max_bytes` of whole batches from the one that holds `from` on, all below `upper_bound`.
    ///
    /// Empty when `from` is at the log's end or at or above `upper_bound`, and when the first batch
    /// reaches over `upper_bound`, or over `max_bytes` unless `at_least_one` (KIP-74). A slice never
    /// spans two files, so it may be short.
    ///
    /// # Errors
    /// [`ReadError::OutOfRange`]: below the log's start or beyond its end; the client's position is lost.
    pub fn read(
        &self,
        from: Offset,
        upper_bound: Offset,
        max_bytes: usize,
        at_least_one: bool,
    ) -> Result<LogSlice, ReadError> {
        let segments = self.segments.load();
        let log_end_offset = active(&segments).end().next_offset;
        self.in_range(from, log_end_offset)?;
        let upper_bound = upper_bound.min(log_end_offset);
        let mut index = holding(&segments, from);
        while from < upper_bound && index < segments.len() {
            let segment = &segments[index];
            let end = segment.end();
            match self.lost_race(from, segment.find(from, end))? {
                Some(first) if first.header.last_offset() >= upper_bound => break,
                Some(first) => return slice(segment, end, &first, upper_bound, max_bytes, at_least_one),
                // Compaction may have emptied the rest of a segment; nothing else may.
                None if self.compact => index += 1,
                // A truncation under way has cut the file already; its segments are not these any more.
                None if !Arc::ptr_eq(&segments, &self.segments.load()) => break,
                None => return Err(ReadError::Corrupt { offset: from }),
            }
        }
        let file = Arc::clone(active(&segments).log()?);
        Ok(LogSlice { file, position: 0, len: 0, first_offset: from, next_offset: from, to_segment_end: false })
    }

    /// The first record below `bound` whose timestamp is at least `timestamp`, with its own time and epoch.
    ///
    /// # Errors
    /// [`ReadError::Corrupt`]: a batch there does not decode.
    pub fn offset_for_timestamp(
        &self,
        timestamp: Timestamp,
        bound: Offset,
    ) -> Result<Option<TimestampOffset>, ReadError> {
        let log_start_offset = self.log_start_offset();
        let segments = self.segments.load();
        for segment in segments.iter().skip(holding(&segments, log_start_offset)) {
            let end = segment.end();
            // The time index of a sealed segment ends with its largest timestamp.
            let sealed = segment.base_offset != active(&segments).base_offset;
            if sealed && segment.time_index.last()?.is_some_and(|last| last.timestamp < timestamp) {
                continue;
            }
            let older_to = segment.time_index.lookup_below(timestamp)?.map_or(0, |entry| entry.relative_offset);
            let from = segment.base_offset.plus(i64::from(older_to)).max(log_start_offset);
            let Some(first) = segment.find(from, end)? else { continue };
            let file = &**segment.log()?;
            let mut walk = BatchWalk::new(file, first.position, u64::from(end.size));
            while let Some(found) = walk.next_batch()? {
                if found.header.base_offset >= bound {
                    return Ok(None);
                }
                if found.header.max_timestamp < timestamp || found.header.is_control() {
                    continue;
                }
                let hit = crate::record_time::first_at_least(file, &found, timestamp, log_start_offset)?;
                if let Some(hit) = hit {
                    return Ok((hit.offset < bound).then_some(hit));
                }
            }
        }
        Ok(None)
    }

    /// The first record below `bound` that has the largest timestamp (ListOffsets -3).
    ///
    /// # Errors
    /// As [`ReadView::offset_for_timestamp`].
    pub fn max_timestamp(&self, bound: Offset) -> Result<Option<TimestampOffset>, ReadError> {
        let segments = self.segments.load();
        let mut largest = None;
        for segment in segments.iter() {
            let end = segment.end();
            if segment.base_offset >= bound {
                break;
            }
            let of_segment = if end.next_offset <= bound {
                segment.max_timestamp(end)?
            } else {
                segment.max_timestamp_below(bound, end)?
            };
            largest = largest.max(of_segment);
        }
        match largest {
            Some(timestamp) if timestamp >= Timestamp(0) => self.offset_for_timestamp(timestamp, bound),
            _ => Ok(None),
        }
    }

    /// The largest epoch not above `epoch`, and its exclusive end (REPLICATION L3).
    pub fn epoch_end_offset(&self, epoch: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        // First the epochs: a later end belongs to them as well.
        let epochs = self.epochs.load();
        epochs.end_offset(epoch, self.log_end_offset())
    }

    /// The epoch of the batch at `offset`.
    pub fn epoch_for(&self, offset: Offset) -> Option<LeaderEpoch> {
        self.epochs.load().epoch_for(offset)
    }

    pub fn latest_epoch(&self) -> Option<LeaderEpoch> {
        self.epochs.load().latest().map(|entry| entry.epoch)
    }

    /// Every aborted transaction that has records in `from..to`, in the order of their markers.
    ///
    /// # Errors
    /// What the disk says.
    pub fn aborted_transactions(&self, from: Offset, to: Offset) -> Result<Vec<AbortedTxn>, ReadError> {
        let segments = self.segments.load();
        let mut aborted = Vec::new();
        // The marker stands at or after the records, perhaps in a later segment.
        for segment in segments.iter().skip(holding(&segments, from)) {
            for txn in segment.txn_index.entries()? {
                if txn.last_offset >= from && txn.first_offset < to {
                    aborted.push(txn);
                }
                if txn.last_stable_offset >= to {
                    return Ok(aborted);
                }
            }
        }
        Ok(aborted)
    }

    pub(crate) fn publish_segments(&self, segments: Vec<Arc<Segment>>) {
        self.segments.store(Arc::new(segments));
    }

    pub(crate) fn publish_epochs(&self, epochs: &LeaderEpochs) {
        self.epochs.store(Arc::new(epochs.clone()));
    }

    pub(crate) fn publish_log_start(&self, offset: Offset) {
        self.log_start_offset.store(offset.0, Ordering::Release);
    }

    pub(crate) fn publish_flushed(&self, offset: Offset) {
        self.flushed_offset.store(offset.0, Ordering::Release);
    }

    pub(crate) fn publish_first_unstable(&self, offset: Option<Offset>) {
        self.first_unstable_offset.store(offset.map_or(i64::MAX, |offset| offset.0), Ordering::Release);
    }

    fn in_range(&self, from: Offset, log_end_offset: Offset) -> Result<(), ReadError> {
        let log_start_offset = self.log_start_offset();
        if from < log_start_offset || from > log_end_offset {
            return Err(ReadError::OutOfRange { offset: from, log_start_offset, log_end_offset });
        }
        Ok(())
    }

    /// A segment that retention deleted before we opened it is a read below the log's start.
    fn lost_race<T>(&self, from: Offset, result: io::Result<T>) -> Result<T, ReadError> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.in_range(from, self.log_end_offset())?;
                Err(error.into())
            }
            other => Ok(other?),
        }
    }
}

/// The slice that begins with `first`, which is known to lie below `upper_bound`.
fn slice(
    segment: &Segment,
    end: SegmentEnd,
    first: &FoundBatch,
    upper_bound: Offset,
    max_bytes: usize,
    at_least_one: bool,
) -> Result<LogSlice, ReadError> {
    let limit = first.position.saturating_add(max_bytes as u64).min(u64::from(end.size));
    let (stop, next_offset) = if upper_bound >= end.next_offset && limit == u64::from(end.size) {
        (limit, end.next_offset)
    } else {
        walk_to_stop(segment, end, first, upper_bound, limit)?
    };
    let (stop, next_offset) = match stop > first.position {
        true => (stop, next_offset),
        false if at_least_one => (first.end(), first.header.last_offset().plus(1)),
        false => (first.position, first.header.base_offset),
    };
    segment.remember_end(next_offset, stop);
    Ok(LogSlice {
        file: Arc::clone(segment.log()?),
        position: first.position,
        len: usize::try_from(stop - first.position).unwrap_or(0),
        first_offset: first.header.base_offset,
        next_offset,
        to_segment_end: stop == u64::from(end.size),
    })
}

/// The last batch boundary not beyond `limit` or `upper_bound`, with the offset that begins there.
fn walk_to_stop(
    segment: &Segment,
    end: SegmentEnd,
    first: &FoundBatch,
    upper_bound: Offset,
    limit: u64,
) -> io::Result<(u64, Offset)> {
    let limit_position = u32::try_from(limit).unwrap_or(u32::MAX).min(end.size.saturating_sub(1));
    let near = segment.offset_index.number_at(limit_position, end.size)?;
    let by_position = segment.offset_index.lookup_position(limit_position, near)?;
    let nearest = if upper_bound >= end.next_offset {
        // Every offset is wanted: only the limit stops the walk.
        by_position
    } else {
        let by_offset = segment.index_entry_before(Offset(upper_bound.0 - 1), end)?;
        by_offset.zip(by_position).map(|(a, b)| if a.position < b.position { a } else { b })
    };
    // Begin at the index entry, if it is true and beyond the first batch.
    let begin = match nearest.filter(|entry| u64::from(entry.position) > first.position) {
        Some(entry) => segment.verify(entry.relative_offset, entry.position, end)?,
        None => None,
    };
    let begin = begin.filter(|begin| begin.header.base_offset > first.header.last_offset()).unwrap_or(*first);
    let mut stop = (begin.position, begin.header.base_offset);
    let mut walk = BatchWalk::new(&**segment.log()?, begin.end(), u64::from(end.size));
    let mut step = Step::Batch(begin);
    while let Step::Batch(found) = step {
        // No checksum covers the base offset: where offsets fall, a reader that went on would come back for ever.
        let falls = found.header.base_offset < stop.1;
        if falls || found.end() > limit || found.header.last_offset() >= upper_bound {
            break;
        }
        stop = (found.end(), found.header.last_offset().plus(1));
        step = walk.next()?;
    }
    Ok(stop)
}

fn active(segments: &[Arc<Segment>]) -> &Arc<Segment> {
    segments.last().expect("a log has at least one segment")
}

/// The number of the segment that holds `offset`, or the first.
fn holding(segments: &[Arc<Segment>], offset: Offset) -> usize {
    segments.partition_point(|segment| segment.base_offset <= offset).saturating_sub(1)
}
