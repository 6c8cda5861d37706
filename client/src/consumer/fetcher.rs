//! One fetch request to one broker, and what its answer means.

use std::collections::BTreeMap;
use std::time::Duration;

use thalweg_model::{ErrorCode, NodeId, Offset, ProducerId, TopicId};
use thalweg_wire::messages::fetch::{FetchPartition, FetchTopic, PartitionData};
use thalweg_wire::messages::{FetchRequest, FetchResponse};

use super::ConsumerConfig;
use super::positions::ToFetch;
use super::records::{Fetched, next_offset};
use crate::client::{Client, Lane, OwnerId};
use crate::error::{ClientError, Result};

/// What became of one partition's fetch.
#[derive(Debug)]
pub(crate) enum FetchResult {
    /// Possibly nothing: then `next` equals `from`.
    Data(Fetched),
    OutOfRange,
    /// Another try may work, after fresh metadata.
    Retry(ClientError),
    Failed(ClientError),
}

/// Asks `node` for the partitions; one result for each, in their order.
pub(crate) async fn fetch(
    client: &Client,
    config: &ConsumerConfig,
    owner: OwnerId,
    node: NodeId,
    wanted: Vec<ToFetch>,
) -> Vec<(ToFetch, FetchResult)> {
    match ask(client, config, owner, node, &wanted).await {
        Ok((answer, ids)) => results(wanted, answer, &ids),
        Err(error) => {
            let result = |error: &ClientError| match error.is_retriable() {
                true => FetchResult::Retry(error.clone()),
                false => FetchResult::Failed(error.clone()),
            };
            wanted.into_iter().map(|wanted| (wanted, result(&error))).collect()
        }
    }
}

async fn ask(
    client: &Client,
    config: &ConsumerConfig,
    owner: OwnerId,
    node: NodeId,
    wanted: &[ToFetch],
) -> Result<(FetchResponse, BTreeMap<TopicId, String>)> {
    let connection = client.connection(node, Lane::Fetch(owner)).await?;
    let metadata = client.metadata();
    let mut topics: BTreeMap<&str, Vec<FetchPartition>> = BTreeMap::new();
    for want in wanted {
        topics.entry(want.tp.topic.as_str()).or_default().push(FetchPartition {
            partition: want.tp.partition.0,
            current_leader_epoch: want.leader_epoch.0,
            fetch_offset: want.offset.0,
            partition_max_bytes: config.partition_bytes_max,
            ..FetchPartition::default()
        });
    }
    let id_of = |name: &str| metadata.topic(name).map(|topic| topic.id).filter(|id| !id.is_zero());
    let all_ids = topics.keys().all(|name| id_of(name).is_some());
    let version = connection.version_of::<FetchRequest>(if all_ids { i16::MAX } else { LAST_VERSION_WITH_NAMES })?;
    let ids = topics.keys().filter_map(|name| Some((id_of(name)?, (*name).to_owned()))).collect();
    let request = FetchRequest {
        replica_id: -1,
        max_wait_ms: i32::try_from(config.fetch_wait.as_millis()).unwrap_or(i32::MAX),
        min_bytes: config.fetch_bytes_min,
        max_bytes: config.fetch_bytes_max,
        isolation_level: config.isolation.code(),
        topics: topics
            .into_iter()
            .map(|(name, partitions)| FetchTopic {
                topic: name.to_owned(),
                topic_id: id_of(name).unwrap_or(TopicId::ZERO),
                partitions,
            })
            .collect(),
        ..FetchRequest::default()
    };
    let answer = connection.submit(&request, version, config.fetch_wait).await?.wait().await?;
    ClientError::check(answer.error_code, || format!("fetch from broker {node}"), None)?;
    Ok((answer, ids))
}

fn results(
    wanted: Vec<ToFetch>,
    answer: FetchResponse,
    ids: &BTreeMap<TopicId, String>,
) -> Vec<(ToFetch, FetchResult)> {
    let mut found: BTreeMap<(String, i32), PartitionData> = BTreeMap::new();
    for topic in answer.responses {
        let name = ids.get(&topic.topic_id).cloned().unwrap_or(topic.topic);
        for partition in topic.partitions {
            found.insert((name.clone(), partition.partition_index), partition);
        }
    }
    let result_of = |want: &ToFetch| {
        let key = (want.tp.topic.as_str().to_owned(), want.tp.partition.0);
        match found.get(&key) {
            Some(partition) => result(want, partition),
            None => FetchResult::Retry(ClientError::from_code(
                ErrorCode::UnknownTopicOrPartition as i16,
                want.tp.to_string(),
                Some("the broker's answer does not name it".to_owned()),
            )),
        }
    };
    wanted
        .into_iter()
        .map(|want| {
            let result = result_of(&want);
            (want, result)
        })
        .collect()
}

fn result(want: &ToFetch, partition: &PartitionData) -> FetchResult {
    let error = || ClientError::from_code(partition.error_code, want.tp.to_string(), None);
    match ErrorCode::from_code(partition.error_code) {
        Some(ErrorCode::None) => {}
        Some(ErrorCode::OffsetOutOfRange) => return FetchResult::OutOfRange,
        // Bytes on the broker's disk: another try reads the same, so the application must know.
        Some(ErrorCode::CorruptMessage) => return FetchResult::Failed(error()),
        Some(code) if code.is_retriable() => return FetchResult::Retry(error()),
        Some(ErrorCode::UnknownServerError) => return FetchResult::Retry(error()),
        Some(_) | None => return FetchResult::Failed(error()),
    }
    let data = partition.records.clone().unwrap_or_default();
    let next = next_offset(&data).filter(|next| *next > want.offset).unwrap_or(want.offset);
    let aborted = partition.aborted_transactions.iter().flatten();
    FetchResult::Data(Fetched {
        tp: want.tp.clone(),
        life: want.life,
        from: want.offset,
        next,
        high_watermark: Offset(partition.high_watermark),
        data,
        aborted: aborted.map(|txn| (ProducerId(txn.producer_id), Offset(txn.first_offset))).collect(),
    })
}

/// How long the broker may hold an answer back, and so how long a seek to the end takes to be noticed.
pub(crate) const FETCH_WAIT: Duration = Duration::from_millis(500);
const LAST_VERSION_WITH_NAMES: i16 = 12;
