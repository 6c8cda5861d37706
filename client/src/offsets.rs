//! Offsets by time, and the two ends of a log.

use std::collections::BTreeMap;
use std::time::Duration;

use thalweg_model::{ErrorCode, LeaderEpoch, NodeId, Offset, PartitionIndex, Timestamp, TopicPartition};
use thalweg_wire::messages::list_offsets::{ListOffsetsPartition, ListOffsetsTopic};
use thalweg_wire::messages::{ListOffsetsRequest, ListOffsetsResponse};

use crate::client::{Client, Lane};
use crate::error::{ClientError, Result};

/// What to ask of a partition's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetSpec {
    /// The first readable record.
    Earliest,
    /// Where the next record will be; with [`Isolation::ReadCommitted`] the last stable offset.
    Latest,
    /// The record with the largest timestamp.
    MaxTimestamp,
    /// The first record at or after a time.
    AtTime(Timestamp),
}

/// Whether records of open and aborted transactions are seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    #[default]
    ReadUncommitted,
    ReadCommitted,
}

/// An answer to an [`OffsetSpec`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedOffset {
    /// [`Offset::NONE`] if no record matches.
    pub offset: Offset,
    /// Of the record found; [`Timestamp::NONE`] for the ends of the log.
    pub timestamp: Timestamp,
    pub leader_epoch: LeaderEpoch,
}

impl OffsetSpec {
    fn code(self) -> i64 {
        match self {
            OffsetSpec::Latest => -1,
            OffsetSpec::Earliest => -2,
            OffsetSpec::MaxTimestamp => -3,
            // Below 0 stand the special values; before 1970 there is nothing that they could be mistaken for.
            OffsetSpec::AtTime(time) => time.0.max(0),
        }
    }
}

impl Isolation {
    pub(crate) fn code(self) -> i8 {
        match self {
            Isolation::ReadUncommitted => 0,
            Isolation::ReadCommitted => 1,
        }
    }
}

impl Client {
    /// Asks the leaders; retries those that moved until the request timeout.
    ///
    /// # Errors
    /// The first partition that cannot be answered.
    pub async fn list_offsets(
        &self,
        specs: &BTreeMap<TopicPartition, OffsetSpec>,
        isolation: Isolation,
    ) -> Result<BTreeMap<TopicPartition, ListedOffset>> {
        let mut found = BTreeMap::new();
        let mut backoff = self.backoff();
        let deadline = std::time::Instant::now() + self.config().request_timeout;
        loop {
            let left: BTreeMap<_, _> = specs.iter().filter(|(tp, _)| !found.contains_key(*tp)).collect();
            if left.is_empty() {
                return Ok(found);
            }
            match self.list_offsets_once(&left, isolation, &mut found).await {
                Err(error) if !error.is_retriable() || std::time::Instant::now() >= deadline => return Err(error),
                Err(_) => {
                    tokio::time::sleep(backoff.next(rand::random())).await;
                    self.refresh_metadata().await?;
                }
                Ok(()) => {}
            }
        }
    }

    async fn list_offsets_once(
        &self,
        specs: &BTreeMap<&TopicPartition, &OffsetSpec>,
        isolation: Isolation,
        found: &mut BTreeMap<TopicPartition, ListedOffset>,
    ) -> Result<()> {
        let mut by_leader: BTreeMap<NodeId, BTreeMap<&str, Vec<ListOffsetsPartition>>> = BTreeMap::new();
        for (tp, spec) in specs {
            let topic = self.topic(tp.topic.as_str(), false).await?;
            let partition_count = topic.partition_count();
            if !(0..partition_count).contains(&tp.partition.0) {
                return Err(ClientError::UnknownPartition {
                    topic: topic.name,
                    partition: tp.partition.0,
                    partition_count,
                });
            }
            let (leader, leader_epoch) = self
                .leader(tp.topic.as_str(), tp.partition.0)
                .ok_or(ClientError::NoLeader { topic: topic.name, partition: tp.partition.0 })?;
            by_leader.entry(leader).or_default().entry(tp.topic.as_str()).or_default().push(ListOffsetsPartition {
                partition_index: tp.partition.0,
                current_leader_epoch: leader_epoch.0,
                timestamp: spec.code(),
            });
        }
        let mut first_error = None;
        for (leader, topics) in by_leader {
            let request = ListOffsetsRequest {
                replica_id: -1,
                isolation_level: isolation.code(),
                topics: topics
                    .into_iter()
                    .map(|(name, partitions)| ListOffsetsTopic { name: name.to_owned(), partitions })
                    .collect(),
                timeout_ms: i32::try_from(self.config().request_timeout.as_millis()).unwrap_or(i32::MAX),
            };
            let answer = self.call_node(leader, Lane::Control, &request, Duration::ZERO).await;
            if let Err(error) = answer.and_then(|answer| take_offsets(&answer, specs, found)) {
                first_error.get_or_insert(error);
            }
        }
        first_error.map_or(Ok(()), Err)
    }
}

/// Moves what the answer holds into `found`; the first partition in error is the error.
fn take_offsets(
    answer: &ListOffsetsResponse,
    specs: &BTreeMap<&TopicPartition, &OffsetSpec>,
    found: &mut BTreeMap<TopicPartition, ListedOffset>,
) -> Result<()> {
    let mut first_error = None;
    for topic in &answer.topics {
        for partition in &topic.partitions {
            let Some(tp) = specs.keys().find(|tp| {
                tp.topic.as_str() == topic.name && tp.partition == PartitionIndex(partition.partition_index)
            }) else {
                continue;
            };
            if partition.error_code != ErrorCode::None as i16 {
                first_error.get_or_insert(ClientError::from_code(partition.error_code, tp.to_string(), None));
                continue;
            }
            let listed = ListedOffset {
                offset: Offset(partition.offset),
                timestamp: Timestamp(partition.timestamp),
                leader_epoch: LeaderEpoch(partition.leader_epoch),
            };
            found.insert((*tp).clone(), listed);
        }
    }
    first_error.map_or(Ok(()), Err)
}
