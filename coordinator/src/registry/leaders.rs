//! Elections that somebody asks for: of preferred leaders, and of whoever is left (KIP-460).

use thalweg_model::{ErrorCode, TopicId};
use thalweg_proto::v1::elect_leaders_request::Election;
use thalweg_proto::v1::{ElectLeadersRequest, ElectedPartition, KafkaError, Record};

use super::brokers::rules;
use super::context::Context;
use super::election::Partition;
use super::state::{State, partition_record};
use super::{Outcome, error, ok};

/// Elects in each named partition, or in every one; of "every one" those are left out that need no
/// election, as Kafka does.
pub fn elect(state: &State, context: &Context, request: &ElectLeadersRequest) -> (Outcome, Vec<Record>) {
    let Ok(election) = Election::try_from(request.election) else {
        let message = format!("there is no election of kind {}", request.election);
        return (Outcome::Refused(error(ErrorCode::InvalidRequest, message)), Vec::new());
    };
    let mut results = Vec::new();
    let mut records = Vec::new();
    if request.all {
        for (topic, index, partition) in state.partitions() {
            let told = match decide(state, context, election, topic, partition) {
                Ok(next) => {
                    records.push(partition_record(topic, index, &next));
                    ok()
                }
                Err(refused) if refused.code == i32::from(ErrorCode::ElectionNotNeeded.code()) => continue,
                Err(refused) => refused,
            };
            results.push(elected(state.topic_name(topic).unwrap_or_default(), index, told));
        }
        return (Outcome::ElectedLeaders(results), records);
    }
    let mut seen = std::collections::BTreeSet::new();
    for named in &request.topics {
        for index in &named.partitions {
            if !seen.insert((&named.topic, *index)) {
                continue;
            }
            let topic = state.topic(&named.topic).map(|topic| topic.id);
            let found = topic.and_then(|topic| Some((topic, state.partition(topic, *index)?)));
            let result = match found {
                Some((topic, partition)) => {
                    decide(state, context, election, topic, partition).map(|next| (topic, next))
                }
                None => {
                    let message = format!("there is no partition {index} of topic '{}'", named.topic);
                    Err(error(ErrorCode::UnknownTopicOrPartition, message))
                }
            };
            let told = match result {
                Ok((topic, next)) => {
                    records.push(partition_record(topic, *index, &next));
                    ok()
                }
                Err(refused) => refused,
            };
            results.push(elected(&named.topic, *index, told));
        }
    }
    (Outcome::ElectedLeaders(results), records)
}

/// Whether an election of preferred leaders would change anything.
pub fn would_prefer(state: &State, context: &Context) -> bool {
    let mut partitions = state.partitions();
    partitions.any(|(topic, _, partition)| decide(state, context, Election::Preferred, topic, partition).is_ok())
}

pub(super) fn decide(
    state: &State,
    context: &Context,
    election: Election,
    topic: TopicId,
    partition: &Partition,
) -> Result<Partition, KafkaError> {
    let is_eligible = |id| state.is_eligible(id);
    let rules = rules(state, context, topic, partition, &is_eligible);
    match election {
        Election::Preferred
            if partition.leader.is_some() && partition.leader == partition.replicas.first().copied() =>
        {
            Err(error(ErrorCode::ElectionNotNeeded, "the preferred replica leads already"))
        }
        Election::Preferred => partition.prefer(rules).ok_or_else(|| {
            error(ErrorCode::PreferredLeaderNotAvailable, "the preferred replica is not in sync, or may not lead now")
        }),
        Election::Unclean if partition.leader.is_some() => {
            Err(error(ErrorCode::ElectionNotNeeded, "the partition has a leader"))
        }
        Election::Unclean => partition
            .recover(rules)
            .ok_or_else(|| error(ErrorCode::EligibleLeadersNotAvailable, "no replica of the partition is alive")),
    }
}

fn elected(topic: &str, partition: i32, error: KafkaError) -> ElectedPartition {
    ElectedPartition { topic: topic.to_owned(), partition, error: Some(error) }
}
