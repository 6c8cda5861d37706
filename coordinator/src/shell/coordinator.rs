//! One coordinator node: Raft, the registries, the services.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use openraft::async_runtime::WatchReceiver;
use openraft::{BasicNode, SnapshotPolicy};
use thalweg_proto::v1::admin_server::AdminServer;
use thalweg_proto::v1::group_server::GroupServer;
use thalweg_proto::v1::registry_server::RegistryServer;
use thalweg_world::Clock;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tracing::{error, info};

use super::batcher::{Batcher, Raft};
use super::feed::FeedLimits;
use super::leader::LeaderRunner;
use super::log_store::LogStore;
use super::network::NoPeers;
use super::services::Services;
use super::state_machine::{Shared, StateMachine};
use crate::error::CoordinatorError;
use crate::metrics::CoordinatorMetrics;
use crate::settings::CoordinatorSettings;
use crate::store::{Batch, KvStore, Space};

/// What one coordinator node is.
#[derive(Clone, Debug)]
pub struct CoordinatorConfig {
    /// Among coordinators. Never reused (REPLICATION R5).
    pub node_id: u64,
    /// Of its gRPC service. Port 0: any.
    pub listen: SocketAddr,
    /// How others reach it, host:port; `None`: as it listens.
    pub advertised: Option<String>,
    pub settings: CoordinatorSettings,
    pub feed: FeedLimits,
    /// A snapshot is taken after this many Raft entries; the log before it is then given up.
    pub snapshot_every_entries: u64,
    /// Entries kept before a snapshot, for nodes that are a little behind.
    pub log_kept_entries: u64,
}

impl Default for CoordinatorConfig {
    fn default() -> CoordinatorConfig {
        CoordinatorConfig {
            node_id: 1,
            listen: SocketAddr::from(([127, 0, 0, 1], 9093)),
            advertised: None,
            settings: CoordinatorSettings::default(),
            feed: FeedLimits::default(),
            snapshot_every_entries: 20_000,
            log_kept_entries: 1_000,
        }
    }
}

/// A running coordinator. Stop it with [`Coordinator::shutdown`]; dropping it stops it without waiting.
pub struct Coordinator {
    raft: Raft,
    shared: Arc<Shared>,
    local_addr: SocketAddr,
    metrics: Arc<CoordinatorMetrics>,
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

impl Coordinator {
    /// Opens the store, joins or founds the cluster, and serves. Returns once it answers, if it is the only voter.
    ///
    /// Must run on a tokio runtime; one of its own keeps other load from starving Raft.
    ///
    /// # Errors
    /// The store is damaged or of a newer version, the address is taken, or the store is another node's.
    pub async fn start(
        config: CoordinatorConfig,
        store: Arc<dyn KvStore>,
        clock: Clock,
    ) -> Result<Coordinator, CoordinatorError> {
        claim(&*store, config.node_id)?;
        let listen = |cause| CoordinatorError::Listen { address: config.listen, cause };
        let listener = TcpListener::bind(config.listen).await.map_err(listen)?;
        let local_addr = listener.local_addr().map_err(listen)?;
        let address: Arc<str> = config.advertised.clone().unwrap_or_else(|| local_addr.to_string()).into();

        let state_machine = StateMachine::open(Arc::clone(&store), config.feed).map_err(CoordinatorError::Store)?;
        let log_store = LogStore::open(store).map_err(CoordinatorError::Store)?;
        let shared = state_machine.shared();
        let raft = Raft::new(config.node_id, Arc::new(raft_config(&config)?), NoPeers, log_store, state_machine)
            .await
            .map_err(|cause| CoordinatorError::Raft(cause.to_string()))?;
        found(&raft, config.node_id, &address).await?;

        let metrics = Arc::new(CoordinatorMetrics::default());
        let stop = CancellationToken::new();
        let settings = config.settings;
        let (batcher, batching) =
            Batcher::new(raft.clone(), clock.clone(), settings.default_min_isr, Arc::clone(&metrics));
        let runner = LeaderRunner {
            node_id: config.node_id,
            raft: raft.clone(),
            shared: Arc::clone(&shared),
            batcher: batcher.clone(),
            settings: settings.clone(),
            clock,
            metrics: Arc::clone(&metrics),
            stop: stop.clone(),
        };
        let (mut sessions, leading) = runner.start();
        let services = Services {
            node_id: config.node_id,
            address,
            raft: raft.clone(),
            shared: Arc::clone(&shared),
            batcher,
            sessions: sessions.clone(),
            settings: Arc::new(settings),
        };
        let serving = serve(listener, services, stop.clone());
        let tasks = vec![tokio::spawn(batching), tokio::spawn(leading), tokio::spawn(serving)];
        if is_only_voter(&raft, config.node_id).await? && !sessions.wait_until_leading().await {
            return Err(CoordinatorError::Raft("it stopped while starting".to_owned()));
        }
        info!(%local_addr, "coordinator serves");
        Ok(Coordinator { raft, shared, local_addr, metrics, stop, tasks })
    }

    /// Where its gRPC service listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// What this node has applied, to read.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The counters, for whoever exports them; outlives the coordinator without keeping it running.
    pub fn metrics(&self) -> MetricsSource {
        let metrics = Arc::clone(&self.metrics);
        MetricsSource { raft: self.raft.clone(), shared: Arc::clone(&self.shared), metrics }
    }

