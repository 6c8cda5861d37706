//! Apache Kafka: combined nodes (broker and controller) with defaults, but for what lets it run alone on loopback.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::cluster::Cluster;
use super::software::Found;
use super::spawned::{Spawned, free_addresses};

#[derive(Debug)]
pub struct Kafka;

impl Kafka {
    /// One node or three. Data that is there is kept. Formatting is not part of the time to ready.
    pub fn start(software: &Found, folder: &Path, node_count: usize) -> Result<Cluster> {
        let addresses = ports(folder, 2 * node_count)?;
        let (clients, controllers) = addresses.split_at(node_count);
        let class_path = &software.place;
        if !folder.join("1/server.properties").exists() {
            let id = tool(class_path, &["random-uuid"])?;
            let id = id.split_ascii_whitespace().last().context("Kafka's tool gave no cluster id")?.to_owned();
            for node in 1..=node_count {
                let home = folder.join(node.to_string());
                fs::create_dir_all(&home)?;
                let file = home.join("server.properties");
                fs::write(&file, properties(&home, node, clients[node - 1], controllers))?;
                tool(class_path, &["format", "-t", &id, "-c", &file.to_string_lossy()])?;
            }
        }
        let mut nodes = Vec::new();
        for node in 1..=node_count {
            let home = folder.join(node.to_string());
            let mut command = Command::new("java");
            command.args(HEAP).args(QUIET).args(["-cp", class_path, "kafka.Kafka"]).arg(home.join("server.properties"));
            nodes.push(Spawned::start(command, &home.join("log"))?);
        }
        let mut cluster = Cluster::new(&format!("Kafka {}", software.version), nodes, clients.to_vec(), false);
        cluster.await_ready()?;
        Ok(cluster)
    }
}

/// The addresses of an earlier start on this folder, or free ones.
fn ports(folder: &Path, count: usize) -> Result<Vec<SocketAddr>> {
    let file = folder.join("addresses");
    if let Ok(text) = fs::read_to_string(&file) {
        return text.lines().map(|line| Ok(line.parse()?)).collect();
    }
    let addresses = free_addresses(count)?;
    fs::create_dir_all(folder)?;
    fs::write(&file, addresses.iter().map(|address| format!("{address}\n")).collect::<String>())?;
    Ok(addresses)
}

fn properties(home: &Path, node: usize, client: SocketAddr, controllers: &[SocketAddr]) -> String {
    let voters: Vec<String> =
        controllers.iter().enumerate().map(|(index, address)| format!("{}@{address}", index + 1)).collect();
    let (replicas, in_sync) = if controllers.len() == 1 { (1, 1) } else { (3, 2) };
    format!(
        "process.roles=broker,controller\nnode.id={node}\ncontroller.quorum.voters={}\n\
         listeners=PLAINTEXT://{client},CONTROLLER://{}\nadvertised.listeners=PLAINTEXT://{client}\n\
         controller.listener.names=CONTROLLER\n\
         listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\nlog.dirs={}\n\
         offsets.topic.replication.factor={replicas}\ntransaction.state.log.replication.factor={replicas}\n\
         transaction.state.log.min.isr={in_sync}\nshare.coordinator.state.topic.replication.factor={replicas}\n\
         share.coordinator.state.topic.min.isr={in_sync}\ngroup.initial.rebalance.delay.ms=0\n\
         max.connections.per.ip=2147483647\n",
        voters.join(","),
        controllers[node - 1],
        home.join("data").display(),
    )
}

/// Runs Kafka's storage tool; what it printed.
fn tool(class_path: &str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new("java");
    command.args(["-Xmx256m"]).args(QUIET).args(["-cp", class_path, "kafka.tools.StorageTool"]).args(arguments);
    let output = command.output().context("cannot run java")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "StorageTool failed: {text}{}", String::from_utf8_lossy(&output.stderr));
    Ok(text)
}

/// As Kafka's own start script sets it, with the collector's settings that it recommends.
const HEAP: [&str; 5] =
    ["-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"];
const QUIET: [&str; 1] = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"];
