//! NATS with JetStream: one node, streams in files that are synced by its clock (every two minutes by default).

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::software::Found;
use super::spawned::{Spawned, free_address, listens};
use crate::process::Processes;

#[derive(Debug)]
pub struct Nats {
    node: Spawned,
    pub address: SocketAddr,
}

impl Nats {
    pub fn start(software: &Found, folder: &Path) -> Result<Nats> {
        fs::create_dir_all(folder)?;
        let address = free_address()?;
        let mut command = Command::new(&software.place);
        command.args(["-a", "127.0.0.1", "-p", &address.port().to_string(), "-js", "-sd"]).arg(folder.join("data"));
        let mut node = Spawned::start(command, &folder.join("output"))?;
        node.await_ready(|| listens(address))?;
        Ok(Nats { node, address })
    }

    pub fn processes(&self) -> Processes {
        Processes(vec![self.node.process()])
    }

    pub fn stop(self) -> Result<()> {
        self.node.stop()
    }
}
