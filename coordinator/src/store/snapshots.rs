//! Snapshot files: written aside, synced, then renamed into place (REPLICATION R7).

use std::fs::{File, OpenOptions};
use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use thalweg_world::disk::create_dir_durable;

/// Holds the newest snapshot, and those that are being written.
pub struct Snapshots(Place);

enum Place {
    Memory(Mutex<Option<Arc<[u8]>>>),
    Dir { path: PathBuf, next: AtomicU64 },
}

/// One snapshot's bytes: being written, or to be read.
pub struct SnapshotFile(Content);

enum Content {
    Memory(Cursor<Vec<u8>>),
    Writing { file: File, path: PathBuf },
    Reading(File),
}

impl Snapshots {
    pub fn memory() -> Snapshots {
        Snapshots(Place::Memory(Mutex::new(None)))
    }

    /// Snapshots in a directory, which is made if need be. Unfinished ones of an earlier run are removed.
    ///
    /// # Errors
    /// The directory cannot be made, read or cleaned.
    pub fn in_dir(path: &Path) -> io::Result<Snapshots> {
        create_dir_durable(path)?;
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().ends_with(UNFINISHED) {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(Snapshots(Place::Dir { path: path.to_owned(), next: AtomicU64::new(0) }))
    }

    /// A new, empty file, gone if it is not published.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(&self) -> io::Result<SnapshotFile> {
        Ok(SnapshotFile(match &self.0 {
            Place::Memory(_) => Content::Memory(Cursor::default()),
            Place::Dir { path, next } => {
                let path = path.join(format!("{}{UNFINISHED}", next.fetch_add(1, Ordering::Relaxed)));
                let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
                Content::Writing { file, path }
            }
        }))
    }

    /// Makes a written file the newest snapshot: durable when this returns.
    ///
    /// # Errors
    /// It cannot be synced or renamed; the former snapshot stays.
    pub fn publish(&self, file: SnapshotFile) -> io::Result<()> {
        match (&self.0, &file.0) {
            (Place::Memory(newest), Content::Memory(bytes)) => {
                let bytes = Arc::from(bytes.get_ref().as_slice());
                *newest.lock().unwrap_or_else(PoisonError::into_inner) = Some(bytes);
                Ok(())
            }
            (Place::Dir { path: dir, .. }, Content::Writing { file, path }) => {
                file.sync_all()?;
                std::fs::rename(path, dir.join(NEWEST))?;
                File::open(dir)?.sync_all()
            }
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "this snapshot file was made by another store")),
        }
    }

    /// The newest snapshot, from its start; `None` if there is none.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open_newest(&self) -> io::Result<Option<SnapshotFile>> {
        match &self.0 {
            Place::Memory(newest) => {
                let newest = newest.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(newest.as_ref().map(|bytes| SnapshotFile(Content::Memory(Cursor::new(bytes.to_vec())))))
            }
            Place::Dir { path, .. } => match File::open(path.join(NEWEST)) {
                Ok(file) => Ok(Some(SnapshotFile(Content::Reading(file)))),
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(cause) => Err(cause),
            },
        }
    }

    pub(super) fn copy_memory(&self) -> Snapshots {
        match &self.0 {
            Place::Memory(newest) => {
                let newest = newest.lock().unwrap_or_else(PoisonError::into_inner).clone();
                Snapshots(Place::Memory(Mutex::new(newest)))
            }
            Place::Dir { .. } => Snapshots::memory(),
        }
    }
}

impl Read for SnapshotFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Content::Memory(bytes) => bytes.read(buffer),
            Content::Writing { file, .. } | Content::Reading(file) => file.read(buffer),
        }
    }
}

impl Write for SnapshotFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Content::Memory(written) => written.write(bytes),
            Content::Writing { file, .. } | Content::Reading(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for SnapshotFile {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        match &mut self.0 {
            Content::Memory(bytes) => bytes.seek(position),
            Content::Writing { file, .. } | Content::Reading(file) => file.seek(position),
        }
    }
}

impl Drop for SnapshotFile {
    fn drop(&mut self) {
        if let Content::Writing { path, .. } = &self.0 {
            // Fails after it was published, which is fine; a leftover is removed at the next start.
            drop(std::fs::remove_file(path));
        }
    }
}

const NEWEST: &str = "newest.snapshot";
const UNFINISHED: &str = ".unfinished";
