//! A directory of partitions on one disk: identity, lock, checkpoints, clean stops.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use thalweg_model::{Offset, TopicId, TopicPartition};
use thalweg_world::disk::Disk;
use tracing::warn;

use crate::checkpoint::{self, CheckpointError, HIGH_WATERMARK, LOG_START, OffsetCheckpoint, RECOVERY_POINT};
use crate::config::LogConfig;
use crate::dir_identity::{
    CLEAN_STOP, CleanStop, DirIdentity, check_meta, make_dir, next_incarnation, take_clean_stop,
};
use crate::dir_state::DirState;
use crate::error::{LogDirError, OpenError};
use crate::failure_mark;
use crate::meta_properties::MetaProperties;
use crate::partition_log::PartitionLog;
use crate::place::Place;
use crate::recovery::RecoveryPoint;
use crate::registration::Registration;

/// An open log dir. Holds the lock until it and all its logs are gone.
#[derive(Debug)]
pub struct LogDir {
    state: Arc<DirState>,
    meta: MetaProperties,
    incarnation: u64,
    clean_stop: Option<CleanStop>,
    same_boot: bool,
    recovery_points_readable: bool,
    registration: Option<Registration>,
    /// Other dirs of the broker that failed, as this one was told.
    failed_others: Vec<TopicId>,
    delete_count: AtomicU64,
}

/// Settings of a log dir.
#[derive(Clone, Copy, Debug)]
pub struct LogDirConfig {
    /// Below this many free bytes appends are refused (REPLICATION G8).
    pub reserve_bytes: u64,
}

impl Default for LogDirConfig {
    fn default() -> LogDirConfig {
        LogDirConfig { reserve_bytes: RESERVE_BYTES }
    }
}

/// A partition's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPartition {
    pub tp: TopicPartition,
    /// `None`: written before topic ids, or a creation that did not finish.
    pub topic_id: Option<TopicId>,
}

impl LogDir {
    /// Locks and checks a log dir; makes it if it is not there. Counts this opening as a new incarnation, durably.
    ///
    /// Removes the mark of a clean stop: from now on the directory may be written to.
    ///
    /// # Errors
    /// See [`LogDirError`]; each is one sentence for an operator.
    pub fn open(
        disk: Arc<dyn Disk>,
        path: &Path,
        identity: &DirIdentity,
        config: LogDirConfig,
    ) -> Result<LogDir, LogDirError> {
        let io = |source| LogDirError::Io { path: path.to_owned(), source };
        make_dir(&*disk, path).map_err(io)?;
        let lock = disk.lock(&path.join(LOCK)).map_err(|source| match source.kind() {
            io::ErrorKind::WouldBlock => LogDirError::InUse { path: path.to_owned() },
            _ => io(source),
        })?;
        let meta = check_meta(&*disk, path, identity)?;
        let marks = failure_mark::read(&*disk, path).map_err(io)?;
        let registration = Registration::read(&*disk, path).map_err(io)?;
        let clean_stop = take_clean_stop(&*disk, path).map_err(io)?;
        let (incarnation, same_boot) = next_incarnation(&*disk, path, identity)?;
        let recovery_points = read_checkpoint(&*disk, path, RECOVERY_POINT).map_err(io)?;
        let log_starts = read_checkpoint(&*disk, path, LOG_START).map_err(io)?;
        let recovery_points_readable = recovery_points.is_some();
        let state = DirState::new(
            disk,
            path.to_owned(),
            config.reserve_bytes,
            recovery_points.unwrap_or_default(),
            log_starts.unwrap_or_default(),
            &marks,
            lock,
        );
        Ok(LogDir {
            state: Arc::new(state),
            meta,
            incarnation,
            clean_stop,
            same_boot,
            recovery_points_readable,
            registration,
            failed_others: marks.others,
            delete_count: AtomicU64::new(0),
        })
    }

    pub fn path(&self) -> &Path {
        &self.state.path
    }

    pub fn meta(&self) -> &MetaProperties {
        &self.meta
    }

    pub fn directory_id(&self) -> TopicId {
        self.meta.directory_id.unwrap_or(TopicId::ZERO)
    }

    /// How often this directory was opened, this time included (`inc`, REPLICATION B1).
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// How the last life ended; `None`: not cleanly.
    pub fn clean_stop(&self) -> Option<CleanStop> {
        self.clean_stop
    }

