//! A topic for one measurement.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use thalweg_model::Durability;
use thalweg_wire::messages::create_topics::{CreatableTopic, CreatableTopicConfig, CreateTopicsRequest};
use thalweg_wire::messages::delete_topics::DeleteTopicsRequest;
use thalweg_wire::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};

use super::{Batch, Connection, ProduceLoad, Target, produce};

/// A topic of one replica. Deleted with [`Topic::delete`], so that runs do not fill the disk.
#[derive(Debug)]
pub struct Topic {
    pub name: String,
    pub partition_count: i32,
}

impl Topic {
    /// Creates the topic and writes `batch` to each partition, so that files are open and its leader is known.
    pub fn create(
        target: &Target,
        name: &str,
        partition_count: i32,
        durability: Durability,
        batch: &Batch,
    ) -> Result<Topic> {
        let config = |name: &str, value: &str| CreatableTopicConfig { name: name.into(), value: Some(value.into()) };
        let mut configs = vec![config("file.delete.delay.ms", "0")];
        match (target.is_thalweg, durability) {
            (true, _) => configs.push(config("durability", &durability.to_string())),
            // Kafka's nearest: the broker syncs each append before it answers.
            (false, Durability::Flushed) => configs.push(config("flush.messages", "1")),
            (false, Durability::Replicated) => {}
        }
        let topic = CreatableTopic {
            name: name.into(),
            num_partitions: partition_count,
            replication_factor: 1,
            configs,
            ..CreatableTopic::default()
        };
        let request =
            CreateTopicsRequest { topics: vec![topic], timeout_ms: TIMEOUT_MS, ..CreateTopicsRequest::default() };
        let answer = Connection::open(target.address)?.call(&request, 5)?;
        for result in &answer.topics {
            ensure!(result.error_code == 0, "cannot create {name}: error {}", result.error_code);
        }
        let topic = Topic { name: name.into(), partition_count };
        topic.await_leaders(target, batch)?;
        Ok(topic)
    }

    /// The end of partition 0, exclusive.
    pub fn end_offset(&self, target: &Target) -> Result<i64> {
        let partition =
            ListOffsetsPartition { partition_index: 0, timestamp: LATEST, ..ListOffsetsPartition::default() };
        let topic = ListOffsetsTopic { name: self.name.clone(), partitions: vec![partition] };
        let request = ListOffsetsRequest { replica_id: -1, topics: vec![topic], ..ListOffsetsRequest::default() };
        let answer = Connection::open(target.address)?.call(&request, 6)?;
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

    /// Kafka answers "not the leader" for a moment after it created a topic.
    fn await_leaders(&self, target: &Target, batch: &Batch) -> Result<()> {
        let load = ProduceLoad::one_request_each(batch, self.partition_count);
        let began = Instant::now();
        loop {
            match produce(target, self, &load) {
                Ok(_) => return Ok(()),
                Err(error) if began.elapsed() > LEADER_WITHIN => bail!("{} has no leader: {error:#}", self.name),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

/// ListOffsets' timestamp for the end of the log.
const LATEST: i64 = -1;
const TIMEOUT_MS: i32 = 30_000;
const LEADER_WITHIN: Duration = Duration::from_secs(10);
