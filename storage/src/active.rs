//! What the writer alone knows of the segment that grows.

use std::sync::Arc;

use thalweg_model::{Offset, Timestamp};

use crate::config::LogConfig;
use crate::index_builder::IndexBuilder;
use crate::segment::{Segment, SegmentEnd};

/// The segment at the end of a log, with what is staged but not yet published.
#[derive(Debug)]
pub(crate) struct ActiveSegment {
    pub segment: Arc<Segment>,
    pub builder: IndexBuilder,
    pub size: u32,
    pub next_offset: Offset,
    /// Entries of the offset index, staged ones included.
    pub index_count: u32,
    /// From when `segment.ms` counts: the first batch's time; `None` while there is none.
    pub began: Option<Timestamp>,
    /// `segment.jitter.ms`, drawn for this segment.
    jitter_ms: i64,
}

impl ActiveSegment {
    /// # Errors
    /// What the disk says.
    pub fn new(
        segment: Arc<Segment>,
        builder: IndexBuilder,
        began: Option<Timestamp>,
        config: &LogConfig,
    ) -> std::io::Result<ActiveSegment> {
        let SegmentEnd { next_offset, size } = segment.end();
        let index_count = segment.offset_index.file().count()?;
        let jitter_ms = jitter(&segment, config.segment_jitter_ms);
        Ok(ActiveSegment { segment, builder, size, next_offset, index_count, began, jitter_ms })
    }

    /// Takes in a batch that goes to the segment's end.
    pub fn add(
        &mut self,
        size_bytes: usize,
        last_offset: Offset,
        max_timestamp: Timestamp,
        now: Timestamp,
        config: &LogConfig,
    ) {
        let entries_before = self.builder.offset_entries.len();
        let relative = self.segment.relative(last_offset);
        self.builder.add(self.size, relative, max_timestamp, config.index_interval_bytes);
        self.index_count += u32::try_from(self.builder.offset_entries.len() - entries_before).unwrap_or(0);
        self.size += u32::try_from(size_bytes).unwrap_or(0);
        self.next_offset = last_offset.plus(1);
        self.began.get_or_insert(now);
    }

    /// Whether the segment is old enough to be closed. An empty one never is.
    pub fn is_due(&self, now: Timestamp, config: &LogConfig) -> bool {
        let limit = config.segment_ms.saturating_sub(self.jitter_ms);
        self.size > 0 && self.began.is_some_and(|began| now.ms_since(began) >= limit)
    }

    /// Whether a batch must go to a new segment instead.
    pub fn is_full_for(&self, size_bytes: usize, last_offset: Offset, config: &LogConfig) -> bool {
        let too_large = u64::from(self.size) + size_bytes as u64 > u64::from(config.segment_bytes);
        let too_far = last_offset.since(self.segment.base_offset) > i64::from(i32::MAX);
        self.size > 0 && (too_large || too_far || self.index_count >= config.index_entries_max())
    }
}

/// A number below `limit` that differs from log to log and segment to segment, and is the same on each run.
fn jitter(segment: &Segment, limit: i64) -> i64 {
    if limit <= 0 {
        return 0;
    }
    let place = segment.place.dir.as_os_str().as_encoded_bytes();
    let hash = crc32c::crc32c_append(crc32c::crc32c(place), &segment.base_offset.0.to_be_bytes());
    i64::from(hash) % limit
}
