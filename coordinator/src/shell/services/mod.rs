//! gRPC services: thin, each call is a question to the sessions, a command, or a read of the registries.

mod admin;
mod group;
mod nodes;
pub mod raft;
mod registry;

use std::sync::Arc;

use thalweg_proto::v1::KafkaError;
use thalweg_world::Clock;
use tonic::{Code, Status};

use super::batcher::{Batcher, Raft, Settled, confirm_lead};
use super::connections::Connections;
use super::leader::Sessions;
use super::members::Members;
use super::state_machine::Shared;
use crate::error::ProposeError;
use crate::registry::{Outcome, error};
use crate::session::{Call, Reply, command};
use crate::settings::CoordinatorSettings;

/// What every service works with.
#[derive(Clone)]
pub struct Services {
    pub node_id: u64,
    pub raft: Raft,
    pub shared: Arc<Shared>,
    pub batcher: Batcher,
    pub sessions: Sessions,
    pub members: Members,
    pub connections: Connections,
    pub settings: Arc<CoordinatorSettings>,
    pub clock: Clock,
}

impl Services {
    async fn ask(&self, call: Call) -> Result<Reply, Status> {
        self.sessions.ask(call).await.map_err(|cause| self.status(cause))
    }

    async fn propose(&self, kind: thalweg_proto::v1::command::Kind) -> Result<Settled, Status> {
        self.batcher.propose(command(kind)).await.map_err(|cause| self.status(cause))
    }

    /// See [`confirm_lead`].
    async fn barrier(&self) -> Result<(), Status> {
        confirm_lead(&self.raft).await.map_err(|cause| self.status(cause))
    }

    /// UNAVAILABLE, with the leader's "id@host:port" in `thalweg-leader` (common.proto), where the call certainly had no
    /// effect; ABORTED where that is not known.
    fn status(&self, cause: ProposeError) -> Status {
        let leader = match &cause {
            ProposeError::NotLeader { leader: Some((id, address)) } if *id != self.node_id => format!("{id}@{address}"),
            ProposeError::NotLeader { .. } => self.known_leader(),
            ProposeError::Stopped | ProposeError::Unknown => return Status::aborted(cause.to_string()),
        };
        let mut status = Status::new(Code::Unavailable, cause.to_string());
        if let Ok(value) = leader.parse() {
            status.metadata_mut().insert(LEADER, value);
        }
        status
    }

    fn known_leader(&self) -> String {
        use openraft::async_runtime::WatchReceiver;
        let metrics = self.raft.server_metrics();
        let now = metrics.borrow_watched();
        let Some(leader) = now.current_leader.filter(|leader| *leader != self.node_id) else { return String::new() };
        let node = now.membership_config.get_node(&leader);
        node.map(|node| format!("{leader}@{}", node.address)).unwrap_or_default()
    }
}

/// Every reply of the sessions is of its call's kind; this says so should that ever break.
fn mismatch(what: &str) -> Status {
    Status::internal(format!("the coordinator gave an answer of another kind to {what}"))
}

fn refusal(outcome: Outcome) -> KafkaError {
    match outcome {
        Outcome::Refused(refused) => refused,
        _ => error(thalweg_model::ErrorCode::UnknownServerError, "the coordinator came to an outcome of another kind"),
    }
}

const LEADER: &str = "thalweg-leader";
