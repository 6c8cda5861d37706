//! The machine's file system.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use rustix::fs::FlockOperation;
use thalweg_model::Timestamp;

use super::{DirEntry, Disk, DiskFile, DiskLock, OpenMode};

/// Plain files through the kernel's page cache.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true);
        match mode {
            OpenMode::Read => {}
            OpenMode::Write => {
                options.write(true);
            }
            OpenMode::CreateOrWrite => {
                options.write(true).create(true);
            }
            OpenMode::CreateNew => {
                options.write(true).create_new(true);
            }
        }
        Ok(Arc::new(RealFile(options.open(path)?)))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            // A file may be deleted between the listing and this look.
            let metadata = match entry.metadata() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                other => other?,
            };
            let len = if metadata.is_dir() { 0 } else { metadata.len() };
            entries.push(DirEntry { name, is_dir: metadata.is_dir(), len });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(path)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn total_bytes(&self, path: &Path) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(path)?;
        Ok(stat.f_blocks.saturating_mul(stat.f_frsize))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        // flock keeps out a second holder in this process as well; the record lock is the one that
        // the JVM takes, so that a Kafka broker and we keep out of each other's directories.
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        match rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Box::new(RealLock(file))),
            Err(rustix::io::Errno::ACCESS) => Err(io::ErrorKind::WouldBlock.into()),
            Err(error) => Err(error.into()),
        }
    }
}

#[derive(Debug)]
struct RealFile(File);

impl DiskFile for RealFile {
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, position)
    }

    fn write_vectored_at(&self, parts: &[IoSlice<'_>], position: u64) -> io::Result<()> {
        let mut at = position;
        for chunk in parts.chunks(IOV_MAX) {
            write_chunk(&self.0, chunk, at)?;
            at += chunk.iter().map(|part| part.len() as u64).sum::<u64>();
        }
        Ok(())
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.0.read_at(&mut buffer[filled..], position + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn modified(&self) -> io::Result<Option<Timestamp>> {
        let since = self.0.metadata()?.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(i64::try_from(since.as_millis()).ok().map(Timestamp))
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

/// The file keeps both locks until it is closed.
#[derive(Debug)]
struct RealLock(#[expect(dead_code, reason = "held, never read")] File);

impl DiskLock for RealLock {}

/// Writes up to [`IOV_MAX`] parts; the rest of a short write goes out part by part.
fn write_chunk(file: &File, parts: &[IoSlice<'_>], position: u64) -> io::Result<()> {
    let mut written = loop {
        match rustix::io::pwritev(file, parts, position) {
            Ok(count) => break count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    };
    let mut at = position + written as u64;
    for part in parts {
        if written >= part.len() {
            written -= part.len();
            continue;
        }
        file.write_all_at(&part[written..], at)?;
        at += (part.len() - written) as u64;
        written = 0;
    }
    Ok(())
}

/// What Linux takes in one call.
const IOV_MAX: usize = 1024;
/// Makes a directory and those above it that are missing. When this returns, the names of all of them survive a loss of
/// power.
///
/// A directory that was there may be one whose maker died before its name was synced, so it is synced again.
///
/// # Errors
/// What the file system says. An existing directory above which we may not look is taken as it is.
pub fn create_dir_durable(path: &Path) -> io::Result<()> {
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Ok(()),
    };
    let was_there = path.is_dir();
    if !was_there {
        if !parent.is_dir() {
            create_dir_durable(parent)?;
        }
        // Another process may be faster.
        fs::create_dir_all(path)?;
    }
    match File::open(parent).and_then(|parent| parent.sync_all()) {
        Err(error) if was_there && error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        other => other,
    }
}
