//! Moves of partitions between brokers: begun, redirected, called off (REPLICATION 3.4, KIP-455).
//!
//! ```text
//! settled --begin--> moving: replicas = target and those to go --everybody who comes is in sync--> settled on the target
//! moving --begin--> moving to another target      moving --cancel--> settled on where it began
//! ```
//! The last step of a move is no command: [`Partition::change`] takes it whenever the in-sync replicas allow.

use std::collections::BTreeSet;

use thalweg_model::{ErrorCode, NodeId, TopicId, mutant};
use thalweg_proto::v1::{AlterReassignmentsRequest, KafkaError, ReassignedPartition, Reassignment, Record};

use super::context::Context;
use super::election::{Partition, Rules, apart};
use super::state::{State, partition_record};
use super::{Outcome, error, min_isr, ok};

/// Decides on each partition by itself; the order of the answers is that of the request.
pub fn alter(state: &State, context: &Context, request: &AlterReassignmentsRequest) -> (Outcome, Vec<Record>) {
    let mut records = Vec::new();
    let mut seen = BTreeSet::new();
    let results = request.partitions.iter().map(|wanted| {
        let is_first = seen.insert((&wanted.topic, wanted.partition));
        let error = match decide(state, context, wanted, is_first, request.fixed_replication_factor) {
            Ok((topic, Some(next))) => {
                records.push(partition_record(topic, wanted.partition, &next));
                ok()
            }
            Ok((_, None)) => ok(),
            Err(refused) => refused,
        };
        ReassignedPartition { topic: wanted.topic.clone(), partition: wanted.partition, error: Some(error) }
    });
    (Outcome::Reassigned(results.collect()), records)
}

/// The partition afterwards; `None` if nothing changes.
pub(super) fn decide(
    state: &State,
    context: &Context,
    wanted: &Reassignment,
    is_first: bool,
    is_factor_fixed: bool,
) -> Result<(TopicId, Option<Partition>), KafkaError> {
    let (name, index) = (&wanted.topic, wanted.partition);
    if !is_first {
        let message = format!("partition {index} of topic '{name}' is named more than once");
        return Err(error(ErrorCode::InvalidRequest, message));
    }
    let topic = state.topic(name).map(|topic| topic.id);
    let Some((topic, partition)) = topic.and_then(|topic| Some((topic, state.partition(topic, index)?))) else {
        let message = format!("there is no partition {index} of topic '{name}'");
        return Err(error(ErrorCode::UnknownTopicOrPartition, message));
    };
    let next = if wanted.cancel {
        if !partition.is_moving() {
            let message = format!("partition {index} of topic '{name}' is not being moved");
            return Err(error(ErrorCode::NoReassignmentInProgress, message));
        }
        shaped(state, context, topic, partition, partition.origin(), Vec::new(), Vec::new())?
    } else {
        let target: Vec<NodeId> = wanted.replicas.iter().copied().map(NodeId).collect();
        check_target(state, context, topic, partition, &target, is_factor_fixed)?;
        let origin = partition.origin();
        let (adding, removing) = (apart(&target, &origin), apart(&origin, &target));
        // The target first: its order is that of preference, and it is what is left when the others go.
        let replicas = target.iter().chain(&removing).copied().collect();
        shaped(state, context, topic, partition, replicas, adding, removing)?
    };
    Ok((topic, (next != *partition).then_some(next)))
}

/// With these replicas. Whoever is left out came with a move that is over now, and leaves every set.
///
/// # Errors
/// Those who stay would not be enough in-sync replicas, where some that have what is committed would go.
fn shaped(
    state: &State,
    context: &Context,
    topic: TopicId,
    partition: &Partition,
    replicas: Vec<NodeId>,
    adding: Vec<NodeId>,
    removing: Vec<NodeId>,
) -> Result<Partition, KafkaError> {
    let mut next = Partition { replicas, adding, removing, ..partition.clone() };
    let is_eligible = |id| state.is_eligible(id);
    let min_isr = min_isr::bounded(min_isr::of_topic(state, context, topic), next.factor());
    let rules = Rules { min_isr, is_eligible: &is_eligible };
    let stays = |id: &NodeId| next.replicas.contains(id);
    let isr: Vec<NodeId> = partition.isr.iter().copied().filter(stays).collect();
    let loses_some = partition.isr.iter().chain(&partition.elr).any(|id| !stays(id));
    let suffices = isr.len() >= min_isr || mutant!("cancel-keeps-min-isr");
    if loses_some && (!suffices || !isr.iter().any(|id| is_eligible(*id))) {
        let message = format!(
            "of the replicas that would stay only {isr:?} are in sync, {min_isr} must be; wait until more have caught up",
            isr = isr.iter().map(|id| id.0).collect::<Vec<_>>()
        );
        return Err(error(ErrorCode::InvalidReplicaAssignment, message));
    }
    if loses_some {
        next.set_isr(isr, min_isr);
    }
    let stays = next.replicas.clone();
    next.lost.retain(|id| stays.contains(id));
    next.settle(rules);
    next.count_changes_since(partition);
    Ok(next)
}

fn check_target(
    state: &State,
    context: &Context,
    topic: TopicId,
    partition: &Partition,
    target: &[NodeId],
    is_factor_fixed: bool,
) -> Result<(), KafkaError> {
    let invalid = |message: String| Err(error(ErrorCode::InvalidReplicaAssignment, message));
    if target.is_empty() {
        return invalid("a partition needs at least one replica".to_owned());
    }
    let distinct: BTreeSet<NodeId> = target.iter().copied().collect();
    if distinct.len() != target.len() {
        return invalid("a broker is named more than once; each holds one replica of a partition".to_owned());
    }
    if let Some(unknown) = target.iter().find(|id| state.broker(**id).is_none()) {
        return invalid(format!("broker {unknown} is not registered; name brokers of this cluster"));
    }
    let origin = partition.origin();
    let marked = |id: &&NodeId| !origin.contains(id) && state.broker(**id).is_some_and(|b| b.cordoned || b.draining);
    if let Some(marked) = target.iter().find(marked) {
        return invalid(format!(
            "broker {marked} is cordoned or draining and is given no replicas; `thalweg broker uncordon {marked}` or `undrain` \
             changes that"
        ));
    }
    let before = origin.len();
    if is_factor_fixed && target.len() != before {
        let message =
            format!("the partition has {before} replicas, {} are asked for, and the number is to stay", target.len());
        return Err(error(ErrorCode::InvalidReplicationFactor, message));
    }
    let min_isr = min_isr::of_topic(state, context, topic);
    if target.len() < before && usize::try_from(min_isr).is_ok_and(|min_isr| target.len() < min_isr) {
        let message = format!(
            "min.insync.replicas is {min_isr}: with {} replicas no write with acks=all could succeed; lower it first, or \
             keep {min_isr} replicas",
            target.len()
        );
        return Err(error(ErrorCode::InvalidReplicationFactor, message));
    }
    Ok(())
}
