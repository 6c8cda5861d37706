//! A cluster as one thing to call: connections by node, metadata, retries.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use thalweg_model::{ErrorCode, LeaderEpoch, NodeId};
use thalweg_wire::codec::Request;
use thalweg_wire::messages::metadata::MetadataRequestTopic;
use thalweg_wire::messages::{FindCoordinatorRequest, MetadataRequest};
use thalweg_world::Clock;
use tracing::debug;

use crate::backoff::Backoff;
use crate::config::ClientConfig;
use crate::error::{ClientError, Result};
use crate::metadata::{Metadata, TopicInfo};
use crate::net::{Connection, ConnectionConfig};

/// The entry to a cluster. Cheap to clone; clones share connections and metadata.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
}

/// Which of a node's connections. A broker answers in order, so what waits long has one of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    Control,
    Produce(OwnerId),
    Fetch(OwnerId),
    /// Joins wait for the whole group; heartbeats must not wait behind them.
    Join(OwnerId),
    Group(OwnerId),
}

/// A producer or consumer: what one of them waits for must not hold up another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OwnerId(u64);

impl Lane {
    fn owner(self) -> Option<OwnerId> {
        match self {
            Lane::Control => None,
            Lane::Produce(owner) | Lane::Fetch(owner) | Lane::Join(owner) | Lane::Group(owner) => Some(owner),
        }
    }
}

#[derive(Debug)]
struct Inner {
    config: ClientConfig,
    clock: Clock,
    metadata: Mutex<Arc<Metadata>>,
    /// Topics whose metadata is kept fresh.
    tracked: Mutex<BTreeSet<String>>,
    /// Held while metadata is asked for; says when it last came.
    refreshing: tokio::sync::Mutex<Option<Instant>>,
    slots: Mutex<Slots>,
    next_owner: AtomicU64,
}

type Slots = BTreeMap<(Target, Lane), Arc<tokio::sync::Mutex<Slot>>>;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Node(NodeId),
    Bootstrap(String),
}

/// One connection, or the wait until it may be tried again.
#[derive(Debug)]
struct Slot {
    connection: Option<Connection>,
    backoff: Backoff,
    retry_at: Option<Instant>,
}

impl Client {
    /// Connects to the first bootstrap address that answers.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`] if none does.
    pub async fn connect(config: ClientConfig) -> Result<Client> {
        if config.bootstrap.is_empty() {
            return Err(ClientError::InvalidUse {
                what: "no broker address was given".to_owned(),
                remedy: "give at least one host:port".to_owned(),
            });
        }
        let client = Client {
            inner: Arc::new(Inner {
                config,
                clock: Clock::real(),
                metadata: Mutex::default(),
                tracked: Mutex::default(),
                refreshing: tokio::sync::Mutex::default(),
                slots: Mutex::default(),
                next_owner: AtomicU64::new(0),
            }),
        };
        client.ask_metadata(Some(Vec::new()), false).await?;
        Ok(client)
    }

    pub fn config(&self) -> &ClientConfig {
        &self.inner.config
    }

    /// A name for a new producer or consumer.
    pub(crate) fn new_owner(&self) -> OwnerId {
        OwnerId(self.inner.next_owner.fetch_add(1, Ordering::Relaxed))
    }

    /// Closes the connections of a producer or consumer that has ended, once nobody waits on them.
    pub(crate) fn release(&self, owner: OwnerId) {
        self.slots().retain(|(_, lane), _| lane.owner() != Some(owner));
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.inner.clock
    }

