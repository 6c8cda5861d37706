//! The files of an export: what they are called, and how one comes into being whole or not at all.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use thalweg_model::{Offset, TopicPartition};

use super::Format;

/// The offsets that a file answers for, both inclusive. Some may have no record: compaction and transactions leave gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Covered {
    pub first: Offset,
    pub last: Offset,
}

/// The folder of an export. While it is open no other export writes there.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Locked.
    handle: File,
}

/// A file that is being written under a name of its own. Dropped: removed.
#[derive(Debug)]
pub struct Unfinished {
    path: PathBuf,
    is_finished: bool,
}

impl Folder {
    /// Opens it, and makes it if need be.
    ///
    /// # Errors
    /// Another export writes there, or the system's.
    pub fn open(path: &Path) -> io::Result<Folder> {
        make_durable(path)?;
        // Two names of one folder are one folder: the name is stored with the group.
        let path = path.canonicalize()?;
        let handle = File::open(&path)?;
        flock(&handle, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            rustix::io::Errno::WOULDBLOCK => io::Error::other("another thalweg export writes there; wait for its end"),
            other => other.into(),
        })?;
        Ok(Folder { path, handle })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Finished files of a partition, in any order.
    ///
    /// # Errors
    /// The system's.
    pub fn finished(&self, tp: &TopicPartition, format: Format) -> io::Result<Vec<Covered>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            found.extend(name.to_str().and_then(|name| covered_by(name, tp, format)));
        }
        Ok(found)
    }

    /// Removes what killed exports of the partition left half written.
    ///
    /// # Errors
    /// The system's.
    pub fn remove_unfinished(&self, tp: &TopicPartition) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if entry.file_name().to_str().is_some_and(|name| name == unfinished_name(tp)) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// A new file for records of the partition, under a name that no reader of finished files takes for one.
    ///
    /// # Errors
    /// The system's.
    pub fn create(&self, tp: &TopicPartition) -> io::Result<(File, Unfinished)> {
        let path = self.path.join(unfinished_name(tp));
        let file = File::create(&path)?;
        Ok((file, Unfinished { path, is_finished: false }))
    }

    /// Gives a file that is on disk whole its name, for good when this returns.
    ///
    /// # Errors
    /// The system's. The name may be there then, and may be gone after a power cut.
    pub fn finish(&self, mut unfinished: Unfinished, path: &Path) -> io::Result<()> {
        fs::rename(&unfinished.path, path)?;
        unfinished.is_finished = true;
        self.sync()
    }

    /// Returns when every name in the folder is durable.
    ///
    /// # Errors
    /// The system's.
    pub fn sync(&self) -> io::Result<()> {
        self.handle.sync_all()
    }

    /// The finished file's path. Names sort as offsets do.
    pub fn path_of(&self, tp: &TopicPartition, covered: Covered, format: Format) -> PathBuf {
        let (first, last, ending) = (covered.first.0, covered.last.0, format.ending());
        self.path.join(format!("{}-{}-{first:020}-{last:020}.{ending}", tp.topic, tp.partition))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.is_finished {
            // Left behind it is removed by the next export.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The offsets in a finished file's name; `None` if it is another partition's, or something else.
fn covered_by(name: &str, tp: &TopicPartition, format: Format) -> Option<Covered> {
    let stem = name.strip_suffix(format.ending())?.strip_suffix('.')?;
    let offsets = stem.strip_prefix(&format!("{}-{}-", tp.topic, tp.partition))?;
    let (first, last) = offsets.split_once('-')?;
    let number = |text: &str| -> Option<Offset> {
        let is_ours = text.len() == 20 && text.bytes().all(|byte| byte.is_ascii_digit());
        is_ours.then(|| text.parse().ok().map(Offset)).flatten()
    };
    let covered = Covered { first: number(first)?, last: number(last)? };
    (covered.first <= covered.last).then_some(covered)
}

/// Begins with a dot, so that `*` does not name it.
fn unfinished_name(tp: &TopicPartition) -> String {
    format!(".{}-{}.unfinished", tp.topic, tp.partition)
}

/// Makes a folder and those above it, durably.
fn make_durable(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    make_durable(parent)?;
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists || !path.is_dir() => Err(error),
        _ => File::open(parent)?.sync_all(),
    }
}

#[cfg(test)]
mod tests {
    use thalweg_client::consumer::topic_partition;

    use super::*;

    fn covered(first: i64, last: i64) -> Covered {
        Covered { first: Offset(first), last: Offset(last) }
    }

    /// Goal: topics whose names look like parts of file names are kept apart.
    #[test]
    fn names_are_read_as_they_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        let (plain, longer) = (topic_partition("a", 1).unwrap(), topic_partition("a-1", 1).unwrap());
        for (tp, range) in [(&plain, covered(0, 9)), (&plain, covered(10, 10)), (&longer, covered(5, i64::MAX))] {
            fs::write(folder.path_of(tp, range, Format::Json), "").unwrap();
        }
        for name in ["a-1-5-9.ndjson", "a-1-00000000000000000009-00000000000000000005.ndjson", "notes.ndjson"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let mut found = folder.finished(&plain, Format::Json).unwrap();
        found.sort_by_key(|covered| covered.first);
        assert_eq!(found, [covered(0, 9), covered(10, 10)]);
        assert_eq!(folder.finished(&longer, Format::Json).unwrap(), [covered(5, i64::MAX)]);
        assert_eq!(folder.finished(&plain, Format::Parquet).unwrap(), []);
    }

    #[test]
    fn a_file_has_its_name_only_when_it_is_finished() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(&dir.path().join("new/er")).unwrap();
        let tp = topic_partition("t", 0).unwrap();
        let names = || -> Vec<String> {
            let entries = fs::read_dir(folder.path()).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        };
        let (_file, dropped) = folder.create(&tp).unwrap();
        assert_eq!(names(), [".t-0.unfinished"]);
        drop(dropped);
        assert!(names().is_empty());
        let (_file, killed) = folder.create(&tp).unwrap();
        std::mem::forget(killed);
        folder.remove_unfinished(&topic_partition("t", 1).unwrap()).unwrap();
        assert_eq!(names(), [".t-0.unfinished"]);
        folder.remove_unfinished(&tp).unwrap();
        assert!(names().is_empty());
        let (_file, written) = folder.create(&tp).unwrap();
        folder.finish(written, &folder.path_of(&tp, covered(0, 4), Format::Parquet)).unwrap();
        assert_eq!(names(), ["t-0-00000000000000000000-00000000000000000004.parquet"]);
    }

    #[test]
    fn a_folder_takes_one_export_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let first = Folder::open(dir.path()).unwrap();
        assert!(Folder::open(&dir.path().join(".")).unwrap_err().to_string().contains("another thalweg export"));
        drop(first);
        assert!(Folder::open(dir.path()).is_ok());
    }
}
