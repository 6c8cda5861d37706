//! Asks the coordinator for other in-sync replicas, for all partitions led here (REPLICATION L5-L7, KIP-497).

use std::sync::Arc;
use std::time::Duration;

use thalweg_model::ErrorCode;
use thalweg_proto::v1;
use thalweg_proto::v1::registry_client::RegistryClient;
use tokio::sync::mpsc;
use tracing::{debug, info, warn};

use super::coordinators::CoordinatorError;
use super::owner::Owner;
use super::partitions::Partition;
use crate::api::in_time;
use crate::api::metadata::kafka_code;
use crate::machine::isr::{IsrProposal, ProposalAnswer};
use crate::services::Services;

/// A proposal on its way to the coordinator. One per partition at a time, which bounds the queue.
#[derive(Debug)]
pub struct Outgoing {
    pub partition: Arc<Partition>,
    pub proposal: IsrProposal,
}

pub type ProposalSender = mpsc::UnboundedSender<Outgoing>;
pub type ProposalQueue = mpsc::UnboundedReceiver<Outgoing>;

/// Sends what leaders propose: one call for everything that has come together meanwhile.
pub async fn run(services: Arc<Services>, mut queue: ProposalQueue) {
    let mut backoff = BACKOFF_FIRST;
    while let Some(first) = queue.recv().await {
        let mut outgoing = vec![first];
        while outgoing.len() < PARTITIONS_MAX
            && let Ok(next) = queue.try_recv()
        {
            outgoing.push(next);
        }
        // One call speaks for one life of this broker.
        while !outgoing.is_empty() {
            let life = outgoing[0].proposal.broker_epoch;
            let (call, rest) = outgoing.into_iter().partition(|one| one.proposal.broker_epoch == life);
            outgoing = rest;
            let answers = ask(&services, &call).await;
            if answers.contains(&ProposalAnswer::Retry) {
                tokio::time::sleep(backoff).await;
                backoff = (backoff * 2).min(BACKOFF_MAX);
            } else {
                backoff = BACKOFF_FIRST;
            }
            for (one, answer) in call.into_iter().zip(answers) {
                let Outgoing { partition, proposal } = one;
                services.workers().tell(&partition, move |owner: &mut Owner| {
                    owner.proposal_answered(&proposal, answer);
                });
            }
        }
    }
}

async fn ask(services: &Services, call: &[Outgoing]) -> Vec<ProposalAnswer> {
    let request = v1::AlterIsrRequest {
        broker_id: services.node_id().0,
        broker_epoch: call.first().map_or(-1, |one| one.proposal.broker_epoch.0),
        partitions: call.iter().map(partition_isr).collect(),
    };
    let answered = services.coordinators.call(PATIENCE, |channel| {
        let request = request.clone();
        async move { in_time(CALL_TIMEOUT, RegistryClient::new(channel).alter_isr(request)).await }
    });
    let response = match answered.await {
        Ok(response) => response,
        Err(error @ (CoordinatorError::Unavailable { .. } | CoordinatorError::Unknown { .. })) => {
            debug!(%error, "in-sync replicas cannot be changed now, asking again");
            return vec![ProposalAnswer::Retry; call.len()];
        }
        Err(error @ (CoordinatorError::Refused { .. } | CoordinatorError::Foreign { .. })) => {
            warn!(%error, "in-sync replicas cannot be changed, asking again");
            return vec![ProposalAnswer::Retry; call.len()];
        }
    };
    let top = kafka_code(response.error.as_ref());
    let mut results = response.partitions.iter();
    let answer = |one: &Outgoing| {
        let code = if top.is_error() {
            top
        } else {
            // An answer that leaves a partition out decides nothing about it.
            results.next().map_or(ErrorCode::NotController, |result| kafka_code(result.error.as_ref()))
        };
        told(services, one, code)
    };
    call.iter().map(answer).collect()
}

fn told(services: &Services, one: &Outgoing, code: ErrorCode) -> ProposalAnswer {
    let tp = one.partition.tp();
    let isr: Vec<i32> = one.proposal.isr.iter().map(|member| member.id.0).collect();
    match code {
        ErrorCode::None => {
            info!(%tp, ?isr, leader_epoch = %one.proposal.leader_epoch, "in-sync replicas change");
            count(services, one);
            ProposalAnswer::Decided
        }
        ErrorCode::NotController => ProposalAnswer::Retry,
        code => {
            // Our view is old; the newer one is on its way in the feed.
            info!(%tp, ?isr, %code, "in-sync replicas do not change as proposed");
            ProposalAnswer::Decided
        }
    }
}

/// Against the image: what is decided now reaches it later.
fn count(services: &Services, one: &Outgoing) {
    let image = services.image();
    let Some(before) = image.partition(one.partition.topic.as_str(), one.partition.index) else { return };
    let after = &one.proposal.isr;
    let joined = after.iter().filter(|member| !before.isr.contains(&member.id)).count();
    let left = before.isr.iter().filter(|id| after.iter().all(|member| member.id != **id)).count();
    services.metrics.isr_expands.inc_by(joined as u64);
    services.metrics.isr_shrinks.inc_by(left as u64);
}

fn partition_isr(one: &Outgoing) -> v1::PartitionIsr {
    let proposal = &one.proposal;
    let member = |member: &crate::machine::isr::IsrMember| v1::IsrMember {
        broker_id: member.id.0,
        broker_epoch: member.broker_epoch.0,
    };
    v1::PartitionIsr {
        topic_id: one.partition.topic_id.0.to_vec().into(),
        partition: one.partition.index.0,
        leader_epoch: proposal.leader_epoch.0,
        partition_epoch: proposal.partition_epoch.0,
        isr: proposal.isr.iter().map(member).collect(),
        recovered: proposal.recovered,
    }
}

/// Partitions of one call.
const PARTITIONS_MAX: usize = 1_000;
const PATIENCE: Duration = Duration::from_secs(5);
const CALL_TIMEOUT: Duration = Duration::from_secs(4);
const BACKOFF_FIRST: Duration = Duration::from_millis(20);
const BACKOFF_MAX: Duration = Duration::from_secs(1);
