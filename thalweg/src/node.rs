//! A node: the roles of one process, composed over loopback gRPC.

use std::fs::{File, TryLockError};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use thalweg_broker::config::Properties;
use thalweg_broker::{Broker, BrokerConfig, Readiness};
use thalweg_coordinator::{Coordinator, CoordinatorConfig, CoordinatorPeer, CoordinatorSettings, Joined};
use thalweg_coordinator_rocks::RocksStore;
use thalweg_model::NodeId;
use thalweg_world::Clock;
use thalweg_world::disk::{RealDisk, create_dir_durable};
use tokio::runtime::{self, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::config::{CoordinatorSection, NodeConfig, Role};
use crate::metrics::Exposition;
use crate::{http, joining};

/// A node that serves.
pub struct Node {
    broker: Option<Broker>,
    http_address: SocketAddr,
    coordinator_address: Option<SocketAddr>,
}

impl Node {
    /// Where Kafka clients connect; without the role broker, where other nodes do.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        match &self.broker {
            Some(broker) => broker.local_addrs().to_vec(),
            None => self.coordinator_address.into_iter().collect(),
        }
    }

    pub fn http_address(&self) -> SocketAddr {
        self.http_address
    }
}

/// What stops a node, besides SIGINT and SIGTERM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopWith {
    Signals,
    /// The end of standard input: whoever started the node has ended, in whatever way.
    Parent,
}

impl StopWith {
    async fn happened(self) {
        if self == StopWith::Signals {
            return std::future::pending().await;
        }
        let (ended, end) = oneshot::channel();
        // A read that blocks must not keep the process, so it is not the runtime's.
        let reader = std::thread::Builder::new().name("parent".to_owned()).spawn(move || {
            let read = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            drop(ended.send(read));
        });
        match reader {
            Ok(_) => drop(end.await),
            Err(error) => warn!(%error, "cannot watch over the process that started this one"),
        }
    }
}

/// Runs a node until SIGINT or SIGTERM, then stops it in order. `when_ready` is called once, when it serves.
///
/// # Errors
/// What keeps the node from starting: one sentence with cause and remedy.
pub fn run(mut config: NodeConfig, stop_with: StopWith, when_ready: impl FnOnce(&Node)) -> Result<()> {
    let _lock = lock_data_dir(&config.data_dir)?;
    let texts = config.property_texts()?;
    let properties = Properties::parse(texts.iter().map(|(key, value)| (key.as_str(), value.as_str())))?;
    warn_if_open(&config);

    // Two runtimes: produce load must not starve Raft.
    let net = runtime("net", None)?;
    if let Some(ended) = net.block_on(join(&mut config, stop_with)) {
        return ended;
    }
    let coordination = config.has_role(Role::Coordinator).then(|| runtime("coordinator", Some(1))).transpose()?;
    let clock = Clock::real();

    let coordinator = match &coordination {
        Some(runtime) => Some(runtime.block_on(start_coordinator(&config, &properties, clock.clone()))?),
        None => None,
    };
    let outcome = net.block_on(serve(&config, properties, clock, coordinator.as_ref(), stop_with, when_ready));
    if let (Some(runtime), Some(coordinator)) = (&coordination, coordinator) {
        runtime.block_on(coordinator.shutdown());
    }
    outcome
}

/// Becomes part of a cluster first, if that is wanted; `Some` if the node is to end without having started.
async fn join(config: &mut NodeConfig, stop_with: StopWith) -> Option<Result<()>> {
    let arguments = config.join.clone();
    let (mut interrupt, mut terminate) = match (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) {
        (Ok(interrupt), Ok(terminate)) => (interrupt, terminate),
        (Err(error), _) | (_, Err(error)) => return Some(Err(error.into())),
    };
    tokio::select! {
        biased;
        _ = interrupt.recv() => Some(Ok(())),
        _ = terminate.recv() => Some(Ok(())),
        () = stop_with.happened(), if arguments.join.is_some() => Some(Ok(())),
        joined = joining::join(config, &arguments) => joined.err().map(Err),
    }
}

