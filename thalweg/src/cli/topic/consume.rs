//! `thalweg topic consume`: records to stdout.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use thalweg_client::consumer::Assignor;
use thalweg_client::{Client, Consumer, ConsumerConfig, Isolation, OffsetReset, RecordSet, StartAt, TopicInfo};
use thalweg_model::{Offset, TopicPartition};

use super::print::{Printed, Printer};
use super::start::StartPoint;
use crate::cli::connect::Connection;
use crate::cli::failure::Failure;
use crate::cli::output::{grouped, note};
use crate::cli::stop::Stop;

/// Without -G every partition is read from the beginning, and nothing is stored. With -G this is a member of the
/// group: it shares the partitions, goes on where the group left off, and stores what it has printed.
#[derive(Debug, Args)]
pub struct Consume {
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    /// Where to start: beginning, end, 123, -10 (before the end), @time (ms or 2026-01-31T12:00, UTC); with -G only
    /// beginning or end, and only where the group has stored nothing [default: beginning]
    #[arg(short, long, value_name = "START", allow_hyphen_values = true)]
    offset: Option<StartPoint>,
    /// Only this partition; may be repeated
    #[arg(short, long = "partition", value_parser = clap::value_parser!(i32).range(0..), conflicts_with = "group")]
    partitions: Vec<i32>,
    /// Stop at what is the end now
    #[arg(short, long)]
    exit: bool,
    /// Stop after so many records
    #[arg(short = 'c', long, visible_alias = "num", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// %s value, %k key, %h headers, %t topic, %p partition, %o offset, %T timestamp, %S %K lengths, %R length as 4
    /// bytes, \n \t \xFF; or json [default: '%s\n']
    #[arg(short, long, value_name = "FORMAT")]
    format: Option<String>,
    /// Print the key and this before the value
    #[arg(short = 'K', long, value_name = "DELIMITER", conflicts_with_all = ["format", "json"])]
    key_delimiter: Option<String>,
    /// One JSON object a line, as --format json
    #[arg(short = 'J', long, conflicts_with = "format")]
    json: bool,
    /// Read as a member of this group
    #[arg(short = 'G', long)]
    group: Option<String>,
    /// How the group shares partitions: what its other members name, in order of preference; may be repeated
    /// [default: range, cooperative-sticky]
    #[arg(long = "assignor", value_name = "NAME", value_parser = assignors(), requires = "group")]
    assignors: Vec<Assignor>,
    /// Only records of committed transactions
    #[arg(long)]
    committed: bool,
    /// Say at the end how many records were printed
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    connection: Connection,
}

/// Every name that the client knows.
fn assignors() -> impl TypedValueParser<Value = Assignor> {
    PossibleValuesParser::new(Assignor::ALL.map(Assignor::name))
        .try_map(|name| Assignor::from_name(&name).ok_or("no such assignor"))
}

impl Consume {
    pub async fn run(self) -> Result<(), Failure> {
        let printer = self.printer()?;
        let client = self.connection.open().await?;
        let mut topics = Vec::new();
        for topic in &self.topics {
            topics.push(client.topic(topic, false).await?);
        }
        let ends = self.log_ends(&client, &topics).await?;
        let mut consumer = Consumer::new(&client, self.config()?)?;
        if self.group.is_some() {
            consumer.subscribe(&self.topics)?;
        } else {
            let start = self.offset.unwrap_or(StartPoint::Beginning);
            if start == StartPoint::Stored {
                return Err(Failure::usage("-o stored needs a group: -G GROUP"));
            }
            consumer.assign(ends.iter().map(|(tp, log)| (tp.clone(), start.resolve(log.start, log.end))))?;
        }
        let mut reading = Reading {
            out: BufWriter::with_capacity(OUT_BYTES, io::stdout().lock()),
            printer,
            ends: self.exit.then(|| ends.into_iter().map(|(tp, log)| (tp, log.end)).collect()),
            left_count: self.count,
            printed_count: 0,
        };
        let result = reading.run(&mut consumer).await;
        // In a group what is printed is stored now.
        let closed = consumer.close().await;
        if self.verbose {
            note(&format!("{} record(s)", grouped(reading.printed_count)));
        }
        result?;
        Ok(closed?)
    }

    fn printer(&self) -> Result<Printer, Failure> {
        let format = match (&self.format, &self.key_delimiter) {
            (Some(format), _) => format.clone(),
            (None, _) if self.json => "json".to_owned(),
            (None, Some(delimiter)) => format!("%k{}%s\\n", delimiter.replace('%', "%%")),
            (None, None) => "%s\\n".to_owned(),
        };
        Printer::new(&format).map_err(Failure::usage)
    }

