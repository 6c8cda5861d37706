//! What brokers call: registration, heartbeats, the feed, producer ids.

use std::pin::Pin;

use futures_util::stream::{self, Stream, StreamExt};
use thalweg_model::NodeId;
use thalweg_proto::v1::command::Kind;
use thalweg_proto::v1::registry_server::Registry;
use thalweg_proto::v1::{
    AllocateProducerIds, AllocateProducerIdsRequest, AllocateProducerIdsResponse, AlterIsrRequest, AlterIsrResponse,
    BrokerHeartbeatRequest, BrokerHeartbeatResponse, FeedItem, FeedRequest, RegisterBrokerRequest,
    RegisterBrokerResponse, ReportUnreachableRequest, ReportUnreachableResponse,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::{Services, mismatch, refusal};
use crate::registry::Outcome;
use crate::session::{Call, Life, Reply};
use crate::shell::connections::Connection;

#[tonic::async_trait]
impl Registry for Services {
    type FeedStream = Pin<Box<dyn Stream<Item = Result<FeedItem, Status>> + Send>>;

    async fn register_broker(
        &self,
        request: Request<RegisterBrokerRequest>,
    ) -> Result<Response<RegisterBrokerResponse>, Status> {
        let connection = request.extensions().get::<Connection>().cloned();
        match self.ask(Call::RegisterBroker(request.into_inner())).await? {
            Reply::RegisterBroker(answer) => {
                let life = Life { id: NodeId(answer.broker_id), epoch: answer.broker_epoch };
                self.connections.heard(life, connection.as_ref().filter(|_| answer.broker_id >= 0));
                Ok(Response::new(answer))
            }
            _ => Err(mismatch("RegisterBroker")),
        }
    }

    async fn broker_heartbeat(
        &self,
        request: Request<BrokerHeartbeatRequest>,
    ) -> Result<Response<BrokerHeartbeatResponse>, Status> {
        let connection = request.extensions().get::<Connection>().cloned();
        let life = Life { id: NodeId(request.get_ref().broker_id), epoch: request.get_ref().broker_epoch };
        match self.ask(Call::BrokerHeartbeat(request.into_inner())).await? {
            Reply::BrokerHeartbeat(answer) => {
                let is_known = answer.error.as_ref().is_none_or(|error| error.code == 0);
                self.connections.heard(life, connection.as_ref().filter(|_| is_known));
                Ok(Response::new(answer))
            }
            _ => Err(mismatch("BrokerHeartbeat")),
        }
    }

    async fn feed(&self, request: Request<FeedRequest>) -> Result<Response<Self::FeedStream>, Status> {
        self.barrier().await?;
        let FeedRequest { from_index, cluster_id, .. } = request.into_inner();
        let subscription = {
            let machine = self.shared.machine();
            let applied = machine.progress().next_index.saturating_sub(1);
            check_past(machine.state().cluster_id().unwrap_or_default(), applied, &cluster_id, from_index)?;
            self.shared.feed.subscribe(machine.state(), applied, from_index)
        };
        let items = stream::iter(subscription.start).chain(ReceiverStream::new(subscription.live));
        Ok(Response::new(Box::pin(items.map(Ok))))
    }

    async fn allocate_producer_ids(
        &self,
        request: Request<AllocateProducerIdsRequest>,
    ) -> Result<Response<AllocateProducerIdsResponse>, Status> {
        let AllocateProducerIdsRequest { broker_id, broker_epoch } = request.into_inner();
        let command = AllocateProducerIds { broker_id, broker_epoch, count: self.settings.producer_id_block };
        let answer = match self.propose(Kind::AllocateProducerIds(command)).await?.outcome {
            Outcome::ProducerIds(answer) => answer,
            other => AllocateProducerIdsResponse { error: Some(refusal(other)), first: -1, count: 0 },
        };
        Ok(Response::new(answer))
    }

    async fn report_unreachable(
        &self,
        request: Request<ReportUnreachableRequest>,
    ) -> Result<Response<ReportUnreachableResponse>, Status> {
        match self.ask(Call::ReportUnreachable(request.into_inner())).await? {
            Reply::ReportUnreachable(answer) => Ok(Response::new(answer)),
            _ => Err(mismatch("ReportUnreachable")),
        }
    }

    async fn alter_isr(&self, request: Request<AlterIsrRequest>) -> Result<Response<AlterIsrResponse>, Status> {
        let settled = self.propose(Kind::AlterIsr(request.into_inner())).await?;
        let answer = match settled.outcome {
            Outcome::AlteredIsr(answer) => AlterIsrResponse { index: settled.feed_index, ..answer },
            other => AlterIsrResponse { error: Some(refusal(other)), ..AlterIsrResponse::default() },
        };
        Ok(Response::new(answer))
    }
}

/// Whether what a broker knows can be of these registries, of which all that was committed is applied. A broker that took an
/// image of others, or of an older copy, would delete what is not in it.
fn check_past(cluster: &str, applied: u64, brokers_cluster: &str, from_index: u64) -> Result<(), Status> {
    if !brokers_cluster.is_empty() && brokers_cluster != cluster {
        return Err(Status::failed_precondition(format!(
            "the broker belongs to cluster {brokers_cluster}, the coordinators are those of cluster {cluster}; bring the \
             coordinators' data back, or point the broker at its own cluster"
        )));
    }
    if from_index > applied {
        return Err(Status::failed_precondition(format!(
            "the broker knows of entry {from_index} of the registries, which end at {applied}: the coordinators' data was \
             restored from an older copy; bring the newer one back"
        )));
    }
    Ok(())
}
