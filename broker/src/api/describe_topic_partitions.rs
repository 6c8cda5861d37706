//! DescribeTopicPartitions (key 75, version 0): topics page by page, with the eligible leader replicas (KIP-966).
//!
//! No topics asks for all. Topics come in the order of names, partitions in the order of numbers; the answer stops after so
//! many partitions and says where to go on. A cursor that does not fit the topics asked for is 42 at each of them.

use std::collections::BTreeSet;

use thalweg_model::{ErrorCode, NodeId, PartitionIndex, TopicName};
use thalweg_wire::messages::describe_topic_partitions::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use thalweg_wire::messages::{DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse};

use super::authorized_operations::TOPIC_OPERATIONS;
use super::context::RequestContext;
use crate::machine::image::{Image, PartitionImage, TopicImage};
use crate::services::Services;

pub async fn handle(
    services: &Services,
    _: &RequestContext,
    request: DescribeTopicPartitionsRequest,
) -> DescribeTopicPartitionsResponse {
    page(&services.image(), request)
}

fn page(image: &Image, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse {
    let wants_all = request.topics.is_empty();
    let asked: BTreeSet<&str> = if wants_all {
        image.topics().map(|topic| topic.name.as_str()).collect()
    } else {
        request.topics.iter().map(|topic| topic.name.as_str()).collect()
    };
    let start = request.cursor.as_ref().map_or(("", 0), |cursor| (cursor.topic_name.as_str(), cursor.partition_index));
    let fits = start.1 >= 0 && (wants_all || start.0.is_empty() || asked.contains(start.0));
    if !fits {
        let topics = asked.into_iter().map(|name| failed(name, ErrorCode::InvalidRequest)).collect();
        return DescribeTopicPartitionsResponse { topics, ..Default::default() };
    }
    let mut left = usize::try_from(request.response_partition_limit).unwrap_or(0).clamp(1, PARTITIONS_MAX);
    let mut topics = Vec::new();
    for name in asked.range(start.0..) {
        let first = if *name == start.0 { start.1 } else { 0 };
        if left == 0 {
            return cut(topics, name, first);
        }
        let Some(topic) = image.topic(name) else {
            topics.push(missing(name));
            continue;
        };
        let shown: Vec<_> = topic.partitions.range(PartitionIndex(first)..).take(left + 1).collect();
        let next = shown.get(left).map(|(index, _)| index.0);
        let partitions = shown.into_iter().take(left).map(|(index, known)| partition(image, index.0, known));
        let partitions: Vec<_> = partitions.collect();
        left -= partitions.len();
        topics.push(described(topic, partitions));
        if let Some(next) = next {
            return cut(topics, name, next);
        }
    }
    DescribeTopicPartitionsResponse { topics, ..Default::default() }
}

fn cut(
    topics: Vec<DescribeTopicPartitionsResponseTopic>,
    topic_name: &str,
    partition_index: i32,
) -> DescribeTopicPartitionsResponse {
    let next_cursor = Some(Cursor { topic_name: topic_name.to_owned(), partition_index });
    DescribeTopicPartitionsResponse { topics, next_cursor, ..Default::default() }
}

fn described(
    topic: &TopicImage,
    partitions: Vec<DescribeTopicPartitionsResponsePartition>,
) -> DescribeTopicPartitionsResponseTopic {
    DescribeTopicPartitionsResponseTopic {
        name: Some(topic.name.to_string()),
        topic_id: topic.id,
        is_internal: topic.internal,
        partitions,
        topic_authorized_operations: TOPIC_OPERATIONS,
        ..Default::default()
    }
}

fn partition(image: &Image, partition_index: i32, known: &PartitionImage) -> DescribeTopicPartitionsResponsePartition {
    let is_live = |id: &NodeId| image.brokers.get(id).is_some_and(|broker| !broker.fenced);
    let ids = |nodes: &[NodeId]| nodes.iter().map(|id| id.0).collect::<Vec<_>>();
    let leader = known.leader.filter(is_live);
    DescribeTopicPartitionsResponsePartition {
        error_code: if leader.is_some() { ErrorCode::None } else { ErrorCode::LeaderNotAvailable }.code(),
        partition_index,
        leader_id: leader.unwrap_or(NodeId::NONE).0,
        leader_epoch: known.leader_epoch.0,
        replica_nodes: ids(&known.replicas),
        isr_nodes: ids(&known.isr),
        eligible_leader_replicas: Some(ids(&known.elr)),
        last_known_elr: Some(ids(&known.lost)),
        offline_replicas: known.replicas.iter().filter(|id| !is_live(id)).map(|id| id.0).collect(),
    }
}

fn missing(name: &str) -> DescribeTopicPartitionsResponseTopic {
    let is_name = TopicName::new(name).is_ok();
    failed(name, if is_name { ErrorCode::UnknownTopicOrPartition } else { ErrorCode::InvalidTopicException })
}

fn failed(name: &str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic {
    DescribeTopicPartitionsResponseTopic { error_code: code.code(), name: Some(name.to_owned()), ..Default::default() }
}

/// The most partitions of one answer (Kafka's `max.request.partition.size.limit`).
const PARTITIONS_MAX: usize = 2_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::testing;
    use thalweg_wire::messages::describe_topic_partitions::TopicRequest;

    fn request(topics: &[&str], limit: i32, cursor: Option<(&str, i32)>) -> DescribeTopicPartitionsRequest {
        DescribeTopicPartitionsRequest {
            topics: topics.iter().map(|name| TopicRequest { name: (*name).into() }).collect(),
            response_partition_limit: limit,
            cursor: cursor.map(|(name, index)| Cursor { topic_name: name.into(), partition_index: index }),
        }
    }

    fn seen(response: &DescribeTopicPartitionsResponse) -> Vec<(String, i32)> {
        let topics = response.topics.iter();
        topics
            .flat_map(|topic| {
                let name = topic.name.clone().unwrap();
                topic.partitions.iter().map(move |partition| (name.clone(), partition.partition_index))
            })
            .collect()
    }

    /// Goal: pages put together are the whole, whatever their size. Method: walk with every limit from 1 to above the total.
    #[test]
    fn pages_together_hold_every_partition_once() {
        let image = testing::image(&[("a", 3), ("b", 1), ("c", 4)]);
        let whole = page(&image, request(&[], 2_000, None));
        assert_eq!(seen(&whole).len(), 8);
        assert_eq!(whole.next_cursor, None);
        for limit in 1..=9 {
            let mut got = Vec::new();
            let mut cursor: Option<Cursor> = None;
            loop {
                let at = cursor.as_ref().map(|cursor| (cursor.topic_name.as_str(), cursor.partition_index));
                let response = page(&image, request(&[], limit, at));
                assert!(seen(&response).len() <= usize::try_from(limit).unwrap());
                got.extend(seen(&response));
                cursor = response.next_cursor;
                if cursor.is_none() {
                    break;
                }
            }
            assert_eq!(got, seen(&whole), "limit {limit}");
        }
    }

    #[test]
    fn named_topics_come_in_order_with_their_own_errors() {
        let image = testing::image(&[("a", 1), ("b", 1)]);
        let response = page(&image, request(&["b", "x", "../y", "b"], 10, None));
        let codes: Vec<_> =
            response.topics.iter().map(|topic| (topic.name.as_deref().unwrap(), topic.error_code)).collect();
        assert_eq!(codes, [("../y", 17), ("b", 0), ("x", 3)]);
    }

    #[test]
    fn a_cursor_outside_the_topics_or_below_zero_is_refused_at_each_topic() {
        let image = testing::image(&[("a", 1), ("b", 1)]);
        for cursor in [("c", 0), ("a", -1)] {
            let response = page(&image, request(&["a", "b"], 10, Some(cursor)));
            assert!(response.topics.iter().all(|topic| topic.error_code == 42), "{cursor:?}");
            assert_eq!(response.topics.len(), 2);
        }
    }

    #[test]
    fn a_silly_limit_counts_as_one_and_a_topic_that_went_away_is_passed_over() {
        let image = testing::image(&[("a", 2), ("c", 1)]);
        assert_eq!(seen(&page(&image, request(&[], -5, None))).len(), 1);
        assert_eq!(seen(&page(&image, request(&[], 10, Some(("b", 7))))), [("c".to_owned(), 0)]);
    }
}
