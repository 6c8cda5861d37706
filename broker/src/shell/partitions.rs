//! The partitions that have a replica here, as everyone but the owner of the log sees them.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use arc_swap::{ArcSwap, Guard};
use thalweg_model::{
    ErrorCode, LeaderEpoch, MonoTime, Offset, PartitionIndex, TopicConfig, TopicId, TopicName, TopicPartition,
};
use thalweg_storage::ReadView;

use super::fetch_wait::FetchWaiters;
use super::interest::Interests;
use crate::machine::traffic::Rate;

/// One replica. Its log belongs to a worker thread; what is here may be read from any thread without locks.
#[derive(Debug)]
pub struct Partition {
    /// Unlike any other partition's of this process, whatever their names.
    pub number: u64,
    pub topic: TopicName,
    pub topic_id: TopicId,
    pub index: PartitionIndex,
    /// Which worker owns the log.
    pub worker: usize,
    /// The log directory that the partition lies in.
    pub dir: PathBuf,
    view: Arc<ReadView>,
    config: ArcSwap<TopicConfig>,
    high_watermark: AtomicI64,
    /// -1 while this replica does not lead.
    leader_epoch: AtomicI32,
    /// -1 while this replica does not follow.
    follower_epoch: AtomicI32,
    knows_latest: AtomicBool,
    has_min_isr: AtomicBool,
    offline: AtomicBool,
    /// On its way in: not in sync yet, and nobody waits for what it copies.
    is_arriving: AtomicBool,
    /// Consumers that wait for the visible end to move.
    pub waiters: FetchWaiters,
    /// Followers; told also when the log grows.
    pub followers: Interests,
    replica_lag: AtomicI64,
    traffic: Traffic,
}

/// Record bytes of clients, counted where they pass and looked at now and then.
#[derive(Debug, Default)]
struct Traffic {
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    rates: Mutex<(Rate, Rate)>,
}

/// What a consumer may see of a partition, taken at one moment (REPLICATION L9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visible {
    pub high_watermark: Offset,
    pub last_stable_offset: Offset,
    pub log_start_offset: Offset,
}

/// Every partition here, by topic. Changes are rare and copy the map; reads take no lock.
#[derive(Debug, Default)]
pub struct Partitions {
    topics: ArcSwap<HashMap<TopicName, Arc<LocalTopic>>>,
    names: ArcSwap<HashMap<TopicId, TopicName>>,
    /// Replicas that should be here and whose logs cannot be opened.
    unopened: Mutex<BTreeSet<(TopicId, PartitionIndex)>>,
}

/// The partitions of one topic that are here.
#[derive(Clone, Debug)]
pub struct LocalTopic {
    pub id: TopicId,
    /// By partition index.
    partitions: Vec<Option<Arc<Partition>>>,
}

/// How a partition is to be made known.
pub struct NewPartition {
    pub topic: TopicName,
    pub topic_id: TopicId,
    pub index: PartitionIndex,
    pub worker: usize,
    pub dir: PathBuf,
    pub view: Arc<ReadView>,
    pub config: TopicConfig,
    pub high_watermark: Offset,
}

impl Partition {
    pub fn new(new: NewPartition) -> Partition {
        Partition {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            topic: new.topic,
            topic_id: new.topic_id,
            index: new.index,
            worker: new.worker,
            dir: new.dir,
            view: new.view,
            config: ArcSwap::from_pointee(new.config),
            high_watermark: AtomicI64::new(new.high_watermark.0),
            leader_epoch: AtomicI32::new(LeaderEpoch::NONE.0),
            follower_epoch: AtomicI32::new(LeaderEpoch::NONE.0),
            knows_latest: AtomicBool::new(false),
            has_min_isr: AtomicBool::new(false),
            offline: AtomicBool::new(false),
            is_arriving: AtomicBool::new(false),
            waiters: FetchWaiters::default(),
            followers: Interests::default(),
            replica_lag: AtomicI64::new(0),
            traffic: Traffic::default(),
        }
    }

    pub fn tp(&self) -> TopicPartition {
        TopicPartition::new(self.topic.clone(), self.index)
    }

    pub fn view(&self) -> &ReadView {
        &self.view
    }

    pub fn config(&self) -> Guard<Arc<TopicConfig>> {
        self.config.load()
    }

    /// The epoch in which this replica leads; `None` while it does not.
    pub fn leader_epoch(&self) -> Option<LeaderEpoch> {
        let epoch = self.leader_epoch.load(Ordering::Acquire);
        (epoch >= 0).then_some(LeaderEpoch(epoch))
    }

