//! Where replicas lie and where they are on their way to, and what operators order about it.

use thalweg_model::{ErrorCode, NodeId, PartitionIndex, TopicId};
use thalweg_proto::v1;
use thalweg_wire::placement::{
    Order, PlacedBroker, PlacedPartition, PlacedTopic, PlacementReport, PlanReport, PlanStep, StepProgress,
};
use v1::operate_request::Kind;

use super::admin_calls::{self, Refusal};
use crate::machine::image::{Image, PartitionImage, TopicImage};
use crate::services::Services;

pub fn report(services: &Services) -> PlacementReport {
    let image = services.image();
    let brokers = image.brokers.iter().map(|(id, broker)| PlacedBroker {
        id: id.0,
        rack: broker.rack.clone(),
        is_fenced: broker.fenced,
        is_stopping: broker.shutting_down,
        is_cordoned: broker.cordoned,
        is_draining: broker.draining,
    });
    let topics = image.topics().map(|topic| {
        let min_isr = services.topic_config(&image, topic.name.as_str()).min_insync_replicas;
        placed(topic, min_isr)
    });
    let now = services.clock.wall().0;
    let plan = image.plan.as_ref().map(|plan| PlanReport {
        id: plan.id,
        age_ms: now.saturating_sub(plan.started_at_ms).max(0),
        steps: plan.steps.iter().map(|step| told(&image, step)).collect(),
    });
    let move_rate = services.running_number(services.node_id(), "follower.replication.throttled.rate");
    PlacementReport {
        cluster_id: image.cluster_id.to_string(),
        brokers: brokers.collect(),
        topics: topics.collect(),
        plan,
        move_rate: u64::try_from(move_rate).unwrap_or(1),
    }
}

/// Sends an order to the coordinators; answers when this broker knows of its outcome.
///
/// # Errors
/// The order is none (42); what [`admin_calls::operate`] says.
pub async fn carry_out(services: &Services, order: &str) -> Result<(), Refusal> {
    let order = serde_json::from_str(order).map_err(|error| (ErrorCode::InvalidRequest, error.to_string()))?;
    let kind = match order {
        Order::Mark { broker, cordoned, draining } => {
            Kind::MarkBroker(v1::MarkBroker { broker_id: broker, cordoned, draining })
        }
        Order::Start { steps } => {
            let steps = steps.into_iter().map(step).collect::<Result<_, _>>()?;
            Kind::StartPlan(v1::StartPlan { steps })
        }
        Order::End { id, cancel } => Kind::EndPlan(v1::EndPlan { id, cancel }),
    };
    admin_calls::operate(services, v1::OperateRequest { kind: Some(kind) }).await
}

fn step(step: PlanStep) -> Result<v1::PlanStep, Refusal> {
    let id = TopicId::from_base64(&step.topic_id)
        .ok_or_else(|| (ErrorCode::InvalidRequest, format!("'{}' is no topic id", step.topic_id)))?;
    Ok(v1::PlanStep {
        topic: step.topic,
        topic_id: id.0.to_vec().into(),
        partition: step.partition,
        from: step.from,
        to: step.to,
        bytes: step.bytes,
        reason: step.reason,
    })
}

fn told(image: &Image, step: &v1::PlanStep) -> PlanStep {
    let id = <[u8; 16]>::try_from(&step.topic_id[..]).map_or(TopicId::ZERO, TopicId);
    let topic = image.topic_by_id(id);
    let partition = topic.and_then(|topic| topic.partitions.get(&PartitionIndex(step.partition)));
    PlanStep {
        topic: step.topic.clone(),
        topic_id: id.to_base64(),
        partition: step.partition,
        from: step.from.clone(),
        to: step.to.clone(),
        bytes: step.bytes,
        reason: step.reason.clone(),
        progress: Some(progress(partition, step)),
    }
}

/// As the coordinators see it.
fn progress(partition: Option<&PartitionImage>, step: &v1::PlanStep) -> StepProgress {
    let Some(partition) = partition else { return StepProgress::Overtaken };
    let target = partition.replicas.iter().filter(|id| !partition.removing.contains(id)).map(|id| id.0);
    let is_there = target.eq(step.to.iter().copied());
    match (partition.is_moving(), is_there) {
        (true, true) => StepProgress::Moving,
        (false, true) => StepProgress::Done,
        (false, false) if numbers(&partition.replicas) == step.from => StepProgress::Waiting,
        (true | false, false) => StepProgress::Overtaken,
    }
}

fn placed(topic: &TopicImage, min_isr: i32) -> PlacedTopic {
    let partition = |partition: &PartitionImage| PlacedPartition {
        leader: partition.leader.map(|leader| leader.0),
        replicas: numbers(&partition.replicas),
        isr: numbers(&partition.isr),
        adding: numbers(&partition.adding),
        removing: numbers(&partition.removing),
    };
    PlacedTopic {
        name: topic.name.to_string(),
        id: topic.id.to_base64(),
        min_isr,
        partitions: topic.partitions.values().map(partition).collect(),
    }
}

fn numbers(ids: &[NodeId]) -> Vec<i32> {
    ids.iter().map(|id| id.0).collect()
}
