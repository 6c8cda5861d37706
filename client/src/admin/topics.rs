//! Topics and their records.

use std::collections::BTreeMap;

use thalweg_model::{NodeId, Offset, TopicId, TopicPartition};
use thalweg_wire::messages::create_partitions::CreatePartitionsTopic;
use thalweg_wire::messages::create_topics::{CreatableTopic, CreatableTopicConfig};
use thalweg_wire::messages::delete_records::{DeleteRecordsPartition, DeleteRecordsTopic};
use thalweg_wire::messages::delete_topics::DeleteTopicState;
use thalweg_wire::messages::{CreatePartitionsRequest, CreateTopicsRequest, DeleteRecordsRequest, DeleteTopicsRequest};

use super::{Admin, missing};
use crate::client::Lane;
use crate::consumer::topic_partition;
use crate::error::{ClientError, Result};
use crate::metadata::TopicInfo;
use crate::offsets::{Isolation, OffsetSpec};

/// A topic to create. What is not given is the broker's default.
#[derive(Clone, Debug)]
pub struct NewTopic {
    pub name: String,
    pub partition_count: Option<i32>,
    pub replication_factor: Option<i16>,
    pub configs: BTreeMap<String, String>,
    /// Only check.
    pub validate_only: bool,
}

/// What was created. Counts and id are unknown (`None`, zero) from brokers before Kafka 2.4 and 2.8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicCreated {
    pub id: TopicId,
    pub partition_count: Option<i32>,
    pub replication_factor: Option<i16>,
}

impl NewTopic {
    pub fn new(name: impl Into<String>) -> NewTopic {
        NewTopic {
            name: name.into(),
            partition_count: None,
            replication_factor: None,
            configs: BTreeMap::new(),
            validate_only: false,
        }
    }

    #[must_use]
    pub fn partitions(mut self, count: i32) -> NewTopic {
        self.partition_count = Some(count);
        self
    }

    #[must_use]
    pub fn replication_factor(mut self, factor: i16) -> NewTopic {
        self.replication_factor = Some(factor);
        self
    }

    #[must_use]
    pub fn config(mut self, key: impl Into<String>, value: impl Into<String>) -> NewTopic {
        self.configs.insert(key.into(), value.into());
        self
    }
}

impl Admin {
    /// # Errors
    /// It exists already, or the broker does not like its name, counts or configuration.
    pub async fn create_topic(&self, topic: &NewTopic) -> Result<TopicCreated> {
        let configs = topic
            .configs
            .iter()
            .map(|(name, value)| CreatableTopicConfig { name: name.clone(), value: Some(value.clone()) });
        let request = CreateTopicsRequest {
            topics: vec![CreatableTopic {
                name: topic.name.clone(),
                num_partitions: topic.partition_count.unwrap_or(-1),
                replication_factor: topic.replication_factor.unwrap_or(-1),
                assignments: Vec::new(),
                configs: configs.collect(),
            }],
            timeout_ms: self.timeout_ms(),
            validate_only: topic.validate_only,
        };
        let answer = self
            .client
            .retrying(|| async {
                let answer = self.client.call_controller(&request, self.timeout()).await?;
                let result = answer.topics.into_iter().find(|result| result.name == topic.name);
                let result = result.ok_or_else(|| missing("CreateTopics", &topic.name))?;
                let message = result.error_message.clone();
                ClientError::check(result.error_code, || format!("topic {}", topic.name), message)?;
                Ok(result)
            })
            .await?;
        Ok(TopicCreated {
            id: answer.topic_id,
            partition_count: (answer.num_partitions >= 0).then_some(answer.num_partitions),
            replication_factor: (answer.replication_factor >= 0).then_some(answer.replication_factor),
        })
    }

    /// # Errors
    /// It does not exist, or may not be deleted.
    pub async fn delete_topic(&self, name: &str) -> Result<()> {
        let request = DeleteTopicsRequest {
            topics: vec![DeleteTopicState { name: Some(name.to_owned()), topic_id: TopicId::ZERO }],
            topic_names: vec![name.to_owned()],
            timeout_ms: self.timeout_ms(),
        };
        let answer = self.client.call_controller(&request, self.timeout()).await?;
        self.client.forget_topic(name);
        let result = answer.responses.into_iter().find(|result| result.name.as_deref() == Some(name));
        let result = result.ok_or_else(|| missing("DeleteTopics", name))?;
        self.check_topic(result.error_code, name, result.error_message)
    }

