//! The log directories of this broker: identity, recovery, placement.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use thalweg_model::{NodeId, Offset, TopicId, TopicPartition};
use thalweg_proto::v1;
use thalweg_storage::checkpoint::OffsetCheckpoint;
use thalweg_storage::{
    DirIdentity, LogConfig, LogDir, LogDirConfig, LogDirError, OpenError, PartitionLog, Registration, checkpoint,
};
use thalweg_world::disk::Disk;
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::Readiness;

/// Every usable log directory.
#[derive(Debug)]
pub struct Dirs {
    disk: Arc<dyn Disk>,
    dirs: Vec<Arc<LogDir>>,
    /// High watermarks as the last life left them: lower bounds.
    high_watermarks: Vec<OffsetCheckpoint>,
    /// How many partitions each directory holds, in the order of `dirs`.
    loads: Vec<AtomicUsize>,
    /// A configured directory could not be opened: what it holds is not known.
    is_short: bool,
    /// Of this life; -1 before it is registered.
    broker_epoch: AtomicI64,
}

/// Who this broker is, as its directories say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub cluster_id: String,
    pub node_id: NodeId,
}

/// A log as it was found at start, before anybody has said what it is for.
#[derive(Debug)]
pub struct FoundLog {
    pub dir: Arc<LogDir>,
    pub log: PartitionLog,
}

/// What the directories say of this broker; `None` before its first registration.
///
/// # Errors
/// A directory cannot be read, or its identity is none.
pub fn stored_identity(disk: &dyn Disk, paths: &[PathBuf]) -> Result<Option<Identity>, LogDirError> {
    let mut failed = None;
    for path in paths {
        let file = path.join("meta.properties");
        let bytes = match checkpoint::read_small(disk, &file) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => continue,
            // Another may tell. Who has nothing but a broken disk and empty ones is not a new broker.
            Err(source) => {
                failed = Some(LogDirError::Io { path: path.clone(), source });
                continue;
            }
        };
        let text = String::from_utf8_lossy(&bytes);
        let property = |key: &str| {
            let mut pairs = text.lines().filter_map(|line| line.split_once('='));
            pairs.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned())
        };
        // The directory checks the rest when it is opened.
        match (property("cluster.id"), property("node.id").and_then(|id| id.parse().ok())) {
            (Some(cluster_id), Some(id)) => return Ok(Some(Identity { cluster_id, node_id: NodeId(id) })),
            _ => {
                let detail = "it names no cluster or no node".to_owned();
                return Err(LogDirError::Malformed { path: file, detail });
            }
        }
    }
    failed.map_or(Ok(None), Err)
}

/// What registration says of a directory that does not exist yet.
pub fn new_directory_ids(count: usize) -> Vec<TopicId> {
    (0..count).map(|_| TopicId(*uuid::Uuid::new_v4().as_bytes())).collect()
}

/// The kernel's id of this boot; empty where the kernel has none, which never counts as the same boot.
pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

