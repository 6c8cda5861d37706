//! How a coordinator calls the others: gRPC, with connections that are kept.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::future::Future;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::RPCOption;
use openraft::network::v2::RaftNetworkV2;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse};
use openraft::raft::{TransferLeaderRequest, TransferLeaderResponse};
use openraft::type_config::alias::SnapshotOf;
use openraft::{OptionalSend, RaftNetworkFactory};
use thalweg_proto::v1;
use thalweg_proto::v1::raft_client::RaftClient;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tracing::{info, warn};

use super::codec::{log_id_to, vote_to};
use super::identity::Identity;
use super::raft_codec as raft;
use super::types::{CoordinatorNode, TypeConfig, Vote};
use crate::store::SnapshotFile;

/// Connections to the other coordinators. Cheap to clone; clones share them.
#[derive(Clone)]
pub struct Network {
    me: Arc<Identity>,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    channels: BTreeMap<(String, Lane), Channel>,
    /// What each node refused last, so that it is said once.
    refusals: BTreeMap<u64, String>,
    /// Nodes whose last call failed.
    unreachable: BTreeSet<u64>,
}

/// Heartbeats must not wait behind entries, nor entries behind a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lane {
    Log,
    Heartbeat,
    Snapshot,
}

/// One lane to one node.
pub struct Peer {
    network: Network,
    id: u64,
    node: CoordinatorNode,
    lane: Lane,
}

impl Network {
    pub fn new(me: Arc<Identity>) -> Network {
        Network { me, shared: Arc::default() }
    }

    /// Who answers at an address.
    ///
    /// # Errors
    /// Nobody does, in time.
    pub async fn identify(&self, address: &str) -> Result<v1::IdentifyResponse, Status> {
        let mut client = RaftClient::new(self.channel(address, Lane::Log)?);
        Ok(client.identify(timed(v1::IdentifyRequest {}, IDENTIFY_TIMEOUT)).await?.into_inner())
    }

    /// A connection for other calls than Raft's.
    ///
    /// # Errors
    /// The address is none.
    pub fn connection(&self, address: &str) -> Result<Channel, Status> {
        self.channel(address, Lane::Log)
    }

    fn channel(&self, address: &str, lane: Lane) -> Result<Channel, Status> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (address.to_owned(), lane);
        if let Some(channel) = shared.channels.get(&key) {
            return Ok(channel.clone());
        }
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|cause| Status::invalid_argument(format!("'{address}' is no host:port: {cause}")))?;
        let channel = endpoint
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .keep_alive_while_idle(true)
            .connect_lazy();
        shared.channels.insert(key, channel.clone());
        Ok(channel)
    }

    /// Whether the last call to a node came to nothing.
    pub fn is_unreachable(&self, id: u64) -> bool {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).unreachable.contains(&id)
    }

    fn reached(&self, id: u64) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.unreachable.remove(&id) {
            info!(coordinator = id, "another coordinator answers again");
        }
        shared.refusals.remove(&id);
    }

    /// A failure is said once, and so is a refusal; one that ends this node ends it.
    fn note(&self, id: u64, status: &Status) {
        if status.metadata().contains_key(SUPERSEDED) {
            self.me.fail(status.message().to_owned());
        }
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if status.code() == Code::FailedPrecondition
            && shared.refusals.insert(id, status.message().to_owned()).as_deref() != Some(status.message())
        {
            warn!(coordinator = id, reason = status.message(), "another coordinator refuses to work with this one");
        } else if status.code() != Code::FailedPrecondition && shared.unreachable.insert(id) {
            warn!(coordinator = id, reason = told(status), "another coordinator does not answer");
        }
    }

    fn peer(&self, id: u64, node: &CoordinatorNode, lane: Lane) -> Peer {
        Peer { network: self.clone(), id, node: node.clone(), lane }
    }
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, node: &CoordinatorNode) -> Peer {
        self.peer(target, node, Lane::Log)
    }

    async fn new_heartbeat_client(&mut self, target: u64, node: &CoordinatorNode) -> Peer {
        self.peer(target, node, Lane::Heartbeat)
    }

    async fn new_snapshot_client(&mut self, target: u64, node: &CoordinatorNode) -> Peer {
        self.peer(target, node, Lane::Snapshot)
    }
}

impl Peer {
    fn client(&self) -> Result<RaftClient<Channel>, RPCError<TypeConfig>> {
        let channel = self.network.channel(&self.node.address, self.lane).map_err(|status| self.failed(&status))?;
        Ok(RaftClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX))
    }

    fn parties(&self) -> v1::RaftParties {
        self.network.me.parties(self.id, &self.node)
    }

    fn failed(&self, status: &Status) -> RPCError<TypeConfig> {
        self.network.note(self.id, status);
        let reason = format!("coordinator {} at {}: {}", self.id, self.node.address, told(status));
        match status.code() {
            // It was busy or slow; asking again soon makes sense.
            Code::DeadlineExceeded | Code::Cancelled => RPCError::Network(NetworkError::from_string(reason)),
            _ => RPCError::Unreachable(Unreachable::from_string(reason)),
        }
    }

    async fn ask_for_vote(
        &mut self,
        request: &VoteRequest<TypeConfig>,
        pre_vote: bool,
        option: &RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        let request = raft::vote_request_to(self.parties(), request, pre_vote);
        let answer = self.client()?.vote(timed(request, option.hard_ttl())).await;
        let answer = answer.map_err(|status| self.failed(&status))?.into_inner();
        self.network.reached(self.id);
        raft::voted_from(&answer).map_err(|cause| nonsense(&cause))
    }
}

