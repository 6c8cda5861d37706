//! What all logs of a directory share: whether its disk still works, and how much room is left.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_model::{Offset, TopicPartition};
use thalweg_world::disk::{Disk, DiskLock};
use tracing::error;

use crate::checkpoint::{self, LOG_START, OffsetCheckpoint, RECOVERY_POINT};
use crate::error::AppendError;
use crate::failure_mark::{self, FailureMarks};
use crate::log_reader::ReadView;

/// See the module's page. Lives as long as any log of the directory.
#[derive(Debug)]
pub(crate) struct DirState {
    pub disk: Arc<dyn Disk>,
    pub path: PathBuf,
    reserve_bytes: u64,
    /// Set by the first failed write or sync, for good (REPLICATION G2).
    offline: AtomicBool,
    /// An earlier life's disk failed and the coordinator may not know: what was not flushed then is not to be believed.
    doubtful: AtomicBool,
    /// The next life will know of a failure. Held while the mark changes.
    marked: Mutex<bool>,
    /// Bytes that may be written before the free space is looked at again.
    allowance: AtomicI64,
    checkpoints: Mutex<Checkpoints>,
    /// Released when the last log is gone.
    _lock: Box<dyn DiskLock>,
}

#[derive(Debug, Default)]
struct Checkpoints {
    open: BTreeMap<TopicPartition, Arc<ReadView>>,
    recovery_points: OffsetCheckpoint,
    log_starts: OffsetCheckpoint,
}

impl DirState {
    pub fn new(
        disk: Arc<dyn Disk>,
        path: PathBuf,
        reserve_bytes: u64,
        recovery_points: OffsetCheckpoint,
        log_starts: OffsetCheckpoint,
        marks: &FailureMarks,
        lock: Box<dyn DiskLock>,
    ) -> DirState {
        DirState {
            disk,
            path,
            reserve_bytes,
            offline: AtomicBool::new(false),
            doubtful: AtomicBool::new(marks.own),
            marked: Mutex::new(marks.own),
            allowance: AtomicI64::new(0),
            checkpoints: Mutex::new(Checkpoints { open: BTreeMap::new(), recovery_points, log_starts }),
            _lock: lock,
        }
    }

    pub fn is_offline(&self) -> bool {
        self.offline.load(Ordering::Acquire)
    }

    /// Takes the directory offline: after an error nobody can say what reached the disk, so nothing is retried.
    pub fn fail(&self, what: &str, cause: &io::Error) {
        if !self.offline.swap(true, Ordering::AcqRel) {
            error!(path = %self.path.display(), %cause, "{what} failed; the log dir goes offline and stays so");
            if let Err(error) = self.mark_failed(&format!("{what}: {cause}")) {
                error!(path = %self.path.display(), %error, "that the log dir failed cannot be noted in it");
            }
        }
    }

    /// See [`DirState::doubtful`].
    pub fn is_doubtful(&self) -> bool {
        self.doubtful.load(Ordering::Acquire)
    }

    pub fn doubt(&self) {
        self.doubtful.store(true, Ordering::Release);
    }

