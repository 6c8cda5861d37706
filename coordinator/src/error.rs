//! Why a coordinator cannot start or go on.

use std::io;
use std::net::SocketAddr;

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
    /// Another node may lead; the command may or may not come to pass.
    #[error("this node does not lead the coordinators")]
    NotLeader { leader: Option<(u64, String)> },
    #[error("the coordinator is stopping")]
    Stopped,
}
