//! Three brokers and one coordinator: what replicas owe each other and their clients.
//!
//! Waits are for conditions, with a limit that only a failure reaches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use thalweg_broker::Broker;
use thalweg_broker::shell::partitions::Partition;
use thalweg_client::{
    ClientConfig, Consumer, ConsumerConfig, OffsetReset, Producer, ProducerConfig, ProducerRecord, StartAt,
};
use thalweg_coordinator::CoordinatorSettings;
use thalweg_model::{ErrorCode, NodeId, Offset, PartitionIndex};
use thalweg_wire::messages::create_topics::{CreatableTopic, CreatableTopicConfig};
use thalweg_wire::messages::fetch::{FetchPartition, FetchTopic, PartitionData, ReplicaState};
use thalweg_wire::messages::{CreateTopicsRequest, FetchRequest, FetchResponse};
use thalweg_world::Clock;
use thalweg_world::disk::{Disk, SimDisk, Survival};

use crate::support::{Client, Cluster, batch, fetch, produce};

/// Brokers by id, each in a rack of its own, with a disk that outlives it.
pub struct Three {
    pub cluster: Cluster,
    pub brokers: BTreeMap<NodeId, Broker>,
    pub disks: BTreeMap<NodeId, SimDisk>,
}

impl Three {
    pub async fn start() -> Three {
        // Short, so that a test does not wait for a lease; brokers that live renew it many times over.
        let settings = CoordinatorSettings { broker_lease_ms: 2_000, ..Default::default() };
        let cluster = Cluster::start_with(settings).await;
        let mut three = Three { cluster, brokers: BTreeMap::new(), disks: BTreeMap::new() };
        for _ in 0..3 {
            three.add(SimDisk::new()).await;
        }
        three
    }

    pub async fn add(&mut self, disk: SimDisk) -> NodeId {
        let properties = [("broker.heartbeat.interval.ms", "100"), ("replica.lag.time.max.ms", "1000")];
        let rack = format!("rack-{}", self.disks.len());
        let broker = self.cluster.broker_in(Some(&rack), Clock::real(), Arc::new(disk.clone()), &properties).await;
        let id = broker.services().node_id();
        self.brokers.insert(id, broker);
        self.disks.insert(id, disk);
        id
    }

    /// A topic of one partition with three replicas, served by its leader.
    pub async fn topic(&self, name: &str, configs: &[(&str, &str)]) {
        let config = |(name, value): &(&str, &str)| CreatableTopicConfig {
            name: (*name).to_owned(),
            value: Some((*value).to_owned()),
        };
        let topic = CreatableTopic {
            name: name.to_owned(),
            num_partitions: 1,
            replication_factor: 3,
            configs: configs.iter().map(config).collect(),
            ..Default::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 30_000, ..Default::default() };
        let mut client = Client::connect(self.brokers.values().next().unwrap()).await;
        let response = client.call(7, &request).await;
        assert_eq!(response.topics[0].error_code, 0, "{:?}", response.topics[0].error_message);
        self.until("a leader", || self.leader(name).is_some()).await;
    }

    /// Who leads by its own account, with a lease.
    pub fn leader(&self, topic: &str) -> Option<NodeId> {
        let leads = |broker: &Broker| {
            let services = broker.services();
            let partition = services.partitions.partition(topic, PartitionIndex(0));
            services.may_lead() && partition.is_some_and(|partition| partition.leader_epoch().is_some())
        };
        self.brokers.iter().find(|(_, broker)| leads(broker)).map(|(id, _)| *id)
    }

    pub async fn client_of_leader(&self, topic: &str) -> Client {
        self.until("a leader", || self.leader(topic).is_some()).await;
        Client::connect(&self.brokers[&self.leader(topic).unwrap()]).await
    }

    /// Produces with acks=all; follows the leader as long as it moves.
    pub async fn produce(&self, topic: &str, value: &str) -> i64 {
        loop {
            let mut client = self.client_of_leader(topic).await;
            match client.produce(&produce(topic, -1, batch(&[value]))).await {
                (ErrorCode::None, offset) => return offset,
                (ErrorCode::NotLeaderOrFollower | ErrorCode::NotEnoughReplicas, _) => tokio::task::yield_now().await,
                (error, _) => panic!("{error}"),
            }
        }
    }

    pub fn replica(&self, id: NodeId, topic: &str) -> Arc<Partition> {
        self.brokers[&id].services().partitions.partition(topic, PartitionIndex(0)).unwrap()
    }

