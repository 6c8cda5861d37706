//! Nodes that can be started, killed and wiped, and a client that finds their leader.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use thalweg_coordinator::store::{Batch, Space, View};
use thalweg_coordinator::{
    Coordinator, CoordinatorConfig, CoordinatorPeer, CoordinatorSettings, Joined, KvStore, MemStore,
};
use thalweg_proto::v1::admin_client::AdminClient;
use thalweg_proto::v1::raft_client::RaftClient;
use thalweg_proto::v1::registry_client::RegistryClient;
use thalweg_proto::v1::*;
use thalweg_world::Clock;
use tokio::runtime::{Builder, Runtime};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status};

/// Nodes of one test. Stopped when dropped.
pub struct Nodes {
    /// Tests run side by side: each has addresses of its own.
    number: u8,
    pub founders: Vec<u64>,
    stores: BTreeMap<u64, Arc<MemStore>>,
    running: BTreeMap<u64, Running>,
    pub snapshot_every_entries: u64,
    /// Of nodes that are not of the present version.
    pub levels: BTreeMap<u64, Levels>,
    /// Nodes that joined with a token, and the cluster that they joined.
    pub joined: BTreeMap<u64, String>,
    pub replacement_delay_ms: u64,
    /// Of the leader that answered last.
    known: Mutex<String>,
}

struct Running {
    coordinator: Arc<Coordinator>,
    runtime: Runtime,
}

impl Nodes {
    /// None is started yet.
    pub fn new(founders: &[u64]) -> Nodes {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (stores, running) = (BTreeMap::new(), BTreeMap::new());
        Nodes {
            number,
            founders: founders.to_vec(),
            stores,
            running,
            snapshot_every_entries: 20_000,
            levels: BTreeMap::new(),
            joined: BTreeMap::new(),
            replacement_delay_ms: 600_000,
            known: Mutex::default(),
        }
    }

    /// Three that lead, follow and answer.
    pub async fn three() -> Nodes {
        Nodes::new(&[1, 2, 3]).started().await
    }

    pub async fn started(mut self) -> Nodes {
        for id in self.founders.clone() {
            self.start(id).await;
        }
        self.leader().await;
        self
    }

    /// In the range of loopback addresses, where no outgoing connection takes a port away; apart from other processes'.
    pub fn address(&self, id: u64) -> String {
        let process = std::process::id();
        format!("127.{}.{}.{id}:{}", 1 + (process >> 8) % 254, process % 256, 21_000 + u16::from(self.number))
    }

    fn config(&self, id: u64) -> CoordinatorConfig {
        let peer = |id: &u64| CoordinatorPeer { id: *id, address: self.address(*id) };
        CoordinatorConfig {
            node_id: id,
            listen: self.address(id).parse::<SocketAddr>().unwrap(),
            peers: self.founders.iter().map(peer).collect(),
            settings: CoordinatorSettings {
                group_initial_rebalance_delay_ms: 0,
                // Brokers here beat only when a test is about that.
                broker_lease_ms: 600_000,
                coordinator_replacement_delay_ms: self.replacement_delay_ms,
                ..CoordinatorSettings::default()
            },
            joined: self.joined.get(&id).map(|cluster_id| Joined { cluster_id: cluster_id.clone() }),
            snapshot_every_entries: self.snapshot_every_entries,
            log_kept_entries: 10,
            levels: self.levels.get(&id).copied().unwrap_or_else(Levels::ours),
            ..CoordinatorConfig::default()
        }
    }

    /// With what its disk kept, if it ran before.
    pub async fn start(&mut self, id: u64) {
        self.try_start(id).await.unwrap();
    }

    /// As [`Nodes::start`]; `Err` with the reason if it does not begin.
    pub async fn try_start(&mut self, id: u64) -> Result<(), String> {
        let store = Arc::new(self.stores.get(&id).map_or_else(MemStore::new, |store| store.power_cut()));
        self.stores.insert(id, Arc::clone(&store));
        let config = self.config(id);
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let starting = runtime.spawn(Coordinator::start(config, store, Clock::real()));
        match starting.await.unwrap() {
            Ok(coordinator) => {
                self.running.insert(id, Running { coordinator: Arc::new(coordinator), runtime });
                Ok(())
            }
            Err(cause) => {
                end(runtime);
                Err(cause.to_string())
            }
        }
    }

