//! `thalweg log dump`: a file's contents as text, in the words of Kafka's DumpLogSegments.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use thalweg_model::topic_config::TimestampType;
use thalweg_wire::batch::{BatchHeader, advance_sequence, verify_crc};
use thalweg_wire::records::{ControlRecord, Record, Records};

use super::dump_json;
use super::files::{base_offset, index_entries, number, read_small, time_entries, with_extension};
use super::segment::{FoundBatch, SegmentFile, Step, UNPACKED_BYTES_MAX};
use crate::cli::failure::Failure;

#[derive(Debug, Args)]
pub struct Dump {
    /// Files, or partition directories: then their segments in order
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The records of each batch too
    #[arg(short, long, visible_alias = "print-data-log")]
    records: bool,
    /// Only batches that reach this offset or lie behind it
    #[arg(short, long, default_value_t = 0)]
    offset: i64,
    /// Stop after so many batches or entries
    #[arg(short = 'n', long)]
    count: Option<u64>,
    /// One JSON object a line, for programs
    #[arg(short = 'J', long)]
    json: bool,
}

impl Dump {
    pub fn run(self) -> Result<(), Failure> {
        let mut out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
        let mut left = self.count.unwrap_or(u64::MAX);
        for path in &self.paths {
            if path.is_dir() {
                let segments = with_extension(path, "log")?;
                if segments.is_empty() {
                    return Err(Failure::not_found(format!("{} holds no segment (.log file)", path.display())));
                }
                for segment in segments {
                    self.dump(&segment, &mut out, &mut left)?;
                }
            } else {
                self.dump(path, &mut out, &mut left)?;
            }
        }
        Ok(out.flush()?)
    }

    fn dump(&self, path: &Path, out: &mut impl Write, left: &mut u64) -> Result<(), Failure> {
        if *left == 0 {
            return Ok(());
        }
        if !path.exists() {
            return Err(Failure::not_found(format!("there is no {}", path.display())));
        }
        if self.json {
            dump_json::print_file(out, path)?;
        } else {
            writeln!(out, "Dumping {}", path.display())?;
        }
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        let base = base_offset(path);
        match (extension, base) {
            ("log", _) => self.dump_segment(path, out, left),
            ("index", Some(base)) => {
                let entries = index_entries(&read_small(path)?, base).into_iter();
                let lines = entries.map(|entry| format!("offset: {} position: {}", entry.offset, entry.position));
                self.print_lines(out, lines, left)
            }
            ("timeindex", Some(base)) => {
                let entries = time_entries(&read_small(path)?, base).into_iter();
                let lines = entries.map(|entry| format!("timestamp: {} offset: {}", entry.timestamp, entry.offset));
                self.print_lines(out, lines, left)
            }
            ("txnindex", Some(_)) => self.print_lines(out, aborted(&read_small(path)?).into_iter(), left),
            ("snapshot", Some(_)) => self.print_lines(out, producers(&read_small(path)?, path)?.into_iter(), left),
            _ => match path.file_name().and_then(|name| name.to_str()) {
                Some(name) if name.ends_with("checkpoint") || TEXT_FILES.contains(&name) => {
                    let text = String::from_utf8_lossy(&read_small(path)?).into_owned();
                    self.print_lines(out, text.lines().map(str::to_owned), left)
                }
                _ => Err(Failure::usage(format!(
                    "{} is no file of a log; those end in .log, .index, .timeindex, .txnindex, .snapshot or checkpoint",
                    path.display()
                ))),
            },
        }
    }

    fn dump_segment(&self, path: &Path, out: &mut impl Write, left: &mut u64) -> Result<(), Failure> {
        let mut segment = SegmentFile::open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Failure::not_found(format!("there is no {}", path.display())),
            _ => Failure::failed(format!("cannot read {}: {error}", path.display())),
        })?;
        let place = |position: u64| format!("{}, position {position}", path.display());
        while *left > 0 {
            let batch = match segment.next()? {
                Step::Batch(batch) => batch,
                Step::End => break,
                Step::Torn { position, bytes } => {
                    out.flush()?;
                    let what = format!("{bytes} bytes of a batch that was not finished; recovery cuts them off");
                    return Err(Failure::failed(what).at(&place(position)));
                }
                Step::Damaged { position, reason } => {
                    out.flush()?;
                    return Err(Failure::failed(reason).at(&place(position)));
                }
            };
            if batch.header.last_offset().0 < self.offset {
                continue;
            }
            *left -= 1;
            if self.json {
                dump_json::print_batch(out, &batch, self.records)?;
                continue;
            }
            print_batch(out, &batch)?;
            if self.records {
                print_records(out, &batch)?;
            }
        }
        Ok(())
    }

    fn print_lines(
        &self,
        out: &mut impl Write,
        lines: impl Iterator<Item = String>,
        left: &mut u64,
    ) -> Result<(), Failure> {
        for line in lines {
            if *left == 0 {
                break;
            }
            *left -= 1;
            if self.json {
                dump_json::print_line(out, &line)?;
            } else {
                writeln!(out, "{line}")?;
            }
        }
        Ok(())
    }
}

