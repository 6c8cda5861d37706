//! Makes a log whole after a stop of any kind (REPLICATION 3.7 G4, G5).
//!
//! The `.log` files are the truth; all else is derived, and verified or made again. The scan begins at
//! the recovery point, so its cost is that of the unflushed tail. Damage at or beyond that point with
//! nothing behind it is a torn write and is cut; any other damage is corruption and is left alone.
//! A second run finds nothing to do.
//!
//! After a failure of the disk the kernel shows bytes that it has given up writing, and says that all is synced. Where a dir is
//! in doubt the unflushed tail is written once more before it is synced.

mod scan;

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use thalweg_model::{LeaderEpoch, Offset};
use tracing::{info, warn};

use self::scan::Scanned;
use crate::batch_walk::BatchWalk;
use crate::config::LogConfig;
use crate::dir_state::DirState;
use crate::error::OpenError;
use crate::index_builder::IndexBuilder;
use crate::leader_epochs::{self, EpochEntry, LeaderEpochs};
use crate::offset_index;
use crate::place::{self, CLEANED, DELETED, DERIVED, LOG, Place, SNAPSHOT, SWAP};
use crate::producer_replay;
use crate::producer_state::ProducerState;
use crate::segment::{Segment, SegmentEnd};
use crate::time_index;

/// Up to where a log is known synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryPoint {
    Known(Offset),
    /// The checkpoint cannot be read: everything must verify, nothing may be cut (G4).
    Unknown,
}

/// A log that is whole.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub segments: Vec<Arc<Segment>>,
    /// Of the last segment.
    pub builder: IndexBuilder,
    pub epochs: LeaderEpochs,
    pub producers: ProducerState,
    /// Offsets that have a `.snapshot` file.
    pub snapshots: BTreeSet<Offset>,
    pub log_start_offset: Offset,
    pub report: RecoveryReport,
}

/// What recovery did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Bytes whose checksums were verified: bounded by what was not flushed.
    pub scanned_bytes: u64,
    /// Bytes of torn writes that were removed.
    pub cut_bytes: u64,
    /// Derived files that were missing or wrong.
    pub rebuilt_count: u32,
}

/// Opens what is in `place`, making a first segment if there is none.
///
/// # Errors
/// [`OpenError::Corrupt`]: data that was flushed is damaged or missing; nothing was changed.
pub(crate) fn recover(
    place: &Arc<Place>,
    dir: &DirState,
    config: &LogConfig,
    recovery_point: RecoveryPoint,
    log_start_checkpoint: Offset,
) -> Result<Recovered, OpenError> {
    let recovery = Recovery { place, dir, config, recovery_point, report: RecoveryReport::default() };
    recovery.run(log_start_checkpoint)
}

pub(crate) struct Recovery<'a> {
    place: &'a Arc<Place>,
    dir: &'a DirState,
    config: &'a LogConfig,
    recovery_point: RecoveryPoint,
    report: RecoveryReport,
}

/// The files of a partition's directory.
pub(crate) struct Files {
    /// Base offset and size, ascending.
    logs: Vec<(Offset, u64)>,
    snapshots: BTreeSet<Offset>,
    names: BTreeSet<String>,
}

