//! Committed offsets: stored by the group's coordinator, read when partitions are taken up.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use thalweg_model::{ErrorCode, LeaderEpoch, Offset, TopicPartition};
use thalweg_wire::messages::offset_commit::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use thalweg_wire::messages::offset_fetch::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use thalweg_wire::messages::{OffsetCommitRequest, OffsetFetchRequest, OffsetFetchResponse};
use tokio::task::JoinHandle;
use tracing::{debug, warn};

use super::group::{Group, Shared};
use super::{Consumer, topic_partition};
use crate::client::Lane;
use crate::error::{ClientError, Result};

/// A group's stored position in a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The next record to read.
    pub offset: Offset,
    pub leader_epoch: LeaderEpoch,
    /// The application's own text.
    pub metadata: String,
}

impl Consumer {
    /// Stores the positions of all partitions: everything that polls gave counts as processed.
    ///
    /// # Errors
    /// The member was expelled or the group moved on: poll, and records since the last commit come again.
    pub async fn commit(&mut self) -> Result<()> {
        let positions = self.positions.positions();
        self.commit_offsets(&positions).await
    }

    /// Stores these offsets: the next record to read, not the last one read.
    ///
    /// # Errors
    /// As [`Consumer::commit`].
    pub async fn commit_offsets(&mut self, offsets: &BTreeMap<TopicPartition, Offset>) -> Result<()> {
        self.need_group()?.commit(offsets).await
    }

    /// As [`Consumer::commit`], in the background. A later commit may overtake it.
    ///
    /// # Errors
    /// There is no group.
    pub fn commit_in_background(&mut self) -> Result<JoinHandle<Result<()>>> {
        let positions = self.positions.positions();
        let shared = std::sync::Arc::clone(&self.need_group()?.shared);
        Ok(tokio::spawn(async move { shared.commit(&positions).await }))
    }

    /// The group's stored offsets of these partitions; one without is left out.
    ///
    /// # Errors
    /// There is no group, or its coordinator does not answer.
    pub async fn committed(&self, partitions: &[TopicPartition]) -> Result<BTreeMap<TopicPartition, CommittedOffset>> {
        self.need_group()?.committed(Some(partitions)).await
    }

    /// Starts a commit in the background when it is due.
    pub(super) fn auto_commit(&mut self) {
        let (Some(every), Some(at), Some(group)) = (self.config.auto_commit, self.next_auto_commit, &self.group) else {
            return;
        };
        if Instant::now() < at {
            return;
        }
        self.next_auto_commit = Some(Instant::now() + every);
        let positions = self.positions.positions();
        if positions.is_empty() || (group.is_subscribed() && !group.shared.membership().is_stable()) {
            return;
        }
        let shared = std::sync::Arc::clone(&group.shared);
        tokio::spawn(async move {
            if let Err(error) = shared.commit(&positions).await {
                warn!(group = shared.group_id, %error, "positions not committed");
            }
        });
    }

    fn need_group(&self) -> Result<&Group> {
        self.group.as_ref().ok_or_else(|| ClientError::InvalidUse {
            what: "a consumer without a group has no committed offsets".to_owned(),
            remedy: "set group_id".to_owned(),
        })
    }
}

impl Group {
    pub(super) async fn commit(&self, offsets: &BTreeMap<TopicPartition, Offset>) -> Result<()> {
        self.shared.commit(offsets).await
    }

    /// `None` for every partition that the group has an offset of.
    pub(super) async fn committed(
        &self,
        partitions: Option<&[TopicPartition]>,
    ) -> Result<BTreeMap<TopicPartition, CommittedOffset>> {
        self.shared.committed(partitions).await
    }
}

impl Shared {
    /// Commits; tries again when the coordinator moves, until the request timeout.
    async fn commit(&self, offsets: &BTreeMap<TopicPartition, Offset>) -> Result<()> {
        if offsets.is_empty() {
            return Ok(());
        }
        let generation = self.membership().generation();
        let request = OffsetCommitRequest {
            group_id: self.group_id.clone(),
            generation_id_or_member_epoch: generation.generation_id,
            member_id: generation.member_id.clone(),
            group_instance_id: self.instance_id.clone(),
            topics: commit_topics(offsets.iter().map(|(tp, offset)| (tp, *offset, ""))),
            ..OffsetCommitRequest::default()
        };
        self.retrying(|| async {
            let answer =
                self.call(Lane::Group(self.owner), &request, COMMIT_VERSION_WITH_NAMES, Duration::ZERO).await?;
            let failed = answer.topics.iter().find_map(|topic| {
                let partition = topic.partitions.iter().find(|partition| partition.error_code != 0)?;
                Some((topic.name.as_str(), partition.partition_index, partition.error_code))
            });
            let Some((topic, partition, error_code)) = failed else { return Ok(()) };
            let code = ErrorCode::from_code(error_code).unwrap_or(ErrorCode::UnknownServerError);
            let next = self.membership().on_commit_answer(code, &generation);
            // The caller gets the error; only a rebalance is for the consumer to see.
            if next != super::membership::Next::Fail {
                self.follow(next, code);
            }
            let subject = format!("commit of {topic}-{partition} for group {}", self.group_id);
            Err(ClientError::from_code(error_code, subject, None))
        })
        .await
    }

