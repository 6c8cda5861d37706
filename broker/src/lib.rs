//! A Kafka broker: listens, appends, serves; holds log data and a copy of the cluster's image.

pub mod api;
pub mod config;
pub mod error;
pub mod machine;
pub mod metrics;
pub mod services;
pub mod shell;
pub mod tiers;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thalweg_model::NodeId;
use thalweg_world::Clock;
use thalweg_world::disk::Disk;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info};

pub use config::{Advertised, BrokerConfig, ListenerConfig};
pub use error::BrokerError;
pub use metrics::Metrics;
pub use shell::endpoints::{Interface, interfaces};
pub use tiers::Tier;

use services::Services;
use shell::budget::ByteBudget;
use shell::dirs::{self, Dirs};
use shell::lifecycle::{self, Life};
use shell::listener::{BoundListener, ConnectionLimits};
use shell::maintenance;

/// A running broker.
pub struct Broker {
    life: Arc<Life>,
    local_addrs: Vec<SocketAddr>,
    ready: watch::Receiver<Readiness>,
    connections: TaskTracker,
    main: JoinHandle<Option<Arc<Dirs>>>,
}

/// How far a broker has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    Starting,
    Recovering {
        done: usize,
        total: usize,
    },
    Registering,
    /// Registered, recovered, unfenced: it serves.
    Ready,
    /// It does not serve and will not by itself; why.
    Failed(String),
}

impl Readiness {
    pub fn is_ready(&self) -> bool {
        *self == Readiness::Ready
    }
}

impl Broker {
    /// Binds the listeners, opens the log directories of earlier lives and goes on in the background: recovery, registration
    /// (for as long as it takes), serving. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// See [`BrokerError`]; nothing is left running.
    pub fn start(config: BrokerConfig, disk: Arc<dyn Disk>, clock: Clock) -> Result<Broker, BrokerError> {
        let mut config = config;
        check(&config)?;
        let listeners = bind(&config)?;
        let stored = dirs::stored_identity(&*disk, &config.log_dirs)?;
        if let (Some(configured), Some(stored)) = (config.broker_id, &stored)
            && configured != stored.node_id
        {
            return Err(BrokerError::OtherNode { configured: configured.0, stored: stored.node_id.0 });
        }
        let opened = match &stored {
            None => None,
            Some(identity) => {
                let new_ids = dirs::new_directory_ids(config.log_dirs.len());
                Some(lifecycle::open_dirs(Arc::clone(&disk), &config, identity, &new_ids)?)
            }
        };
        show(&mut config, &listeners);
        let metrics = Metrics::new();
        let services = Arc::new(Services::new(config, clock, metrics).map_err(BrokerError::Threads)?);
        let (ready, watched) = watch::channel(Readiness::Starting);
        let life = Life::new(services, ready, CancellationToken::new());
        let local_addrs = listeners.iter().map(|listener| listener.local).collect();
        let connections = TaskTracker::new();
        let main = tokio::spawn(run(Arc::clone(&life), disk, opened, listeners, connections.clone()));
        Ok(Broker { life, local_addrs, ready: watched, connections, main })
    }

    /// The addresses that clients reach, in the order of the configured listeners.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.local_addrs
    }

    pub fn ready(&self) -> watch::Receiver<Readiness> {
        self.ready.clone()
    }

    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.life.services.metrics)
    }

    pub fn services(&self) -> &Arc<Services> {
        &self.life.services
    }

    /// Stops in order: leaderships move away, connections end, logs are flushed and closed, the directories are marked clean.
    pub async fn shutdown(self) {
        let was_ready = self.ready.borrow().is_ready();
        if !was_ready {
            // It may be waiting for a coordinator that never comes.
            self.life.stop.cancel();
            self.main.abort();
        }
        let broker_epoch = self.life.broker_epoch();
        let dirs = self.life.services.dirs().map(Arc::clone);
        if let (true, Some(dirs)) = (was_ready, &dirs) {
            self.life.controlled_shutdown(dirs).await;
        }
        self.life.stop.cancel();
        self.end_tasks().await;
        // Only a life that served has logs to close, and only such a one may say that it ended cleanly.
        if let (true, Some(dirs)) = (was_ready, &dirs) {
            lifecycle::close_logs(&self.life.services, dirs, broker_epoch).await;
        }
        let services = Arc::clone(&self.life.services);
        if tokio::task::spawn_blocking(move || services.workers().stop()).await.is_err() {
            error!("the worker threads did not stop in order");
        }
        info!("stopped");
    }
}