impl Recovery<'_> {
    fn run(mut self, log_start_checkpoint: Offset) -> Result<Recovered, OpenError> {
        let mut files = self.list()?;
        self.remove_leftovers(&files)?;
        if files.logs.is_empty() {
            if let RecoveryPoint::Known(point) = self.recovery_point
                && point > log_start_checkpoint
            {
                return Err(self.corrupt(point, 0, point, "the segment files are missing"));
            }
            self.create_first(log_start_checkpoint, &mut files)?;
        }
        let first_base = files.logs[0].0;
        let point = match self.recovery_point {
            RecoveryPoint::Known(point) => point.max(first_base),
            RecoveryPoint::Unknown => first_base,
        };
        let begin = files.logs.partition_point(|(base, _)| *base <= point) - 1;
        let mut scanned = self.scan(&files, begin, point)?;
        let cut = self.resolve_damage(&files, begin, &mut scanned, point)?;
        if let Some(last) = scanned.last()
            && last.end.next_offset < point
        {
            let (base, end) = (last.base_offset, last.end);
            return Err(self.corrupt(base, u64::from(end.size), end.next_offset, "flushed records are missing"));
        }
        self.check_order(&scanned)?;

        // From here on the log's extent is settled; everything else follows from it.
        if cut {
            self.cut(&files, begin, &scanned)?;
            files.logs.truncate(begin + scanned.len());
        }
        let segments = self.segments(&files, begin, &mut scanned)?;
        let log_end_offset = segments.last().map_or(Offset::ZERO, |segment| segment.end().next_offset);
        if log_start_checkpoint > log_end_offset {
            return self.restart_at(log_start_checkpoint, &segments);
        }
        let log_start_offset = log_start_checkpoint.max(first_base);
        let epochs = self.recover_epochs(&segments, &scanned, log_start_offset)?;
        // Nothing else of the scan is needed: the producers' state is to have its room.
        let builder = scanned.into_iter().next_back().map_or_else(IndexBuilder::new, |last| last.builder);
        let (producers, snapshots) = self.recover_producers(&segments, files.snapshots, point)?;
        self.rebuild_sealed(&segments[..begin], &files.names)?;
        if self.dir.is_doubtful() {
            self.write_anew(&segments[begin..], point)?;
        }
        if cut || log_end_offset > point || self.report.rebuilt_count > 0 {
            self.sync(&segments[begin..])?;
        }
        if self.report.cut_bytes > 0 || self.report.rebuilt_count > 0 {
            let RecoveryReport { scanned_bytes, cut_bytes, rebuilt_count } = self.report;
            let dir = self.place.dir.display();
            info!(%dir, scanned_bytes, cut_bytes, rebuilt_count, %log_end_offset, "log recovered");
        }
        let report = self.report;
        Ok(Recovered { segments, builder, epochs, producers, snapshots, log_start_offset, report })
    }

    fn list(&self) -> Result<Files, OpenError> {
        let entries = self.place.disk.list(&self.place.dir).map_err(|error| self.io(error))?;
        let mut files = Files { logs: Vec::new(), snapshots: BTreeSet::new(), names: BTreeSet::new() };
        for entry in entries.into_iter().filter(|entry| !entry.is_dir) {
            if let Some(base) = place::offset_of(&entry.name, LOG) {
                files.logs.push((base, entry.len));
            } else if let Some(offset) = place::offset_of(&entry.name, SNAPSHOT) {
                files.snapshots.insert(offset);
            } else if entry.name.ends_with(SWAP) {
                return Err(OpenError::UnfinishedCompaction { path: self.place.dir.join(entry.name) });
            }
            files.names.insert(entry.name);
        }
        files.logs.sort_unstable();
        Ok(files)
    }

    /// What a crash left half done and nobody will miss.
    fn remove_leftovers(&mut self, files: &Files) -> Result<(), OpenError> {
        let bases: BTreeSet<Offset> = files.logs.iter().map(|(base, _)| *base).collect();
        let orphan = |name: &str| {
            DERIVED.iter().any(|suffix| place::offset_of(name, suffix).is_some_and(|base| !bases.contains(&base)))
        };
        for name in &files.names {
            let unfinished = [DELETED, CLEANED, crate::checkpoint::TEMPORARY_SUFFIX].iter().any(|s| name.ends_with(s));
            if unfinished || orphan(name) {
                self.place.remove_named(name).map_err(|error| self.io(error))?;
            }
        }
        Ok(())
    }

    fn create_first(&self, base_offset: Offset, files: &mut Files) -> Result<(), OpenError> {
        let segment = Segment::new(self.place, base_offset, SegmentEnd { next_offset: base_offset, size: 0 });
        segment.create_log().map_err(|error| self.io(error))?;
        self.synced(self.place.sync_dir())?;
        files.logs.push((base_offset, 0));
        Ok(())
    }

    /// Removes a torn tail: later segments from the last on, then the rest of this one.
    fn cut(&mut self, files: &Files, begin: usize, scanned: &[Scanned]) -> Result<(), OpenError> {
        let keep = begin + scanned.len();
        for (base, len) in files.logs[keep..].iter().rev() {
            self.report.cut_bytes += len;
            self.synced(remove_segment(self.place, *base))?;
        }
        let Some(last) = scanned.last() else { return Ok(()) };
        let dropped = last.file_len - u64::from(last.end.size);
        self.report.cut_bytes += dropped;
        warn!(
            dir = %self.place.dir.display(), offset = %last.end.next_offset, bytes = dropped,
            "cut a torn write that was never acknowledged as flushed"
        );
        let file = self.place.open(last.base_offset, LOG, thalweg_world::disk::OpenMode::Write);
        self.synced(file.and_then(|file| file.set_len(u64::from(last.end.size)).and_then(|()| file.sync_data())))
    }

    /// The segments with their ends, and the indexes of the scanned ones made right.
    fn segments(
        &mut self,
        files: &Files,
        begin: usize,
        scanned: &mut [Scanned],
    ) -> Result<Vec<Arc<Segment>>, OpenError> {
        let mut segments = Vec::with_capacity(files.logs.len());
        for pair in files.logs[..=begin].windows(2) {
            let ((base, len), (next, _)) = (pair[0], pair[1]);
            let Ok(size) = u32::try_from(len) else {
                return Err(self.corrupt(base, len, base, "the segment is larger than 4 GiB"));
            };
            segments.push(Arc::new(Segment::new(self.place, base, SegmentEnd { next_offset: next, size })));
        }
        let count = scanned.len();
        for (index, found) in scanned.iter_mut().enumerate() {
            let segment = Segment::new(self.place, found.base_offset, found.end);
            if index + 1 < count {
                found.builder.seal();
            }
            let (offsets, times) = found.builder.take_entries();
            let changed = segment
                .offset_index
                .file()
                .replace_from(found.kept.0, &offset_index::encode(&offsets))
                .and_then(|a| {
                    let b = segment.time_index.file().replace_from(found.kept.1, &time_index::encode(&times))?;
                    Ok(u32::from(a) + u32::from(b))
                })
                .map_err(|error| self.io(error))?;
            self.report.rebuilt_count += changed;
            segments.push(Arc::new(segment));
        }
        Ok(segments)
    }

    /// The epoch file if it agrees with the log, else the epochs that the log itself tells.
    fn recover_epochs(
        &mut self,
        segments: &[Arc<Segment>],
        scanned: &[Scanned],
        log_start_offset: Offset,
    ) -> Result<LeaderEpochs, OpenError> {
        let path = self.place.dir.join(leader_epochs::FILE_NAME);
        let log_end_offset = segments.last().map_or(Offset::ZERO, |segment| segment.end().next_offset);
        let stored = LeaderEpochs::read(&*self.place.disk, &path).ok().flatten();
        let starts = || scanned.iter().flat_map(|found| &found.epoch_starts);
        let agrees = |epochs: &LeaderEpochs| {
            let known = |entry: &EpochEntry| epochs.epoch_for(entry.start_offset) == Some(entry.epoch);
            starts().filter(|entry| entry.epoch >= LeaderEpoch(0)).all(known)
        };
        let is_whole = |epochs: &LeaderEpochs| epochs.reaches(log_start_offset) && agrees(epochs);
        let (mut epochs, mut changed) = match stored.filter(is_whole) {
            Some(epochs) => (epochs, false),
            None => (self.epochs_of_log(segments, scanned).map_err(|error| self.io(error))?, true),
        };
        if changed && epochs.entries().is_empty() {
            return Ok(epochs);
        }
        changed |= epochs.truncate_from_start(log_start_offset);
        // Last: an epoch that the line above let begin at the very end has no records either.
        changed |= epochs.truncate_from_end(log_end_offset);
        if changed {
            self.report.rebuilt_count += 1;
            epochs.write(&*self.place.disk, &path).map_err(|error| self.io(error))?;
        }
        epochs.shrink();
        Ok(epochs)
    }

    /// The epochs that batches carry. What was scanned is proven; headers before it must not contradict it.
    fn epochs_of_log(&self, segments: &[Arc<Segment>], scanned: &[Scanned]) -> io::Result<LeaderEpochs> {
        let mut epochs = LeaderEpochs::default();
        let proven = || scanned.iter().flat_map(|found| &found.epoch_starts);
        let first = proven().next().copied();
        for segment in segments {
            let mut walk = BatchWalk::new(&**segment.log()?, 0, u64::from(segment.end().size));
            while let Some(found) = walk.next_batch()? {
                let (epoch, start_offset) = (found.header.leader_epoch, found.header.base_offset);
                if first.is_none_or(|first| start_offset < first.start_offset && epoch <= first.epoch) {
                    epochs.assign(epoch, start_offset);
                }
            }
        }
        for entry in proven() {
            epochs.assign(entry.epoch, entry.start_offset);
        }
        Ok(epochs)
    }

    fn recover_producers(
        &mut self,
        segments: &[Arc<Segment>],
        mut snapshots: BTreeSet<Offset>,
        point: Offset,
    ) -> Result<(ProducerState, BTreeSet<Offset>), OpenError> {
        let log_end_offset = segments.last().map_or(Offset::ZERO, |segment| segment.end().next_offset);
        let beyond = snapshots.split_off(&log_end_offset.plus(1));
        for offset in beyond {
            self.place.remove(offset, SNAPSHOT).map_err(|error| self.io(error))?;
            self.report.rebuilt_count += 1;
        }
        let limit = point.min(log_end_offset);
        let loaded = producer_replay::load_snapshot(self.place, self.config, &mut snapshots, limit)
            .map_err(|error| self.io(error))?;
        let replayed = producer_replay::replay(segments, self.config, loaded).map_err(|error| self.io(error))?;
        self.report.rebuilt_count += replayed.txn_indexes_changed;
        Ok((replayed.state, snapshots))
    }

    /// Sealed segments below the recovery point are trusted, but an index that is not there is made.
    fn rebuild_sealed(&mut self, segments: &[Arc<Segment>], names: &BTreeSet<String>) -> Result<(), OpenError> {
        for segment in segments {
            let there = |suffix| names.contains(&place::file_name(segment.base_offset, suffix));
            if there(place::OFFSET_INDEX) && there(place::TIME_INDEX) {
                continue;
            }
            self.report.rebuilt_count += 1;
            rebuild_indexes(segment, self.config, true).map_err(|error| self.io(error))?;
        }
        Ok(())
    }

    /// Everything that will be advertised is made durable first (G5, FAILURES row 6).
    fn sync(&self, scanned: &[Arc<Segment>]) -> Result<(), OpenError> {
        let sync_all = || -> io::Result<()> {
            for segment in scanned {
                segment.log()?.sync_data()?;
            }
            self.place.sync_dir()
        };
        self.synced(sync_all())
    }

    /// Makes the kernel take the unflushed tail for changed again. The bytes are the same.
    fn write_anew(&self, scanned: &[Arc<Segment>], point: Offset) -> Result<(), OpenError> {
        let write = |segment: &Segment| -> io::Result<()> {
            let end = segment.end();
            let first = segment.find(point.max(segment.base_offset), end)?;
            let Some(first) = first else { return Ok(()) };
            let file = self.place.open(segment.base_offset, LOG, thalweg_world::disk::OpenMode::Write)?;
            let (mut position, end) = (first.position, u64::from(end.size));
            let mut buffer = vec![0; COPY_BYTES];
            while position < end {
                let wanted = COPY_BYTES.min(usize::try_from(end - position).unwrap_or(COPY_BYTES));
                let count = file.read_at(&mut buffer[..wanted], position)?;
                if count == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                file.write_at(&buffer[..count], position)?;
                position += count as u64;
            }
            Ok(())
        };
        self.synced(scanned.iter().try_for_each(|segment| write(segment)))
    }

    /// A sync that failed is not tried again, now or by the next opening: it would say "fine" (G2).
    fn synced(&self, result: io::Result<()>) -> Result<(), OpenError> {
        result.map_err(|cause| {
            self.dir.fail("making a recovered log durable", &cause);
            OpenError::LogDirOffline
        })
    }

    /// Every record that is left lies below the log's start: nothing of it may be read or reused.
    fn restart_at(mut self, log_start_offset: Offset, segments: &[Arc<Segment>]) -> Result<Recovered, OpenError> {
        for segment in segments.iter().rev() {
            self.synced(remove_segment(self.place, segment.base_offset))?;
        }
        self.recovery_point = RecoveryPoint::Known(log_start_offset);
        self.run(log_start_offset)
    }

    fn corrupt(&self, base_offset: Offset, position: u64, offset: Offset, detail: &'static str) -> OpenError {
        OpenError::Corrupt { path: self.place.path(base_offset, LOG), position, offset, detail }
    }

    fn io(&self, source: io::Error) -> OpenError {
        OpenError::Io { path: self.place.dir.clone(), source }
    }
}

