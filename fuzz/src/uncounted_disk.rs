//! A simulated disk whose own memory does not count: what is left is what the code on top of it takes.
//!
//! What a call hands out is the caller's to free, and so is made again outside; what the disk
//! keeps for a handle goes the way it came. Otherwise a free would make room that nobody gave back.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use thalweg_model::Timestamp;
use thalweg_world::disk::{DirEntry, Disk, DiskFile, DiskLock, OpenMode, SimDisk};

use super::counting_allocator::Count;

/// See the module's page. The [`SimDisk`] itself must live longer.
#[derive(Debug)]
pub struct UncountedDisk(pub SimDisk);

#[derive(Debug)]
struct UncountedFile(Option<Arc<dyn DiskFile>>);

#[derive(Debug)]
struct UncountedLock(Option<Box<dyn DiskLock>>);

/// Runs `work`; the thread's count is afterwards what it was before, its peak included.
fn exempt<T>(work: impl FnOnce() -> T) -> T {
    let before = Count::get();
    let result = work();
    before.set();
    result
}

/// As [`exempt`], for calls that may fail: an error must own nothing that was not counted.
fn exempt_io<T>(work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    exempt(|| work().map_err(|error| error.kind())).map_err(io::Error::from)
}

impl Disk for UncountedDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let file = exempt_io(|| self.0.open(path, mode))?;
        Ok(Arc::new(UncountedFile(Some(file))))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        exempt_io(|| self.0.create_dir_all(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        exempt_io(|| self.0.rename(from, to))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        exempt_io(|| self.0.remove_file(path))
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        exempt_io(|| self.0.remove_dir_all(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        exempt_io(|| self.0.sync_dir(path))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let theirs = exempt_io(|| self.0.list(path))?;
        let counted = theirs.clone();
        exempt(|| drop(theirs));
        Ok(counted)
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        exempt_io(|| self.0.free_bytes(path))
    }

    fn total_bytes(&self, path: &Path) -> io::Result<u64> {
        exempt_io(|| self.0.total_bytes(path))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        let lock = exempt_io(|| self.0.lock(path))?;
        Ok(Box::new(UncountedLock(Some(lock))))
    }
}

impl UncountedFile {
    fn file(&self) -> &dyn DiskFile {
        self.0.as_deref().expect("only dropping takes it out")
    }
}

impl DiskFile for UncountedFile {
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        exempt_io(|| self.file().write_at(bytes, position))
    }

    fn write_vectored_at(&self, parts: &[IoSlice<'_>], position: u64) -> io::Result<()> {
        exempt_io(|| self.file().write_vectored_at(parts, position))
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        exempt_io(|| self.file().read_at(buffer, position))
    }

    fn sync_data(&self) -> io::Result<()> {
        exempt_io(|| self.file().sync_data())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        exempt_io(|| self.file().set_len(len))
    }

    fn len(&self) -> io::Result<u64> {
        exempt_io(|| self.file().len())
    }

    fn modified(&self) -> io::Result<Option<Timestamp>> {
        exempt_io(|| self.file().modified())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.file().fd()
    }
}

impl Drop for UncountedFile {
    fn drop(&mut self) {
        exempt(|| self.0 = None);
    }
}

impl DiskLock for UncountedLock {}

impl Drop for UncountedLock {
    fn drop(&mut self) {
        exempt(|| self.0 = None);
    }
}
