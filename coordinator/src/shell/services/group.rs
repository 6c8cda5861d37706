//! What brokers call for members of groups.

use thalweg_proto::v1::group_server::Group;
use thalweg_proto::v1::{
    CommitRequest, CommitResponse, DeleteOffsetsRequest, DeleteOffsetsResponse, DeleteRequest, DeleteResponse,
    DescribeRequest, DescribeResponse, ExplainRequest, ExplainResponse, FetchGroupOffsets, FetchOffsetsRequest,
    FetchOffsetsResponse, FetchedGroup, FetchedOffset, HeartbeatRequest, HeartbeatResponse, JoinRequest, JoinResponse,
    LeaveRequest, LeaveResponse, ListRequest, ListResponse, SyncRequest, SyncResponse,
};
use tonic::{Request, Response, Status};

use super::{Services, mismatch};
use crate::registry::ok;
use crate::registry::state::{CommittedOffset, State};
use crate::session::{Call, Reply};

#[tonic::async_trait]
impl Group for Services {
    async fn join(&self, request: Request<JoinRequest>) -> Result<Response<JoinResponse>, Status> {
        let fresh_id = uuid::Uuid::new_v4().to_string();
        match self.ask(Call::Join { request: request.into_inner(), fresh_id }).await? {
            Reply::Join(answer) => Ok(Response::new(answer)),
            _ => Err(mismatch("Join")),
        }
    }

    async fn sync(&self, request: Request<SyncRequest>) -> Result<Response<SyncResponse>, Status> {
        match self.ask(Call::Sync(request.into_inner())).await? {
            Reply::Sync(answer) => Ok(Response::new(answer)),
            _ => Err(mismatch("Sync")),
        }
    }

    async fn heartbeat(&self, request: Request<HeartbeatRequest>) -> Result<Response<HeartbeatResponse>, Status> {
        match self.ask(Call::Heartbeat(request.into_inner())).await? {
            Reply::Heartbeat(answer) => Ok(Response::new(answer)),
            _ => Err(mismatch("Heartbeat")),
        }
    }

    async fn leave(&self, request: Request<LeaveRequest>) -> Result<Response<LeaveResponse>, Status> {
        match self.ask(Call::Leave(request.into_inner())).await? {
            Reply::Leave(answer) => Ok(Response::new(answer)),
            _ => Err(mismatch("Leave")),
        }
    }

    async fn commit(&self, request: Request<CommitRequest>) -> Result<Response<CommitResponse>, Status> {
        match self.ask(Call::Commit(request.into_inner())).await? {
            Reply::Commit(answer) => Ok(Response::new(answer)),
            _ => Err(mismatch("Commit")),
        }
    }

    async fn fetch_offsets(
        &self,
        request: Request<FetchOffsetsRequest>,
    ) -> Result<Response<FetchOffsetsResponse>, Status> {
        // Else a consumer could be sent back behind what it has committed (REPLICATION Q2, FAILURES 38).
        self.barrier().await?;
        let machine = self.shared.machine();
        let groups = request.get_ref().groups.iter();
        let groups = groups.map(|wanted| fetch(machine.state(), wanted)).collect();
        Ok(Response::new(FetchOffsetsResponse { groups }))
    }

    async fn describe(&self, request: Request<DescribeRequest>) -> Result<Response<DescribeResponse>, Status> {
        match self.ask(Call::Describe(request.into_inner())).await? {
            Reply::Describe(answer) => Ok(Response::new(answer)),
            _ => Err(mismatch("Describe")),
        }
    }

    async fn list(&self, request: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
        match self.ask(Call::List(request.into_inner())).await? {
            Reply::List(answer) => Ok(Response::new(answer)),
            _ => Err(mismatch("List")),
        }
    }

    async fn explain(&self, request: Request<ExplainRequest>) -> Result<Response<ExplainResponse>, Status> {
        match self.ask(Call::Explain(request.into_inner())).await? {
            Reply::Explain(answer) => Ok(Response::new(answer)),
            _ => Err(mismatch("Explain")),
        }
    }

    async fn delete(&self, request: Request<DeleteRequest>) -> Result<Response<DeleteResponse>, Status> {
        match self.ask(Call::Delete(request.into_inner())).await? {
            Reply::Delete(answer) => Ok(Response::new(answer)),
            _ => Err(mismatch("Delete")),
        }
    }

    async fn delete_offsets(
        &self,
        request: Request<DeleteOffsetsRequest>,
    ) -> Result<Response<DeleteOffsetsResponse>, Status> {
        match self.ask(Call::DeleteOffsets(request.into_inner())).await? {
            Reply::DeleteOffsets(answer) => Ok(Response::new(answer)),
            _ => Err(mismatch("DeleteOffsets")),
        }
    }
}

fn fetch(state: &State, wanted: &FetchGroupOffsets) -> FetchedGroup {
    let offsets = if wanted.all {
        let topics = state.offsets_of(&wanted.group_id).into_iter().flatten();
        topics
            .flat_map(|(topic, partitions)| {
                partitions.iter().map(|(partition, committed)| fetched(topic, *partition, Some(committed)))
            })
            .collect()
    } else {
        let topics = wanted.topics.iter();
        topics
            .flat_map(|topic| {
                topic.partitions.iter().map(|partition| {
                    fetched(&topic.topic, *partition, state.offset(&wanted.group_id, &topic.topic, *partition))
                })
            })
            .collect()
    };
    FetchedGroup { group_id: wanted.group_id.clone(), error: Some(ok()), offsets }
}

fn fetched(topic: &str, partition: i32, committed: Option<&CommittedOffset>) -> FetchedOffset {
    FetchedOffset {
        topic: topic.to_owned(),
        partition,
        offset: committed.map_or(-1, |committed| committed.offset),
        leader_epoch: committed.map_or(-1, |committed| committed.leader_epoch),
        metadata: committed.map(|committed| committed.metadata.clone()).unwrap_or_default(),
        error: Some(ok()),
    }
}
