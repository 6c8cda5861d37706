//! A plan: moves that belong together, begun a few at a time by whoever leads the coordinators.
//!
//! Only the plan itself is stored. How far it has come is read off the partitions, so nothing is forgotten with a leader.

use std::collections::BTreeSet;

use thalweg_model::{ErrorCode, NodeId};
use thalweg_proto::v1::elect_leaders_request::Election;
use thalweg_proto::v1::record::Kind;
use thalweg_proto::v1::{EndPlan, KafkaError, PlanRecord, PlanRemoved, PlanStep, Reassignment, Record, StartPlan};

use super::context::Context;
use super::election::Partition;
use super::leaders;
use super::reassignment;
use super::state::{State, partition_record, topic_id};
use super::{Outcome, error};

/// How far one step has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The partition is where it was when the plan was made.
    Waiting,
    Moving,
    Done,
    /// Somebody else has moved the partition meanwhile, or deleted it; the step is left out.
    Overtaken,
}

/// Takes a plan on, if the cluster is still the one that it was made for.
pub fn start(state: &State, context: &Context, command: &StartPlan) -> (Outcome, Vec<Record>) {
    let refuse = |code, message: String| (Outcome::Refused(error(code, message)), Vec::new());
    if let Some(plan) = state.plan() {
        let message = format!(
            "plan {} is under way; wait for its end (`thalweg rebalance status`), or `thalweg rebalance cancel`",
            plan.id
        );
        return refuse(ErrorCode::ReassignmentInProgress, message);
    }
    if command.steps.is_empty() {
        return refuse(ErrorCode::InvalidRequest, "a plan without moves is none".to_owned());
    }
    let mut seen = BTreeSet::new();
    for step in &command.steps {
        let is_first = seen.insert((&step.topic, step.partition));
        if let Err(refused) = check(state, context, step, is_first) {
            let message = format!("{}-{}: {}", step.topic, step.partition, refused.message);
            return (Outcome::Refused(KafkaError { message, ..refused }), Vec::new());
        }
    }
    let plan = PlanRecord { id: context.index, started_at_ms: context.time.0, steps: command.steps.clone() };
    (Outcome::Done, vec![Record { kind: Some(Kind::Plan(plan)) }])
}

/// Ends a plan. Its partitions get their preferred leaders; or, cancelled, its moves under way are called off.
pub fn end(state: &State, context: &Context, command: &EndPlan) -> (Outcome, Vec<Record>) {
    let Some(plan) = state.plan().filter(|plan| command.id == 0 || plan.id == command.id) else {
        let message = "there is no plan under way".to_owned();
        return (Outcome::Refused(error(ErrorCode::NoReassignmentInProgress, message)), Vec::new());
    };
    let mut records = vec![Record { kind: Some(Kind::PlanRemoved(PlanRemoved { id: plan.id })) }];
    for step in &plan.steps {
        let Some((topic, partition)) = found(state, step) else { continue };
        let next = match progress(state, step) {
            Progress::Moving if command.cancel => {
                let back = Reassignment { cancel: true, replicas: Vec::new(), ..wanted(step) };
                reassignment::decide(state, context, &back, true, false).ok().and_then(|(_, next)| next)
            }
            Progress::Done => leaders::decide(state, context, Election::Preferred, topic, partition).ok(),
            Progress::Moving | Progress::Waiting | Progress::Overtaken => None,
        };
        records.extend(next.map(|next| partition_record(topic, step.partition, &next)));
    }
    (Outcome::Done, records)
}

pub fn progress(state: &State, step: &PlanStep) -> Progress {
    let Some((_, partition)) = found(state, step) else { return Progress::Overtaken };
    let to = ids(&step.to);
    if partition.is_moving() {
        return if partition.target() == to { Progress::Moving } else { Progress::Overtaken };
    }
    if partition.replicas == to {
        Progress::Done
    } else if partition.replicas == ids(&step.from) {
        Progress::Waiting
    } else {
        Progress::Overtaken
    }
}

/// The move that a step begins.
pub fn wanted(step: &PlanStep) -> Reassignment {
    let PlanStep { topic, partition, to, .. } = step.clone();
    Reassignment { topic, partition, replicas: to, cancel: false }
}

fn check(state: &State, context: &Context, step: &PlanStep, is_first: bool) -> Result<(), KafkaError> {
    let changed = |message: &str| {
        let message = format!("{message}; make a new plan: `thalweg rebalance plan`");
        Err(error(ErrorCode::InvalidRequest, message))
    };
    let Some((_, partition)) = found(state, step) else {
        return changed("the topic that the plan was made for is gone, or has no such partition");
    };
    if partition.is_moving() {
        return changed("it is being moved already");
    }
    if partition.replicas != ids(&step.from) {
        return changed("its replicas are others than when the plan was made");
    }
    if let Some(dead) = step.to.iter().find(|id| !step.from.contains(id) && !state.is_eligible(NodeId(**id))) {
        return changed(&format!("broker {dead}, which it is to go to, is not alive"));
    }
    // Everything that a single move is refused for.
    reassignment::decide(state, context, &wanted(step), is_first, false).map(drop)
}

fn found<'a>(state: &'a State, step: &PlanStep) -> Option<(thalweg_model::TopicId, &'a Partition)> {
    let id = topic_id(&step.topic_id).ok()?;
    let is_named = state.topic_name(id) == Some(step.topic.as_str());
    is_named.then(|| state.partition(id, step.partition)).flatten().map(|partition| (id, partition))
}

fn ids(numbers: &[i32]) -> Vec<NodeId> {
    numbers.iter().copied().map(NodeId).collect()
}
