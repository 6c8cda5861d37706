//! One connection against a whole broker: order, silence, half-closed ends, bytes that are no Kafka.

use std::sync::Arc;

use crate::support::{Client, Cluster, batch, fetch, outcome, produce};
use thalweg_model::ErrorCode;
use thalweg_wire::messages::{
    ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse, ProduceResponse,
};
use thalweg_world::disk::SimDisk;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn broker() -> (Cluster, thalweg_broker::Broker) {
    let cluster = Cluster::start().await;
    let broker = cluster.broker(Arc::new(SimDisk::new()), &[]).await;
    (cluster, broker)
}

/// Goal: answers leave in the order of requests. Method: produce requests that wait for a sync, and requests that need no
/// waiting, all sent before anything is read.
#[tokio::test(flavor = "multi_thread")]
async fn pipelined_requests_are_answered_in_order_and_records_keep_it() {
    let (_cluster, broker) = broker().await;
    let mut client = Client::connect(&broker).await;
    client.topic("t").await;
    let mut sent = Vec::new();
    for round in 0..20 {
        sent.push(client.send(9, &produce("t", -1, batch(&[&format!("a{round}"), "x"]))).await);
        sent.push(client.send(9, &produce("t", 1, batch(&[&format!("b{round}")]))).await);
        sent.push(client.send(3, &named_client()).await);
    }
    for round in 0..20 {
        let (first, response) = client.receive::<ProduceResponse>(9).await;
        assert_eq!(outcome(&response), (ErrorCode::None, round * 3));
        let (second, response) = client.receive::<ProduceResponse>(9).await;
        assert_eq!(outcome(&response), (ErrorCode::None, round * 3 + 2));
        let (third, _) = client.receive::<ApiVersionsResponse>(3).await;
        assert_eq!([first, second, third], sent[round as usize * 3..][..3]);
    }
}

fn named_client() -> ApiVersionsRequest {
    ApiVersionsRequest {
        client_software_name: "test".to_owned(),
        client_software_version: "1".to_owned(),
        ..Default::default()
    }
}

/// Goal: acks=0 gets no byte back and its records come before what follows. Method: the next answer is the next request's.
#[tokio::test(flavor = "multi_thread")]
async fn a_produce_without_acks_is_silent_and_an_error_in_it_closes() {
    let (_cluster, broker) = broker().await;
    let mut client = Client::connect(&broker).await;
    client.topic("t").await;
    client.send(9, &produce("t", 0, batch(&["a"]))).await;
    assert_eq!(client.produce(&produce("t", -1, batch(&["b"]))).await, (ErrorCode::None, 1));
    client.send(9, &produce("missing", 0, batch(&["c"]))).await;
    assert_eq!(client.frame().await, None);
}

/// Goal: a client that has said all it wants to say still gets its answers. Method: shut down the sending side while a fetch
/// waits, then let another connection produce what it waits for.
#[tokio::test(flavor = "multi_thread")]
async fn a_half_closed_connection_is_still_answered() {
    let (_cluster, broker) = broker().await;
    let mut waiting = Client::connect(&broker).await;
    waiting.topic("t").await;
    let id = waiting.send(11, &fetch("t", 0, 60_000)).await;
    waiting.stream.shutdown().await.unwrap();
    let mut producer = Client::connect(&broker).await;
    producer.produce(&produce("t", -1, batch(&["a"]))).await;
    let (answered, response) = waiting.receive::<thalweg_wire::messages::FetchResponse>(11).await;
    assert_eq!(answered, id);
    assert!(response.responses[0].partitions[0].records.as_ref().is_some_and(|records| !records.is_empty()));
    assert_eq!(waiting.frame().await, None);
}

/// Goal: a reset ends a request that waits. Method: count open connections.
#[tokio::test(flavor = "multi_thread")]
async fn a_reset_connection_is_noticed_while_its_fetch_waits() {
    let (_cluster, broker) = broker().await;
    let mut client = Client::connect(&broker).await;
    client.topic("t").await;
    client.send(11, &fetch("t", 0, i32::MAX)).await;
    client.stream.set_zero_linger().unwrap();
    drop(client);
    let connections = broker.metrics();
    while connections.connections.get() > 0 {
        tokio::task::yield_now().await;
    }
}

/// Goal: what is no Kafka request ends the connection and nothing else. Method: one bad start each, then a good client.
#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_request_close_the_connection_without_an_answer() {
    let (_cluster, broker) = broker().await;
    let unknown_api = [0, 0, 0, 10, 0x7f, 0xff, 0, 0, 0, 0, 0, 1, 0xff, 0xff];
    let version_too_high = [0, 0, 0, 10, 0, 3, 0x7f, 0xff, 0, 0, 0, 1, 0xff, 0xff];
    let cut_body = [0, 0, 0, 11, 0, 3, 0, 9, 0, 0, 0, 1, 0xff, 0xff, 0];
    let starts: [&[u8]; 8] = [
        b"GET / HTTP/1.1\r\n\r\n",
        &[0x16, 3, 1, 2, 0, 1, 0, 1],
        &[0x7f, 0xff, 0xff, 0xff],
        &[0xff, 0xff, 0xff, 0xff],
        &[0, 0, 0, 0],
        &unknown_api,
        &version_too_high,
        &cut_body,
    ];
    for start in starts {
        let mut client = Client::connect(&broker).await;
        client.stream.write_all(start).await.unwrap();
        let mut answer = Vec::new();
        // A reset instead of an end is as good: not all of the garbage was read.
        let _ = client.stream.read_to_end(&mut answer).await;
        assert_eq!(answer, [0; 0], "{start:?}");
    }
    let mut client = Client::connect(&broker).await;
    client.topic("t").await;
}

/// Goal: a version above ours leaves the connection usable (KIP-511).
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_api_versions_version_is_answered_in_version_0_and_the_connection_lives() {
    let (_cluster, broker) = broker().await;
    let mut client = Client::connect(&broker).await;
    client.stream.write_all(&[0, 0, 0, 10, 0, 18, 0, 99, 0, 0, 0, 5, 0xff, 0xff]).await.unwrap();
    let (id, response) = client.receive::<ApiVersionsResponse>(0).await;
    assert_eq!((id, response.error_code), (5, ErrorCode::UnsupportedVersion.code()));
    let response: MetadataResponse = client.call(1, &MetadataRequest::default()).await;
    assert_eq!(response.brokers.len(), 1);
}
