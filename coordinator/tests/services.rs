//! A coordinator as brokers and admin clients see it: over gRPC.

use std::net::SocketAddr;
use std::sync::Arc;

use thalweg_coordinator::store::{Space, View};
use thalweg_coordinator::{Coordinator, CoordinatorConfig, CoordinatorSettings, KvStore, MemStore};
use thalweg_model::ErrorCode;
use thalweg_proto::v1::admin_client::AdminClient;
use thalweg_proto::v1::group_client::GroupClient;
use thalweg_proto::v1::record::Kind;
use thalweg_proto::v1::registry_client::RegistryClient;
use thalweg_proto::v1::*;
use thalweg_world::Clock;
use tonic::transport::Channel;

fn config() -> CoordinatorConfig {
    CoordinatorConfig {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        settings: CoordinatorSettings { group_initial_rebalance_delay_ms: 0, ..CoordinatorSettings::default() },
        ..CoordinatorConfig::default()
    }
}

async fn start(store: &Arc<MemStore>) -> (Coordinator, Channel) {
    start_with(store, config()).await
}

async fn start_with(store: &Arc<MemStore>, config: CoordinatorConfig) -> (Coordinator, Channel) {
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
        levels: Some(Levels::ours()),
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
        let is_last = item.index >= index && (item.image_complete || !item.image_start);
        items.push(item);
        if is_last {
            return items;
        }
    }
}

