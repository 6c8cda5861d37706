//! A broker and a coordinator that forgets, in one process: to try a broker without a RocksDB build.
//!
//! `cargo run -p thalweg-broker --example node -- DATA_DIR PORT [key=value]...`

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use thalweg_broker::config::Properties;
use thalweg_broker::{Broker, BrokerConfig, ListenerConfig, Readiness};
use thalweg_coordinator::{Coordinator, CoordinatorConfig, CoordinatorSettings, MemStore};
use thalweg_world::Clock;
use thalweg_world::disk::RealDisk;

type AnyError = Box<dyn std::error::Error>;

fn main() -> Result<(), AnyError> {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let mut arguments = std::env::args().skip(1);
    let dir = PathBuf::from(arguments.next().ok_or("which data directory?")?);
    let port: u16 = arguments.next().ok_or("which port?")?.parse()?;
    let mut properties = Properties::default();
    for pair in arguments {
        let (key, value) = pair.split_once('=').ok_or("key=value")?;
        properties.set(key, value)?;
    }
    let coordinator_runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let coordinator = coordinator_runtime.block_on(coordinator(&properties))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(broker(dir, port, properties, &coordinator));
    coordinator_runtime.block_on(coordinator.shutdown());
    outcome
}

async fn coordinator(properties: &Properties) -> Result<Coordinator, AnyError> {
    let settings = CoordinatorSettings {
        default_partitions: i32::try_from(properties.number("num.partitions"))?,
        group_initial_rebalance_delay_ms: 0,
        ..Default::default()
    };
    let config = CoordinatorConfig { listen: SocketAddr::from(([127, 0, 0, 1], 0)), settings, ..Default::default() };
    Ok(Coordinator::start(config, Arc::new(MemStore::new()), Clock::real()).await?)
}

async fn broker(dir: PathBuf, port: u16, properties: Properties, coordinator: &Coordinator) -> Result<(), AnyError> {
    let listener = ListenerConfig {
        name: "PLAINTEXT".to_owned(),
        address: SocketAddr::from(([127, 0, 0, 1], port)),
        advertised: None,
        advertised_to: Vec::new(),
    };
    let config = BrokerConfig {
        broker_id: None,
        rack: None,
        coordinators: vec![coordinator.local_addr().to_string()],
        log_dirs: vec![dir],
        listeners: vec![listener],
        properties,
    };
    let broker = Broker::start(config, Arc::new(RealDisk), Clock::real())?;
    broker.ready().wait_for(Readiness::is_ready).await?;
    tracing::info!(address = ?broker.local_addrs(), "ready");
    tokio::signal::ctrl_c().await?;
    broker.shutdown().await;
    Ok(())
}
