//! The write path: batches are judged and stamped one by one, and written together.

use std::io::{self, IoSlice};

use thalweg_model::invariant::InvariantId;
use thalweg_model::topic_config::TimestampType;
use thalweg_model::{LeaderEpoch, Offset, Timestamp, check};
use thalweg_wire::batch::{self, BatchHeader};

use crate::error::AppendError;
use crate::partition_log::PartitionLog;
use crate::producer_replay::{CONTROL_BATCH_MAX, parse_marker, produced};
use crate::producer_state::Verdict;
use crate::segment::SegmentEnd;
use crate::txn_index::AbortedTxn;

/// Who brings a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendOrigin {
    /// A client, or the broker itself: offsets are assigned, sequences are judged.
    Client,
    /// The leader's log: the bytes are taken as they are (REPLICATION F3).
    Replica,
}

/// Where a batch went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendInfo {
    pub base_offset: Offset,
    /// Inclusive.
    pub last_offset: Offset,
    /// [`Timestamp::NONE`] unless the topic stamps records itself.
    pub log_append_time: Timestamp,
    /// It was here already; nothing was written.
    pub duplicate: bool,
}

/// Batches that are decided but not written.
#[derive(Debug, Default)]
struct Staged {
    /// Where the first goes.
    position: u32,
    /// Numbers in the caller's list.
    batches: Vec<usize>,
    aborted: Vec<AbortedTxn>,
}

impl PartitionLog {
    /// Appends one validated batch; see [`PartitionLog::append_many`].
    ///
    /// # Errors
    /// See [`AppendError`]; nothing was appended.
    pub fn append(
        &mut self,
        batch: &mut [u8],
        now: Timestamp,
        leader_epoch: LeaderEpoch,
        origin: AppendOrigin,
    ) -> Result<AppendInfo, AppendError> {
        self.append_many(&mut [batch], now, leader_epoch, origin).pop().unwrap_or(Err(AppendError::LogDirOffline))
    }

    /// Appends validated batches in order, as one write per segment; answers for each.
    ///
    /// For [`AppendOrigin::Client`] base offset, `leader_epoch` and, if the topic says so, `now` are
    /// stamped into the batches. For [`AppendOrigin::Replica`] they carry all that already. On return
    /// the kernel has the bytes and readers see them; they are not synced.
    ///
    /// A client's batch that is refused does not stop the ones after it, a leader's does: a copy has no holes. A failed write
    /// stops everything for good.
    pub fn append_many(
        &mut self,
        batches: &mut [&mut [u8]],
        now: Timestamp,
        leader_epoch: LeaderEpoch,
        origin: AppendOrigin,
    ) -> Vec<Result<AppendInfo, AppendError>> {
        let mut results = Vec::with_capacity(batches.len());
        let mut staged = Staged { position: self.active.size, ..Staged::default() };
        let mut has_hole = false;
        for number in 0..batches.len() {
            // Behind a batch that a copy could not take, the next one would leave a hole.
            if has_hole {
                let base_offset = BatchHeader::read(batches[number]).map_or(Offset::NONE, |header| header.base_offset);
                let log_end_offset = self.active.next_offset;
                results.push(Err(AppendError::OffsetOutOfOrder { base_offset, log_end_offset }));
                continue;
            }
            let result = match self.stage(batches, number, &mut staged, &mut results, now, leader_epoch, origin) {
                Ok(info) if !info.duplicate => {
                    staged.batches.push(number);
                    Ok(info)
                }
                other => other,
            };
            has_hole = origin == AppendOrigin::Replica && result.is_err();
            results.push(result);
        }
        self.write_staged(batches, &mut staged, &mut results);
        results
    }

