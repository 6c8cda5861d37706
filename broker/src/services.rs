//! What every handler works with.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use thalweg_model::{ErrorCode, NodeId, PartitionIndex, TopicConfig};
use thalweg_wire::inspect::ClientReport;
use thalweg_world::Clock;
use tokio::sync::{mpsc, watch};

use crate::config::BrokerConfig;
use crate::machine::clients::ClientKinds;
use crate::machine::image::{ConfigScope, Image};
use crate::machine::move_pace::MovePace;
use crate::machine::suspects::Suspects;
use crate::metrics::Metrics;
use crate::shell::arrivals::Arrivals;
use crate::shell::coordinators::Coordinators;
use crate::shell::dirs::Dirs;
use crate::shell::endpoints;
use crate::shell::flusher::Flushers;
use crate::shell::group_calls::GroupCalls;
use crate::shell::isr::ProposalQueue;
use crate::shell::partitions::Partitions;
use crate::shell::producer_ids::ProducerIds;
use crate::shell::sessions::SharedSessions;
use crate::shell::warmer::Warmer;
use crate::shell::worker::{LeaseCell, WorkerEnv, Workers};

/// One per broker, shared by every connection.
pub struct Services {
    pub config: BrokerConfig,
    pub clock: Clock,
    /// This machine's, as of the start.
    pub own_addresses: Vec<IpAddr>,
    pub coordinators: Arc<Coordinators>,
    pub groups: GroupCalls,
    pub metrics: Arc<Metrics>,
    pub partitions: Partitions,
    pub fetch_sessions: SharedSessions,
    pub warmer: Warmer,
    pub producer_ids: ProducerIds,
    pub flushers: Arc<Flushers>,
    pub lease: Arc<LeaseCell>,
    pub worker_env: WorkerEnv,
    pub clients: SeenClients,
    pub arrivals: Arc<Arrivals>,
    /// For all that replicas moved here copy.
    pub move_pace: Mutex<MovePace>,
    pub suspects: Mutex<Suspects>,
    workers: Workers,
    /// Until the task that sends them takes it.
    proposals: Mutex<Option<ProposalQueue>>,
    dirs: OnceLock<Arc<Dirs>>,
    image: Arc<ArcSwap<Image>>,
    /// The coordinator's index that this broker has brought about: logs exist, leaders lead.
    applied: watch::Sender<u64>,
    node_id: OnceLock<NodeId>,
}

impl Services {
    /// # Errors
    /// A worker thread cannot be started.
    pub fn new(config: BrokerConfig, clock: Clock, metrics: Arc<Metrics>) -> io::Result<Services> {
        let coordinators = Arc::new(Coordinators::new(config.coordinators.clone()));
        let flushers = Arc::new(Flushers::new(config.log_dirs.iter().cloned(), &metrics));
        let lease = Arc::new(LeaseCell::default());
        let image = Arc::new(ArcSwap::from_pointee(Image::default()));
        let (proposals, queue) = mpsc::unbounded_channel();
        let now = clock.mono();
        let env = WorkerEnv {
            clock: clock.clone(),
            flushers: Arc::clone(&flushers),
            metrics: Arc::clone(&metrics),
            lease: Arc::clone(&lease),
            image: Arc::clone(&image),
            proposals,
        };
        let workers = Workers::start(config.worker_count(), config.properties.size("queued.max.requests"), &env)?;
        Ok(Services {
            fetch_sessions: SharedSessions::new(config.properties.size("max.incremental.fetch.session.cache.slots")),
            groups: GroupCalls::new(Arc::clone(&coordinators)),
            partitions: Partitions::default(),
            warmer: Warmer::new(COLD_READS_MAX),
            producer_ids: ProducerIds::default(),
            config,
            clock,
            own_addresses: endpoints::interfaces().into_iter().map(|interface| interface.address).collect(),
            coordinators,
            metrics,
            flushers,
            lease,
            worker_env: env,
            clients: SeenClients::default(),
            arrivals: Arc::default(),
            move_pace: Mutex::new(MovePace::new(now, MOVE_RATE_FIRST)),
            suspects: Mutex::default(),
            workers,
            proposals: Mutex::new(Some(queue)),
            dirs: OnceLock::new(),
            image,
            applied: watch::Sender::new(0),
            node_id: OnceLock::new(),
        })
    }

    /// Makes the log start offsets of a directory durable.
    ///
    /// # Errors
    /// The disk failed.
    pub async fn checkpoint_log_starts(&self, dir: &Path) -> Result<(), ErrorCode> {
        let dir = self.dirs.get().and_then(|dirs| dirs.at(dir)).map(Arc::clone).ok_or(ErrorCode::KafkaStorageError)?;
        let written = tokio::task::spawn_blocking(move || dir.write_checkpoints()).await;
        match written {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(ErrorCode::KafkaStorageError),
        }
    }

