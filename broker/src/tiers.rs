//! What `/metrics` shows beyond the sums of a node: by topic and group, and by partition when it is asked for.
//!
//! Read when somebody asks, so that a broker with many partitions keeps no counter for each. Everything here is of partitions
//! that this broker leads: over all brokers each partition is there once.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use thalweg_model::{Offset, PartitionIndex, Timestamp};
use thalweg_proto::v1;
use thalweg_wire::batch::{BATCH_HEADER_BYTES, BatchHeader};
use tracing::debug;

use crate::services::Services;
use crate::shell::partitions::Partition;

/// How much is told. Each holds what the ones before it do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    #[default]
    Node,
    Topic,
    Partition,
}

impl FromStr for Tier {
    type Err = String;

    fn from_str(text: &str) -> Result<Tier, String> {
        match text {
            "node" => Ok(Tier::Node),
            "topic" => Ok(Tier::Topic),
            "partition" => Ok(Tier::Partition),
            _ => Err(format!("'{text}' is no tier; there are node, topic and partition")),
        }
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct TopicLabel {
    topic: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PartitionLabel {
    topic: String,
    partition: i32,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct GroupLabel {
    group: String,
    topic: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct GroupPartitionLabel {
    group: String,
    topic: String,
    partition: i32,
}

/// A partition led here.
struct Led {
    partition: Arc<Partition>,
    replica_count: usize,
    isr_count: usize,
}

/// How far behind a group is in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Lag {
    group: String,
    topic: String,
    partition: i32,
    records: i64,
    /// Since the oldest batch was written that the group has not read.
    seconds: i64,
}

/// The tiers above [`Tier::Node`], ready to be written out.
pub async fn read(services: &Services, tier: Tier) -> Registry {
    let mut registry = Registry::with_prefix("thalweg");
    if tier == Tier::Node {
        return registry;
    }
    let led = led(services);
    register_topics(&mut registry, &led);
    let lags = lags(services).await;
    register_groups(&mut registry, &lags);
    if tier == Tier::Partition {
        register_partitions(&mut registry, &led, &lags);
    }
    registry
}

fn led(services: &Services) -> Vec<Led> {
    let image = services.image();
    let all = services.partitions.all().into_iter().filter(|partition| partition.leader_epoch().is_some());
    let counted = all.map(|partition| {
        let registered = image.partition(partition.topic.as_str(), partition.index);
        let (replica_count, isr_count) = registered.map_or((0, 0), |found| (found.replicas.len(), found.isr.len()));
        Led { partition, replica_count, isr_count }
    });
    counted.collect()
}

fn register_topics(registry: &mut Registry, led: &[Led]) {
    let mut family = |name, help| new_family::<TopicLabel>(registry, name, help);
    let leading = family("topic_partitions_leading", "partitions of the topic led here");
    let bytes = family("topic_log_bytes", "bytes of the topic's logs led here");
    let ends = family("topic_high_watermark_sum", "sum of the high watermarks of the topic's partitions led here");
    let under = family(
        "topic_partitions_under_replicated",
        "partitions of the topic led here with fewer in-sync replicas than replicas",
    );
    let short = family(
        "topic_partitions_under_min_isr",
        "partitions of the topic led here that refuse acks=all for want of replicas",
    );
    for one in led {
        let label = TopicLabel { topic: one.partition.topic.to_string() };
        leading.get_or_create(&label).inc();
        bytes.get_or_create(&label).inc_by(signed(one.partition.view().size_bytes()));
        ends.get_or_create(&label).inc_by(one.partition.high_watermark().0);
        under.get_or_create(&label).inc_by(i64::from(one.isr_count < one.replica_count));
        short.get_or_create(&label).inc_by(i64::from(!one.partition.has_min_isr()));
    }
}

fn register_groups(registry: &mut Registry, lags: &[Lag]) {
    let mut family = |name, help| new_family::<GroupLabel>(registry, name, help);
    let records = family("group_lag_records", "records that the group has not read, of partitions led here");
    let seconds =
        family("group_lag_seconds", "age of the oldest batch that the group has not read, of partitions led here");
    for lag in lags {
        let label = GroupLabel { group: lag.group.clone(), topic: lag.topic.clone() };
        records.get_or_create(&label).inc_by(lag.records);
        let oldest = seconds.get_or_create(&label);
        oldest.set(oldest.get().max(lag.seconds));
    }
}

fn register_partitions(registry: &mut Registry, led: &[Led], lags: &[Lag]) {
    let mut family = |name, help| new_family::<PartitionLabel>(registry, name, help);
    let start = family("partition_log_start_offset", "first readable offset");
    let watermark = family("partition_high_watermark", "below it: acknowledged");
    let end = family("partition_log_end_offset", "next offset to assign");
    let bytes = family("partition_log_bytes", "bytes of the log");
    let replicas = family("partition_replicas", "replicas");
    let isr = family("partition_in_sync_replicas", "in-sync replicas");
    for one in led {
        let partition = &one.partition;
        let label = PartitionLabel { topic: partition.topic.to_string(), partition: partition.index.0 };
        start.get_or_create(&label).set(partition.view().log_start_offset().0);
        watermark.get_or_create(&label).set(partition.high_watermark().0);
        end.get_or_create(&label).set(partition.view().log_end_offset().0);
        bytes.get_or_create(&label).set(signed(partition.view().size_bytes()));
        replicas.get_or_create(&label).set(signed(one.replica_count as u64));
        isr.get_or_create(&label).set(signed(one.isr_count as u64));
    }
    let mut family = |name, help| new_family::<GroupPartitionLabel>(registry, name, help);
    let records = family("group_partition_lag_records", "records that the group has not read");
    let seconds = family("group_partition_lag_seconds", "age of the oldest batch that the group has not read");
    for lag in lags {
        let (group, topic) = (lag.group.clone(), lag.topic.clone());
        let label = GroupPartitionLabel { group, topic, partition: lag.partition };
        records.get_or_create(&label).set(lag.records);
        seconds.get_or_create(&label).set(lag.seconds);
    }
}

/// Of every group with committed offsets, in partitions led here. Empty if no coordinator answers in time.
async fn lags(services: &Services) -> Vec<Lag> {
    let asked = tokio::time::timeout(OFFSETS_TIMEOUT, committed(services)).await;
    let Some(groups) = asked.ok().flatten() else {
        debug!("lags are left out: no coordinator tells what is committed");
        return Vec::new();
    };
    let mut read = Vec::new();
    for group in groups {
        for offset in group.offsets.into_iter().filter(|offset| offset.offset >= 0) {
            let index = PartitionIndex(offset.partition);
            let here = services.partitions.partition(&offset.topic, index);
            if let Some(partition) = here.filter(|partition| partition.leader_epoch().is_some()) {
                read.push((group.group_id.clone(), partition, Offset(offset.offset)));
            }
        }
    }
    let now = services.clock.wall();
    // Reads records, perhaps of old segments: not on a network thread.
    let measured = tokio::task::spawn_blocking(move || {
        let mut times = BTreeMap::new();
        read.into_iter().map(|(group, partition, at)| lag(group, &partition, at, now, &mut times)).collect()
    });
    measured.await.unwrap_or_default()
}

async fn committed(services: &Services) -> Option<Vec<v1::FetchedGroup>> {
    let groups = services.groups.list(v1::ListRequest::default()).await.ok()?.groups;
    let all = |group: v1::ListedGroup| v1::FetchGroupOffsets {
        group_id: group.group_id,
        all: true,
        ..v1::FetchGroupOffsets::default()
    };
    let request = v1::FetchOffsetsRequest { groups: groups.into_iter().map(all).collect(), require_stable: false };
    Some(services.groups.fetch_offsets(request).await.ok()?.groups)
}

/// `times` remembers what was read: groups that stand at one place share it.
fn lag(
    group: String,
    partition: &Partition,
    committed: Offset,
    now: Timestamp,
    times: &mut BTreeMap<(u64, Offset), Option<Timestamp>>,
) -> Lag {
    let watermark = partition.high_watermark();
    // What retention has deleted nobody can read any more.
    let next = committed.max(partition.view().log_start_offset());
    let records = watermark.since(next).max(0);
    let mut time = || *times.entry((partition.number, next)).or_insert_with(|| written_at(partition, next, watermark));
    let written = if records > 0 { time() } else { None };
    let seconds = written.map_or(0, |written| now.0.saturating_sub(written.0).max(0) / 1000);
    Lag { group, topic: partition.topic.to_string(), partition: partition.index.0, records, seconds }
}

/// The time of the batch that holds `offset`: its first record's, as its producer stamped it.
fn written_at(partition: &Partition, offset: Offset, bound: Offset) -> Option<Timestamp> {
    let slice = partition.view().read(offset, bound, 1, true).ok().filter(|slice| !slice.is_empty())?;
    let mut head = [0; BATCH_HEADER_BYTES];
    (slice.file.read_at(&mut head, slice.position).ok()? == head.len()).then_some(())?;
    BatchHeader::read_partial(&head).ok().map(|header| header.base_timestamp)
}

fn new_family<L>(registry: &mut Registry, name: &str, help: &str) -> Family<L, Gauge>
where
    L: Clone + std::fmt::Debug + std::hash::Hash + Eq + EncodeLabelSet + Send + Sync + 'static,
{
    let family = Family::<L, Gauge>::default();
    registry.register(name, help, family.clone());
    family
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

const OFFSETS_TIMEOUT: Duration = Duration::from_secs(3);
