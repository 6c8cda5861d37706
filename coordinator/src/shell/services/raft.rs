//! What other coordinators call.

use std::io::{self, Seek, SeekFrom, Write};
use std::sync::Arc;

use openraft::Snapshot;
use openraft::async_runtime::WatchReceiver;
use openraft::raft::TransferLeaderRequest;
use thalweg_proto::v1;
use thalweg_proto::v1::raft_server::Raft as RaftService;
use tokio::sync::mpsc;
use tonic::{Request, Response, Status, Streaming};

use crate::shell::batcher::Raft;
use crate::shell::codec::{invalid, log_id_from, log_id_to, membership_to, vote_to};
use crate::shell::identity::{Identity, Refusal};
use crate::shell::network::{PART_BYTES, SUPERSEDED};
use crate::shell::raft_codec as codec;
use crate::store::{KvStore, SnapshotFile};

pub struct RaftPeers {
    pub raft: Raft,
    pub me: Arc<Identity>,
    pub store: Arc<dyn KvStore>,
    /// As configured, for [`v1::IdentifyResponse`].
    pub peers: Vec<String>,
    pub levels: v1::Levels,
}

#[tonic::async_trait]
impl RaftService for RaftPeers {
    async fn append(
        &self,
        request: Request<v1::RaftAppendRequest>,
    ) -> Result<Response<v1::RaftAppendResponse>, Status> {
        let request = request.into_inner();
        self.admit(request.parties.as_ref())?;
        let request = codec::append_from(request).map_err(|cause| malformed(&cause))?;
        let answer = self.raft.append_entries(request).await.map_err(|cause| stopped(&cause))?;
        Ok(Response::new(codec::appended_to(&answer)))
    }

    async fn vote(&self, request: Request<v1::RaftVoteRequest>) -> Result<Response<v1::RaftVoteResponse>, Status> {
        let request = request.into_inner();
        self.admit(request.parties.as_ref())?;
        let asked = codec::vote_request_from(&request).map_err(|cause| malformed(&cause))?;
        let answer = if request.pre_vote { self.raft.pre_vote(asked).await } else { self.raft.vote(asked).await };
        Ok(Response::new(codec::voted_to(&answer.map_err(|cause| stopped(&cause))?)))
    }

    async fn transfer_leader(
        &self,
        request: Request<v1::RaftTransferRequest>,
    ) -> Result<Response<v1::RaftTransferResponse>, Status> {
        let request = request.into_inner();
        self.admit(request.parties.as_ref())?;
        let vote = codec::required_vote(request.from_leader.as_ref()).map_err(|cause| malformed(&cause))?;
        let last = request.last_log_id.as_ref().map(log_id_from);
        let answer = self.raft.handle_transfer_leader(TransferLeaderRequest::new(vote, request.to_node_id, last)).await;
        let accepted = answer.map_err(|cause| stopped(&cause))?.is_ok();
        Ok(Response::new(v1::RaftTransferResponse { accepted }))
    }

    async fn install_snapshot(
        &self,
        request: Request<Streaming<v1::RaftSnapshotPart>>,
    ) -> Result<Response<v1::RaftSnapshotResponse>, Status> {
        let mut parts = request.into_inner();
        let Some(v1::RaftSnapshotPart { start: Some(start), .. }) = parts.message().await? else {
            return Err(Status::invalid_argument("a snapshot begins with what it is"));
        };
        self.admit(start.parties.as_ref())?;
        let (vote, meta) = codec::snapshot_meta(&start).map_err(|cause| malformed(&cause))?;
        let snapshot = self.receive(&start, &mut parts).await?;
        let answer = self.raft.install_full_snapshot(vote, Snapshot { meta, snapshot }).await;
        let vote = answer.map_err(|cause| stopped(&cause))?.vote;
        Ok(Response::new(v1::RaftSnapshotResponse { vote: Some(vote_to(&vote)) }))
    }

    async fn identify(&self, _request: Request<v1::IdentifyRequest>) -> Result<Response<v1::IdentifyResponse>, Status> {
        let metrics = self.raft.metrics();
        let now = metrics.borrow_watched();
        Ok(Response::new(v1::IdentifyResponse {
            id: self.me.node_id,
            identity: self.me.identity.clone(),
            cluster_id: self.me.cluster().unwrap_or_default(),
            peers: self.peers.clone(),
            membership_id: now.membership_config.log_id().as_ref().map(log_id_to),
            membership: Some(membership_to(now.membership_config.membership())),
            leader: now.current_leader.unwrap_or(0),
            levels: Some(self.levels),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }))
    }
}

