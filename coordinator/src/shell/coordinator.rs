//! One coordinator node: Raft, the registries, the services.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use openraft::SnapshotPolicy;
use openraft::async_runtime::WatchReceiver;
use thalweg_proto::v1::Levels;
use thalweg_proto::v1::admin_server::AdminServer;
use thalweg_proto::v1::group_server::GroupServer;
use thalweg_proto::v1::nodes_server::NodesServer;
use thalweg_proto::v1::raft_server::RaftServer;
use thalweg_proto::v1::registry_server::RegistryServer;
use thalweg_world::Clock;
use tokio::net::TcpListener;
use tokio::task::{JoinError, JoinHandle};
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tracing::{error, info, warn};

use super::batcher::{Batcher, Raft, may_be_asked};
use super::connections::{Connections, Tracked};
use super::feed::FeedLimits;
use super::formation::{CoordinatorPeer, Formation, peer_list};
use super::identity::Identity;
use super::leader::LeaderRunner;
use super::log_store::LogStore;
use super::members::Members;
use super::network::Network;
use super::services::Services;
use super::services::raft::RaftPeers;
use super::state_machine::{Shared, StateMachine};
use crate::error::CoordinatorError;
use crate::metrics::CoordinatorMetrics;
use crate::settings::CoordinatorSettings;
use crate::store::KvStore;

/// What one coordinator node is.
#[derive(Clone, Debug)]
pub struct CoordinatorConfig {
    /// Among coordinators. Never reused (REPLICATION R5).
    pub node_id: u64,
    /// Of its gRPC service. Port 0: any.
    pub listen: SocketAddr,
    /// How others reach it, host:port; `None`: as it listens.
    pub advertised: Option<String>,
    /// Those who found the cluster together, this node among them; or, of a node that joins, some who are part of it.
    /// Empty: this node founds a cluster of its own.
    pub peers: Vec<CoordinatorPeer>,
    /// It joined a running cluster: it offers itself, and votes when it is wanted. `peers` are some who are part of it.
    pub joined: Option<Joined>,
    pub settings: CoordinatorSettings,
    pub feed: FeedLimits,
    /// A snapshot is taken after this many Raft entries; the log before it is then given up.
    pub snapshot_every_entries: u64,
    /// Entries kept before a snapshot, for nodes that are a little behind.
    pub log_kept_entries: u64,
    /// Of the feature thalweg.version: what this node says that it can work at. Less than [`thalweg_proto::LEVELS`] makes it
    /// behave as an earlier version where the levels of nodes matter.
    pub levels: Levels,
}

/// What a node was told when it joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// 22 characters.
    pub cluster_id: String,
}

impl Default for CoordinatorConfig {
    fn default() -> CoordinatorConfig {
        CoordinatorConfig {
            node_id: 1,
            listen: SocketAddr::from(([127, 0, 0, 1], 9093)),
            advertised: None,
            peers: Vec::new(),
            joined: None,
            settings: CoordinatorSettings::default(),
            feed: FeedLimits::default(),
            snapshot_every_entries: 20_000,
            log_kept_entries: 1_000,
            levels: Levels::ours(),
        }
    }
}

