//! Why a coordinator cannot start or go on.

use std::io;
use std::net::SocketAddr;

use openraft::errors::ForwardToLeader;

use crate::shell::types::TypeConfig;

#[derive(Debug, thiserror::Error)]
pub enum CoordinatorError {
    #[error("the coordinator's store cannot be opened: {0}")]
    Store(#[source] io::Error),
    #[error("the coordinator cannot listen on {address}: {cause}")]
    Listen { address: SocketAddr, cause: io::Error },
    #[error("the coordinator's store belongs to node {stored}, and this is node {configured}; ids are never reused")]
    WrongNode { stored: u64, configured: u64 },
    #[error("Raft cannot start: {0}")]
    Raft(String),
}

/// Why a command came to no outcome here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Another node may lead. What was asked has had no effect, or has no other when it is asked again.
    #[error("this node does not lead the coordinators")]
    NotLeader { leader: Option<(u64, String)> },
    /// Whether the command comes to pass is not known.
    #[error("this node ceased to lead the coordinators, or reaches too few of them; the outcome is not known")]
    Unknown,
    #[error("the coordinator is stopping")]
    Stopped,
}

impl ProposeError {
    /// Where openraft says that another node leads.
    pub(crate) fn not_leader(forward: ForwardToLeader<TypeConfig>) -> ProposeError {
        let address = forward.leader_node.map(|node| node.address).unwrap_or_default();
        ProposeError::NotLeader { leader: forward.leader_id.map(|id| (id, address)) }
    }
}
