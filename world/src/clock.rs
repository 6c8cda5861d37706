//! Time as a value that is passed in.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use thalweg_model::{MonoTime, Timestamp};

/// Reads both clocks. Cheap to clone; clones read the same clocks.
#[derive(Clone, Debug)]
pub struct Clock(Source);

impl Clock {
    /// The machine's clocks.
    pub fn real() -> Clock {
        Clock(Source::Real { start: Instant::now() })
    }

    /// Clocks that move only when [`ManualClock`] says so.
    pub fn manual(wall: Timestamp) -> (Clock, ManualClock) {
        let hands = Arc::new(Hands { mono_ns: AtomicU64::new(0), wall_ms: AtomicI64::new(wall.0) });
        (Clock(Source::Manual(Arc::clone(&hands))), ManualClock(hands))
    }

    /// For deadlines and lags.
    pub fn mono(&self) -> MonoTime {
        match &self.0 {
            Source::Real { start } => MonoTime(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)),
            Source::Manual(hands) => MonoTime(hands.mono_ns.load(Ordering::SeqCst)),
        }
    }

    /// For record timestamps and file ages. May jump either way.
    pub fn wall(&self) -> Timestamp {
        match &self.0 {
            Source::Real { .. } => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
            }
            Source::Manual(hands) => Timestamp(hands.wall_ms.load(Ordering::SeqCst)),
        }
    }
}

/// Moves the clocks made by [`Clock::manual`].
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<Hands>);

impl ManualClock {
    /// Moves both clocks on.
    pub fn advance_ms(&self, ms: u32) {
        self.0.mono_ns.fetch_add(u64::from(ms) * 1_000_000, Ordering::SeqCst);
        self.0.wall_ms.fetch_add(i64::from(ms), Ordering::SeqCst);
    }

    /// Moves the wall clock alone, either way, as an operator or NTP does.
    pub fn set_wall(&self, wall: Timestamp) {
        self.0.wall_ms.store(wall.0, Ordering::SeqCst);
    }
}

#[derive(Clone, Debug)]
enum Source {
    Real { start: Instant },
    Manual(Arc<Hands>),
}

#[derive(Debug)]
struct Hands {
    mono_ns: AtomicU64,
    wall_ms: AtomicI64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_by_hand() {
        let (clock, hands) = Clock::manual(Timestamp(1_000));
        assert_eq!((clock.mono(), clock.wall()), (MonoTime::ZERO, Timestamp(1_000)));
        hands.advance_ms(5);
        assert_eq!((clock.mono(), clock.wall()), (MonoTime(5_000_000), Timestamp(1_005)));
        hands.set_wall(Timestamp(3));
        assert_eq!((clock.mono(), clock.wall()), (MonoTime(5_000_000), Timestamp(3)));
    }
}
