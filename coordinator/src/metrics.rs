//! Numbers about a coordinator, cheap to count and to read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Plain counters; whoever exports them reads them.
#[derive(Debug, Default)]
pub struct CoordinatorMetrics {
    pub raft_term: AtomicU64,
    /// 1 while this node leads.
    pub is_leader: AtomicU64,
    pub last_log_index: AtomicU64,
    pub last_applied_index: AtomicU64,
    pub brokers: AtomicU64,
    pub topics: AtomicU64,
    pub partitions: AtomicU64,
    /// Partitions that nobody leads.
    pub partitions_offline: AtomicU64,
    pub brokers_fenced: AtomicU64,
    pub groups: AtomicU64,
    /// Groups that have members.
    pub groups_with_members: AtomicU64,
    /// Since this node began to lead.
    pub rebalances: AtomicU64,
    pub feed_subscribers: AtomicU64,
    pub commands: AtomicU64,
    /// Raft entries that carried them.
    pub entries: AtomicU64,
    /// From handing an entry to Raft until it is applied.
    pub commit_latency: Histogram,
}

/// Counts durations by upper bound.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Histogram {
    pub fn record(&self, duration: Duration) {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_US.partition_point(|bound| *bound < us);
        if let Some(count) = self.buckets.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    /// Upper bound in microseconds, inclusive (`None`: no bound), and how many lie in that bucket alone.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        let bounds = BOUNDS_US.iter().copied().map(Some).chain([None]);
        bounds.zip(self.buckets.iter().map(|count| count.load(Ordering::Relaxed)))
    }

    pub fn sum_us(&self) -> u64 {
        self.sum_us.load(Ordering::Relaxed)
    }
}

const BOUNDS_US: [u64; 13] =
    [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 5_000_000];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_falls_into_the_bucket_whose_bound_it_reaches() {
        let histogram = Histogram::default();
        for us in [100, 101, 9_000_000] {
            histogram.record(Duration::from_micros(us));
        }
        let counted: Vec<_> = histogram.buckets().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [(Some(100), 1), (Some(250), 1), (None, 1)]);
        assert_eq!(histogram.sum_us(), 9_000_201);
    }
}
