//! Brings about what the image says: logs that should exist do, leaders lead, what is gone goes.
//!
//! One task at a time; by the time [`Reconciler::apply`] returns, the partitions serve as the image says.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::join_all;
use thalweg_model::{ErrorCode, PartitionEpoch, PartitionIndex, TopicConfig, TopicId, TopicName, TopicPartition};
use thalweg_storage::{LogConfig, LogDir, OpenError, PartitionLog};
use tracing::{error, info, warn};

use super::dirs::{Dirs, FoundLog};
use super::fetcher::Fetchers;
use super::owner::{Owner, replica_of};
use super::partitions::{NewPartition, Partition};
use crate::machine::image::{Changes, Image, TopicImage};
use crate::machine::replica::ReplicaSettings;
use crate::services::Services;

/// Owner of the set of local partitions.
pub struct Reconciler {
    services: Arc<Services>,
    dirs: Arc<Dirs>,
    /// Found at start and not yet claimed by the image; several, where directories were away for a while.
    found: HashMap<TopicPartition, Vec<FoundLog>>,
    is_first: bool,
    fetchers: Fetchers,
    /// Up to here the feed tells of earlier lives of this broker: it must not lead in their epochs, whose records a crash may
    /// have taken.
    registered_at: u64,
    has_begun: bool,
}

/// A partition that should be here and is not yet.
struct Wanted {
    tp: TopicPartition,
    topic_id: TopicId,
    config: TopicConfig,
    /// Nobody counts on what is here: a damaged log may be put aside and copied anew (REPLICATION G4).
    is_spare: bool,
    /// Nothing has happened to the partition since it was made, so that no directory can hold a log of it.
    is_new: bool,
}

impl Reconciler {
    /// `registered_at`: the index of this life's registration.
    pub fn new(
        services: Arc<Services>,
        dirs: Arc<Dirs>,
        found: Vec<FoundLog>,
        fetchers: Fetchers,
        registered_at: u64,
    ) -> Reconciler {
        let mut by_partition: HashMap<TopicPartition, Vec<FoundLog>> = HashMap::with_capacity(found.len());
        for one in found {
            by_partition.entry(one.log.topic_partition().clone()).or_default().push(one);
        }
        Reconciler { services, dirs, found: by_partition, is_first: true, fetchers, registered_at, has_begun: false }
    }

    pub async fn apply(&mut self, image: &Image, changes: &Changes) {
        self.remove(changes).await;
        self.remove_moved(image, changes).await;
        self.open(image, changes.partitions.iter()).await;
        self.configure(image, changes).await;
        if self.has_begun {
            let changed = changes
                .partitions
                .iter()
                .filter_map(|(topic, index)| self.services.partitions.partition(topic.as_str(), *index));
            let changed = changed.collect();
            self.register(image, changed).await;
        } else if image.index >= self.registered_at {
            self.has_begun = true;
            // What could not be opened while nobody knew whether it is counted on.
            let named = |topic: &Arc<TopicImage>| {
                let name = topic.name.clone();
                topic.partitions.keys().map(move |index| (name.clone(), *index)).collect::<Vec<_>>()
            };
            let every: Vec<(TopicName, PartitionIndex)> = image.topics.values().flat_map(named).collect();
            self.open(image, every.iter()).await;
            let all = self.services.partitions.all();
            self.register(image, all).await;
        }
        if std::mem::take(&mut self.is_first) {
            self.clear_unclaimed(image).await;
        }
    }

    async fn remove(&mut self, changes: &Changes) {
        for (name, id) in &changes.removed {
            let partitions = self.services.partitions.remove(name, *id);
            if partitions.is_empty() {
                continue;
            }
            let mut gone: Vec<(PathBuf, TopicPartition)> = Vec::new();
            for partition in &partitions {
                if let Ok(owner) = self.services.workers().release(partition).await {
                    drop(owner.into_log(ErrorCode::UnknownTopicOrPartition));
                }
                gone.push((partition.dir.clone(), partition.tp()));
            }
            self.delete(gone).await;
        }
    }