async fn serve(
    config: &NodeConfig,
    properties: Properties,
    clock: Clock,
    coordinator: Option<&Coordinator>,
    stop_with: StopWith,
    when_ready: impl FnOnce(&Node),
) -> Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let broker = if config.has_role(Role::Broker) {
        let config = broker_config(config, properties, coordinator)?;
        Some(Broker::start(config, Arc::new(RealDisk), clock)?)
    } else {
        None
    };
    let readiness = match &broker {
        Some(broker) => broker.ready(),
        // A coordinator that has started serves.
        None => watch::channel(Readiness::Ready).1,
    };
    if config.joined.is_some() {
        let services = broker.as_ref().map(|broker| Arc::clone(broker.services()));
        let learn = move |addresses| {
            if let Some(services) = &services {
                services.coordinators.know(addresses);
            }
        };
        // Ends with the runtime; what it writes is whole at any time.
        tokio::spawn(joining::follow_coordinators(config.data_dir.clone(), learn));
    }
    let mut parent_gone = std::pin::pin!(stop_with.happened());
    let stop = CancellationToken::new();
    let exposition = Exposition::new(
        broker.as_ref().map(Broker::metrics),
        broker.as_ref().map(|broker| Arc::clone(broker.services())),
        coordinator.map(Coordinator::metrics),
        readiness.clone(),
    );
    let http_address = http::start(config.http.listen, Arc::new(exposition), stop.clone()).await?;
    let node = Node { broker, http_address, coordinator_address: coordinator.map(Coordinator::local_addr) };

    let outcome = tokio::select! {
        biased;
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
        () = &mut parent_gone => Ok(()),
        failed = coordinator_failed(coordinator) => Err(failed),
        ready = until_ready(readiness.clone()) => match ready {
            Err(error) => Err(error),
            Ok(()) => {
                when_ready(&node);
                tokio::select! {
                    biased;
                    _ = interrupt.recv() => Ok(()),
                    _ = terminate.recv() => Ok(()),
                    () = &mut parent_gone => Ok(()),
                    failed = until_failed(readiness) => Err(failed),
                    failed = coordinator_failed(coordinator) => Err(failed),
                }
            }
        },
    };
    info!("stopping");
    if let Some(broker) = node.broker {
        broker.shutdown().await;
    }
    stop.cancel();
    outcome
}

async fn until_ready(mut readiness: watch::Receiver<Readiness>) -> Result<()> {
    let settled = readiness.wait_for(|now| now.is_ready() || matches!(now, Readiness::Failed(_))).await;
    match settled.as_deref() {
        Ok(Readiness::Failed(reason)) => bail!("{reason}"),
        Ok(_) => Ok(()),
        Err(_) => bail!("the broker ended while it was starting"),
    }
}

async fn until_failed(mut readiness: watch::Receiver<Readiness>) -> anyhow::Error {
    match readiness.wait_for(|now| matches!(now, Readiness::Failed(_))).await.as_deref() {
        Ok(Readiness::Failed(reason)) => anyhow::anyhow!("{reason}"),
        // The broker's end without a failure is an ordered stop, which a signal began.
        _ => std::future::pending().await,
    }
}

/// Never returns without the role.
async fn coordinator_failed(coordinator: Option<&Coordinator>) -> anyhow::Error {
    match coordinator {
        Some(coordinator) => anyhow::anyhow!("the coordinator has failed: {}", coordinator.failed().await),
        None => std::future::pending().await,
    }
}

async fn start_coordinator(config: &NodeConfig, properties: &Properties, clock: Clock) -> Result<Coordinator> {
    let path = config.data_dir.join("coordinator");
    let store = RocksStore::open(&path)
        .with_context(|| format!("the coordinator's registries in {} cannot be opened", path.display()))?;
    let section = &config.coordinator;
    let peers = section.parsed_peers()?;
    let config = CoordinatorConfig {
        node_id: section.number(),
        listen: section.listen,
        advertised: section.advertised.clone().or_else(|| reachable_at(section, &peers)),
        peers,
        joined: config.joined.clone().map(|cluster_id| Joined { cluster_id }),
        settings: coordinator_settings(properties),
        ..CoordinatorConfig::default()
    };
    Ok(Coordinator::start(config, Arc::new(store), clock).await?)
}

/// Of a coordinator that listens on every address and is not told which one leads to it: the one that leads to the others, or,
/// alone, this machine's first.
fn reachable_at(section: &CoordinatorSection, peers: &[CoordinatorPeer]) -> Option<String> {
    let is_named = peers.iter().any(|peer| peer.id == section.number());
    if is_named || !section.listen.ip().is_unspecified() {
        return None;
    }
    let towards = peers.iter().find_map(|peer| joining::local_address(&peer.address));
    let first = || thalweg_broker::interfaces().first().map(|interface| interface.address);
    let address = towards.or_else(first)?;
    Some(SocketAddr::new(address, section.listen.port()).to_string())
}

