//! A coordinator over RocksDB: what it answered is there after a restart, and how much it commits.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thalweg_coordinator::{Coordinator, CoordinatorConfig, KvStore};
use thalweg_coordinator_rocks::RocksStore;
use thalweg_proto::v1::admin_client::AdminClient;
use thalweg_proto::v1::group_client::GroupClient;
use thalweg_proto::v1::registry_client::RegistryClient;
use thalweg_proto::v1::*;
use thalweg_world::Clock;
use tonic::transport::Channel;

async fn start(dir: &Path) -> (Coordinator, Channel) {
    let config = CoordinatorConfig {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        snapshot_every_entries: 100,
        log_kept_entries: 10,
        ..CoordinatorConfig::default()
    };
    let store: Arc<dyn KvStore> = Arc::new(RocksStore::open(dir).unwrap());
    let coordinator = Coordinator::start(config, store, Clock::real()).await.unwrap();
    let address = format!("http://{}", coordinator.local_addr());
    let channel = Channel::from_shared(address).unwrap().connect().await.unwrap();
    (coordinator, channel)
}

/// One live broker and topic `t` with one partition.
async fn with_topic(channel: &Channel) {
    let mut registry = RegistryClient::new(channel.clone());
    let registration = RegisterBrokerRequest {
        broker_id: 1,
        incarnation: 1,
        log_dirs: vec![LogDir { dir_id: vec![1; 16].into(), ..LogDir::default() }],
        endpoints: vec![Endpoint { host: "h".into(), port: 1, ..Endpoint::default() }],
        levels: Some(Levels::ours()),
        ..RegisterBrokerRequest::default()
    };
    let registered = registry.register_broker(registration).await.unwrap().into_inner();
    let heartbeat = BrokerHeartbeatRequest {
        broker_id: 1,
        broker_epoch: registered.broker_epoch,
        metadata_index: registered.index,
        ..BrokerHeartbeatRequest::default()
    };
    registry.broker_heartbeat(heartbeat).await.unwrap();
    let topic = NewTopic { name: "t".into(), partitions: 1, replication_factor: 1, ..NewTopic::default() };
    let request = CreateTopicsRequest { topics: vec![topic], ..CreateTopicsRequest::default() };
    let created = AdminClient::new(channel.clone()).create_topics(request).await.unwrap().into_inner();
    assert_eq!(created.topics[0].error, Some(KafkaError::default()));
}

async fn commit(client: &mut GroupClient<Channel>, group: usize, offset: i64) {
    let offsets = vec![CommitOffset { topic: "t".into(), offset, leader_epoch: -1, ..CommitOffset::default() }];
    let commit = GroupCommit { group_id: format!("g{group}"), generation_id: -1, offsets, ..GroupCommit::default() };
    let answer = client.commit(CommitRequest { groups: vec![commit] }).await.unwrap().into_inner();
    assert_eq!(answer.groups[0].errors, [KafkaError::default()]);
}

async fn committed(client: &mut GroupClient<Channel>, group: usize) -> i64 {
    let topics = vec![TopicPartitions { topic: "t".into(), partitions: vec![0], ..TopicPartitions::default() }];
    let wanted = FetchGroupOffsets { group_id: format!("g{group}"), topics, ..FetchGroupOffsets::default() };
    let request = FetchOffsetsRequest { groups: vec![wanted], require_stable: false };
    client.fetch_offsets(request).await.unwrap().into_inner().groups[0].offsets[0].offset
}

#[tokio::test]
async fn commits_outlive_restarts_and_snapshots() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, channel) = start(dir.path()).await;
    with_topic(&channel).await;
    coordinator.shutdown().await;
    for round in 0..4 {
        let (coordinator, channel) = start(dir.path()).await;
        let mut client = GroupClient::new(channel);
        for group in 0..40 {
            assert_eq!(committed(&mut client, group).await, round - 1);
            commit(&mut client, group, round).await;
        }
        coordinator.shutdown().await;
    }
    assert!(dir.path().join("snapshots/newest.snapshot").exists());
}

/// Prints commits per second through one voter, and how long a start takes. Run with `--ignored --nocapture`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures"]
async fn measure_commits() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, channel) = start(dir.path()).await;
    with_topic(&channel).await;
    for callers in [1, 64, 1_024] {
        let until = Instant::now() + Duration::from_secs(3);
        let start = Instant::now();
        let tasks: Vec<_> = (0..callers)
            .map(|group| {
                let mut client = GroupClient::new(channel.clone());
                tokio::spawn(async move {
                    let mut count = 0;
                    while Instant::now() < until {
                        commit(&mut client, group, count).await;
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        let mut total = 0;
        for task in tasks {
            total += task.await.unwrap();
        }
        say(&format!("{callers} callers: {:.0} commits/s", total as f64 / start.elapsed().as_secs_f64()));
    }
    coordinator.shutdown().await;
    let begin = Instant::now();
    let (coordinator, _) = start(dir.path()).await;
    say(&format!("restart to serving: {:?}", begin.elapsed()));
    coordinator.shutdown().await;
    let fresh = tempfile::tempdir().unwrap();
    let begin = Instant::now();
    let (coordinator, _) = start(fresh.path()).await;
    say(&format!("first start to serving: {:?}", begin.elapsed()));
    coordinator.shutdown().await;
}

fn say(line: &str) {
    // Not println!, which only a #[test] function may call here.
    std::io::stdout().write_all(format!("{line}\n").as_bytes()).unwrap();
}
