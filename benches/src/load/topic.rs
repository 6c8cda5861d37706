//! A topic for one measurement.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use thalweg_model::Durability;
use thalweg_wire::messages::create_topics::{CreatableTopic, CreatableTopicConfig, CreateTopicsRequest};
use thalweg_wire::messages::delete_topics::DeleteTopicsRequest;
use thalweg_wire::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use thalweg_wire::messages::metadata::{MetadataRequest, MetadataRequestTopic};

use super::{Batch, Connection, ProduceLoad, Target, produce};

/// A topic of its own for a measurement. Deleted with [`Topic::delete`], so that runs do not fill the disk.
#[derive(Debug)]
pub struct Topic {
    pub name: String,
    /// Of each partition; what is sent elsewhere would be refused.
    pub leaders: Vec<SocketAddr>,
}

/// How a topic is to be.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub partition_count: i32,
    /// With three replicas, two must have a record before it is acknowledged to `acks=all`.
    pub replication_factor: i16,
    pub durability: Durability,
}

impl Wanted {
    /// One partition on one broker.
    pub fn single(durability: Durability) -> Wanted {
        Wanted { partition_count: 1, replication_factor: 1, durability }
    }
}

impl Topic {
    /// Creates the topic and writes `batch` to each partition, so that files are open and its leaders are known.
    pub fn create(target: &Target, name: &str, wanted: Wanted, batch: &Batch) -> Result<Topic> {
        let mut topic = Topic::create_unwritten(target, name, wanted)?;
        topic.await_leaders(target, wanted.partition_count)?;
        topic.await_writable(target, &ProduceLoad::one_request_each(batch, wanted.partition_count))?;
        Ok(topic)
    }

    /// Creates the topic and does no more; its leaders are not known.
    pub fn create_unwritten(target: &Target, name: &str, wanted: Wanted) -> Result<Topic> {
        let config = |name: &str, value: &str| CreatableTopicConfig { name: name.into(), value: Some(value.into()) };
        // A record of 1 MiB makes a batch that is a little larger than the default allows.
        let mut configs = vec![config("file.delete.delay.ms", "0"), config("max.message.bytes", "4194304")];
        if wanted.replication_factor > 1 {
            configs.push(config("min.insync.replicas", "2"));
        }
        match (target.is_thalweg, wanted.durability) {
            (true, durability) => configs.push(config("durability", &durability.to_string())),
            // Kafka's nearest: the broker syncs each append before it answers.
            (false, Durability::Flushed) => configs.push(config("flush.messages", "1")),
            (false, Durability::Replicated) => {}
        }
        let topic = CreatableTopic {
            name: name.into(),
            num_partitions: wanted.partition_count,
            replication_factor: wanted.replication_factor,
            configs,
            ..CreatableTopic::default()
        };
        let request =
            CreateTopicsRequest { topics: vec![topic], timeout_ms: TIMEOUT_MS, ..CreateTopicsRequest::default() };
        let answer = Connection::open(target.address)?.call(&request, 5)?;
        for result in &answer.topics {
            ensure!(result.error_code == 0, "cannot create {name}: error {}", result.error_code);
        }
        Ok(Topic { name: name.into(), leaders: Vec::new() })
    }

    pub fn leader(&self, partition: i32) -> Result<SocketAddr> {
        let leader = usize::try_from(partition).ok().and_then(|index| self.leaders.get(index));
        leader.copied().with_context(|| format!("{} has no leader for partition {partition}", self.name))
    }

    /// The same topic after its one broker came back, under another address.
    pub fn at(&self, address: SocketAddr) -> Topic {
        Topic { name: self.name.clone(), leaders: vec![address; self.leaders.len()] }
    }

    /// The end of partition 0, exclusive.
    pub fn end_offset(&self) -> Result<i64> {
        let partition =
            ListOffsetsPartition { partition_index: 0, timestamp: LATEST, ..ListOffsetsPartition::default() };
        let topic = ListOffsetsTopic { name: self.name.clone(), partitions: vec![partition] };
        let request = ListOffsetsRequest { replica_id: -1, topics: vec![topic], ..ListOffsetsRequest::default() };
        let answer = Connection::open(self.leader(0)?)?.call(&request, 6)?;
        let partition = answer.topics.first().and_then(|topic| topic.partitions.first());
        let partition = partition.context("an empty answer to ListOffsets")?;
        ensure!(partition.error_code == 0, "ListOffsets failed with error {}", partition.error_code);
        Ok(partition.offset)
    }

    pub fn delete(self, target: &Target) -> Result<()> {
        let request = DeleteTopicsRequest {
            topic_names: vec![self.name.as_str().into()],
            timeout_ms: TIMEOUT_MS,
            ..DeleteTopicsRequest::default()
        };
        let answer = Connection::open(target.address)?.call(&request, 4)?;
        for result in &answer.responses {
            ensure!(result.error_code == 0, "cannot delete {}: error {}", self.name, result.error_code);
        }
        Ok(())
    }

    /// Waits until each partition has a leader, and keeps where it is.
    pub fn await_leaders(&mut self, target: &Target, partition_count: i32) -> Result<()> {
        let began = Instant::now();
        while self.find_leaders(target)? != usize::try_from(partition_count)? {
            ensure!(began.elapsed() < LEADER_WITHIN, "not every partition of {} got a leader", self.name);
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Writes until all that `load` asks for is taken: Kafka answers "not the leader" for a moment after it named one.
    pub fn await_writable(&self, target: &Target, load: &ProduceLoad) -> Result<()> {
        let began = Instant::now();
        loop {
            match produce(target, self, load) {
                Ok(_) => return Ok(()),
                Err(error) if began.elapsed() > LEADER_WITHIN => bail!("{} takes no records: {error:#}", self.name),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// How many there are.
    fn find_leaders(&mut self, target: &Target) -> Result<usize> {
        let topic = MetadataRequestTopic { name: Some(self.name.clone()), ..MetadataRequestTopic::default() };
        let request = MetadataRequest {
            topics: Some(vec![topic]),
            allow_auto_topic_creation: false,
            ..MetadataRequest::default()
        };
        let answer = Connection::open(target.address)?.call(&request, 9)?;
        let mut partitions = answer.topics.first().context("an empty answer to Metadata")?.partitions.clone();
        partitions.sort_by_key(|partition| partition.partition_index);
        let address = |id: i32| {
            let broker = answer.brokers.iter().find(|broker| broker.node_id == id)?;
            Some(SocketAddr::new(broker.host.parse().ok()?, u16::try_from(broker.port).ok()?))
        };
        self.leaders = partitions.iter().filter_map(|partition| address(partition.leader_id)).collect();
        Ok(self.leaders.len())
    }
}

/// ListOffsets' timestamp for the end of the log.
const LATEST: i64 = -1;
const TIMEOUT_MS: i32 = 30_000;
const LEADER_WITHIN: Duration = Duration::from_secs(120);
