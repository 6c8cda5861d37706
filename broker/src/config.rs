//! How a broker is told what to be.

use std::net::SocketAddr;
use std::path::PathBuf;

pub use properties::{Properties, Property, PropertyError, Scope};
use thalweg_model::NodeId;

pub mod properties;

/// One address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerConfig {
    /// Such as `PLAINTEXT`. Unique within a broker.
    pub name: String,
    /// Port 0: any free one.
    pub address: SocketAddr,
    /// What clients are told. `None`: the local address that their connection arrived on.
    pub advertised: Option<Advertised>,
}

/// An address as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advertised {
    pub host: String,
    pub port: u16,
}

/// Everything that [`crate::Broker::start`] needs to know.
#[derive(Clone, Debug)]
pub struct BrokerConfig {
    /// `None`: what the log directories say, else one that the coordinator gives out.
    pub broker_id: Option<NodeId>,
    pub rack: Option<String>,
    /// gRPC addresses, `host:port`; any of them, the leader is found by asking.
    pub coordinators: Vec<String>,
    /// Made if missing. At least one.
    pub log_dirs: Vec<PathBuf>,
    /// At least one.
    pub listeners: Vec<ListenerConfig>,
    pub properties: Properties,
}

impl BrokerConfig {
    /// Threads that append to logs.
    pub fn worker_count(&self) -> usize {
        match self.properties.size("num.io.threads") {
            0 => std::thread::available_parallelism().map_or(1, usize::from).min(WORKERS_MAX),
            count => count,
        }
    }
}

const WORKERS_MAX: usize = 8;
