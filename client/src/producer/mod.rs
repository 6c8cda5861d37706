//! Sending records.

mod accumulator;
mod batch;
mod delivery;
mod encode;
mod partitioner;
mod record;
mod sender;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use thalweg_model::{PartitionIndex, TopicName, TopicPartition};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;

pub use delivery::{Delivered, Delivery};
pub use partitioner::{murmur2, partition_of_key};
pub use record::{Header, ProducerRecord};

use crate::client::{Client, OwnerId};
use crate::config::Compression;
use crate::error::{ClientError, Result};
use crate::metadata::TopicInfo;
use accumulator::{Accumulator, AccumulatorConfig};
use partitioner::StickyPartitioner;
use record::BatchRecord;
use sender::Sender;

/// What it takes for a record to count as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// Nobody says anything: fast, and losses stay unknown.
    None,
    /// The leader has it.
    Leader,
    /// Every in-sync replica has it, as durably as the topic demands.
    All,
}

/// How a producer sends.
#[derive(Clone, Debug)]
pub struct ProducerConfig {
    pub acks: Acks,
    pub compression: Compression,
    /// Batches of a partition are closed at this size, uncompressed.
    pub batch_bytes: usize,
    /// How long a batch waits for more records. A full one does not wait.
    pub linger: Duration,
    /// The largest request, and so the largest record.
    pub request_bytes_max: usize,
    /// Records that are not acknowledged, in all. A full buffer makes [`Producer::send`] wait.
    pub buffer_bytes: usize,
    /// How long [`Producer::send`] waits for room or for the topic.
    pub block_timeout: Duration,
    /// From [`Producer::send`] to giving a record up.
    pub delivery_timeout: Duration,
    /// Retries neither double nor swap records (KIP-98). Needs [`Acks::All`]; without it one batch of a partition
    /// is under way at a time.
    pub idempotent: bool,
    /// Requests to one broker without an answer.
    pub in_flight_max: usize,
    /// Let the broker create topics that do not exist.
    pub create_topics: bool,
}

impl Default for ProducerConfig {
    fn default() -> ProducerConfig {
        ProducerConfig {
            acks: Acks::All,
            compression: Compression::None,
            batch_bytes: 128 << 10,
            linger: Duration::from_millis(5),
            request_bytes_max: 1 << 20,
            buffer_bytes: 32 << 20,
            block_timeout: Duration::from_secs(60),
            delivery_timeout: Duration::from_secs(120),
            idempotent: true,
            in_flight_max: 5,
            create_topics: true,
        }
    }
}

impl Acks {
    pub(crate) fn code(self) -> i16 {
        match self {
            Acks::None => 0,
            Acks::Leader => 1,
            Acks::All => -1,
        }
    }
}

/// Batches records and sends them in the background. Dropping it gives up what is not sent: [`Producer::close`] first.
#[derive(Debug)]
pub struct Producer {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

/// What the producer's callers and its sender share.
#[derive(Debug)]
pub(crate) struct Shared {
    client: Client,
    owner: OwnerId,
    config: ProducerConfig,
    state: Mutex<State>,
    /// One permit per free byte of the buffer.
    room: Semaphore,
    /// Something new to plan.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    accumulator: Accumulator,
    topics: BTreeMap<String, TopicState>,
    closing: bool,
}

/// What `send` needs of a topic, found by the name that the caller uses.
#[derive(Debug)]
struct TopicState {
    name: TopicName,
    partition_count: i32,
    sendable: Vec<i32>,
    sticky: StickyPartitioner,
}

impl Producer {
    /// # Errors
    /// The settings contradict each other.
    pub fn new(client: &Client, config: ProducerConfig) -> Result<Producer> {
        let config = checked(config)?;
        let accumulator = Accumulator::new(AccumulatorConfig {
            batch_bytes: config.batch_bytes,
            request_bytes_max: config.request_bytes_max,
            linger: config.linger,
            delivery_timeout: config.delivery_timeout,
            retry_backoff: client.config().backoff * 2,
            idempotent: config.idempotent,
        });
        let shared = Arc::new(Shared {
            client: client.clone(),
            owner: client.new_owner(),
            room: Semaphore::new(config.buffer_bytes),
            config,
            state: Mutex::new(State { accumulator, topics: BTreeMap::new(), closing: false }),
            changed: Notify::new(),
        });
        let task = tokio::spawn(Sender::new(Arc::clone(&shared)).run());
        Ok(Producer { shared, task })
    }

