//! How long to wait before trying again: exponential, capped, with jitter.

use std::time::Duration;

/// Counts failures in a row and turns them into waits.
///
/// The jitter comes from outside, so that equal inputs give equal waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    max: Duration,
    failure_count: u32,
}

impl Backoff {
    pub(crate) fn new(first: Duration, max: Duration) -> Backoff {
        Backoff { first, max, failure_count: 0 }
    }

    /// Notes a failure and gives the wait before the next try: `first * 2^n`, at most `max`, times 0.8 to 1.2.
    ///
    /// `jitter` is uniform in 0.0..1.0.
    pub(crate) fn next(&mut self, jitter: f64) -> Duration {
        let doubled = self.first.saturating_mul(1u32 << self.failure_count.min(16));
        self.failure_count = self.failure_count.saturating_add(1);
        doubled.min(self.max).mul_f64(0.8 + 0.4 * jitter.clamp(0.0, 1.0))
    }

    pub(crate) fn reset(&mut self) {
        self.failure_count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_cap_and_start_anew_after_a_success() {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(300));
        let waits: Vec<u128> = (0..5).map(|_| backoff.next(0.5).as_millis()).collect();
        assert_eq!(waits, [50, 100, 200, 300, 300]);
        backoff.reset();
        assert_eq!(backoff.next(0.5).as_millis(), 50);
    }

    #[test]
    fn jitter_spreads_by_a_fifth_each_way_and_many_failures_do_not_overflow() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        assert_eq!(backoff.next(0.0).as_millis(), 80);
        let mut last = Duration::ZERO;
        for _ in 0..100 {
            last = backoff.next(1.0);
        }
        assert_eq!(last.as_millis(), 1_200);
    }
}
