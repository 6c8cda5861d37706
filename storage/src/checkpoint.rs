//! Kafka's checkpoint files: small texts that are replaced as a whole.
//!
//! `version`, count of lines, lines. Offsets of partitions (`recovery-point-offset-checkpoint`,
//! `replication-offset-checkpoint`, `log-start-offset-checkpoint`, `cleaner-offset-checkpoint`) have
//! lines of `topic partition offset`; a `leader-epoch-checkpoint` has `epoch start_offset`.

use std::io;
use std::path::Path;

use thalweg_world::disk::{Disk, OpenMode};

/// Up to where each partition of a log dir is known synced.
pub const RECOVERY_POINT: &str = "recovery-point-offset-checkpoint";
/// High watermarks, a lower bound each (REPLICATION G6).
pub const HIGH_WATERMARK: &str = "replication-offset-checkpoint";
/// Log starts that lie inside a segment (delete-records).
pub const LOG_START: &str = "log-start-offset-checkpoint";
/// Up to where each partition is compacted.
pub const CLEANER: &str = "cleaner-offset-checkpoint";

pub use crate::offset_checkpoint::OffsetCheckpoint;

/// Reads an offset checkpoint; `Ok(None)` if there is no such file.
///
/// # Errors
/// [`CheckpointError::Malformed`]: the file is there and says nothing that can be trusted.
pub fn read_offsets(disk: &dyn Disk, path: &Path) -> Result<Option<OffsetCheckpoint>, CheckpointError> {
    match read_small(disk, path)? {
        Some(bytes) => OffsetCheckpoint::parse(bytes).map(Some),
        None => Ok(None),
    }
}

/// Replaces an offset checkpoint; durable on return.
///
/// # Errors
/// Whatever the file system says; the old file is then still whole.
pub fn write_offsets(disk: &dyn Disk, path: &Path, offsets: &OffsetCheckpoint) -> io::Result<()> {
    let mut text = format!("{VERSION}\n{}\n", offsets.iter().count());
    for (topic, partition, offset) in offsets.iter() {
        text.push_str(&format!("{topic} {partition} {offset}\n"));
    }
    replace(disk, path, text.as_bytes())
}

/// Reads the frame of a checkpoint file, gives each line to `line`, which answers `None` to refuse it.
pub(crate) fn parse_lines(bytes: &[u8], mut line: impl FnMut(&str) -> Option<()>) -> Result<(), CheckpointError> {
    let malformed = |number: usize| CheckpointError::Malformed { line: number };
    let text = std::str::from_utf8(bytes).map_err(|_| malformed(0))?;
    // A text that was cut short must not pass for a shorter list.
    let text = text.strip_suffix('\n').ok_or(malformed(0))?;
    let mut lines = text.split('\n');
    if lines.next() != Some(VERSION) {
        return Err(malformed(1));
    }
    let count: usize = lines.next().and_then(number).ok_or(malformed(2))?;
    let mut seen = 0;
    for text in lines {
        seen += 1;
        line(text).ok_or(malformed(seen + 2))?;
    }
    if seen == count { Ok(()) } else { Err(malformed(2)) }
}

/// A non-negative number without sign or padding, as these files hold them.
pub(crate) fn number<T: std::str::FromStr>(word: &str) -> Option<T> {
    if word.is_empty() || !word.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    word.parse().ok()
}

/// Replaces a file as a whole: temporary file, sync, rename, directory sync.
///
/// After a crash at any point the file is the old one or the new one.
///
/// # Errors
/// Whatever the file system says; the old file is then still whole.
pub fn replace(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(TEMPORARY_SUFFIX);
    let temporary = dir.join(name);
    let file = disk.open(&temporary, OpenMode::CreateOrWrite)?;
    file.set_len(0)?;
    file.write_at(bytes, 0)?;
    file.sync_data()?;
    disk.rename(&temporary, path)?;
    disk.sync_dir(dir)
}

/// Reads a whole file of at most [`SMALL_LEN_MAX`] bytes; `None` if there is none.
///
/// # Errors
/// `InvalidData` if it is larger.
pub fn read_small(disk: &dyn Disk, path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match disk.open(path, OpenMode::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let len = file.len()?;
    if len > SMALL_LEN_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("the file has {len} bytes")));
    }
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    let count = file.read_at(&mut bytes, 0)?;
    bytes.truncate(count);
    Ok(Some(bytes))
}

/// Why a checkpoint file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error("line {line} is not what a checkpoint file holds there")]
    Malformed { line: usize },
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Marks a file that was being written; left behind by a crash, overwritten by the next try.
pub(crate) const TEMPORARY_SUFFIX: &str = ".tmp";
const VERSION: &str = "0";
/// Far above what a dir's checkpoints need: 100,000 partitions take about 27 MB at the longest names.
const SMALL_LEN_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use thalweg_model::{Offset, PartitionIndex, TopicName, TopicPartition};
    use thalweg_world::disk::SimDisk;

    use super::*;

    fn tp(topic: &str, partition: i32) -> TopicPartition {
        TopicPartition::new(TopicName::new(topic).unwrap(), PartitionIndex(partition))
    }

    #[test]
    fn offsets_read_back_in_kafkas_form() {
        let disk = SimDisk::new();
        let offsets = OffsetCheckpoint::from_iter([(tp("a", 0), Offset(5)), (tp("b-1", 12), Offset(i64::MAX))]);
        write_offsets(&disk, Path::new("/c"), &offsets).unwrap();
        assert_eq!(disk.contents(Path::new("/c")).unwrap(), b"0\n2\na 0 5\nb-1 12 9223372036854775807\n");
        assert_eq!(read_offsets(&disk, Path::new("/c")).unwrap(), Some(offsets));
        assert_eq!(read_offsets(&disk, Path::new("/none")).unwrap(), None);
    }

    #[test]
    fn anything_else_is_refused_by_line() {
        for (text, line) in [
            ("", 0),
            ("0\n1\na 0 5", 0),
            ("1\n0\n", 1),
            ("0\n", 1),
            ("0\n2\na 0 5\n", 2),
            ("0\n0\na 0 5\n", 2),
            ("0\nx\n", 2),
            ("0\n1\na 0\n", 3),
            ("0\n1\na 0 5 6\n", 3),
            ("0\n1\na 0 -5\n", 3),
            ("0\n1\na/b 0 5\n", 3),
            ("0\n2\na 0 5\na 0 6\n", 4),
        ] {
            match OffsetCheckpoint::parse(text.as_bytes().to_vec()) {
                Err(CheckpointError::Malformed { line: named }) if line == named => {}
                // Cutting at the last line break turns these two into a missing second line.
                Err(CheckpointError::Malformed { line: 2 }) if text == "0\n" => {}
                other => panic!("{text:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_replaced_file_is_old_or_new_after_a_crash_anywhere() {
        let run = |limit: u64| {
            let disk = SimDisk::new();
            replace(&disk, Path::new("/c"), b"old").unwrap();
            disk.power_off_after(limit);
            let done = replace(&disk, Path::new("/c"), b"newer").is_ok();
            (disk, done)
        };
        for limit in 0..8 {
            let (disk, done) = run(limit);
            let pending = disk.pending().len();
            for mask in 0..1u32 << pending {
                let after = disk.crash(&mut |i| {
                    if mask >> i & 1 == 1 {
                        thalweg_world::disk::Survival::Kept
                    } else {
                        thalweg_world::disk::Survival::Lost
                    }
                });
                let found = after.contents(Path::new("/c")).unwrap();
                assert!(found == b"newer" || (!done && found == b"old"), "{limit} {mask:b}: {found:?}");
            }
        }
    }
}