    /// Hands a record over and returns its fate. Waits for the topic's metadata and for room in the buffer.
    ///
    /// Records of one caller that go to the same partition keep their order.
    ///
    /// # Errors
    /// The record can never be sent as it is (too large, no such topic or partition), or there is no room in time.
    pub async fn send(&self, record: ProducerRecord) -> Result<Delivery> {
        let ProducerRecord { topic, partition, key, value, headers, timestamp } = record;
        let timestamp = timestamp.unwrap_or_else(|| self.shared.client.clock().wall());
        let record = BatchRecord { timestamp, key, value, headers };
        let bytes = record.bytes_max();
        self.check_size(&topic, bytes)?;
        if !self.shared.state().topics.contains_key(&topic) {
            self.learn_topic(&topic).await?;
        }
        if partition.is_some_and(|p| self.shared.state().topics.get(&topic).is_some_and(|t| p >= t.partition_count)) {
            // It may have got more partitions since.
            self.learn_topic(&topic).await?;
        }
        self.acquire(&topic, bytes).await?;
        let appended = self.append(&topic, partition, record, bytes);
        if appended.is_err() {
            self.shared.room.add_permits(bytes);
        }
        let (delivery, wake) = appended?;
        if wake {
            self.shared.changed.notify_one();
        }
        Ok(delivery)
    }

    /// Sends all that was handed over so far, now, and waits until each has its fate.
    pub async fn flush(&self) {
        let outcomes = self.shared.state().accumulator.flush();
        self.shared.changed.notify_one();
        for outcome in outcomes {
            wait_for_all(&outcome).await;
        }
    }

    /// Flushes and ends.
    pub async fn close(mut self) {
        self.flush().await;
        self.shared.state().closing = true;
        self.shared.changed.notify_one();
        // It has nothing left to do and ends by itself.
        let _ = (&mut self.task).await;
    }

    fn append(
        &self,
        topic: &str,
        partition: Option<i32>,
        record: BatchRecord,
        bytes: usize,
    ) -> Result<(Delivery, bool)> {
        let now = self.shared.client.clock().mono();
        let mut state = self.shared.state();
        let State { accumulator, topics, closing } = &mut *state;
        if *closing {
            return Err(ClientError::Closed);
        }
        let known = topics.get_mut(topic).ok_or_else(|| ClientError::UnknownTopic { topic: topic.to_owned() })?;
        let partition = match (partition, &record.key) {
            (Some(partition), _) if (0..known.partition_count).contains(&partition) => partition,
            (Some(partition), _) => {
                let (topic, partition_count) = (topic.to_owned(), known.partition_count);
                return Err(ClientError::UnknownPartition { topic, partition, partition_count });
            }
            (None, Some(key)) => partition_of_key(key, known.partition_count),
            (None, None) => known
                .sticky
                .pick(&known.sendable, bytes, self.shared.config.batch_bytes, rand::random)
                .ok_or_else(|| ClientError::NoLeader { topic: topic.to_owned(), partition: 0 })?,
        };
        let tp = TopicPartition::new(known.name.clone(), PartitionIndex(partition));
        Ok(accumulator.append(&tp, record, now))
    }

