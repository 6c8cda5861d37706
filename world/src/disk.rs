//! Files and directories, real and simulated.
//!
//! The shape is what a log needs and no more: positioned writes, explicit syncs of data and of
//! directories, and a file descriptor for sendfile. Nothing is durable before it is synced: neither
//! bytes ([`DiskFile::sync_data`]) nor names ([`Disk::sync_dir`]).

use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use thalweg_model::Timestamp;

mod real;
mod sim;

pub use real::{RealDisk, create_dir_durable};
pub use sim::{Fault, Operation, PendingOp, SimDisk, Survival};

/// A file system.
pub trait Disk: fmt::Debug + Send + Sync {
    /// # Errors
    /// `NotFound`, `AlreadyExists` (for [`OpenMode::CreateNew`]), and whatever the file system says.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;

    /// Creates a directory and its missing parents; fine if it exists. Durable once the parents are synced.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Replaces `to` if it exists. Atomic; durable once the directory is synced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// The file stays readable through handles that are open.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory with all that it contains.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// What a directory holds, in the order of names. Names that are no UTF-8 are left out.
    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>>;

    /// Bytes that an unprivileged process can still write on the file system of `path`.
    fn free_bytes(&self, path: &Path) -> io::Result<u64>;

    /// Bytes of the file system of `path`, free or not.
    fn total_bytes(&self, path: &Path) -> io::Result<u64>;

    /// Locks a file, created if missing, until the answer is dropped.
    ///
    /// # Errors
    /// `WouldBlock` if another process, or another holder in this one, has it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>>;
}

/// An open file. All positions are absolute, so that one handle serves many threads.
pub trait DiskFile: fmt::Debug + Send + Sync {
    /// Writes all of `bytes`, or fails having written any part of them.
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()>;

    /// As [`DiskFile::write_at`], for the concatenation of `parts`.
    fn write_vectored_at(&self, parts: &[IoSlice<'_>], position: u64) -> io::Result<()>;

    /// Fills `buffer` as far as the file goes; returns how many bytes that were.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;

    /// Makes the file's bytes and length durable.
    fn sync_data(&self) -> io::Result<()>;

    fn set_len(&self, len: u64) -> io::Result<()>;

    fn len(&self) -> io::Result<u64>;

    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// When the file was last written, by the wall clock; `None` if that is not known.
    fn modified(&self) -> io::Result<Option<Timestamp>>;

    /// For sendfile; `None` if the kernel does not know this file.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
}

/// Holds a lock until dropped.
pub trait DiskLock: fmt::Debug + Send + Sync {}

/// How to open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    Read,
    /// For reading and writing; the file must exist.
    Write,
    /// For reading and writing; created if missing.
    CreateOrWrite,
    /// For reading and writing; must not exist yet.
    CreateNew,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    pub name: String,
    pub is_dir: bool,
    /// Bytes; 0 for a directory.
    pub len: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: code that runs on one disk runs on the other. Method: one walk through the trait on both.
    fn walk(disk: &dyn Disk, root: &Path) {
        let dir = root.join("a/b");
        disk.create_dir_all(&dir).unwrap();
        let path = dir.join("f");
        assert_eq!(disk.open(&path, OpenMode::Read).unwrap_err().kind(), io::ErrorKind::NotFound);
        let file = disk.open(&path, OpenMode::CreateNew).unwrap();
        assert_eq!(disk.open(&path, OpenMode::CreateNew).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        file.write_at(b"0123", 0).unwrap();
        let parts: Vec<[u8; 2]> = (0..1500u16).map(u16::to_be_bytes).collect();
        let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        file.write_vectored_at(&slices, 4).unwrap();
        assert_eq!(file.len().unwrap(), 4 + 3000);
        let mut buffer = [0; 6];
        assert_eq!(file.read_at(&mut buffer, 4 + 2 * 1497).unwrap(), 6);
        assert_eq!(buffer, [5, 0xd9, 5, 0xda, 5, 0xdb]);
        assert_eq!(file.read_at(&mut buffer, 3002).unwrap(), 2);
        file.set_len(4).unwrap();
        file.sync_data().unwrap();
        disk.sync_dir(&dir).unwrap();
        disk.rename(&path, &dir.join("g")).unwrap();
        disk.create_dir_all(&dir.join("z")).unwrap();
        let entries = disk.list(&dir).unwrap();
        let f = DirEntry { name: "g".into(), is_dir: false, len: 4 };
        assert_eq!(entries, [f, DirEntry { name: "z".into(), is_dir: true, len: 0 }]);
        let free_bytes = disk.free_bytes(root).unwrap();
        assert!(free_bytes > 0 && disk.total_bytes(root).unwrap() >= free_bytes);

        let lock = disk.lock(&root.join("lock")).unwrap();
        assert_eq!(disk.lock(&root.join("lock")).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(lock);
        disk.lock(&root.join("lock")).unwrap();

        disk.remove_file(&dir.join("g")).unwrap();
        disk.remove_dir_all(&root.join("a")).unwrap();
        assert_eq!(disk.list(&dir).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn both_disks_behave_alike() {
        let root = tempfile::tempdir().unwrap();
        walk(&RealDisk, root.path());
        walk(&SimDisk::new(), Path::new("/"));
    }

    #[test]
    fn a_real_file_has_a_descriptor_and_a_time() {
        let root = tempfile::tempdir().unwrap();
        let file = RealDisk.open(&root.path().join("f"), OpenMode::CreateNew).unwrap();
        assert!(file.fd().is_some());
        assert!(file.modified().unwrap().unwrap().0 > 1_700_000_000_000);
    }
}
