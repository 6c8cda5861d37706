//! Three coordinators over RocksDB: the disks that a real cluster stands on.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use thalweg_coordinator::{Coordinator, CoordinatorConfig, CoordinatorPeer, KvStore};
use thalweg_coordinator_rocks::RocksStore;
use thalweg_proto::v1::admin_client::AdminClient;
use thalweg_proto::v1::registry_client::RegistryClient;
use thalweg_proto::v1::*;
use thalweg_world::Clock;
use tokio::runtime::{Builder, Runtime};
use tonic::transport::{Channel, Endpoint};

struct Node {
    coordinator: Coordinator,
    runtime: Runtime,
}

/// Loopback addresses of this process alone.
fn address(id: u64) -> String {
    let process = std::process::id();
    format!("127.{}.{}.{id}:21990", 1 + (process >> 8) % 254, process % 256)
}

async fn start(id: u64, dir: &Path) -> Node {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let config = CoordinatorConfig {
        node_id: id,
        listen: address(id).parse::<SocketAddr>().unwrap(),
        peers: [1, 2, 3].map(|id| CoordinatorPeer { id, address: address(id) }).to_vec(),
        snapshot_every_entries: 40,
        log_kept_entries: 5,
        ..CoordinatorConfig::default()
    };
    let store: Arc<dyn KvStore> = Arc::new(RocksStore::open(&dir.join(id.to_string())).unwrap());
    let coordinator = runtime.spawn(Coordinator::start(config, store, Clock::real())).await.unwrap().unwrap();
    Node { coordinator, runtime }
}

/// Nothing is said to the others; returns when its store is closed.
fn kill(node: Node) {
    let Node { coordinator, runtime } = node;
    std::thread::spawn(move || runtime.shutdown_timeout(Duration::from_secs(10))).join().unwrap();
    drop(coordinator);
}

fn channel(id: u64) -> Channel {
    Endpoint::from_shared(format!("http://{}", address(id))).unwrap().connect_lazy()
}

/// Asks everybody in turn until one leads and has an answer; what is asked may be repeated.
async fn ask<T, Fut>(mut call: impl FnMut(Channel) -> Fut) -> T
where
    Fut: Future<Output = Result<tonic::Response<T>, tonic::Status>>,
{
    let asking = async {
        loop {
            for id in [1, 2, 3] {
                if let Ok(answer) = call(channel(id)).await {
                    return answer.into_inner();
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), asking).await.expect("somebody leads")
}

async fn create(name: &str) {
    let answer = ask(|channel| {
        let topic = NewTopic { name: name.into(), partitions: 1, replication_factor: 1, ..NewTopic::default() };
        let request = CreateTopicsRequest { topics: vec![topic], ..CreateTopicsRequest::default() };
        async move { AdminClient::new(channel).create_topics(request).await }
    });
    let code = answer.await.topics[0].error.as_ref().unwrap().code;
    // 36: an attempt whose answer was lost had made it.
    assert!(code == 0 || code == 36, "{code}");
}

/// Goal: what was answered is on the disks, and a node that was away comes back by its disk, the log or a snapshot. Method: kill
/// each node in turn, leaders too, while topics are created; then all of them; everything is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_of_one_and_of_all_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut nodes = std::collections::BTreeMap::new();
    for id in [3, 2, 1] {
        nodes.insert(id, start(id, dir.path()).await);
    }
    let registered = ask(|channel| {
        let request = RegisterBrokerRequest {
            broker_id: 1,
            incarnation: 1,
            log_dirs: vec![LogDir { dir_id: vec![1; 16].into(), ..LogDir::default() }],
            endpoints: vec![thalweg_proto::v1::Endpoint { host: "h".into(), port: 1, ..Default::default() }],
            levels: Some(Levels::ours()),
            ..RegisterBrokerRequest::default()
        };
        async move { RegistryClient::new(channel).register_broker(request).await }
    })
    .await;
    let beat = BrokerHeartbeatRequest {
        broker_id: 1,
        broker_epoch: registered.broker_epoch,
        metadata_index: registered.index,
        ..BrokerHeartbeatRequest::default()
    };
    let mut expected = Vec::new();
    for away in [1, 2, 3] {
        let beating = |channel| {
            let beat = beat.clone();
            async move { RegistryClient::new(channel).broker_heartbeat(beat).await }
        };
        assert!(!ask(beating).await.fenced);
        kill(nodes.remove(&away).unwrap());
        for i in 0..30 {
            let name = format!("t-{away}-{i:02}");
            create(&name).await;
            expected.push(name);
        }
        nodes.insert(away, start(away, dir.path()).await);
    }
    std::mem::take(&mut nodes).into_values().for_each(kill);
    for id in [1, 2, 3] {
        nodes.insert(id, start(id, dir.path()).await);
    }
    create("last").await;
    expected.insert(0, "last".into());
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    for node in nodes.values() {
        let topics = || -> Vec<String> {
            let machine = node.coordinator.shared().machine();
            machine.state().topics().map(|(name, _)| name.to_owned()).collect()
        };
        while topics() != expected {
            assert!(tokio::time::Instant::now() < deadline, "{:?}", topics());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    nodes.into_values().for_each(kill);
}