/// A running coordinator. Stop it with [`Coordinator::shutdown`]; dropping it stops it without waiting.
pub struct Coordinator {
    raft: Raft,
    shared: Arc<Shared>,
    local_addr: SocketAddr,
    metrics: Arc<CoordinatorMetrics>,
    me: Arc<Identity>,
    members: Members,
    stop: CancellationToken,
    serving: Option<JoinHandle<()>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Coordinator {
    /// Opens the store and serves. Returns once it answers, if it is the only voter; otherwise it finds its place among the
    /// others by and by, and [`Coordinator::failed`] tells if there is none for it.
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
        let me = Arc::new(Identity::claim(Arc::clone(&store), config.node_id)?);
        let listen = |cause| CoordinatorError::Listen { address: config.listen, cause };
        let listener = TcpListener::bind(config.listen).await.map_err(listen)?;
        let local_addr = listener.local_addr().map_err(listen)?;
        let listed = config.peers.iter().find(|peer| peer.id == config.node_id).map(|peer| peer.address.clone());
        let address = config.advertised.clone().or(listed).unwrap_or_else(|| local_addr.to_string());

        let state_machine = StateMachine::open(Arc::clone(&store), config.feed, config.levels.max);
        let state_machine = state_machine.map_err(CoordinatorError::Store)?;
        let log_store = LogStore::open(Arc::clone(&store)).map_err(CoordinatorError::Store)?;
        let shared = state_machine.shared();
        if let Some(cluster) = shared.machine().state().cluster_id() {
            me.bind_to(cluster).map_err(CoordinatorError::Store)?;
        }
        if let Some(joined) = &config.joined {
            me.bind_to(&joined.cluster_id).map_err(CoordinatorError::Store)?;
        }
        let network = Network::new(Arc::clone(&me));
        let raft_config = Arc::new(raft_config(&config)?);
        let raft = Raft::new(config.node_id, raft_config, network.clone(), log_store, state_machine)
            .await
            .map_err(|cause| CoordinatorError::Raft(cause.to_string()))?;

        let metrics = Arc::new(CoordinatorMetrics::default());
        let stop = CancellationToken::new();
        let settings = config.settings;
        let (batcher, batching) =
            Batcher::new(raft.clone(), clock.clone(), settings.default_min_isr, Arc::clone(&metrics));
        let members = Members {
            me: Arc::clone(&me),
            raft: raft.clone(),
            batcher: batcher.clone(),
            network: network.clone(),
            shared: Arc::clone(&shared),
            levels: config.levels,
        };
        let runner = LeaderRunner {
            node_id: config.node_id,
            address: address.clone(),
            raft: raft.clone(),
            members: members.clone(),
            shared: Arc::clone(&shared),
            batcher: batcher.clone(),
            settings: settings.clone(),
            clock: clock.clone(),
            metrics: Arc::clone(&metrics),
            stop: stop.clone(),
        };
        let (mut sessions, leading) = runner.start();
        let services = Services {
            node_id: config.node_id,
            raft: raft.clone(),
            shared: Arc::clone(&shared),
            batcher,
            sessions: sessions.clone(),
            members: members.clone(),
            connections: Connections::new(sessions.clone(), stop.clone()),
            settings: Arc::new(settings),
            clock,
        };
        let peers = RaftPeers {
            raft: raft.clone(),
            me: Arc::clone(&me),
            store,
            peers: peer_list(&config.peers),
            levels: config.levels,
        };
        let serving = serve(listener, services, peers, stop.clone());
        let ended = stop.clone();
        let batching = async move {
            tokio::select! {
                biased;
                () = ended.cancelled() => {}
                () = batching => {}
            }
        };
        let serving = Some(tokio::spawn(serving));
        let mut tasks = vec![tokio::spawn(batching), tokio::spawn(leading)];
        let (me, raft) = (Arc::clone(&members.me), raft);
        let formation = Formation {
            me: Arc::clone(&me),
            address,
            peers: config.peers,
            stands_by: config.joined.is_some(),
            raft: raft.clone(),
            network,
            stop: stop.clone(),
        };
        let stands_alone = formation.stand_alone().await.map_err(CoordinatorError::Raft)?;
        tasks.push(tokio::spawn(formation.run()));
        if stands_alone && !sessions.wait_until_leading().await {
            return Err(CoordinatorError::Raft("it stopped while starting".to_owned()));
        }
        info!(%local_addr, "coordinator serves");
        Ok(Coordinator { raft, shared, local_addr, metrics, me, members, stop, serving, tasks })
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

    /// Returns when this node cannot go on, and why: its disk failed, its state differs from the others', or there is no
    /// place for it in the cluster. The process should end then; going on would answer nothing.
    pub async fn failed(&self) -> String {
        tokio::select! {
            biased;
            reason = self.me.failed() => reason,
            reason = self.raft_failed() => reason,
        }
    }

    async fn raft_failed(&self) -> String {
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

    /// Hands the lead over if it has it, stops serving, then Raft. Nothing that was answered is lost, with or without it.
    pub async fn shutdown(mut self) {
        let metrics = self.raft.server_metrics();
        let leads = metrics.borrow_watched().state.is_leader();
        // What has failed cannot hand over; the others elect all the same.
        if leads
            && may_be_asked(&self.raft)
            && self.members.membership().voter_ids().count() > 1
            && let Err(cause) = self.members.transfer_leader(None).await
        {
            warn!(?cause, "stops without having handed the lead over; the others elect");
        }
        self.stop.cancel();
        // Subscriptions never end by themselves, and the server waits for what is open.
        self.shared.feed.close();
        // Others still ask us; Raft calls it an error when it is asked after its end. A call that waits for Raft ends with Raft.
        if let Some(mut serving) = self.serving.take() {
            match tokio::time::timeout(CALLS_END_WITHIN, &mut serving).await {
                Ok(ended) => report_panic(ended),
                Err(_) => self.tasks.push(serving),
            }
        }
        if let Err(cause) = self.raft.shutdown().await {
            error!(%cause, "Raft did not stop cleanly");
        }
        for task in self.tasks.drain(..) {
            report_panic(task.await);
        }
    }
}

fn report_panic(ended: Result<(), JoinError>) {
    if let Err(cause) = ended
        && cause.is_panic()
    {
        error!(%cause, "a task of the coordinator had panicked");
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
        let leaderless = state.partitions().filter(|(_, _, partition)| partition.leader.is_none());
        metrics.partitions_offline.store(leaderless.count() as u64, Ordering::Relaxed);
        let fenced = state.brokers().filter(|(_, broker)| broker.fenced).count();
        metrics.brokers_fenced.store(fenced as u64, Ordering::Relaxed);
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

async fn serve(listener: TcpListener, services: Services, peers: RaftPeers, stop: CancellationToken) {
    let limit = MESSAGE_BYTES_MAX;
    // Answers are small and leave in several pieces; each would wait for the other side to acknowledge the one before.
    let incoming = TcpListenerStream::new(listener).map(|stream| {
        let stream = stream?;
        if let Err(cause) = stream.set_nodelay(true) {
            warn!(%cause, "a connection will be slow");
        }
        Ok::<_, std::io::Error>(Tracked::new(stream))
    });
    let served = Server::builder()
        .add_service(RaftServer::new(peers).max_decoding_message_size(RAFT_BYTES_MAX))
        .add_service(RegistryServer::new(services.clone()).max_decoding_message_size(limit))
        .add_service(GroupServer::new(services.clone()).max_decoding_message_size(limit))
        .add_service(NodesServer::new(services.clone()).max_decoding_message_size(SMALL_BYTES_MAX))
        .add_service(AdminServer::new(services).max_decoding_message_size(limit))
        .serve_with_incoming_shutdown(incoming, stop.cancelled_owned())
        .await;
    if let Err(cause) = served {
        error!(%cause, "the coordinator's gRPC server ended");
    }
}

fn raft_config(config: &CoordinatorConfig) -> Result<openraft::Config, CoordinatorError> {
    let wanted = openraft::Config {
        cluster_name: "thalweg".to_owned(),
        // A leader that is gone is replaced after the upper timeout, which is its lease too, and a random one: 0.9 to 1.2 s.
        heartbeat_interval: 100,
        election_timeout_min: 300,
        election_timeout_max: 600,
        // A node that was away asks first whether it could win; else its terms would depose a leader that is well.
        enable_pre_vote: Some(true),
        snapshot_policy: SnapshotPolicy::LogsSinceLast(config.snapshot_every_entries),
        max_in_snapshot_log_to_keep: config.log_kept_entries,
        // The mark of what is committed is not synced, so after a crash a leader may not know what it had answered. A new
        // election ends in an entry of a new term, and with that commits everything before it.
        enable_leader_restore: Some(false),
        ..openraft::Config::default()
    };
    wanted.validate().map_err(|cause| CoordinatorError::Raft(cause.to_string()))
}

const CALLS_END_WITHIN: Duration = Duration::from_millis(500);
/// Of calls by machines that are no nodes yet.
const SMALL_BYTES_MAX: usize = 64 << 10;
const MESSAGE_BYTES_MAX: usize = 128 << 20;
/// An entry may carry the largest message that was taken.
const RAFT_BYTES_MAX: usize = MESSAGE_BYTES_MAX + (4 << 20);
