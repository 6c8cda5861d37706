//! The coordinators' group service, as handlers use it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use thalweg_model::ErrorCode;
use thalweg_proto::v1;
use thalweg_proto::v1::group_client::GroupClient;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use tracing::{debug, warn};

use super::batcher::Batcher;
use super::coordinators::{CoordinatorError, Coordinators};

/// Calls of all members that this broker fronts. One per broker.
///
/// Every method answers with the coordinator's own answer, or with the code to give to the client if there is none:
/// one that makes it try again, unless the coordinator does not understand us. Dropping the future of any call but
/// `heartbeat` and `commit` cancels it.
pub struct GroupCalls {
    coordinators: Arc<Coordinators>,
    heartbeats: Batcher<v1::MemberHeartbeat, v1::KafkaError>,
    commits: Batcher<v1::GroupCommit, v1::GroupCommitResult>,
}

impl GroupCalls {
    pub fn new(coordinators: Arc<Coordinators>) -> GroupCalls {
        let heartbeats = {
            let coordinators = Arc::clone(&coordinators);
            Batcher::new(HEARTBEATS_MAX, BATCH_BYTES_MAX, heartbeat_bytes, move |members| {
                let coordinators = Arc::clone(&coordinators);
                Box::pin(send_heartbeats(coordinators, v1::HeartbeatRequest { members }))
            })
        };
        let commits = {
            let coordinators = Arc::clone(&coordinators);
            Batcher::new(COMMITS_MAX, BATCH_BYTES_MAX, commit_bytes, move |groups| {
                let coordinators = Arc::clone(&coordinators);
                Box::pin(send_commits(coordinators, v1::CommitRequest { groups }))
            })
        };
        GroupCalls { coordinators, heartbeats, commits }
    }

    /// Stays open until the group's barrier closes; the coordinator ends it at the rebalance timeout at the latest.
    ///
    /// # Errors
    /// See [`GroupCalls`].
    pub async fn join(&self, request: v1::JoinRequest) -> Result<v1::JoinResponse, ErrorCode> {
        self.open(request, |mut client, request| async move { client.join(request).await }).await
    }

    /// Stays open until the group's leader has assigned.
    ///
    /// # Errors
    /// See [`GroupCalls`].
    pub async fn sync(&self, request: v1::SyncRequest) -> Result<v1::SyncResponse, ErrorCode> {
        self.open(request, |mut client, request| async move { client.sync(request).await }).await
    }

    /// # Errors
    /// See [`GroupCalls`].
    pub async fn heartbeat(&self, member: v1::MemberHeartbeat) -> Result<v1::KafkaError, ErrorCode> {
        self.heartbeats.submit(member).await.map_err(|error| to_client(&error))
    }

    /// # Errors
    /// See [`GroupCalls`]; whether the offsets are committed is then unknown.
    pub async fn commit(&self, commit: v1::GroupCommit) -> Result<v1::GroupCommitResult, ErrorCode> {
        self.commits.submit(commit).await.map_err(|error| to_client(&error))
    }

    /// # Errors
    /// See [`GroupCalls`].
    pub async fn leave(&self, request: v1::LeaveRequest) -> Result<v1::LeaveResponse, ErrorCode> {
        self.short(request, |mut client, request| async move { client.leave(request).await }).await
    }

    /// # Errors
    /// See [`GroupCalls`].
    pub async fn fetch_offsets(&self, request: v1::FetchOffsetsRequest) -> Result<v1::FetchOffsetsResponse, ErrorCode> {
        self.short(request, |mut client, request| async move { client.fetch_offsets(request).await }).await
    }

    /// # Errors
    /// See [`GroupCalls`].
    pub async fn describe(&self, request: v1::DescribeRequest) -> Result<v1::DescribeResponse, ErrorCode> {
        self.short(request, |mut client, request| async move { client.describe(request).await }).await
    }

    /// # Errors
    /// See [`GroupCalls`].
    pub async fn list(&self, request: v1::ListRequest) -> Result<v1::ListResponse, ErrorCode> {
        self.short(request, |mut client, request| async move { client.list(request).await }).await
    }

    /// # Errors
    /// See [`GroupCalls`].
    pub async fn delete(&self, request: v1::DeleteRequest) -> Result<v1::DeleteResponse, ErrorCode> {
        self.short(request, |mut client, request| async move { client.delete(request).await }).await
    }

