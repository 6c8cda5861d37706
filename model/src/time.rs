//! Two clocks that are never mixed: one for deadlines, one for record timestamps.

use std::fmt;
use std::time::Duration;

/// A point on the monotonic clock, in nanoseconds since some start of the process's choosing.
///
/// For deadlines, leases and lags. Never stored, never sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MonoTime(pub u64);

impl MonoTime {
    pub const ZERO: MonoTime = MonoTime(0);

    /// The point `duration` later; stays at the end of the range instead of wrapping.
    #[must_use]
    pub fn plus(self, duration: Duration) -> MonoTime {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        MonoTime(self.0.saturating_add(nanos))
    }

    #[must_use]
    pub fn plus_ms(self, ms: u64) -> MonoTime {
        self.plus(Duration::from_millis(ms))
    }

    /// How long after `earlier` this is; zero if it is not after.
    pub fn since(self, earlier: MonoTime) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Milliseconds since the Unix epoch, as records carry them. `-1` means "none".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    pub const NONE: Timestamp = Timestamp(-1);

    /// Milliseconds from `earlier` to here; negative if `earlier` is later. Never overflows.
    pub fn ms_since(self, earlier: Timestamp) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
