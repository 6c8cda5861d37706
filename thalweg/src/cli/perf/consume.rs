//! `thalweg perf consume`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use clap::Args;
use thalweg_client::{Consumer, ConsumerConfig, Isolation, OffsetSpec, StartAt};
use thalweg_model::{Offset, TopicPartition};

use super::summary::{Latencies, Summary};
use crate::cli::connect::Connection;
use crate::cli::failure::Failure;
use crate::cli::output::Output;
use crate::cli::stop::Stop;

/// Records are unpacked and counted, not printed. Ends at what is the end when it begins.
#[derive(Debug, Args)]
pub struct Consume {
    topic: String,
    /// At most so many records
    #[arg(short = 'n', long, visible_alias = "num-records", value_name = "N")]
    records: Option<u64>,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
}

#[derive(Default)]
struct Counted {
    record_count: u64,
    byte_count: u64,
    waited: Duration,
}

impl Consume {
    pub async fn run(self) -> Result<(), Failure> {
        let client = self.connection.open().await?;
        let topic = client.topic(&self.topic, false).await?;
        let logs = client.admin().topic_ends(&topic, Isolation::ReadUncommitted).await?;
        let ends: BTreeMap<TopicPartition, Offset> =
            logs.into_iter().filter(|(_, log)| log.end > log.start).map(|(tp, log)| (tp, log.end)).collect();
        if ends.is_empty() {
            return Err(Failure::failed(format!("topic {} is empty; fill it with `thalweg perf produce`", self.topic)));
        }
        let mut consumer = Consumer::new(&client, ConsumerConfig::default())?;
        let mut latencies = Latencies::new()?;
        let mut counted = Counted::default();
        let started = Instant::now();
        let mut stop = Stop::listen()?;
        tokio::select! {
            biased;
            () = stop.asked() => {}
            read = self.read(&mut consumer, ends, &mut latencies, &mut counted) => read?,
        }
        let took = started.elapsed();
        let share = counted.waited.as_secs_f64() / took.as_secs_f64().max(1e-9);
        let verdict = if share > 0.5 {
            "The cluster set the pace: this process waited for records most of the time."
        } else {
            "This process set the pace: unpacking records took most of the time."
        };
        let summary = Summary {
            record_count: counted.record_count,
            failed_count: 0,
            byte_count: counted.byte_count,
            took,
            latency_of: "each wait for the next records, which come many at once",
            latencies,
            waited: counted.waited,
            waited_for: "for records",
            verdict: verdict.to_owned(),
        };
        summary.print(self.output.format)
    }

    async fn read(
        &self,
        consumer: &mut Consumer,
        mut ends: BTreeMap<TopicPartition, Offset>,
        latencies: &mut Latencies,
        counted: &mut Counted,
    ) -> Result<(), Failure> {
        let start = StartAt::Spec(OffsetSpec::Earliest);
        consumer.assign(ends.keys().map(|tp| (tp.clone(), start)))?;
        let max = self.records.unwrap_or(u64::MAX);
        while !ends.is_empty() && counted.record_count < max {
            let before = Instant::now();
            let set = consumer.poll(POLL_TIMEOUT).await?;
            let wait = before.elapsed();
            counted.waited += wait;
            if let Some(set) = set {
                latencies.record(wait);
                let tp = set.tp.clone();
                for record in set {
                    let record = record?;
                    let size = |bytes: &Option<bytes::Bytes>| bytes.as_ref().map_or(0, bytes::Bytes::len) as u64;
                    counted.record_count += 1;
                    counted.byte_count += size(&record.key) + size(&record.value);
                }
                if consumer.position(&tp).zip(ends.get(&tp)).is_some_and(|(position, end)| position >= *end) {
                    ends.remove(&tp);
                    consumer.pause(&tp)?;
                }
            } else {
                // A log may end in offsets without records, such as transaction markers.
                ends.retain(|tp, end| consumer.position(tp).is_none_or(|position| position < *end));
            }
        }
        Ok(())
    }
}

const POLL_TIMEOUT: Duration = Duration::from_secs(1);
