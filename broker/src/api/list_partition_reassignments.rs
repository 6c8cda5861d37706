//! ListPartitionReassignments (key 46, version 0): the moves under way (KIP-455).
//!
//! Topics null asks for all of them. What does not exist or does not move is left out.

use std::collections::BTreeSet;

use thalweg_model::NodeId;
use thalweg_wire::messages::list_partition_reassignments::{OngoingPartitionReassignment, OngoingTopicReassignment};
use thalweg_wire::messages::{ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse};

use super::context::RequestContext;
use crate::machine::image::{Image, TopicImage};
use crate::services::Services;

pub async fn handle(
    services: &Services,
    _: &RequestContext,
    request: ListPartitionReassignmentsRequest,
) -> ListPartitionReassignmentsResponse {
    ListPartitionReassignmentsResponse {
        topics: moving(&services.image(), &request),
        error_message: None,
        ..Default::default()
    }
}

fn moving(image: &Image, request: &ListPartitionReassignmentsRequest) -> Vec<OngoingTopicReassignment> {
    match &request.topics {
        None => image.topics().filter_map(|topic| of_topic(topic, |_| true)).collect(),
        Some(named) => {
            let of_named = named.iter().filter_map(|named| {
                let indexes: BTreeSet<i32> = named.partition_indexes.iter().copied().collect();
                of_topic(image.topic(&named.name)?, |index| indexes.contains(&index))
            });
            of_named.collect()
        }
    }
}

fn of_topic(topic: &TopicImage, is_asked: impl Fn(i32) -> bool) -> Option<OngoingTopicReassignment> {
    let numbers = |ids: &[NodeId]| ids.iter().map(|id| id.0).collect();
    let partitions = topic.partitions.iter().filter(|(index, partition)| is_asked(index.0) && partition.is_moving());
    let partitions: Vec<_> = partitions
        .map(|(index, partition)| OngoingPartitionReassignment {
            partition_index: index.0,
            replicas: numbers(&partition.replicas),
            adding_replicas: numbers(&partition.adding),
            removing_replicas: numbers(&partition.removing),
        })
        .collect();
    (!partitions.is_empty()).then(|| OngoingTopicReassignment { name: topic.name.to_string(), partitions })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use thalweg_model::{PartitionIndex, TopicName};
    use thalweg_wire::messages::list_partition_reassignments::ListPartitionReassignmentsTopics;

    use super::*;
    use crate::api::testing;

    #[test]
    fn only_what_moves_and_was_asked_for_is_listed() {
        let mut image = testing::image(&[("a", 2), ("b", 1)]);
        let topic = Arc::make_mut(&mut image.topics).get_mut(&TopicName::new("a").unwrap()).unwrap();
        let partition = Arc::make_mut(topic).partitions.get_mut(&PartitionIndex(1)).unwrap();
        partition.replicas = vec![NodeId(7), NodeId(8)];
        (partition.adding, partition.removing) = (vec![NodeId(7)], vec![NodeId(8)]);
        let asked = |topics| moving(&image, &ListPartitionReassignmentsRequest { topics, timeout_ms: 1 });
        let all = asked(None);
        assert_eq!((all.len(), all[0].name.as_str()), (1, "a"));
        let OngoingPartitionReassignment { partition_index, replicas, adding_replicas, removing_replicas } =
            &all[0].partitions[0];
        assert_eq!(
            (*partition_index, &replicas[..], &adding_replicas[..], &removing_replicas[..]),
            (1, &[7, 8][..], &[7][..], &[8][..])
        );
        let named =
            |name: &str, partition_indexes| ListPartitionReassignmentsTopics { name: name.into(), partition_indexes };
        assert_eq!(asked(Some(vec![named("none", vec![0]), named("a", vec![0]), named("b", vec![0])])), []);
        assert_eq!(asked(Some(vec![named("a", vec![1, 1, 9])])), all);
        assert_eq!(asked(Some(Vec::new())), []);
    }
}
