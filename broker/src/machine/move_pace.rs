//! How fast replicas on their way in are copied: under a limit, slower while others wait for disks or processors, and faster
//! than the limit where a move would never end otherwise.
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
    /// How often the limit was doubled because a move made no progress under it.
    doublings: u32,
    doubled_at: MonoTime,
}

/// Whether a replica on its way in comes nearer to its leader, looked at over some time.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    since: MonoTime,
    /// Records that it lacked then.
    lag: i64,
}

/// How long full answers take that a leader could give at once: what it takes more is its trouble, or ours.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnswerTimes {
    least: Option<Duration>,
}

/// What a pace is held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Bytes per second, not exceeded over time but by [`MovePace::give_way`].
    pub rate_max: u64,
    /// Others wait for disks or processors longer than they should.
    pub is_strained: bool,
}

impl MovePace {
    pub fn new(now: MonoTime, rate_max: u64) -> MovePace {
        let rate = (rate_max / 4).max(1);
        MovePace { credit: 0, counted_at: now, rate, judged_at: now, doublings: 0, doubled_at: now }
    }

    /// A move has made no progress. If it is the limit that holds it, the limit is doubled for some time; gives what it is
    /// then.
    pub fn give_way(&mut self, now: MonoTime, limit: Limit) -> Option<u64> {
        let rate_max = self.rate_max(limit);
        let is_held = self.credit < 0 && self.rate >= rate_max && !limit.is_strained;
        if !is_held || self.doublings == DOUBLINGS_MAX {
            return None;
        }
        if self.doublings > 0 && now.since(self.doubled_at) < PROGRESS_WINDOW {
            return None;
        }
        self.doublings += 1;
        self.doubled_at = now;
        Some(self.rate_max(limit))
    }

    fn rate_max(&self, limit: Limit) -> u64 {
        limit.rate_max.saturating_mul(1 << self.doublings)
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
        if self.doublings > 0 && now.since(self.doubled_at) >= DOUBLING_KEPT {
            self.doublings -= 1;
            self.doubled_at = now;
        }
        let least = RATE_MIN.min(limit.rate_max).max(1);
        if now.since(self.judged_at) >= JUDGE_INTERVAL {
            self.judged_at = now;
            self.rate = if limit.is_strained { self.rate / 2 } else { self.rate.saturating_add(self.rate / 4 + 1) };
        }
        self.rate = self.rate.clamp(least, self.rate_max(limit).max(least));
    }
}

impl Progress {
    pub fn new(now: MonoTime, lag: i64) -> Progress {
        Progress { since: now, lag }
    }

    /// Takes note of what it lacks now; whether it has come no nearer in a whole window.
    pub fn is_stuck(&mut self, now: MonoTime, lag: i64) -> bool {
        if now.since(self.since) < PROGRESS_WINDOW {
            return false;
        }
        let is_stuck = lag >= self.lag;
        *self = Progress::new(now, lag);
        is_stuck
    }
}

impl AnswerTimes {
    /// Takes note of how long a full answer took; whether that is a sign of trouble. What the network takes is in each of them.
    pub fn is_slow(&mut self, took: Duration) -> bool {
        let least = self.least.map_or(took, |least| least.min(took));
        self.least = Some(least);
        took > ANSWER_MAX.max(least * ANSWER_FACTOR)
    }
}

/// The part of a second whose worth of bytes may be saved up.
const BURST_PER_SECOND: i64 = 10;
const JUDGE_INTERVAL: Duration = Duration::from_millis(250);
/// Bytes per second that a move gets in any case, so that it ends.
const RATE_MIN: u64 = 1 << 20;
/// A move that has come no nearer for so long is stuck.
const PROGRESS_WINDOW: Duration = Duration::from_secs(10);
/// After this without another doubling one is taken back.
const DOUBLING_KEPT: Duration = Duration::from_secs(30);
const DOUBLINGS_MAX: u32 = 10;
/// An answer that takes no longer is never slow.
const ANSWER_MAX: Duration = Duration::from_millis(50);
const ANSWER_FACTOR: u32 = 4;
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

    /// Goal: a partition that is written to faster than the limit arrives all the same. Method: a writer of twice the limit, and
    /// a replica that copies in answers of 100 records of 1,000 bytes.
    #[test]
    fn the_limit_gives_way_to_a_move_that_makes_no_progress_and_comes_back() {
        let limit = Limit { rate_max: 1 << 20, is_strained: false };
        let mut pace = MovePace::new(at(0), limit.rate_max);
        let (mut now, mut have) = (at(0), 0i64);
        let lag = |now: MonoTime, have: i64| 10_000 + now.since(at(0)).as_millis() as i64 * 2_097 / 1_000 - have;
        let mut progress = Progress::new(now, lag(now, have));
        while lag(now, have) > 0 {
            assert!(now < at(300_000), "{} records are lacking", lag(now, have));
            have += 100;
            let wait = pace.copied(now, 100_000, limit).unwrap_or_default();
            now = now.plus(wait.max(Duration::from_micros(200)));
            if progress.is_stuck(now, lag(now, have)) {
                pace.give_way(now, limit);
            }
        }
        assert!(pace.rate() > 2 * limit.rate_max);
        let after = now.since(at(0)).as_millis() as u64;
        copied(&mut pace, after, 400, 100_000, limit);
        assert_eq!(pace.rate(), limit.rate_max);
    }

    #[test]
    fn the_limit_does_not_give_way_where_something_else_holds_the_move() {
        let strained = Limit { rate_max: 4 << 20, is_strained: true };
        let mut pace = MovePace::new(at(0), strained.rate_max);
        copied(&mut pace, 0, 10, 1 << 20, strained);
        assert_eq!(pace.give_way(at(10_000), strained), None);
        assert_eq!(pace.give_way(at(10_000), Limit { is_strained: false, ..strained }), None, "it was slowed down");
    }

    #[test]
    fn slow_answers_are_told_from_a_long_way() {
        let ms = Duration::from_millis;
        let mut near = AnswerTimes::default();
        assert_eq!([2, 40, 60, 3].map(|took| near.is_slow(ms(took))), [false, false, true, false]);
        let mut far = AnswerTimes::default();
        assert_eq!([150, 200, 700].map(|took| far.is_slow(ms(took))), [false, false, true]);
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
