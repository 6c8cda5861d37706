//! How fast bytes come and go, as a rate that forgets: half of what it knows each minute.

use std::time::Duration;

use thalweg_model::MonoTime;

/// A rate made from looks at a count that only grows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rate {
    last: Option<(MonoTime, u64)>,
    /// Bytes per second.
    per_second: f64,
}

impl Rate {
    /// Takes note of the count at a moment. The first look says nothing yet.
    pub fn look(&mut self, now: MonoTime, count: u64) {
        let Some((then, before)) = self.last.replace((now, count)) else { return };
        let seconds = now.since(then).as_secs_f64();
        if seconds <= 0.0 {
            self.last = Some((then, before));
            return;
        }
        let lately = count.saturating_sub(before) as f64 / seconds;
        let weight = 1.0 - 0.5f64.powf(seconds / HALF_LIFE.as_secs_f64());
        self.per_second += (lately - self.per_second) * weight;
    }

    /// Bytes per second.
    pub fn per_second(&self) -> u64 {
        self.per_second.round() as u64
    }
}

const HALF_LIFE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> MonoTime {
        MonoTime::ZERO.plus(Duration::from_secs(seconds))
    }

    #[test]
    fn a_steady_flow_is_known_after_some_minutes_and_forgotten_by_halves() {
        let mut rate = Rate::default();
        rate.look(at(0), 7_000_000);
        assert_eq!(rate.per_second(), 0, "what came before the first look says nothing");
        (1..=60).for_each(|i| rate.look(at(i * 5), 7_000_000 + i * 5_000));
        assert!((965..=1_000).contains(&rate.per_second()), "{}", rate.per_second());
        let known = rate.per_second();
        rate.look(at(360), 7_300_000);
        assert!(rate.per_second().abs_diff(known / 2) <= 1, "{}", rate.per_second());
    }

    /// Goal: how often somebody looks makes no difference, and two looks in one moment do no harm.
    #[test]
    fn looks_may_come_at_any_distance() {
        let (mut seldom, mut often) = (Rate::default(), Rate::default());
        for seconds in 0..=120 {
            often.look(at(seconds), seconds * 500);
            often.look(at(seconds), seconds * 500);
        }
        [0, 120].into_iter().for_each(|seconds| seldom.look(at(seconds), seconds * 500));
        assert_eq!((seldom.per_second(), often.per_second()), (375, 375));
    }
}