    /// As by SIGKILL and a power cut: nothing is said to anybody, and what was not synced is lost.
    pub fn kill(&mut self, id: u64) {
        let Running { coordinator, runtime } = self.running.remove(&id).unwrap();
        // In this order: its connections break, and nothing is left that could say good-bye.
        end(runtime);
        drop(coordinator);
    }

    /// An orderly stop.
    pub async fn stop(&mut self, id: u64) {
        let Running { coordinator, runtime } = self.running.remove(&id).unwrap();
        let coordinator = Arc::try_unwrap(coordinator).unwrap_or_else(|_| panic!("coordinator {id} is in use"));
        runtime.spawn(coordinator.shutdown()).await.unwrap();
        end(runtime);
    }

    /// The disk of a node that does not run is lost.
    pub fn wipe(&mut self, id: u64) {
        assert!(!self.running.contains_key(&id));
        self.stores.remove(&id);
    }

    /// Flips a bit of what a node that does not run remembers.
    pub fn falsify_hash(&mut self, id: u64) {
        use prost::Message;
        let store = self.stores[&id].power_cut();
        let bytes = store.value(Space::Meta, b"applied").unwrap().unwrap();
        let mut applied = Applied::decode(&bytes[..]).unwrap();
        applied.hash ^= 1;
        let mut batch = Batch::default();
        batch.put(Space::Meta, b"applied".to_vec(), applied.encode_to_vec());
        store.write(batch).unwrap();
        store.sync().unwrap();
        self.stores.insert(id, Arc::new(store));
    }

    /// The last entry of a node that does not run, in a term that nobody else has seen: it led, and told nobody before it died. Returns its index.
    pub fn append(&mut self, id: u64, membership: Membership) -> u64 {
        use prost::Message;
        let store = self.stores[&id].power_cut();
        let (_, last) = store.last(Space::Log).unwrap().unwrap();
        let last = LogEntry::decode(&last[..]).unwrap().id.unwrap();
        let place = LogId { term: last.term + 1_000, node_id: id, index: last.index + 1 };
        let payload = Some(log_entry::Payload::Membership(membership));
        let mut batch = Batch::default();
        let vote = Vote { term: place.term, node_id: id, committed: true };
        batch.put(Space::Meta, b"vote".to_vec(), vote.encode_to_vec());
        let key = place.index.to_be_bytes().to_vec();
        batch.put(Space::Log, key, LogEntry { id: Some(place), payload }.encode_to_vec());
        store.write(batch).unwrap();
        store.sync().unwrap();
        self.stores.insert(id, Arc::new(store));
        place.index
    }

    pub fn coordinator(&self, id: u64) -> &Arc<Coordinator> {
        &self.running[&id].coordinator
    }

    /// Returns when the node cannot go on, and why.
    pub async fn failed(&self, id: u64) -> String {
        let coordinator = Arc::clone(self.coordinator(id));
        within("to give up", async move { coordinator.failed().await }).await
    }

