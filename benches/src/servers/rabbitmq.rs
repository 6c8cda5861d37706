//! RabbitMQ as Debian packages it: one node, a classic durable queue.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::software::Found;
use super::spawned::{Spawned, free_addresses, listens};
use crate::process::{Process, Processes};

#[derive(Debug)]
pub struct RabbitMq {
    node: Spawned,
    pub address: SocketAddr,
    beam: Process,
    /// Erlang's port mapper, which RabbitMQ would start as a daemon that stays.
    _mapper: Spawned,
}

impl RabbitMq {
    pub fn start(software: &Found, folder: &Path) -> Result<RabbitMq> {
        fs::create_dir_all(folder)?;
        let addresses = free_addresses(3)?;
        let (address, distribution, mapper) = (addresses[0], addresses[1], addresses[2]);
        let mut epmd = Command::new("epmd");
        epmd.args(["-port", &mapper.port().to_string(), "-address", "127.0.0.1"]);
        let mut epmd = Spawned::start(epmd, &folder.join("epmd"))?;
        epmd.await_ready(|| listens(mapper))?;
        let config = folder.join("rabbitmq.conf");
        // The default alarm at 40 % of the memory stays; its log of each connection goes.
        fs::write(&config, format!("listeners.tcp.1 = {address}\nlog.console = false\n"))?;
        let mut command = Command::new(&software.place);
        command
            .env("RABBITMQ_NODENAME", format!("thalweg-bench-{}@localhost", address.port()))
            .env("RABBITMQ_MNESIA_BASE", folder.join("db"))
            .env("RABBITMQ_LOG_BASE", folder.join("log"))
            .env("RABBITMQ_DIST_PORT", distribution.port().to_string())
            .env("ERL_EPMD_PORT", mapper.port().to_string())
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env("RABBITMQ_CONFIG_FILE", &config)
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", folder.join("plugins"))
            .env("RABBITMQ_PID_FILE", folder.join("pid"));
        let mut node = Spawned::start(command, &folder.join("output"))?;
        node.await_ready(|| listens(address))?;
        let pid = fs::read_to_string(folder.join("pid")).context("RabbitMQ wrote no pid file")?;
        Ok(RabbitMq { node, address, beam: Process { pid: pid.trim().parse()? }, _mapper: epmd })
    }

    pub fn processes(&self) -> Processes {
        Processes(vec![self.beam])
    }

    pub fn stop(self) -> Result<()> {
        self.node.stop()
    }
}
