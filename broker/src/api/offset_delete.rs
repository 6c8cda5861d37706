//! OffsetDelete (key 47, version 0): removes committed offsets of topics that nobody in the group reads (KIP-496).
//!
//! A partition that does not exist is error 3; one of a topic that a member subscribes to is 86. An error of the whole group
//! (24, 69, 68) comes without partitions.

use thalweg_model::{ErrorCode, PartitionIndex};
use thalweg_proto::v1;
use thalweg_wire::messages::offset_delete::{OffsetDeleteResponsePartition, OffsetDeleteResponseTopic};
use thalweg_wire::messages::{OffsetDeleteRequest, OffsetDeleteResponse};

use super::context::RequestContext;
use super::group_gateway::by_topic;
use super::metadata::kafka_code;
use crate::machine::image::Image;
use crate::services::Services;

pub async fn handle(services: &Services, _: &RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse {
    if request.group_id.is_empty() {
        return failed(ErrorCode::InvalidGroupId);
    }
    let (forwarded, missing) = split(&services.image(), request);
    if forwarded.topics.is_empty() {
        return OffsetDeleteResponse { topics: topics(missing), ..Default::default() };
    }
    let deleted = match services.groups.delete_offsets(forwarded).await {
        Ok(deleted) => deleted,
        Err(code) => return failed(code),
    };
    let code = kafka_code(deleted.error.as_ref());
    if code.is_error() {
        return failed(code);
    }
    let answered = deleted.offsets.into_iter().map(|offset| {
        let error_code = kafka_code(offset.error.as_ref()).code();
        (offset.topic, OffsetDeleteResponsePartition { partition_index: offset.partition, error_code })
    });
    OffsetDeleteResponse { topics: topics(answered.chain(missing).collect()), ..Default::default() }
}

type Answered = (String, OffsetDeleteResponsePartition);

/// What goes to the coordinator, and what does not exist here.
fn split(image: &Image, request: OffsetDeleteRequest) -> (v1::DeleteOffsetsRequest, Vec<Answered>) {
    let mut missing = Vec::new();
    let mut topics = Vec::new();
    for topic in request.topics {
        let (known, unknown): (Vec<i32>, Vec<i32>) = topic
            .partitions
            .iter()
            .map(|partition| partition.partition_index)
            .partition(|index| image.partition(&topic.name, PartitionIndex(*index)).is_some());
        let error_code = ErrorCode::UnknownTopicOrPartition.code();
        missing.extend(unknown.into_iter().map(|partition_index| {
            (topic.name.clone(), OffsetDeleteResponsePartition { partition_index, error_code })
        }));
        if !known.is_empty() {
            topics.push(v1::TopicPartitions { topic: topic.name, partitions: known, ..Default::default() });
        }
    }
    (v1::DeleteOffsetsRequest { group_id: request.group_id, topics }, missing)
}

/// Each topic once, whatever the order.
fn topics(mut partitions: Vec<Answered>) -> Vec<OffsetDeleteResponseTopic> {
    partitions.sort_by(|a, b| a.0.cmp(&b.0));
    let topics = by_topic(partitions).into_iter();
    topics.map(|(name, partitions)| OffsetDeleteResponseTopic { name, partitions }).collect()
}

fn failed(code: ErrorCode) -> OffsetDeleteResponse {
    OffsetDeleteResponse { error_code: code.code(), ..Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::testing;
    use thalweg_wire::messages::offset_delete::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};

    #[test]
    fn only_what_exists_goes_to_the_coordinator() {
        let topic = |name: &str, indexes: &[i32]| OffsetDeleteRequestTopic {
            name: name.into(),
            partitions: indexes.iter().map(|index| OffsetDeleteRequestPartition { partition_index: *index }).collect(),
        };
        let request = OffsetDeleteRequest { group_id: "g".into(), topics: vec![topic("a", &[0, 9]), topic("b", &[0])] };
        let (forwarded, missing) = split(&testing::image(&[("a", 1)]), request);
        assert_eq!(forwarded.topics.len(), 1);
        assert_eq!(forwarded.topics[0].partitions, [0]);
        let answered = topics(missing);
        assert_eq!(answered.iter().map(|topic| topic.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert!(answered.iter().all(|topic| topic.partitions[0].error_code == 3));
    }
}
