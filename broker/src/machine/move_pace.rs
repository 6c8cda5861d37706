//! How fast replicas on their way in are copied: under a limit, and slower while the disks have trouble with everybody else.
//!
//! Only those replicas ask here. What an in-sync replica copies is never held back: producers wait for it.

use std::time::Duration;

use thalweg_model::MonoTime;

/// Bytes that may be copied now. One for a broker, and one for each leader that it copies from.
#[derive(Clone, Debug)]
pub struct MovePace {
    /// Bytes; negative after a large answer, which is paid off before the next.
    credit: i64,
    counted_at: MonoTime,
    /// Bytes per second at present.
    rate: u64,
    judged_at: MonoTime,
}

/// What a pace is held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Bytes per second, never exceeded over time.
    pub rate_max: u64,
    /// Others wait for the disks longer than they should.
    pub is_strained: bool,
}

impl MovePace {
    pub fn new(now: MonoTime, rate_max: u64) -> MovePace {
        MovePace { credit: 0, counted_at: now, rate: (rate_max / 4).max(1), judged_at: now }
    }

    /// Bytes per second at present.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// Takes note of `bytes` copied; how long to leave off before the next are asked for, if at all.
    pub fn copied(&mut self, now: MonoTime, bytes: u64, limit: Limit) -> Option<Duration> {
        self.judge(now, limit);
        let rate = i64::try_from(self.rate).unwrap_or(i64::MAX).max(1);
        let earned = i128::from(rate) * now.since(self.counted_at).as_nanos() as i128 / 1_000_000_000;
        let earned = i64::try_from(earned).unwrap_or(i64::MAX);
        if earned > 0 {
            self.counted_at = now;
        }
        // What was not used up is kept for a moment only, so that a pause is not followed by a flood.
        let credit = self.credit.saturating_add(earned).min(rate / BURST_PER_SECOND);
        self.credit = credit.saturating_sub_unsigned(bytes);
        let missing = u64::try_from(self.credit.saturating_neg()).ok().filter(|missing| *missing > 0)?;
        let nanos = u128::from(missing) * 1_000_000_000 / rate.unsigned_abs() as u128;
        Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).clamp(WAIT_MIN, WAIT_MAX))
    }

    /// Halves the rate under strain, and else comes back to the limit step by step.
    fn judge(&mut self, now: MonoTime, limit: Limit) {
        let least = RATE_MIN.min(limit.rate_max).max(1);
        if now.since(self.judged_at) >= JUDGE_INTERVAL {
            self.judged_at = now;
            self.rate = if limit.is_strained { self.rate / 2 } else { self.rate.saturating_add(self.rate / 4 + 1) };
        }
        self.rate = self.rate.clamp(least, limit.rate_max.max(least));
    }
}

/// The part of a second whose worth of bytes may be saved up.
const BURST_PER_SECOND: i64 = 10;
const JUDGE_INTERVAL: Duration = Duration::from_millis(250);
/// Bytes per second that a move gets in any case, so that it ends.
const RATE_MIN: u64 = 1 << 20;
const WAIT_MIN: Duration = Duration::from_millis(1);
const WAIT_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> MonoTime {
        MonoTime::ZERO.plus(Duration::from_millis(ms))
    }

    /// Copies answers of `answer` bytes for `seconds`, each as soon as it may be asked for; the bytes.
    fn copied(pace: &mut MovePace, from_ms: u64, seconds: u64, answer: u64, limit: Limit) -> u64 {
        let (mut now, end, mut total) = (at(from_ms), at(from_ms + seconds * 1_000), 0);
        while now < end {
            total += answer;
            let wait = pace.copied(now, answer, limit).unwrap_or_default();
            now = now.plus(wait.max(Duration::from_micros(200)));
        }
        total
    }

    #[test]
    fn over_time_the_limit_holds_whatever_the_size_of_answers() {
        let limit = Limit { rate_max: 10 << 20, is_strained: false };
        for answer in [1, 10 << 10, 256 << 10, 2 << 20] {
            let mut pace = MovePace::new(at(0), limit.rate_max);
            copied(&mut pace, 0, 10, answer, limit);
            let bytes = copied(&mut pace, 10_000, 20, answer, limit);
            assert!(bytes <= 20 * limit.rate_max + limit.rate_max / 5 + 2 * answer, "{answer}: {bytes}");
            if answer >= 10 << 10 {
                assert!(bytes >= 18 * limit.rate_max, "{answer}: {bytes}");
            }
        }
    }

    #[test]
    fn strain_slows_it_down_but_never_stops_it_and_it_comes_back() {
        let strained = Limit { rate_max: 64 << 20, is_strained: true };
        let mut pace = MovePace::new(at(0), strained.rate_max);
        copied(&mut pace, 0, 10, 1 << 20, strained);
        assert_eq!(pace.rate(), RATE_MIN);
        // Less what the last answer before has taken in advance.
        assert!(copied(&mut pace, 10_000, 10, 64 << 10, strained) >= 8 * RATE_MIN);
        copied(&mut pace, 20_000, 10, 1 << 20, Limit { is_strained: false, ..strained });
        assert_eq!(pace.rate(), strained.rate_max);
    }

    #[test]
    fn a_lower_limit_holds_at_once_and_a_pause_saves_up_little() {
        let mut pace = MovePace::new(at(0), 400 << 20);
        let low = Limit { rate_max: 1_000, is_strained: false };
        assert_eq!(pace.copied(at(60_000), 0, low), None);
        assert!(pace.copied(at(60_000), 1_100, low).is_some());
        assert_eq!(pace.rate(), 1_000);
        let none = Limit { rate_max: u64::MAX, is_strained: false };
        assert_eq!(MovePace::new(at(0), u64::MAX).copied(at(9_000), 1 << 40, none), None);
    }
}
