//! How far an export has come, for whoever looks.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::cli::output::{bytes, grouped, note};
use crate::cli::time::span;

/// Counts of one run; partitions add to them from their own tasks.
#[derive(Debug, Default)]
pub struct Counts {
    /// Offsets that are to be covered.
    pub offsets_total: AtomicU64,
    /// Of them, those read.
    pub offsets: AtomicU64,
    pub records: AtomicU64,
    /// Of finished files.
    pub bytes: AtomicU64,
    pub files: AtomicUsize,
}

/// A line that changes on a terminal, and one now and then elsewhere.
#[derive(Debug)]
pub struct Progress {
    started: Instant,
    told: Instant,
    is_terminal: bool,
}

impl Counts {
    pub fn add(&self, what: &AtomicU64, count: u64) {
        what.fetch_add(count, Ordering::Relaxed);
    }
}

impl Progress {
    pub fn start() -> Progress {
        let now = Instant::now();
        Progress { started: now, told: now, is_terminal: io::stderr().is_terminal() }
    }

    /// Shows how it stands, if it is time for that.
    pub fn show(&mut self, counts: &Counts) {
        let elapsed = self.started.elapsed();
        if self.is_terminal {
            // Without a stderr there is nobody to show it to.
            let _ = write!(io::stderr(), "\r\x1b[K{}", line(counts, elapsed, true));
        } else if self.told.elapsed() >= TOLD_EVERY {
            self.told = Instant::now();
            note(&line(counts, elapsed, false));
        }
    }

    /// Makes room for the last words.
    pub fn end(&self) {
        if self.is_terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }

    /// The last words.
    pub fn sum(&self, counts: &Counts) -> String {
        let count = |what: &AtomicU64| what.load(Ordering::Relaxed);
        let files = counts.files.load(Ordering::Relaxed);
        let elapsed = i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX);
        let (records, size) = (grouped(count(&counts.records)), bytes(count(&counts.bytes)));
        format!("{records} record(s) in {files} file(s), {size}, in {}", span(elapsed))
    }
}

fn line(counts: &Counts, elapsed: Duration, with_bar: bool) -> String {
    let count = |what: &AtomicU64| what.load(Ordering::Relaxed);
    let (total, done) = (count(&counts.offsets_total), count(&counts.offsets));
    let share = done.saturating_mul(100).checked_div(total).unwrap_or(100).min(100);
    let filled = usize::try_from(share).unwrap_or(0) * BAR_WIDTH / 100;
    let bar = format!("[{}{}] ", "#".repeat(filled), ".".repeat(BAR_WIDTH - filled));
    let rate = done as f64 / elapsed.as_secs_f64().max(0.001);
    let left = if done == 0 {
        String::new()
    } else {
        format!(", {} left", span((total.saturating_sub(done) as f64 / rate * 1_000.0) as i64))
    };
    format!(
        "{}{share} %: {} of {} offsets, {} file(s), {}, {}/s{left}",
        if with_bar { bar.as_str() } else { "" },
        grouped(done),
        grouped(total),
        counts.files.load(Ordering::Relaxed),
        bytes(count(&counts.bytes)),
        grouped(rate as u64),
    )
}

const TOLD_EVERY: Duration = Duration::from_secs(10);
const BAR_WIDTH: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_tells_the_share_the_rate_and_what_is_left() {
        let counts = Counts::default();
        counts.add(&counts.offsets_total, 20_000);
        assert_eq!(line(&counts, Duration::ZERO, false), "0 %: 0 of 20,000 offsets, 0 file(s), 0 B, 0/s");
        counts.add(&counts.offsets, 5_000);
        let half_way = line(&counts, Duration::from_secs(5), true);
        let expected = "[######..................] 25 %: 5,000 of 20,000 offsets, 0 file(s), 0 B, 1,000/s, 15.0 s left";
        assert_eq!(half_way, expected);
    }
}