    pub(super) async fn committed(
        &self,
        partitions: Option<&[TopicPartition]>,
    ) -> Result<BTreeMap<TopicPartition, CommittedOffset>> {
        let mut topics: Option<BTreeMap<&str, Vec<i32>>> = partitions.map(|_| BTreeMap::new());
        for tp in partitions.into_iter().flatten() {
            if let Some(topics) = &mut topics {
                topics.entry(tp.topic.as_str()).or_default().push(tp.partition.0);
            }
        }
        let request = OffsetFetchRequest {
            group_id: self.group_id.clone(),
            topics: topics.as_ref().map(|topics| {
                let topic = |(name, indexes): (&&str, &Vec<i32>)| OffsetFetchRequestTopic {
                    name: (*name).to_owned(),
                    partition_indexes: indexes.clone(),
                };
                topics.iter().map(topic).collect()
            }),
            groups: vec![OffsetFetchRequestGroup {
                group_id: self.group_id.clone(),
                topics: topics.map(|topics| {
                    let topic = |(name, partition_indexes): (&str, _)| OffsetFetchRequestTopics {
                        name: name.to_owned(),
                        partition_indexes,
                        ..OffsetFetchRequestTopics::default()
                    };
                    topics.into_iter().map(topic).collect()
                }),
                ..OffsetFetchRequestGroup::default()
            }],
            require_stable: true,
        };
        self.retrying(|| async {
            let answer = self.call(Lane::Group(self.owner), &request, FETCH_VERSION_WITH_NAMES, Duration::ZERO).await?;
            committed_of(&self.group_id, answer)
        })
        .await
    }

    /// Tries again after errors that pass, asking for the coordinator where that is what they say.
    async fn retrying<T, F>(&self, call: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut backoff = self.client.backoff();
        let deadline = Instant::now() + self.client.config().request_timeout;
        loop {
            match call().await {
                Err(error) if error.is_retriable() && Instant::now() < deadline => {
                    debug!(group = self.group_id, %error, "trying again");
                    if matches!(error.code(), Some(ErrorCode::NotCoordinator | ErrorCode::CoordinatorNotAvailable)) {
                        self.forget_coordinator();
                    }
                    tokio::time::sleep(backoff.next(rand::random())).await;
                }
                result => return result,
            }
        }
    }
}

/// What a commit request holds of offsets and the application's text beside each.
pub(crate) fn commit_topics<'a>(
    offsets: impl IntoIterator<Item = (&'a TopicPartition, Offset, &'a str)>,
) -> Vec<OffsetCommitRequestTopic> {
    let mut topics: BTreeMap<&str, Vec<OffsetCommitRequestPartition>> = BTreeMap::new();
    for (tp, offset, metadata) in offsets {
        topics.entry(tp.topic.as_str()).or_default().push(OffsetCommitRequestPartition {
            partition_index: tp.partition.0,
            committed_offset: offset.0,
            committed_leader_epoch: LeaderEpoch::NONE.0,
            committed_metadata: Some(metadata.to_owned()),
        });
    }
    let topic = |(name, partitions): (&str, _)| OffsetCommitRequestTopic {
        name: name.to_owned(),
        partitions,
        ..OffsetCommitRequestTopic::default()
    };
    topics.into_iter().map(topic).collect()
}

/// The offsets in an answer; partitions without one are left out.
pub(crate) fn committed_of(
    group_id: &str,
    answer: OffsetFetchResponse,
) -> Result<BTreeMap<TopicPartition, CommittedOffset>> {
    let subject = || format!("offsets of group {group_id}");
    ClientError::check(answer.error_code, subject, None)?;
    let mut found = BTreeMap::new();
    let mut take = |topic: &str, partition: i32, code: i16, offset: i64, epoch: i32, metadata: Option<String>| {
        ClientError::check(code, || format!("offset of {topic}-{partition} in group {group_id}"), None)?;
        if offset >= 0 {
            let metadata = metadata.unwrap_or_default();
            let committed = CommittedOffset { offset: Offset(offset), leader_epoch: LeaderEpoch(epoch), metadata };
            found.insert(topic_partition(topic, partition)?, committed);
        }
        Ok::<(), ClientError>(())
    };
    for topic in answer.topics {
        for p in topic.partitions {
            take(
                &topic.name,
                p.partition_index,
                p.error_code,
                p.committed_offset,
                p.committed_leader_epoch,
                p.metadata,
            )?;
        }
    }
    for group in answer.groups {
        ClientError::check(group.error_code, subject, None)?;
        for topic in group.topics {
            for p in topic.partitions {
                let epoch = p.committed_leader_epoch;
                take(&topic.name, p.partition_index, p.error_code, p.committed_offset, epoch, p.metadata)?;
            }
        }
    }
    Ok(found)
}

/// Later versions name topics by id.
const COMMIT_VERSION_WITH_NAMES: i16 = 9;
const FETCH_VERSION_WITH_NAMES: i16 = 9;
