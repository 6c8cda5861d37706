//! Runs seeds; tells the story of one.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Parser;
use thalweg_sim::run::{self, Report};
use thalweg_sim::zoo::{self, Mutant, ZOO};

/// Simulates whole clusters, one a seed, and checks every invariant of replication at every step.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many seeds to run.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first seed; without it the kept seeds run first, then those from 1 on.
    #[arg(long)]
    from: Option<u64>,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Runs this seed alone and tells its story.
    #[arg(long)]
    replay: Option<u64>,
    /// Of the story, only the last so many lines.
    #[arg(long)]
    tail: Option<usize>,
    /// Runs every mutant of the bug zoo over the seeds, and says how many of them notice.
    #[arg(long)]
    mutants: bool,
    /// Runs with this mutant.
    #[arg(long)]
    mutant: Option<String>,
    /// Stops after so many failures.
    #[arg(long, default_value_t = 10)]
    failures: usize,
}

#[expect(clippy::print_stdout, reason = "a command's output")]
fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    // A panic in a machine is reported with its seed, below.
    std::panic::set_hook(Box::new(|_| {}));
    let chosen = arguments.mutant.as_deref().map(chosen).transpose()?;
    let begin = || choose(chosen);
    begin();
    if let Some(seed) = arguments.replay {
        let (story, result) = run::tell_seed(seed);
        let skipped = arguments.tail.map_or(0, |tail| story.len().saturating_sub(tail));
        for line in story.iter().skip(skipped) {
            println!("{line}");
        }
        return Ok(verdict(result.is_ok()));
    }
    let mut seeds = if arguments.from.is_none() { thalweg_sim::kept_seeds() } else { Vec::new() };
    let first = arguments.from.unwrap_or(1);
    let end = first.checked_add(arguments.seeds).context("there are not so many seeds")?;
    seeds.extend(first..end);
    if arguments.mutants {
        return Ok(verdict(visit_zoo(&seeds, arguments.jobs)?));
    }
    let started = Instant::now();
    let report = run::run_seeds(&seeds, arguments.jobs, arguments.failures, begin);
    print_report(&report, started.elapsed().as_secs_f64());
    Ok(verdict(report.failures.is_empty()))
}

/// Prints a row for each mutant; returns whether every one was noticed.
#[expect(clippy::print_stdout, reason = "a command's output")]
fn visit_zoo(seeds: &[u64], jobs: usize) -> Result<bool> {
    anyhow::ensure!(cfg!(feature = "mutants"), "{NO_MUTANTS}");
    println!("| mutant | deleted rule | hits | of seeds | rate | found by invariant |");
    println!("|---|---|---|---|---|---|");
    let mut survivors = 0;
    for mutant in ZOO {
        let report = run::run_seeds(seeds, jobs, usize::MAX, || choose(Some(mutant)));
        let mut by: BTreeMap<u8, usize> = BTreeMap::new();
        for failure in &report.failures {
            *by.entry(failure.violation.invariant).or_default() += 1;
        }
        let hits = report.failures.len();
        survivors += usize::from(hits == 0);
        let rate = hits as f64 * 100.0 / report.seeds as f64;
        let by: Vec<String> = by.iter().map(|(invariant, count)| format!("{invariant}: {count}")).collect();
        let by = if by.is_empty() { "**survives**".to_owned() } else { by.join(", ") };
        println!("| `{}` | {} | {hits} | {} | {rate:.2} % | {by} |", mutant.name(), mutant.deletes, report.seeds);
    }
    println!("{} mutants, {survivors} not noticed", ZOO.len());
    Ok(survivors == 0)
}

fn chosen(name: &str) -> Result<&'static Mutant> {
    anyhow::ensure!(cfg!(feature = "mutants"), "{NO_MUTANTS}");
    zoo::find(name).with_context(|| format!("there is no mutant '{name}'"))
}

#[cfg(feature = "mutants")]
fn choose(mutant: Option<&'static Mutant>) {
    thalweg_model::mutant::choose(mutant.map_or(&[], |mutant| mutant.switches));
}

#[cfg(not(feature = "mutants"))]
fn choose(_: Option<&'static Mutant>) {}

#[expect(clippy::print_stdout, reason = "a command's output")]
fn print_report(report: &Report, seconds: f64) {
    for failure in &report.failures {
        println!("seed {}: {}", failure.seed, failure.violation);
        println!("    cargo run -p thalweg-sim -- --replay {}", failure.seed);
    }
    let counts = &report.counts;
    let simulated = counts.simulated_ns as f64 / 1e9;
    println!(
        "{} seeds, {} violations; {:.1} simulated hours, {} faults, {} elections, {} records committed, {} batches acknowledged",
        report.seeds,
        report.failures.len(),
        simulated / 3600.0,
        counts.faults,
        counts.elections,
        counts.committed,
        counts.acked,
    );
    println!(
        "{:.1} s; {:.1} seeds/s, {:.0} times real time, {:.1} million events/s",
        seconds,
        report.seeds as f64 / seconds,
        simulated / seconds,
        counts.events as f64 / seconds / 1e6,
    );
}

fn verdict(is_good: bool) -> ExitCode {
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

const NO_MUTANTS: &str = "this build has no mutants; build it with --features mutants";
