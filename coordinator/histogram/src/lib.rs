//! What openraft needs of a histogram, without the tables.
//!
//! The crate of this name on the registry fills lookup tables for sixteen widths when the first histogram is made: 24 MiB of
//! resident memory, of which openraft uses less than 4 KiB. This one computes a bucket from the value's bits. Its interface is
//! the part that openraft calls; a newer openraft that calls more does not compile.

use std::fmt;
use std::marker::PhantomData;

/// Counts values in buckets whose width is a quarter of their power of two; below 4 each value has its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram<T = ()> {
    counts: Vec<u64>,
    slot: PhantomData<T>,
}

impl<T> Histogram<T> {
    pub fn new() -> Histogram<T> {
        Histogram { counts: vec![0; BUCKETS], slot: PhantomData }
    }

    pub fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    pub fn record_n(&mut self, value: u64, count: u64) {
        if let Some(bucket) = self.counts.get_mut(bucket_of(value)) {
            *bucket = bucket.saturating_add(count);
        }
    }

    /// Each percentile as the least value of its bucket; 0 where nothing was recorded.
    pub fn percentile_stats(&self) -> PercentileStats {
        let samples = self.counts.iter().fold(0u64, |sum, count| sum.saturating_add(*count));
        let at = |thousandths: u64| self.value_at(samples, thousandths);
        PercentileStats {
            samples,
            p0_1: at(1),
            p1: at(10),
            p5: at(50),
            p10: at(100),
            p50: at(500),
            p90: at(900),
            p99: at(990),
            p99_9: at(999),
        }
    }

    fn value_at(&self, samples: u64, thousandths: u64) -> u64 {
        let rank = (u128::from(samples) * u128::from(thousandths)).div_ceil(1_000).max(1);
        let mut seen = 0u128;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += u128::from(*count);
            if seen >= rank {
                return least_of(bucket);
            }
        }
        0
    }
}

impl<T> Default for Histogram<T> {
    fn default() -> Histogram<T> {
        Histogram::new()
    }
}

/// A summary of a [`Histogram`]; `p99_9` is the value that 99.9 % of the samples do not exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PercentileStats {
    pub samples: u64,
    pub p0_1: u64,
    pub p1: u64,
    pub p5: u64,
    pub p10: u64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p99_9: u64,
}

impl fmt::Display for PercentileStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n={} p50={} p90={} p99={} p99.9={}", self.samples, self.p50, self.p90, self.p99, self.p99_9)
    }
}

/// Several histograms for people, one line each.
#[derive(Clone, Debug, Default)]
pub struct AsciiChart {
    rows: Vec<(String, PercentileStats)>,
}

impl AsciiChart {
    pub fn new() -> AsciiChart {
        AsciiChart::default()
    }

    pub fn add<T>(mut self, name: impl Into<String>, histogram: Histogram<T>) -> AsciiChart {
        self.rows.push((name.into(), histogram.percentile_stats()));
        self
    }
}

impl fmt::Display for AsciiChart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rows.iter().try_for_each(|(name, stats)| writeln!(f, "{name}: {stats}"))
    }
}

/// The power of two, then the next two bits.
fn bucket_of(value: u64) -> usize {
    if value < 4 {
        return value as usize;
    }
    let power = value.ilog2();
    let quarter = value >> (power - 2) & 3;
    (power as usize - 1) * 4 + quarter as usize
}

fn least_of(bucket: usize) -> u64 {
    if bucket < 4 {
        return bucket as u64;
    }
    let power = bucket / 4 + 1;
    (4 + (bucket as u64 % 4)) << (power - 2)
}

const BUCKETS: usize = 63 * 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_begins_with_its_least_value_and_holds_up_to_the_next() {
        for bucket in 0..BUCKETS {
            assert_eq!(bucket_of(least_of(bucket)), bucket);
            let last = if bucket + 1 < BUCKETS { least_of(bucket + 1) - 1 } else { u64::MAX };
            assert_eq!(bucket_of(last), bucket);
        }
    }

    #[test]
    fn percentiles_are_least_values_of_their_buckets() {
        let mut histogram = Histogram::<()>::new();
        assert_eq!(histogram.percentile_stats().p99, 0);
        histogram.record_n(1, 900);
        histogram.record_n(100, 99);
        histogram.record(u64::MAX);
        let stats = histogram.percentile_stats();
        assert_eq!((stats.samples, stats.p50, stats.p90, stats.p99), (1_000, 1, 1, 96));
        assert_eq!((stats.p99_9, histogram.value_at(1_000, 1_000)), (96, least_of(BUCKETS - 1)));
    }
}
