//! A partition's log as its one writer holds it.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use thalweg_model::invariant::InvariantId;
use thalweg_model::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Timestamp, TopicId, TopicPartition, check};
use thalweg_wire::batch::BatchHeader;
use thalweg_world::disk::{DiskFile, OpenMode};
use tracing::{debug, warn};

use crate::active::ActiveSegment;
use crate::config::LogConfig;
use crate::dir_state::DirState;
use crate::error::{AppendError, LogError, OpenError};
use crate::flush::{FlushOutcome, FlushTicket};
use crate::index_builder::IndexBuilder;
use crate::leader_epochs::{self, LeaderEpochs};
use crate::log_reader::ReadView;
use crate::place::{OFFSET_INDEX, Place, SNAPSHOT, TIME_INDEX};
use crate::producer_snapshot;
use crate::producer_state::ProducerState;
use crate::recovery::{self, Recovered, RecoveryPoint, RecoveryReport};
use crate::segment::{Segment, SegmentEnd};

/// The single writer of a partition's files; owned by one thread.
///
/// Appends are in append.rs, cuts at its end in truncation.rs, at its start in pruning.rs, opening in recovery.rs.
/// Any failed write or sync takes the whole log dir offline (G2): every later change then fails, reads go on.
#[derive(Debug)]
pub struct PartitionLog {
    pub(crate) tp: TopicPartition,
    pub(crate) topic_id: TopicId,
    pub(crate) place: Arc<Place>,
    pub(crate) dir: Arc<DirState>,
    pub(crate) config: LogConfig,
    pub(crate) view: Arc<ReadView>,
    /// Ascending; the last is the active one.
    pub(crate) segments: Vec<Arc<Segment>>,
    pub(crate) active: ActiveSegment,
    pub(crate) epochs: LeaderEpochs,
    pub(crate) producers: ProducerState,
    pub(crate) snapshots: BTreeSet<Offset>,
    /// Where the last snapshot stands, in bytes of log written since.
    pub(crate) bytes_at_snapshot: u64,
    /// Files of closed segments that were not synced yet, besides the active `.log`.
    pub(crate) unsynced: Vec<Arc<dyn DiskFile>>,
    names_unsynced: bool,
    /// A ticket is out.
    flushing: bool,
    /// Goes up when the log is cut: tickets of before say nothing about it any more.
    pub(crate) generation: u64,
    report: RecoveryReport,
}

/// What a log knows of a producer (DescribeProducers).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerInfo {
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    /// `-1`: no batch of this epoch.
    pub last_sequence: i32,
    /// `-1`: as above.
    pub last_timestamp: Timestamp,
    pub coordinator_epoch: i32,
    pub open_txn_first_offset: Option<Offset>,
}

impl PartitionLog {
    pub(crate) fn open(
        tp: TopicPartition,
        topic_id: TopicId,
        place: Arc<Place>,
        dir: Arc<DirState>,
        config: LogConfig,
        recovery_point: RecoveryPoint,
        log_start_checkpoint: Offset,
    ) -> Result<PartitionLog, OpenError> {
        let recovered = recovery::recover(&place, &dir, &config, recovery_point, log_start_checkpoint)?;
        let active = active_of(&recovered.segments, recovered.builder.clone(), &config)
            .map_err(|source| OpenError::Io { path: place.dir.clone(), source })?;
        let Recovered { segments, epochs, producers, snapshots, log_start_offset, report, .. } = recovered;
        let view = Arc::new(ReadView::new(segments.clone(), epochs.clone(), log_start_offset, config.compact));
        // Recovery synced whatever it found.
        view.publish_flushed(active.next_offset);
        view.publish_first_unstable(producers.first_unstable_offset());
        dir.register(&tp, &view);
        Ok(PartitionLog {
            tp,
            topic_id,
            place,
            dir,
            config,
            view,
            segments,
            active,
            epochs,
            producers,
            snapshots,
            bytes_at_snapshot: 0,
            unsynced: Vec::new(),
            names_unsynced: false,
            flushing: false,
            generation: 0,
            report,
        })
    }

    pub fn topic_partition(&self) -> &TopicPartition {
        &self.tp
    }