    fn stage(
        &mut self,
        batches: &mut [&mut [u8]],
        number: usize,
        staged: &mut Staged,
        results: &mut [Result<AppendInfo, AppendError>],
        now: Timestamp,
        leader_epoch: LeaderEpoch,
        origin: AppendOrigin,
    ) -> Result<AppendInfo, AppendError> {
        let header = self.judge(batches[number], origin)?;
        let header = match origin {
            AppendOrigin::Client => BatchHeader { base_offset: self.active.next_offset, leader_epoch, ..header },
            AppendOrigin::Replica => header,
        };
        let marker = if header.is_control() && header.size_bytes() <= CONTROL_BATCH_MAX {
            parse_marker(batches[number])
        } else {
            None
        };
        let mut produced = produced(&header, marker);
        if origin == AppendOrigin::Client
            && let Verdict::Duplicate(stored) = self.producers.check(&produced)?
        {
            let (base_offset, last_offset) = (stored.base_offset(), stored.last_offset);
            let log_append_time = match self.config.timestamp_type {
                TimestampType::CreateTime => Timestamp::NONE,
                TimestampType::LogAppendTime => stored.timestamp,
            };
            return Ok(AppendInfo { base_offset, last_offset, log_append_time, duplicate: true });
        }
        self.dir.take_room(header.size_bytes())?;
        if self.must_roll(&header, now) {
            self.write_staged(batches, staged, results);
            self.roll(now)?;
            staged.position = self.active.size;
        }
        self.assign_epoch(header.leader_epoch, header.base_offset)?;
        let mut log_append_time = Timestamp::NONE;
        if origin == AppendOrigin::Client {
            batch::stamp(batches[number], header.base_offset, leader_epoch);
            if self.config.timestamp_type == TimestampType::LogAppendTime {
                batch::set_max_timestamp(batches[number], TimestampType::LogAppendTime, now);
                (produced.max_timestamp, log_append_time) = (now, now);
            }
        }
        let (base_offset, last_offset) = (header.base_offset, header.last_offset());
        check!(InvariantId::Log2, base_offset >= self.active.next_offset, "{base_offset} after {:?}", self.active);
        staged.aborted.extend(self.producers.apply(&produced, &self.config));
        self.active.add(header.size_bytes(), last_offset, produced.max_timestamp, now, &self.config);
        Ok(AppendInfo { base_offset, last_offset, log_append_time, duplicate: false })
    }

    /// The checks that need no more than the batch and the log's end.
    fn judge(&self, batch: &[u8], origin: AppendOrigin) -> Result<BatchHeader, AppendError> {
        if self.dir.is_offline() {
            return Err(AppendError::LogDirOffline);
        }
        let header = BatchHeader::read(batch).map_err(|error| AppendError::Malformed(error.to_string()))?;
        if header.size_bytes() != batch.len() || header.last_offset_delta < 0 {
            return Err(AppendError::Malformed("not exactly one batch".to_owned()));
        }
        if header.size_bytes() > self.config.segment_bytes as usize {
            let (batch_bytes, segment_bytes) = (batch.len(), self.config.segment_bytes);
            return Err(AppendError::BatchTooLarge { batch_bytes, segment_bytes });
        }
        let log_end_offset = self.active.next_offset;
        // The epoch of a leader's batch never falls either; recovery would take it for stale bytes.
        let is_stale = self.epochs.latest().is_some_and(|last| header.leader_epoch < last.epoch);
        if origin == AppendOrigin::Replica && (header.base_offset < log_end_offset || is_stale) {
            return Err(AppendError::OffsetOutOfOrder { base_offset: header.base_offset, log_end_offset });
        }
        Ok(header)
    }

    /// Writes what is staged. If that fails, every one of those batches failed, and so does the log dir.
    fn write_staged(
        &mut self,
        batches: &[&mut [u8]],
        staged: &mut Staged,
        results: &mut [Result<AppendInfo, AppendError>],
    ) {
        if staged.batches.is_empty() {
            return;
        }
        if let Err(cause) = self.try_write(batches, staged) {
            self.dir.fail("a write", &cause);
            for number in &staged.batches {
                results[*number] = Err(AppendError::LogDirOffline);
            }
        }
        staged.batches.clear();
        staged.aborted.clear();
        staged.position = self.active.size;
    }

    fn try_write(&mut self, batches: &[&mut [u8]], staged: &Staged) -> io::Result<()> {
        if self.dir.is_offline() {
            return Err(io::Error::other("the log dir is offline"));
        }
        let parts: Vec<IoSlice<'_>> = staged.batches.iter().map(|number| IoSlice::new(batches[*number])).collect();
        let segment = &self.active.segment;
        segment.log()?.write_vectored_at(&parts, u64::from(staged.position))?;
        // From here on these offsets are taken, whatever happens to the derived files (FAILURES row 12).
        self.view.publish_first_unstable(self.producers.first_unstable_offset());
        segment.publish_end(SegmentEnd { next_offset: self.active.next_offset, size: self.active.size });
        let (offsets, times) = self.active.builder.take_entries();
        if !offsets.is_empty() {
            segment.offset_index.append(&offsets)?;
        }
        if !times.is_empty() {
            segment.time_index.append(&times)?;
        }
        if !staged.aborted.is_empty() {
            segment.txn_index.append(&staged.aborted)?;
        }
        Ok(())
    }
}