    /// The in-sync replicas, as the leader knows them.
    pub fn isr(&self, topic: &str) -> Vec<NodeId> {
        let leader = &self.brokers[&self.leader(topic).expect("a leader")];
        leader.services().image().partition(topic, PartitionIndex(0)).map(|found| found.isr.clone()).unwrap_or_default()
    }

    pub async fn until_in_sync(&self, topic: &str, count: usize) {
        self.until("in-sync replicas", || self.leader(topic).is_some() && self.isr(topic).len() == count).await;
    }

    pub async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let waited = async {
            while !holds() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(60), waited).await.is_err() {
            panic!("waited in vain for {what}");
        }
    }

    pub async fn kill(&mut self, id: NodeId) {
        self.brokers.remove(&id).unwrap().abandon().await;
    }

    /// Another life on what the killed one's kernel had.
    pub async fn revive(&mut self, id: NodeId) {
        let disk = self.disks[&id].fork();
        assert_eq!(self.add(disk).await, id);
    }

    /// Every replica's log is the same to the byte, and so are the watermarks; returns the log.
    pub async fn same_logs(&self, topic: &str) -> Vec<u8> {
        let all = || self.brokers.keys().map(|id| self.replica(*id, topic));
        let is_same = || {
            let ends: Vec<Offset> = all().map(|replica| replica.view().log_end_offset()).collect();
            let marks: Vec<Offset> = all().map(|replica| replica.high_watermark()).collect();
            ends.iter().chain(&marks).all(|offset| *offset == ends[0])
        };
        self.until("equal ends and watermarks", is_same).await;
        let logs: Vec<Vec<u8>> = all().map(|replica| bytes_of(&replica)).collect();
        assert!(logs.windows(2).all(|pair| pair[0] == pair[1]), "the logs differ");
        logs.into_iter().next().unwrap()
    }
}

