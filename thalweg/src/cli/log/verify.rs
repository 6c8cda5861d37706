//! `thalweg log verify`: says of every file whether it can be trusted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use thalweg_model::{LeaderEpoch, Offset, TopicPartition};
use thalweg_storage::LeaderEpochs;
use thalweg_wire::batch::verify_crc;
use thalweg_wire::records::Records;

use super::files::{IndexEntry, TimeEntry, base_offset, index_entries, read_small, time_entries, with_extension};
use super::segment::{FoundBatch, SegmentFile, Step, UNPACKED_BYTES_MAX};
use crate::cli::failure::Failure;
use crate::cli::output::{Format, Output, Table, grouped, note, print_line, print_value};

/// Checksums, record contents, offsets, leader epochs, and that each index entry leads to its batch. Of a partition
/// that a node has open the last batch may look unfinished.
#[derive(Debug, Args)]
pub struct Verify {
    /// Segments (.log), partition directories, or directories of partitions
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// What was found in one partition, or in one segment that was named alone.
#[derive(Debug, Default)]
struct Report {
    name: String,
    segment_count: u64,
    batch_count: u64,
    record_count: u64,
    byte_count: u64,
    start: Option<i64>,
    /// Exclusive.
    end: i64,
    problems: Vec<String>,
    notes: Vec<String>,
    last_epoch: i32,
    /// Where each leader epoch begins.
    epochs: BTreeMap<i32, i64>,
}

impl Verify {
    pub fn run(self) -> Result<(), Failure> {
        let mut reports = Vec::new();
        for path in &self.paths {
            verify_path(path, &mut reports)?;
        }
        let problem_count: usize = reports.iter().map(|report| report.problems.len()).sum();
        match self.output.format {
            Format::Json | Format::Yaml => {
                print_value(self.output.format, &reports.iter().map(Report::json).collect())?
            }
            Format::Table | Format::Wide => print_reports(&reports)?,
        }
        if problem_count > 0 {
            return Err(Failure::failed(format!("{problem_count} problem(s) found")));
        }
        Ok(())
    }
}

fn verify_path(path: &Path, reports: &mut Vec<Report>) -> Result<(), Failure> {
    if !path.exists() {
        return Err(Failure::not_found(format!("there is no {}", path.display())));
    }
    if !path.is_dir() {
        if path.extension().is_none_or(|extension| extension != "log") {
            return Err(Failure::usage(format!("{} is no segment: those end in .log", path.display())));
        }
        let mut report = Report::new(path);
        report.segment(path, true)?;
        reports.push(report);
        return Ok(());
    }
    if !with_extension(path, "log")?.is_empty() {
        reports.push(partition(path)?);
        return Ok(());
    }
    let mut partitions = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?.path();
        let name = entry.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if entry.is_dir() && TopicPartition::from_dir_name(&name).is_some() {
            partitions.push(entry);
        }
    }
    // What `--data-dir` names: the logs are one level down.
    let logs = path.join("logs");
    if partitions.is_empty() && logs.is_dir() {
        return verify_path(&logs, reports);
    }
    if partitions.is_empty() {
        let path = path.display();
        return Err(Failure::not_found(format!("{path} holds neither segments nor partition directories")));
    }
    partitions.sort();
    for dir in partitions {
        reports.push(partition(&dir)?);
    }
    Ok(())
}

fn partition(dir: &Path) -> Result<Report, Failure> {
    let mut report = Report::new(dir);
    let segments = with_extension(dir, "log")?;
    for (i, segment) in segments.iter().enumerate() {
        report.segment(segment, i + 1 == segments.len())?;
    }
    for snapshot in with_extension(dir, "snapshot")? {
        report.snapshot(&snapshot)?;
    }
    report.epoch_checkpoint(&dir.join("leader-epoch-checkpoint"))?;
    Ok(report)
}