    /// The last snapshot.
    pub fn metadata(&self) -> Arc<Metadata> {
        Arc::clone(&self.inner.metadata.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Everything: all brokers and all topics, asked for now.
    ///
    /// # Errors
    /// No broker answers.
    pub async fn fetch_all_metadata(&self) -> Result<Metadata> {
        self.ask_metadata(None, false).await
    }

    /// These topics as they are now, in one question; the snapshot takes them up. Missing ones are not created.
    pub(crate) async fn ask_topics(&self, names: Vec<String>) -> Result<Metadata> {
        let found = self.ask_metadata(Some(names), false).await?;
        let good = found.topics.values().filter(|topic| topic.error.is_none());
        self.tracked().extend(good.map(|topic| topic.name.clone()));
        Ok(found)
    }

    /// A topic's metadata: from the snapshot if it is known, else asked for. Keeps it fresh from now on.
    ///
    /// `create`: let the broker create the topic if it may.
    ///
    /// # Errors
    /// [`ClientError::UnknownTopic`] if it does not exist, or is not created in time; what the broker says of it.
    pub async fn topic(&self, name: &str, create: bool) -> Result<TopicInfo> {
        if let Some(topic) = self.metadata().topic(name).filter(|topic| topic.error.is_none()) {
            return Ok(topic.clone());
        }
        self.fetch_topic(name, create).await
    }

    /// As [`Client::topic`], but never from the snapshot.
    ///
    /// # Errors
    /// As [`Client::topic`].
    pub async fn fetch_topic(&self, name: &str, create: bool) -> Result<TopicInfo> {
        let mut backoff = self.backoff();
        let deadline = Instant::now() + self.inner.config.request_timeout;
        let mut unknown_count = 0;
        loop {
            let found = self.ask_metadata(Some(vec![name.to_owned()]), create).await?;
            let error = match found.topic(name) {
                Some(topic) => match topic.error {
                    None => {
                        self.tracked().insert(name.to_owned());
                        return Ok(topic.clone());
                    }
                    Some(code) => code,
                },
                None => ErrorCode::UnknownTopicOrPartition as i16,
            };
            if error == ErrorCode::UnknownTopicOrPartition as i16 {
                // A topic that was created a moment ago may not have reached this broker.
                unknown_count += 1;
                if unknown_count > if create { UNKNOWN_TRIES_CREATING } else { UNKNOWN_TRIES } {
                    self.forget_topic(name);
                    return Err(ClientError::UnknownTopic { topic: name.to_owned() });
                }
            } else if !ErrorCode::from_code(error).is_some_and(ErrorCode::is_retriable) {
                return Err(ClientError::from_code(error, format!("topic {name}"), None));
            }
            if Instant::now() >= deadline {
                return Err(ClientError::from_code(error, format!("topic {name}"), None));
            }
            tokio::time::sleep(backoff.next(rand::random())).await;
        }
    }

    /// Forgets a topic that is gone, so that it is not asked for again.
    pub(crate) fn forget_topic(&self, name: &str) {
        self.tracked().remove(name);
        let mut metadata = self.inner.metadata.lock().unwrap_or_else(PoisonError::into_inner);
        *metadata = Arc::new(metadata.without_topic(name));
    }

    /// Asks again for the tracked topics. Calls that come while one is under way share its answer.
    ///
    /// # Errors
    /// No broker answers.
    pub(crate) async fn refresh_metadata(&self) -> Result<()> {
        let asked_at = Instant::now();
        let last = self.inner.refreshing.lock().await;
        if last.is_some_and(|last| last > asked_at) {
            return Ok(());
        }
        drop(last);
        let names: Vec<String> = self.tracked().iter().cloned().collect();
        self.ask_metadata(Some(names), false).await.map(|_| ())
    }

    /// Asks again if the snapshot is older than the configured age.
    pub(crate) async fn refresh_metadata_if_old(&self) -> Result<()> {
        let last = *self.inner.refreshing.lock().await;
        match last {
            Some(last) if last.elapsed() < self.inner.config.metadata_max_age => Ok(()),
            _ => self.refresh_metadata().await,
        }
    }

    /// The leader of a partition from the snapshot.
    pub(crate) fn leader(&self, topic: &str, partition: i32) -> Option<(NodeId, LeaderEpoch)> {
        self.metadata().leader(topic, partition)
    }

    /// Calls any broker: live ones first, then the bootstrap addresses, each once.
    pub(crate) async fn call_any<R: Request>(&self, request: &R) -> Result<R::Response> {
        let connection = self.any_connection().await?;
        connection.call(request, Duration::ZERO).await
    }

    /// Calls the controller, as Kafka's admin client does; any broker if none is named.
    pub(crate) async fn call_controller<R: Request>(&self, request: &R, extra: Duration) -> Result<R::Response> {
        match self.metadata().controller {
            Some(node) => self.call_node(node, Lane::Control, request, extra).await,
            None => self.any_connection().await?.call(request, extra).await,
        }
    }

    pub(crate) async fn call_node<R: Request>(
        &self,
        node: NodeId,
        lane: Lane,
        request: &R,
        extra: Duration,
    ) -> Result<R::Response> {
        self.connection(node, lane).await?.call(request, extra).await
    }

    /// A connection to a node of the snapshot; made if there is none, after the wait that earlier failures demand.
    pub(crate) async fn connection(&self, node: NodeId, lane: Lane) -> Result<Connection> {
        let address = self.metadata().brokers.get(&node).map(crate::metadata::BrokerInfo::address);
        match address {
            Some(address) => self.connect_to(Target::Node(node), lane, &address).await,
            None => Err(ClientError::Disconnected {
                address: format!("broker {node}"),
                cause: "it is not in the cluster's list of live brokers".to_owned(),
            }),
        }
    }

    /// Who coordinates a group; its address is in the snapshot afterwards.
    ///
    /// # Errors
    /// After retries within the request timeout.
    pub(crate) async fn find_group_coordinator(&self, group_id: &str) -> Result<NodeId> {
        let request = FindCoordinatorRequest {
            key: group_id.to_owned(),
            key_type: 0,
            coordinator_keys: vec![group_id.to_owned()],
        };
        self.retrying(|| async {
            let answer = self.call_any(&request).await?;
            let (code, node, message) = match answer.coordinators.first() {
                Some(found) => (found.error_code, found.node_id, found.error_message.clone()),
                None => (answer.error_code, answer.node_id, answer.error_message),
            };
            ClientError::check(code, || format!("coordinator of group {group_id}"), message)?;
            let node = NodeId(node);
            if !self.metadata().brokers.contains_key(&node) {
                self.refresh_metadata().await?;
            }
            Ok(node)
        })
        .await
    }

    /// Runs `call` until it succeeds, fails for good or the request timeout has passed. Metadata is refreshed
    /// between tries.
    pub(crate) async fn retrying<T, F>(&self, call: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut backoff = self.backoff();
        let deadline = Instant::now() + self.inner.config.request_timeout;
        loop {
            match call().await {
                Err(error) if error.is_retriable() && Instant::now() < deadline => {
                    debug!(%error, "call failed, trying again");
                    tokio::time::sleep(backoff.next(rand::random())).await;
                    if let Err(error) = self.refresh_metadata().await {
                        debug!(%error, "no fresh metadata");
                    }
                }
                result => return result,
            }
        }
    }

    pub(crate) fn backoff(&self) -> Backoff {
        Backoff::new(self.inner.config.backoff, self.inner.config.backoff_max)
    }

    fn tracked(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.inner.tracked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `topics`: `None` for all. Returns what the broker said; the snapshot takes it up unless all were asked for.
    async fn ask_metadata(&self, topics: Option<Vec<String>>, create: bool) -> Result<Metadata> {
        let mut last = self.inner.refreshing.lock().await;
        let connection = self.any_connection().await?;
        // Version 0 knows no "none": it would list all topics, which is only more than asked for.
        let request = MetadataRequest {
            topics: topics.as_ref().map(|names| {
                let named = |name: &String| MetadataRequestTopic { name: Some(name.clone()), ..Default::default() };
                names.iter().map(named).collect()
            }),
            allow_auto_topic_creation: create,
            ..MetadataRequest::default()
        };
        let answer = connection.call(&request, Duration::ZERO).await?;
        ClientError::check(answer.error_code, || "cluster metadata".to_owned(), None)?;
        let found = Metadata::from_answer(&answer);
        let mut metadata = self.inner.metadata.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = if topics.is_some() { found.clone() } else { Metadata { topics: BTreeMap::new(), ..found.clone() } };
        *metadata = Arc::new(metadata.merged(kept));
        *last = Some(Instant::now());
        Ok(found)
    }

    /// An open connection if there is one, else the first that can be made.
    async fn any_connection(&self) -> Result<Connection> {
        let metadata = self.metadata();
        let mut targets: Vec<(Target, String)> =
            metadata.brokers.values().map(|broker| (Target::Node(broker.node), broker.address())).collect();
        // Spread the load of many clients over the brokers; connections that exist come first anyway.
        if !targets.is_empty() {
            let shift = rand::random::<u32>() as usize % targets.len();
            targets.rotate_left(shift);
        }
        let bootstrap = self.inner.config.bootstrap.iter();
        targets.extend(bootstrap.map(|address| (Target::Bootstrap(address.clone()), address.clone())));
        for (target, _) in &targets {
            if let Some(connection) = self.open_connection(target) {
                return Ok(connection);
            }
        }
        let mut causes: BTreeMap<String, ClientError> = BTreeMap::new();
        for (target, address) in targets {
            match self.connect_to(target, Lane::Control, &address).await {
                Ok(connection) => return Ok(connection),
                Err(error) => {
                    debug!(%address, %error, "broker not reached");
                    causes.insert(address, error);
                }
            }
        }
        Err(unreachable(&causes))
    }

    fn open_connection(&self, target: &Target) -> Option<Connection> {
        let slot = Arc::clone(self.slots().get(&(target.clone(), Lane::Control))?);
        let slot = slot.try_lock().ok()?;
        slot.connection.clone().filter(|connection| !connection.is_closed())
    }

    async fn connect_to(&self, target: Target, lane: Lane, address: &str) -> Result<Connection> {
        let slot = {
            let backoff = self.backoff();
            let new = || Arc::new(tokio::sync::Mutex::new(Slot { connection: None, backoff, retry_at: None }));
            Arc::clone(self.slots().entry((target, lane)).or_insert_with(new))
        };
        let mut slot = slot.lock().await;
        if let Some(connection) = &slot.connection
            && !connection.is_closed()
            && connection.address() == address
        {
            return Ok(connection.clone());
        }
        slot.connection = None;
        if let Some(retry_at) = slot.retry_at {
            tokio::time::sleep_until(retry_at.into()).await;
        }
        let config = &self.inner.config;
        let settings = ConnectionConfig {
            client_id: config.client_id.clone(),
            connect_timeout: config.connect_timeout,
            request_timeout: config.request_timeout,
            in_flight_max: config.in_flight_max,
            response_bytes_max: config.response_bytes_max,
        };
        match Connection::open(address, settings).await {
            Ok(connection) => {
                slot.backoff.reset();
                slot.retry_at = None;
                slot.connection = Some(connection.clone());
                Ok(connection)
            }
            Err(error) => {
                slot.retry_at = Some(Instant::now() + slot.backoff.next(rand::random()));
                Err(error)
            }
        }
    }

    fn slots(&self) -> std::sync::MutexGuard<'_, Slots> {
        self.inner.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One error for all addresses that were tried.
fn unreachable(causes: &BTreeMap<String, ClientError>) -> ClientError {
    let addresses = causes.keys().cloned().collect::<Vec<_>>().join(", ");
    let mut reasons: Vec<String> = causes
        .values()
        .map(|error| match error {
            ClientError::Disconnected { cause, .. } => cause.clone(),
            other => other.to_string(),
        })
        .collect();
    reasons.dedup();
    ClientError::Unreachable { addresses, cause: reasons.join("; ") }
}

/// How often a topic may be unknown before it counts as missing.
const UNKNOWN_TRIES: u32 = 2;
/// The same while it is being created.
const UNKNOWN_TRIES_CREATING: u32 = 6;
