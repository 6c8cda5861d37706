//! Who serves what: the lease, and the lives of a topic.

use std::sync::Arc;

use thalweg_model::{ErrorCode, Timestamp, TopicId};
use thalweg_wire::messages::delete_topics::DeleteTopicState;
use thalweg_wire::messages::fetch::{FetchPartition, FetchTopic};
use thalweg_wire::messages::{DeleteTopicsRequest, FetchRequest, FetchResponse};
use thalweg_world::Clock;
use thalweg_world::disk::SimDisk;

use crate::support::{Client, Cluster, batch, fetch, produce};

/// Goal: a broker that the coordinator no longer hears stops leading by itself (REPLICATION B4). Method: no heartbeat for the
/// length of the lease, by a clock that is moved by hand.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_lease_neither_produce_nor_fetch_is_served() {
    let cluster = Cluster::start().await;
    let (clock, hands) = Clock::manual(Timestamp(1_800_000_000_000));
    let silent = [("broker.heartbeat.interval.ms", "3600000")];
    let broker = cluster.broker_by(clock, Arc::new(SimDisk::new()), &silent).await;
    let mut client = Client::connect(&broker).await;
    client.topic("t").await;
    assert_eq!(client.produce(&produce("t", -1, batch(&["a"]))).await, (ErrorCode::None, 0));
    hands.advance_ms(8_000);
    assert_eq!(client.produce(&produce("t", -1, batch(&["b"]))).await, (ErrorCode::None, 1));
    hands.advance_ms(200);
    assert_eq!(client.produce(&produce("t", -1, batch(&["c"]))).await, (ErrorCode::NotLeaderOrFollower, -1));
    assert_eq!(client.fetch(&fetch("t", 0, 0)).await.0, ErrorCode::NotLeaderOrFollower);
}

async fn fetch_by_id(client: &mut Client, topic_id: TopicId) -> (ErrorCode, usize) {
    let partition = FetchPartition { partition_max_bytes: 1 << 20, ..Default::default() };
    let topics = vec![FetchTopic { topic_id, partitions: vec![partition], ..Default::default() }];
    let response: FetchResponse = client.call(13, &FetchRequest { topics, ..Default::default() }).await;
    let partition = &response.responses[0].partitions[0];
    let bytes = partition.records.as_ref().map_or(0, |records| records.len());
    (ErrorCode::from_code(partition.error_code).unwrap(), bytes)
}

/// Goal: a topic that is deleted and made again is another topic (FAILURES row 50). Method: ask for the old id.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_made_again_starts_empty_and_the_old_id_is_unknown() {
    let cluster = Cluster::start().await;
    let broker = cluster.broker(Arc::new(SimDisk::new()), &[]).await;
    let mut client = Client::connect(&broker).await;
    let old = client.topic("t").await;
    client.produce(&produce("t", -1, batch(&["a"]))).await;
    assert!(fetch_by_id(&mut client, old).await.1 > 0);
    let topics = vec![DeleteTopicState { topic_id: old, ..Default::default() }];
    let deleted = client.call(6, &DeleteTopicsRequest { topics, timeout_ms: 10_000, ..Default::default() }).await;
    assert_eq!(deleted.responses[0].error_code, 0);
    let new = client.topic("t").await;
    assert_ne!(old, new);
    assert_eq!(fetch_by_id(&mut client, new).await, (ErrorCode::None, 0));
    assert_eq!(fetch_by_id(&mut client, old).await.0, ErrorCode::UnknownTopicId);
    assert_eq!(client.produce(&produce("t", -1, batch(&["b"]))).await, (ErrorCode::None, 0));
}