fn print_batch(out: &mut impl Write, batch: &FoundBatch) -> Result<(), Failure> {
    let header = &batch.header;
    let codec = header.compression().map_or("unknown", |codec| codec.name());
    writeln!(
        out,
        "baseOffset: {} lastOffset: {} count: {} baseSequence: {} lastSequence: {} producerId: {} producerEpoch: {} \
         partitionLeaderEpoch: {} isTransactional: {} isControl: {} position: {} {}: {} size: {} magic: 2 \
         compresscodec: {codec} crc: {} isvalid: {}",
        header.base_offset,
        header.last_offset(),
        header.record_count,
        header.base_sequence,
        header.last_sequence(),
        header.producer_id,
        header.producer_epoch,
        header.leader_epoch,
        header.is_transactional(),
        header.is_control(),
        batch.position,
        timestamp_type(header),
        header.max_timestamp,
        header.size_bytes(),
        header.crc,
        verify_crc(&batch.bytes).is_ok(),
    )?;
    Ok(())
}

fn print_records(out: &mut impl Write, batch: &FoundBatch) -> Result<(), Failure> {
    let records = match Records::open(&batch.bytes, UNPACKED_BYTES_MAX) {
        Ok(records) => records,
        Err(error) => return Ok(writeln!(out, "| the records cannot be read: {error}")?),
    };
    for record in records {
        match record {
            Ok(record) => print_record(out, &batch.header, &record)?,
            Err(error) => writeln!(out, "| {error}")?,
        }
    }
    Ok(())
}

fn print_record(out: &mut impl Write, header: &BatchHeader, record: &Record) -> Result<(), Failure> {
    let length = |bytes: Option<&bytes::Bytes>| bytes.map_or(-1, |bytes| i64::try_from(bytes.len()).unwrap_or(-1));
    let delta = i32::try_from(record.offset.since(header.base_offset)).unwrap_or(0);
    let sequence = if header.base_sequence < 0 { -1 } else { advance_sequence(header.base_sequence, delta) };
    let keys: Vec<String> = record.headers.iter().map(|header| header.key_text().into_owned()).collect();
    write!(
        out,
        "| offset: {} {}: {} keySize: {} valueSize: {} sequence: {sequence} headerKeys: [{}]",
        record.offset,
        timestamp_type(header),
        record.timestamp,
        length(record.key.as_ref()),
        length(record.value.as_ref()),
        keys.join(","),
    )?;
    if header.is_control() {
        match ControlRecord::read(record) {
            Some(ControlRecord::Abort { coordinator_epoch }) => {
                writeln!(out, " endTxnMarker: ABORT coordinatorEpoch: {coordinator_epoch}")?;
            }
            Some(ControlRecord::Commit { coordinator_epoch }) => {
                writeln!(out, " endTxnMarker: COMMIT coordinatorEpoch: {coordinator_epoch}")?;
            }
            Some(ControlRecord::Other { kind }) => writeln!(out, " controlType: {kind}")?,
            None => writeln!(out, " controlType: unreadable")?,
        }
        return Ok(());
    }
    if let Some(key) = &record.key {
        out.write_all(b" key: ")?;
        out.write_all(key)?;
    }
    if let Some(value) = &record.value {
        out.write_all(b" payload: ")?;
        out.write_all(value)?;
    }
    Ok(out.write_all(b"\n")?)
}

pub fn timestamp_type(header: &BatchHeader) -> &'static str {
    match header.timestamp_type() {
        TimestampType::CreateTime => "CreateTime",
        TimestampType::LogAppendTime => "LogAppendTime",
    }
}

/// The lines of a `.txnindex`: 34 bytes an entry.
fn aborted(bytes: &[u8]) -> Vec<String> {
    let line = |entry: &[u8]| {
        format!(
            "version: {} producerId: {} firstOffset: {} lastOffset: {} lastStableOffset: {}",
            number(&entry[..2]),
            number(&entry[2..10]),
            number(&entry[10..18]),
            number(&entry[18..26]),
            number(&entry[26..34]),
        )
    };
    bytes.chunks_exact(34).map(line).collect()
}

/// The lines of a `.snapshot`: version i16, crc u32, count i32, then 46 bytes a producer.
fn producers(bytes: &[u8], path: &Path) -> Result<Vec<String>, Failure> {
    let count = bytes.get(6..10).map(number).filter(|_| bytes.starts_with(&[0, 1]));
    let Some(count) = count else {
        return Err(Failure::failed(format!("{} is no producer snapshot of version 1", path.display())));
    };
    let line = |entry: &[u8]| {
        let signed = |bytes: &[u8]| match bytes.len() {
            2 => i64::from(number(bytes) as i16),
            4 => i64::from(number(bytes) as i32),
            _ => number(bytes),
        };
        format!(
            "producerId: {} producerEpoch: {} lastSequence: {} lastOffset: {} offsetDelta: {} lastTimestamp: {} \
             coordinatorEpoch: {} currentTxnFirstOffset: {}",
            signed(&entry[..8]),
            signed(&entry[8..10]),
            signed(&entry[10..14]),
            signed(&entry[14..22]),
            signed(&entry[22..26]),
            signed(&entry[26..34]),
            signed(&entry[34..38]),
            signed(&entry[38..46]),
        )
    };
    let count = usize::try_from(count).unwrap_or(0);
    Ok(bytes.get(10..).unwrap_or_default().chunks_exact(46).take(count).map(line).collect())
}

const TEXT_FILES: [&str; 2] = ["partition.metadata", "meta.properties"];
