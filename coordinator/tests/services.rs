//! A coordinator as brokers and admin clients see it: over gRPC.

use std::net::SocketAddr;
use std::sync::Arc;

use thalweg_coordinator::{Coordinator, CoordinatorConfig, CoordinatorSettings, KvStore, MemStore};
use thalweg_proto::v1::admin_client::AdminClient;
use thalweg_proto::v1::record::Kind;
use thalweg_proto::v1::registry_client::RegistryClient;
use thalweg_proto::v1::*;
use thalweg_world::Clock;
use tonic::transport::Channel;

async fn start(store: &Arc<MemStore>) -> (Coordinator, Channel) {
    let config = CoordinatorConfig {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        settings: CoordinatorSettings { group_initial_rebalance_delay_ms: 0, ..CoordinatorSettings::default() },
        ..CoordinatorConfig::default()
    };
    let store: Arc<dyn KvStore> = Arc::clone(store) as Arc<dyn KvStore>;
    let coordinator = Coordinator::start(config, store, Clock::real()).await.unwrap();
    let address = format!("http://{}", coordinator.local_addr());
    let channel = Channel::from_shared(address).unwrap().connect().await.unwrap();
    (coordinator, channel)
}

fn registration(incarnation: u64) -> RegisterBrokerRequest {
    RegisterBrokerRequest {
        broker_id: 1,
        incarnation,
        boot_id: "boot".into(),
        log_dirs: vec![LogDir { dir_id: vec![7; 16].into(), ..LogDir::default() }],
        endpoints: vec![Endpoint { listener: "PLAINTEXT".into(), host: "h".into(), port: 9092, ..Endpoint::default() }],
        ..RegisterBrokerRequest::default()
    }
}

/// Registers broker 1 and makes it able to lead.
async fn join_broker(channel: &Channel, incarnation: u64) -> RegisterBrokerResponse {
    let mut registry = RegistryClient::new(channel.clone());
    let registered = registry.register_broker(registration(incarnation)).await.unwrap().into_inner();
    assert_eq!(registered.error, Some(KafkaError::default()));
    let heartbeat = BrokerHeartbeatRequest {
        broker_id: registered.broker_id,
        broker_epoch: registered.broker_epoch,
        metadata_index: registered.index,
        ..BrokerHeartbeatRequest::default()
    };
    let answer = registry.broker_heartbeat(heartbeat).await.unwrap().into_inner();
    assert!(!answer.fenced);
    registered
}

fn new_topic(name: &str) -> NewTopic {
    NewTopic { name: name.into(), partitions: 2, replication_factor: -1, ..NewTopic::default() }
}

async fn create(channel: &Channel, names: &[&str]) -> CreateTopicsResponse {
    let topics = names.iter().map(|name| new_topic(name)).collect();
    let request = CreateTopicsRequest { topics, ..CreateTopicsRequest::default() };
    AdminClient::new(channel.clone()).create_topics(request).await.unwrap().into_inner()
}

/// Reads the feed up to and with `index`.
async fn read_feed(channel: &Channel, from_index: u64, index: u64) -> Vec<FeedItem> {
    let request = FeedRequest { from_index, ..FeedRequest::default() };
    let mut stream = RegistryClient::new(channel.clone()).feed(request).await.unwrap().into_inner();
    let mut items = Vec::new();
    loop {
        let item = stream.message().await.unwrap().unwrap();
        let is_last = item.index >= index && !(item.image_start && !item.image_complete);
        items.push(item);
        if is_last {
            return items;
        }
    }
}

fn topic_names(items: &[FeedItem]) -> Vec<String> {
    let records = items.iter().flat_map(|item| &item.records);
    let topics = records.filter_map(|record| match &record.kind {
        Some(Kind::Topic(topic)) => Some(topic.name.clone()),
        _ => None,
    });
    topics.collect()
}

