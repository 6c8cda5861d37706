//! CreatePartitions (key 37, versions 0-3): gives a topic more partitions.
//!
//! The count is the new total; no more than before is 37. Assignments null places the new partitions automatically, else
//! there is one for each new partition (39). A topic that is named twice is 42, one that does not exist 3.

use std::collections::BTreeMap;

use thalweg_model::ErrorCode;
use thalweg_proto::v1;
use thalweg_wire::messages::create_partitions::{CreatePartitionsTopic, CreatePartitionsTopicResult};
use thalweg_wire::messages::{CreatePartitionsRequest, CreatePartitionsResponse};

use super::admin_calls::{self, Refusal};
use super::context::RequestContext;
use super::group_gateway::code_and_message;
use crate::machine::image::Image;
use crate::services::Services;

pub async fn handle(
    services: &Services,
    _: &RequestContext,
    request: CreatePartitionsRequest,
) -> CreatePartitionsResponse {
    let (names, checked) = check(&services.image(), request.topics);
    let topics: Vec<_> = checked.iter().filter_map(|topic| topic.as_ref().ok().cloned()).collect();
    let count = topics.len();
    let forwarded = v1::CreatePartitionsRequest { topics, validate_only: request.validate_only };
    let grown = if count == 0 { Ok(Vec::new()) } else { admin_calls::create_partitions(services, forwarded).await };
    let mut decided = match grown {
        Ok(grown) => grown.iter().map(|topic| code_and_message(topic.error.as_ref())).collect(),
        Err((code, message)) => vec![(code, Some(message)); count],
    }
    .into_iter();
    let results = names.into_iter().zip(checked).map(|(name, topic)| {
        let (code, error_message) = match topic {
            Ok(_) => decided.next().unwrap_or((ErrorCode::UnknownServerError, None)),
            Err((code, message)) => (code, Some(message)),
        };
        CreatePartitionsTopicResult { name, error_code: code.code(), error_message }
    });
    CreatePartitionsResponse { results: results.collect(), ..Default::default() }
}

/// Each topic once, in the order of the request, and what is to be asked of the coordinators for it.
fn check(image: &Image, topics: Vec<CreatePartitionsTopic>) -> (Vec<String>, Vec<Result<v1::GrowTopic, Refusal>>) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for topic in &topics {
        *counts.entry(topic.name.clone()).or_default() += 1;
    }
    let mut names = Vec::new();
    let mut checked = Vec::new();
    for topic in topics {
        let Some(count) = counts.remove(&topic.name) else { continue };
        names.push(topic.name.clone());
        checked.push(if count > 1 {
            Err((ErrorCode::InvalidRequest, format!("'{}' is named more than once", topic.name)))
        } else {
            grow(image, topic)
        });
    }
    (names, checked)
}

fn grow(image: &Image, topic: CreatePartitionsTopic) -> Result<v1::GrowTopic, Refusal> {
    let Some(known) = image.topic(&topic.name) else {
        return Err((ErrorCode::UnknownTopicOrPartition, format!("there is no topic '{}'", topic.name)));
    };
    let before = i32::try_from(known.partitions.len()).unwrap_or(i32::MAX);
    if topic.count <= before {
        let message = format!("'{}' has {before} partitions; {} are no more", topic.name, topic.count);
        return Err((ErrorCode::InvalidPartitions, message));
    }
    let added = usize::try_from(topic.count - before).unwrap_or(0);
    let assignments = match topic.assignments {
        Some(given) if given.len() != added => {
            let message = format!("{added} partitions are to be added, but {} assignments given", given.len());
            return Err((ErrorCode::InvalidReplicaAssignment, message));
        }
        given => given.unwrap_or_default(),
    };
    let assignments = (before..).zip(assignments);
    Ok(v1::GrowTopic {
        name: topic.name,
        partitions: topic.count,
        assignments: assignments
            .map(|(partition, given)| v1::ReplicaAssignment { partition, replicas: given.broker_ids })
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::testing;
    use thalweg_wire::messages::create_partitions::CreatePartitionsAssignment;

    fn topic(name: &str, count: i32, assignments: Option<Vec<Vec<i32>>>) -> CreatePartitionsTopic {
        let assignments = assignments
            .map(|given| given.into_iter().map(|broker_ids| CreatePartitionsAssignment { broker_ids }).collect());
        CreatePartitionsTopic { name: name.into(), count, assignments }
    }

    #[test]
    fn each_topic_is_answered_once_with_its_own_fault() {
        let image = testing::image(&[("a", 2), ("b", 1), ("c", 1)]);
        let topics = vec![
            topic("a", 4, Some(vec![vec![0], vec![1]])),
            topic("b", 2, None),
            topic("b", 3, None),
            topic("c", 1, None),
            topic("d", 9, None),
        ];
        let (names, checked) = check(&image, topics);
        assert_eq!(names, ["a", "b", "c", "d"]);
        let codes: Vec<i16> =
            checked.iter().map(|topic| topic.as_ref().err().map_or(0, |(code, _)| code.code())).collect();
        assert_eq!(codes, [0, 42, 37, 3]);
        let grow = checked[0].as_ref().unwrap();
        let placed: Vec<_> = grow.assignments.iter().map(|given| (given.partition, given.replicas.clone())).collect();
        assert_eq!(placed, [(2, vec![0]), (3, vec![1])]);
    }

    #[test]
    fn null_places_automatically_and_an_empty_list_does_not_fit() {
        let image = testing::image(&[("a", 2)]);
        assert!(grow(&image, topic("a", 3, None)).unwrap().assignments.is_empty());
        assert_eq!(grow(&image, topic("a", 3, Some(vec![]))).unwrap_err().0, ErrorCode::InvalidReplicaAssignment);
        assert_eq!(grow(&image, topic("a", i32::MIN, None)).unwrap_err().0, ErrorCode::InvalidPartitions);
    }
}
