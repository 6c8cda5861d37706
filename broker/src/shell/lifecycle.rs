//! A broker's life: open, recover, register, follow the feed, keep the lease; and its orderly end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use thalweg_model::{BrokerEpoch, ErrorCode, NodeId};
use thalweg_proto::v1;
use thalweg_proto::v1::registry_client::RegistryClient;
use thalweg_world::disk::Disk;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info, warn};

use super::coordinators::CoordinatorError;
use super::dirs::{self, Dirs, Identity};
use super::endpoints;
use super::fetcher::Fetchers;
use super::isr;
use super::listener::BoundListener;
use super::reconcile::Reconciler;
use crate::Readiness;
use crate::api::in_time;
use crate::api::metadata::kafka_code;
use crate::config::BrokerConfig;
use crate::error::BrokerError;
use crate::machine::image::ImageBuilder;
use crate::machine::lease::{HeartbeatAnswer, Lease};
use crate::services::Services;

/// What a registration needs to be told again and again.
#[derive(Clone, Debug)]
struct Registrar {
    request: v1::RegisterBrokerRequest,
}

/// The running parts that the lifecycle looks after.
pub struct Life {
    pub services: Arc<Services>,
    pub ready: watch::Sender<Readiness>,
    pub stop: CancellationToken,
    /// Everything that runs until `stop`: while it does, the directories are in use.
    pub tasks: TaskTracker,
    lease: Mutex<Lease>,
}

impl Life {
    pub fn new(services: Arc<Services>, ready: watch::Sender<Readiness>, stop: CancellationToken) -> Arc<Life> {
        Arc::new(Life { services, ready, stop, tasks: TaskTracker::new(), lease: Mutex::default() })
    }

    pub fn broker_epoch(&self) -> Option<BrokerEpoch> {
        self.lease.lock().expect("no code panics while it holds this lock").epoch()
    }

    /// From nothing to a broker that follows the cluster. Waits for as long as it takes where a coordinator is needed.
    ///
    /// # Errors
    /// The directories cannot be used, or the coordinator does not want this broker and will not.
    pub async fn begin(
        self: &Arc<Self>,
        disk: Arc<dyn Disk>,
        opened: Option<Dirs>,
        listeners: &[BoundListener],
    ) -> Result<Arc<Dirs>, BrokerError> {
        let config = &self.services.config;
        let new_ids = dirs::new_directory_ids(config.log_dirs.len());
        let mut request = registration(config, listeners);
        let dirs = match opened {
            Some(dirs) => dirs,
            None => {
                // The first start: the coordinator says who we are, then the directories are made.
                request.log_dirs = new_ids.iter().map(|id| new_dir(id.0)).collect();
                request.incarnation = 1;
                let answer = self.register(&Registrar { request: request.clone() }).await?;
                let identity = Identity { cluster_id: answer.cluster_id, node_id: NodeId(answer.broker_id) };
                open_dirs(disk, config, &identity, &new_ids)?
            }
        };
        let dirs = self.services.set_dirs(dirs);
        let found = {
            let (dirs, ready) = (Arc::clone(&dirs), self.ready.clone());
            let threads = config.properties.size("num.recovery.threads.per.data.dir");
            let recovered = tokio::task::spawn_blocking(move || dirs.recover(threads, &ready)).await;
            recovered.map_err(|error| BrokerError::Recovery { reason: error.to_string() })?
        };
        self.ready.send_replace(Readiness::Registering);
        if let Some(meta) = dirs.all().first().map(|dir| dir.meta()) {
            request.cluster_id = meta.cluster_id.clone();
            request.broker_id = meta.node_id.0;
        }
        request.incarnation = dirs.incarnation();
        request.log_dirs = dirs.describe();
        request.metadata_index = dirs.metadata_index();
        let registrar = Registrar { request };
        let answer = self.register(&registrar).await?;
        let known = Arc::clone(&dirs);
        let (broker_epoch, index) = (answer.broker_epoch, answer.index);
        let noted = tokio::task::spawn_blocking(move || {
            known.write_registration(broker_epoch, index);
            known.forget_failures();
        });
        // Cancelled only at shutdown; the next life then tells it again.
        let _ = noted.await;
        self.services.set_node_id(NodeId(answer.broker_id));
        let fetchers = Fetchers::new(Arc::clone(&self.services), self.tasks.clone(), self.stop.clone());
        let reconciler = Reconciler::new(Arc::clone(&self.services), Arc::clone(&dirs), found, fetchers, answer.index);
        if let Some(proposals) = self.services.take_proposals() {
            self.until_stop(isr::run(Arc::clone(&self.services), proposals));
        }
        self.tasks.spawn(Arc::clone(self).follow_feed(reconciler));
        self.services.reached(answer.index).await;
        self.until_stop(Arc::clone(self).keep_lease(registrar, Arc::clone(&dirs)));
        Ok(dirs)
    }

