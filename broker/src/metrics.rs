//! What the broker counts. Names start with `thalweg_`; the registry belongs to whoever serves `/metrics`.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use thalweg_wire::ApiKey;

/// Handles to every metric. Cheap to use from any thread.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Vec<Option<Counter>>,
    pub request_bytes: Counter,
    pub response_bytes: Counter,
    pub sendfile_bytes: Counter,
    pub copied_bytes: Counter,
    pub produced_bytes: Counter,
    pub produced_records: Counter,
    pub fetched_bytes: Counter,
    pub replica_bytes_sent: Counter,
    pub replicated_bytes: Counter,
    pub moved_bytes: Counter,
    pub partitions_moving: Gauge,
    pub isr_expands: Counter,
    pub isr_shrinks: Counter,
    pub produce_seconds: Histogram,
    pub fetch_seconds: Histogram,
    pub flush_seconds: Histogram,
    pub flushes: Counter,
    pub write_batches: Counter,
    pub connections: Gauge,
    pub connections_accepted: Counter,
    pub connections_refused: Counter,
    pub connections_broken: Counter,
    pub fetch_sessions: Gauge,
    pub partitions: Gauge,
    pub partitions_leading: Gauge,
    pub partitions_offline: Gauge,
    pub partitions_under_replicated: Gauge,
    pub partitions_under_min_isr: Gauge,
    pub replica_lag_records: Gauge,
    pub log_bytes: Gauge,
    pub high_watermark_lag_records: Gauge,
    pub oldest_unflushed_seconds: Gauge<f64, AtomicU64>,
    pub log_dir_free_bytes: Family<DirLabel, Gauge>,
    pub metadata_index: Gauge<i64, AtomicI64>,
    pub fenced: Gauge,
}

/// The API that a request is of.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ApiLabel {
    api: &'static str,
}

/// A log directory.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct DirLabel {
    pub dir: String,
}

impl Metrics {
    pub fn new() -> Arc<Metrics> {
        let mut registry = Registry::with_prefix("thalweg");
        let r = &mut registry;
        let requests = Family::<ApiLabel, Counter>::default();
        r.register("requests", "requests by API", requests.clone());
        let metrics = Metrics {
            requests: by_code(&requests),
            request_bytes: counter(r, "request_bytes", "bytes of requests read"),
            response_bytes: counter(r, "response_bytes", "bytes of responses written, by any means"),
            sendfile_bytes: counter(
                r,
                "sendfile_bytes",
                "record bytes that went from page cache to socket by sendfile",
            ),
            copied_bytes: counter(r, "copied_bytes", "record bytes that were copied through the process to be sent"),
            produced_bytes: counter(r, "produced_bytes", "record bytes appended by producers"),
            produced_records: counter(r, "produced_records", "records appended by producers"),
            fetched_bytes: counter(r, "fetched_bytes", "record bytes answered to consumers"),
            replica_bytes_sent: counter(r, "replica_bytes_sent", "record bytes answered to followers"),
            replicated_bytes: counter(r, "replicated_bytes", "record bytes copied from leaders"),
            moved_bytes: counter(r, "moved_bytes", "record bytes copied for replicas on their way to this broker"),
            partitions_moving: gauge(r, "partitions_moving", "partitions led here that are being moved"),
            isr_expands: counter(r, "isr_expands", "replicas that entered the in-sync replicas of partitions led here"),
            isr_shrinks: counter(r, "isr_shrinks", "replicas that left the in-sync replicas of partitions led here"),
            produce_seconds: histogram(r, "produce_seconds", "from a produce request's last byte to its answer"),
            fetch_seconds: histogram(
                r,
                "fetch_seconds",
                "from a fetch request's last byte to its answer, waiting included",
            ),
            flush_seconds: histogram(r, "flush_seconds", "one flush of one log"),
            flushes: counter(r, "flushes", "flushes of logs"),
            write_batches: counter(r, "write_batches", "appends to a log after one drain of a worker's mailbox"),
            connections: gauge(r, "connections", "open client connections"),
            connections_accepted: counter(r, "connections_accepted", "client connections accepted"),
            connections_refused: counter(
                r,
                "connections_refused",
                "client connections closed at once because of a limit",
            ),
            connections_broken: counter(r, "connections_broken", "client connections closed because of what they sent"),
            fetch_sessions: gauge(r, "fetch_sessions", "open fetch sessions"),
            partitions: gauge(r, "partitions", "partitions with a replica here"),
            partitions_leading: gauge(r, "partitions_leading", "partitions led here"),
            partitions_offline: gauge(r, "partitions_offline", "partitions whose log failed"),
            partitions_under_replicated: gauge(
                r,
                "partitions_under_replicated",
                "partitions led here with fewer in-sync replicas than replicas",
            ),
            partitions_under_min_isr: gauge(
                r,
                "partitions_under_min_isr",
                "partitions led here that refuse acks=all for want of in-sync replicas",
            ),
            replica_lag_records: gauge(
                r,
                "replica_lag_records",
                "records that the replica lacks that lacks most, of all partitions led here",
            ),
            log_bytes: gauge(r, "log_bytes", "bytes of all logs"),
            high_watermark_lag_records: gauge(
                r,
                "high_watermark_lag_records",
                "records above the high watermark, of all partitions led here",
            ),
            oldest_unflushed_seconds: registered(
                r,
                "oldest_unflushed_seconds",
                "how long the oldest flush under way has been running",
                Gauge::default(),
            ),
            log_dir_free_bytes: registered(r, "log_dir_free_bytes", "free space of a log directory", Family::default()),
            metadata_index: registered(
                r,
                "metadata_index",
                "the coordinator's log index that this broker has brought about",
                Gauge::default(),
            ),
            fenced: gauge(r, "fenced", "1 while this broker may not lead"),
            registry: Registry::default(),
        };
        Arc::new(Metrics { registry, ..metrics })
    }

    /// For whoever writes them out.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    pub fn count_request(&self, key: ApiKey) {
        let slot = usize::try_from(key.code()).ok().and_then(|code| self.requests.get(code));
        if let Some(Some(counter)) = slot {
            counter.inc();
        }
    }
}

/// Observes a duration in seconds.
pub fn observe(histogram: &Histogram, duration: Duration) {
    histogram.observe(duration.as_secs_f64());
}

fn by_code(family: &Family<ApiLabel, Counter>) -> Vec<Option<Counter>> {
    let served = ApiKey::ALL.iter().filter(|key| key.advertised_versions().is_some());
    let mut slots = Vec::new();
    for key in served {
        let code = usize::try_from(key.code()).unwrap_or(0);
        if slots.len() <= code {
            slots.resize(code + 1, None);
        }
        slots[code] = Some(family.get_or_create(&ApiLabel { api: key.name() }).clone());
    }
    slots
}

fn registered<M>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M
where
    M: prometheus_client::registry::Metric + Clone,
{
    registry.register(name, help, metric.clone());
    metric
}

fn counter(registry: &mut Registry, name: &str, help: &str) -> Counter {
    registered(registry, name, help, Counter::default())
}

fn gauge(registry: &mut Registry, name: &str, help: &str) -> Gauge {
    registered(registry, name, help, Gauge::default())
}

fn histogram(registry: &mut Registry, name: &str, help: &str) -> Histogram {
    // 100 us to 26 s in factors of 4, and what lies above.
    let buckets = (0..10).map(|power| 0.0001 * f64::from(4u32.pow(power)));
    registered(registry, name, help, Histogram::new(buckets))
}
