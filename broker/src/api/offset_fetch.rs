//! OffsetFetch (key 9, versions 1-9): reads a group's positions.
//!
//! - Topics null asks for every offset of the group.
//! - No offset is -1 with leader epoch -1, empty metadata and error 0.
//! - Versions 1-7 ask for one group; its error stands at each partition in version 1, on top from 2 on. From version 8 on
//!   there are several groups, each with an error of its own.

use std::collections::HashMap;

use thalweg_model::ErrorCode;
use thalweg_proto::v1;
use thalweg_wire::messages::offset_fetch::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics, OffsetFetchResponseGroup,
    OffsetFetchResponsePartition, OffsetFetchResponsePartitions, OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use thalweg_wire::messages::{OffsetFetchRequest, OffsetFetchResponse};

use super::context::RequestContext;
use super::group_gateway::by_topic;
use super::metadata::kafka_code;
use crate::services::Services;

pub async fn handle(services: &Services, cx: &RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse {
    let asked = groups(cx.version(), request.group_id, request.topics, request.groups);
    let forwarded = v1::FetchOffsetsRequest {
        groups: asked.iter().map(forwarded).collect(),
        require_stable: request.require_stable,
    };
    let fetched = if asked.is_empty() {
        Ok(Vec::new())
    } else {
        services.groups.fetch_offsets(forwarded).await.map(|response| response.groups)
    };
    let mut groups = match fetched {
        Ok(fetched) if fetched.len() == asked.len() => asked.into_iter().zip(fetched).map(answer).collect(),
        Ok(_) => refused(asked, ErrorCode::UnknownServerError),
        Err(code) => refused(asked, code),
    };
    if cx.version() >= 8 {
        return OffsetFetchResponse { groups, ..Default::default() };
    }
    groups.pop().map_or_else(OffsetFetchResponse::default, |group| single(cx.version(), group))
}

/// The request in the form of version 8, whatever its version.
fn groups(
    version: i16,
    group_id: String,
    topics: Option<Vec<OffsetFetchRequestTopic>>,
    groups: Vec<OffsetFetchRequestGroup>,
) -> Vec<OffsetFetchRequestGroup> {
    if version >= 8 {
        return groups;
    }
    let wider = |topic: OffsetFetchRequestTopic| OffsetFetchRequestTopics {
        name: topic.name,
        partition_indexes: topic.partition_indexes,
        ..Default::default()
    };
    let topics = topics.map(|topics| topics.into_iter().map(wider).collect());
    vec![OffsetFetchRequestGroup { group_id, topics, ..Default::default() }]
}

fn forwarded(group: &OffsetFetchRequestGroup) -> v1::FetchGroupOffsets {
    let topics = group.topics.iter().flatten();
    v1::FetchGroupOffsets {
        group_id: group.group_id.clone(),
        all: group.topics.is_none(),
        topics: topics
            .map(|topic| v1::TopicPartitions {
                topic: topic.name.clone(),
                partitions: topic.partition_indexes.clone(),
                ..Default::default()
            })
            .collect(),
        member_id: group.member_id.clone(),
        member_epoch: group.member_epoch,
    }
}

/// What was asked for, in the order of the request; everything that there is if all was asked for.
fn answer((asked, fetched): (OffsetFetchRequestGroup, v1::FetchedGroup)) -> OffsetFetchResponseGroup {
    let code = kafka_code(fetched.error.as_ref());
    if code.is_error() {
        return group_error(asked, code);
    }
    let topics = match asked.topics {
        None => {
            let offsets = fetched.offsets.into_iter();
            let named = by_topic(offsets.map(|offset| (offset.topic.clone(), partition(offset))));
            named.into_iter().map(|(name, partitions)| topic(name, partitions)).collect()
        }
        Some(topics) => {
            let offsets = fetched.offsets.into_iter();
            let mut known: HashMap<(String, i32), v1::FetchedOffset> =
                offsets.map(|offset| ((offset.topic.clone(), offset.partition), offset)).collect();
            let mut find = |name: &str, index: i32| {
                let offset = known.remove(&(name.to_owned(), index));
                offset.map_or_else(|| no_offset(index, ErrorCode::None), partition)
            };
            topics
                .into_iter()
                .map(|asked| {
                    let partitions = asked.partition_indexes.iter().map(|index| find(&asked.name, *index)).collect();
                    topic(asked.name, partitions)
                })
                .collect()
        }
    };
    OffsetFetchResponseGroup { group_id: asked.group_id, topics, error_code: ErrorCode::None.code() }
}

fn topic(name: String, partitions: Vec<OffsetFetchResponsePartitions>) -> OffsetFetchResponseTopics {
    OffsetFetchResponseTopics { name, partitions, ..Default::default() }
}

fn partition(offset: v1::FetchedOffset) -> OffsetFetchResponsePartitions {
    let code = kafka_code(offset.error.as_ref());
    if code.is_error() || offset.offset < 0 {
        return no_offset(offset.partition, code);
    }
    OffsetFetchResponsePartitions {
        partition_index: offset.partition,
        committed_offset: offset.offset,
        committed_leader_epoch: offset.leader_epoch,
        metadata: Some(offset.metadata),
        error_code: code.code(),
    }
}

fn no_offset(partition_index: i32, code: ErrorCode) -> OffsetFetchResponsePartitions {
    OffsetFetchResponsePartitions {
        partition_index,
        committed_offset: -1,
        error_code: code.code(),
        ..Default::default()
    }
}

fn refused(asked: Vec<OffsetFetchRequestGroup>, code: ErrorCode) -> Vec<OffsetFetchResponseGroup> {
    asked.into_iter().map(|group| group_error(group, code)).collect()
}

/// Names the partitions all the same: version 1 has no other place for the error, and the others leave them out.
fn group_error(asked: OffsetFetchRequestGroup, code: ErrorCode) -> OffsetFetchResponseGroup {
    let topics = asked.topics.into_iter().flatten().map(|asked| {
        let partitions = asked.partition_indexes.into_iter().map(|index| no_offset(index, code)).collect();
        topic(asked.name, partitions)
    });
    OffsetFetchResponseGroup { group_id: asked.group_id, topics: topics.collect(), error_code: code.code() }
}

/// The answer's form before version 8.
fn single(version: i16, group: OffsetFetchResponseGroup) -> OffsetFetchResponse {
    let narrower = |partition: OffsetFetchResponsePartitions| OffsetFetchResponsePartition {
        partition_index: partition.partition_index,
        committed_offset: partition.committed_offset,
        committed_leader_epoch: partition.committed_leader_epoch,
        metadata: partition.metadata,
        error_code: partition.error_code,
    };
    let topics = group.topics.into_iter().map(|topic| OffsetFetchResponseTopic {
        name: topic.name,
        partitions: topic.partitions.into_iter().map(narrower).collect(),
    });
    let has_failed = group.error_code != ErrorCode::None.code();
    OffsetFetchResponse {
        topics: if has_failed && version >= 2 { Vec::new() } else { topics.collect() },
        error_code: group.error_code,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetched(partition: i32, offset: i64) -> v1::FetchedOffset {
        v1::FetchedOffset { topic: "a".into(), partition, offset, leader_epoch: 4, metadata: "one".into(), error: None }
    }

    fn asked(partitions: Option<&[i32]>) -> OffsetFetchRequestGroup {
        let topic = |partitions: &[i32]| OffsetFetchRequestTopics {
            name: "a".into(),
            partition_indexes: partitions.to_vec(),
            ..Default::default()
        };
        let topics = partitions.map(|partitions| vec![topic(partitions)]);
        OffsetFetchRequestGroup { group_id: "g".into(), topics, ..Default::default() }
    }

    fn group(offsets: Vec<v1::FetchedOffset>, code: i32) -> v1::FetchedGroup {
        let error = Some(v1::KafkaError { code, message: String::new() });
        v1::FetchedGroup { group_id: "g".into(), error, offsets }
    }

    #[test]
    fn every_partition_asked_for_is_answered_in_order_and_without_an_offset_as_minus_one() {
        let answer = answer((asked(Some(&[2, 0, 1])), group(vec![fetched(0, 7), fetched(1, -1)], 0)));
        let seen: Vec<_> = answer.topics[0]
            .partitions
            .iter()
            .map(|p| {
                (
                    p.partition_index,
                    p.committed_offset,
                    p.committed_leader_epoch,
                    p.metadata.as_deref().unwrap(),
                    p.error_code,
                )
            })
            .collect();
        assert_eq!(seen, [(2, -1, -1, "", 0), (0, 7, 4, "one", 0), (1, -1, -1, "", 0)]);
    }

    #[test]
    fn asking_for_all_gives_what_there_is() {
        assert!(forwarded(&asked(None)).all && !forwarded(&asked(Some(&[]))).all);
        let answer = answer((asked(None), group(vec![fetched(0, 7), fetched(3, 9)], 0)));
        assert_eq!(answer.topics.len(), 1);
        assert_eq!(answer.topics[0].partitions.len(), 2);
    }

    #[test]
    fn a_groups_error_stands_where_its_version_has_room() {
        let failed = || answer((asked(Some(&[0, 1])), group(vec![], 15)));
        let one = single(1, failed());
        assert_eq!(
            one.topics[0].partitions.iter().map(|p| (p.committed_offset, p.error_code)).collect::<Vec<_>>(),
            [(-1, 15), (-1, 15)]
        );
        let two = single(2, failed());
        assert_eq!((two.error_code, two.topics.len()), (15, 0));
    }
}
