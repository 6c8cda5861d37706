//! Measures a Thalweg node beside the machine's bare loops, and beside peers that run already.

mod experiments;
mod load;
mod loops;
mod machine;
mod process;
mod report;
mod server;
mod stats;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, ValueEnum};

use experiments::{Bench, Node};
use load::Target;
use process::Process;
use report::{Report, progress};
use server::Server;

/// Measures a Thalweg node: start, memory, produce, consume and what they cost, beside the machine's bare loops.
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
    /// A Kafka broker that runs already, to be measured beside ours: NAME=ADDRESS:PORT,PID. May be repeated.
    #[arg(long, value_parser = parse_peer)]
    peer: Vec<Target>,
    /// Only these experiments. May be repeated.
    #[arg(long)]
    only: Vec<Experiment>,
    /// Where data goes while measuring; must be on a disk.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    dir: PathBuf,
    /// Writes the report to this file too.
    #[arg(long)]
    write: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Experiment {
    Start,
    Loops,
    Produce,
    Consume,
    Unbatched,
    Sendfile,
}

fn main() -> Result<()> {
    let options = Options::parse();
    ensure!(
        !machine::is_memory_only(&options.dir)?,
        "{} is in memory, so syncing would measure nothing; name a directory on a disk with --dir",
        options.dir.display()
    );
    let dir = tempfile::Builder::new().prefix("thalweg-bench-").tempdir_in(&options.dir)?;
    let mut report = Report::default();
    machine::describe(&mut report, options.binary.as_deref(), dir.path())?;

    let node = match &options.binary {
        None => None,
        Some(binary) => {
            progress("starting the node");
            let binary = binary.canonicalize().with_context(|| format!("no binary at {}", binary.display()))?;
            Some(Node { server: Server::start(&binary, &dir.path().join("data"))?, binary })
        }
    };
    let mut targets: Vec<Target> = node.iter().map(Node::target).collect();
    targets.extend(options.peer);
    let runs = options.runs.unwrap_or(if options.quick { 3 } else { 5 });
    let bench = Bench { node, runs, quick: options.quick, dir: dir.path().to_owned(), targets };

    progress("touching memory");
    loops::touch_memory(&bench.dir, 2 * bench.limits().bytes)?;

    let wanted = |experiment| options.only.is_empty() || options.only.contains(&experiment);
    for experiment in Experiment::value_variants().iter().copied().filter(|experiment| wanted(*experiment)) {
        match (experiment, &bench.node) {
            (Experiment::Start, Some(node)) => experiments::start::run(&bench, node, &mut report),
            (Experiment::Sendfile, Some(node)) => experiments::sendfile::run(&bench, node, &mut report),
            (Experiment::Start | Experiment::Sendfile, None) => continue,
            (Experiment::Loops, _) => experiments::loops::run(&bench, &mut report),
            (Experiment::Produce, _) => experiments::produce::run(&bench, &mut report),
            (Experiment::Consume, _) => experiments::consume::run(&bench, &mut report),
            (Experiment::Unbatched, _) => experiments::unbatched::run(&bench, &mut report),
        }
        .with_context(|| format!("the experiment {experiment:?}"))?;
    }
    experiments::memory_after(&bench, &mut report)?;
    report.summary();
    report.paragraph(&format!("Load average at the end: {:.2}.", machine::load_average()));
    if let Some(path) = &options.write {
        std::fs::write(path, report.text()).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(node) = bench.node {
        node.server.stop()?;
    }
    Ok(())
}

/// # Errors
/// Says what the form is; the caller's fault.
fn parse_peer(text: &str) -> Result<Target> {
    let Some((name, rest)) = text.split_once('=') else { bail!("not of the form NAME=ADDRESS:PORT,PID") };
    let (address, pid) = rest.rsplit_once(',').context("a peer's process id is missing: NAME=ADDRESS:PORT,PID")?;
    let address: SocketAddr = address.parse().context("not an IP address and port")?;
    let process = Process { pid: pid.parse().context("not a process id")? };
    process.cpu()?;
    Ok(Target { name: name.to_owned(), address, process, is_thalweg: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_named_by_address_and_process() {
        let peer = parse_peer(&format!("kafka=127.0.0.1:19092,{}", std::process::id())).expect("a good peer");
        assert_eq!((peer.name.as_str(), peer.address.port()), ("kafka", 19092));
        for bad in ["kafka", "kafka=127.0.0.1:19092", "kafka=localhost:1,1", "kafka=127.0.0.1:1,x"] {
            assert!(parse_peer(bad).is_err(), "{bad}");
        }
    }
}