    /// `None` before they are open.
    pub fn dirs(&self) -> Option<&Arc<Dirs>> {
        self.dirs.get()
    }

    pub(crate) fn set_dirs(&self, dirs: Dirs) -> Arc<Dirs> {
        Arc::clone(self.dirs.get_or_init(|| Arc::new(dirs)))
    }

    pub fn workers(&self) -> &Workers {
        &self.workers
    }

    /// What leaders propose for their ISRs; only the first caller gets it.
    pub(crate) fn take_proposals(&self) -> Option<ProposalQueue> {
        self.proposals.lock().expect("no code panics while it holds this lock").take()
    }

    /// Whether the broker's lease stands (REPLICATION B4).
    pub fn may_lead(&self) -> bool {
        self.lease.may_lead(self.clock.mono())
    }

    /// This broker. Nothing is served before the coordinator has said who it is.
    ///
    /// # Panics
    /// Before the first registration: an error of the program.
    pub fn node_id(&self) -> NodeId {
        *self.node_id.get().expect("listeners start after registration")
    }

    pub(crate) fn set_node_id(&self, id: NodeId) {
        self.node_id.get_or_init(|| id);
    }

    /// The cluster as of now. Take it once per request, so that one answer does not mix two states.
    pub fn image(&self) -> Guard<Arc<Image>> {
        self.image.load()
    }

    pub(crate) fn set_image(&self, image: Arc<Image>) {
        self.image.store(image);
    }

    pub(crate) fn set_applied(&self, index: u64) {
        self.applied.send_if_modified(|applied| {
            let moved = index > *applied;
            *applied = (*applied).max(index);
            moved
        });
    }

    pub fn applied_index(&self) -> u64 {
        *self.applied.borrow()
    }

    /// As [`Services::applied`], for as long as it takes.
    pub(crate) async fn reached(&self, index: u64) {
        // The sender lives as long as `self`.
        let _ = self.applied.subscribe().wait_for(|applied| *applied >= index).await;
    }

    /// Waits until this broker has brought about what the coordinator committed at `index`, so that a topic serves as soon as
    /// its creation is answered. Gives up after a while: the operation itself has succeeded.
    pub async fn applied(&self, index: u64) {
        let mut applied = self.applied.subscribe();
        let reached = applied.wait_for(|applied| *applied >= index);
        // Either outcome is answered the same way.
        let _ = tokio::time::timeout(APPLIED_WAIT, reached).await;
    }

    /// Why a partition is not among the local ones: it does not exist (3), its log cannot be opened (56), or it is led
    /// elsewhere (6).
    pub fn absent(&self, topic: &str, index: PartitionIndex) -> ErrorCode {
        match self.image().partition(topic, index) {
            None => ErrorCode::UnknownTopicOrPartition,
            Some(found) if found.leader == Some(self.node_id()) => ErrorCode::KafkaStorageError,
            Some(_) => ErrorCode::NotLeaderOrFollower,
        }
    }

    /// A number that may change while brokers run, as it holds for broker `node`: its own before that of all brokers before
    /// what this one's file says.
    pub fn running_number(&self, node: NodeId, name: &str) -> i64 {
        let image = self.image();
        let set = [ConfigScope::Broker(node), ConfigScope::BrokerDefault];
        let set = set.iter().find_map(|scope| image.overrides(scope).get(name)?.parse().ok());
        set.unwrap_or_else(|| self.config.properties.number(name))
    }

    /// A topic's configuration on this broker.
    pub fn topic_config(&self, image: &Image, topic: &str) -> TopicConfig {
        image.topic_config(topic, self.node_id(), &self.config.properties.topic_defaults())
    }
}

/// The clients that have connected, for [`crate::api::inspect`].
#[derive(Debug, Default)]
pub struct SeenClients(Mutex<ClientKinds>);

impl SeenClients {
    pub fn note(&self, software: &str, version: &str) {
        self.kinds().note(software, version);
    }

    pub fn report(&self) -> Vec<ClientReport> {
        self.kinds().report()
    }

    fn kinds(&self) -> MutexGuard<'_, ClientKinds> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes per second, until it has been seen how the disks take it.
const MOVE_RATE_FIRST: u64 = 20 << 20;
const APPLIED_WAIT: Duration = Duration::from_secs(10);
/// Threads that may wait for a disk on behalf of consumers at a time.
const COLD_READS_MAX: usize = 16;
