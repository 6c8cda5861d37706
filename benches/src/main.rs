//! Measures a Thalweg node beside the machine's bare loops and beside Apache Kafka and other peers, which it starts.

mod aims;
mod document;
mod experiments;
mod load;
mod loops;
mod machine;
mod plot;
mod process;
mod report;
mod servers;
mod stats;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};

use experiments::{Bench, Experiment};
use report::{Report, progress};
use servers::Software;

/// Measures a Thalweg node beside the machine's bare loops, Apache Kafka and other peers, which are started here.
///
/// Markdown goes to standard output, progress to standard error. Only 127.0.0.1 is used.
#[derive(Debug, Parser)]
struct Options {
    /// The thalweg binary, a release build; without it only bare loops and peers are measured.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// How often each figure is taken; the median is shown, with least and greatest. 5, or 3 with --quick.
    #[arg(long)]
    runs: Option<usize>,
    /// Less data and fewer shapes.
    #[arg(long)]
    quick: bool,
    /// Where the peers come from; without it Thalweg is measured alone.
    #[arg(long)]
    peers: Option<PathBuf>,
    /// Only these experiments. May be repeated. Left out: all, or with --quick those of the short form.
    #[arg(long)]
    only: Vec<Experiment>,
    /// Where data goes while measuring; must be on a disk.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    dir: PathBuf,
    /// Puts what was measured in place of the same sections of this document.
    #[arg(long)]
    write: Option<PathBuf>,
}

fn main() -> Result<()> {
    let options = Options::parse();
    ensure!(
        !machine::is_memory_only(&options.dir)?,
        "{} is in memory, so syncing would measure nothing; name a directory on a disk with --dir",
        options.dir.display()
    );
    machine::raise_file_limit()?;
    let occasion = machine::Occasion::now();
    let wanted: Vec<Experiment> = Experiment::value_variants()
        .iter()
        .copied()
        .filter(
            |one| if options.only.is_empty() { !options.quick || one.is_short() } else { options.only.contains(one) },
        )
        .collect();
    let dir = tempfile::Builder::new().prefix("thalweg-bench-").tempdir_in(&options.dir)?;
    let mut report = Report::default();
    machine::describe(&mut report, options.binary.as_deref(), dir.path())?;

    let software = match &options.peers {
        None => Software::default(),
        Some(folder) => Software::fetch(folder, Experiment::software(&wanted)),
    };
    let runs = options.runs.unwrap_or(if options.quick { 3 } else { 5 });
    let bench = Bench::start(options.binary.as_deref(), software, dir.path(), runs, options.quick)?;
    progress("touching memory");
    loops::touch_memory(&bench.dir, 2 * bench.limits().bytes)?;

    for experiment in wanted {
        experiment.run(&bench, &mut report).with_context(|| format!("the experiment {experiment:?}"))?;
        // After each, so that a failure later on loses nothing.
        if let Some(path) = &options.write {
            document::rewrite(path, &report, &occasion.describe(&bench.software.versions()))?;
        }
    }
    bench.stop()
}
