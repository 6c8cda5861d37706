//! What a whole broker keeps: over restarts, power cuts, a full disk and a failed one.

use std::io::ErrorKind;
use std::sync::Arc;

use crate::support::{Client, Cluster, batch, fetch, produce};
use thalweg_model::ErrorCode;
use thalweg_world::disk::{Fault, Operation, SimDisk, Survival};

/// Goal: a clean stop loses nothing and the next life serves the same records. Method: one disk, two lives.
#[tokio::test(flavor = "multi_thread")]
async fn records_and_topics_are_there_after_a_clean_restart() {
    let cluster = Cluster::start().await;
    let disk = SimDisk::new();
    let broker = cluster.broker(Arc::new(disk.clone()), &[]).await;
    let mut client = Client::connect(&broker).await;
    client.topic("t").await;
    assert_eq!(client.produce(&produce("t", -1, batch(&["a", "b"]))).await, (ErrorCode::None, 0));
    let (_, _, before) = client.fetch(&fetch("t", 0, 0)).await;
    drop(client);
    broker.shutdown().await;

    let broker = cluster.broker(Arc::new(disk), &[]).await;
    let mut client = Client::connect(&broker).await;
    let (error, high_watermark, records) = client.fetch(&fetch("t", 0, 0)).await;
    assert_eq!((error, high_watermark), (ErrorCode::None, 2));
    assert_eq!(records, before);
    assert_eq!(client.produce(&produce("t", -1, batch(&["c"]))).await, (ErrorCode::None, 2));
}

/// Goal: an acknowledged record survives a power cut that takes everything unsynced (REPLICATION 3.8). Method: cut the
/// disk's power right after the answer, open what is left.
#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledged_record_survives_a_power_cut() {
    for acks in [1, -1] {
        let cluster = Cluster::start().await;
        let disk = SimDisk::new();
        let broker = cluster.broker(Arc::new(disk.clone()), &[]).await;
        let mut client = Client::connect(&broker).await;
        client.topic("t").await;
        assert_eq!(client.produce(&produce("t", acks, batch(&["a", "b"]))).await, (ErrorCode::None, 0));
        let after = disk.crash(&mut |_| Survival::Lost);
        drop(client);
        broker.shutdown().await;

        let broker = cluster.broker(Arc::new(after), &[]).await;
        let mut client = Client::connect(&broker).await;
        assert_eq!(client.latest("t").await, 2, "acks={acks}");
    }
}

/// Goal: a full disk refuses produces with a retriable error, serves reads, and heals (REPLICATION G8).
#[tokio::test(flavor = "multi_thread")]
async fn below_the_reserve_produces_are_refused_and_reads_go_on_until_space_returns() {
    let cluster = Cluster::start().await;
    let disk = SimDisk::new();
    let broker = cluster.broker(Arc::new(disk.clone()), &[]).await;
    let mut client = Client::connect(&broker).await;
    client.topic("t").await;
    disk.set_free_bytes(1 << 20);
    // The first batches may still go into what was granted before.
    let refused = loop {
        match client.produce(&produce("t", -1, batch(&[&"x".repeat(1 << 19)]))).await {
            (ErrorCode::None, _) => {}
            refused => break refused,
        }
    };
    assert_eq!(refused, (ErrorCode::KafkaStorageError, -1));
    assert_eq!(client.fetch(&fetch("t", 0, 0)).await.0, ErrorCode::None);
    disk.set_free_bytes(1 << 40);
    assert_eq!(client.produce(&produce("t", -1, batch(&["y"]))).await.0, ErrorCode::None);
}

/// Goal: after a failed sync nothing is acknowledged from that directory, and the broker lives (REPLICATION G2).
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_sync_takes_the_directory_offline_and_answers_56() {
    let cluster = Cluster::start().await;
    let disk = SimDisk::new();
    // No other file is synced meanwhile.
    let quiet = [("replica.high.watermark.checkpoint.interval.ms", "3600000")];
    let broker = cluster.broker(Arc::new(disk.clone()), &quiet).await;
    let mut client = Client::connect(&broker).await;
    client.topic("t").await;
    disk.inject(Fault { operation: Operation::SyncData, skip: 0, error: ErrorKind::Other, short: 0 });
    assert_eq!(client.produce(&produce("t", -1, batch(&["a"]))).await, (ErrorCode::KafkaStorageError, -1));
    assert_eq!(client.produce(&produce("t", 1, batch(&["b"]))).await, (ErrorCode::KafkaStorageError, -1));
    assert_eq!(client.fetch(&fetch("t", 0, 0)).await.0, ErrorCode::KafkaStorageError);
}
