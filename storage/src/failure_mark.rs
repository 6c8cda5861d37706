//! What tells the next life of a log dir that its disk has failed in this one (REPLICATION B2, G2).
//!
//! A restart forgets what a process knew, and pages that could not be written look as good as any other to it: without the
//! mark it would promise records that a power cut takes. A dir that cannot be written to is named in the others of its broker.

use std::io;
use std::path::Path;

use thalweg_model::TopicId;
use thalweg_world::disk::Disk;

use crate::checkpoint;

/// The marks in one log dir.
#[derive(Debug, Default)]
pub(crate) struct FailureMarks {
    /// This dir's disk has failed.
    pub own: bool,
    /// Other dirs whose disks have failed and could not be marked themselves.
    pub others: Vec<TopicId>,
}

/// Reads the marks in a log dir. A mark counts by its name; what it says is for people.
pub(crate) fn read(disk: &dyn Disk, dir: &Path) -> io::Result<FailureMarks> {
    let mut marks = FailureMarks::default();
    for entry in disk.list(dir)?.iter().filter(|entry| !entry.is_dir) {
        let Some(rest) = entry.name.strip_prefix(NAME) else { continue };
        // One that was being written when the process ended says the same.
        let rest = rest.strip_suffix(checkpoint::TEMPORARY_SUFFIX).unwrap_or(rest);
        match rest.strip_prefix('.') {
            None if rest.is_empty() => marks.own = true,
            None => {}
            Some(id) => marks.others.extend(TopicId::from_base64(id)),
        }
    }
    Ok(marks)
}

/// Marks the dir, or in it `other`; durable on return.
pub(crate) fn write(disk: &dyn Disk, dir: &Path, other: Option<TopicId>, cause: &str) -> io::Result<()> {
    checkpoint::replace(disk, &dir.join(name(other)), format!("version=1\ncause={cause}\n").as_bytes())
}

/// Removes the mark of the dir, or that of `other`, durably.
pub(crate) fn remove(disk: &dyn Disk, dir: &Path, other: Option<TopicId>) -> io::Result<()> {
    let name = name(other);
    for file in [format!("{name}{}", checkpoint::TEMPORARY_SUFFIX), name] {
        match disk.remove_file(&dir.join(file)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    disk.sync_dir(dir)
}

fn name(other: Option<TopicId>) -> String {
    other.map_or_else(|| NAME.to_owned(), |id| format!("{NAME}.{id}"))
}

/// Ours; Kafka has none.
const NAME: &str = "thalweg.failed";