    pub fn channel(&self, id: u64) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address(id))).unwrap();
        endpoint.connect_timeout(Duration::from_secs(1)).connect_lazy()
    }

    pub async fn identify(&self, id: u64) -> IdentifyResponse {
        RaftClient::new(self.channel(id)).identify(IdentifyRequest {}).await.unwrap().into_inner()
    }

    /// Who leads and answers, by what it says itself.
    pub async fn leader(&self) -> u64 {
        self.call(|channel| async move {
            let mut admin = AdminClient::new(channel);
            // Answered by the leader alone.
            admin.create_topics(CreateTopicsRequest::default()).await?;
            let nodes = admin.describe_coordinators(DescribeCoordinatorsRequest {}).await?.into_inner().nodes;
            nodes.iter().find(|node| node.leader).map(|node| Response::new(node.id)).ok_or(Status::unknown("nobody"))
        })
        .await
    }

    /// Asks whoever leads, for as long as it takes; a call that had no effect is repeated. One whose outcome is not known
    /// fails the test: see [`Nodes::try_call`].
    pub async fn call<T, F, Fut>(&self, mut call: F) -> T
    where
        F: FnMut(Channel) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        within("an answer", async {
            loop {
                if let Some(answer) = self.try_call(&mut call).await {
                    return answer;
                }
            }
        })
        .await
    }

    /// As [`Nodes::call`]; `None` if the outcome is not known.
    pub async fn try_call<T, F, Fut>(&self, mut call: F) -> Option<T>
    where
        F: FnMut(Channel) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let mut ids = self.running.keys().copied().collect::<Vec<_>>().into_iter().cycle();
        let mut address = self.known.lock().unwrap().clone();
        if address.is_empty() {
            address = self.address(ids.next().unwrap());
        }
        loop {
            let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
            let channel = endpoint.connect_timeout(Duration::from_secs(1)).connect_lazy();
            match call(channel).await {
                Ok(answer) => {
                    *self.known.lock().unwrap() = address;
                    return Some(answer.into_inner());
                }
                Err(status) => {
                    let leader =
                        status.metadata().get("thalweg-leader").map(|value| value.to_str().unwrap().to_owned());
                    match (status.code(), leader) {
                        (Code::Unavailable, Some(leader)) if !leader.is_empty() => {
                            address = leader.split_once('@').unwrap().1.to_owned();
                        }
                        (Code::Unavailable, Some(_)) => address = self.address(ids.next().unwrap()),
                        (Code::Unavailable, None) if status.message().contains("tcp connect") => {
                            address = self.address(ids.next().unwrap());
                        }
                        _ => return None,
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
    }

    pub async fn create(&self, name: &str) -> CreateTopicsResponse {
        self.call(|channel| create_topic(channel, name.to_owned())).await
    }

    /// A broker that may lead.
    pub async fn join_broker(&self, id: i32) -> RegisterBrokerResponse {
        let registered = self.call(|channel| register(channel, id)).await;
        let beat = BrokerHeartbeatRequest {
            broker_id: id,
            broker_epoch: registered.broker_epoch,
            metadata_index: registered.index,
            levels: Some(Levels::ours()),
            ..BrokerHeartbeatRequest::default()
        };
        let answer = self.call(|channel| broker_beat(channel, beat.clone())).await;
        assert_eq!((answer.error, answer.fenced), (Some(KafkaError::default()), false));
        registered
    }

    /// The topics that a node has applied.
    pub fn topics(&self, id: u64) -> Vec<String> {
        let machine = self.coordinator(id).shared().machine();
        machine.state().topics().map(|(name, _)| name.to_owned()).collect()
    }

    /// Returns once a node has applied what another one has.
    pub async fn wait_until_equal(&self, id: u64, other: u64) {
        within("to catch up", async {
            loop {
                let progress = |id| self.coordinator(id).shared().machine().progress();
                if progress(id) == progress(other) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
        let state = |id| self.coordinator(id).shared().machine().state().clone();
        assert_eq!(state(id), state(other));
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for id in self.running.keys().copied().collect::<Vec<_>>() {
            self.kill(id);
        }
    }
}

/// Returns when nothing of it is left, so that its address is free. A runtime cannot be waited for on another one's threads.
fn end(runtime: Runtime) {
    std::thread::spawn(move || runtime.shutdown_timeout(Duration::from_secs(10))).join().unwrap();
}

pub async fn create_topic(channel: Channel, name: String) -> Result<Response<CreateTopicsResponse>, Status> {
    let topic = NewTopic { name, partitions: 1, replication_factor: 1, ..NewTopic::default() };
    let request = CreateTopicsRequest { topics: vec![topic], ..CreateTopicsRequest::default() };
    AdminClient::new(channel).create_topics(request).await
}

pub async fn register(channel: Channel, id: i32) -> Result<Response<RegisterBrokerResponse>, Status> {
    let request = RegisterBrokerRequest {
        broker_id: id,
        incarnation: 1,
        boot_id: "boot".into(),
        log_dirs: vec![LogDir { dir_id: vec![id as u8; 16].into(), ..LogDir::default() }],
        endpoints: vec![BrokerEndpoint {
            listener: "PLAINTEXT".into(),
            host: "h".into(),
            port: 9092,
            ..BrokerEndpoint::default()
        }],
        levels: Some(Levels::ours()),
        ..RegisterBrokerRequest::default()
    };
    RegistryClient::new(channel).register_broker(request).await
}

pub async fn broker_beat(
    channel: Channel,
    beat: BrokerHeartbeatRequest,
) -> Result<Response<BrokerHeartbeatResponse>, Status> {
    RegistryClient::new(channel).broker_heartbeat(beat).await
}

/// Fails a test that would wait for ever; no test depends on how long it is.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let started = Instant::now();
    match tokio::time::timeout(Duration::from_secs(60), future).await {
        Ok(value) => value,
        Err(_) => panic!("waited {:?} for {what}", started.elapsed()),
    }
}

type BrokerEndpoint = thalweg_proto::v1::Endpoint;