    pub fn topic_id(&self) -> TopicId {
        self.topic_id
    }

    pub fn config(&self) -> &LogConfig {
        &self.config
    }

    /// Takes over a changed topic configuration; segments that exist stay as they are.
    pub fn set_config(&mut self, config: LogConfig) {
        self.config = config;
    }

    /// For readers on any thread.
    pub fn view(&self) -> Arc<ReadView> {
        Arc::clone(&self.view)
    }

    /// What opening had to do.
    pub fn recovery_report(&self) -> RecoveryReport {
        self.report
    }

    pub fn log_start_offset(&self) -> Offset {
        self.view.log_start_offset()
    }

    pub fn log_end_offset(&self) -> Offset {
        self.active.next_offset
    }

    /// Everything below is on stable storage (FLO).
    pub fn flushed_offset(&self) -> Offset {
        self.view.flushed_offset()
    }

    /// Below it no transaction is open; the caller takes the lesser of this and its high watermark (T4).
    pub fn last_stable_offset(&self) -> Offset {
        self.view.last_stable_offset()
    }

    pub fn latest_epoch(&self) -> Option<LeaderEpoch> {
        self.epochs.latest().map(|entry| entry.epoch)
    }

    /// Every producer that the log remembers, by id.
    pub fn producer_state(&self) -> Vec<ProducerInfo> {
        let info = |(id, producer): (&ProducerId, &crate::producer_state::Producer)| ProducerInfo {
            producer_id: *id,
            producer_epoch: producer.epoch,
            last_sequence: producer.batches.back().map_or(-1, |batch| batch.last_sequence),
            last_timestamp: producer.batches.back().map_or(Timestamp::NONE, |batch| batch.timestamp),
            coordinator_epoch: producer.coordinator_epoch,
            open_txn_first_offset: producer.open_txn,
        };
        self.producers.producers.iter().map(info).collect()
    }

    /// Begins a leader's epoch at the log's end, durably (REPLICATION L1). A known epoch changes nothing.
    ///
    /// # Errors
    /// [`AppendError::LogDirOffline`].
    pub fn begin_epoch(&mut self, epoch: LeaderEpoch) -> Result<(), AppendError> {
        if self.dir.is_offline() {
            return Err(AppendError::LogDirOffline);
        }
        self.assign_epoch(epoch, self.active.next_offset)
    }

    /// Forgets epochs that begin at the log's end: led in, and nothing was written. Records of an older epoch may follow from
    /// the next leader (REPLICATION F1). Durable on return.
    ///
    /// # Errors
    /// [`LogError::LogDirOffline`].
    pub fn forget_empty_epochs(&mut self) -> Result<(), LogError> {
        if self.epochs.truncate_from_end(self.active.next_offset) {
            self.view.publish_epochs(&self.epochs);
            let path = self.place.dir.join(leader_epochs::FILE_NAME);
            self.change(|log| log.epochs.write(&*log.place.disk, &path))?;
        }
        Ok(())
    }

    /// Tells the log how far its records are committed: decided transactions below are stable.
    pub fn advance_high_watermark(&mut self, high_watermark: Offset) {
        if self.producers.advance_high_watermark(high_watermark) {
            self.view.publish_first_unstable(self.producers.first_unstable_offset());
        }
    }

    /// What is to be synced, if anything is and no other ticket is out.
    pub fn flush_ticket(&mut self) -> Option<FlushTicket> {
        let clean =
            self.flushed_offset() == self.active.next_offset && self.unsynced.is_empty() && !self.names_unsynced;
        if clean || self.flushing || self.dir.is_offline() {
            return None;
        }
        let mut files = std::mem::take(&mut self.unsynced);
        // Opened already: there is something unsynced, so it was written to or made.
        files.extend(self.active.segment.log().ok().cloned());
        let names = std::mem::take(&mut self.names_unsynced).then(|| Arc::clone(&self.place));
        self.flushing = true;
        let (up_to, generation) = (self.active.next_offset, self.generation);
        Some(FlushTicket { dir: Arc::clone(&self.dir), files, names, up_to, generation })
    }

