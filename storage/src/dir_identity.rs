//! Whose a log dir is, and which of its lives this is.

use std::io;
use std::path::Path;

use thalweg_model::{NodeId, TopicId, TopicPartition};
use thalweg_world::disk::Disk;

use crate::checkpoint;
use crate::error::LogDirError;
use crate::meta_properties::{self, MetaError, MetaProperties};

/// Who opens a log dir.
#[derive(Clone, Debug)]
pub struct DirIdentity {
    pub cluster_id: String,
    pub node_id: NodeId,
    /// The kernel's, of this boot: what was in the page cache is still there if it has not changed (REPLICATION B2).
    pub boot_id: String,
    /// Random; becomes the directory's id if it has none yet.
    pub new_directory_id: TopicId,
}

/// The last life of this directory ended with everything synced (REPLICATION B1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanStop {
    /// Of that life; `None` if it had none.
    pub broker_epoch: Option<i64>,
}

/// Makes the directory and what is missing above it, durably: also when another life made it and did not come to sync it.
pub(crate) fn make_dir(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    let is_missing = |dir: &Path| matches!(disk.list(dir), Err(error) if error.kind() == io::ErrorKind::NotFound);
    let above = path.ancestors().skip(1).filter(|dir| !dir.as_os_str().is_empty());
    let mut to_sync = Vec::new();
    for dir in above {
        to_sync.push(dir);
        if !is_missing(dir) {
            break;
        }
    }
    disk.create_dir_all(path)?;
    to_sync.into_iter().rev().try_for_each(|dir| disk.sync_dir(dir))
}

/// Reads and compares `meta.properties`; writes it on first use.
pub(crate) fn check_meta(disk: &dyn Disk, path: &Path, identity: &DirIdentity) -> Result<MetaProperties, LogDirError> {
    let io = |source| LogDirError::Io { path: path.to_owned(), source };
    let file = path.join(META);
    let malformed = |detail: String| LogDirError::Malformed { path: file.clone(), detail };
    let stored = match checkpoint::read_small(disk, &file).map_err(io)? {
        Some(bytes) => Some(MetaProperties::parse(&bytes).map_err(|error| match error {
            MetaError::NewerVersion(version) => LogDirError::NewerVersion { path: path.to_owned(), version },
            MetaError::Malformed(detail) => malformed(detail),
        })?),
        None => None,
    };
    let Some(mut meta) = stored else {
        // A disk that lost its identity must not pass for a new one.
        let entries = disk.list(path).map_err(io)?;
        if entries.iter().any(|entry| entry.is_dir && TopicPartition::from_dir_name(&entry.name).is_some()) {
            return Err(malformed("it is missing, but there are partitions".to_owned()));
        }
        let directory_id = Some(identity.new_directory_id);
        let meta = MetaProperties { cluster_id: identity.cluster_id.clone(), node_id: identity.node_id, directory_id };
        checkpoint::replace(disk, &file, meta.encode().as_bytes()).map_err(io)?;
        return Ok(meta);
    };
    if meta.cluster_id != identity.cluster_id {
        let (found, expected) = (meta.cluster_id, identity.cluster_id.clone());
        return Err(LogDirError::OtherCluster { path: path.to_owned(), found, expected });
    }
    if meta.node_id != identity.node_id {
        let (found, expected) = (meta.node_id.0, identity.node_id.0);
        return Err(LogDirError::OtherNode { path: path.to_owned(), found, expected });
    }
    if meta.directory_id.is_none() {
        meta.directory_id = Some(identity.new_directory_id);
        checkpoint::replace(disk, &file, meta.encode().as_bytes()).map_err(io)?;
    }
    Ok(meta)
}

/// Reads the mark of a clean stop and removes it, durably.
pub(crate) fn take_clean_stop(disk: &dyn Disk, path: &Path) -> io::Result<Option<CleanStop>> {
    let file = path.join(CLEAN_STOP);
    let Some(bytes) = checkpoint::read_small(disk, &file)? else { return Ok(None) };
    disk.remove_file(&file)?;
    disk.sync_dir(path)?;
    Ok(Some(CleanStop { broker_epoch: broker_epoch(&bytes) }))
}

/// The number after `"brokerEpoch":`, the one field of that file that matters.
fn broker_epoch(bytes: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (_, after) = text.split_once("\"brokerEpoch\"")?;
    let digits = after.trim_start().strip_prefix(':')?.trim_start();
    let end = digits.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(digits.len());
    digits[..end].parse().ok().filter(|epoch| *epoch >= 0)
}

/// Counts this life, durably; tells whether the last one was in the same boot.
pub(crate) fn next_incarnation(
    disk: &dyn Disk,
    path: &Path,
    identity: &DirIdentity,
) -> Result<(u64, bool), LogDirError> {
    let file = path.join(INCARNATION);
    let io = |source| LogDirError::Io { path: file.clone(), source };
    let (last, last_boot) = match checkpoint::read_small(disk, &file).map_err(io)? {
        None => (0, None),
        Some(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let number = meta_properties::property(&text, "incarnation").and_then(|number| number.parse::<u64>().ok());
            let detail = "it holds no incarnation number".to_owned();
            let number = number.ok_or(LogDirError::Malformed { path: file.clone(), detail })?;
            (number, meta_properties::property(&text, "boot.id"))
        }
    };
    let incarnation = last.saturating_add(1);
    let text = format!("version=1\nincarnation={incarnation}\nboot.id={}\n", identity.boot_id);
    checkpoint::replace(disk, &file, text.as_bytes()).map_err(io)?;
    Ok((incarnation, last_boot.as_ref() == Some(&identity.boot_id)))
}

const META: &str = "meta.properties";
pub(crate) const CLEAN_STOP: &str = ".kafka_cleanshutdown";
/// Ours: Kafka counts a broker's lives in its controller.
const INCARNATION: &str = "thalweg.properties";