    async fn delete(&self, gone: Vec<(PathBuf, TopicPartition)>) {
        let dirs = Arc::clone(&self.dirs);
        let deleted = tokio::task::spawn_blocking(move || {
            gone.iter().for_each(|(path, tp)| dirs.delete(path, tp));
        });
        // Only the names go now; the space is freed off this path. Cancelled only at shutdown.
        let _ = deleted.await;
        let dirs = Arc::clone(&self.dirs);
        tokio::task::spawn_blocking(move || dirs.remove_deleted());
    }

    /// Makes or opens the logs of partitions that have a replica here and are not known yet.
    async fn open(&mut self, image: &Image, partitions: impl Iterator<Item = &(TopicName, PartitionIndex)>) {
        let mut new = Vec::new();
        for (topic, index) in partitions {
            let Some(wanted) = self.wanted(image, topic, *index) else { continue };
            let found = self.found.remove(&wanted.tp).unwrap_or_default();
            let (dirs, services) = (Arc::clone(&self.dirs), Arc::clone(&self.services));
            new.push(move || open_one(&services, &dirs, wanted, found));
        }
        let mut added = Vec::new();
        let mut new = new.into_iter();
        while new.len() > 0 {
            let opening: Vec<_> = new.by_ref().take(OPENED_AT_A_TIME).map(tokio::task::spawn_blocking).collect();
            for opened in join_all(opening).await {
                let Ok(Some(owner)) = opened else { continue };
                added.push(Arc::clone(owner.partition()));
                self.services.workers().give(owner);
            }
        }
        if !added.is_empty() {
            self.services.partitions.add(added);
        }
    }

    fn wanted(&self, image: &Image, topic: &TopicName, index: PartitionIndex) -> Option<Wanted> {
        let topic = image.topic(topic.as_str())?;
        let registration = topic.partitions.get(&index)?;
        let node = self.services.node_id();
        let is_here = registration.replicas.contains(&node);
        let is_counted_on = registration.isr.contains(&node) || registration.elr.contains(&node);
        if !is_here || self.services.partitions.partition(topic.name.as_str(), index).is_some() {
            return None;
        }
        let is_current = image.index >= self.registered_at;
        Some(Wanted {
            tp: TopicPartition::new(topic.name.clone(), index),
            topic_id: topic.id,
            config: self.services.topic_config(image, topic.name.as_str()),
            is_spare: registration.replicas.len() > 1 && !is_counted_on && is_current,
            is_new: registration.partition_epoch == PartitionEpoch(0) && is_current,
        })
    }

    /// Tells owners of logs what the coordinator says of their partitions.
    async fn register(&mut self, image: &Image, partitions: Vec<Arc<Partition>>) {
        let node = self.services.node_id();
        let mut told = Vec::new();
        for partition in partitions {
            let Some(registered) = image.partition(partition.topic.as_str(), partition.index) else { continue };
            let registration = registered.clone();
            let link = registered.leader.filter(|leader| *leader != node).map(|leader| self.fetchers.link(leader));
            let services = Arc::clone(&self.services);
            told.push(async move {
                let order = move |owner: &mut Owner| owner.registered(&registration, link);
                // Gone means that its worker stopped: the broker is going down.
                let _ = services.workers().ask(&partition, order).await;
            });
        }
        join_all(told).await;
    }

    /// Gives up replicas that were moved to other brokers.
    async fn remove_moved(&mut self, image: &Image, changes: &Changes) {
        let node = self.services.node_id();
        for (topic, index) in &changes.partitions {
            let Some(registered) = image.partition(topic.as_str(), *index) else { continue };
            if registered.replicas.contains(&node) {
                continue;
            }
            let Some(partition) = self.services.partitions.partition(topic.as_str(), *index) else { continue };
            self.services.partitions.remove_one(&partition);
            if let Ok(owner) = self.services.workers().release(&partition).await {
                drop(owner.into_log(ErrorCode::NotLeaderOrFollower));
            }
            info!(tp = %partition.tp(), "the replica here was moved away");
            self.delete(vec![(partition.dir.clone(), partition.tp())]).await;
        }
    }