impl Report {
    fn new(path: &Path) -> Report {
        let name = path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned());
        Report { name, last_epoch: -1, ..Report::default() }
    }

    fn problem(&mut self, path: &Path, place: &str, what: &str) {
        self.problems.push(format!("{}{place}: {what}", path.display()));
    }

    /// `is_last`: the partition's active segment, whose end may be unfinished.
    fn segment(&mut self, path: &Path, is_last: bool) -> Result<(), Failure> {
        let Some(base) = base_offset(path) else {
            self.problem(path, "", "the name is no base offset of 20 digits");
            return Ok(());
        };
        self.segment_count += 1;
        if base < self.end {
            self.problem(path, "", &format!("begins at {base}, the segment before it ends at {}", self.end));
        }
        self.start.get_or_insert(base);
        self.end = self.end.max(base);
        let mut indexes = Indexes::read(path, base)?;
        self.problems.append(&mut indexes.problems);
        let mut file = SegmentFile::open(path)?;
        loop {
            match file.next()? {
                Step::Batch(batch) => {
                    self.batch(path, &batch);
                    indexes.pass(&batch);
                }
                Step::End => break,
                Step::Torn { position, bytes } if is_last => {
                    self.notes.push(format!(
                        "{}: the last {bytes} bytes, from position {position}, are a batch that was not finished; a \
                         node cuts them off when it starts",
                        path.display()
                    ));
                    break;
                }
                Step::Torn { position, bytes } => {
                    let what = format!("{bytes} bytes of an unfinished batch, in a segment that is not the last");
                    self.problem(path, &format!(", position {position}"), &what);
                    break;
                }
                Step::Damaged { position, reason } => {
                    self.problem(path, &format!(", position {position}"), &reason);
                    break;
                }
            }
        }
        self.problems.extend(indexes.finish(self.end));
        Ok(())
    }

    fn batch(&mut self, path: &Path, batch: &FoundBatch) {
        let header = &batch.header;
        let place = format!(", position {}, offset {}", batch.position, header.base_offset);
        self.batch_count += 1;
        self.byte_count += batch.bytes.len() as u64;
        if header.base_offset.0 < self.end {
            self.problem(path, &place, &format!("offsets go back: {} is due", self.end));
        }
        self.end = self.end.max(header.next_offset().0);
        if header.leader_epoch.0 < self.last_epoch {
            let what = format!("leader epoch {} after {}", header.leader_epoch, self.last_epoch);
            self.problem(path, &place, &what);
        } else if header.leader_epoch > LeaderEpoch(self.last_epoch) {
            self.last_epoch = header.leader_epoch.0;
            self.epochs.insert(header.leader_epoch.0, header.base_offset.0);
        }
        if let Err(error) = verify_crc(&batch.bytes) {
            self.problem(path, &place, &error.to_string());
            return;
        }
        match records(batch) {
            Ok(count) => self.record_count += count,
            Err(what) => self.problem(path, &place, &what),
        }
    }

    fn snapshot(&mut self, path: &Path) -> Result<(), Failure> {
        let bytes = read_small(path)?;
        let stated = bytes.get(2..6).and_then(|crc| crc.try_into().ok()).map(u32::from_be_bytes);
        let found = bytes.get(6..).map(crc_of);
        if !bytes.starts_with(&[0, 1]) || stated.is_none() || stated != found {
            self.problem(path, "", "the producer snapshot's checksum is wrong");
        }
        Ok(())
    }

    /// Each epoch that occurs in the log must be known, and begin no later than its first batch.
    fn epoch_checkpoint(&mut self, path: &Path) -> Result<(), Failure> {
        if !path.exists() {
            if !self.epochs.is_empty() {
                self.notes.push(format!("{} is missing; a node makes it anew", path.display()));
            }
            return Ok(());
        }
        let known = match LeaderEpochs::parse(&read_small(path)?) {
            Ok(known) => known,
            Err(error) => {
                self.problem(path, "", &error.to_string());
                return Ok(());
            }
        };
        for (epoch, first) in self.epochs.clone() {
            let entry = known.entries().iter().find(|entry| entry.epoch == LeaderEpoch(epoch));
            if entry.is_none_or(|entry| entry.start_offset > Offset(first)) {
                let what = format!("leader epoch {epoch} begins at offset {first} in the log, but not here");
                self.problem(path, "", &what);
            }
        }
        Ok(())
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "log": self.name,
            "segments": self.segment_count,
            "batches": self.batch_count,
            "records": self.record_count,
            "bytes": self.byte_count,
            "start": self.start,
            "end": self.end,
            "problems": self.problems,
            "notes": self.notes,
        })
    }
}

/// How many records a batch holds; each must read, and lie where the header says.
fn records(batch: &FoundBatch) -> Result<u64, String> {
    let header = &batch.header;
    let mut last = header.base_offset.plus(-1);
    let mut count = 0;
    for record in Records::open(&batch.bytes, UNPACKED_BYTES_MAX).map_err(|error| error.to_string())? {
        let record = record.map_err(|error| error.to_string())?;
        if record.offset <= last || record.offset > header.last_offset() {
            return Err(format!("record at offset {} in a batch that ends at {}", record.offset, header.last_offset()));
        }
        last = record.offset;
        count += 1;
    }
    Ok(count)
}

