//! The simulator sees: each of these deleted rules is noticed. docs/SIMULATION.md has the whole table.
#![cfg(feature = "mutants")]

use thalweg_sim::run::run_seeds;
use thalweg_sim::zoo;

/// Goal: a checker that cannot fail proves nothing. Method: mutants that a few dozen seeds are known to find, each by an
/// invariant that is about the rule.
#[test]
fn deleted_rules_are_noticed() {
    for (name, invariants) in NOTICED {
        let mutant = zoo::find(name).unwrap_or_else(|| panic!("{name} is not in the zoo"));
        let seeds: Vec<u64> = (1..=150).collect();
        let report = run_seeds(&seeds, 2, 1, || thalweg_model::mutant::choose(mutant.switches));
        let found = report.failures.first().unwrap_or_else(|| panic!("{name} survives {} seeds", report.seeds));
        assert!(invariants.contains(&found.violation.invariant), "{name}: {}", found.violation);
    }
}

const NOTICED: &[(&str, &[u8])] = &[
    ("maximal-isr", &[3]),
    ("watermark-at-join", &[2]),
    ("strict-min-isr", &[2, 9]),
    ("truncation-by-epoch", &[1, 2, 12, 13]),
    ("wiped-check", &[2, 11]),
    ("acks-all-waits", &[12]),
];
