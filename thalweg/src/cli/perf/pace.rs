//! When each record is due.

use std::time::{Duration, Instant};

/// A steady rate, or none.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    started: Instant,
    /// Records per second; 0 for as fast as it goes.
    rate: u64,
}

impl Pace {
    pub fn new(started: Instant, rate: u64) -> Pace {
        Pace { started, rate }
    }

    /// When record `number` is to leave, counted from 0.
    fn due(&self, number: u64) -> Instant {
        let nanoseconds = u128::from(number) * 1_000_000_000 / u128::from(self.rate.max(1));
        self.started + Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    /// Waits until the record is due, and gives the time from which its latency counts.
    ///
    /// That is when it was due, also if the sender was held up by the records before: otherwise a cluster that stalls
    /// would be asked less often just while it is slow. What the timer comes too late is not the cluster's fault.
    pub async fn wait(&self, number: u64) -> Instant {
        let now = Instant::now();
        if self.rate == 0 {
            return now;
        }
        let due = self.due(number);
        if due <= now {
            return due;
        }
        tokio::time::sleep_until(due.into()).await;
        Instant::now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_record_that_is_late_counts_from_when_it_was_due() {
        let now = Instant::now();
        let started = now.checked_sub(Duration::from_secs(2)).unwrap();
        let pace = Pace::new(started, 10);
        assert_eq!(pace.wait(5).await, started + Duration::from_millis(500));
        assert!(Pace::new(started, 0).wait(5).await >= now, "without a rate it counts from now");
    }
}