/// Makes both indexes of a segment again from its batches; `seal`s them if it is closed.
pub(crate) fn rebuild_indexes(segment: &Segment, config: &LogConfig, seal: bool) -> io::Result<IndexBuilder> {
    let mut builder = IndexBuilder::new();
    let mut walk = BatchWalk::new(&**segment.log()?, 0, u64::from(segment.end().size));
    while let Some(found) = walk.next_batch()? {
        let position = u32::try_from(found.position).unwrap_or(u32::MAX);
        let relative = segment.relative(found.header.last_offset());
        builder.add(position, relative, found.header.max_timestamp, config.index_interval_bytes);
    }
    if seal {
        builder.seal();
    }
    let (offsets, times) = builder.take_entries();
    segment.offset_index.file().replace_from(0, &offset_index::encode(&offsets))?;
    segment.time_index.file().replace_from(0, &time_index::encode(&times))?;
    Ok(builder)
}

/// Removes a segment's files, the `.log` last, and makes that durable: no crash leaves a hole behind it.
pub(crate) fn remove_segment(place: &Place, base_offset: Offset) -> io::Result<()> {
    for suffix in DERIVED {
        place.remove(base_offset, suffix)?;
    }
    place.remove(base_offset, LOG)?;
    place.sync_dir()
}

const COPY_BYTES: usize = 1 << 20;