    /// Takes a flush's result; returns the flushed offset.
    ///
    /// # Errors
    /// [`LogError::LogDirOffline`]: the sync failed, nothing since the last one may be acknowledged.
    pub fn flushed(&mut self, outcome: FlushOutcome) -> Result<Offset, LogError> {
        self.flushing = false;
        if !outcome.is_synced || self.dir.is_offline() {
            return Err(LogError::LogDirOffline);
        }
        if outcome.generation == self.generation && outcome.up_to > self.flushed_offset() {
            check!(InvariantId::Log3, outcome.up_to <= self.active.next_offset);
            self.view.publish_flushed(outcome.up_to);
        }
        Ok(self.flushed_offset())
    }

    /// Closes the active segment if it is old enough, also when nothing is appended any more.
    ///
    /// # Errors
    /// [`AppendError::LogDirOffline`].
    pub fn roll_if_due(&mut self, now: Timestamp) -> Result<bool, AppendError> {
        let due = self.active.is_due(now, &self.config);
        if due {
            self.roll(now)?;
        }
        Ok(due)
    }

    /// Readies the log for a recovery checkpoint: bounds what a restart would have to replay for producers.
    ///
    /// To be called before [`crate::LogDir::write_checkpoints`]. Makes indexes again that a reader found wrong.
    ///
    /// # Errors
    /// [`LogError::LogDirOffline`].
    pub fn prepare_checkpoint(&mut self) -> Result<(), LogError> {
        self.rebuild_damaged()?;
        // What the checkpoint lets recovery take on trust is synced with the next flush.
        let indexes = [self.active.segment.offset_index.file(), self.active.segment.time_index.file()];
        self.unsynced.extend(indexes.into_iter().filter_map(|file| file.opened().cloned()));
        if u64::from(self.active.size) < self.bytes_at_snapshot + SNAPSHOT_BYTES {
            return Ok(());
        }
        self.change(|log| log.take_snapshot())
    }

    /// Syncs everything and leaves a snapshot, so that the next start has nothing to recover.
    ///
    /// # Errors
    /// [`LogError::LogDirOffline`].
    pub fn close(mut self) -> Result<(), LogError> {
        self.change(|log| log.take_snapshot())?;
        self.flushing = false;
        if let Some(ticket) = self.flush_ticket() {
            let outcome = ticket.sync();
            self.flushed(outcome)?;
        }
        Ok(())
    }

    pub(crate) fn must_roll(&self, header: &BatchHeader, now: Timestamp) -> bool {
        self.active.is_full_for(header.size_bytes(), header.last_offset(), &self.config)
            || self.active.is_due(now, &self.config)
    }

    /// Closes the active segment and begins one at the log's end.
    pub(crate) fn roll(&mut self, now: Timestamp) -> Result<(), AppendError> {
        debug!(tp = %self.tp, base_offset = %self.active.next_offset, %now, "a new segment begins");
        self.change(PartitionLog::try_roll).map_err(|_| AppendError::LogDirOffline)
    }

    /// Records a new epoch durably before any batch carries it.
    pub(crate) fn assign_epoch(&mut self, epoch: LeaderEpoch, start_offset: Offset) -> Result<(), AppendError> {
        if !self.epochs.assign(epoch, start_offset) {
            return Ok(());
        }
        self.view.publish_epochs(&self.epochs);
        let path = self.place.dir.join(leader_epochs::FILE_NAME);
        self.change(|log| log.epochs.write(&*log.place.disk, &path)).map_err(|_| AppendError::LogDirOffline)
    }

    fn try_roll(&mut self) -> io::Result<()> {
        let (offsets, times) = {
            self.active.builder.seal();
            self.active.builder.take_entries()
        };
        let closed = &self.active.segment;
        closed.offset_index.append(&offsets)?;
        closed.time_index.append(&times)?;
        // Before the next segment has a byte: else a crash could keep later batches and lose these (G3).
        closed.log()?.sync_data()?;
        let derived = [closed.offset_index.file(), closed.time_index.file(), closed.txn_index.file()];
        self.unsynced.extend(derived.into_iter().filter_map(|file| file.opened().cloned()));
        self.take_snapshot()?;
        let base_offset = self.active.next_offset;
        let segment =
            Arc::new(Segment::new(&self.place, base_offset, SegmentEnd { next_offset: base_offset, size: 0 }));
        segment.create_log()?;
        self.names_unsynced = true;
        self.active = ActiveSegment::new(Arc::clone(&segment), IndexBuilder::new(), None, &self.config)?;
        self.bytes_at_snapshot = 0;
        self.segments.push(segment);
        self.view.publish_segments(self.segments.clone());
        Ok(())
    }

