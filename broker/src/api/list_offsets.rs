//! ListOffsets (key 2, versions 1-10): an offset by timestamp, or by a negative special value.
//!
//! - -1 latest (the last stable offset when only committed records are read), -2 earliest, -3 of the largest timestamp (7+),
//!   -4 earliest local (8+; all of the log is local), -5 latest tiered (9+; nothing is tiered: -1). A special value that the
//!   version does not know is error 35.
//! - A timestamp gives the first record that is not older, with its own timestamp and leader epoch; none: offset -1, no error.
//! - Nothing above the high watermark is named. A partition named twice is error 42.

use std::collections::HashMap;

use thalweg_model::{ErrorCode, LeaderEpoch, Offset, Timestamp};
use thalweg_storage::TimestampOffset;
use thalweg_wire::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsTopic, ListOffsetsTopicResponse,
};
use thalweg_wire::messages::{ListOffsetsRequest, ListOffsetsResponse};

use super::context::RequestContext;
use super::error_map;
use crate::services::Services;
use crate::shell::partitions::Partition;

pub async fn handle(services: &Services, cx: &RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse {
    let repeated = mentions(&request.topics);
    let committed_only = request.isolation_level == READ_COMMITTED;
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in &request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for partition in &topic.partitions {
            let twice = repeated.get(&(topic.name.as_str(), partition.partition_index)).is_some_and(|count| *count > 1);
            let found = if twice {
                Err(ErrorCode::InvalidRequest)
            } else {
                find(services, cx.version(), &topic.name, partition, committed_only).await
            };
            partitions.push(respond(partition.partition_index, found));
        }
        topics.push(ListOffsetsTopicResponse { name: topic.name.clone(), partitions });
    }
    ListOffsetsResponse { topics, ..Default::default() }
}

fn mentions(topics: &[ListOffsetsTopic]) -> HashMap<(&str, i32), usize> {
    let mut counts = HashMap::new();
    for topic in topics {
        for partition in &topic.partitions {
            *counts.entry((topic.name.as_str(), partition.partition_index)).or_default() += 1;
        }
    }
    counts
}

async fn find(
    services: &Services,
    version: i16,
    topic: &str,
    asked: &ListOffsetsPartition,
    committed_only: bool,
) -> Result<Option<TimestampOffset>, ErrorCode> {
    let partition = super::leader(services, topic, asked.partition_index, LeaderEpoch(asked.current_leader_epoch))?;
    let what = What::of(asked.timestamp, version)?;
    let visible = partition.visible();
    let bound = if committed_only { visible.last_stable_offset } else { visible.high_watermark };
    let at = |offset: Offset| TimestampOffset {
        timestamp: Timestamp::NONE,
        offset,
        leader_epoch: epoch_at(&partition, offset),
    };
    match what {
        What::Latest if !partition.knows_latest() => Err(ErrorCode::OffsetNotAvailable),
        What::Latest => Ok(Some(at(bound))),
        What::Earliest => Ok(Some(at(visible.log_start_offset))),
        What::LatestTiered => Ok(None),
        What::MaxTimestamp | What::At(_) => {
            // Reads indexes and records, perhaps of old segments: not on a network thread.
            let view = std::sync::Arc::clone(&partition);
            let search = tokio::task::spawn_blocking(move || match what {
                What::At(timestamp) => view.view().offset_for_timestamp(timestamp, bound),
                _ => view.view().max_timestamp(bound),
            });
            let found = search.await.map_err(|_| ErrorCode::UnknownServerError)?;
            found.map_err(|error| error_map::read(&error))
        }
    }
}

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Latest,
    Earliest,
    MaxTimestamp,
    LatestTiered,
    At(Timestamp),
}

impl What {
    fn of(timestamp: i64, version: i16) -> Result<What, ErrorCode> {
        match timestamp {
            -1 => Ok(What::Latest),
            -2 => Ok(What::Earliest),
            -3 if version >= 7 => Ok(What::MaxTimestamp),
            -4 if version >= 8 => Ok(What::Earliest),
            -5 if version >= 9 => Ok(What::LatestTiered),
            ..0 => Err(ErrorCode::UnsupportedVersion),
            0.. => Ok(What::At(Timestamp(timestamp))),
        }
    }
}

/// The epoch that a client at this offset has seen: that of the record before the log's end, or of the record itself.
fn epoch_at(partition: &Partition, offset: Offset) -> LeaderEpoch {
    let view = partition.view();
    view.epoch_for(offset).or_else(|| view.latest_epoch()).unwrap_or(LeaderEpoch::NONE)
}

fn respond(partition_index: i32, found: Result<Option<TimestampOffset>, ErrorCode>) -> ListOffsetsPartitionResponse {
    let default = ListOffsetsPartitionResponse { partition_index, ..Default::default() };
    match found {
        Ok(None) => default,
        Ok(Some(found)) => ListOffsetsPartitionResponse {
            timestamp: found.timestamp.0,
            offset: found.offset.0,
            leader_epoch: found.leader_epoch.0,
            ..default
        },
        Err(error) => ListOffsetsPartitionResponse { error_code: error.code(), ..default },
    }
}

const READ_COMMITTED: i8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_special_value_that_the_version_does_not_know_is_refused() {
        assert_eq!(What::of(-3, 6), Err(ErrorCode::UnsupportedVersion));
        assert_eq!(What::of(-3, 7), Ok(What::MaxTimestamp));
        assert_eq!(What::of(-4, 7), Err(ErrorCode::UnsupportedVersion));
        assert_eq!(What::of(-5, 9), Ok(What::LatestTiered));
        assert_eq!(What::of(-6, 10), Err(ErrorCode::UnsupportedVersion));
        assert_eq!(What::of(i64::MIN, 10), Err(ErrorCode::UnsupportedVersion));
        assert_eq!(What::of(0, 1), Ok(What::At(Timestamp(0))));
    }
}