    /// Raises the number of partitions to `count`. Keys may map to other partitions from then on.
    ///
    /// # Errors
    /// The topic does not exist or has as many already.
    pub async fn add_partitions(&self, topic: &str, count: i32) -> Result<()> {
        let request = CreatePartitionsRequest {
            topics: vec![CreatePartitionsTopic { name: topic.to_owned(), count, assignments: None }],
            timeout_ms: self.timeout_ms(),
            validate_only: false,
        };
        let answer = self.client.call_controller(&request, self.timeout()).await?;
        let result = answer.results.into_iter().find(|result| result.name == topic);
        let result = result.ok_or_else(|| missing("CreatePartitions", topic))?;
        self.check_topic(result.error_code, topic, result.error_message)?;
        // The snapshot may lag behind for a moment; whoever sends to a new partition asks again.
        let _ = self.client.fetch_topic(topic, false).await?;
        Ok(())
    }

    /// A topic's partitions as they are now.
    ///
    /// # Errors
    /// It does not exist.
    pub async fn topic(&self, name: &str) -> Result<TopicInfo> {
        self.client.fetch_topic(name, false).await
    }

    /// All topics by name, Kafka's internal ones too.
    ///
    /// # Errors
    /// No broker answers.
    pub async fn topics(&self) -> Result<BTreeMap<String, TopicInfo>> {
        Ok(self.client.fetch_all_metadata().await?.topics)
    }

    /// Deletes the records below these offsets ([`Offset::NONE`]: all there are). Gives the new first offsets.
    ///
    /// # Errors
    /// The first partition that refuses.
    pub async fn delete_records(
        &self,
        before: &BTreeMap<TopicPartition, Offset>,
    ) -> Result<BTreeMap<TopicPartition, Offset>> {
        let mut by_leader: BTreeMap<NodeId, BTreeMap<&str, Vec<DeleteRecordsPartition>>> = BTreeMap::new();
        for (tp, offset) in before {
            let (topic, partition) = (tp.topic.as_str(), tp.partition.0);
            self.client.topic(topic, false).await?;
            let (leader, _) = self
                .client
                .leader(topic, partition)
                .ok_or_else(|| ClientError::NoLeader { topic: topic.to_owned(), partition })?;
            let wanted = DeleteRecordsPartition { partition_index: partition, offset: offset.0 };
            by_leader.entry(leader).or_default().entry(topic).or_default().push(wanted);
        }
        let mut low_watermarks = BTreeMap::new();
        for (leader, topics) in by_leader {
            let topic = |(name, partitions): (&str, _)| DeleteRecordsTopic { name: name.to_owned(), partitions };
            let request =
                DeleteRecordsRequest { topics: topics.into_iter().map(topic).collect(), timeout_ms: self.timeout_ms() };
            let answer = self.client.call_node(leader, Lane::Control, &request, self.timeout()).await?;
            for topic in answer.topics {
                for p in topic.partitions {
                    let tp = topic_partition(&topic.name, p.partition_index)?;
                    ClientError::check(p.error_code, || format!("delete records of {tp}"), None)?;
                    low_watermarks.insert(tp, Offset(p.low_watermark));
                }
            }
        }
        Ok(low_watermarks)
    }

    /// Each partition's first readable offset and its end, exclusive.
    ///
    /// # Errors
    /// A partition without leader.
    pub async fn topic_ends(
        &self,
        topic: &TopicInfo,
        isolation: Isolation,
    ) -> Result<BTreeMap<TopicPartition, std::ops::Range<Offset>>> {
        let mut partitions = Vec::new();
        for partition in &topic.partitions {
            partitions.push(topic_partition(&topic.name, partition.index)?);
        }
        let ask = |spec| partitions.iter().map(|tp| (tp.clone(), spec)).collect();
        let starts = ask(OffsetSpec::Earliest);
        let ends = ask(OffsetSpec::Latest);
        let (starts, ends) =
            (self.client.list_offsets(&starts, isolation).await?, self.client.list_offsets(&ends, isolation).await?);
        let range = |tp: TopicPartition| {
            let start = starts.get(&tp)?.offset;
            let end = ends.get(&tp)?.offset;
            Some((tp, start..end))
        };
        Ok(partitions.into_iter().filter_map(range).collect())
    }

    fn check_topic(&self, code: i16, name: &str, message: Option<String>) -> Result<()> {
        if code == thalweg_model::ErrorCode::UnknownTopicOrPartition as i16 {
            return Err(ClientError::UnknownTopic { topic: name.to_owned() });
        }
        ClientError::check(code, || format!("topic {name}"), message)
    }
}
