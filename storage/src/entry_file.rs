//! A file of entries of one size: what the three index files have in common.
//!
//! One writer appends; any thread reads, without locks, the entries that the writer has published.
//! A sealed segment's file is opened at its first use, so that an idle log costs next to nothing.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use thalweg_model::Offset;
use thalweg_world::disk::{DiskFile, OpenMode};

use crate::place::Place;

/// See the module's page.
#[derive(Debug)]
pub(crate) struct EntryFile {
    place: Arc<Place>,
    base_offset: Offset,
    suffix: &'static str,
    entry_len: u32,
    file: OnceLock<Arc<dyn DiskFile>>,
    /// Entries that readers may see; [`UNKNOWN`] until someone looks.
    count: AtomicU32,
}

impl EntryFile {
    /// A file whose length nobody has looked at yet.
    pub fn unopened(place: &Arc<Place>, base_offset: Offset, suffix: &'static str, entry_len: u32) -> EntryFile {
        EntryFile {
            place: Arc::clone(place),
            base_offset,
            suffix,
            entry_len,
            file: OnceLock::new(),
            count: AtomicU32::new(UNKNOWN),
        }
    }

    /// How many entries there are. A file that does not exist has none.
    pub fn count(&self) -> io::Result<u32> {
        let count = self.count.load(Ordering::Acquire);
        if count != UNKNOWN {
            return Ok(count);
        }
        let count = match self.file(OpenMode::Read) {
            Ok(file) => self.used_count(&**file)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        // Threads that race here read the same sealed file and come to the same count.
        self.count.store(count, Ordering::Release);
        Ok(count)
    }

    /// Fills `buffer` with entries from number `first` on.
    pub fn read(&self, first: u32, buffer: &mut [u8]) -> io::Result<()> {
        let position = u64::from(first) * u64::from(self.entry_len);
        if self.file(OpenMode::Read)?.read_at(buffer, position)? == buffer.len() {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the index is shorter than it was"))
    }

    /// Appends whole entries and publishes them. For the writer alone.
    pub fn append(&self, entries: &[u8]) -> io::Result<()> {
        let count = self.count()?;
        let position = u64::from(count) * u64::from(self.entry_len);
        self.file(OpenMode::CreateOrWrite)?.write_at(entries, position)?;
        let added = u32::try_from(entries.len()).unwrap_or(u32::MAX) / self.entry_len;
        self.count.store(count + added, Ordering::Release);
        Ok(())
    }

    /// Makes the entries from number `first` on be exactly `entries`; returns whether the file had to change.
    ///
    /// Creates the file. For the writer alone, before readers know this file.
    pub fn replace_from(&self, first: u32, entries: &[u8]) -> io::Result<bool> {
        let first_position = u64::from(first) * u64::from(self.entry_len);
        let len = first_position + entries.len() as u64;
        let count = u32::try_from(len / u64::from(self.entry_len)).unwrap_or(UNKNOWN - 1);
        let existed = self.file(OpenMode::Write).is_ok();
        let file = self.file(OpenMode::CreateOrWrite)?;
        if existed && file.len()? == len {
            let mut found = vec![0; entries.len()];
            if file.read_at(&mut found, first_position)? == found.len() && found == entries {
                self.count.store(count, Ordering::Release);
                return Ok(false);
            }
        }
        file.set_len(first_position)?;
        if !entries.is_empty() {
            file.write_at(entries, first_position)?;
        }
        self.count.store(count, Ordering::Release);
        Ok(true)
    }

    /// Whether there is a file, and it ends with a whole entry.
    pub fn is_whole(&self) -> io::Result<bool> {
        match self.file(OpenMode::Read) {
            Ok(file) => Ok(file.len()? % u64::from(self.entry_len) == 0),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether `follows` holds for each pair of neighbours among the first `count` entries.
    pub fn is_ordered(&self, count: u32, follows: impl Fn(&[u8], &[u8]) -> bool) -> io::Result<bool> {
        let entry_len = self.entry_len as usize;
        let mut last: Option<Vec<u8>> = None;
        let mut chunk = Vec::new();
        let mut first = 0;
        while first < count {
            let here = ORDER_CHUNK.min(count - first);
            chunk.resize(here as usize * entry_len, 0);
            self.read(first, &mut chunk)?;
            for entry in chunk.chunks_exact(entry_len) {
                if last.as_ref().is_some_and(|last| !follows(last, entry)) {
                    return Ok(false);
                }
                match &mut last {
                    Some(last) => last.copy_from_slice(entry),
                    None => last = Some(entry.to_vec()),
                }
            }
            first += here;
        }
        Ok(true)
    }

    /// The file if it was opened for writing: what a flush has to sync.
    pub fn opened(&self) -> Option<&Arc<dyn DiskFile>> {
        self.file.get()
    }

    fn file(&self, mode: OpenMode) -> io::Result<&Arc<dyn DiskFile>> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        // Readers of a file that may still be written open it for writing too: the handle is shared.
        let mode = if mode == OpenMode::Read { OpenMode::Write } else { mode };
        let file = self.place.open(self.base_offset, self.suffix, mode)?;
        Ok(self.file.get_or_init(|| file))
    }

    /// Whole entries before the zeros that Kafka's preallocation leaves after a crash.
    fn used_count(&self, file: &dyn DiskFile) -> io::Result<u32> {
        let whole = u32::try_from(file.len()? / u64::from(self.entry_len)).unwrap_or(UNKNOWN - 1);
        let mut entry = vec![0; self.entry_len as usize];
        let (mut used, mut zero_from) = (0, whole);
        while used < zero_from {
            let middle = if zero_from == whole { whole - 1 } else { used + (zero_from - used) / 2 };
            self.read(middle, &mut entry)?;
            if entry.iter().all(|byte| *byte == 0) {
                zero_from = middle;
            } else {
                used = middle + 1;
            }
        }
        Ok(used)
    }
}

const UNKNOWN: u32 = u32::MAX;
const ORDER_CHUNK: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use thalweg_world::disk::{Disk, SimDisk};

    fn place(disk: &SimDisk) -> Arc<Place> {
        Arc::new(Place::new(Arc::new(disk.clone()), PathBuf::from("/")))
    }

    #[test]
    fn a_preallocated_tail_of_zeros_is_no_entries() {
        for (used, whole) in [(0, 0), (0, 5), (1, 1), (1, 2), (3, 100), (99, 100), (100, 100)] {
            let disk = SimDisk::new();
            let mut bytes = vec![1; used * 8];
            bytes.resize(whole * 8 + 3, 0);
            let file = disk.open(&place(&disk).path(Offset(0), ".index"), OpenMode::CreateNew).unwrap();
            file.write_at(&bytes, 0).unwrap();
            let found = EntryFile::unopened(&place(&disk), Offset(0), ".index", 8).count().unwrap();
            assert_eq!(found as usize, used, "{used} of {whole}");
        }
    }

    #[test]
    fn replacing_with_the_same_changes_nothing() {
        let disk = SimDisk::new();
        let file = EntryFile::unopened(&place(&disk), Offset(0), ".index", 8);
        assert_eq!(file.count().unwrap(), 0);
        assert!(file.replace_from(0, &[]).unwrap(), "an empty file is made");
        file.append(&[1; 16]).unwrap();
        assert!(file.replace_from(1, &[2; 8]).unwrap());
        let before = disk.operation_count();
        let again = EntryFile::unopened(&place(&disk), Offset(0), ".index", 8);
        assert!(!again.replace_from(1, &[2; 8]).unwrap());
        assert_eq!((disk.operation_count(), again.count().unwrap()), (before, 2));
    }
}