/// Waits until broker 1 is fenced, after `index`: what lets it stop says so first.
async fn fenced(channel: &Channel, index: u64) {
    let request = FeedRequest { from_index: index, ..FeedRequest::default() };
    let mut stream = RegistryClient::new(channel.clone()).feed(request).await.unwrap().into_inner();
    loop {
        let item = stream.message().await.unwrap().unwrap();
        if item.records.iter().any(|record| matches!(&record.kind, Some(Kind::Broker(broker)) if broker.fenced)) {
            return;
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

/// Goal: a cluster of one takes topics whose creator leaves everything to it, whether they may grow or not; a number that somebody
/// said stands.
#[tokio::test]
async fn where_topics_do_not_grow_the_number_of_replicas_fits_the_brokers_unless_it_was_said() {
    for (default_factor_bends, code) in [(true, 0), (false, ErrorCode::InvalidReplicationFactor.code())] {
        let settings = CoordinatorSettings { default_replication_factor: 3, default_factor_bends, ..config().settings };
        let store = Arc::new(MemStore::default());
        let (_coordinator, channel) = start_with(&store, CoordinatorConfig { settings, ..config() }).await;
        join_broker(&channel, 1).await;
        assert_eq!(create(&channel, &["grows"]).await.topics[0].error, Some(KafkaError::default()));
        let change = ConfigChange { key: "auto.grow.replicas.enable".into(), op: 0, value: Some("false".into()) };
        let resource = ConfigResource { kind: 4, changes: vec![change], ..ConfigResource::default() };
        let request = AlterConfigsRequest { resources: vec![resource], validate_only: false };
        AdminClient::new(channel.clone()).alter_configs(request).await.unwrap();
        let created = create(&channel, &["fixed"]).await;
        assert_eq!(created.topics[0].error.as_ref().map(|error| error.code), Some(i32::from(code)), "{created:?}");
    }
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
    fenced(&channel, broker.index).await;
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

/// Goal: a killed broker is fenced as soon as its connection breaks and its listener refuses (REPLICATION B5), not when its
/// lease has run out. Method: a broker whose listener is nowhere lets go of its connection; the lease is an hour.
#[tokio::test]
async fn a_broker_that_is_gone_is_fenced_before_its_lease_runs_out() {
    let store = Arc::new(MemStore::new());
    let settings = CoordinatorSettings { broker_lease_ms: 3_600_000, ..config().settings };
    let (coordinator, channel) = start_with(&store, CoordinatorConfig { settings, ..config() }).await;
    let address = format!("http://{}", coordinator.local_addr());
    let own = Channel::from_shared(address).unwrap().connect().await.unwrap();
    // Port 1 of this machine: nobody but root could listen there, and nobody does.
    let endpoints = vec![Endpoint { host: "127.0.0.1".into(), port: 1, ..Endpoint::default() }];
    let mut broker = RegistryClient::new(own);
    let request = RegisterBrokerRequest { endpoints, ..registration(1) };
    let registered = broker.register_broker(request).await.unwrap().into_inner();
    let beat = BrokerHeartbeatRequest {
        broker_id: registered.broker_id,
        broker_epoch: registered.broker_epoch,
        metadata_index: registered.index,
        ..BrokerHeartbeatRequest::default()
    };
    assert!(!broker.broker_heartbeat(beat).await.unwrap().into_inner().fenced);
    let request = FeedRequest { from_index: registered.index, ..FeedRequest::default() };
    let mut feed = RegistryClient::new(channel).feed(request).await.unwrap().into_inner();
    drop(broker);
    let mut seen = Vec::new();
    while seen != [false, true] {
        let records = feed.message().await.unwrap().unwrap().records;
        seen.extend(records.into_iter().filter_map(|record| match record.kind {
            Some(Kind::Broker(broker)) => Some(broker.fenced),
            _ => None,
        }));
    }
    coordinator.shutdown().await;
}

/// Goal: a broker is not given an image of other or of older registries than those it has followed. Method: ask for the feed with
/// a past that is not of these.
#[tokio::test]
async fn a_feed_is_refused_to_who_knows_another_past() {
    let store = Arc::new(MemStore::new());
    let (coordinator, channel) = start_with(&store, config()).await;
    let registered = join_broker(&channel, 1).await;
    let cluster_id = registered.cluster_id.clone();
    let ask = |from_index: u64, cluster_id: &str| {
        let request = FeedRequest { from_index, cluster_id: cluster_id.to_owned(), ..FeedRequest::default() };
        let mut client = RegistryClient::new(channel.clone());
        async move { client.feed(request).await.map(drop).map_err(|status| status.code()) }
    };
    assert_eq!(ask(registered.index, &cluster_id).await, Ok(()));
    assert_eq!(ask(registered.index, "").await, Ok(()));
    assert_eq!(ask(1_000_000, &cluster_id).await, Err(tonic::Code::FailedPrecondition));
    assert_eq!(ask(registered.index, "AAAAAAAAAAAAAAAAAAAAAA").await, Err(tonic::Code::FailedPrecondition));
    coordinator.shutdown().await;
}

fn joining(member_id: &str, session_timeout_ms: i32) -> JoinRequest {
    JoinRequest {
        group_id: "g".into(),
        member_id: member_id.into(),
        protocol_type: "consumer".into(),
        protocols: vec![JoinProtocol { name: "range".into(), metadata: "m".into() }],
        session_timeout_ms,
        rebalance_timeout_ms: 60_000,
        client_id: "app".into(),
        api_version: 5,
        ..JoinRequest::default()
    }
}

/// A stable group of one that has committed offset 7 of `t`-0.
async fn committed(channel: &Channel) -> JoinResponse {
    let mut group = GroupClient::new(channel.clone());
    let first = group.join(joining("", 10_000)).await.unwrap().into_inner();
    assert_eq!(first.error.unwrap().code, 79);
    let joined = group.join(joining(&first.member_id, 10_000)).await.unwrap().into_inner();
    let sync = SyncRequest {
        group_id: "g".into(),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        assignments: vec![SyncAssignment { member_id: joined.member_id.clone(), assignment: "all".into() }],
        ..SyncRequest::default()
    };
    assert_eq!(group.sync(sync).await.unwrap().into_inner().assignment, "all");
    let commit = GroupCommit {
        group_id: "g".into(),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        instance_id: None,
        offsets: vec![CommitOffset {
            topic: "t".into(),
            partition: 0,
            offset: 7,
            leader_epoch: 2,
            metadata: "one".into(),
        }],
    };
    let answer = group.commit(CommitRequest { groups: vec![commit] }).await.unwrap().into_inner();
    assert_eq!(answer.groups[0].errors, [KafkaError::default()]);
    joined
}

async fn fetch(channel: &Channel) -> Vec<(i32, i64, i32, String)> {
    let topics = vec![TopicPartitions { topic: "t".into(), partitions: vec![0, 1], ..TopicPartitions::default() }];
    let wanted = FetchGroupOffsets { group_id: "g".into(), topics, ..FetchGroupOffsets::default() };
    let request = FetchOffsetsRequest { groups: vec![wanted], require_stable: true };
    let answer = GroupClient::new(channel.clone()).fetch_offsets(request).await.unwrap().into_inner();
    let offsets = answer.groups[0].offsets.iter();
    offsets.map(|one| (one.partition, one.offset, one.leader_epoch, one.metadata.clone())).collect()
}

/// Case 67.
#[tokio::test]
async fn groups_members_and_offsets_outlive_a_restart() {
    let store = Arc::new(MemStore::new());
    let (coordinator, channel) = start(&store).await;
    join_broker(&channel, 1).await;
    create(&channel, &["t"]).await;
    let member = committed(&channel).await;
    coordinator.shutdown().await;

    let store = Arc::new(store.power_cut());
    let (coordinator, channel) = start(&store).await;
    assert_eq!(fetch(&channel).await, [(0, 7, 2, "one".to_owned()), (1, -1, -1, String::new())]);
    let mut group = GroupClient::new(channel.clone());
    let request = DescribeRequest { group_ids: vec!["g".into()] };
    let described = group.describe(request).await.unwrap().into_inner().groups.remove(0);
    assert_eq!((described.state.as_str(), described.generation_id), ("Stable", 1));
    assert_eq!(described.members[0].assignment, "all");
    let heartbeat =
        MemberHeartbeat { group_id: "g".into(), generation_id: 1, member_id: member.member_id, instance_id: None };
    let answer = group.heartbeat(HeartbeatRequest { members: vec![heartbeat] }).await.unwrap().into_inner();
    assert_eq!(answer.errors[0].code, 0);
    coordinator.shutdown().await;
}

/// Goal: an open feed and a waiting member do not keep a node from stopping, and both are told to look elsewhere.
#[tokio::test]
async fn a_stop_ends_what_is_open() {
    let store = Arc::new(MemStore::new());
    let (coordinator, channel) = start(&store).await;
    join_broker(&channel, 1).await;
    create(&channel, &["t"]).await;
    committed(&channel).await;
    let mut feed = RegistryClient::new(channel.clone()).feed(FeedRequest::default()).await.unwrap().into_inner();
    let mut group = GroupClient::new(channel.clone());
    let second = group.join(joining("", 10_000)).await.unwrap().into_inner();
    let waiting = tokio::spawn(async move { group.join(joining(&second.member_id, 10_000)).await });
    let mut other = GroupClient::new(channel.clone());
    loop {
        let described = other.describe(DescribeRequest { group_ids: vec!["g".into()] }).await.unwrap().into_inner();
        if described.groups[0].state == "PreparingRebalance" {
            break;
        }
    }
    coordinator.shutdown().await;
    assert_eq!(waiting.await.unwrap().unwrap_err().code(), tonic::Code::Unavailable);
    while feed.message().await.unwrap().is_some() {}
}

/// Goal: the log does not grow for ever, and what it stood for is not lost with it. Method: snapshots after few entries.
#[tokio::test]
async fn snapshots_replace_the_log() {
    let store = Arc::new(MemStore::new());
    let config = CoordinatorConfig { snapshot_every_entries: 20, log_kept_entries: 5, ..config() };
    let (coordinator, channel) = start_with(&store, config.clone()).await;
    join_broker(&channel, 1).await;
    for i in 0..100 {
        let created = create(&channel, &[&format!("t{i}")]).await;
        assert_eq!(created.topics[0].error, Some(KafkaError::default()));
    }
    coordinator.shutdown().await;
    let first = {
        let mut first = None;
        store
            .scan(Space::Log, &[], &mut |key, _| {
                first = Some(u64::from_be_bytes(key.try_into().unwrap()));
                Ok(false)
            })
            .unwrap();
        first.unwrap()
    };
    assert!(first > 15, "the log begins at {first}");
    let store = Arc::new(store.power_cut());
    let (coordinator, channel) = start_with(&store, config).await;
    let again = create(&channel, &["t0", "t99"]).await;
    let codes: Vec<i32> = again.topics.iter().map(|topic| topic.error.as_ref().unwrap().code).collect();
    assert_eq!(codes, [36, 36]);
    coordinator.shutdown().await;
}

#[tokio::test]
async fn a_store_of_another_node_is_refused() {
    let store = Arc::new(MemStore::new());
    let (coordinator, _) = start(&store).await;
    coordinator.shutdown().await;
    let other = CoordinatorConfig { node_id: 2, ..config() };
    let store: Arc<dyn KvStore> = store;
    let Err(cause) = Coordinator::start(other, store, Clock::real()).await else { panic!("it took another's store") };
    assert_eq!(
        cause.to_string(),
        "the coordinator's store belongs to node 1, and this is node 2; ids are never reused"
    );
}