impl Dirs {
    /// Opens every directory. One whose disk fails is left out as long as another works.
    ///
    /// # Errors
    /// A directory is in use, foreign or damaged, or none works.
    pub fn open(
        disk: Arc<dyn Disk>,
        paths: &[PathBuf],
        identity: &Identity,
        new_ids: &[TopicId],
        reserve_bytes: u64,
    ) -> Result<Dirs, LogDirError> {
        let mut dirs = Vec::new();
        let mut failed = None;
        for (path, new_directory_id) in paths.iter().zip(new_ids) {
            let identity = DirIdentity {
                cluster_id: identity.cluster_id.clone(),
                node_id: identity.node_id,
                boot_id: boot_id(),
                new_directory_id: *new_directory_id,
            };
            match LogDir::open(Arc::clone(&disk), path, &identity, LogDirConfig { reserve_bytes }) {
                Ok(dir) => dirs.push(Arc::new(dir)),
                Err(error @ (LogDirError::Io { .. } | LogDirError::Offline { .. })) => {
                    error!(%error, "a log directory is left out");
                    failed = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        let is_short = failed.is_some();
        if let (true, Some(error)) = (dirs.is_empty(), failed) {
            return Err(error);
        }
        let told: Vec<TopicId> = dirs.iter().flat_map(|dir| dir.failed_others().iter().copied()).collect();
        let mut high_watermarks = Vec::new();
        for dir in &dirs {
            if told.contains(&dir.directory_id()) {
                dir.doubt();
            }
            if dir.is_doubtful() {
                warn!(dir = %dir.path().display(), "the disk failed in an earlier life; unflushed records are written anew");
            }
            high_watermarks.push(dir.high_watermarks().unwrap_or_else(|error| {
                warn!(%error, "high watermarks cannot be read; leaders will tell");
                OffsetCheckpoint::default()
            }));
        }
        let loads = dirs.iter().map(|_| AtomicUsize::new(0)).collect();
        let dirs = Dirs { disk, dirs, high_watermarks, loads, is_short, broker_epoch: AtomicI64::new(-1) };
        dirs.remove_deleted();
        Ok(dirs)
    }

    /// Whether every configured directory works. Otherwise a log that is not here may be in one that does not.
    pub fn is_whole(&self) -> bool {
        !self.is_short && !self.dirs.iter().any(|dir| dir.is_offline())
    }

    /// Whether the next life will know of every directory that has failed, from one directory or another. Blocks on disks.
    pub fn note_failures(&self) -> bool {
        let failed: Vec<&Arc<LogDir>> = self.dirs.iter().filter(|dir| dir.is_offline()).collect();
        let is_noted = |dir: &&Arc<LogDir>| {
            let mut others = self.dirs.iter().filter(|other| !other.is_offline());
            dir.notes_its_failure() || others.any(|other| other.note_failure_of(dir.directory_id()).is_ok())
        };
        failed.iter().filter(|dir| !is_noted(dir)).count() == 0
    }

    /// The coordinator knows of the failures of earlier lives. Blocks on disks.
    pub fn forget_failures(&self) {
        for dir in &self.dirs {
            if let Err(error) = dir.forget_failures() {
                warn!(%error, dir = %dir.path().display(), "the next life will hear of an old failure again");
            }
        }
    }

    pub fn all(&self) -> &[Arc<LogDir>] {
        &self.dirs
    }

    /// The largest number of lives that any directory has seen, this one included.
    pub fn incarnation(&self) -> u64 {
        self.dirs.iter().map(|dir| dir.incarnation()).max().unwrap_or(1)
    }

    /// As registration tells them to the coordinator.
    pub fn describe(&self) -> Vec<v1::LogDir> {
        let describe = |dir: &Arc<LogDir>| v1::LogDir {
            dir_id: dir.directory_id().0.to_vec().into(),
            clean: dir.clean_stop().is_some(),
            clean_broker_epoch: dir.clean_stop().and_then(|stop| stop.broker_epoch).unwrap_or(-1),
            io_error: dir.is_offline() || dir.is_doubtful(),
            last_broker_epoch: dir.last_registration().map(|last| last.broker_epoch),
        };
        self.dirs.iter().map(describe).collect()
    }

    pub fn cluster_id(&self) -> Option<String> {
        self.dirs.first().map(|dir| dir.meta().cluster_id.clone())
    }

    /// How far the registries went at least, as earlier lives knew.
    pub fn metadata_index(&self) -> u64 {
        self.dirs.iter().filter_map(|dir| dir.last_registration()).map(|last| last.metadata_index).max().unwrap_or(0)
    }

    /// Remembers this life's registration. Blocks on disks.
    pub fn write_registration(&self, broker_epoch: i64, metadata_index: u64) {
        self.broker_epoch.store(broker_epoch, Ordering::Relaxed);
        self.write_metadata_index(metadata_index);
    }

    /// Remembers how far the registries went at least. Blocks on disks.
    pub fn write_metadata_index(&self, metadata_index: u64) {
        let registration = Registration { broker_epoch: self.broker_epoch.load(Ordering::Relaxed), metadata_index };
        for dir in self.dirs.iter().filter(|dir| !dir.is_offline()) {
            if let Err(error) = dir.write_registration(registration) {
                error!(%error, dir = %dir.path().display(), "the registration cannot be remembered");
            }
        }
    }

    pub fn offline_ids(&self) -> Vec<TopicId> {
        self.dirs.iter().filter(|dir| dir.is_offline()).map(|dir| dir.directory_id()).collect()
    }

    pub fn high_watermark(&self, tp: &TopicPartition) -> Offset {
        self.high_watermarks.iter().find_map(|stored| stored.get(tp)).unwrap_or(Offset::ZERO)
    }

    /// Opens every partition that is here, on several threads per directory. Blocks. Logs that cannot be opened are left
    /// alone and named in the log.
    pub fn recover(&self, threads_per_dir: usize, progress: &watch::Sender<Readiness>) -> Vec<FoundLog> {
        let mut jobs = Vec::new();
        for dir in &self.dirs {
            match dir.partitions() {
                Ok(found) => jobs.extend(found.into_iter().map(|found| (Arc::clone(dir), found))),
                Err(error) => error!(%error, "the partitions of a log directory cannot be listed"),
            }
        }
        let total = jobs.len();
        let threads = (threads_per_dir.max(1) * self.dirs.len()).min(total);
        let jobs = Mutex::new(jobs.into_iter());
        let found = Mutex::new(Vec::with_capacity(total));
        let done = AtomicUsize::new(0);
        progress.send_replace(Readiness::Recovering { done: 0, total });
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let job = jobs.lock().expect("no code panics while it holds this lock").next();
                        let Some((dir, partition)) = job else { return };
                        // Without an id it is a creation that did not finish; it is opened when the id is known.
                        if let Some(id) = partition.topic_id {
                            match dir.open_partition(&partition.tp, id, LogConfig::default()) {
                                Ok(log) => {
                                    let mut found = found.lock().expect("no code panics while it holds this lock");
                                    found.push(FoundLog { dir, log });
                                }
                                Err(error) => error!(tp = %partition.tp, %error, "a log cannot be opened"),
                            }
                        }
                        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                        progress.send_replace(Readiness::Recovering { done, total });
                    }
                });
            }
        });
        let found = found.into_inner().expect("no thread panics while it holds this lock");
        if total > 0 {
            let scanned_bytes: u64 = found.iter().map(|found| found.log.recovery_report().scanned_bytes).sum();
            info!(total, opened = found.len(), scanned_bytes, "logs opened");
        }
        found
    }

    /// The directory that a new partition goes to: the one with the fewest.
    pub fn place(&self) -> Option<Arc<LogDir>> {
        let working = self.dirs.iter().zip(&self.loads).filter(|(dir, _)| !dir.is_offline());
        let (dir, load) = working.min_by_key(|(_, load)| load.load(Ordering::Relaxed))?;
        load.fetch_add(1, Ordering::Relaxed);
        Some(Arc::clone(dir))
    }

    /// Counts a partition that was there before.
    pub fn count(&self, path: &Path) {
        let at = self.dirs.iter().position(|dir| dir.path() == path);
        if let Some(load) = at.and_then(|at| self.loads.get(at)) {
            load.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn at(&self, path: &Path) -> Option<&Arc<LogDir>> {
        self.dirs.iter().find(|dir| dir.path() == path)
    }

    /// Deletes a partition's files; its log must be closed.
    pub fn delete(&self, path: &Path, tp: &TopicPartition) {
        let Some(at) = self.dirs.iter().position(|dir| dir.path() == path) else { return };
        self.loads[at].fetch_sub(1, Ordering::Relaxed);
        let deleted = self.dirs[at].delete_partition(tp);
        match deleted {
            Ok(()) => info!(%tp, "partition deleted"),
            Err(OpenError::NotFound { .. }) => {}
            Err(error) => error!(%tp, %error, "a partition cannot be deleted"),
        }
    }

    /// Frees the space of what was deleted.
    pub fn remove_deleted(&self) {
        for dir in self.dirs.iter().filter(|dir| !dir.is_offline()) {
            if let Err(error) = dir.remove_deleted() {
                warn!(%error, "deleted partitions still take space");
            }
        }
    }

    pub fn free_bytes(&self, path: &Path) -> Option<u64> {
        self.disk.free_bytes(path).ok()
    }

    pub fn total_bytes(&self, path: &Path) -> Option<u64> {
        self.disk.total_bytes(path).ok()
    }
}
