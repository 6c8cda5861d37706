//! Cutting a log at its start: what retention and delete-records take away. What is to go is chosen in retention.rs.

use std::io;
use std::sync::Arc;

use thalweg_model::{Offset, Timestamp};
use tracing::{debug, info};

use crate::error::LogError;
use crate::leader_epochs;
use crate::partition_log::PartitionLog;
use crate::recovery;
use crate::retention::{self, DeleteReason, KeepReason, SegmentAge, Verdict};
use crate::segment::Segment;

/// A segment that retention removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeletedSegment {
    pub segment: SegmentAge,
    pub reason: DeleteReason,
}

impl PartitionLog {
    /// Raises the log's start (delete-records, or a leader's start); records below can no longer be read.
    ///
    /// The caller keeps to its high watermark (G9), and writes the log starts' checkpoint before it
    /// answers. Returns the start, which never falls.
    ///
    /// # Errors
    /// [`LogError::OutOfRange`]: beyond the log's end.
    pub fn advance_log_start(&mut self, offset: Offset) -> Result<Offset, LogError> {
        let (log_start_offset, log_end_offset) = (self.log_start_offset(), self.log_end_offset());
        if offset > log_end_offset {
            return Err(LogError::OutOfRange { offset, log_start_offset, log_end_offset });
        }
        if offset > log_start_offset {
            self.view.publish_log_start(offset);
            self.producers.advance_log_start(offset);
            self.view.publish_first_unstable(self.producers.first_unstable_offset());
            self.start_epochs_at(offset)?;
        }
        Ok(self.log_start_offset())
    }

    /// Deletes the segments that are too old, too many, or below the log's start; none above `high_watermark` (G9).
    ///
    /// An active segment that must go is closed first, so a silent topic empties too. Readers that hold
    /// a slice keep it.
    ///
    /// # Errors
    /// [`LogError::LogDirOffline`].
    pub fn apply_retention(&mut self, now: Timestamp, high_watermark: Offset) -> Result<Vec<DeletedSegment>, LogError> {
        let (gone, kept) = self.decide_retention(now, high_watermark)?;
        if gone.is_empty() {
            debug!(tp = %self.tp, ?kept, "retention keeps every segment");
            return Ok(Vec::new());
        }
        if gone.len() == self.segments.len() {
            self.roll(now).map_err(|_| LogError::LogDirOffline)?;
        }
        let count = gone.len();
        for (segment, reason) in &gone {
            info!(tp = %self.tp, base_offset = %segment.base_offset, %reason, "deleting a segment");
        }
        let removed: Vec<Arc<Segment>> = self.segments.drain(..count).collect();
        let first_base = self.segments[0].base_offset;
        self.view.publish_log_start(self.log_start_offset().max(first_base));
        self.view.publish_segments(self.segments.clone());
        self.producers.advance_log_start(first_base);
        self.change(|log| {
            // Oldest first, each durable before the next: no crash leaves a hole.
            for segment in &removed {
                recovery::remove_segment(&log.place, segment.base_offset)?;
            }
            log.remove_snapshots(|snapshot| snapshot < first_base)
        })?;
        self.start_epochs_at(self.log_start_offset())?;
        let deleted = gone.into_iter().map(|(segment, reason)| DeletedSegment { segment, reason });
        Ok(deleted.collect())
    }

    /// Why the oldest segment is still there; `None` if it is not to stay.
    ///
    /// # Errors
    /// [`LogError::LogDirOffline`] if the disk cannot be asked.
    pub fn why_kept(&self, now: Timestamp, high_watermark: Offset) -> Result<Option<KeepReason>, LogError> {
        let (gone, kept) = self.decide_retention(now, high_watermark)?;
        Ok(kept.filter(|_| gone.is_empty()))
    }

    /// Every segment with what becomes of it, oldest first; the last is the active one.
    ///
    /// # Errors
    /// As [`PartitionLog::why_kept`].
    pub fn explain_retention(
        &self,
        now: Timestamp,
        high_watermark: Offset,
    ) -> Result<Vec<(SegmentAge, Verdict)>, LogError> {
        let mut ages = Vec::with_capacity(self.segments.len());
        for segment in &self.segments {
            let newest = newest_of(segment).map_err(|cause| {
                self.dir.fail("looking at a segment's age", &cause);
                LogError::LogDirOffline
            })?;
            ages.push(SegmentAge { newest, ..extent_of(segment) });
        }
        let verdicts = retention::explain(&ages, now, high_watermark, self.log_start_offset(), &self.config);
        Ok(ages.into_iter().zip(verdicts).collect())
    }

    fn start_epochs_at(&mut self, log_start_offset: Offset) -> Result<(), LogError> {
        if self.epochs.truncate_from_start(log_start_offset) {
            self.view.publish_epochs(&self.epochs);
            let path = self.place.dir.join(leader_epochs::FILE_NAME);
            self.change(|log| log.epochs.write(&*log.place.disk, &path))?;
        }
        Ok(())
    }

    #[expect(clippy::type_complexity, reason = "the answer of retention::decide")]
    fn decide_retention(
        &self,
        now: Timestamp,
        high_watermark: Offset,
    ) -> Result<(Vec<(SegmentAge, DeleteReason)>, Option<KeepReason>), LogError> {
        let mut ages: Vec<SegmentAge> = self.segments.iter().map(|segment| extent_of(segment)).collect();
        // A segment's age costs a look at its files: only as far as it matters.
        for (number, segment) in self.segments.iter().enumerate() {
            ages[number].newest = newest_of(segment).map_err(|cause| {
                self.dir.fail("looking at a segment's age", &cause);
                LogError::LogDirOffline
            })?;
            let decided = retention::decide(&ages, now, high_watermark, self.log_start_offset(), &self.config);
            if decided.0.len() <= number {
                return Ok(decided);
            }
        }
        Ok(retention::decide(&ages, now, high_watermark, self.log_start_offset(), &self.config))
    }
}

fn extent_of(segment: &Segment) -> SegmentAge {
    let end = segment.end();
    let (base_offset, next_offset) = (segment.base_offset, end.next_offset);
    SegmentAge { base_offset, next_offset, size_bytes: u64::from(end.size), newest: None }
}

fn newest_of(segment: &Segment) -> io::Result<Option<Timestamp>> {
    let largest = segment.max_timestamp(segment.end())?.filter(|timestamp| *timestamp >= Timestamp(0));
    let written = segment.log()?.modified()?;
    Ok(match (largest, written) {
        (Some(largest), Some(written)) => Some(largest.min(written)),
        (largest, written) => largest.or(written),
    })
}
