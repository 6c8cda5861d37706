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
    patience: Duration,
    heartbeats: Batcher<v1::MemberHeartbeat, v1::KafkaError>,
    commits: Batcher<v1::GroupCommit, v1::GroupCommitResult>,
}

impl GroupCalls {
    pub fn new(coordinators: Arc<Coordinators>) -> GroupCalls {
        GroupCalls::with_patience(coordinators, PATIENCE)
    }

    /// `patience`: how long an election is waited out before the client is told to try again.
    fn with_patience(coordinators: Arc<Coordinators>, patience: Duration) -> GroupCalls {
        let heartbeats = {
            let coordinators = Arc::clone(&coordinators);
            Batcher::new(HEARTBEATS_MAX, BATCH_BYTES_MAX, heartbeat_bytes, move |members| {
                let coordinators = Arc::clone(&coordinators);
                Box::pin(send_heartbeats(coordinators, patience, v1::HeartbeatRequest { members }))
            })
        };
        let commits = {
            let coordinators = Arc::clone(&coordinators);
            Batcher::new(COMMITS_MAX, BATCH_BYTES_MAX, commit_bytes, move |groups| {
                let coordinators = Arc::clone(&coordinators);
                Box::pin(send_commits(coordinators, patience, v1::CommitRequest { groups }))
            })
        };
        GroupCalls { coordinators, patience, heartbeats, commits }
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
    pub async fn explain(&self, request: v1::ExplainRequest) -> Result<v1::ExplainResponse, ErrorCode> {
        self.short(request, |mut client, request| async move { client.explain(request).await }).await
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
        let call = call(&self.coordinators, self.patience, request, Some(SHORT_CALL_MAX), send);
        call.await.map_err(|error| to_client(&error))
    }

    async fn open<Q, A, F, Fut>(&self, request: Q, send: F) -> Result<A, ErrorCode>
    where
        Q: Clone,
        F: Fn(GroupClient<Channel>, Request<Q>) -> Fut,
        Fut: Future<Output = Result<Response<A>, Status>>,
    {
        let call = call(&self.coordinators, self.patience, request, None, send);
        call.await.map_err(|error| to_client(&error))
    }
}

async fn send_heartbeats(
    coordinators: Arc<Coordinators>,
    patience: Duration,
    request: v1::HeartbeatRequest,
) -> Result<Vec<v1::KafkaError>, CoordinatorError> {
    let send = |mut client: GroupClient<Channel>, request| async move { client.heartbeat(request).await };
    Ok(call(&coordinators, patience, request, Some(SHORT_CALL_MAX), send).await?.errors)
}

async fn send_commits(
    coordinators: Arc<Coordinators>,
    patience: Duration,
    request: v1::CommitRequest,
) -> Result<Vec<v1::GroupCommitResult>, CoordinatorError> {
    let send = |mut client: GroupClient<Channel>, request| async move { client.commit(request).await };
    Ok(call(&coordinators, patience, request, Some(SHORT_CALL_MAX), send).await?.groups)
}

/// One call to whoever leads. `deadline` is for each attempt; `None` for calls that wait for other members.
async fn call<Q, A, F, Fut>(
    coordinators: &Coordinators,
    patience: Duration,
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
    coordinators.call(patience, attempt).await
}

fn to_client(error: &CoordinatorError) -> ErrorCode {
    match error {
        CoordinatorError::Refused { .. } | CoordinatorError::Foreign { .. } => warn!(%error, "group call failed"),
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

/// Longer than an election, shorter than a session.
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::net::TcpListener;
    use tokio::sync::{Notify, Semaphore};
    use tokio_stream::wrappers::TcpListenerStream;
    use tonic::transport::Server;
    use v1::group_server::{Group, GroupServer};

    use super::*;

    /// A coordinator on loopback that says what the test tells it to.
    #[derive(Default)]
    struct Fake {
        /// Given out one for each heartbeat call.
        permits: Permits,
        heartbeats: Mutex<Vec<usize>>,
        joined: Notify,
        withdrawn: Arc<Notify>,
        /// `thalweg-leader` of every answer to List, if it does not lead.
        leader: Mutex<Option<String>>,
    }

    struct Permits(Semaphore);

    impl Default for Permits {
        fn default() -> Permits {
            Permits(Semaphore::new(0))
        }
    }

    struct Withdrawn(Arc<Notify>);

    impl Drop for Withdrawn {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }

    type Answer<T> = Result<Response<T>, Status>;

    fn refused<T>() -> Answer<T> {
        Err(Status::unimplemented("not in this test"))
    }

    struct Served(Arc<Fake>);

    #[tonic::async_trait]
    impl Group for Served {
        async fn join(&self, _: Request<v1::JoinRequest>) -> Answer<v1::JoinResponse> {
            let _withdrawn = Withdrawn(Arc::clone(&self.0.withdrawn));
            self.0.joined.notify_one();
            std::future::pending().await
        }

        async fn heartbeat(&self, request: Request<v1::HeartbeatRequest>) -> Answer<v1::HeartbeatResponse> {
            let members = request.into_inner().members;
            self.0.heartbeats.lock().unwrap().push(members.len());
            self.0.permits.0.acquire().await.unwrap().forget();
            let code =
                |member: &v1::MemberHeartbeat| v1::KafkaError { code: member.generation_id, ..Default::default() };
            Ok(Response::new(v1::HeartbeatResponse { errors: members.iter().map(code).collect() }))
        }

        async fn list(&self, _: Request<v1::ListRequest>) -> Answer<v1::ListResponse> {
            let leader = self.0.leader.lock().unwrap().clone();
            let Some(leader) = leader else { return Ok(Response::new(v1::ListResponse::default())) };
            let mut status = Status::unavailable("not the leader");
            status.metadata_mut().insert("thalweg-leader", leader.parse().unwrap());
            Err(status)
        }

        async fn sync(&self, _: Request<v1::SyncRequest>) -> Answer<v1::SyncResponse> {
            refused()
        }
        async fn leave(&self, _: Request<v1::LeaveRequest>) -> Answer<v1::LeaveResponse> {
            Err(Status::unavailable("gone in the middle of it"))
        }
        async fn commit(&self, _: Request<v1::CommitRequest>) -> Answer<v1::CommitResponse> {
            // One result too few.
            Ok(Response::new(v1::CommitResponse::default()))
        }
        async fn fetch_offsets(&self, _: Request<v1::FetchOffsetsRequest>) -> Answer<v1::FetchOffsetsResponse> {
            refused()
        }
        async fn describe(&self, _: Request<v1::DescribeRequest>) -> Answer<v1::DescribeResponse> {
            refused()
        }
        async fn explain(&self, _: Request<v1::ExplainRequest>) -> Answer<v1::ExplainResponse> {
            refused()
        }
        async fn delete(&self, _: Request<v1::DeleteRequest>) -> Answer<v1::DeleteResponse> {
            refused()
        }
        async fn delete_offsets(&self, _: Request<v1::DeleteOffsetsRequest>) -> Answer<v1::DeleteOffsetsResponse> {
            refused()
        }
    }

    async fn started() -> (Arc<Fake>, String) {
        let fake = Arc::new(Fake::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = Server::builder().add_service(GroupServer::new(Served(Arc::clone(&fake))));
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        (fake, address)
    }

    fn calls(seeds: &[&str]) -> GroupCalls {
        GroupCalls::new(Arc::new(Coordinators::new(seeds.iter().map(|seed| (*seed).to_owned()).collect())))
    }

    fn heartbeat(generation_id: i32) -> v1::MemberHeartbeat {
        v1::MemberHeartbeat { generation_id, ..Default::default() }
    }

    /// Goal: members' heartbeats share calls, and each member gets its own answer. Method: hold the first call, let 50 more
    /// come; the fake answers each with a code of its own.
    #[tokio::test]
    async fn heartbeats_of_many_members_share_calls_and_keep_their_answers() {
        let (fake, address) = started().await;
        let calls = calls(&[&address]);
        let members = (0..51).map(|code| calls.heartbeat(heartbeat(code)));
        let all = futures_util::future::join_all(members);
        tokio::pin!(all);
        assert!(futures_util::poll!(all.as_mut()).is_pending());
        fake.permits.0.add_permits(51);
        let codes: Vec<i32> = all.await.into_iter().map(|answer| answer.unwrap().code).collect();
        assert_eq!(codes, (0..51).collect::<Vec<_>>());
        let batches = fake.heartbeats.lock().unwrap().clone();
        assert_eq!(batches.iter().sum::<usize>(), 51);
        assert!(batches.len() <= 2, "{batches:?}");
    }

    #[tokio::test]
    async fn a_join_that_is_dropped_is_cancelled_at_the_coordinator() {
        let (fake, address) = started().await;
        let calls = calls(&[&address]);
        {
            let join = calls.join(v1::JoinRequest::default());
            tokio::pin!(join);
            tokio::select! {
                _ = &mut join => panic!("nobody answered it"),
                () = fake.joined.notified() => {}
            }
        }
        fake.withdrawn.notified().await;
    }

    #[tokio::test]
    async fn a_redirection_is_followed() {
        let (follower, follower_address) = started().await;
        let (_leader, leader_address) = started().await;
        *follower.leader.lock().unwrap() = Some(format!("2@{leader_address}"));
        assert!(calls(&[&follower_address]).list(v1::ListRequest::default()).await.is_ok());
    }

    #[tokio::test]
    async fn a_lost_answer_makes_the_client_ask_again_and_one_that_does_not_fit_is_an_error() {
        let (_fake, address) = started().await;
        let calls = calls(&[&address]);
        let lost = calls.leave(v1::LeaveRequest::default()).await.unwrap_err();
        assert_eq!(lost, ErrorCode::CoordinatorNotAvailable);
        let short = calls.commit(v1::GroupCommit::default()).await.unwrap_err();
        assert_eq!(short, ErrorCode::UnknownServerError);
        let unknown = calls.sync(v1::SyncRequest::default()).await.unwrap_err();
        assert_eq!(unknown, ErrorCode::UnknownServerError);
    }

    /// Goal: nobody is told of a success when no coordinator is there. Method: a port that nothing listens on any more.
    #[tokio::test]
    async fn without_a_coordinator_everything_is_to_be_tried_again() {
        let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
        let calls = GroupCalls::with_patience(Arc::new(Coordinators::new(vec![address])), Duration::ZERO);
        let code = Err(ErrorCode::CoordinatorNotAvailable);
        assert_eq!(calls.heartbeat(heartbeat(0)).await, code);
        assert_eq!(calls.list(v1::ListRequest::default()).await.map(|_| v1::KafkaError::default()), code);
    }
}
