//! Thalweg: a node as `thalweg dev` runs it, or three as processes of their own.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::cluster::Cluster;
use super::spawned::{Spawned, free_addresses};

#[derive(Debug)]
pub struct Thalweg;

impl Thalweg {
    /// One node, and where it shows its metrics. Data that is there is kept.
    pub fn start(binary: &Path, folder: &Path) -> Result<(Cluster, SocketAddr)> {
        fs::create_dir_all(folder)?;
        let addresses = free_addresses(2)?;
        let (client, http) = (addresses[0], addresses[1]);
        let mut command = Command::new(binary);
        command.arg("dev").arg("--data-dir").arg(folder.join("data"));
        command.args(["--listen", &client.to_string(), "--http", &http.to_string()]);
        let node = Spawned::start(command, &folder.join("log"))?;
        let mut cluster = Cluster::new("Thalweg", vec![node], vec![client], true);
        cluster.await_ready()?;
        Ok((cluster, http))
    }

    /// Three nodes, each a broker and a coordinator, on a folder without data.
    pub fn start_three(binary: &Path, folder: &Path) -> Result<Cluster> {
        fs::create_dir_all(folder)?;
        let addresses = free_addresses(9)?;
        let (clients, rest) = addresses.split_at(3);
        let (coordinators, https) = rest.split_at(3);
        let peers: Vec<String> =
            coordinators.iter().enumerate().map(|(index, address)| format!("{}@{address}", index + 1)).collect();
        let mut nodes = Vec::new();
        for index in 0..3 {
            let id = (index + 1).to_string();
            let mut command = Command::new(binary);
            command.args(["start", "--roles", "broker,coordinator", "--broker-id", &id, "--coordinator-id", &id]);
            command.arg("--data-dir").arg(folder.join(&id));
            command.args(["--listen", &clients[index].to_string(), "--http", &https[index].to_string()]);
            command.args(["--coordinator-listen", &coordinators[index].to_string()]);
            command.args(["--coordinator-peers", &peers.join(",")]);
            command.args(["--set", "group.initial.rebalance.delay.ms=0"]);
            nodes.push(Spawned::start(command, &folder.join(format!("log-{id}")))?);
        }
        let mut cluster = Cluster::new("Thalweg", nodes, clients.to_vec(), true);
        cluster.await_ready()?;
        Ok(cluster)
    }
}
