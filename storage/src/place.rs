//! Where a log lives, and how its files are called.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use thalweg_model::Offset;
use thalweg_world::disk::{Disk, DiskFile, OpenMode};

/// A partition's directory on a disk.
#[derive(Debug)]
pub(crate) struct Place {
    pub disk: Arc<dyn Disk>,
    pub dir: PathBuf,
    /// The log has been dropped: from now on the directory may be renamed and deleted.
    closed: AtomicBool,
}

impl Place {
    pub fn new(disk: Arc<dyn Disk>, dir: PathBuf) -> Place {
        Place { disk, dir, closed: AtomicBool::new(false) }
    }

    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    pub fn path(&self, base_offset: Offset, suffix: &str) -> PathBuf {
        self.dir.join(file_name(base_offset, suffix))
    }

    pub fn open(&self, base_offset: Offset, suffix: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.open(&self.path(base_offset, suffix), mode)
    }

    /// Removes a file; returns whether it was there.
    pub fn remove(&self, base_offset: Offset, suffix: &str) -> io::Result<bool> {
        self.remove_named(&file_name(base_offset, suffix))
    }

    pub fn remove_named(&self, name: &str) -> io::Result<bool> {
        match self.disk.remove_file(&self.dir.join(name)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes the names in the directory durable. A flush may outlast its log, and a deleted partition has no names to keep.
    pub fn sync_dir(&self) -> io::Result<()> {
        match self.disk.sync_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.closed.load(Ordering::Acquire) => Ok(()),
            other => other,
        }
    }
}

/// `00000000000000000042.log`
pub(crate) fn file_name(base_offset: Offset, suffix: &str) -> String {
    format!("{:020}{suffix}", base_offset.0)
}

/// Reads what [`file_name`] writes; `None` for any other name.
pub(crate) fn offset_of(name: &str, suffix: &str) -> Option<Offset> {
    let digits = name.strip_suffix(suffix)?;
    if digits.len() != 20 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().map(Offset)
}

pub(crate) const LOG: &str = ".log";
pub(crate) const OFFSET_INDEX: &str = ".index";
pub(crate) const TIME_INDEX: &str = ".timeindex";
pub(crate) const TXN_INDEX: &str = ".txnindex";
pub(crate) const SNAPSHOT: &str = ".snapshot";
/// What Kafka appends to a segment's files before it deletes them.
pub(crate) const DELETED: &str = ".deleted";
/// What Kafka appends to a file that compaction is writing.
pub(crate) const CLEANED: &str = ".cleaned";
/// What Kafka appends to a finished file of compaction that is to take its place.
pub(crate) const SWAP: &str = ".swap";

/// The files that belong to one segment and can be made again from its `.log`.
pub(crate) const DERIVED: [&str; 3] = [OFFSET_INDEX, TIME_INDEX, TXN_INDEX];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_twenty_digits() {
        assert_eq!(file_name(Offset(42), LOG), "00000000000000000042.log");
        assert_eq!(offset_of("00000000000000000042.log", LOG), Some(Offset(42)));
        for name in
            ["42.log", "0000000000000000004x.log", "00000000000000000042.log.deleted", "99999999999999999999.log"]
        {
            assert_eq!(offset_of(name, LOG), None, "{name}");
        }
    }
}
