//! `thalweg export`: a topic's range into files, once.
//!
//! What a file holds is decided by the group's stored offset alone: 1. the range is stored with the group; 2. records go
//! to a file that has no name yet; 3. the file is synced, named after its offsets, and the name is synced; 4. the offset
//! behind it is stored. A crash before 3 leaves nothing that counts, one between 3 and 4 a file that the next export
//! recognises by its name.

mod files;
mod parquet_rows;
mod partition;
mod progress;
mod range;
mod rows;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use thalweg_client::admin::Admin;
use thalweg_client::consumer::CommittedOffset;
use thalweg_client::{Client, ClientError, Isolation};
use thalweg_model::{ErrorCode, Offset, TopicPartition};
use tokio::task::JoinSet;

use crate::cli::connect::Connection;
use crate::cli::failure::Failure;
use crate::cli::output::{note, print_line};
use crate::cli::place::{Logs, Place};
use crate::cli::select::{Selection, existing};
use crate::cli::stop::Stop;
use files::{Covered, Folder};
use partition::Exporting;
use progress::{Counts, Progress};
use range::{Known, Task, Wanted, task};

/// Stopped or killed it goes on where it was: type the same line again. A run that has ended well is followed by one for
/// what has come since. Prints the path of each file when it is whole; records of open or aborted transactions are left
/// out.
#[derive(Debug, Args)]
pub struct Export {
    /// Topics, or topic:partition,partition
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<Selection>,
    /// Where the files go; made if it does not exist
    #[arg(long, value_name = "FOLDER")]
    dir: PathBuf,
    /// Remembers how far this export has come; a group of its own, without members
    #[arg(short = 'G', long)]
    group: String,
    #[arg(long, value_enum, default_value_t = Format::Parquet)]
    format: Format,
    /// Where to begin what the group has not begun yet: earliest, an offset, -10 (before the end), a time such as
    /// 2026-01-31T12:00 (UTC) or @1767225600000 (ms), or that long ago: 90s, 15m, 6h, 2d
    #[arg(long, value_name = "PLACE", allow_hyphen_values = true, default_value = "earliest")]
    from: Place,
    /// Where to end, exclusive: as --from, or +10 (after where it begins)
    #[arg(long, value_name = "PLACE", allow_hyphen_values = true, default_value = "latest")]
    to: Place,
    /// Begin another file when one has as many bytes; in memory Parquet takes at most 32 MiB more a partition
    #[arg(long, value_name = "BYTES", default_value_t = 256 << 20, value_parser = clap::value_parser!(u64).range(1..))]
    max_file_bytes: u64,
    /// How many partitions at a time [default: one for each processor]
    #[arg(long, value_name = "N")]
    parallel: Option<NonZeroUsize>,
    #[command(flatten)]
    connection: Connection,
}

/// How records are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One object a line, as `topic consume --json` prints them
    Json,
    /// Columns topic, partition, offset, timestamp, key, value, headers
    Parquet,
}

impl Format {
    /// What a file's name ends in, without the dot.
    pub fn ending(self) -> &'static str {
        match self {
            Format::Json => "ndjson",
            Format::Parquet => "parquet",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Format::Json => "json",
            Format::Parquet => "parquet",
        }
    }
}

impl Export {
    pub async fn run(self) -> Result<(), Failure> {
        let client = self.connection.open().await?;
        let admin = client.admin();
        let partitions = existing(&admin, &self.topics).await?;
        self.refuse_members(&admin).await?;
        let at_dir = |error: std::io::Error| Failure::failed(format!("{}: {error}", self.dir.display()));
        let folder = Folder::open(&self.dir).map_err(at_dir)?;
        for tp in &partitions {
            folder.remove_unfinished(tp).map_err(at_dir)?;
        }
        let tasks = self.tasks(&client, &admin, &partitions, &folder).await?;
        self.begin(&admin, &tasks, &folder).await?;
        let counts = Arc::new(Counts::default());
        let exporting = Exporting {
            client,
            folder: Arc::new(folder),
            group: self.group.clone(),
            format: self.format,
            file_bytes_max: self.max_file_bytes,
            counts: Arc::clone(&counts),
        };
        let mut progress = Progress::start();
        let result = self.carry_out(&exporting, tasks, &mut progress).await;
        progress.end();
        note(&progress.sum(&counts));
        result
    }

    /// Members would commit their own offsets into the export's.
    async fn refuse_members(&self, admin: &Admin) -> Result<(), Failure> {
        match admin.describe_group(&self.group).await {
            Err(ClientError::Broker { code: ErrorCode::GroupIdNotFound, .. }) => Ok(()),
            group => match group?.members.len() {
                0 => Ok(()),
                count => Err(Failure::failed(format!(
                    "group {} has {count} member(s) that read; an export needs a --group of its own",
                    self.group
                ))),
            },
        }
    }