    pub fn is_offline(&self) -> bool {
        self.offline.load(Ordering::Acquire)
    }

    /// Whether a move brings this replica here and it is not in sync yet.
    pub fn is_arriving(&self) -> bool {
        self.is_arriving.load(Ordering::Acquire)
    }

    /// Producers have written so much.
    pub fn count_in(&self, bytes: u64) {
        self.traffic.bytes_in.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Consumers were given so much.
    pub fn count_out(&self, bytes: u64) {
        self.traffic.bytes_out.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes note of how much has come and gone by now.
    pub fn look_at_traffic(&self, now: MonoTime) {
        let mut rates = self.rates();
        rates.0.look(now, self.traffic.bytes_in.load(Ordering::Relaxed));
        rates.1.look(now, self.traffic.bytes_out.load(Ordering::Relaxed));
    }

    /// Bytes per second that producers write and consumers are given, of the last minutes.
    pub fn bytes_per_second(&self) -> (u64, u64) {
        let rates = self.rates();
        (rates.0.per_second(), rates.1.per_second())
    }

    fn rates(&self) -> MutexGuard<'_, (Rate, Rate)> {
        self.traffic.rates.lock().expect("no code panics while it holds this lock")
    }

    pub fn has_min_isr(&self) -> bool {
        self.has_min_isr.load(Ordering::Acquire)
    }

    /// Whether the leader knows what is committed; right after an election it does not (L9).
    pub fn knows_latest(&self) -> bool {
        self.knows_latest.load(Ordering::Acquire)
    }

    pub fn high_watermark(&self) -> Offset {
        Offset(self.high_watermark.load(Ordering::Acquire))
    }

    /// Bounds of what consumers see. The start is taken first and may lag; it never lies above the watermark.
    pub fn visible(&self) -> Visible {
        let log_start_offset = self.view.log_start_offset();
        let high_watermark = self.high_watermark().max(log_start_offset);
        Visible {
            high_watermark,
            last_stable_offset: self.view.last_stable_offset().min(high_watermark),
            log_start_offset,
        }
    }

    /// Whether a request that names `asked` as its epoch may be served by this replica as the leader. A negative epoch is not
    /// checked.
    ///
    /// # Errors
    /// Offline 56, not the leader 6, an older epoch 74, a newer one 75.
    pub fn check_leader(&self, asked: LeaderEpoch) -> Result<LeaderEpoch, ErrorCode> {
        if self.is_offline() {
            return Err(ErrorCode::KafkaStorageError);
        }
        let epoch = self.leader_epoch().ok_or(ErrorCode::NotLeaderOrFollower)?;
        check_epoch(asked, epoch)
    }

    /// Whether a consumer's request that names `asked` as its epoch may be served by this replica; says whether it leads.
    ///
    /// # Errors
    /// As [`Partition::check_leader`].
    pub fn check_reader(&self, asked: LeaderEpoch, may_follow: bool) -> Result<bool, ErrorCode> {
        let follows = self.follower_epoch.load(Ordering::Acquire);
        if may_follow && follows >= 0 && !self.is_offline() {
            return check_epoch(asked, LeaderEpoch(follows)).map(|_| false);
        }
        self.check_leader(asked).map(|_| true)
    }

    /// Records that the replica lacks that lacks most, as the leader last saw it; 0 where this replica does not lead.
    pub fn replica_lag(&self) -> i64 {
        self.replica_lag.load(Ordering::Relaxed)
    }

    // What follows is for the owner of the log alone.

    pub(super) fn publish_replica_lag(&self, records: i64) {
        self.replica_lag.store(records, Ordering::Relaxed);
    }

    pub(super) fn set_config(&self, config: TopicConfig) {
        self.config.store(Arc::new(config));
    }

    pub(super) fn publish_high_watermark(&self, high_watermark: Offset) {
        self.high_watermark.store(high_watermark.0, Ordering::Release);
    }

    pub(super) fn publish_follower(&self, epoch: Option<LeaderEpoch>) {
        self.follower_epoch.store(epoch.unwrap_or(LeaderEpoch::NONE).0, Ordering::Release);
    }

    pub(super) fn publish_leader(&self, epoch: Option<LeaderEpoch>, has_min_isr: bool, knows_latest: bool) {
        self.has_min_isr.store(has_min_isr, Ordering::Release);
        self.knows_latest.store(knows_latest, Ordering::Release);
        self.leader_epoch.store(epoch.unwrap_or(LeaderEpoch::NONE).0, Ordering::Release);
    }

    pub(super) fn publish_arriving(&self, is_arriving: bool) {
        self.is_arriving.store(is_arriving, Ordering::Release);
    }

    pub(super) fn publish_offline(&self) {
        self.offline.store(true, Ordering::Release);
    }
}

impl LocalTopic {
    pub fn partition(&self, index: PartitionIndex) -> Option<&Arc<Partition>> {
        self.partitions.get(usize::try_from(index.0).ok()?)?.as_ref()
    }

