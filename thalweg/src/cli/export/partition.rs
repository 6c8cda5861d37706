//! One partition's range into one file after the other.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use thalweg_client::{Client, ClientError, Consumer, ConsumerConfig, Isolation, OffsetReset, RecordSet, StartAt};
use thalweg_model::{Offset, TopicPartition};
use tokio::task::block_in_place;

use super::Format;
use super::files::{Covered, Folder, Unfinished};
use super::progress::Counts;
use super::range::Task;
use super::rows::Rows;
use crate::cli::failure::Failure;
use crate::cli::output::print_line;

/// What all partitions of an export share.
#[derive(Clone)]
pub struct Exporting {
    pub client: Client,
    pub folder: Arc<Folder>,
    pub group: String,
    pub format: Format,
    pub file_bytes_max: u64,
    pub counts: Arc<Counts>,
}

/// A partition under way.
struct Writing<'a> {
    shared: &'a Exporting,
    tp: &'a TopicPartition,
    /// Stored beside each offset.
    begun: String,
    /// Where the file under way begins, and what the group has stored.
    first: Offset,
    /// Where the range ends, exclusive.
    end: Offset,
    file: Option<(Rows, Unfinished)>,
}

impl Exporting {
    /// To the end of the range.
    ///
    /// # Errors
    /// What cannot be read, written or stored; what was finished before stays.
    pub async fn partition(&self, tp: &TopicPartition, task: Task) -> Result<(), Failure> {
        let mut consumer = Consumer::new(&self.client, config())?;
        consumer.assign([(tp.clone(), StartAt::Offset(task.at))])?;
        let (first, end, begun) = (task.at, Offset(task.begun.to), task.begun.to_text());
        let mut writing = Writing { shared: self, tp, begun, first, end, file: None };
        let mut heard = Instant::now();
        let mut next = first;
        while next < end {
            let set = match consumer.poll(POLL_TIMEOUT).await {
                Ok(Some(set)) => set,
                Ok(None) if heard.elapsed() > SILENCE_MAX => {
                    return Err(Failure::no_cluster(format!(
                        "nothing has come for {} s, at offset {next} of {end}; see `thalweg cluster health`",
                        SILENCE_MAX.as_secs()
                    )));
                }
                Ok(None) => continue,
                Err(ClientError::OffsetOutOfRange { .. }) => {
                    return Err(Failure::failed(format!(
                        "offset {next} is not in the log any more; run it again to see which records were deleted"
                    )));
                }
                Err(error) => return Err(error.into()),
            };
            heard = Instant::now();
            let before = next;
            next = set.next_offset.min(end);
            writing.take_up(set).await?;
            self.counts.add(&self.counts.offsets, next.since(before).unsigned_abs());
        }
        writing.end().await
    }
}

impl Writing<'_> {
    /// Writes a set's records, and ends files that have enough.
    async fn take_up(&mut self, set: RecordSet) -> Result<(), Failure> {
        let mut records = set.into_iter();
        loop {
            // Compressing and writing take longer than others should wait for this thread.
            let full = block_in_place(|| -> Result<Option<Offset>, Failure> {
                for record in records.by_ref() {
                    let record = record?;
                    if record.offset >= self.end {
                        return Ok(None);
                    }
                    let last = record.offset;
                    if self.append(record)? >= self.shared.file_bytes_max {
                        return Ok(Some(last));
                    }
                }
                Ok(None)
            })?;
            match full {
                Some(last) => self.finish_file(last).await?,
                None => return Ok(()),
            }
        }
    }

    /// Gives the file's size.
    fn append(&mut self, record: thalweg_client::Record) -> Result<u64, Failure> {
        let shared = self.shared;
        let (rows, _) = match &mut self.file {
            Some(file) => file,
            none => {
                let (file, unfinished) = shared.folder.create(self.tp)?;
                none.insert((Rows::new(file, self.tp, shared.format)?, unfinished))
            }
        };
        rows.append(record)?;
        shared.counts.add(&shared.counts.records, 1);
        Ok(rows.bytes())
    }

    /// Everything up to the end of the range is in files; a rest without records needs none.
    async fn end(&mut self) -> Result<(), Failure> {
        let last = self.end.plus(-1);
        if self.file.is_some() {
            return self.finish_file(last).await;
        }
        if self.first < self.end {
            self.store(self.end).await?;
        }
        Ok(())
    }

    /// Makes the file under way whole, and stores that it is.
    async fn finish_file(&mut self, last: Offset) -> Result<(), Failure> {
        let Some((rows, unfinished)) = self.file.take() else { return Ok(()) };
        let (shared, covered) = (self.shared, Covered { first: self.first, last });
        let path: PathBuf = shared.folder.path_of(self.tp, covered, shared.format);
        let bytes = block_in_place(|| {
            let bytes = rows.finish()?;
            shared.folder.finish(unfinished, &path)?;
            Ok::<u64, std::io::Error>(bytes)
        })?;
        shared.counts.add(&shared.counts.bytes, bytes);
        shared.counts.files.fetch_add(1, Ordering::Relaxed);
        self.store(last.plus(1)).await?;
        // Whoever read our output may be gone; the files are wanted all the same.
        let _ = print_line(&path.display().to_string());
        Ok(())
    }

    async fn store(&mut self, next: Offset) -> Result<(), Failure> {
        let offset = [(self.tp, next, self.begun.as_str())];
        self.shared.client.admin().commit_group_offsets_with(&self.shared.group, offset).await?;
        self.first = next;
        Ok(())
    }
}

/// Reads without the group: its offsets are stored by hand, its members are none.
fn config() -> ConsumerConfig {
    ConsumerConfig {
        offset_reset: OffsetReset::None,
        isolation: Isolation::ReadCommitted,
        auto_commit: None,
        partition_bytes_max: 8 << 20,
        ..ConsumerConfig::default()
    }
}

const POLL_TIMEOUT: Duration = Duration::from_millis(500);
const SILENCE_MAX: Duration = Duration::from_secs(60);