    /// Returns when Raft has stopped by itself, and why: its disk failed, or this node's state differs from the others'.
    /// The process should end then; going on would answer nothing.
    pub async fn failed(&self) -> String {
        let mut raft = self.raft.metrics();
        loop {
            if let Err(cause) = &raft.borrow_watched().running_state {
                return cause.to_string();
            }
            if raft.changed().await.is_err() {
                return "Raft has stopped".to_owned();
            }
        }
    }

    /// Stops serving, then Raft. Nothing that was answered is lost, with or without it.
    pub async fn shutdown(mut self) {
        self.stop.cancel();
        // Subscriptions never end by themselves, and the server waits for what is open.
        self.shared.feed.close();
        if let Err(cause) = self.raft.shutdown().await {
            error!(%cause, "Raft did not stop cleanly");
        }
        for task in self.tasks.drain(..) {
            if let Err(cause) = task.await
                && cause.is_panic()
            {
                error!(%cause, "a task of the coordinator had panicked");
            }
        }
    }
}

/// Reads a coordinator's counters.
#[derive(Clone)]
pub struct MetricsSource {
    raft: Raft,
    shared: Arc<Shared>,
    metrics: Arc<CoordinatorMetrics>,
}

impl MetricsSource {
    /// Counters, brought up to date.
    pub fn read(&self) -> &CoordinatorMetrics {
        let raft = self.raft.metrics();
        let now = raft.borrow_watched();
        let metrics = &self.metrics;
        metrics.raft_term.store(now.current_term, Ordering::Relaxed);
        metrics.last_log_index.store(now.last_log_index.unwrap_or(0), Ordering::Relaxed);
        metrics.last_applied_index.store(now.last_applied.map_or(0, |id| id.index), Ordering::Relaxed);
        let machine = self.shared.machine();
        let state = machine.state();
        metrics.brokers.store(state.brokers().count() as u64, Ordering::Relaxed);
        metrics.topics.store(state.topics().count() as u64, Ordering::Relaxed);
        metrics.partitions.store(state.partitions().count() as u64, Ordering::Relaxed);
        metrics.groups.store(state.groups().count() as u64, Ordering::Relaxed);
        metrics.feed_subscribers.store(self.shared.feed.subscriber_count() as u64, Ordering::Relaxed);
        metrics
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn serve(listener: TcpListener, services: Services, stop: CancellationToken) {
    let limit = MESSAGE_BYTES_MAX;
    let served = Server::builder()
        .add_service(RegistryServer::new(services.clone()).max_decoding_message_size(limit))
        .add_service(GroupServer::new(services.clone()).max_decoding_message_size(limit))
        .add_service(AdminServer::new(services).max_decoding_message_size(limit))
        .serve_with_incoming_shutdown(TcpListenerStream::new(listener), stop.cancelled_owned())
        .await;
    if let Err(cause) = served {
        error!(%cause, "the coordinator's gRPC server ended");
    }
}

/// A store belongs to one node for ever.
fn claim(store: &dyn KvStore, node_id: u64) -> Result<(), CoordinatorError> {
    let stored = store.value(Space::Meta, NODE_ID).map_err(CoordinatorError::Store)?;
    match stored {
        None => {
            let mut batch = Batch::default();
            batch.put(Space::Meta, NODE_ID, node_id.to_be_bytes());
            store.write(batch).and_then(|()| store.sync()).map_err(CoordinatorError::Store)
        }
        Some(bytes) => {
            let stored = <[u8; 8]>::try_from(bytes.as_slice()).map(u64::from_be_bytes).unwrap_or(u64::MAX);
            if stored == node_id { Ok(()) } else { Err(CoordinatorError::WrongNode { stored, configured: node_id }) }
        }
    }
}

/// A node without a past founds a cluster of its own. One without others need not wait for their votes.
async fn found(raft: &Raft, node_id: u64, address: &str) -> Result<(), CoordinatorError> {
    let cannot = |cause: String| CoordinatorError::Raft(cause);
    if raft.is_initialized().await.map_err(|cause| cannot(cause.to_string()))? {
        if is_only_voter(raft, node_id).await? {
            raft.trigger().elect(false).await.map_err(|cause| cannot(cause.to_string()))?;
        }
        return Ok(());
    }
    let members = std::collections::BTreeMap::from([(node_id, BasicNode::new(address))]);
    raft.initialize(members).await.map_err(|cause| cannot(cause.to_string()))
}

/// Asks Raft itself: what it shows to others may be older.
async fn is_only_voter(raft: &Raft, node_id: u64) -> Result<bool, CoordinatorError> {
    let voters = raft.with_raft_state(|state| state.membership_state.effective().voter_ids().collect::<Vec<u64>>());
    let voters = voters.await.map_err(|cause| CoordinatorError::Raft(cause.to_string()))?;
    Ok(voters == [node_id])
}

fn raft_config(config: &CoordinatorConfig) -> Result<openraft::Config, CoordinatorError> {
    let wanted = openraft::Config {
        cluster_name: "thalweg".to_owned(),
        heartbeat_interval: 200,
        election_timeout_min: 800,
        election_timeout_max: 1_600,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(config.snapshot_every_entries),
        max_in_snapshot_log_to_keep: config.log_kept_entries,
        // The mark of what is committed is not synced, so after a crash a leader may not know what it had answered. A new
        // election ends in an entry of a new term, and with that commits everything before it.
        enable_leader_restore: Some(false),
        ..openraft::Config::default()
    };
    wanted.validate().map_err(|cause| CoordinatorError::Raft(cause.to_string()))
}

const NODE_ID: &[u8] = b"node";
const MESSAGE_BYTES_MAX: usize = 128 << 20;