fn bytes_of(partition: &Partition) -> Vec<u8> {
    let view = partition.view();
    let mut bytes = Vec::new();
    let mut next = view.log_start_offset();
    while next < view.log_end_offset() {
        let slice = view.read(next, Offset::MAX, usize::MAX, true).unwrap();
        bytes.extend(slice.read().unwrap());
        next = slice.next_offset;
    }
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledged_record_is_on_every_replica_and_the_logs_are_the_same() {
    for durability in ["flushed", "replicated"] {
        let three = Three::start().await;
        three.topic("t", &[("min.insync.replicas", "2"), ("durability", durability)]).await;
        three.until_in_sync("t", 3).await;
        for number in 0..50 {
            assert_eq!(three.produce("t", &format!("value {number}")).await, number);
            for id in three.brokers.keys() {
                let replica = three.replica(*id, "t");
                let has = if durability == "flushed" {
                    replica.view().flushed_offset()
                } else {
                    replica.view().log_end_offset()
                };
                assert!(has > Offset(number), "{durability}: broker {id} has {has}");
            }
        }
        assert!(!three.same_logs("t").await.is_empty());
    }
}

/// Goal: one broker's death costs no acknowledged record, and it comes back by itself.
/// Method: kill a follower, then bring it back, then kill the leader; produce all the while.
#[tokio::test(flavor = "multi_thread")]
async fn records_survive_the_death_of_a_follower_and_then_of_the_leader() {
    let mut three = Three::start().await;
    three.topic("t", &[("min.insync.replicas", "2")]).await;
    three.until_in_sync("t", 3).await;
    let mut next = 0;
    let mut produce_some = async |three: &Three| {
        for _ in 0..20 {
            assert_eq!(three.produce("t", &format!("value {next}")).await, next);
            next += 1;
        }
    };
    produce_some(&three).await;
    let leader = three.leader("t").unwrap();
    let follower = *three.brokers.keys().find(|id| **id != leader).unwrap();
    three.kill(follower).await;
    produce_some(&three).await;
    assert_eq!(three.isr("t").len(), 2, "what was acknowledged without broker {follower} shrank the ISR");
    three.revive(follower).await;
    three.until_in_sync("t", 3).await;

    let leader = three.leader("t").unwrap();
    three.kill(leader).await;
    produce_some(&three).await;
    assert_ne!(three.leader("t"), Some(leader));
    three.revive(leader).await;
    three.until_in_sync("t", 3).await;
    produce_some(&three).await;
    let mut client = three.client_of_leader("t").await;
    assert_eq!(client.latest("t").await, next);
    assert_eq!(batch_count(&three.same_logs("t").await), next as usize);
}

/// How many batches there are; each produce above is one.
fn batch_count(mut log: &[u8]) -> usize {
    let mut count = 0;
    while let Ok(header) = thalweg_wire::batch::BatchHeader::read(log) {
        log = &log[header.size_bytes()..];
        count += 1;
    }
    count
}

/// Goal: what only the leader had goes when it comes back as a follower (REPLICATION F2). Method: with both followers dead,
/// acks=1 records go into the leader alone; they come back without it, write others; then it comes back.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_parted_is_cut_by_epoch_and_becomes_the_same() {
    let mut three = Three::start().await;
    three.topic("t", &[("min.insync.replicas", "2")]).await;
    three.until_in_sync("t", 3).await;
    three.produce("t", "common").await;
    let old = three.leader("t").unwrap();
    let others: Vec<NodeId> = three.brokers.keys().copied().filter(|id| *id != old).collect();
    for id in &others {
        three.kill(*id).await;
    }
    // Below min ISR nobody hears of these, but they are in the log.
    let mut client = three.client_of_leader("t").await;
    for _ in 0..3 {
        client.send(9, &produce("t", 1, batch(&["only here"]))).await;
    }
    let replica = three.replica(old, "t");
    three.until("the leader's own records", || replica.view().log_end_offset() == Offset(4)).await;
    assert_eq!(replica.high_watermark(), Offset(1));
    drop((client, replica));
    three.kill(old).await;
    for id in &others {
        three.revive(*id).await;
    }
    three.until_in_sync("t", 2).await;
    assert_eq!(three.produce("t", "theirs").await, 1);
    three.revive(old).await;
    three.until_in_sync("t", 3).await;
    let log = three.same_logs("t").await;
    assert!(!log.windows(9).any(|bytes| bytes == b"only here"));
    assert_eq!(batch_count(&log), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn below_min_insync_replicas_acks_all_is_refused_and_comes_back_with_the_replicas() {
    let mut three = Three::start().await;
    three.topic("t", &[("min.insync.replicas", "2")]).await;
    three.until_in_sync("t", 3).await;
    three.produce("t", "a").await;
    let leader = three.leader("t").unwrap();
    let others: Vec<NodeId> = three.brokers.keys().copied().filter(|id| *id != leader).collect();
    for id in &others {
        three.kill(*id).await;
    }
    three.until_in_sync("t", 1).await;
    let mut client = three.client_of_leader("t").await;
    let refused = client.produce(&produce("t", -1, batch(&["b"]))).await;
    assert_eq!(refused, (ErrorCode::NotEnoughReplicas, -1));
    three.revive(others[0]).await;
    three.until_in_sync("t", 2).await;
    assert_eq!(three.produce("t", "c").await, 1);
}

/// Goal: all power gone at once loses nothing that was acknowledged on a `flushed` topic (REPLICATION 3.8). Method: every
/// disk forgets what was not synced.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_survives_a_power_cut_of_all_brokers() {
    let mut three = Three::start().await;
    three.topic("t", &[("min.insync.replicas", "2")]).await;
    three.until_in_sync("t", 3).await;
    for number in 0..30 {
        assert_eq!(three.produce("t", &format!("value {number}")).await, number);
    }
    let ids: Vec<NodeId> = three.brokers.keys().copied().collect();
    let cut: Vec<SimDisk> = ids.iter().map(|id| three.disks[id].crash(&mut |_| Survival::Lost)).collect();
    for id in &ids {
        three.kill(*id).await;
    }
    for (id, disk) in ids.iter().zip(cut) {
        assert_eq!(three.add(disk).await, *id);
    }
    three.until_in_sync("t", 3).await;
    assert_eq!(three.produce("t", "after").await, 30);
    assert_eq!(batch_count(&three.same_logs("t").await), 31);
}

/// Goal: an orderly stop moves leaderships before it goes; no record and no producer is lost on the way.
#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_stops_in_order_has_handed_its_partitions_over() {
    let mut three = Three::start().await;
    three.topic("t", &[("min.insync.replicas", "2")]).await;
    three.until_in_sync("t", 3).await;
    three.produce("t", "a").await;
    let leader = three.leader("t").unwrap();
    let broker = three.brokers.remove(&leader).unwrap();
    broker.shutdown().await;
    let next = three.leader("t").expect("another leads already");
    assert_ne!(next, leader);
    assert_eq!(three.isr("t").len(), 2);
    assert_eq!(three.produce("t", "b").await, 1);
}