    pub fn is_marked(&self) -> bool {
        *self.marked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the next life that the disk has failed. Only a small new file is written: nothing is tried again.
    pub fn mark_failed(&self, cause: &str) -> io::Result<()> {
        let mut marked = self.marked.lock().unwrap_or_else(PoisonError::into_inner);
        if !*marked {
            failure_mark::write(&*self.disk, &self.path, None, cause)?;
            *marked = true;
        }
        Ok(())
    }

    /// Takes the mark of an earlier life away; that of this life stays.
    pub fn forget_failure(&self) -> io::Result<()> {
        let mut marked = self.marked.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_offline() {
            return Ok(());
        }
        if *marked {
            failure_mark::remove(&*self.disk, &self.path, None)?;
            *marked = false;
        }
        self.doubtful.store(false, Ordering::Release);
        Ok(())
    }

    /// Asks for room for `bytes`; looks at the disk only now and then (REPLICATION G8).
    pub fn take_room(&self, bytes: usize) -> Result<(), AppendError> {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        if self.allowance.fetch_sub(bytes, Ordering::Relaxed) >= bytes {
            return Ok(());
        }
        let free_bytes = match self.disk.free_bytes(&self.path) {
            Ok(free_bytes) => free_bytes,
            Err(cause) => {
                self.fail("looking at the free space", &cause);
                return Err(AppendError::LogDirOffline);
            }
        };
        let spare = i64::try_from(free_bytes.saturating_sub(self.reserve_bytes)).unwrap_or(i64::MAX);
        if spare < bytes {
            self.allowance.store(0, Ordering::Relaxed);
            return Err(AppendError::DiskFull { free_bytes, reserve_bytes: self.reserve_bytes });
        }
        // Others write to the same disk, and several logs may look at once: stay well inside the reserve.
        self.allowance.store((spare - bytes).min(ALLOWANCE_MAX) / 2, Ordering::Relaxed);
        Ok(())
    }

    pub fn recovery_point(&self, tp: &TopicPartition) -> Option<Offset> {
        self.checkpoints().recovery_points.get(tp)
    }

    pub fn log_start(&self, tp: &TopicPartition) -> Option<Offset> {
        self.checkpoints().log_starts.get(tp)
    }

    /// Whether a log of this partition is open; two writers would destroy each other's bytes.
    pub fn is_open(&self, tp: &TopicPartition) -> bool {
        self.checkpoints().open.contains_key(tp)
    }

    pub fn register(&self, tp: &TopicPartition, view: &Arc<ReadView>) {
        self.checkpoints().open.insert(tp.clone(), Arc::clone(view));
    }

    /// Lets go of a log; the next checkpoint still knows how far it came.
    pub fn unregister(&self, tp: &TopicPartition) {
        let mut checkpoints = self.checkpoints();
        if let Some(view) = checkpoints.open.remove(tp) {
            checkpoints.note(tp, &view);
        }
    }

    /// Forgets a partition that was deleted.
    pub fn forget(&self, tp: &TopicPartition) -> io::Result<()> {
        let mut checkpoints = self.checkpoints();
        checkpoints.open.remove(tp);
        let known = checkpoints.recovery_points.remove(tp) | checkpoints.log_starts.remove(tp);
        if known { self.write(&mut checkpoints) } else { Ok(()) }
    }

    /// Writes recovery points and log starts of every open log, and keeps those of the others.
    pub fn checkpoint(&self) -> io::Result<()> {
        self.write(&mut self.checkpoints())
    }

    /// Makes sure that the stored recovery point is not above `offset`, before a log is cut there.
    ///
    /// The view must show the lower flushed offset already: whoever writes the file next reads it there.
    pub fn lower_recovery_point(&self, tp: &TopicPartition, offset: Offset) -> io::Result<()> {
        let mut checkpoints = self.checkpoints();
        if checkpoints.recovery_points.get(tp).is_none_or(|point| point <= offset) {
            return Ok(());
        }
        self.write(&mut checkpoints)
    }

    fn write(&self, checkpoints: &mut Checkpoints) -> io::Result<()> {
        for (tp, view) in checkpoints.open.clone() {
            checkpoints.note(&tp, &view);
        }
        let Checkpoints { recovery_points, log_starts, .. } = checkpoints;
        // The log starts first: they may lie above a recovery point that lags, never the other way round.
        checkpoint::write_offsets(&*self.disk, &self.path.join(LOG_START), log_starts)?;
        checkpoint::write_offsets(&*self.disk, &self.path.join(RECOVERY_POINT), recovery_points)
    }

    fn checkpoints(&self) -> MutexGuard<'_, Checkpoints> {
        self.checkpoints.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Checkpoints {
    fn note(&mut self, tp: &TopicPartition, view: &ReadView) {
        self.recovery_points.insert(tp.clone(), view.flushed_offset());
        // Kafka too writes a log start only where it does not follow from the first segment.
        let log_start_offset = view.log_start_offset();
        if log_start_offset > view.first_base_offset() {
            self.log_starts.insert(tp.clone(), log_start_offset);
        } else {
            self.log_starts.remove(tp);
        }
    }
}

const ALLOWANCE_MAX: i64 = 16 << 20;