    /// The broker's last registration before this life; `None` if it had none.
    pub fn last_registration(&self) -> Option<Registration> {
        self.registration
    }

    /// Remembers a registration, durably.
    ///
    /// # Errors
    /// [`OpenError::LogDirOffline`].
    pub fn write_registration(&self, registration: Registration) -> Result<(), OpenError> {
        let disk = &*self.state.disk;
        self.change("writing the registration", || registration.write(disk, self.path()))
    }

    /// The machine has not been booted since the last life.
    pub fn is_same_boot(&self) -> bool {
        self.same_boot
    }

    /// A write or sync failed; nothing is changed here any more.
    pub fn is_offline(&self) -> bool {
        self.state.is_offline()
    }

    /// A disk of an earlier life failed and nobody has been told yet: what was not flushed then is not to be counted on, and
    /// opening a log writes it anew (REPLICATION B2).
    pub fn is_doubtful(&self) -> bool {
        self.state.is_doubtful()
    }

    /// Another dir remembers that this one failed. To be said before logs are opened.
    pub fn doubt(&self) {
        self.state.doubt();
    }

    /// Other dirs that failed in an earlier life, as this one was told.
    pub fn failed_others(&self) -> &[TopicId] {
        &self.failed_others
    }

    /// Whether the next life will find out that this dir has failed, from this dir. Tries again to tell it.
    pub fn notes_its_failure(&self) -> bool {
        self.state.is_marked() || self.state.mark_failed("see the log of the time").is_ok()
    }

    /// Remembers for the next life that another dir failed.
    ///
    /// # Errors
    /// [`OpenError::LogDirOffline`].
    pub fn note_failure_of(&self, other: TopicId) -> Result<(), OpenError> {
        let (disk, path) = (&*self.state.disk, self.path());
        let cause = "the directory could not be written to";
        self.change("noting a failure", || failure_mark::write(disk, path, Some(other), cause))
    }

    /// Forgets failures of earlier lives: the coordinator knows, and whoever was in doubt is not counted on any more.
    ///
    /// # Errors
    /// [`OpenError::LogDirOffline`].
    pub fn forget_failures(&self) -> Result<(), OpenError> {
        self.change("forgetting a failure", || {
            for other in &self.failed_others {
                failure_mark::remove(&*self.state.disk, self.path(), Some(*other))?;
            }
            self.state.forget_failure()
        })
    }

    /// The partitions that are here, in order.
    ///
    /// # Errors
    /// What the disk says.
    pub fn partitions(&self) -> Result<Vec<FoundPartition>, LogDirError> {
        let disk = &*self.state.disk;
        let entries = disk.list(self.path()).map_err(|source| self.io(source))?;
        let mut found = Vec::new();
        for entry in entries.iter().filter(|entry| entry.is_dir) {
            let Some(tp) = TopicPartition::from_dir_name(&entry.name) else { continue };
            let topic_id = read_topic_id(disk, &self.path().join(&entry.name)).map_err(|source| self.io(source))?;
            found.push(FoundPartition { tp, topic_id });
        }
        found.sort_by(|a, b| a.tp.cmp(&b.tp));
        Ok(found)
    }