async fn fetch_as(client: &mut Client, topic: &FetchTopic, state: ReplicaState) -> FetchResponse {
    let request = FetchRequest {
        replica_state: state,
        max_bytes: 1 << 20,
        session_epoch: 0,
        topics: vec![topic.clone()],
        ..Default::default()
    };
    client.call(18, &request).await
}

/// Goal: a fetch that claims to be a broker's is served only to that broker in its present life (FAILURES rows 21 and 59).
#[tokio::test(flavor = "multi_thread")]
async fn a_forged_or_outdated_followers_fetch_is_refused() {
    let three = Three::start().await;
    three.topic("t", &[]).await;
    three.until_in_sync("t", 3).await;
    three.produce("t", "a").await;
    let leader = three.leader("t").unwrap();
    let (topic_id, epoch, dead_epoch) = {
        let image = three.brokers[&leader].services().image();
        let topic = image.topic("t").unwrap();
        let dead = *image.brokers.keys().find(|id| **id != leader).unwrap();
        (topic.id, topic.partitions[&PartitionIndex(0)].leader_epoch, (dead, image.brokers[&dead].epoch))
    };
    let partition = FetchPartition {
        current_leader_epoch: epoch.0,
        fetch_offset: 1,
        last_fetched_epoch: epoch.0,
        partition_max_bytes: 1 << 20,
        ..Default::default()
    };
    let topic = FetchTopic { topic_id, partitions: vec![partition], ..Default::default() };
    let mut client = three.client_of_leader("t").await;
    let forged = [
        ReplicaState { replica_id: dead_epoch.0.0, replica_epoch: dead_epoch.1.0 - 1 },
        ReplicaState { replica_id: dead_epoch.0.0, replica_epoch: -1 },
        ReplicaState { replica_id: 77, replica_epoch: 1 },
        ReplicaState { replica_id: leader.0, replica_epoch: i64::MAX },
    ];
    for state in forged {
        let response = fetch_as(&mut client, &topic, state.clone()).await;
        assert_eq!(response.error_code, ErrorCode::StaleBrokerEpoch.code(), "{state:?}");
        assert_eq!(response.responses.len(), 0);
    }
}

/// Goal: our own client goes on while its leader dies: no record is lost, doubled or out of order, and its reader never loses
/// its position (FAILURES row 48). Method: a producer and a reader that may not reset, the leader killed in between.
#[tokio::test(flavor = "multi_thread")]
async fn a_producer_and_a_consumer_go_on_when_their_leader_dies() {
    let mut three = Three::start().await;
    three.topic("t", &[("min.insync.replicas", "2")]).await;
    three.until_in_sync("t", 3).await;
    let addresses: Vec<String> = three.brokers.values().map(|broker| broker.local_addrs()[0].to_string()).collect();
    let client = thalweg_client::Client::connect(ClientConfig::new(&addresses.join(","))).await.unwrap();
    let producer = Producer::new(&client, ProducerConfig::default()).unwrap();
    let config = ConsumerConfig { offset_reset: OffsetReset::None, ..ConsumerConfig::default() };
    let mut consumer = Consumer::new(&client, config).unwrap();
    let tp = three
        .brokers
        .values()
        .next()
        .map(|broker| broker.services().partitions.partition("t", PartitionIndex(0)).unwrap().tp());
    consumer.assign([(tp.unwrap(), StartAt::Offset(Offset::ZERO))]).unwrap();
    let mut deliveries = Vec::new();
    for number in 0..600 {
        if number == 300 {
            let leader = three.leader("t").unwrap();
            three.kill(leader).await;
        }
        let record = ProducerRecord::new("t").partition(0).value(number.to_string());
        deliveries.push(producer.send(record).await.unwrap());
        if number % 10 == 9 {
            // Some are under way when the leader dies, most are not.
            producer.flush().await;
        }
    }
    for (number, delivery) in deliveries.into_iter().enumerate() {
        assert_eq!(delivery.wait().await.unwrap().offset, Offset(number as i64));
    }
    let mut read = 0;
    while read < 600 {
        let set = consumer.poll(Duration::from_secs(30)).await.unwrap().expect("records go on coming");
        for record in set {
            let value = String::from_utf8(record.unwrap().value.unwrap().to_vec()).unwrap();
            assert_eq!(value, read.to_string());
            read += 1;
        }
    }
}

async fn fetch_in_rack(client: &mut Client, rack: &str, offset: i64, epoch: i32) -> PartitionData {
    let mut request = fetch("t", offset, 0);
    request.rack_id = rack.to_owned();
    request.topics[0].partitions[0].current_leader_epoch = epoch;
    let response: FetchResponse = client.call(11, &request).await;
    response.responses[0].partitions[0].clone()
}

