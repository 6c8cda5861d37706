//! `thalweg perf produce`.

use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use thalweg_client::{Acks, ClientError, Delivery, Producer, ProducerConfig, ProducerRecord};
use tokio::sync::mpsc;

use super::pace::Pace;
use super::summary::{Latencies, Summary};
use crate::cli::connect::Connection;
use crate::cli::failure::Failure;
use crate::cli::output::Output;
use crate::cli::stop::Stop;
use crate::cli::topic::{AcksName, CodecName};

/// Values are random bytes, which no codec makes smaller. A missing topic is created.
#[derive(Debug, Args)]
pub struct Produce {
    topic: String,
    /// So many records
    #[arg(short = 'n', long, visible_alias = "num-records", default_value_t = 100_000, value_name = "N")]
    records: u64,
    /// Bytes of each value
    #[arg(short, long, visible_alias = "record-size", default_value_t = 1_024, value_name = "BYTES")]
    size: usize,
    /// Records per second; left out: as fast as it goes
    #[arg(short, long, visible_alias = "throughput", default_value_t = 0, value_name = "N")]
    rate: u64,
    /// Spread over so many keys; left out: records without a key
    #[arg(long, default_value_t = 0, value_name = "N")]
    keys: u64,
    #[arg(short = 'z', long, value_enum, default_value_t = CodecName::None)]
    compression: CodecName,
    /// Who must have a record before it counts: every in-sync replica, the leader, nobody
    #[arg(long, value_enum, default_value_t = AcksName::All)]
    acks: AcksName,
    /// How long a batch waits for more records, in milliseconds
    #[arg(long, default_value_t = 5, value_name = "MS")]
    linger: u64,
    /// A batch holds up to so many bytes
    #[arg(long, default_value_t = 16 << 10, value_name = "BYTES")]
    batch_bytes: usize,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
}

/// What came of the records.
struct Tally {
    latencies: Latencies,
    written_count: u64,
    failed_count: u64,
    first_error: Option<ClientError>,
}

impl Produce {
    pub async fn run(self) -> Result<(), Failure> {
        let client = self.connection.open().await?;
        client.fetch_topic(&self.topic, true).await?;
        let acks = self.acks.acks();
        let config = ProducerConfig {
            acks,
            idempotent: acks == Acks::All,
            compression: self.compression.compression(),
            linger: Duration::from_millis(self.linger),
            batch_bytes: self.batch_bytes,
            request_bytes_max: (1 << 20).max(self.size.saturating_add(2_048)),
            ..ProducerConfig::default()
        };
        let producer = Producer::new(&client, config)?;
        let (deliveries, queue) = mpsc::channel(QUEUE_MAX);
        let tally = tokio::spawn(count(queue, Latencies::new()?));
        let started = Instant::now();
        let mut stop = Stop::listen()?;
        let mut waited = Duration::ZERO;
        // Biased, so that a key that was pressed ends it.
        let sent = tokio::select! {
            biased;
            () = stop.asked() => Ok(()),
            sent = self.send(&producer, &deliveries, started, &mut waited) => sent,
        };
        let handed_over = Instant::now();
        producer.close().await;
        waited += handed_over.elapsed();
        drop(deliveries);
        let tally = tally.await.map_err(|error| Failure::failed(error.to_string()))?;
        let took = started.elapsed();
        sent?;
        if let (0, Some(error)) = (tally.written_count, &tally.first_error) {
            return Err(Failure::from(error.clone()));
        }
        let summary = Summary {
            record_count: tally.written_count,
            failed_count: tally.failed_count,
            byte_count: tally.written_count.saturating_mul(self.size as u64),
            took,
            latency_of: match self.rate {
                0 => {
                    "from handing over to the acknowledgement; without --rate this is mostly the queue in this process"
                }
                _ => "from when a record was due until it was acknowledged; the linger time is in it",
            },
            verdict: self.verdict(waited, took),
            latencies: tally.latencies,
            waited,
            waited_for: "for room in the producer's buffer, and for the last acknowledgements",
        };
        summary.print(self.output.format)?;
        match tally.first_error {
            Some(error) => Err(Failure::failed(format!("{} record(s) not acknowledged: {error}", tally.failed_count))),
            None => Ok(()),
        }
    }

    async fn send(
        &self,
        producer: &Producer,
        deliveries: &mpsc::Sender<(Instant, Delivery)>,
        started: Instant,
        waited: &mut Duration,
    ) -> Result<(), Failure> {
        let values = values(self.size);
        let pace = Pace::new(started, self.rate);
        for number in 0..self.records {
            let from = pace.wait(number).await;
            let mut record = ProducerRecord::new(&self.topic).value(values[(number % VALUE_COUNT) as usize].clone());
            if self.keys > 0 {
                record = record.key(format!("key-{}", number % self.keys));
            }
            let before = Instant::now();
            // The tally ends early only if it panicked, which its owner hears of.
            let Ok(place) = deliveries.reserve().await else { return Ok(()) };
            let delivery = producer.send(record).await?;
            // Handing over takes a microsecond unless there is no room.
            *waited += before.elapsed().saturating_sub(HAND_OVER);
            place.send((from, delivery));
        }
        Ok(())
    }

    fn verdict(&self, waited: Duration, took: Duration) -> String {
        let share = waited.as_secs_f64() / took.as_secs_f64().max(1e-9);
        match self.rate {
            0 if share > 0.5 => "The cluster set the pace: this process waited for it most of the time.".to_owned(),
            0 => "This process set the pace: it was busy handing records over most of the time.".to_owned(),
            rate if share > 0.05 => format!("The cluster did not keep up with {rate} records/s."),
            rate => format!("The rate was given: {rate} records/s."),
        }
    }
}

async fn count(mut queue: mpsc::Receiver<(Instant, Delivery)>, latencies: Latencies) -> Tally {
    let mut tally = Tally { latencies, written_count: 0, failed_count: 0, first_error: None };
    // In the order in which they come: partitions do not wait for one another.
    let mut open = FuturesUnordered::new();
    let mut is_over = false;
    while !is_over || !open.is_empty() {
        tokio::select! {
            biased;
            Some((from, outcome)) = open.next(), if !open.is_empty() => {
                let from: Instant = from;
                let outcome: Result<_, ClientError> = outcome;
                match outcome {
                    Ok(_) => {
                        tally.written_count += 1;
                        tally.latencies.record(from.elapsed());
                    }
                    Err(error) => {
                        tally.failed_count += 1;
                        tally.first_error.get_or_insert(error);
                    }
                }
            }
            next = queue.recv(), if !is_over => match next {
                Some((from, delivery)) => open.push(async move { (from, delivery.wait().await) }),
                None => is_over = true,
            },
        }
    }
    tally
}

/// Random bytes: a codec finds nothing in them, and values differ.
pub fn values(size: usize) -> Vec<Bytes> {
    let value = |_| {
        let mut bytes = vec![0; size];
        rand::Rng::fill_bytes(&mut rand::rng(), &mut bytes);
        Bytes::from(bytes)
    };
    (0..VALUE_COUNT).map(value).collect()
}

const VALUE_COUNT: u64 = 64;
/// Records whose outcome nobody has looked at yet.
const QUEUE_MAX: usize = 65_536;
const HAND_OVER: Duration = Duration::from_micros(20);