impl RaftPeers {
    fn admit(&self, parties: Option<&v1::RaftParties>) -> Result<(), Status> {
        let metrics = self.raft.server_metrics();
        let now = metrics.borrow_watched();
        let sender = parties.and_then(|parties| now.membership_config.membership().get_node(&parties.from));
        self.me.admit(parties, sender).map_err(|refusal| {
            let mut status = Status::failed_precondition(refusal.to_string());
            if let Refusal::Superseded { .. } = refusal {
                status.metadata_mut().insert(SUPERSEDED, tonic::metadata::MetadataValue::from_static("1"));
            }
            status
        })
    }

    /// Writes the parts to a file of their own while checking them.
    async fn receive(
        &self,
        start: &v1::RaftSnapshotStart,
        parts: &mut Streaming<v1::RaftSnapshotPart>,
    ) -> Result<SnapshotFile, Status> {
        let (pieces, queue) = mpsc::channel(PARTS_QUEUED);
        let (store, length) = (Arc::clone(&self.store), start.length);
        let writing = tokio::task::spawn_blocking(move || write_parts(&*store, length, queue));
        loop {
            let part = match parts.message().await? {
                None => break,
                Some(part) => part.bytes,
            };
            let Some(bytes) = part else {
                return Err(Status::invalid_argument("a part of a snapshot has bytes"));
            };
            // Closed: the writer has found something wrong, and says what.
            if pieces.send(bytes).await.is_err() {
                break;
            }
        }
        drop(pieces);
        let written = writing.await.map_err(|cause| Status::internal(cause.to_string()))?;
        written.map_err(|cause| malformed(&cause))
    }
}

/// Each part where the one before ended, with the checksum that it was sent with, and all of them together of the length
/// that was announced. What the bytes say is checked when they are installed (REPLICATION R7).
fn write_parts(
    store: &dyn KvStore,
    length: u64,
    mut parts: mpsc::Receiver<v1::RaftSnapshotBytes>,
) -> io::Result<SnapshotFile> {
    let mut file = store.snapshots().create()?;
    let mut position = 0;
    while let Some(part) = parts.blocking_recv() {
        let end = position + part.bytes.len() as u64;
        if part.position != position || end > length || part.bytes.len() > PART_BYTES {
            return Err(invalid(format!("a part of the snapshot is not the one that follows at {position}")));
        }
        if crc32c::crc32c(&part.bytes) != part.crc {
            return Err(invalid(format!("the part of the snapshot at {position} was damaged on its way")));
        }
        file.write_all(&part.bytes)?;
        position = end;
    }
    if position != length {
        return Err(invalid(format!("the snapshot ends at {position} instead of {length}")));
    }
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}

fn malformed(cause: &io::Error) -> Status {
    Status::invalid_argument(cause.to_string())
}

fn stopped(cause: &impl std::fmt::Display) -> Status {
    Status::unavailable(cause.to_string())
}

const PARTS_QUEUED: usize = 4;

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::store::MemStore;

    fn part(position: u64, bytes: &'static [u8]) -> v1::RaftSnapshotBytes {
        v1::RaftSnapshotBytes { position, bytes: bytes.into(), crc: crc32c::crc32c(bytes) }
    }

    fn written(length: u64, parts: Vec<v1::RaftSnapshotBytes>) -> io::Result<Vec<u8>> {
        let (sender, receiver) = mpsc::channel(parts.len().max(1));
        parts.into_iter().for_each(|part| sender.try_send(part).unwrap());
        drop(sender);
        let mut bytes = Vec::new();
        write_parts(&MemStore::new(), length, receiver)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    #[test]
    fn parts_make_a_snapshot_only_whole_in_order_and_undamaged() {
        assert_eq!(written(5, vec![part(0, b"abc"), part(3, b"de")]).unwrap(), b"abcde");
        assert_eq!(written(0, vec![]).unwrap(), b"");
        let damaged = v1::RaftSnapshotBytes { crc: 1, ..part(0, b"abc") };
        let wrong = [
            (3, vec![damaged]),
            (5, vec![part(0, b"abc")]),
            (5, vec![part(0, b"abc"), part(4, b"de")]),
            (5, vec![part(0, b"abc"), part(0, b"abc")]),
            (4, vec![part(0, b"abc"), part(3, b"de")]),
            (5, vec![part(u64::MAX, b"abc")]),
        ];
        for (length, parts) in wrong {
            assert!(written(length, parts.clone()).is_err(), "{length}: {parts:?}");
        }
    }
}
