//! One file per experiment. Each alternates its sides within a run, so that a change of the machine's mood in the
//! middle hits all of them alike.

mod consume;
mod control;
mod figures;
mod growth;
mod latency;
mod loops;
mod matrix;
mod memory;
mod paper;
mod produce;
mod sendfile;
mod start;
mod tail;
mod unbatched;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use thalweg_model::Durability;

use crate::load::{Batch, Limits, ProduceLoad, Target, Topic, Wanted, produce};
use crate::report::{Report, progress};
use crate::servers::{Cluster, Kafka, Software, Thalweg};

/// In the order in which they are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Experiment {
    Paper,
    Start,
    Loops,
    Produce,
    Unbatched,
    Consume,
    Latency,
    Memory,
    Sendfile,
    Control,
    Tail,
    Growth,
    Matrix,
}

impl Experiment {
    /// Whether it belongs to the short form.
    pub fn is_short(self) -> bool {
        match self {
            Experiment::Paper
            | Experiment::Start
            | Experiment::Produce
            | Experiment::Unbatched
            | Experiment::Consume
            | Experiment::Latency
            | Experiment::Memory
            | Experiment::Sendfile => true,
            Experiment::Loops | Experiment::Control | Experiment::Tail | Experiment::Growth | Experiment::Matrix => {
                false
            }
        }
    }

    /// What the peers' folder is asked for.
    pub fn software(wanted: &[Experiment]) -> &'static [&'static str] {
        if wanted.contains(&Experiment::Paper) {
            &["kafka", "rabbitmq", "activemq", "nats", "load"]
        } else {
            &["kafka"]
        }
    }

    /// What it needs and does not have it leaves out.
    pub fn run(self, bench: &Bench, report: &mut Report) -> Result<()> {
        match (self, &bench.node) {
            (Experiment::Paper, _) => paper::run(bench, report),
            (Experiment::Loops, _) => loops::run(bench, report),
            (Experiment::Produce, _) => produce::run(bench, report),
            (Experiment::Unbatched, _) => unbatched::run(bench, report),
            (Experiment::Consume, _) => consume::run(bench, report),
            (Experiment::Latency, _) => latency::run(bench, report),
            (Experiment::Start, Some(node)) => start::run(bench, node, report),
            (Experiment::Memory, Some(node)) => memory::run(bench, node, report),
            (Experiment::Sendfile, Some(node)) => sendfile::run(bench, node, report),
            (Experiment::Control, Some(node)) => control::run(bench, node, report),
            (Experiment::Tail, Some(node)) => tail::run(bench, node, report),
            (Experiment::Growth, Some(node)) => growth::run(bench, node, report),
            (Experiment::Matrix, Some(node)) => matrix::run(bench, node, report),
            (
                Experiment::Start
                | Experiment::Memory
                | Experiment::Sendfile
                | Experiment::Control
                | Experiment::Tail
                | Experiment::Growth
                | Experiment::Matrix,
                None,
            ) => Ok(()),
        }
    }
}

/// What every experiment needs.
#[derive(Debug)]
pub struct Bench {
    pub node: Option<Node>,
    pub kafka: Option<Cluster>,
    pub software: Software,
    pub runs: usize,
    pub quick: bool,
    /// For data directories and the bare loops' files; on a disk.
    pub dir: PathBuf,
    /// Brokers of one node that speak Kafka's protocol: ours first.
    pub targets: Vec<Target>,
}

/// The Thalweg node that the loads go to.
#[derive(Debug)]
pub struct Node {
    pub binary: PathBuf,
    pub cluster: Cluster,
    pub http: SocketAddr,
}

impl Bench {
    /// Starts the node and, when it was fetched, Kafka, and warms both.
    pub fn start(binary: Option<&Path>, software: Software, dir: &Path, runs: usize, quick: bool) -> Result<Bench> {
        let mut targets = Vec::new();
        let node = match binary {
            None => None,
            Some(binary) => {
                progress("starting the node");
                let binary = binary.canonicalize().with_context(|| format!("no binary at {}", binary.display()))?;
                let (cluster, http) = Thalweg::start(&binary, &dir.join("thalweg"))?;
                targets.push(cluster.target());
                Some(Node { binary, cluster, http })
            }
        };
        let kafka = match software.get("kafka") {
            Err(_) => None,
            Ok(found) => {
                progress("starting Kafka");
                let cluster = Kafka::start(found, &dir.join("kafka"), 1)?;
                targets.push(cluster.target());
                Some(cluster)
            }
        };
        let bench = Bench { node, kafka, software, runs, quick, dir: dir.to_owned(), targets };
        bench.warm()?;
        Ok(bench)
    }

    /// A just-in-time compiler needs some seconds of each kind of load until it is as fast as it gets.
    fn warm(&self) -> Result<()> {
        let duration = Duration::from_secs(if self.quick { 3 } else { 10 });
        for target in &self.targets {
            for batch_bytes in [0, 16 << 10, 128 << 10] {
                progress(&format!("warming {}, batches of {batch_bytes} bytes", target.name));
                let batch = Batch::of(200, batch_bytes)?;
                let topic = Topic::create(target, "bench-warm", Wanted::single(Durability::Replicated), &batch)?;
                let limits = Limits { duration, bytes: 2 << 30 };
                let load = ProduceLoad { in_flight: 16, limits, ..ProduceLoad::one_request_each(&batch, 1) };
                produce(target, &topic, &load)?;
                topic.delete(target)?;
            }
        }
        Ok(())
    }

    /// How long one run of a load lasts at most.
    pub fn limits(&self) -> Limits {
        if self.quick {
            Limits { duration: Duration::from_millis(500), bytes: 256 << 20 }
        } else {
            Limits { duration: Duration::from_secs(1), bytes: 1 << 30 }
        }
    }

    pub fn stop(self) -> Result<()> {
        let clusters = self.node.map(|node| node.cluster).into_iter().chain(self.kafka);
        clusters.into_iter().try_for_each(Cluster::stop)
    }
}

/// How much a bare loop that syncs each chunk moves: a synced chunk takes about the time of many that are not.
fn synced_bytes(bytes: u64, chunk_bytes: usize) -> u64 {
    (bytes / 4).min(1000 * chunk_bytes as u64)
}

/// `left` of a figure per `right` of Kafka's: the targets' median of it, ours and the peer's; none without both.
fn of_both<T>(bench: &Bench, figures: &[T], median: impl Fn(&T) -> f64) -> Option<(f64, f64)> {
    let find = |is_thalweg: bool| {
        let at = bench.targets.iter().position(|target| target.is_thalweg == is_thalweg)?;
        Some(median(&figures[at]))
    };
    Some((find(true)?, find(false)?))
}
