//! The small files beside a `.log`, and their names.

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::cli::failure::Failure;

/// An entry of an `.index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    pub offset: i64,
    pub position: u64,
}

/// An entry of a `.timeindex`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeEntry {
    pub timestamp: i64,
    pub offset: i64,
}

/// The whole of a file of bounded size.
///
/// # Errors
/// Names the file; one that is too large to be of its kind is refused.
pub fn read_small(path: &Path) -> Result<Vec<u8>, Failure> {
    let refuse = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Failure::not_found(format!("there is no {}", path.display())),
        _ => Failure::failed(format!("cannot read {}: {error}", path.display())),
    };
    let len = fs::metadata(path).map_err(refuse)?.len();
    if len > SMALL_BYTES_MAX {
        return Err(Failure::failed(format!("{} has {len} bytes, too many for its kind", path.display())));
    }
    fs::read(path).map_err(refuse)
}

/// A segment's base offset: its file's name.
pub fn base_offset(path: &Path) -> Option<i64> {
    let stem = path.file_stem()?.to_str()?;
    let digits = stem.len() == 20 && stem.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| stem.parse().ok()).flatten()
}

/// Files with this extension in a directory, by name: segments by base offset.
pub fn with_extension(dir: &Path, extension: &str) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == extension) && base_offset(&path).is_some() {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// The entries of an `.index`. Kafka keeps the file of an active segment at its full size: zeros are no entries.
pub fn index_entries(bytes: &[u8], base: i64) -> Vec<IndexEntry> {
    let entries = bytes.chunks_exact(8).take_while(|entry| entry.iter().any(|byte| *byte != 0));
    let word = |bytes: &[u8]| bytes.iter().fold(0i64, |value, byte| value << 8 | i64::from(*byte));
    entries
        .map(|entry| IndexEntry {
            offset: base.saturating_add(word(&entry[..4])),
            position: word(&entry[4..]).unsigned_abs(),
        })
        .collect()
}

/// The entries of a `.timeindex`; zeros as in [`index_entries`].
pub fn time_entries(bytes: &[u8], base: i64) -> Vec<TimeEntry> {
    let entries = bytes.chunks_exact(12).take_while(|entry| entry.iter().any(|byte| *byte != 0));
    entries
        .map(|entry| TimeEntry { timestamp: number(&entry[..8]), offset: base.saturating_add(number(&entry[8..])) })
        .collect()
}

/// A big-endian number of up to 8 bytes; shorter ones are unsigned.
pub fn number(bytes: &[u8]) -> i64 {
    bytes.iter().fold(0u64, |value, byte| value << 8 | u64::from(*byte)).cast_signed()
}

const SMALL_BYTES_MAX: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_end_where_kafkas_reserved_zeros_begin() {
        let mut bytes = vec![0, 0, 0, 9, 0, 0, 16, 0];
        bytes.extend([0; 80]);
        assert_eq!(index_entries(&bytes, 100), [IndexEntry { offset: 109, position: 4_096 }]);
        let mut bytes = vec![0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 5];
        bytes.extend([0; 25]);
        assert_eq!(time_entries(&bytes, 100), [TimeEntry { timestamp: 256, offset: 105 }]);
    }

    #[test]
    fn only_twenty_digits_are_a_base_offset() {
        assert_eq!(base_offset(Path::new("/d/00000000000000000042.log")), Some(42));
        assert_eq!(base_offset(Path::new("/d/42.log")), None);
        assert_eq!(base_offset(Path::new("/d/0000000000000000004x.log")), None);
    }
}