/// The two indexes of a segment, gone through beside its batches.
struct Indexes {
    index_path: PathBuf,
    index: std::iter::Peekable<std::vec::IntoIter<IndexEntry>>,
    time_path: PathBuf,
    time: std::iter::Peekable<std::vec::IntoIter<TimeEntry>>,
    max_timestamp: i64,
    problems: Vec<String>,
}

impl Indexes {
    fn read(log: &Path, base: i64) -> Result<Indexes, Failure> {
        let (index_path, time_path) = (log.with_extension("index"), log.with_extension("timeindex"));
        // A missing index is built anew from the log.
        let read = |path: &Path| match path.exists() {
            true => read_small(path),
            false => Ok(Vec::new()),
        };
        let index = index_entries(&read(&index_path)?, base);
        let time = time_entries(&read(&time_path)?, base);
        let mut problems = Vec::new();
        if index.windows(2).any(|pair| pair[0].offset >= pair[1].offset || pair[0].position >= pair[1].position) {
            problems.push(format!("{}: entries do not grow", index_path.display()));
        }
        if time.windows(2).any(|pair| pair[0].timestamp > pair[1].timestamp || pair[0].offset > pair[1].offset) {
            problems.push(format!("{}: entries do not grow", time_path.display()));
        }
        Ok(Indexes {
            index_path,
            index: index.into_iter().peekable(),
            time_path,
            time: time.into_iter().peekable(),
            max_timestamp: i64::MIN,
            problems,
        })
    }

    /// Checks the entries that lead to this batch or should have led to an earlier one.
    fn pass(&mut self, batch: &FoundBatch) {
        let header = &batch.header;
        let end = batch.position + batch.bytes.len() as u64;
        while let Some(entry) = self.index.next_if(|entry| entry.position < end) {
            if entry.position != batch.position || entry.offset < header.base_offset.0 {
                let path = self.index_path.display();
                self.problems.push(format!(
                    "{path}: offset {} leads to position {}, where no batch begins that holds it",
                    entry.offset, entry.position
                ));
            }
        }
        self.max_timestamp = self.max_timestamp.max(header.max_timestamp.0);
        while let Some(entry) = self.time.next_if(|entry| entry.offset <= header.last_offset().0) {
            // A search by time skips what lies before such an entry, so nothing newer may lie there.
            if self.max_timestamp > entry.timestamp {
                let path = self.time_path.display();
                self.problems.push(format!(
                    "{path}: up to offset {} timestamps reach {}, not {}",
                    entry.offset, self.max_timestamp, entry.timestamp
                ));
            }
        }
    }

    /// What is left leads behind the end of the log.
    fn finish(mut self, end: i64) -> Vec<String> {
        if let Some(entry) = self.index.next() {
            let path = self.index_path.display();
            self.problems.push(format!("{path}: offset {} leads behind the end of the segment", entry.offset));
        }
        if let Some(entry) = self.time.find(|entry| entry.offset >= end) {
            let path = self.time_path.display();
            self.problems.push(format!("{path}: offset {} lies behind the end of the segment", entry.offset));
        }
        self.problems
    }
}

fn print_reports(reports: &[Report]) -> Result<(), Failure> {
    let mut table = Table::new(&["LOG", "SEGMENTS", "BATCHES", "RECORDS", "BYTES", "START", "END", "STATE"]);
    for report in reports {
        table.row(vec![
            report.name.clone(),
            report.segment_count.to_string(),
            report.batch_count.to_string(),
            report.record_count.to_string(),
            grouped(report.byte_count),
            report.start.map_or("-".to_owned(), |start| start.to_string()),
            report.end.to_string(),
            if report.problems.is_empty() { "ok".to_owned() } else { format!("{} problem(s)", report.problems.len()) },
        ]);
    }
    table.print()?;
    for report in reports {
        report.problems.iter().try_for_each(|problem| print_line(problem))?;
        report.notes.iter().for_each(|text| note(text));
    }
    Ok(())
}

/// CRC-32C, bit by bit: snapshots are small and this is the only place of the verbs that needs one.
fn crc_of(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ CRC_32C } else { crc >> 1 })
    };
    !bytes.iter().fold(u32::MAX, step)
}

const CRC_32C: u32 = 0x82f6_3b78;