    /// Makes a partition's directory, durably, and opens its empty log.
    ///
    /// # Errors
    /// [`OpenError::Exists`]: it is here already.
    pub fn create_partition(
        &self,
        tp: &TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
    ) -> Result<PartitionLog, OpenError> {
        let dir = self.path().join(tp.to_string());
        let disk = &*self.state.disk;
        match disk.list(&dir) {
            Ok(_) => return Err(OpenError::Exists { partition: tp.clone() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(OpenError::Io { path: dir, source }),
        }
        self.change("making a partition", || {
            disk.create_dir_all(&dir)?;
            write_topic_id(disk, &dir, topic_id)?;
            disk.sync_dir(self.path())
        })?;
        self.open_partition(tp, topic_id, config)
    }

    /// Opens a partition that is here, recovering it if need be.
    ///
    /// # Errors
    /// [`OpenError::OtherTopicId`]: the directory is of another life of the topic (FAILURES row 50).
    /// [`OpenError::Corrupt`]: see recovery; the files stay as they are.
    pub fn open_partition(
        &self,
        tp: &TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
    ) -> Result<PartitionLog, OpenError> {
        if self.is_offline() {
            return Err(OpenError::LogDirOffline);
        }
        if self.state.is_open(tp) {
            return Err(OpenError::AlreadyOpen { partition: tp.clone() });
        }
        let dir = self.path().join(tp.to_string());
        let disk = &self.state.disk;
        let io = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => OpenError::NotFound { partition: tp.clone() },
            _ => OpenError::Io { path: dir.clone(), source },
        };
        disk.list(&dir).map_err(io)?;
        match read_topic_id(&**disk, &dir).map_err(io)? {
            Some(found) if found != topic_id => {
                return Err(OpenError::OtherTopicId { partition: tp.clone(), found, expected: topic_id });
            }
            Some(_) => {}
            None => self.change("writing partition.metadata", || write_topic_id(&**disk, &dir, topic_id))?,
        }
        let recovery_point = match self.state.recovery_point(tp) {
            Some(point) => RecoveryPoint::Known(point),
            // Not listed: it was made after the last checkpoint, all of it may be torn.
            None if self.recovery_points_readable => RecoveryPoint::Known(Offset::ZERO),
            None => RecoveryPoint::Unknown,
        };
        let log_start_offset = self.state.log_start(tp).unwrap_or(Offset::ZERO);
        let place = Arc::new(Place::new(Arc::clone(disk), dir));
        let state = Arc::clone(&self.state);
        PartitionLog::open(tp.clone(), topic_id, place, state, config, recovery_point, log_start_offset)
    }

    /// Takes a partition out of sight, durably; its files go with [`LogDir::remove_deleted`].
    ///
    /// Its log must be dropped before. Readers that hold a slice keep it.
    ///
    /// # Errors
    /// [`OpenError::NotFound`]: it is not here.
    pub fn delete_partition(&self, tp: &TopicPartition) -> Result<(), OpenError> {
        let number = self.delete_count.fetch_add(1, Ordering::Relaxed);
        let to = self.path().join(aside_name(tp, self.incarnation, number, DELETED_DIR_SUFFIX));
        self.take_out_of_sight(tp, &to)
    }

    fn take_out_of_sight(&self, tp: &TopicPartition, to: &Path) -> Result<(), OpenError> {
        let from = self.path().join(tp.to_string());
        let disk = &*self.state.disk;
        if let Err(error) = disk.list(&from) {
            return Err(match error.kind() {
                io::ErrorKind::NotFound => OpenError::NotFound { partition: tp.clone() },
                _ => OpenError::Io { path: from, source: error },
            });
        }
        self.change("deleting a partition", || {
            disk.rename(&from, to)?;
            disk.sync_dir(self.path())?;
            self.state.forget(tp)
        })
    }

    /// Takes a partition that no topic claims out of sight, durably, and keeps its files; returns their directory's name.
    ///
    /// Its log must be dropped before.
    ///
    /// # Errors
    /// [`OpenError::NotFound`]: it is not here.
    pub fn set_aside_partition(&self, tp: &TopicPartition) -> Result<String, OpenError> {
        let number = self.delete_count.fetch_add(1, Ordering::Relaxed);
        let name = aside_name(tp, self.incarnation, number, STRAY_DIR_SUFFIX);
        self.take_out_of_sight(tp, &self.path().join(&name))?;
        Ok(name.display().to_string())
    }

    /// Removes what was deleted, in this life or an earlier one; returns how many partitions that were.
    ///
    /// # Errors
    /// What the disk says; the rest stays for another time.
    pub fn remove_deleted(&self) -> Result<usize, LogDirError> {
        let disk = &*self.state.disk;
        let entries = disk.list(self.path()).map_err(|source| self.io(source))?;
        let deleted = entries.iter().filter(|entry| entry.is_dir && entry.name.ends_with(DELETED_DIR_SUFFIX));
        let mut count = 0;
        for entry in deleted {
            disk.remove_dir_all(&self.path().join(&entry.name)).map_err(|source| self.io(source))?;
            count += 1;
        }
        Ok(count)
    }

    /// Writes recovery points and log starts of the open logs, so that recovery begins there.
    ///
    /// Each log's [`PartitionLog::prepare_checkpoint`] is to come first. Also what makes delete-records durable.
    ///
    /// # Errors
    /// [`OpenError::LogDirOffline`].
    pub fn write_checkpoints(&self) -> Result<(), OpenError> {
        self.change("writing checkpoints", || self.state.checkpoint())
    }

    /// Stores high watermarks: lower bounds for the next life (G6).
    ///
    /// # Errors
    /// [`OpenError::LogDirOffline`].
    pub fn write_high_watermarks(&self, high_watermarks: &OffsetCheckpoint) -> Result<(), OpenError> {
        let path = self.path().join(HIGH_WATERMARK);
        let disk = &*self.state.disk;
        self.change("writing checkpoints", || checkpoint::write_offsets(disk, &path, high_watermarks))
    }

    /// The stored high watermarks; none if they cannot be read, since 0 is a lower bound too.
    ///
    /// # Errors
    /// What the disk says.
    pub fn high_watermarks(&self) -> Result<OffsetCheckpoint, LogDirError> {
        let read = read_checkpoint(&*self.state.disk, self.path(), HIGH_WATERMARK).map_err(|source| self.io(source))?;
        Ok(read.unwrap_or_default())
    }

    /// Marks a clean stop. The last thing a life does, after every log is closed and the checkpoints are written.
    ///
    /// # Errors
    /// [`OpenError::LogDirOffline`].
    pub fn mark_clean(&self, broker_epoch: Option<i64>) -> Result<(), OpenError> {
        let text = match broker_epoch {
            Some(epoch) => format!("{{\"version\":0,\"brokerEpoch\":{epoch}}}"),
            None => "{\"version\":0}".to_owned(),
        };
        let disk = &*self.state.disk;
        let path = self.path().join(CLEAN_STOP);
        self.change("marking a clean stop", || checkpoint::replace(disk, &path, text.as_bytes()))
    }

    fn change<T>(&self, what: &str, change: impl FnOnce() -> io::Result<T>) -> Result<T, OpenError> {
        if self.is_offline() {
            return Err(OpenError::LogDirOffline);
        }
        change().map_err(|cause| {
            self.state.fail(what, &cause);
            OpenError::LogDirOffline
        })
    }

    fn io(&self, source: io::Error) -> LogDirError {
        LogDirError::Io { path: self.path().to_owned(), source }
    }
}

/// A checkpoint file of the dir: empty if there is none, `None` if it cannot be understood.
fn read_checkpoint(disk: &dyn Disk, path: &Path, name: &str) -> io::Result<Option<OffsetCheckpoint>> {
    let file = path.join(name);
    match checkpoint::read_offsets(disk, &file) {
        Ok(offsets) => Ok(Some(offsets.unwrap_or_default())),
        Err(CheckpointError::Io(error)) if error.kind() != io::ErrorKind::InvalidData => Err(error),
        Err(error) => {
            warn!(path = %file.display(), %error, "a checkpoint cannot be read; what it would tell is taken from the logs");
            Ok(None)
        }
    }
}

/// Reads `partition.metadata`; `None` if it is missing or says nothing.
fn read_topic_id(disk: &dyn Disk, dir: &Path) -> io::Result<Option<TopicId>> {
    let Some(bytes) = checkpoint::read_small(disk, &dir.join(PARTITION_METADATA))? else { return Ok(None) };
    Ok(parse_topic_id(&bytes))
}

/// The topic id in the text of a `partition.metadata`.
pub(crate) fn parse_topic_id(bytes: &[u8]) -> Option<TopicId> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut lines = text.lines();
    if lines.next()? != "version: 0" {
        return None;
    }
    TopicId::from_base64(lines.next()?.strip_prefix("topic_id: ")?)
}

fn write_topic_id(disk: &dyn Disk, dir: &Path, topic_id: TopicId) -> io::Result<()> {
    let text = format!("version: 0\ntopic_id: {topic_id}\n");
    checkpoint::replace(disk, &dir.join(PARTITION_METADATA), text.as_bytes())
}

/// As Kafka names a directory that is to go: `topic-3.<32 hex digits>-delete`, cut to what a file name may have.
fn aside_name(tp: &TopicPartition, incarnation: u64, number: u64, kind: &str) -> PathBuf {
    let suffix = format!("-{}.{incarnation:016x}{number:016x}{kind}", tp.partition);
    let topic = tp.topic.as_str();
    let kept = topic.len().min(FILE_NAME_LEN_MAX - suffix.len());
    PathBuf::from(format!("{}{suffix}", &topic[..kept]))
}

const LOCK: &str = ".lock";
const PARTITION_METADATA: &str = "partition.metadata";
const DELETED_DIR_SUFFIX: &str = "-delete";
const STRAY_DIR_SUFFIX: &str = "-stray";
const FILE_NAME_LEN_MAX: usize = 255;
const RESERVE_BYTES: u64 = 64 << 20;
