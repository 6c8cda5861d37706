//! Brokers and coordinators that do not belong together: each ends with the reason and the way out, and harms nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_broker::{Broker, Readiness};
use thalweg_coordinator::{Coordinator, CoordinatorConfig, MemStore};
use thalweg_model::ErrorCode;
use thalweg_world::Clock;
use thalweg_world::disk::{Disk, OpenMode, SimDisk};

use crate::support::{Client, Cluster, batch, fetch, produce};

fn start(cluster: &Cluster, disk: &SimDisk) -> Broker {
    let properties = [("broker.session.timeout.ms", "1000"), ("broker.heartbeat.interval.ms", "50")];
    cluster.broker_of(None, vec![PathBuf::from("/data")], Clock::real(), Arc::new(disk.clone()), &properties)
}

/// What it says when it gives up.
async fn reason(broker: &Broker) -> String {
    match broker.ready().wait_for(|now| matches!(now, Readiness::Failed(_))).await.as_deref() {
        Ok(Readiness::Failed(reason)) => reason.clone(),
        other => panic!("{other:?}"),
    }
}

async fn is_ready(broker: &Broker) {
    let mut ready = broker.ready();
    let end = ready.wait_for(|now| matches!(now, Readiness::Ready | Readiness::Failed(_))).await.unwrap().clone();
    assert_eq!(end, Readiness::Ready);
}

/// A broker with one record on its disk.
async fn with_a_record(cluster: &Cluster) -> (Broker, SimDisk) {
    let disk = SimDisk::new();
    let broker = start(cluster, &disk);
    is_ready(&broker).await;
    let mut client = Client::connect(&broker).await;
    client.topic("t").await;
    assert_eq!(client.produce(&produce("t", -1, batch(&["a"]))).await, (ErrorCode::None, 0));
    (broker, disk)
}

/// Goal: a copy of a broker's directories is no second life of it: neither beside it nor after it. Method: the copy is started
/// while the first lives; then the first ends and the copy, which has counted as many lives, comes before it.
#[tokio::test(flavor = "multi_thread")]
async fn a_cloned_data_directory_is_refused() {
    let cluster = Cluster::start().await;
    let (first, disk) = with_a_record(&cluster).await;
    let copy = disk.fork();
    let clone = start(&cluster, &copy);
    let said = reason(&clone).await;
    assert!(said.contains("alive in another process") && said.contains("of its own"), "{said}");
    clone.abandon().await;
    let mut client = Client::connect(&first).await;
    assert_eq!(client.produce(&produce("t", -1, batch(&["b"]))).await, (ErrorCode::None, 1));
    first.shutdown().await;

    let second = start(&cluster, &disk);
    is_ready(&second).await;
    // Its second life, as that of the other.
    let clone = start(&cluster, &copy);
    let said = reason(&clone).await;
    assert!(said.contains("alive in another process"), "{said}");
    clone.abandon().await;
    second.abandon().await;
    let later = start(&cluster, &copy.fork());
    is_ready(&later).await;
    let registered = later.services().image().partition("t", thalweg_model::PartitionIndex(0)).unwrap().clone();
    assert_eq!((registered.leader, registered.lost.len()), (None, 1), "it lacks what was written since it was copied");
}

/// Goal: coordinators that have lost their data do not make brokers delete theirs. Method: a coordinator without data takes the
/// place of the first while a broker runs; then the broker is started again.
#[tokio::test(flavor = "multi_thread")]
async fn coordinators_that_come_back_empty_are_refused_and_nothing_is_deleted() {
    let mut cluster = Cluster::start().await;
    let (broker, disk) = with_a_record(&cluster).await;
    let config = CoordinatorConfig { listen: cluster.coordinator.local_addr(), ..CoordinatorConfig::default() };
    cluster.coordinator.shutdown().await;
    cluster.coordinator = Coordinator::start(config, Arc::new(MemStore::new()), Clock::real()).await.unwrap();
    let said = reason(&broker).await;
    assert!(said.contains("the coordinators are those of cluster") && said.contains("bring"), "{said}");
    broker.abandon().await;
    let again = start(&cluster, &disk);
    let said = reason(&again).await;
    assert!(said.contains("the coordinators are those of cluster") && said.contains("bring"), "{said}");
    again.abandon().await;
    assert!(disk.open(Path::new("/data/t-0/00000000000000000000.log"), OpenMode::Read).unwrap().len().unwrap() > 0);
}

/// Goal: coordinators that were restored from an older copy are not followed by brokers that know more. Method: the broker's
/// directory knows of an entry that is still to come.
#[tokio::test(flavor = "multi_thread")]
async fn coordinators_older_than_a_brokers_directories_are_refused() {
    let cluster = Cluster::start().await;
    let (broker, disk) = with_a_record(&cluster).await;
    broker.shutdown().await;
    let path = Path::new("/data/thalweg.registration");
    let known = String::from_utf8(disk.contents(path).unwrap()).unwrap();
    let newer: String = known
        .lines()
        .map(|line| match line.split_once('=') {
            Some(("metadata.index", _)) => "metadata.index=1000000\n".to_owned(),
            _ => format!("{line}\n"),
        })
        .collect();
    let copy = disk.fork();
    copy.corrupt(path, |bytes| *bytes = newer.into_bytes()).unwrap();
    let refused = start(&cluster, &copy);
    let said = reason(&refused).await;
    assert!(said.contains("entry 1000000") && said.contains("restored from an older copy"), "{said}");
    refused.abandon().await;
    let broker = start(&cluster, &disk);
    is_ready(&broker).await;
    let mut client = Client::connect(&broker).await;
    assert_eq!(client.fetch(&fetch("t", 0, 0)).await.0, ErrorCode::None);
}