/// Goal: a consumer reads from the in-sync replica in its own rack, and never more there than is committed (KIP-392, F6).
#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_reads_in_its_own_rack_what_is_committed() {
    let mut three = Three::start().await;
    three.topic("t", &[("min.insync.replicas", "2")]).await;
    three.until_in_sync("t", 3).await;
    three.produce("t", "a").await;
    three.same_logs("t").await;
    let leader = three.leader("t").unwrap();
    let rack_of = |id: &NodeId| three.brokers[id].services().config.rack.clone().unwrap();
    let follower = *three.brokers.keys().find(|id| **id != leader).unwrap();
    let epoch = three.replica(leader, "t").leader_epoch().unwrap().0;
    let mut at_leader = three.client_of_leader("t").await;
    let mut at_follower = Client::connect(&three.brokers[&follower]).await;

    let told = fetch_in_rack(&mut at_leader, &rack_of(&follower), 0, epoch).await;
    assert_eq!((told.error_code, told.preferred_read_replica), (0, follower.0));
    assert!(told.records.unwrap_or_default().is_empty());
    for rack in [rack_of(&leader), "rack-of-nobody".to_owned(), String::new()] {
        let read = fetch_in_rack(&mut at_leader, &rack, 0, epoch).await;
        assert_eq!((read.preferred_read_replica, read.records.unwrap().is_empty()), (-1, false), "{rack}");
    }
    let read = fetch_in_rack(&mut at_follower, &rack_of(&follower), 0, epoch).await;
    assert_eq!((read.error_code, read.high_watermark, read.preferred_read_replica), (0, 1, -1));
    assert!(!read.records.unwrap().is_empty());
    for (offset, epoch, error) in
        [(2, epoch, ErrorCode::OffsetNotAvailable), (0, epoch + 1, ErrorCode::UnknownLeaderEpoch)]
    {
        assert_eq!(fetch_in_rack(&mut at_follower, "", offset, epoch).await.error_code, error.code());
    }

    // A record that only the leader and this follower have is not committed, and so not shown.
    let third = *three.brokers.keys().find(|id| ![leader, follower].contains(id)).unwrap();
    three.kill(third).await;
    at_leader.send(9, &produce("t", 1, batch(&["b"]))).await;
    let copy = three.replica(follower, "t");
    three.until("the copy", || copy.view().log_end_offset() == Offset(2)).await;
    let read = fetch_in_rack(&mut at_follower, "", 1, -1).await;
    if read.high_watermark == 1 {
        assert!(read.records.unwrap_or_default().is_empty());
    }
    three.until_in_sync("t", 2).await;
    three.until("the watermark", || copy.high_watermark() == Offset(2)).await;
    assert!(!fetch_in_rack(&mut at_follower, "", 1, -1).await.records.unwrap().is_empty());
}

/// Goal: a damaged replica is copied anew and its files are kept; nobody counts on it meanwhile (FAILURES row 3, G4). Method: a
/// byte of the first of several batches changes while the broker is down; once with the ISR at its minimum or above, once with
/// it below, where the damaged replica is one that might have been elected.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_replica_is_set_aside_and_copied_anew() {
    for dead in [1, 2] {
        let mut three = Three::start().await;
        three.topic("t", &[("min.insync.replicas", "2")]).await;
        three.until_in_sync("t", 3).await;
        for value in ["a", "b", "c"] {
            three.produce("t", value).await;
        }
        three.same_logs("t").await;
        let leader = three.leader("t").unwrap();
        let others: Vec<NodeId> = three.brokers.keys().copied().filter(|id| *id != leader).take(dead).collect();
        for id in &others {
            three.kill(*id).await;
        }
        three.until_in_sync("t", 3 - dead).await;
        let disk = three.disks[&others[0]].fork();
        let segment = std::path::Path::new("/data/t-0/00000000000000000000.log");
        disk.corrupt(segment, |bytes| bytes[65] ^= 1).unwrap();
        assert_eq!(three.add(disk).await, others[0]);
        three.until_in_sync("t", 4 - dead).await;
        assert_eq!(three.produce("t", "d").await, 3);
        assert_eq!(batch_count(&three.same_logs("t").await), 4);
        let names = three.disks[&others[0]].list(std::path::Path::new("/data")).unwrap();
        assert!(names.iter().any(|entry| entry.name.ends_with("-stray")), "{names:?}");
    }
}
