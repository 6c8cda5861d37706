//! One file per experiment. Each alternates its sides within a run, so that a change of the machine's mood in the
//! middle hits all of them alike.

pub mod consume;
mod figures;
pub mod loops;
pub mod produce;
pub mod sendfile;
pub mod start;
pub mod unbatched;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use crate::load::{Limits, Target};
use crate::report::{Report, Table};
use crate::server::Server;
use crate::stats::number;

/// What every experiment needs.
#[derive(Debug)]
pub struct Bench {
    pub node: Option<Node>,
    pub runs: usize,
    pub quick: bool,
    /// For data directories and the bare loops' files; on a disk.
    pub dir: PathBuf,
    /// The node first, then the peers.
    pub targets: Vec<Target>,
}

/// The Thalweg node that the loads go to.
#[derive(Debug)]
pub struct Node {
    pub binary: PathBuf,
    pub server: Server,
}

impl Node {
    pub fn target(&self) -> Target {
        Target {
            name: "Thalweg".to_owned(),
            address: self.server.kafka,
            process: self.server.process(),
            is_thalweg: true,
        }
    }
}

impl Bench {
    /// How long one run of a load lasts at most.
    pub fn limits(&self) -> Limits {
        if self.quick {
            Limits { duration: Duration::from_millis(500), bytes: 256 << 20 }
        } else {
            Limits { duration: Duration::from_secs(2), bytes: 1 << 30 }
        }
    }
}

/// How much a bare loop that syncs each chunk moves: a synced chunk takes about the time of many that are not.
fn synced_bytes(bytes: u64, chunk_bytes: usize) -> u64 {
    (bytes / 4).min(1000 * chunk_bytes as u64)
}

/// What the loads left behind.
pub fn memory_after(bench: &Bench, report: &mut Report) -> Result<()> {
    if bench.targets.is_empty() {
        return Ok(());
    }
    report.heading("Memory after all loads");
    let mut table = Table::new(&["system", "RSS, MB", "anonymous, MB", "peak RSS, MB"]);
    for target in &bench.targets {
        let memory = target.process.memory()?;
        let figures = [memory.resident, memory.anonymous, memory.peak];
        table.row([target.name.clone()].into_iter().chain(figures.map(|bytes| number(bytes as f64 / 1e6))).collect());
    }
    report.table(&table);
    Ok(())
}
