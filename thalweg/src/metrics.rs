//! `/metrics` and readiness: the broker's registry and tiers, the coordinator's counters and the process, in one page.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::BoxFuture;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use thalweg_broker::services::Services;
use thalweg_broker::{Metrics, Readiness, Tier, tiers};
use thalweg_coordinator::{CoordinatorMetrics, MetricsSource};
use tokio::sync::watch;

use crate::http::Status;

/// What the HTTP service shows of a node.
pub struct Exposition {
    broker: Option<Arc<Metrics>>,
    /// `None` of a node that is no broker.
    services: Option<Arc<Services>>,
    own: Registry,
    readiness: watch::Receiver<Readiness>,
}

impl Exposition {
    pub fn new(
        broker: Option<Arc<Metrics>>,
        services: Option<Arc<Services>>,
        coordinator: Option<MetricsSource>,
        readiness: watch::Receiver<Readiness>,
    ) -> Exposition {
        let mut own = Registry::default();
        own.register_collector(Box::new(Process));
        if let Some(source) = coordinator {
            own.register_collector(Box::new(CoordinatorCollector(source)));
        }
        Exposition { broker, services, own, readiness }
    }

    fn write(&self, tiers: Option<&Registry>) -> Result<String, fmt::Error> {
        let mut text = String::new();
        if let Some(broker) = &self.broker {
            encode_registry(&mut text, broker.registry())?;
        }
        if let Some(tiers) = tiers {
            encode_registry(&mut text, tiers)?;
        }
        encode_registry(&mut text, &self.own)?;
        encode_eof(&mut text)?;
        Ok(text)
    }
}

impl Status for Exposition {
    fn metrics(&self, tier: Tier) -> BoxFuture<'_, String> {
        Box::pin(async move {
            let tiers = match &self.services {
                // Before it has registered a broker leads nothing.
                Some(services) if self.readiness.borrow().is_ready() => Some(tiers::read(services, tier)),
                Some(_) | None => None,
            };
            let tiers = match tiers {
                Some(reading) => Some(reading.await),
                None => None,
            };
            // Writing to a string fails only if a value refuses to be written, which none of ours does.
            self.write(tiers.as_ref()).unwrap_or_default()
        })
    }

    fn ready(&self) -> Result<(), String> {
        match &*self.readiness.borrow() {
            Readiness::Ready => Ok(()),
            Readiness::Starting => Err("starting".to_owned()),
            Readiness::Recovering { done, total } => Err(format!("recovering: {done} of {total} partitions are open")),
            Readiness::Registering => Err("waiting for the coordinator".to_owned()),
            Readiness::Failed(reason) => Err(format!("failed: {reason}")),
        }
    }
}

struct CoordinatorCollector(MetricsSource);

impl fmt::Debug for CoordinatorCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CoordinatorCollector")
    }
}

impl Collector for CoordinatorCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let metrics = self.0.read();
        for (name, help, value) in coordinator_gauges(metrics) {
            gauge(&mut encoder, name, help, None, value.load(Ordering::Relaxed) as f64)?;
        }
        for (name, help, value) in coordinator_counters(metrics) {
            counter(&mut encoder, name, help, None, value.load(Ordering::Relaxed) as f64)?;
        }
        let name = COMMIT_SECONDS;
        let help = "from handing an entry to Raft until it is applied";
        let buckets: Vec<(f64, u64)> = metrics
            .commit_latency
            .buckets()
            .map(|(bound, count)| (bound.map_or(f64::INFINITY, |us| us as f64 / 1e6), count))
            .collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = metrics.commit_latency.sum_us() as f64 / 1e6;
        let mut histogram = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        histogram.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }
}

/// Name, meaning, value.
pub type Row<'a> = (&'static str, &'static str, &'a AtomicU64);

pub fn coordinator_gauges(metrics: &CoordinatorMetrics) -> [Row<'_>; 12] {
    [
        ("thalweg_coordinator_raft_term", "the Raft term", &metrics.raft_term),
        ("thalweg_coordinator_leader", "1 while this node leads the coordinators", &metrics.is_leader),
        ("thalweg_coordinator_last_log_index", "the last entry in the log", &metrics.last_log_index),
        ("thalweg_coordinator_last_applied_index", "the last entry applied", &metrics.last_applied_index),
        ("thalweg_coordinator_brokers", "registered brokers", &metrics.brokers),
        ("thalweg_coordinator_topics", "topics", &metrics.topics),
        ("thalweg_coordinator_partitions", "partitions of all topics", &metrics.partitions),
        ("thalweg_coordinator_partitions_offline", "partitions that nobody leads", &metrics.partitions_offline),
        ("thalweg_coordinator_brokers_fenced", "registered brokers that do not serve", &metrics.brokers_fenced),
        ("thalweg_coordinator_groups", "consumer groups", &metrics.groups),
        ("thalweg_coordinator_groups_with_members", "consumer groups that have members", &metrics.groups_with_members),
        ("thalweg_coordinator_feed_subscribers", "brokers that follow the feed", &metrics.feed_subscribers),
    ]
}

pub fn coordinator_counters(metrics: &CoordinatorMetrics) -> [Row<'_>; 3] {
    [
        ("thalweg_coordinator_rebalances", "completed group rebalances", &metrics.rebalances),
        ("thalweg_coordinator_commands", "commands committed", &metrics.commands),
        ("thalweg_coordinator_entries", "Raft entries that carried the commands", &metrics.entries),
    ]
}

pub const COMMIT_SECONDS: &str = "thalweg_coordinator_commit_seconds";

/// The process as the kernel accounts it, under the names that dashboards know.
#[derive(Debug)]
struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        if let Some(bytes) = resident_bytes() {
            gauge(&mut encoder, "process_resident_memory", "resident memory", Some(&Unit::Bytes), bytes as f64)?;
        }
        if let Some(seconds) = cpu_seconds() {
            counter(&mut encoder, "process_cpu", "processor time, user and system", Some(&Unit::Seconds), seconds)?;
        }
        if let Ok(entries) = std::fs::read_dir("/proc/self/fd") {
            gauge(&mut encoder, "process_open_fds", "open file descriptors", None, entries.count() as f64)?;
        }
        Ok(())
    }
}

fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // Fields are counted behind the command's name, which may hold anything, in parentheses.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user + system) as f64 / rustix::param::clock_ticks_per_second() as f64)
}

fn gauge(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    value: f64,
) -> Result<(), fmt::Error> {
    encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?.encode_gauge(&value)
}

fn counter(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    value: f64,
) -> Result<(), fmt::Error> {
    encoder.encode_descriptor(name, help, unit, MetricType::Counter)?.encode_counter::<NoLabelSet, _, u64>(&value, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_page_has_the_process_and_ends_as_open_metrics_must() {
        let exposition = Exposition::new(Some(Metrics::new()), None, None, watch::channel(Readiness::Starting).1);
        let page = Status::metrics(&exposition, Tier::Partition).await;
        assert!(page.contains("process_resident_memory_bytes "), "{page}");
        assert!(page.contains("process_cpu_seconds_total "), "{page}");
        assert!(page.contains("thalweg_connections 0"), "{page}");
        assert!(page.ends_with("# EOF\n"), "{page}");
    }
}