    /// Runs a task that may be dropped wherever it waits.
    fn until_stop(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = task => {}
            }
        });
    }

    /// Registers. Waits for a coordinator as long as it takes, and for another life of this broker to be fenced a few times as
    /// long as the coordinator may take for that.
    ///
    /// # Errors
    /// [`BrokerError::Refused`]: waiting would not help.
    async fn register(&self, registrar: &Registrar) -> Result<v1::RegisterBrokerResponse, BrokerError> {
        let mut backoff = BACKOFF_FIRST;
        let patience = DUPLICATE_SESSIONS * self.services.config.properties.millis("broker.session.timeout.ms");
        let mut duplicate_since = None;
        let mut wanted = registrar.request.clone();
        loop {
            let result = self.services.coordinators.call(CALL_PATIENCE, |channel| {
                let request = wanted.clone();
                async move { in_time(CALL_TIMEOUT, RegistryClient::new(channel).register_broker(request)).await }
            });
            match result.await {
                Ok(answer) => match kafka_code(answer.error.as_ref()) {
                    ErrorCode::None => {
                        let mut lease = self.lease.lock().expect("no code panics while it holds this lock");
                        lease.registered(BrokerEpoch(answer.broker_epoch));
                        info!(broker_id = answer.broker_id, broker_epoch = answer.broker_epoch, "registered");
                        return Ok(answer);
                    }
                    code => {
                        let reason = answer.error.map(|error| error.message).unwrap_or_default();
                        match code {
                            ErrorCode::InconsistentClusterId | ErrorCode::InvalidRegistration => {
                                return Err(BrokerError::Refused { reason });
                            }
                            ErrorCode::DuplicateBrokerRegistration => match duplicate_since {
                                None => {
                                    warn!(
                                        reason,
                                        ?patience,
                                        "registration refused; waiting for the other to be fenced"
                                    );
                                    duplicate_since = Some(tokio::time::Instant::now());
                                }
                                Some(since) if since.elapsed() >= patience => {
                                    return Err(BrokerError::Refused { reason });
                                }
                                Some(_) => {}
                            },
                            // Our directories are new to the cluster: now we know whose place we take.
                            ErrorCode::StaleBrokerEpoch => {
                                wanted.metadata_index = wanted.metadata_index.max(answer.index)
                            }
                            code => warn!(%code, reason, "registration refused, trying again"),
                        }
                    }
                },
                Err(error) => warn!(%error, "no coordinator takes our registration, trying again"),
            }
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    /// Applies committed records as they come, from wherever the image stands.
    async fn follow_feed(self: Arc<Self>, mut reconciler: Reconciler) {
        let mut builder = ImageBuilder::default();
        let mut backoff = BACKOFF_FIRST;
        loop {
            let outcome = tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                outcome = self.read_feed(&mut builder, &mut reconciler) => outcome,
            };
            match outcome {
                Ok(()) => backoff = BACKOFF_FIRST,
                Err(CoordinatorError::Foreign { reason }) => {
                    return self.fail(&BrokerError::Refused { reason });
                }
                Err(error) => {
                    warn!(%error, "the coordinator's feed broke, reading on from index {}", builder.image().index)
                }
            }
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep(backoff) => backoff = (backoff * 2).min(BACKOFF_MAX),
            }
        }
    }

    /// Returns when the stream ends.
    async fn read_feed(&self, builder: &mut ImageBuilder, reconciler: &mut Reconciler) -> Result<(), CoordinatorError> {
        let request = v1::FeedRequest {
            broker_id: self.services.node_id().0,
            broker_epoch: self.broker_epoch().map_or(-1, |epoch| epoch.0),
            from_index: builder.image().index,
            cluster_id: self.services.dirs().and_then(|dirs| dirs.cluster_id()).unwrap_or_default(),
        };
        let mut stream = self
            .services
            .coordinators
            .call(CALL_PATIENCE, |channel| {
                let request = request.clone();
                let client = RegistryClient::new(channel);
                async move { client.max_decoding_message_size(FEED_MESSAGE_BYTES_MAX).feed(request).await }
            })
            .await?;
        loop {
            let item = match stream.message().await {
                Ok(Some(item)) => item,
                Ok(None) => return Ok(()),
                Err(status) => return Err(CoordinatorError::Unknown { reason: status.to_string() }),
            };
            let Some(changes) = builder.apply(&item) else { continue };
            let image = Arc::new(builder.image());
            check_level(image.level())?;
            reconciler.apply(&image, &changes).await;
            let index = image.index;
            self.services.set_image(image);
            self.services.set_applied(index);
            if changes.brokers {
                // Who may be in sync depends on who lives.
                let now = self.services.clock.mono();
                self.services.workers().tell_all(move |owner| owner.tick(now));
            }
        }
    }

    /// Heartbeats, and registers again when the coordinator has forgotten this life.
    async fn keep_lease(self: Arc<Self>, registrar: Registrar, dirs: Arc<Dirs>) {
        let interval = Duration::from_millis(
            self.services.config.properties.number("broker.heartbeat.interval.ms").unsigned_abs(),
        );
        let mut was_unfenced = false;
        loop {
            let Some(epoch) = self.broker_epoch() else {
                match self.register(&registrar).await {
                    Ok(_) => continue,
                    Err(error) => return self.fail(&error),
                }
            };
            let answer = self.heartbeat(epoch, &dirs, false).await;
            let unfenced = match &answer {
                Ok(answer) => !answer.fenced && self.broker_epoch() == Some(epoch),
                Err(error) => {
                    warn!(%error, "heartbeat failed");
                    self.services.may_lead()
                }
            };
            if unfenced != was_unfenced {
                info!(unfenced, "this broker {}", if unfenced { "serves" } else { "is fenced" });
                was_unfenced = unfenced;
            }
            if unfenced && !self.ready.borrow().is_ready() && self.is_let_in() {
                self.ready.send_replace(Readiness::Ready);
            }
            self.services.metrics.fenced.set(i64::from(!unfenced));
            // Until ready, soon again: being let in is all that is missing. And when nobody answered: the lease runs.
            let is_well = answer.is_ok() && unfenced && self.ready.borrow().is_ready();
            let pause = if is_well { interval } else { interval.min(FENCED_PAUSE) };
            tokio::time::sleep(pause).await;
        }
    }

    /// Serves no more; whoever runs this process ends it.
    fn fail(&self, error: &BrokerError) {
        error!(%error, "the broker cannot go on");
        self.ready.send_replace(Readiness::Failed(error.to_string()));
    }

    /// Whether the feed has brought what let this broker in, and with it the partitions it leads: who then asks for one
    /// is not told to look elsewhere.
    fn is_let_in(&self) -> bool {
        self.services.image().brokers.get(&self.services.node_id()).is_some_and(|broker| !broker.fenced)
    }

    async fn heartbeat(
        &self,
        epoch: BrokerEpoch,
        dirs: &Dirs,
        want_shutdown: bool,
    ) -> Result<v1::BrokerHeartbeatResponse, CoordinatorError> {
        let request = v1::BrokerHeartbeatRequest {
            broker_id: self.services.node_id().0,
            broker_epoch: epoch.0,
            metadata_index: self.services.applied_index(),
            want_fence: false,
            want_shutdown,
            offline_log_dirs: dirs.offline_ids().into_iter().map(|id| id.0.to_vec().into()).collect(),
            offline_replicas: self.offline_replicas(),
            levels: Some(v1::Levels::ours()),
        };
        // Leave to stop is a change that the coordinators agree on, which takes longer than a sign of life.
        let timeout = if want_shutdown { CALL_TIMEOUT } else { HEARTBEAT_TIMEOUT };
        let mut sent = self.services.clock.mono();
        let call = self.services.coordinators.call(HEARTBEAT_PATIENCE, |channel| {
            let request = request.clone();
            sent = self.services.clock.mono();
            async move { in_time(timeout, RegistryClient::new(channel).broker_heartbeat(request)).await }
        });
        let answer = call.await?;
        let verdict = match kafka_code(answer.error.as_ref()) {
            ErrorCode::None if answer.fenced => HeartbeatAnswer::Fenced,
            ErrorCode::None => HeartbeatAnswer::Granted { lease_ms: answer.lease_ms },
            // Registering finds out why.
            ErrorCode::StaleBrokerEpoch | ErrorCode::BrokerIdNotRegistered => HeartbeatAnswer::StaleBrokerEpoch,
            code => {
                warn!(%code, "the coordinator refuses our heartbeats");
                HeartbeatAnswer::Fenced
            }
        };
        let mut lease = self.lease.lock().expect("no code panics while it holds this lock");
        lease.answered(sent, epoch, verdict);
        self.services.lease.set(lease.until());
        Ok(answer)
    }

    /// What is not to be counted on any more, by topic (REPLICATION G2).
    fn offline_replicas(&self) -> Vec<v1::TopicPartitions> {
        let mut topics: BTreeMap<[u8; 16], Vec<i32>> = BTreeMap::new();
        for partition in self.services.partitions.all().into_iter().filter(|partition| partition.is_offline()) {
            topics.entry(partition.topic_id.0).or_default().push(partition.tp().partition.0);
        }
        for (topic, partition) in self.services.partitions.unopened() {
            topics.entry(topic.0).or_default().push(partition.0);
        }
        let named = |(id, partitions): ([u8; 16], Vec<i32>)| v1::TopicPartitions {
            topic_id: id.to_vec().into(),
            partitions,
            ..v1::TopicPartitions::default()
        };
        topics.into_iter().map(named).collect()
    }

    /// Asks the coordinator to move our leaderships away; gives up after a while.
    pub async fn controlled_shutdown(&self, dirs: &Dirs) {
        let ask = async {
            loop {
                let Some(epoch) = self.broker_epoch() else { return };
                match self.heartbeat(epoch, dirs, true).await {
                    Ok(answer) if answer.may_shut_down => return,
                    Ok(_) => tokio::time::sleep(SHUTDOWN_PAUSE).await,
                    Err(error) => {
                        warn!(%error, "stopping without the coordinator's leave");
                        return;
                    }
                }
            }
        };
        if tokio::time::timeout(SHUTDOWN_WAIT, ask).await.is_err() {
            warn!("the coordinator has not moved every leadership away; stopping all the same");
        }
    }
}

