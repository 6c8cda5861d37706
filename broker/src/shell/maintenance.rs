//! What a broker does by the clock: retention, closing old segments, checkpoints, gauges.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use thalweg_storage::checkpoint::OffsetCheckpoint;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::dirs::Dirs;
use super::owner::Owner;
use crate::Readiness;
use crate::metrics::DirLabel;
use crate::services::Services;

/// Runs until `stop`.
pub async fn run(services: Arc<Services>, dirs: Arc<Dirs>, ready: watch::Sender<Readiness>, stop: CancellationToken) {
    let every = |name: &str| {
        let period = Duration::from_millis(services.config.properties.number(name).unsigned_abs().max(1));
        let mut interval = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        interval
    };
    let mut retention = every("log.retention.check.interval.ms");
    let mut high_watermarks = every("replica.high.watermark.checkpoint.interval.ms");
    let mut recovery_points = every("log.flush.offset.checkpoint.interval.ms");
    // At once, too: what recovery has just read and synced the next life need not read again.
    recovery_points.reset_immediately();
    let mut log_starts = every("log.flush.start.offset.checkpoint.interval.ms");
    let lag_max = services.config.properties.millis("replica.lag.time.max.ms");
    let mut in_sync = tokio::time::interval((lag_max / 4).clamp(TICK_MIN, TICK_MAX));
    let mut gauges = tokio::time::interval(GAUGES_PERIOD);
    let mut metadata_index = 0;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = high_watermarks.tick() => {
                write_high_watermarks(&services, &dirs).await;
                write_metadata_index(&services, &dirs, &mut metadata_index).await;
            }
            _ = recovery_points.tick() => write_checkpoints(&services, &dirs).await,
            _ = log_starts.tick() => write_checkpoints(&services, &dirs).await,
            _ = retention.tick() => retain(&services, &dirs).await,
            _ = in_sync.tick() => {
                let now = services.clock.mono();
                services.workers().tell_all(move |owner| owner.tick(now));
            }
            _ = gauges.tick() => {
                measure(&services, &dirs);
                let is_noted = note_failures(&dirs).await;
                if dirs.all().iter().all(|dir| dir.is_offline()) {
                    if !is_noted && is_counted_on(&services) {
                        // A restart would forget it, and promise records that the disk does not have (B2).
                        error!("no log directory works, and neither they nor the coordinator have been told; staying until then");
                        continue;
                    }
                    // Nothing is left to serve from (REPLICATION G2); whoever runs this process ends it.
                    error!("every log directory is offline");
                    ready.send_replace(Readiness::Failed("every log directory is offline".to_owned()));
                    return;
                }
            }
        }
    }
}

/// Closes segments that are old enough and deletes those that need not be kept, log by log.
async fn retain(services: &Arc<Services>, dirs: &Arc<Dirs>) {
    let now = services.clock.wall();
    let mut deleted = 0;
    for partition in services.partitions.all() {
        let outcome = services.workers().ask(&partition, move |owner: &mut Owner| {
            let high_watermark = owner.replica().high_watermark();
            let rolled = owner.log_mut().roll_if_due(now).is_ok();
            let gone = owner.log_mut().apply_retention(now, high_watermark);
            if !rolled || gone.is_err() {
                owner.fail();
                return 0;
            }
            owner.log_started();
            gone.map_or(0, |gone| gone.len())
        });
        deleted += outcome.await.unwrap_or(0);
    }
    if deleted > 0 {
        info!(deleted, "segments deleted by retention");
        write_checkpoints(services, dirs).await;
    }
}

/// Recovery begins at these after an unclean stop.
async fn write_checkpoints(services: &Arc<Services>, dirs: &Arc<Dirs>) {
    for partition in services.partitions.all() {
        let prepared = services.workers().ask(&partition, |owner: &mut Owner| owner.log_mut().prepare_checkpoint());
        if let Ok(Err(error)) = prepared.await {
            warn!(tp = %partition.tp(), %error, "a log is left out of the checkpoint");
        }
    }
    let dirs = Arc::clone(dirs);
    let written = tokio::task::spawn_blocking(move || {
        for dir in dirs.all().iter().filter(|dir| !dir.is_offline()) {
            if let Err(error) = dir.write_checkpoints() {
                error!(%error, dir = %dir.path().display(), "checkpoints cannot be written");
            }
        }
    });
    // Cancelled only at shutdown, which writes them itself.
    let _ = written.await;
}