    /// What there is to do in each partition.
    async fn tasks(
        &self,
        client: &Client,
        admin: &Admin,
        partitions: &BTreeSet<TopicPartition>,
        folder: &Folder,
    ) -> Result<BTreeMap<TopicPartition, Task>, Failure> {
        let committed = admin.group_offsets(&self.group).await?;
        let from = Logs::ask(client, partitions, self.from, Isolation::ReadCommitted).await?;
        let to = Logs::ask(client, partitions, self.to, Isolation::ReadCommitted).await?;
        let dir = folder.path().to_string_lossy();
        let mut tasks = BTreeMap::new();
        for tp in partitions {
            let files = folder.finished(tp, self.format)?;
            let topic_id = client.topic(tp.topic.as_str(), false).await?.id.to_string();
            let task = self.task(tp, committed.get(tp), (&from, &to), &files, (&dir, &topic_id));
            tasks.insert(tp.clone(), task.map_err(|why| Failure::failed(format!("{tp}: {why}")))?);
        }
        Ok(tasks)
    }

    fn task(
        &self,
        tp: &TopicPartition,
        committed: Option<&CommittedOffset>,
        (from, to): (&Logs, &Logs),
        files: &[Covered],
        (dir, topic_id): (&str, &str),
    ) -> Result<Task, String> {
        let unknown = || "its leader does not say where its log begins and ends".to_owned();
        let (log_start, log_end) = from.start(tp).zip(to.end(tp)).ok_or_else(unknown)?;
        // Backwards counts from the end, forwards from the beginning.
        let base = |place: Place, start: Offset| match place {
            Place::By(count) if count < 0 => log_end,
            _ => start,
        };
        let begin = from.resolve(tp, Some(base(self.from, log_start))).ok_or_else(unknown)?;
        let start = committed.map_or(begin, |committed| committed.offset);
        let end = to.resolve(tp, Some(base(self.to, start))).ok_or_else(unknown)?;
        let stored = committed.map(|committed| (committed.offset, committed.metadata.as_str()));
        let wanted = Wanted { from: begin, to: end, topic_id, dir, format: self.format.name() };
        task(&Known { log_start, log_end, stored, files }, &wanted)
    }

    /// Stores new ranges, and files whose commit was lost, before anything is written.
    async fn begin(
        &self,
        admin: &Admin,
        tasks: &BTreeMap<TopicPartition, Task>,
        folder: &Folder,
    ) -> Result<(), Failure> {
        // A file's name may have been seen before it was durable.
        folder.sync()?;
        let is_changed = |task: &&Task| !task.found.is_empty() || (task.is_new && task.at.0 < task.begun.to);
        let changed: Vec<(&TopicPartition, Offset, String)> = tasks
            .iter()
            .filter(|(_, task)| is_changed(task))
            .map(|(tp, task)| (tp, task.at, task.begun.to_text()))
            .collect();
        if !changed.is_empty() {
            let offsets = changed.iter().map(|(tp, offset, text)| (*tp, *offset, text.as_str()));
            admin.commit_group_offsets_with(&self.group, offsets).await?;
        }
        for (tp, task) in tasks {
            for covered in &task.found {
                let _ = print_line(&folder.path_of(tp, *covered, self.format).display().to_string());
            }
        }
        let unfinished: Vec<&Task> = tasks.values().filter(|task| !task.is_new).collect();
        if !unfinished.is_empty() {
            note(&format!("going on with {} partition(s) to the end that was begun for", unfinished.len()));
        }
        Ok(())
    }

    /// Some partitions at a time, until all are done or one fails.
    async fn carry_out(
        &self,
        exporting: &Exporting,
        tasks: BTreeMap<TopicPartition, Task>,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let mut stop = Stop::listen()?;
        let counts = &exporting.counts;
        let mut waiting: VecDeque<(TopicPartition, Task)> =
            tasks.into_iter().filter(|(_, task)| task.at.0 < task.begun.to).collect();
        for (_, task) in &waiting {
            counts.add(&counts.offsets_total, (task.begun.to - task.at.0).unsigned_abs());
        }
        let processors = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let parallel = self.parallel.unwrap_or_else(processors).get();
        let mut running = JoinSet::new();
        let mut look = tokio::time::interval(LOOK_INTERVAL);
        loop {
            while running.len() < parallel
                && let Some((tp, task)) = waiting.pop_front()
            {
                let exporting = exporting.clone();
                running.spawn(async move {
                    exporting.partition(&tp, task).await.map_err(|error| error.at(&tp.to_string()))
                });
            }
            let ended = tokio::select! {
                biased;
                () = stop.asked() => Err(Failure::interrupted("stopped before the end; the same line goes on")),
                ended = running.join_next() => match ended {
                    None => return Ok(()),
                    Some(ended) => ended.unwrap_or_else(|error| Err(Failure::failed(error.to_string()))),
                },
                _ = look.tick() => {
                    progress.show(counts);
                    Ok(())
                }
            };
            if ended.is_err() {
                // What the others have not finished is removed as they are dropped.
                running.shutdown().await;
                return ended;
            }
        }
    }
}

const LOOK_INTERVAL: Duration = Duration::from_millis(500);