/// Closes every log and marks the directories clean. Blocks on nothing but disks.
pub async fn close_logs(services: &Arc<Services>, dirs: &Arc<Dirs>, broker_epoch: Option<BrokerEpoch>) {
    let mut high_watermarks: Vec<thalweg_storage::checkpoint::OffsetCheckpoint> =
        dirs.all().iter().map(|_| Default::default()).collect();
    let mut logs = Vec::new();
    for partition in services.partitions.all() {
        let at = dirs.all().iter().position(|dir| dir.path() == partition.dir);
        if let Ok(owner) = services.workers().release(&partition).await {
            logs.push((partition.dir.clone(), owner.into_log(ErrorCode::NotLeaderOrFollower)));
        }
        if let Some(checkpoint) = at.and_then(|at| high_watermarks.get_mut(at)) {
            checkpoint.insert(partition.tp(), partition.high_watermark());
        }
    }
    let dirs = Arc::clone(dirs);
    let closed = tokio::task::spawn_blocking(move || {
        let mut failed = Vec::new();
        let logs = Mutex::new(logs.into_iter());
        let closed = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..CLOSE_THREADS {
                scope.spawn(|| {
                    loop {
                        let next = logs.lock().expect("no code panics while it holds this lock").next();
                        let Some((dir, log)) = next else { return };
                        let result = log.close();
                        closed.lock().expect("no code panics while it holds this lock").push((dir, result));
                    }
                });
            }
        });
        let closed = closed.into_inner().expect("no code panics while it holds this lock");
        for (dir, result) in closed {
            if let Err(error) = result {
                error!(%error, "a log was not closed cleanly");
                failed.push(dir);
            }
        }
        for (dir, high_watermarks) in dirs.all().iter().zip(&high_watermarks) {
            let clean = dir.write_high_watermarks(high_watermarks).and_then(|()| dir.write_checkpoints());
            if clean.is_ok()
                && !failed.iter().any(|path| path == dir.path())
                && let Err(error) = dir.mark_clean(broker_epoch.map(|epoch| epoch.0))
            {
                error!(%error, dir = %dir.path().display(), "a clean stop could not be marked");
            }
        }
    });
    if closed.await.is_err() {
        error!("the logs were not closed cleanly");
    }
}