impl Broker {
    /// Waits for what `stop` has told to end.
    async fn end_tasks(&self) {
        for (tasks, what) in [(&self.connections, "connections"), (&self.life.tasks, "tasks")] {
            tasks.close();
            if tokio::time::timeout(TASKS_WAIT, tasks.wait()).await.is_err() {
                error!("some {what} did not end in time");
            }
        }
    }

    /// Stops as if the process had been killed: nobody is told, nothing is flushed, no directory is marked clean.
    pub async fn abandon(mut self) {
        self.life.stop.cancel();
        self.main.abort();
        // Until it is gone it holds the directories, which whoever comes next wants to lock.
        let _ = (&mut self.main).await;
        self.end_tasks().await;
        let services = Arc::clone(&self.life.services);
        if tokio::task::spawn_blocking(move || services.workers().stop()).await.is_err() {
            error!("the worker threads did not stop in order");
        }
    }
}

async fn run(
    life: Arc<Life>,
    disk: Arc<dyn Disk>,
    opened: Option<Dirs>,
    listeners: Vec<BoundListener>,
    connections: TaskTracker,
) -> Option<Arc<Dirs>> {
    let dirs = match life.begin(disk, opened, &listeners).await {
        Ok(dirs) => dirs,
        Err(error) => {
            error!(%error, "the broker does not come up");
            life.ready.send_replace(Readiness::Failed(error.to_string()));
            return None;
        }
    };
    let services = &life.services;
    let maintenance = maintenance::run(Arc::clone(services), Arc::clone(&dirs), life.ready.clone(), life.stop.clone());
    life.tasks.spawn(maintenance);
    let properties = &services.config.properties;
    let limits = ConnectionLimits::new(
        properties.size("max.connections").min(shell::listener::files_for_connections()),
        properties.size("max.connections.per.ip"),
    );
    let budget = ByteBudget::new(properties.size("queued.max.request.bytes"));
    // Clients that come before the broker is let in wait in the kernel's queue.
    let mut ready = life.ready.subscribe();
    tokio::select! {
        () = life.stop.cancelled() => return Some(dirs),
        _ = ready.wait_for(Readiness::is_ready) => {}
    }
    for listener in listeners {
        info!(listener = %listener.config.name, address = %listener.local, "listening");
        let (services, limits, budget) = (Arc::clone(services), Arc::clone(&limits), budget.clone());
        life.tasks.spawn(listener.run(services, limits, budget, connections.clone(), life.stop.clone()));
    }
    Some(dirs)
}

fn check(config: &BrokerConfig) -> Result<(), BrokerError> {
    let missing = |what| Err(BrokerError::Missing { what });
    if config.log_dirs.is_empty() {
        return missing("a log directory");
    }
    if config.listeners.is_empty() {
        return missing("a listener");
    }
    if config.coordinators.is_empty() {
        return missing("a coordinator's address");
    }
    Ok(())
}

fn bind(config: &BrokerConfig) -> Result<Vec<BoundListener>, BrokerError> {
    let bound = config.listeners.iter().map(|listener| {
        let address = listener.address;
        BoundListener::bind(listener.clone()).map_err(|source| BrokerError::Listen { address, source })
    });
    bound.collect()
}

/// What DescribeConfigs shows of how the node was started.
fn show(config: &mut BrokerConfig, listeners: &[BoundListener]) {
    let list = |items: Vec<String>| items.join(",");
    let listening = listeners.iter().map(|listener| format!("{}://{}", listener.config.name, listener.local)).collect();
    let advertised = listeners.iter().map(|listener| match &listener.config.advertised {
        Some(address) => format!("{}://{}:{}", listener.config.name, address.host, address.port),
        None => format!("{}://{}", listener.config.name, listener.local),
    });
    let advertised = advertised.collect();
    let dirs = config.log_dirs.iter().map(|path| path.display().to_string()).collect();
    let properties = &mut config.properties;
    properties.show("listeners", list(listening));
    properties.show("advertised.listeners", list(advertised));
    properties.show("log.dirs", list(dirs));
    if let Some(rack) = &config.rack {
        properties.show("broker.rack", rack.clone());
    }
    if let Some(NodeId(id)) = config.broker_id {
        properties.show("broker.id", id.to_string());
        properties.show("node.id", id.to_string());
    }
}

const TASKS_WAIT: Duration = Duration::from_secs(5);