async fn write_high_watermarks(services: &Arc<Services>, dirs: &Arc<Dirs>) {
    let mut by_dir: BTreeMap<std::path::PathBuf, OffsetCheckpoint> = BTreeMap::new();
    for partition in services.partitions.all() {
        by_dir.entry(partition.dir.clone()).or_default().insert(partition.tp(), partition.high_watermark());
    }
    let dirs = Arc::clone(dirs);
    let written = tokio::task::spawn_blocking(move || {
        for (path, high_watermarks) in by_dir {
            let Some(dir) = dirs.at(&path).filter(|dir| !dir.is_offline()) else { continue };
            if let Err(error) = dir.write_high_watermarks(&high_watermarks) {
                error!(%error, dir = %path.display(), "high watermarks cannot be written");
            }
        }
    });
    let _ = written.await;
}

/// An older copy of the registries is told from the present ones by how far they went.
async fn write_metadata_index(services: &Arc<Services>, dirs: &Arc<Dirs>, written: &mut u64) {
    let index = services.applied_index();
    if index <= *written {
        return;
    }
    *written = index;
    let dirs = Arc::clone(dirs);
    // Cancelled only at shutdown.
    let _ = tokio::task::spawn_blocking(move || dirs.write_metadata_index(index)).await;
}

/// Whether the next life will know of every failure.
async fn note_failures(dirs: &Arc<Dirs>) -> bool {
    if dirs.offline_ids().is_empty() {
        return true;
    }
    let dirs = Arc::clone(dirs);
    tokio::task::spawn_blocking(move || dirs.note_failures()).await.unwrap_or(false)
}

/// Whether some replica here may still be elected, as far as the feed has told.
fn is_counted_on(services: &Services) -> bool {
    let (image, node) = (services.image(), services.node_id());
    let partitions = image.topics.values().flat_map(|topic| topic.partitions.values());
    partitions.into_iter().any(|partition| partition.isr.contains(&node) || partition.elr.contains(&node))
}

fn measure(services: &Arc<Services>, dirs: &Arc<Dirs>) {
    let metrics = &services.metrics;
    let all = services.partitions.all();
    let now = services.clock.mono();
    all.iter().for_each(|partition| partition.look_at_traffic(now));
    let count = |holds: &dyn Fn(&super::partitions::Partition) -> bool| {
        i64::try_from(all.iter().filter(|partition| holds(partition)).count()).unwrap_or(i64::MAX)
    };
    metrics.partitions.set(count(&|_| true));
    metrics.partitions_leading.set(count(&|partition| partition.leader_epoch().is_some()));
    let unopened = i64::try_from(services.partitions.unopened().len()).unwrap_or(i64::MAX);
    metrics.partitions_offline.set(count(&|partition| partition.is_offline()) + unopened);
    let image = services.image();
    metrics.partitions_under_replicated.set(count(&|partition| {
        let registered = image.partition(partition.topic.as_str(), partition.index);
        partition.leader_epoch().is_some()
            && registered.is_some_and(|found| found.isr.len() < found.replicas.len() - found.adding.len())
    }));
    metrics.partitions_moving.set(count(&|partition| {
        let registered = image.partition(partition.topic.as_str(), partition.index);
        partition.leader_epoch().is_some() && registered.is_some_and(|found| found.is_moving())
    }));
    drop(image);
    metrics
        .partitions_under_min_isr
        .set(count(&|partition| partition.leader_epoch().is_some() && !partition.has_min_isr()));
    let bytes: u64 = all.iter().map(|partition| partition.view().size_bytes()).sum();
    metrics.log_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    let leading = all.iter().filter(|partition| partition.leader_epoch().is_some());
    let lag = leading.map(|partition| partition.view().log_end_offset().since(partition.high_watermark()));
    metrics.high_watermark_lag_records.set(lag.sum());
    metrics.replica_lag_records.set(all.iter().map(|partition| partition.replica_lag()).max().unwrap_or(0));
    metrics.oldest_unflushed_seconds.set(services.flushers.oldest_seconds());
    metrics.metadata_index.set(i64::try_from(services.applied_index()).unwrap_or(i64::MAX));
    for dir in dirs.all() {
        if dir.is_offline() {
            // All its partitions, also those that nobody has written to since.
            for partition in all.iter().filter(|partition| partition.dir == dir.path() && !partition.is_offline()) {
                services.workers().tell(partition, Owner::fail);
            }
        }
        let label = DirLabel { dir: dir.path().display().to_string() };
        if let Some(free) = dirs.free_bytes(dir.path()) {
            metrics.log_dir_free_bytes.get_or_create(&label).set(i64::try_from(free).unwrap_or(i64::MAX));
        }
    }
}

/// How often leaders look whether followers lag.
const TICK_MIN: Duration = Duration::from_millis(10);
const TICK_MAX: Duration = Duration::from_secs(1);
const GAUGES_PERIOD: Duration = Duration::from_secs(5);
