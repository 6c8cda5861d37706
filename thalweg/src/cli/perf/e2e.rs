//! `thalweg perf e2e`.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use clap::Args;
use thalweg_client::consumer::topic_partition;
use thalweg_client::{
    Acks, Client, Consumer, ConsumerConfig, OffsetSpec, Producer, ProducerConfig, ProducerRecord, StartAt,
};
use tokio::sync::mpsc;

use super::pace::Pace;
use super::produce::values;
use super::summary::{Latencies, Summary};
use crate::cli::connect::Connection;
use crate::cli::failure::Failure;
use crate::cli::output::Output;
use crate::cli::topic::AcksName;

/// One process writes and reads, so that one clock measures. One partition at a time: the first of the topic. A missing
/// topic is created.
#[derive(Debug, Args)]
pub struct EndToEnd {
    topic: String,
    /// So many records
    #[arg(short = 'n', long, visible_alias = "num-records", default_value_t = 1_000, value_name = "N")]
    records: u64,
    /// Bytes of each value
    #[arg(short, long, visible_alias = "record-size", default_value_t = 1_024, value_name = "BYTES")]
    size: usize,
    /// Records per second
    #[arg(short, long, default_value_t = 200, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    rate: u64,
    /// Who must have a record before it counts: every in-sync replica, the leader, nobody
    #[arg(long, value_enum, default_value_t = AcksName::All)]
    acks: AcksName,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
}

impl EndToEnd {
    pub async fn run(self) -> Result<(), Failure> {
        let client = self.connection.open().await?;
        client.fetch_topic(&self.topic, true).await?;
        let tp = topic_partition(&self.topic, 0)?;
        let latest = client.list_offsets(&[(tp.clone(), OffsetSpec::Latest)].into(), Default::default()).await?;
        let start = latest.get(&tp).map(|listed| listed.offset);
        let start = start.ok_or_else(|| Failure::failed(format!("{tp} has no end")))?;
        // Each value begins with this: what others write meanwhile is not ours.
        let mark: [u8; 8] = rand::random();
        let (sent, times) = mpsc::unbounded_channel();
        let config = ConsumerConfig { fetch_wait: Duration::from_millis(500), ..ConsumerConfig::default() };
        let mut consumer = Consumer::new(&client, config)?;
        consumer.assign([(tp, StartAt::Offset(start))])?;
        let started = Instant::now();
        let producing = self.produce(&client, mark, started, sent);
        let mut latencies = Latencies::new()?;
        let consuming = self.consume(&mut consumer, mark, times, &mut latencies);
        let (produced, record_count) = tokio::join!(producing, consuming);
        // What kept records from being written is also why none came.
        produced?;
        let (record_count, waited) = record_count?;
        let took = started.elapsed();
        let offered = Duration::from_secs_f64(self.records as f64 / self.rate as f64);
        let is_steady = took < offered + Duration::from_secs(1);
        let summary = Summary {
            record_count,
            failed_count: self.records.saturating_sub(record_count),
            byte_count: record_count.saturating_mul(self.size as u64),
            took,
            latency_of: "from when a record was due until the consumer had it; no linger",
            latencies,
            waited,
            waited_for: "in the consumer, for records",
            verdict: if is_steady {
                format!("The rate was given: {} records/s.", self.rate)
            } else {
                format!("The cluster did not keep up with {} records/s.", self.rate)
            },
        };
        summary.print(self.output.format)
    }

    async fn produce(
        &self,
        client: &Client,
        mark: [u8; 8],
        started: Instant,
        sent: mpsc::UnboundedSender<Instant>,
    ) -> Result<(), Failure> {
        let acks = self.acks.acks();
        let config =
            ProducerConfig { acks, idempotent: acks == Acks::All, linger: Duration::ZERO, ..ProducerConfig::default() };
        let producer = Producer::new(client, config)?;
        let pace = Pace::new(started, self.rate);
        let filling = values(self.size.saturating_sub(mark.len()));
        let mut deliveries = VecDeque::new();
        for number in 0..self.records {
            let from = pace.wait(number).await;
            let mut value = mark.to_vec();
            if let Some(rest) = filling.get(number as usize % filling.len()) {
                value.extend_from_slice(rest);
            }
            // Before the record: the consumer must not have it first.
            let _ = sent.send(from);
            let record = ProducerRecord { partition: Some(0), ..ProducerRecord::new(&self.topic).value(value) };
            deliveries.push_back(producer.send(record).await?);
            while deliveries.len() > DELIVERIES_MAX
                && let Some(delivery) = deliveries.pop_front()
            {
                delivery.wait().await?;
            }
        }
        producer.flush().await;
        for delivery in deliveries {
            delivery.wait().await?;
        }
        producer.close().await;
        Ok(())
    }

    /// Gives how many came back, and how long it waited for them. One partition keeps their order.
    async fn consume(
        &self,
        consumer: &mut Consumer,
        mark: [u8; 8],
        mut times: mpsc::UnboundedReceiver<Instant>,
        latencies: &mut Latencies,
    ) -> Result<(u64, Duration), Failure> {
        let (mut count, mut waited) = (0, Duration::ZERO);
        let mut last = Instant::now();
        while count < self.records {
            let before = Instant::now();
            let set = consumer.poll(POLL_TIMEOUT).await?;
            waited += before.elapsed();
            for record in set.into_iter().flatten() {
                let record = record?;
                if !record.value.is_some_and(|value| value.starts_with(&mark)) {
                    continue;
                }
                let Ok(from) = times.try_recv() else { return Ok((count, waited)) };
                latencies.record(from.elapsed());
                count += 1;
                last = Instant::now();
            }
            // The producer has failed, and says so itself.
            if times.is_closed() && times.is_empty() {
                break;
            }
            if last.elapsed() > SILENCE_MAX {
                return Err(Failure::failed(format!(
                    "no record came for {} s; {count} came before",
                    SILENCE_MAX.as_secs()
                )));
            }
        }
        Ok((count, waited))
    }
}

const DELIVERIES_MAX: usize = 16_384;
const POLL_TIMEOUT: Duration = Duration::from_secs(1);
const SILENCE_MAX: Duration = Duration::from_secs(30);