    fn check_size(&self, topic: &str, bytes: usize) -> Result<()> {
        let config = &self.shared.config;
        let over = |limit: usize, limit_name, remedy| ClientError::RecordTooLarge {
            topic: topic.to_owned(),
            size: bytes,
            limit,
            limit_name,
            remedy,
        };
        if bytes + record::BATCH_HEADER_BYTES > config.request_bytes_max {
            let remedy = "raise it, and max.message.bytes of the topic with it, or send the data in parts";
            return Err(over(config.request_bytes_max, "request_bytes_max", remedy));
        }
        if bytes > config.buffer_bytes {
            return Err(over(config.buffer_bytes, "buffer_bytes", "raise it"));
        }
        Ok(())
    }

    async fn learn_topic(&self, topic: &str) -> Result<()> {
        let waited = self.shared.config.block_timeout;
        let asking = self.shared.client.fetch_topic(topic, self.shared.config.create_topics);
        let info = match tokio::time::timeout(waited, asking).await {
            Ok(info) => info?,
            Err(_) => {
                let address = self.shared.client.config().bootstrap.join(",");
                return Err(ClientError::TimedOut { what: "metadata of the topic", address, after: waited });
            }
        };
        self.shared.learn(&info)
    }

    async fn acquire(&self, topic: &str, bytes: usize) -> Result<()> {
        let count = u32::try_from(bytes).unwrap_or(u32::MAX);
        if let Ok(permits) = self.shared.room.try_acquire_many(count) {
            permits.forget();
            return Ok(());
        }
        // Whoever waits for room wants the open batches to leave.
        self.shared.changed.notify_one();
        let waited = self.shared.config.block_timeout;
        match tokio::time::timeout(waited, self.shared.room.acquire_many(count)).await {
            Ok(Ok(permits)) => {
                permits.forget();
                Ok(())
            }
            Ok(Err(_)) => Err(ClientError::Closed),
            Err(_) => {
                let limit = self.shared.config.buffer_bytes;
                Err(ClientError::BufferFull { topic: topic.to_owned(), limit, waited })
            }
        }
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.task.abort();
        self.shared.state().accumulator.fail_all(&ClientError::Closed);
        self.shared.client.release(self.shared.owner);
    }
}

impl Shared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up what is known of a topic now.
    fn learn(&self, info: &TopicInfo) -> Result<()> {
        let name = TopicName::new(&info.name).map_err(|error| ClientError::InvalidUse {
            what: format!("topic name {:?}: {error}", info.name),
            remedy: "choose another name".to_owned(),
        })?;
        let mut state = self.state();
        let known = state.topics.entry(info.name.clone()).or_insert_with(|| TopicState {
            name,
            partition_count: 0,
            sendable: Vec::new(),
            sticky: StickyPartitioner::default(),
        });
        known.partition_count = info.partition_count();
        known.sendable = info.sendable();
        Ok(())
    }

    /// Gives the memory of finished records back.
    fn release(&self) {
        let freed = self.state().accumulator.take_freed_bytes();
        if freed > 0 {
            self.room.add_permits(freed);
        }
    }
}

/// Waits until a batch, and what it was split into, has its fate.
async fn wait_for_all(outcome: &Arc<delivery::Outcome>) {
    let mut left = vec![Arc::clone(outcome)];
    while let Some(outcome) = left.pop() {
        if let delivery::Fate::Split { first, second, .. } = outcome.wait().await {
            left.extend([first, second]);
        }
    }
}

fn checked(mut config: ProducerConfig) -> Result<ProducerConfig> {
    let invalid =
        |what: &str, remedy: &str| Err(ClientError::InvalidUse { what: what.to_owned(), remedy: remedy.to_owned() });
    if config.idempotent && config.acks != Acks::All {
        return invalid("an idempotent producer needs acks=all", "set idempotent to false, or acks to all");
    }
    if config.in_flight_max == 0 || config.batch_bytes == 0 {
        return invalid("in_flight_max and batch_bytes must not be 0", "leave them at their defaults");
    }
    config.batch_bytes = config.batch_bytes.min(config.request_bytes_max);
    config.buffer_bytes = config.buffer_bytes.min(Semaphore::MAX_PERMITS);
    Ok(config)
}