    /// Returns when what was changed is in force: whoever changed it is answered then.
    async fn configure(&self, image: &Image, changes: &Changes) {
        let mut told = Vec::new();
        for name in &changes.configs {
            let Some(topic) = self.services.partitions.topic(name.as_str()) else { continue };
            let config = self.services.topic_config(image, name.as_str());
            let log_config = log_config(&self.services, &config);
            let settings = replica_settings(&self.services, &config);
            for partition in topic.partitions() {
                let (services, partition) = (Arc::clone(&self.services), Arc::clone(partition));
                let (config, log_config) = (config.clone(), log_config.clone());
                told.push(async move {
                    let order = move |owner: &mut Owner| owner.configure(config, settings, log_config);
                    // Gone means that its worker stopped: the broker is going down.
                    let _ = services.workers().ask(&partition, order).await;
                });
            }
        }
        join_all(told).await;
    }

    /// Logs that nobody claims. Those of partitions that were moved away while this broker was away go; those of no topic, which
    /// was deleted meanwhile or belongs to a lost coordinator, are set aside.
    async fn clear_unclaimed(&mut self, image: &Image) {
        let node = self.services.node_id();
        let is_current = image.index >= self.registered_at;
        let was_moved = |found: &FoundLog| {
            let tp = found.log.topic_partition();
            let topic = image.topic_by_id(found.log.topic_id());
            let registered = topic.and_then(|topic| topic.partitions.get(&tp.partition));
            is_current && registered.is_some_and(|registered| !registered.replicas.contains(&node))
        };
        let (moved, found): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.found).into_values().flatten().partition(|found| was_moved(found));
        let mut gone = Vec::new();
        for FoundLog { dir, log } in moved {
            let tp = log.topic_partition().clone();
            info!(%tp, "the replica here was moved away while this broker was");
            self.dirs.count(dir.path());
            gone.push((dir.path().to_owned(), tp));
            drop(log);
        }
        if !gone.is_empty() {
            self.delete(gone).await;
        }
        if found.is_empty() {
            return;
        }
        let set_aside = tokio::task::spawn_blocking(move || found.into_iter().for_each(set_aside));
        // Cancelled only at shutdown.
        let _ = set_aside.await;
    }
}

/// The configuration of a topic's logs on this broker.
pub fn log_config(services: &Services, config: &TopicConfig) -> LogConfig {
    LogConfig {
        producer_id_expiration_ms: services.config.properties.number("producer.id.expiration.ms"),
        ..LogConfig::from_topic(config)
    }
}

fn replica_settings(services: &Services, config: &TopicConfig) -> ReplicaSettings {
    ReplicaSettings {
        durability: config.durability,
        min_insync_replicas: usize::try_from(config.min_insync_replicas).unwrap_or(1),
        lag_max: services.config.properties.millis("replica.lag.time.max.ms"),
    }
}