fn coordinator_settings(properties: &Properties) -> CoordinatorSettings {
    // The table bounds each of these; the conversions only name the type.
    let int = |name| i32::try_from(properties.number(name)).unwrap_or(i32::MAX);
    let unsigned = |name| u32::try_from(properties.number(name)).unwrap_or(u32::MAX);
    CoordinatorSettings {
        default_partitions: int("num.partitions"),
        default_replication_factor: int("default.replication.factor"),
        default_factor_bends: properties.text("default.replication.factor").is_some_and(|(_, is_given)| !is_given),
        default_min_isr: int("min.insync.replicas"),
        broker_lease_ms: unsigned("broker.session.timeout.ms"),
        broker_heartbeat_interval_ms: unsigned("broker.heartbeat.interval.ms"),
        group_initial_rebalance_delay_ms: unsigned("group.initial.rebalance.delay.ms"),
        group_min_session_timeout_ms: int("group.min.session.timeout.ms"),
        group_max_session_timeout_ms: int("group.max.session.timeout.ms"),
        group_max_size: properties.size("group.max.size"),
        offset_metadata_max_bytes: properties.size("offset.metadata.max.bytes"),
        offsets_retention_ms: properties.number("offsets.retention.minutes").saturating_mul(60_000),
        offsets_retention_check_interval_ms: unsigned("offsets.retention.check.interval.ms"),
        coordinator_replacement_delay_ms: properties.number("coordinator.replacement.delay.ms").unsigned_abs(),
        ..CoordinatorSettings::default()
    }
}

fn broker_config(
    config: &NodeConfig,
    properties: Properties,
    coordinator: Option<&Coordinator>,
) -> Result<BrokerConfig> {
    let log_dirs = match config.broker.log_dirs.as_slice() {
        [] => vec![config.data_dir.join("logs")],
        dirs => dirs.to_vec(),
    };
    let coordinators = match (config.broker.coordinators.as_slice(), coordinator) {
        ([], Some(own)) => {
            let peers = config.coordinator.parsed_peers()?.into_iter();
            let others = peers.filter(|peer| peer.id != config.coordinator.number()).map(|peer| peer.address);
            std::iter::once(own.local_addr().to_string()).chain(others).collect()
        }
        (others, _) => others.to_vec(),
    };
    Ok(BrokerConfig {
        broker_id: config.broker.id.map(NodeId),
        rack: config.broker.rack.clone(),
        coordinators,
        log_dirs,
        listeners: config.listeners()?,
        properties,
    })
}

/// Held for the life of the process; the kernel lets go of it however the process ends.
fn lock_data_dir(path: &Path) -> Result<File> {
    create_dir_durable(path).with_context(|| format!("cannot make the data directory {}", path.display()))?;
    let lock_path: PathBuf = path.join(".lock");
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&lock_path)
        .with_context(|| format!("cannot write to the data directory {}", path.display()))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => bail!(
            "another thalweg process uses the data directory {}; stop it, or choose another directory",
            path.display()
        ),
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("cannot lock {}", lock_path.display())),
    }
}

fn runtime(name: &'static str, threads: Option<usize>) -> Result<Runtime> {
    let mut builder = runtime::Builder::new_multi_thread();
    if let Some(threads) = threads {
        builder.worker_threads(threads);
    }
    builder.enable_all().thread_name(name).build().context("threads cannot be started; raise the limit on processes")
}

fn warn_if_open(config: &NodeConfig) {
    let kafka = config.broker.listen.iter().map(|listen| ("Kafka clients", listen.address));
    let kafka = kafka.filter(|_| config.has_role(Role::Broker));
    for (what, address) in kafka.chain([("HTTP", config.http.listen)]) {
        if !address.ip().is_loopback() {
            warn!(
                %address,
                "listening for {what} beyond this machine WITHOUT AUTHENTICATION: whoever reaches this address can read, \
                 write and delete everything; listen on 127.0.0.1 or put a firewall in front"
            );
        }
    }
    let grpc = config.coordinator.listen;
    if config.has_role(Role::Coordinator) && !grpc.ip().is_loopback() {
        warn!(address = %grpc, "the coordinator listens beyond this machine WITHOUT AUTHENTICATION");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_directory_has_one_user_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let held = lock_data_dir(folder.path()).unwrap();
        let refused = lock_data_dir(folder.path()).unwrap_err().to_string();
        assert!(refused.contains("another thalweg process"), "{refused}");
        drop(held);
        lock_data_dir(folder.path()).unwrap();
    }
}