    pub fn partitions(&self) -> impl Iterator<Item = &Arc<Partition>> {
        self.partitions.iter().flatten()
    }
}

impl Partitions {
    pub fn topic(&self, name: &str) -> Option<Arc<LocalTopic>> {
        self.topics.load().get(name).map(Arc::clone)
    }

    pub fn topic_by_id(&self, id: TopicId) -> Option<Arc<LocalTopic>> {
        let names = self.names.load();
        self.topic(names.get(&id)?.as_str())
    }

    pub fn partition(&self, topic: &str, index: PartitionIndex) -> Option<Arc<Partition>> {
        self.topics.load().get(topic)?.partition(index).map(Arc::clone)
    }

    /// All of them, in no order.
    pub fn all(&self) -> Vec<Arc<Partition>> {
        self.topics.load().values().flat_map(|topic| topic.partitions()).map(Arc::clone).collect()
    }

    /// Replicas that should be here and whose logs cannot be opened, in order.
    pub fn unopened(&self) -> Vec<(TopicId, PartitionIndex)> {
        self.unopened_set().iter().copied().collect()
    }

    pub(super) fn note_unopened(&self, id: TopicId, index: PartitionIndex) {
        self.unopened_set().insert((id, index));
    }

    fn unopened_set(&self) -> MutexGuard<'_, BTreeSet<(TopicId, PartitionIndex)>> {
        self.unopened.lock().expect("no code panics while it holds this lock")
    }

    /// Makes partitions known. Only one task changes the set.
    pub(super) fn add(&self, added: Vec<Arc<Partition>>) {
        self.unopened_set().retain(|key| added.iter().all(|added| (added.topic_id, added.index) != *key));
        let mut topics = HashMap::clone(&self.topics.load());
        let mut names = HashMap::clone(&self.names.load());
        for partition in added {
            let id = partition.topic_id;
            let topic = topics
                .entry(partition.topic.clone())
                .or_insert_with(|| Arc::new(LocalTopic { id, partitions: Vec::new() }));
            let topic = Arc::make_mut(topic);
            topic.id = id;
            names.insert(id, partition.topic.clone());
            let Ok(slot) = usize::try_from(partition.index.0) else { continue };
            if topic.partitions.len() <= slot {
                topic.partitions.resize(slot + 1, None);
            }
            topic.partitions[slot] = Some(partition);
        }
        self.names.store(Arc::new(names));
        self.topics.store(Arc::new(topics));
    }

    /// Forgets one partition, whose replica here is no more.
    pub(super) fn remove_one(&self, partition: &Partition) {
        let mut topics = HashMap::clone(&self.topics.load());
        let Some(topic) = topics.get_mut(&partition.topic).filter(|topic| topic.id == partition.topic_id) else {
            return;
        };
        let topic = Arc::make_mut(topic);
        if let Some(slot) = usize::try_from(partition.index.0).ok().and_then(|slot| topic.partitions.get_mut(slot)) {
            *slot = None;
        }
        self.topics.store(Arc::new(topics));
    }

    /// Forgets one life of a topic; returns the partitions that it had here.
    pub(super) fn remove(&self, name: &TopicName, id: TopicId) -> Vec<Arc<Partition>> {
        self.unopened_set().retain(|(unopened, _)| *unopened != id);
        let mut topics = HashMap::clone(&self.topics.load());
        if topics.get(name).is_none_or(|topic| topic.id != id) {
            return Vec::new();
        }
        let removed = topics.remove(name);
        let mut names = HashMap::clone(&self.names.load());
        names.remove(&id);
        self.topics.store(Arc::new(topics));
        self.names.store(Arc::new(names));
        removed.map(|topic| topic.partitions().map(Arc::clone).collect()).unwrap_or_default()
    }
}

fn check_epoch(asked: LeaderEpoch, known: LeaderEpoch) -> Result<LeaderEpoch, ErrorCode> {
    if asked < LeaderEpoch(0) || asked == known {
        Ok(known)
    } else if asked < known {
        Err(ErrorCode::FencedLeaderEpoch)
    } else {
        Err(ErrorCode::UnknownLeaderEpoch)
    }
}

static NUMBERS: AtomicU64 = AtomicU64::new(0);