#[tokio::test]
async fn a_created_topic_reaches_the_feed_as_image_or_as_change() {
    let store = Arc::new(MemStore::new());
    let (coordinator, channel) = start(&store).await;
    join_broker(&channel, 1).await;
    let first = create(&channel, &["a"]).await;
    assert_eq!(first.topics[0].error, Some(KafkaError::default()));

    let image = read_feed(&channel, 0, first.index).await;
    assert!(image[0].image_start && image[image.len() - 1].image_complete);
    assert_eq!(topic_names(&image), ["a"]);

    let second = create(&channel, &["b"]).await;
    let changes = read_feed(&channel, first.index, second.index).await;
    assert_eq!(topic_names(&changes), ["b"]);
    assert!(changes.iter().all(|item| !item.image_start));
    coordinator.shutdown().await;
}

#[tokio::test]
async fn a_restart_keeps_what_was_answered_and_the_cluster_id() {
    let store = Arc::new(MemStore::new());
    let (coordinator, channel) = start(&store).await;
    let before = join_broker(&channel, 1).await;
    create(&channel, &["kept"]).await;
    coordinator.shutdown().await;

    // What was not synced is gone, as after a power cut.
    let store = Arc::new(store.power_cut());
    let (coordinator, channel) = start(&store).await;
    let after = join_broker(&channel, 2).await;
    assert_eq!((&after.cluster_id, after.broker_id), (&before.cluster_id, before.broker_id));
    assert!(after.broker_epoch > before.broker_epoch);
    let again = create(&channel, &["kept"]).await;
    assert_eq!(again.topics[0].error.as_ref().unwrap().code, 36);
    let image = read_feed(&channel, 0, after.index).await;
    assert_eq!(topic_names(&image), ["kept"]);
    coordinator.shutdown().await;
}

#[tokio::test]
async fn producer_ids_are_given_out_once_even_across_a_restart() {
    let store = Arc::new(MemStore::new());
    let (coordinator, channel) = start(&store).await;
    let broker = join_broker(&channel, 1).await;
    let request = AllocateProducerIdsRequest { broker_id: broker.broker_id, broker_epoch: broker.broker_epoch };
    let mut registry = RegistryClient::new(channel.clone());
    let first = registry.allocate_producer_ids(request).await.unwrap().into_inner();
    let second = registry.allocate_producer_ids(request).await.unwrap().into_inner();
    assert_eq!((first.first, first.count, second.first), (0, 1_000, 1_000));
    coordinator.shutdown().await;

    let store = Arc::new(store.power_cut());
    let (coordinator, channel) = start(&store).await;
    let broker = join_broker(&channel, 2).await;
    let mut registry = RegistryClient::new(channel.clone());
    let stale = registry.allocate_producer_ids(request).await.unwrap().into_inner();
    assert_eq!(stale.error.unwrap().code, 77);
    let request = AllocateProducerIdsRequest { broker_id: broker.broker_id, broker_epoch: broker.broker_epoch };
    let third = registry.allocate_producer_ids(request).await.unwrap().into_inner();
    assert_eq!(third.first, 2_000);
    coordinator.shutdown().await;
}

#[tokio::test]
async fn a_controlled_stop_is_granted_once_nothing_is_led() {
    let store = Arc::new(MemStore::new());
    let (coordinator, channel) = start(&store).await;
    let broker = join_broker(&channel, 1).await;
    create(&channel, &["t"]).await;
    let heartbeat = BrokerHeartbeatRequest {
        broker_id: broker.broker_id,
        broker_epoch: broker.broker_epoch,
        metadata_index: broker.index,
        want_shutdown: true,
        ..BrokerHeartbeatRequest::default()
    };
    let mut registry = RegistryClient::new(channel.clone());
    let answer = registry.broker_heartbeat(heartbeat).await.unwrap().into_inner();
    assert!(answer.may_shut_down);
    let again = join_broker(&channel, 2).await;
    let image = read_feed(&channel, 0, again.index).await;
    let leaders: Vec<i32> = image
        .iter()
        .flat_map(|item| &item.records)
        .filter_map(|record| match &record.kind {
            Some(Kind::Partition(partition)) => Some(partition.leader),
            _ => None,
        })
        .collect();
    assert_eq!(leaders, [1, 1]);
    coordinator.shutdown().await;
}
