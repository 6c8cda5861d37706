//! One seed, and many.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::checker::Violation;
use crate::world::{Counts, World};

/// A seed that broke a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub seed: u64,
    pub violation: Violation,
}

/// What many seeds came to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub seeds: u64,
    pub counts: Counts,
    pub failures: Vec<Failure>,
}

/// Runs one seed. A panic in a machine is a violation, too.
///
/// # Errors
/// The first rule that broke.
pub fn run_seed(seed: u64) -> (Counts, Result<(), Violation>) {
    let mut world = World::new(seed, false);
    let result = catch_unwind(AssertUnwindSafe(|| world.run()));
    (world.counts, result.unwrap_or_else(|panic| Err(panicked(&*panic))))
}

/// Runs one seed and tells its story.
pub fn tell_seed(seed: u64) -> (Vec<String>, Result<(), Violation>) {
    let mut world = World::new(seed, true);
    let result = catch_unwind(AssertUnwindSafe(|| world.run()));
    (world.story.take().unwrap_or_default(), result.unwrap_or_else(|panic| Err(panicked(&*panic))))
}

/// Runs seeds on `jobs` threads, each of which does `begin` first; stops after `failures_max` failures.
pub fn run_seeds(seeds: &[u64], jobs: usize, failures_max: usize, begin: impl Fn() + Sync) -> Report {
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        begin();
        let mut report = Report::default();
        while failed.load(Ordering::Relaxed) < failures_max
            && let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed))
        {
            let (counts, result) = run_seed(*seed);
            report.seeds += 1;
            report.counts.add(counts);
            if let Err(violation) = result {
                failed.fetch_add(1, Ordering::Relaxed);
                report.failures.push(Failure { seed: *seed, violation });
            }
        }
        report
    };
    let mut sum = Report::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            let report = worker.join().expect("a panic in a seed is caught where the seed runs");
            sum.seeds += report.seeds;
            sum.counts.add(report.counts);
            sum.failures.extend(report.failures);
        }
    });
    sum.failures.sort_by_key(|failure| failure.seed);
    sum
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Violation {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    Violation { invariant: 0, message: format!("panic: {}", text.unwrap_or("without words")) }
}