impl RaftNetworkV2<TypeConfig> for Peer {
    type SnapshotData = SnapshotFile;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
        let message = raft::append_to(self.parties(), &request);
        let answer = self.client()?.append(timed(message, option.hard_ttl())).await;
        let answer = answer.map_err(|status| self.failed(&status))?.into_inner();
        self.network.reached(self.id);
        raft::appended_from(&answer, request.prev_log_id.as_ref()).map_err(|cause| nonsense(&cause))
    }

    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.ask_for_vote(&request, false, &option).await
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.ask_for_vote(&request, true, &option).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: SnapshotOf<TypeConfig, SnapshotFile>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let (meta, mut file) = (snapshot.meta, snapshot.snapshot);
        let length = length(&mut file).map_err(|cause| StreamingError::Network(NetworkError::new(&cause)))?;
        let start = raft::snapshot_start(self.parties(), &vote, &meta, length);
        let (parts, queue) = mpsc::channel(PARTS_QUEUED);
        let reading = tokio::task::spawn_blocking(move || read_parts(start, file, &parts));
        let mut client = self.client()?;
        // It takes as long as it takes: a dead connection is noticed, and it ends when the replication to this node does.
        let sending = client.install_snapshot(ReceiverStream::new(queue));
        let answer = tokio::select! {
            biased;
            closed = cancel => return Err(StreamingError::Closed(closed)),
            answer = sending => answer,
        };
        let read = reading.await.map_err(io::Error::other).flatten();
        read.map_err(|cause| StreamingError::Network(NetworkError::new(&cause)))?;
        let answer = answer.map_err(|status| self.failed(&status))?.into_inner();
        let vote = raft::required_vote(answer.vote.as_ref()).map_err(|cause| nonsense(&cause))?;
        Ok(SnapshotResponse::new(vote))
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RPCError<TypeConfig>> {
        let message = v1::RaftTransferRequest {
            parties: Some(self.parties()),
            from_leader: Some(vote_to(request.from_leader())),
            to_node_id: *request.to_node_id(),
            last_log_id: request.last_log_id().map(log_id_to),
        };
        let answer = self.client()?.transfer_leader(timed(message, option.hard_ttl())).await;
        let accepted = answer.map_err(|status| self.failed(&status))?.into_inner().accepted;
        if accepted {
            return Ok(Ok(()));
        }
        Err(RPCError::Network(NetworkError::from_string("the node was not ready to take the lead over")))
    }
}

/// Reads the snapshot and hands its parts over, one after the other. Ends early without an error when nobody takes them.
fn read_parts(
    start: v1::RaftSnapshotStart,
    mut file: SnapshotFile,
    parts: &mpsc::Sender<v1::RaftSnapshotPart>,
) -> io::Result<()> {
    if parts.blocking_send(v1::RaftSnapshotPart { start: Some(start), bytes: None }).is_err() {
        return Ok(());
    }
    let mut position = 0;
    loop {
        let mut bytes = Vec::with_capacity(PART_BYTES);
        file.by_ref().take(PART_BYTES as u64).read_to_end(&mut bytes)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let (crc, length) = (crc32c::crc32c(&bytes), bytes.len() as u64);
        let part = v1::RaftSnapshotBytes { position, bytes: bytes.into(), crc };
        if parts.blocking_send(v1::RaftSnapshotPart { start: None, bytes: Some(part) }).is_err() {
            return Ok(());
        }
        position += length;
    }
}

fn length(file: &mut SnapshotFile) -> io::Result<u64> {
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(0))?;
    Ok(length)
}

fn timed<T>(message: T, limit: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(limit);
    request
}

/// The status, and what lies under it: the bare status of a connection that was refused does not say so.
fn told(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut cause = status.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

fn nonsense(cause: &io::Error) -> RPCError<TypeConfig> {
    RPCError::Unreachable(Unreachable::new(cause))
}

/// Metadata of a refusal that ends the caller.
pub const SUPERSEDED: &str = "thalweg-superseded";
/// Of one part of a snapshot.
pub const PART_BYTES: usize = 1 << 20;
const PARTS_QUEUED: usize = 4;
const ANSWER_BYTES_MAX: usize = 64 << 10;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const IDENTIFY_TIMEOUT: Duration = Duration::from_secs(2);
const KEEP_ALIVE: Duration = Duration::from_secs(2);
