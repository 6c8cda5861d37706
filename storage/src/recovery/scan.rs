//! Reads the unflushed tail of a log and judges where it stops making sense.

use std::io;

use thalweg_model::{LeaderEpoch, Offset, Timestamp};

use super::{Files, Recovery, RecoveryPoint};
use crate::batch_walk::BatchWalk;
use crate::damage::{self, Damage, Expected};
use crate::error::OpenError;
use crate::index_builder::IndexBuilder;
use crate::leader_epochs::EpochEntry;
use crate::place::LOG;
use crate::segment::{Segment, SegmentEnd};
use crate::time_index::TimeOffset;

/// A scanned segment.
pub(super) struct Scanned {
    pub base_offset: Offset,
    /// Entries of the old index files that stay.
    pub kept: (u32, u32),
    pub builder: IndexBuilder,
    pub end: SegmentEnd,
    pub epoch_starts: Vec<EpochEntry>,
    /// Where it stops making sense, and why.
    pub damage: Option<Damage>,
    pub file_len: u64,
}

impl Recovery<'_> {
    /// Verifies every batch from the one that holds the recovery point on, up to the first damage.
    pub(super) fn scan(&mut self, files: &Files, begin: usize, point: Offset) -> Result<Vec<Scanned>, OpenError> {
        let mut scanned: Vec<Scanned> = Vec::new();
        for (index, (base_offset, file_len)) in files.logs.iter().enumerate().skip(begin) {
            let from = if index == begin { point } else { *base_offset };
            let epoch = scanned.iter().rev().find_map(|s| s.epoch_starts.last()).map(|entry| entry.epoch);
            let found = self.scan_segment(*base_offset, *file_len, from, epoch).map_err(|error| self.io(error))?;
            let damaged = found.damage.is_some();
            scanned.push(found);
            if damaged {
                break;
            }
        }
        Ok(scanned)
    }

    fn scan_segment(
        &mut self,
        base_offset: Offset,
        file_len: u64,
        from: Offset,
        epoch: Option<LeaderEpoch>,
    ) -> io::Result<Scanned> {
        let whole = SegmentEnd { next_offset: Offset::MAX, size: u32::try_from(file_len).unwrap_or(u32::MAX) };
        let segment = Segment::new(self.place, base_offset, whole);
        let mut found = Scanned {
            base_offset,
            kept: (0, 0),
            builder: IndexBuilder::new(),
            end: SegmentEnd { next_offset: base_offset, size: 0 },
            epoch_starts: Vec::new(),
            damage: None,
            file_len,
        };
        if from > base_offset {
            self.resume_at_index(&segment, from, &mut found)?;
        }
        let mut expected = Expected {
            base_offset,
            offset: found.end.next_offset,
            gaps: self.config.compact,
            leader_epoch: epoch.unwrap_or(LeaderEpoch::NONE),
        };
        let file = &**segment.log()?;
        let mut position = u64::from(found.end.size);
        let mut bytes = Vec::new();
        while position < file_len {
            match damage::check_batch(file, position, file_len, &expected, &mut bytes)? {
                Err(cause) => {
                    found.damage = Some(Damage { position, offset: expected.offset, cause });
                    break;
                }
                Ok(header) => {
                    if header.leader_epoch > expected.leader_epoch || found.epoch_starts.is_empty() {
                        let (epoch, start_offset) = (header.leader_epoch, header.base_offset);
                        found.epoch_starts.push(EpochEntry { epoch, start_offset });
                    }
                    let at = u32::try_from(position).unwrap_or(u32::MAX);
                    let relative = segment.relative(header.last_offset());
                    found.builder.add(at, relative, header.max_timestamp, self.config.index_interval_bytes);
                    position += header.size_bytes() as u64;
                    (expected.offset, expected.leader_epoch) = (header.next_offset(), header.leader_epoch);
                    self.report.scanned_bytes += header.size_bytes() as u64;
                }
            }
        }
        found.end = SegmentEnd { next_offset: expected.offset, size: u32::try_from(position).unwrap_or(u32::MAX) };
        Ok(found)
    }

    /// Begins the scan at the last index entry below `from`, if both indexes prove true up to there.
    fn resume_at_index(&self, segment: &Segment, from: Offset, found: &mut Scanned) -> io::Result<()> {
        let (offsets, times) = (&segment.offset_index, &segment.time_index);
        let Some((number, entry)) = offsets.lookup(segment.relative(from) - 1, offsets.file().count()?)? else {
            return Ok(());
        };
        let time = times.lookup_offset(entry.relative_offset)?;
        let kept = (number + 1, time.map_or(0, |(number, _)| number + 1));
        let time = time.map(|(_, time)| time);
        let whole = offsets.file().is_whole()? && times.file().is_whole()?;
        if !whole || !offsets.is_ordered(kept.0)? || !times.is_ordered(kept.1)? {
            return Ok(());
        }
        let Some(batch) = segment.verify(entry.relative_offset, entry.position, segment.end())? else { return Ok(()) };
        if !self.is_latest_time(segment, time, batch.end())? {
            return Ok(());
        }
        found.kept = kept;
        found.builder = IndexBuilder::resume(entry, time);
        // The indexed batch itself is verified again, but is in both indexes already.
        found.end = SegmentEnd { next_offset: batch.header.base_offset, size: entry.position };
        Ok(())
    }

    /// Whether a time index entry names its batch's time, and no batch from there up to `end` is younger.
    ///
    /// An entry may be lost while its neighbour in the offset index is not.
    fn is_latest_time(&self, segment: &Segment, time: Option<TimeOffset>, end: u64) -> io::Result<bool> {
        let file = &**segment.log()?;
        let Some(time) = time else {
            // No entry means that no batch has a timestamp: true only of the first ones, if at all.
            let first = BatchWalk::new(file, 0, end).next_batch()?;
            return Ok(first.is_some_and(|first| first.end() == end && first.header.max_timestamp < Timestamp(0)));
        };
        let offset = segment.base_offset.plus(i64::from(time.relative_offset));
        let within = SegmentEnd { next_offset: offset.plus(1), size: u32::try_from(end).unwrap_or(u32::MAX) };
        let Some(first) = segment.find(offset, within)? else { return Ok(false) };
        if first.header.max_timestamp != time.timestamp {
            return Ok(false);
        }
        let mut walk = BatchWalk::new(file, first.position, end);
        while let Some(found) = walk.next_batch()? {
            if found.header.max_timestamp > time.timestamp {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Decides between a torn tail, which may be cut, and corruption, which may not. Returns whether to cut.
    pub(super) fn resolve_damage(
        &self,
        files: &Files,
        begin: usize,
        scanned: &mut [Scanned],
        point: Offset,
    ) -> Result<bool, OpenError> {
        let count = scanned.len();
        let Some(last) = scanned.last_mut() else { return Ok(false) };
        let Some(found) = last.damage else { return Ok(false) };
        let corrupt = |detail| Err(self.corrupt(last.base_offset, found.position, found.offset, detail));
        if self.recovery_point == RecoveryPoint::Unknown {
            return corrupt(found.cause);
        }
        if found.offset < point {
            return corrupt(found.cause);
        }
        let open = |base| self.place.open(base, LOG, thalweg_world::disk::OpenMode::Read);
        let file = open(last.base_offset).map_err(|error| self.io(error))?;
        let next_valid = damage::next_valid_batch(&*file, found.position + 1, last.file_len, found.offset);
        if let Some(next) = next_valid.map_err(|error| self.io(error))?
            && !damage::has_lost_sector(&*file, found.position, next).map_err(|error| self.io(error))?
        {
            return corrupt("a damaged batch stands before valid ones");
        }
        // Segments are synced before the next begins (G3), so what follows would not be there.
        for (base, len) in &files.logs[begin + count..] {
            let file = open(*base).map_err(|error| self.io(error))?;
            if damage::next_valid_batch(&*file, 0, *len, found.offset).map_err(|error| self.io(error))?.is_some() {
                return corrupt("a damaged segment stands before valid ones");
            }
        }
        Ok(true)
    }

    /// Each scanned segment begins where the one before it ended.
    pub(super) fn check_order(&self, scanned: &[Scanned]) -> Result<(), OpenError> {
        for pair in scanned.windows(2) {
            let (end, next) = (pair[0].end, pair[1].base_offset);
            let gap = next > end.next_offset && !self.config.compact;
            if next < end.next_offset || gap {
                let (base, size) = (pair[0].base_offset, u64::from(end.size));
                return Err(self.corrupt(base, size, end.next_offset, "the next segment does not begin here"));
            }
        }
        Ok(())
    }
}