fn open_one(services: &Services, dirs: &Dirs, wanted: Wanted, found: Vec<FoundLog>) -> Option<Owner> {
    let log_config = log_config(services, &wanted.config);
    let (dir, log) = match choose(found, wanted.topic_id) {
        Some(mut found) => {
            found.log.set_config(log_config);
            dirs.count(found.dir.path());
            (found.dir, found.log)
        }
        None => {
            let opened = open_or_create(dirs, &wanted, log_config);
            if opened.is_none() {
                // The coordinator hears of it with the next heartbeat; then there may be a way out.
                services.partitions.note_unopened(wanted.topic_id, wanted.tp.partition);
            }
            opened?
        }
    };
    let partition = Partition::new(NewPartition {
        worker: services.workers().owner_of(wanted.topic_id, wanted.tp.partition),
        topic_id: wanted.topic_id,
        index: wanted.tp.partition,
        dir: dir.path().to_owned(),
        view: log.view(),
        // A watermark of another life of the name would be put within this log, which is empty then.
        high_watermark: dirs.high_watermark(&wanted.tp).max(log.log_start_offset()).min(log.log_end_offset()),
        topic: wanted.tp.topic,
        config: wanted.config,
    });
    let settings = replica_settings(services, &partition.config());
    let replica = replica_of(services.node_id(), settings, &partition);
    Some(Owner::new(Arc::new(partition), log, replica, services.worker_env.clone()))
}

fn open_or_create(dirs: &Dirs, wanted: &Wanted, config: LogConfig) -> Option<(Arc<LogDir>, PartitionLog)> {
    // One that could not be opened at start, or was half made, is where it was.
    for dir in dirs.all() {
        match dir.open_partition(&wanted.tp, wanted.topic_id, config.clone()) {
            Ok(log) => {
                dirs.count(dir.path());
                return Some((Arc::clone(dir), log));
            }
            Err(OpenError::NotFound { .. } | OpenError::LogDirOffline) => {}
            Err(error @ OpenError::Corrupt { .. }) if wanted.is_spare => match dir.set_aside_partition(&wanted.tp) {
                Ok(name) => warn!(tp = %wanted.tp, %error, %name, "a damaged log is set aside and copied anew"),
                Err(error) => {
                    error!(tp = %wanted.tp, %error, "a damaged log cannot be set aside");
                    return None;
                }
            },
            Err(error) => {
                error!(tp = %wanted.tp, %error, "a partition is not served: its log cannot be opened");
                return None;
            }
        }
    }
    if !dirs.is_whole() && !wanted.is_spare && !wanted.is_new {
        // An empty log in its place would pass for the one that is counted on.
        error!(tp = %wanted.tp, "a partition is not served: its log may be in a log directory that does not work");
        return None;
    }
    let Some(dir) = dirs.place() else {
        error!(tp = %wanted.tp, "a partition cannot be made: no log directory works");
        return None;
    };
    match dir.create_partition(&wanted.tp, wanted.topic_id, config) {
        Ok(log) => {
            info!(tp = %wanted.tp, topic_id = %wanted.topic_id, dir = %dir.path().display(), "partition made");
            Some((dir, log))
        }
        Err(error) => {
            error!(tp = %wanted.tp, %error, "a partition cannot be made");
            None
        }
    }
}

/// Of a partition's logs the one of this life of the topic; sets the others aside.
///
/// A directory that was away comes back with logs that were copied anew elsewhere meanwhile: the one that is further stays. Its
/// last epoch is compared first, as in an election, since records of an older one may have been replaced.
fn choose(mut found: Vec<FoundLog>, topic_id: TopicId) -> Option<FoundLog> {
    let reach = |found: &FoundLog| (found.log.latest_epoch(), found.log.log_end_offset());
    found.sort_by_key(|one| (one.log.topic_id() == topic_id, reach(one)));
    let best = found.pop_if(|best| best.log.topic_id() == topic_id);
    found.into_iter().for_each(set_aside);
    best
}

fn set_aside(found: FoundLog) {
    let tp = found.log.topic_partition().clone();
    let topic_id = found.log.topic_id();
    drop(found.log);
    match found.dir.set_aside_partition(&tp) {
        Ok(name) => warn!(%tp, %topic_id, %name, "nobody claims this log; it is set aside"),
        Err(error) => error!(%tp, %error, "a log that no topic claims cannot be set aside"),
    }
}

/// Partitions made or opened at a time: enough that the disk syncs for many at once; each has a thread meanwhile.
const OPENED_AT_A_TIME: usize = 64;
