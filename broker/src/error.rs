//! Why a broker does not start.

use std::io;
use std::net::SocketAddr;

use thalweg_storage::LogDirError;
use thiserror::Error;

/// Each is one sentence for an operator, with the cause and the remedy where there is one.
#[derive(Debug, Error)]
pub enum BrokerError {
    #[error("cannot listen on {address}: {source}; choose another address, or stop what uses it")]
    Listen { address: SocketAddr, source: io::Error },
    #[error(transparent)]
    LogDir(#[from] LogDirError),
    #[error("{what} is missing in the configuration")]
    Missing { what: &'static str },
    #[error("broker.id is {configured}, but the log directories belong to node {stored}; correct one of them")]
    OtherNode { configured: i32, stored: i32 },
    #[error("threads cannot be started: {0}; raise the limit on processes")]
    Threads(io::Error),
    /// The coordinator's reason, with the way out.
    #[error("the coordinator refuses this broker: {reason}")]
    Refused { reason: String },
    #[error("recovery ended early: {reason}")]
    Recovery { reason: String },
}
