//! `thalweg topic produce`: stdin, record by record.

use std::io::{IsTerminal, Read};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use clap::{Args, ValueEnum};
use thalweg_client::{
    Acks, Client, ClientError, Compression, Delivery, Header, Producer, ProducerConfig, ProducerRecord,
};
use tokio::sync::mpsc;

use super::key_value;
use crate::cli::connect::Connection;
use crate::cli::failure::Failure;
use crate::cli::output::{grouped, note};
use crate::cli::stop::Stop;

/// A record ends at each newline; all other bytes, carriage returns too, are sent as they are.
#[derive(Debug, Args)]
pub struct Produce {
    topic: String,
    /// Read this file instead of stdin
    #[arg(short = 'l', long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// What stands between key and value, such as ':' or '\t'; a line without it has no key
    #[arg(short = 'K', long, value_name = "DELIMITER")]
    key_delimiter: Option<String>,
    /// The key of every record
    #[arg(short = 'k', long, conflicts_with = "key_delimiter")]
    key: Option<String>,
    /// A header of every record; may be repeated
    #[arg(short = 'H', long = "header", value_parser = key_value, value_name = "KEY=VALUE")]
    headers: Vec<(String, String)>,
    /// Send to this partition; left out: by the key, or evenly without one
    #[arg(short, long, value_parser = clap::value_parser!(i32).range(0..))]
    partition: Option<i32>,
    #[arg(short = 'z', long, value_enum, default_value_t = CodecName::None)]
    compression: CodecName,
    /// Who must have a record before it counts: every in-sync replica, the leader, nobody
    #[arg(long, value_enum, default_value_t = AcksName::All)]
    acks: AcksName,
    /// Send an empty value, and an empty key, as null
    #[arg(short = 'Z', long)]
    null_empty: bool,
    /// Fail instead of letting the broker create a missing topic
    #[arg(long)]
    no_create: bool,
    /// How long a batch waits for more records, in milliseconds
    #[arg(long, default_value_t = 5, value_name = "MS")]
    linger: u64,
    /// Records up to this size, in bytes; the topic's max.message.bytes must allow it
    #[arg(long, default_value_t = 1 << 20, value_name = "BYTES")]
    max_record_bytes: usize,
    /// Say at the end how many records were written
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum CodecName {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AcksName {
    #[value(alias = "-1")]
    All,
    #[value(name = "1", alias = "leader")]
    Leader,
    #[value(name = "0", alias = "none")]
    None,
}

impl AcksName {
    pub fn acks(self) -> Acks {
        match self {
            AcksName::All => Acks::All,
            AcksName::Leader => Acks::Leader,
            AcksName::None => Acks::None,
        }
    }
}

impl CodecName {
    pub fn compression(self) -> Compression {
        match self {
            CodecName::None => Compression::None,
            CodecName::Gzip => Compression::Gzip,
            CodecName::Snappy => Compression::Snappy,
            CodecName::Lz4 => Compression::Lz4,
            CodecName::Zstd => Compression::Zstd,
        }
    }
}

/// What ended the input before its time.
#[derive(Debug)]
enum End {
    /// `line` counts from 1.
    Failed {
        line: u64,
        failure: Failure,
    },
    Interrupted,
}

impl End {
    fn at(line: u64, failure: Failure) -> End {
        End::Failed { line, failure }
    }
}

/// What was acknowledged so far.
#[derive(Clone, Debug, Default)]
struct Tally {
    written_count: u64,
    failed_count: u64,
    first_error: Option<ClientError>,
}

impl Produce {
    pub async fn run(self) -> Result<(), Failure> {
        let input = self.open_input()?;
        let client = self.connection.open().await?;
        self.announce(&client).await?;
        let acks = self.acks.acks();
        let request_bytes_max = self.max_record_bytes.saturating_add(REQUEST_OVERHEAD_BYTES).max(1 << 20);
        let config = ProducerConfig {
            acks,
            compression: self.compression.compression(),
            idempotent: acks == Acks::All,
            linger: Duration::from_millis(self.linger),
            request_bytes_max,
            buffer_bytes: (32 << 20_usize).max(request_bytes_max.saturating_mul(2)),
            create_topics: !self.no_create,
            ..ProducerConfig::default()
        };
        let producer = Producer::new(&client, config)?;
        let started = Instant::now();
        let (deliveries, queue) = mpsc::channel(DELIVERIES_MAX);
        let is_shown = std::io::stderr().is_terminal();
        let tally = tokio::spawn(count(queue, is_shown.then_some(started)));
        let (mut lines, reader) = read_lines(input);
        let mut stop = Stop::listen()?;
        // Biased, so that a key that was pressed ends it however fast lines come.
        let sent = tokio::select! {
            biased;
            () = stop.asked() => Err(End::Interrupted),
            sent = self.send_all(&producer, &mut lines, &deliveries) => sent,
        };
        if matches!(sent, Err(End::Interrupted)) {
            note("finishing what was handed over; again Ctrl-C ends at once");
        }
        // Whatever ended the input, what was handed over is finished.
        tokio::select! {
            biased;
            () = stop.asked() => {
                return Err(Failure::interrupted("stopped at once; records without an acknowledgement may or may not be written"));
            }
            () = producer.close() => {}
        }
        drop(deliveries);
        let tally = tally.await.unwrap_or_default();
        drop(lines);
        self.report(tally, sent, reader, started, is_shown).await
    }

    fn open_input(&self) -> Result<Box<dyn Read + Send>, Failure> {
        match &self.file {
            None => Ok(Box::new(std::io::stdin())),
            Some(path) => match std::fs::File::open(path) {
                Ok(file) => Ok(Box::new(file)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    Err(Failure::not_found(format!("there is no file {}", path.display())))
                }
                Err(error) => Err(Failure::failed(format!("cannot read {}: {error}", path.display()))),
            },
        }
    }

    /// Says that the topic is new before the first record makes it.
    async fn announce(&self, client: &Client) -> Result<(), Failure> {
        match client.topic(&self.topic, false).await {
            Err(ClientError::UnknownTopic { .. }) if !self.no_create => {
                let topic = client.fetch_topic(&self.topic, true).await?;
                note(&format!("created topic {} with {} partition(s)", topic.name, topic.partition_count()));
            }
            result => {
                result?;
            }
        }
        Ok(())
    }

    /// Sends until the input ends or a record fails.
    async fn send_all(
        &self,
        producer: &Producer,
        lines: &mut mpsc::Receiver<std::io::Result<Vec<Bytes>>>,
        deliveries: &mpsc::Sender<Delivery>,
    ) -> Result<(), End> {
        let delimiter = self.key_delimiter.as_deref().map(unescape);
        let key = self.key.clone().map(Bytes::from);
        let header = |(key, value): &(String, String)| Header {
            key: key.clone(),
            value: (!value.is_empty() || !self.null_empty).then(|| Bytes::from(value.clone())),
        };
        let headers: Vec<Header> = self.headers.iter().map(header).collect();
        let mut line_count: u64 = 0;
        while let Some(chunk) = lines.recv().await {
            for line in
                chunk.map_err(|error| End::at(line_count + 1, Failure::failed(format!("cannot read on: {error}"))))?
            {
                line_count += 1;
                let (line_key, value) = split_key(line, delimiter.as_deref());
                let record = ProducerRecord {
                    topic: self.topic.clone(),
                    partition: self.partition,
                    key: self.non_null(line_key.or_else(|| key.clone())),
                    value: self.non_null(Some(value)),
                    headers: headers.clone(),
                    timestamp: None,
                };
                // A place for the delivery comes first: dropped between the two, a written record would not be counted.
                // The counter ends early only at a failed record: no use in sending more.
                let Ok(place) = deliveries.reserve().await else { return Ok(()) };
                let delivery = producer.send(record).await.map_err(|error| End::at(line_count, error.into()))?;
                place.send(delivery);
            }
        }
        Ok(())
    }

    fn non_null(&self, bytes: Option<Bytes>) -> Option<Bytes> {
        bytes.filter(|bytes| !(self.null_empty && bytes.is_empty()))
    }

    async fn report(
        &self,
        tally: Tally,
        sent: Result<(), End>,
        reader: tokio::task::JoinHandle<()>,
        started: Instant,
        is_shown: bool,
    ) -> Result<(), Failure> {
        reader.abort();
        let took = started.elapsed();
        let rate = tally.written_count as f64 / took.as_secs_f64().max(1e-9);
        if self.verbose || is_shown || tally.failed_count > 0 || sent.is_err() {
            let clear = if is_shown { "\r\x1b[K" } else { "" };
            let line = format!(
                "{clear}{} record(s) acknowledged in {:.1} s ({}/s)",
                grouped(tally.written_count),
                took.as_secs_f64(),
                grouped(rate as u64)
            );
            note(&line);
        }
        if let Some(error) = tally.first_error {
            let failed = grouped(tally.failed_count);
            return Err(Failure::failed(format!("{failed} record(s) not acknowledged: {error}")));
        }
        match sent {
            Ok(()) => Ok(()),
            Err(End::Failed { line, failure }) => Err(failure.at(&format!("line {line}"))),
            Err(End::Interrupted) => Err(Failure::interrupted("interrupted: what was read and not sent is left out")),
        }
    }
}

/// Awaits deliveries in order and counts them, up to the first that fails; the rest is only counted.
async fn count(mut queue: mpsc::Receiver<Delivery>, shown_since: Option<Instant>) -> Tally {
    let mut tally = Tally::default();
    let mut shown_at = Instant::now();
    while let Some(delivery) = queue.recv().await {
        match delivery.wait().await {
            Ok(_) => tally.written_count += 1,
            Err(error) => {
                tally.failed_count += 1;
                tally.first_error.get_or_insert(error);
                queue.close();
            }
        }
        if let Some(since) = shown_since
            && shown_at.elapsed() >= SHOW_EVERY
        {
            shown_at = Instant::now();
            let rate = tally.written_count as f64 / since.elapsed().as_secs_f64();
            let line = format!("\r\x1b[K{} records, {}/s", grouped(tally.written_count), grouped(rate as u64));
            show(&line);
        }
    }
    tally
}

fn show(text: &str) {
    use std::io::Write;
    // Without a stderr there is nobody to show it to.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Reads in a thread of its own and hands over whole lines, many at once.
fn read_lines(
    mut input: Box<dyn Read + Send>,
) -> (mpsc::Receiver<std::io::Result<Vec<Bytes>>>, tokio::task::JoinHandle<()>) {
    let (sender, receiver) = mpsc::channel(CHUNKS_MAX);
    let reader = tokio::task::spawn_blocking(move || {
        let mut splitter = LineSplitter::default();
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            let lines = match input.read(&mut buffer) {
                Ok(0) => {
                    let _ = sender.blocking_send(Ok(splitter.finish()));
                    return;
                }
                Ok(count) => splitter.push(&buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    let _ = sender.blocking_send(Err(error));
                    return;
                }
            };
            // The sending side has stopped.
            if !lines.is_empty() && sender.blocking_send(Ok(lines)).is_err() {
                return;
            }
        }
    });
    (receiver, reader)
}

/// Cuts a stream at its newlines. A last line without one is a line, an empty rest is none.
#[derive(Debug, Default)]
struct LineSplitter {
    /// The beginning of a line whose end has not come.
    rest: BytesMut,
}

impl LineSplitter {
    /// The lines that end in `chunk`, without their newlines: slices of one buffer.
    fn push(&mut self, chunk: &[u8]) -> Vec<Bytes> {
        let Some(last) = chunk.iter().rposition(|byte| *byte == b'\n') else {
            self.rest.extend_from_slice(chunk);
            return Vec::new();
        };
        self.rest.extend_from_slice(&chunk[..=last]);
        let whole = std::mem::replace(&mut self.rest, BytesMut::from(&chunk[last + 1..])).freeze();
        let mut lines = Vec::new();
        let mut start = 0;
        while let Some(length) = whole[start..].iter().position(|byte| *byte == b'\n') {
            lines.push(whole.slice(start..start + length));
            start += length + 1;
        }
        lines
    }

    fn finish(&mut self) -> Vec<Bytes> {
        let rest = std::mem::take(&mut self.rest).freeze();
        if rest.is_empty() { Vec::new() } else { vec![rest] }
    }
}

/// Key and value of a line; without a delimiter, or without one in the line, there is no key.
fn split_key(line: Bytes, delimiter: Option<&[u8]>) -> (Option<Bytes>, Bytes) {
    let found = delimiter.filter(|delimiter| !delimiter.is_empty()).and_then(|delimiter| {
        let at = line.windows(delimiter.len()).position(|window| window == delimiter)?;
        Some((line.slice(..at), line.slice(at + delimiter.len()..)))
    });
    match found {
        Some((key, value)) => (Some(key), value),
        None => (None, line),
    }
}

/// `\t`, `\n`, `\r`, `\0`, `\\` and `\xFF` as in a shell's `$''`.
pub(super) fn unescape(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while let Some(byte) = bytes.get(i) {
        let hex = || u8::from_str_radix(text.get(i + 2..i + 4)?, 16).ok();
        let (value, length) = match (byte, bytes.get(i + 1)) {
            (b'\\', Some(b't')) => (b'\t', 2),
            (b'\\', Some(b'n')) => (b'\n', 2),
            (b'\\', Some(b'r')) => (b'\r', 2),
            (b'\\', Some(b'0')) => (0, 2),
            (b'\\', Some(b'\\')) => (b'\\', 2),
            (b'\\', Some(b'x')) => hex().map_or((b'\\', 1), |value| (value, 4)),
            _ => (*byte, 1),
        };
        out.push(value);
        i += length;
    }
    out
}

/// What a batch and a request add to a record.
const REQUEST_OVERHEAD_BYTES: usize = 1_024;
/// Records whose acknowledgement nobody has looked at yet.
const DELIVERIES_MAX: usize = 16_384;
const CHUNK_BYTES: usize = 256 << 10;
const CHUNKS_MAX: usize = 8;
const SHOW_EVERY: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(chunks: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut splitter = LineSplitter::default();
        let mut all: Vec<Bytes> = chunks.iter().flat_map(|chunk| splitter.push(chunk)).collect();
        all.extend(splitter.finish());
        all.into_iter().map(|line| line.to_vec()).collect()
    }

    #[test]
    fn lines_are_the_same_wherever_the_reads_cut_them() {
        let text = b"a\r\n\n\xff\0b\nlast";
        let expected = [&b"a\r"[..], b"", b"\xff\0b", b"last"].map(<[u8]>::to_vec);
        for cut in 0..=text.len() {
            assert_eq!(lines(&[&text[..cut], &text[cut..]]), expected, "cut at {cut}");
        }
    }

    #[test]
    fn a_final_newline_begins_no_record() {
        assert_eq!(lines(&[b"a\n"]), [b"a"]);
        assert_eq!(lines(&[b"\n"]), [b""]);
        assert_eq!(lines(&[]), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn the_first_delimiter_ends_the_key() {
        let split = |line: &'static str, delimiter: &str| split_key(Bytes::from(line), Some(delimiter.as_bytes()));
        assert_eq!(split("k:v:w", ":"), (Some("k".into()), "v:w".into()));
        assert_eq!(split(":v", ":"), (Some("".into()), "v".into()));
        assert_eq!(split("no key", ":"), (None, "no key".into()));
        assert_eq!(split("k::v", "::"), (Some("k".into()), "v".into()));
        assert_eq!(split("k", ""), (None, "k".into()));
    }

    #[test]
    fn escapes_are_read_and_others_are_left() {
        assert_eq!(unescape(r"\t\x1f\\\q\xz"), b"\t\x1f\\\\q\\xz");
        assert_eq!(unescape("\u{e9}\\n"), "\u{e9}\n".as_bytes());
    }
}