    /// Writes the producer state at the log's end; verified by its checksum when it is read, so not synced here.
    fn take_snapshot(&mut self) -> io::Result<()> {
        let offset = self.active.next_offset;
        let file = self.place.open(offset, SNAPSHOT, OpenMode::CreateOrWrite)?;
        file.set_len(0)?;
        file.write_at(&producer_snapshot::encode(&self.producers), 0)?;
        self.unsynced.push(file);
        self.names_unsynced = true;
        self.snapshots.insert(offset);
        self.bytes_at_snapshot = u64::from(self.active.size);
        // Those at segment starts stay with their segments; of the others the last two are enough.
        let at_base = |offset: &Offset| self.segments.iter().any(|segment| segment.base_offset == *offset);
        let extra: Vec<Offset> = self.snapshots.iter().rev().filter(|o| !at_base(o)).skip(2).copied().collect();
        self.remove_snapshots(|snapshot| extra.contains(&snapshot))
    }

    pub(crate) fn remove_snapshots(&mut self, gone: impl Fn(Offset) -> bool) -> io::Result<()> {
        for offset in self.snapshots.iter().copied().filter(|offset| gone(*offset)).collect::<Vec<_>>() {
            self.place.remove(offset, SNAPSHOT)?;
            self.snapshots.remove(&offset);
        }
        Ok(())
    }

    /// Makes indexes again that a reader found wrong. Readers under way keep the old files.
    fn rebuild_damaged(&mut self) -> Result<(), LogError> {
        for number in 0..self.segments.len() {
            if !self.segments[number].is_index_damaged() {
                continue;
            }
            let old = Arc::clone(&self.segments[number]);
            warn!(tp = %self.tp, base_offset = %old.base_offset, "an index is wrong; it is made again from the log");
            self.change(|log| {
                log.place.remove(old.base_offset, OFFSET_INDEX)?;
                log.place.remove(old.base_offset, TIME_INDEX)?;
                let fresh = Arc::new(Segment::new(&log.place, old.base_offset, old.end()));
                let is_active = number + 1 == log.segments.len();
                let builder = recovery::rebuild_indexes(&fresh, &log.config, !is_active)?;
                if is_active {
                    log.active.index_count = fresh.offset_index.file().count()?;
                    log.active.builder = builder;
                    log.active.segment = Arc::clone(&fresh);
                }
                log.segments[number] = fresh;
                log.names_unsynced = true;
                Ok(())
            })?;
            self.view.publish_segments(self.segments.clone());
        }
        Ok(())
    }

    /// Runs a change of files; an error takes the log dir offline, and an offline one is not changed.
    pub(crate) fn change<T>(&mut self, change: impl FnOnce(&mut PartitionLog) -> io::Result<T>) -> Result<T, LogError> {
        if self.dir.is_offline() {
            return Err(LogError::LogDirOffline);
        }
        change(self).map_err(|cause| {
            self.dir.fail("changing a log", &cause);
            LogError::LogDirOffline
        })
    }
}

impl Drop for PartitionLog {
    fn drop(&mut self) {
        self.place.close();
        self.dir.unregister(&self.tp);
    }
}

pub(crate) fn active_of(
    segments: &[Arc<Segment>],
    builder: IndexBuilder,
    config: &LogConfig,
) -> io::Result<ActiveSegment> {
    let segment = segments.last().ok_or(io::ErrorKind::NotFound)?;
    // The wall clock at the first append is gone; the first batch's own time is what Kafka takes.
    let began = segment.find(segment.base_offset, segment.end())?.map(|found| found.header.max_timestamp);
    ActiveSegment::new(Arc::clone(segment), builder, began, config)
}

/// Producers are replayed from at most about this many bytes of log before a checkpoint.
const SNAPSHOT_BYTES: u64 = 16 << 20;
