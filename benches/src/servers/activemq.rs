//! ActiveMQ Classic with a KahaDB store that is synced by its clock, as in the Kafka paper; run by its own classes.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::software::Found;
use super::spawned::{Spawned, free_address, listens};
use crate::process::Processes;

#[derive(Debug)]
pub struct ActiveMq {
    node: Spawned,
    pub address: SocketAddr,
}

impl ActiveMq {
    pub fn start(software: &Found, folder: &Path) -> Result<ActiveMq> {
        fs::create_dir_all(folder)?;
        let address = free_address()?;
        let mut command = Command::new("java");
        command.args(["-Xms1g", "-Xmx1g", "-cp", &software.place, "ActiveMqBench", "broker"]);
        command.arg(folder.join("data")).arg(address.port().to_string());
        let mut node = Spawned::start(command, &folder.join("output"))?;
        node.await_ready(|| listens(address))?;
        Ok(ActiveMq { node, address })
    }

    pub fn processes(&self) -> Processes {
        Processes(vec![self.node.process()])
    }

    pub fn stop(self) -> Result<()> {
        self.node.stop()
    }
}