    /// # Errors
    /// See [`GroupCalls`].
    pub async fn delete_offsets(
        &self,
        request: v1::DeleteOffsetsRequest,
    ) -> Result<v1::DeleteOffsetsResponse, ErrorCode> {
        self.short(request, |mut client, request| async move { client.delete_offsets(request).await }).await
    }

    async fn short<Q, A, F, Fut>(&self, request: Q, send: F) -> Result<A, ErrorCode>
    where
        Q: Clone,
        F: Fn(GroupClient<Channel>, Request<Q>) -> Fut,
        Fut: Future<Output = Result<Response<A>, Status>>,
    {
        let call = call(&self.coordinators, request, Some(SHORT_CALL_MAX), send);
        call.await.map_err(|error| to_client(&error))
    }

    async fn open<Q, A, F, Fut>(&self, request: Q, send: F) -> Result<A, ErrorCode>
    where
        Q: Clone,
        F: Fn(GroupClient<Channel>, Request<Q>) -> Fut,
        Fut: Future<Output = Result<Response<A>, Status>>,
    {
        let call = call(&self.coordinators, request, None, send);
        call.await.map_err(|error| to_client(&error))
    }
}

async fn send_heartbeats(
    coordinators: Arc<Coordinators>,
    request: v1::HeartbeatRequest,
) -> Result<Vec<v1::KafkaError>, CoordinatorError> {
    let send = |mut client: GroupClient<Channel>, request| async move { client.heartbeat(request).await };
    Ok(call(&coordinators, request, Some(SHORT_CALL_MAX), send).await?.errors)
}

async fn send_commits(
    coordinators: Arc<Coordinators>,
    request: v1::CommitRequest,
) -> Result<Vec<v1::GroupCommitResult>, CoordinatorError> {
    let send = |mut client: GroupClient<Channel>, request| async move { client.commit(request).await };
    Ok(call(&coordinators, request, Some(SHORT_CALL_MAX), send).await?.groups)
}

/// One call to whoever leads. `deadline` is for each attempt; `None` for calls that wait for other members.
async fn call<Q, A, F, Fut>(
    coordinators: &Coordinators,
    request: Q,
    deadline: Option<Duration>,
    send: F,
) -> Result<A, CoordinatorError>
where
    Q: Clone,
    F: Fn(GroupClient<Channel>, Request<Q>) -> Fut,
    Fut: Future<Output = Result<Response<A>, Status>>,
{
    let attempt = |channel| {
        let mut request = Request::new(request.clone());
        if let Some(deadline) = deadline {
            request.set_timeout(deadline);
        }
        // Every offset of a large group comes in one answer.
        send(GroupClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX), request)
    };
    coordinators.call(PATIENCE, attempt).await
}

fn to_client(error: &CoordinatorError) -> ErrorCode {
    match error {
        CoordinatorError::Refused { .. } => warn!(%error, "group call failed"),
        // Clients try again; whoever watches the coordinators says it once.
        CoordinatorError::Unavailable { .. } | CoordinatorError::Unknown { .. } => debug!(%error, "group call failed"),
    }
    error.group_code()
}

fn heartbeat_bytes(member: &v1::MemberHeartbeat) -> usize {
    let instance = member.instance_id.as_ref().map_or(0, String::len);
    FIXED_BYTES + member.group_id.len() + member.member_id.len() + instance
}

fn commit_bytes(commit: &v1::GroupCommit) -> usize {
    let instance = commit.instance_id.as_ref().map_or(0, String::len);
    let offset = |offset: &v1::CommitOffset| FIXED_BYTES + offset.topic.len() + offset.metadata.len();
    let offsets: usize = commit.offsets.iter().map(offset).sum();
    FIXED_BYTES + commit.group_id.len() + commit.member_id.len() + instance + offsets
}

/// How long an election is waited out before the client is told to try again.
const PATIENCE: Duration = Duration::from_secs(5);
/// A call that nobody has to wait for others in.
const SHORT_CALL_MAX: Duration = Duration::from_secs(10);
const HEARTBEATS_MAX: usize = 10_000;
const COMMITS_MAX: usize = 1_000;
/// Well below the 4 MiB that gRPC servers accept by default.
const BATCH_BYTES_MAX: usize = 2 << 20;
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// About what numbers and tags take.
const FIXED_BYTES: usize = 32;
