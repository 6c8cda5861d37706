//! Brokers that speak Kafka's protocol: one node or several.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use thalweg_wire::messages::metadata::MetadataRequest;

use super::spawned::Spawned;
use crate::load::{Connection, Target};
use crate::process::Processes;

/// Running nodes of Thalweg or Kafka. Dropping it ends them.
#[derive(Debug)]
pub struct Cluster {
    name: String,
    nodes: Vec<Spawned>,
    addresses: Vec<SocketAddr>,
    is_thalweg: bool,
    /// From just before the first spawn until the last broker told a client of all of them.
    pub ready_after: Duration,
}

impl Cluster {
    pub fn new(name: &str, nodes: Vec<Spawned>, addresses: Vec<SocketAddr>, is_thalweg: bool) -> Cluster {
        Cluster { name: name.to_owned(), nodes, addresses, is_thalweg, ready_after: Duration::ZERO }
    }

    /// Waits until each broker names all of them.
    pub fn await_ready(&mut self) -> Result<()> {
        let addresses = &self.addresses;
        for (node, address) in self.nodes.iter_mut().zip(addresses) {
            let took = node.await_ready(|| broker_count(*address).is_ok_and(|count| count == addresses.len()))?;
            self.ready_after = self.ready_after.max(took);
        }
        Ok(())
    }

    pub fn target(&self) -> Target {
        Target {
            name: self.name.clone(),
            address: self.addresses[0],
            processes: self.processes(),
            is_thalweg: self.is_thalweg,
        }
    }

    pub fn processes(&self) -> Processes {
        Processes(self.nodes.iter().map(Spawned::process).collect())
    }

    /// SIGTERM to each, then waits.
    pub fn stop(self) -> Result<()> {
        self.nodes.into_iter().try_for_each(Spawned::stop)
    }

    /// SIGKILL to each.
    pub fn kill(self) -> Result<()> {
        self.nodes.into_iter().try_for_each(Spawned::kill)
    }
}

fn broker_count(address: SocketAddr) -> Result<usize> {
    let request = MetadataRequest { topics: Some(Vec::new()), ..MetadataRequest::default() };
    Ok(Connection::open(address)?.call(&request, 9)?.brokers.len())
}
