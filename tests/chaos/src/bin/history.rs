//! Checks the histories of one run: `thalweg-history FILE...`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use thalweg_chaos::check::{Kind, Report, check};
use thalweg_chaos::history::{ClientHistory, Micros};
use thalweg_chaos::made;

/// Finds in the histories of clients what must never happen; exit code 1 if anything did.
#[derive(Parser)]
struct Options {
    /// One file for each client of the run
    files: Vec<PathBuf>,
    /// A rule whose breaches are counted and shown, but are no failure; more than once
    #[arg(long, value_name = "RULE", value_parser = kind)]
    allow: Vec<Kind>,
    /// How many breaches of each rule to show
    #[arg(long, default_value_t = 5)]
    show: usize,
    /// Writes the histories of a run without faults, of this many records, into the folder instead; to measure with
    #[arg(long, value_names = ["RECORDS", "FOLDER"], num_args = 2, conflicts_with = "files")]
    make: Option<Vec<String>>,
    /// Names every rule
    #[arg(long)]
    rules: bool,
}

fn main() -> Result<ExitCode> {
    let options = Options::parse();
    let mut out = std::io::stdout().lock();
    if options.rules {
        for kind in Kind::ALL {
            writeln!(out, "{:22} {}", kind.name(), kind.rule())?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(make) = &options.make {
        let records = make[0].parse().context("RECORDS is a number")?;
        for history in made::good(records) {
            let path = PathBuf::from(&make[1]).join(&history.name);
            std::fs::write(&path, made::text(&history)).with_context(|| path.display().to_string())?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut histories = Vec::new();
    for path in &options.files {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let history = ClientHistory::parse(&text).map_err(anyhow::Error::msg);
        histories.push(history.with_context(|| path.display().to_string())?);
    }
    let report = check(&histories);
    write!(out, "{}", told(&report, &options))?;
    let is_good = report.breaches(&options.allow) == 0 && report.figures.acknowledged > 0;
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn told(report: &Report, options: &Options) -> String {
    let mut told = String::new();
    let figures = &report.figures;
    for (kind, found) in &report.anomalies {
        let verdict = if options.allow.contains(kind) { "allowed" } else { "FAILED" };
        told += &format!("{verdict}: {kind}: {} ({})\n", found.len(), kind.rule());
        for story in found.iter().take(options.show) {
            told += &format!("    {story}\n");
        }
    }
    told += &format!(
        "{} records sent, {} acknowledged, {} unknown, {} refused; {} read, {} commits; \
         visible after p50 {} ms, p99 {} ms, at most {} ms; longest time without an acknowledgement {} ms; {} anomalies\n",
        figures.sent,
        figures.acknowledged,
        figures.unknown,
        figures.failed,
        figures.read,
        figures.commits,
        millis(&figures.visible_after, 50),
        millis(&figures.visible_after, 99),
        millis(&figures.visible_after, 100),
        figures.longest_gap / 1000,
        report.breaches(&options.allow),
    );
    if figures.acknowledged == 0 {
        told += "FAILED: nothing was acknowledged, so nothing was shown\n";
    }
    told
}

/// A percentile of sorted times.
fn millis(sorted: &[Micros], percent: usize) -> Micros {
    let index = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(index).copied().unwrap_or(0) / 1000
}

fn kind(name: &str) -> Result<Kind, String> {
    Kind::ALL.iter().copied().find(|kind| kind.name() == name).ok_or_else(|| "no such rule: see --rules".to_owned())
}
