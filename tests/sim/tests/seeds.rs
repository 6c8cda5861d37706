//! The kept seeds and a few hundred others hold every invariant.

use thalweg_sim::run::{run_seed, run_seeds, tell_seed};

/// Goal: no rule of replication breaks, and whatever faults leave behind heals. Method: whole clusters, every invariant at
/// every step. CI runs many more, with the command of docs/SIMULATION.md.
#[test]
fn kept_seeds_and_a_few_hundred_others_hold_every_invariant() {
    let mut seeds = thalweg_sim::kept_seeds();
    seeds.extend(1..=SEEDS);
    let report = run_seeds(&seeds, 2, 3, || {});
    assert_eq!(report.failures, []);
    assert_eq!(report.seeds, seeds.len() as u64);
    // A world in which nothing goes wrong or nothing is written would prove nothing.
    assert!(report.counts.faults > 5 * SEEDS, "{:?}", report.counts);
    assert!(report.counts.acked > 50 * SEEDS, "{:?}", report.counts);
    assert!(report.counts.elections > SEEDS, "{:?}", report.counts);
}

/// Goal: a seed can be replayed. Method: the same seed twice, once with its story told, gives the same counts to the event.
#[test]
fn a_seed_gives_the_same_history_every_time() {
    for seed in 1..=5 {
        assert_eq!(run_seed(seed), run_seed(seed));
        let (story, result) = tell_seed(seed);
        assert_eq!((story.clone(), result.clone()), tell_seed(seed));
        assert!(story.len() > 50);
        assert_eq!(result, Ok(()));
    }
}

const SEEDS: u64 = 200;
