//! Disks that failed before the process ended, and directories that are away for a while.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use thalweg_broker::shell::dirs::{boot_id, stored_identity};
use thalweg_broker::{Broker, Readiness};
use thalweg_model::{ErrorCode, NodeId, PartitionIndex, TopicId};
use thalweg_proto::v1;
use thalweg_proto::v1::admin_client::AdminClient;
use thalweg_storage::{DirIdentity, LogDir, LogDirConfig};
use thalweg_wire::messages::CreateTopicsRequest;
use thalweg_wire::messages::create_topics::CreatableTopic;
use thalweg_world::Clock;
use thalweg_world::disk::{DirEntry, Disk, DiskFile, DiskLock, Fault, OpenMode, Operation, SimDisk};

use crate::replication::Three;
use crate::support::{Client, Cluster, batch, fetch, produce};

/// Goal: a restart in the same boot does not turn a disk that failed into one that is believed (REPLICATION B2, B3). Method:
/// everybody dies one by one, so that the last two may be elected; the sync of one of them fails in a life that never reached
/// the coordinator. Without that failure it leads as soon as it is back.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_whose_disk_failed_before_it_died_is_not_elected() {
    for has_failed in [false, true] {
        let mut three = Three::start().await;
        three.topic("t", &[("min.insync.replicas", "2"), ("durability", "replicated")]).await;
        three.until_in_sync("t", 3).await;
        three.produce("t", "a").await;
        three.same_logs("t").await;
        let leader = three.leader("t").unwrap();
        let others: Vec<NodeId> = three.brokers.keys().copied().filter(|id| *id != leader).collect();
        three.kill(others[0]).await;
        three.kill(others[1]).await;
        three.until_in_sync("t", 1).await;
        three.kill(leader).await;

        let disk = three.disks[&others[1]].fork();
        if has_failed {
            let identity = stored_identity(&disk, &[PathBuf::from("/data")]).unwrap().unwrap();
            let identity = DirIdentity {
                cluster_id: identity.cluster_id,
                node_id: identity.node_id,
                boot_id: boot_id(),
                new_directory_id: TopicId::ZERO,
            };
            let life = Arc::new(disk.clone());
            let dir = LogDir::open(life, Path::new("/data"), &identity, LogDirConfig::default()).unwrap();
            disk.inject(Fault { operation: Operation::SyncData, skip: 0, error: io::ErrorKind::Other, short: 0 });
            dir.write_checkpoints().unwrap_err();
        }
        three.add(disk).await;
        let seen = three.brokers[&others[1]].services().image();
        let registered = seen.partition("t", PartitionIndex(0)).unwrap().clone();
        let (elected, lost) = if has_failed { (None, vec![others[1]]) } else { (Some(others[1]), vec![]) };
        assert_eq!((registered.leader, registered.lost), (elected, lost));

        three.revive(leader).await;
        three.until_in_sync("t", 2).await;
        assert_eq!(three.produce("t", "b").await, 1);
        three.same_logs("t").await;
        let after = three.disks[&others[1]].list(Path::new("/data")).unwrap();
        assert!(!after.iter().any(|entry| entry.name.starts_with("thalweg.failed")), "{after:?}");
    }
}

/// Goal: a directory that is away at a start is not replaced by empty logs, and its own serve again when it is back. Method: a
/// broker of two directories starts while one of them cannot be read.
#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_is_away_at_a_start_is_not_replaced_by_empty_logs() {
    let cluster = Cluster::start().await;
    let disk = Away { disk: SimDisk::new(), path: Arc::default() };
    let broker = started(&cluster, &disk).await;
    let mut client = Client::connect(&broker).await;
    let topic = CreatableTopic { name: "t".into(), num_partitions: 4, replication_factor: 1, ..Default::default() };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 30_000, ..Default::default() };
    assert_eq!(client.call(7, &request).await.topics[0].error_code, 0);
    assert_eq!(client.produce(&produce("t", -1, batch(&["a"]))).await, (ErrorCode::None, 0));
    let holds = |path: &str| disk.disk.list(Path::new(path)).unwrap().iter().any(|entry| entry.name == "t-0");
    let (home, other) = if holds("/a") { ("/a", "/b") } else { ("/b", "/a") };
    broker.abandon().await;

    *disk.path.lock().unwrap() = Some(PathBuf::from(home));
    let broker = started(&cluster, &disk).await;
    let mut client = Client::connect(&broker).await;
    let (error, _) = client.produce(&produce("t", -1, batch(&["b"]))).await;
    assert_ne!(error, ErrorCode::None);
    assert!(!holds(other));
    let registered = broker.services().image().partition("t", PartitionIndex(0)).unwrap().clone();
    assert_eq!((registered.leader, registered.lost), (None, vec![broker.services().node_id()]));
    broker.abandon().await;

    *disk.path.lock().unwrap() = None;
    let broker = started(&cluster, &disk).await;
    let mut client = Client::connect(&broker).await;
    elect_unclean(&broker, "t").await;
    let (error, high_watermark, records) = client.fetch(&fetch("t", 0, 0)).await;
    assert_eq!((error, high_watermark, records.is_empty()), (ErrorCode::None, 1, false));
}

/// Gives every leaderless partition of a topic to whoever is left.
async fn elect_unclean(broker: &Broker, topic: &str) {
    let topics = vec![v1::TopicPartitions {
        topic: topic.to_owned(),
        partitions: vec![0, 1, 2, 3],
        ..v1::TopicPartitions::default()
    }];
    let election = i32::from(v1::elect_leaders_request::Election::Unclean);
    let request = v1::ElectLeadersRequest { election, topics, ..v1::ElectLeadersRequest::default() };
    let services = broker.services();
    let answer = services.coordinators.call(Duration::from_secs(30), |channel| {
        let request = request.clone();
        async move { AdminClient::new(channel).elect_leaders(request).await }
    });
    services.applied(answer.await.unwrap().index).await;
}

async fn started(cluster: &Cluster, disk: &Away) -> Broker {
    let dirs = vec![PathBuf::from("/a"), PathBuf::from("/b")];
    let broker = cluster.broker_of(None, dirs, Clock::real(), Arc::new(disk.clone()), &[]);
    let mut ready = broker.ready();
    let end = ready.wait_for(|now| matches!(now, Readiness::Ready | Readiness::Failed(_))).await.unwrap().clone();
    assert_eq!(end, Readiness::Ready);
    broker
}

/// A disk of which one directory cannot be reached.
#[derive(Clone, Debug)]
struct Away {
    disk: SimDisk,
    path: Arc<Mutex<Option<PathBuf>>>,
}

impl Away {
    fn reach(&self, path: &Path) -> io::Result<&SimDisk> {
        let away = self.path.lock().unwrap();
        match &*away {
            Some(away) if path.starts_with(away) => Err(io::Error::other("the disk is away")),
            _ => Ok(&self.disk),
        }
    }
}

impl Disk for Away {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        self.reach(path)?.open(path, mode)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.reach(path)?.create_dir_all(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.reach(from)?.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.reach(path)?.remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.reach(path)?.remove_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.reach(path)?.sync_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.reach(path)?.list(path)
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.reach(path)?.free_bytes(path)
    }

    fn total_bytes(&self, path: &Path) -> io::Result<u64> {
        self.reach(path)?.total_bytes(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        self.reach(path)?.lock(path)
    }
}
