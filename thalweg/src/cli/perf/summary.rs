//! What a measurement found, as a table and as a value.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::json;

use crate::cli::failure::Failure;
use crate::cli::output::{Format, Table, bytes, grouped, print_line, print_value};

/// Latencies in microseconds, up to a minute, with three digits.
#[derive(Debug)]
pub struct Latencies(Histogram<u64>);

/// What is told in the end.
#[derive(Debug)]
pub struct Summary {
    pub record_count: u64,
    pub failed_count: u64,
    pub byte_count: u64,
    pub took: Duration,
    /// What each latency is of, such as "from handing over to the acknowledgement".
    pub latency_of: &'static str,
    pub latencies: Latencies,
    /// Time that the measuring side spent waiting, and for what.
    pub waited: Duration,
    pub waited_for: &'static str,
    /// One sentence: what set the pace.
    pub verdict: String,
}

impl Latencies {
    /// # Errors
    /// Never for these bounds.
    pub fn new() -> Result<Latencies, Failure> {
        let histogram = Histogram::new_with_bounds(1, MINUTE_US, 3);
        histogram.map(Latencies).map_err(|error| Failure::failed(error.to_string()))
    }

    pub fn record(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX).max(1));
    }

    /// In milliseconds.
    pub fn at(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1_000.0
    }

    pub fn max(&self) -> f64 {
        self.0.max() as f64 / 1_000.0
    }

    fn mean(&self) -> f64 {
        self.0.mean() / 1_000.0
    }
}

impl Summary {
    pub fn print(&self, format: Format) -> Result<(), Failure> {
        let seconds = self.took.as_secs_f64().max(1e-9);
        let rate = self.record_count as f64 / seconds;
        let throughput = self.byte_count as f64 / seconds;
        let percentiles = QUANTILES.map(|(name, quantile)| (name, self.latencies.at(quantile)));
        if format.is_data() {
            let mut latency: serde_json::Map<String, serde_json::Value> =
                percentiles.iter().map(|(name, ms)| ((*name).to_owned(), json!(ms))).collect();
            latency.insert("max".to_owned(), json!(self.latencies.max()));
            latency.insert("mean".to_owned(), json!(self.latencies.mean()));
            let value = json!({
                "records": self.record_count,
                "failed": self.failed_count,
                "bytes": self.byte_count,
                "seconds": seconds,
                "records_per_second": rate,
                "bytes_per_second": throughput,
                "latency_of": self.latency_of,
                "latency_ms": latency,
                "waited_seconds": self.waited.as_secs_f64(),
                "waited_for": self.waited_for,
                "verdict": self.verdict,
            });
            return print_value(format, &value);
        }
        let mut table = Table::new(&["RECORDS", &grouped(self.record_count)]);
        if self.failed_count > 0 {
            table.row(vec!["failed".into(), grouped(self.failed_count)]);
        }
        table.row(vec!["took".into(), format!("{seconds:.2} s")]);
        table.row(vec!["records/s".into(), grouped(rate as u64)]);
        table.row(vec!["bytes/s".into(), bytes(throughput as u64)]);
        table.row(vec!["waited".into(), format!("{:.2} s {}", self.waited.as_secs_f64(), self.waited_for)]);
        table.print()?;
        print_line("")?;
        let mut headings = vec!["MEAN"];
        headings.extend(percentiles.iter().map(|(name, _)| *name));
        headings.push("MAX");
        let mut table = Table::new(&headings);
        let mut row = vec![format!("{:.2} ms", self.latencies.mean())];
        row.extend(percentiles.iter().map(|(_, ms)| format!("{ms:.2} ms")));
        row.push(format!("{:.2} ms", self.latencies.max()));
        table.row(row);
        table.print()?;
        print_line(&format!("({})", self.latency_of))?;
        print_line("")?;
        print_line(&self.verdict)
    }
}

const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];
const MINUTE_US: u64 = 60_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_what_was_recorded_and_nothing_is_lost_above() {
        let mut latencies = Latencies::new().unwrap();
        (1..=1_000).for_each(|ms| latencies.record(Duration::from_millis(ms)));
        let near = |found: f64, expected: f64| (found - expected).abs() <= expected / 500.0;
        assert!(near(latencies.at(0.5), 500.0) && near(latencies.at(0.99), 990.0), "{latencies:?}");
        latencies.record(Duration::from_secs(600));
        assert!(latencies.max() >= 60_000.0, "an outlier counts as a minute");
    }
}
