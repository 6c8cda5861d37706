//! A lean Kafka client: what it sends is encoded beforehand and what it receives is thrown away, so that the broker
//! and not the client is what is measured.

mod batch;
mod calls;
pub mod client;
mod connection;
mod consume;
pub mod group;
mod input;
mod latency;
mod produce;
mod topic;

pub use batch::Batch;
pub use calls::{CallLoad, Called, Caller, call};
pub use connection::Connection;
pub use consume::{ConsumeLoad, consume};
pub use latency::{Latencies, LatencyLoad, latency};
pub use produce::{ProduceLoad, produce};
pub use topic::{Topic, Wanted};

use std::net::SocketAddr;
use std::time::Duration;

use crate::process::Processes;

/// A broker that a load can be put on.
#[derive(Clone, Debug)]
pub struct Target {
    pub name: String,
    /// Of one of its brokers.
    pub address: SocketAddr,
    pub processes: Processes,
    /// Whether it knows `durability`; a peer is given Kafka's nearest setting instead.
    pub is_thalweg: bool,
}

/// When a run of a load ends: at whichever comes first.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub duration: Duration,
    /// Of record values, over all connections.
    pub bytes: u64,
}

/// What one run of a load came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub request_count: u64,
    pub record_count: u64,
    /// Of record values: without batch headers and record framing, which makes every ratio to a bare loop a little
    /// too low rather than too high.
    pub bytes: u64,
    pub elapsed: Duration,
    pub server_cpu: Duration,
    pub client_cpu: Duration,
    /// Of each request, in µs; only where a load asks for them.
    pub latencies_us: Vec<f64>,
}