/// Opens the directories as `identity`.
///
/// # Errors
/// As [`Dirs::open`].
pub fn open_dirs(
    disk: Arc<dyn Disk>,
    config: &BrokerConfig,
    identity: &Identity,
    new_ids: &[thalweg_model::TopicId],
) -> Result<Dirs, BrokerError> {
    let reserve = config.properties.number("log.dir.reserve.bytes").unsigned_abs();
    Ok(Dirs::open(disk, &config.log_dirs, identity, new_ids, reserve)?)
}

fn registration(config: &BrokerConfig, listeners: &[BoundListener]) -> v1::RegisterBrokerRequest {
    v1::RegisterBrokerRequest {
        cluster_id: String::new(),
        broker_id: config.broker_id.unwrap_or(NodeId::NONE).0,
        incarnation: 0,
        boot_id: dirs::boot_id(),
        log_dirs: Vec::new(),
        endpoints: endpoints::all(listeners, &endpoints::interfaces()),
        rack: config.rack.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        process_id: uuid::Uuid::new_v4().as_bytes().to_vec().into(),
        metadata_index: 0,
        levels: Some(v1::Levels::ours()),
    }
}

/// Whether this program understands what the cluster does since its level was raised (REPLICATION R4).
fn check_level(level: u32) -> Result<(), CoordinatorError> {
    let ours = v1::Levels::ours();
    if level <= ours.max {
        return Ok(());
    }
    let reason = format!(
        "the cluster is at level {level} of thalweg.version, this broker knows levels up to {}; start the newer version",
        ours.max
    );
    Err(CoordinatorError::Foreign { reason })
}

fn new_dir(id: [u8; 16]) -> v1::LogDir {
    v1::LogDir { dir_id: id.to_vec().into(), clean_broker_epoch: -1, ..v1::LogDir::default() }
}

const BACKOFF_FIRST: Duration = Duration::from_millis(20);
const BACKOFF_MAX: Duration = Duration::from_secs(2);
const CALL_PATIENCE: Duration = Duration::from_secs(5);
const CALL_TIMEOUT: Duration = Duration::from_secs(4);
/// So short that a lease outlives a coordinator which falls silent: two of the others can be asked before it ends.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_millis(1500);
const HEARTBEAT_PATIENCE: Duration = Duration::from_secs(2);
const FENCED_PAUSE: Duration = Duration::from_millis(50);
/// Until a process that ended without a word is fenced takes one session, if the coordinators have a leader.
const DUPLICATE_SESSIONS: u32 = 3;
const SHUTDOWN_PAUSE: Duration = Duration::from_millis(50);
const SHUTDOWN_WAIT: Duration = Duration::from_secs(10);
const FEED_MESSAGE_BYTES_MAX: usize = 64 << 20;
const CLOSE_THREADS: usize = 8;