    fn config(&self) -> Result<ConsumerConfig, Failure> {
        let offset_reset = match (self.offset, &self.group) {
            (None | Some(StartPoint::Beginning | StartPoint::Stored), _) | (Some(_), None) => OffsetReset::Earliest,
            (Some(StartPoint::End), Some(_)) => OffsetReset::Latest,
            (Some(_), Some(_)) => {
                return Err(Failure::usage("with -G a group's stored offsets count; -o can only be beginning or end"));
            }
        };
        let defaults = ConsumerConfig::default();
        Ok(ConsumerConfig {
            group_id: self.group.clone(),
            offset_reset,
            isolation: self.isolation(),
            assignors: if self.assignors.is_empty() { defaults.assignors } else { self.assignors.clone() },
            ..defaults
        })
    }

    fn isolation(&self) -> Isolation {
        if self.committed { Isolation::ReadCommitted } else { Isolation::ReadUncommitted }
    }

    /// First offset and end of each partition that is wanted.
    async fn log_ends(
        &self,
        client: &Client,
        topics: &[TopicInfo],
    ) -> Result<BTreeMap<TopicPartition, std::ops::Range<Offset>>, Failure> {
        let mut ends = BTreeMap::new();
        for topic in topics {
            let mut wanted = topic.clone();
            if !self.partitions.is_empty() {
                for partition in &self.partitions {
                    if topic.partition(*partition).is_none() {
                        let (name, last) = (&topic.name, topic.partition_count() - 1);
                        return Err(Failure::not_found(format!(
                            "topic {name} has partitions 0 to {last}, not {partition}"
                        )));
                    }
                }
                wanted.partitions.retain(|partition| self.partitions.contains(&partition.index));
            }
            ends.extend(client.admin().topic_ends(&wanted, self.isolation()).await?);
        }
        Ok(ends)
    }
}

/// A consumption under way.
struct Reading<W: Write> {
    out: W,
    printer: Printer,
    /// Where to stop, with `--exit`.
    ends: Option<BTreeMap<TopicPartition, Offset>>,
    left_count: Option<u64>,
    printed_count: u64,
}

impl<W: Write> Reading<W> {
    /// Until the end, the count, a signal or an error.
    async fn run(&mut self, consumer: &mut Consumer) -> Result<(), Failure> {
        let mut stop = Stop::listen()?;
        let mut timeout = Duration::ZERO;
        loop {
            // Before the next poll: in a group it may store what was given out as processed.
            self.out.flush()?;
            let polled = tokio::select! {
                biased;
                () = stop.asked() => return Ok(()),
                polled = consumer.poll(timeout) => polled?,
            };
            timeout = POLL_TIMEOUT;
            if let Some(set) = polled {
                let tp = set.tp.clone();
                let first = set.first_offset();
                match self.print(set) {
                    Ok(None) => {}
                    Ok(Some(next)) => {
                        // Stopped in the middle: the rest of the set is not printed and must not be stored.
                        self.out.flush()?;
                        let _ = consumer.seek(&tp, StartAt::Offset(next));
                        return Ok(());
                    }
                    Err(failure) => {
                        let _ = consumer.seek(&tp, StartAt::Offset(first));
                        return Err(failure);
                    }
                }
            }
            if self.is_at_end(consumer) {
                return Ok(self.out.flush()?);
            }
        }
    }

    /// Prints a set. `Some` if the count was reached: the offset of the first record that was not printed.
    fn print(&mut self, set: RecordSet) -> Result<Option<Offset>, Failure> {
        let tp = set.tp.clone();
        let end = self.ends.as_ref().and_then(|ends| ends.get(&tp).copied());
        for record in set {
            let record = record?;
            if end.is_some_and(|end| record.offset >= end) {
                return Ok(None);
            }
            self.printer.print(
                &mut self.out,
                &Printed {
                    topic: tp.topic.as_str(),
                    partition: tp.partition.0,
                    offset: record.offset.0,
                    timestamp: record.timestamp.0,
                    key: record.key.as_deref(),
                    value: record.value.as_deref(),
                    headers: &record.headers,
                },
            )?;
            self.printed_count += 1;
            if let Some(left) = &mut self.left_count {
                *left -= 1;
                if *left == 0 {
                    return Ok(Some(record.offset.plus(1)));
                }
            }
        }
        Ok(None)
    }

    /// Whether each partition that is read has come to where it ended when we began.
    fn is_at_end(&self, consumer: &Consumer) -> bool {
        let Some(ends) = &self.ends else { return false };
        let assigned = consumer.assignment();
        let is_done = |tp: &TopicPartition| {
            let end = ends.get(tp).copied().unwrap_or(Offset::ZERO);
            consumer.position(tp).is_some_and(|position| position >= end)
        };
        // A group member may have nothing for a while: others are still reading.
        !assigned.is_empty() && assigned.iter().all(is_done)
    }
}

const OUT_BYTES: usize = 256 << 10;
const POLL_TIMEOUT: Duration = Duration::from_millis(500);
