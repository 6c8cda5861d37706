//! Start to ready, memory of an idle node, size of the binary.

use std::time::Duration;

use anyhow::{Context, Result};

use super::{Bench, Node};
use crate::report::{Aim, Report, Table, progress};
use crate::server::Server;
use crate::stats::Series;

/// Starts nodes one after the other: on an empty data directory, then again on the same one.
pub fn run(bench: &Bench, node: &Node, report: &mut Report) -> Result<()> {
    let mut fresh = Figures::default();
    let mut again = Figures::default();
    for run in 0..bench.runs {
        progress(&format!("start, run {}", run + 1));
        let data = bench.dir.join(format!("start-{run}"));
        fresh.measure(node, &data)?;
        again.measure(node, &data)?;
    }
    report.heading("Start, idle memory, size");
    report.paragraph(
        "From just before the process is spawned to its ready line; memory two seconds later, without a client. \
         *anonymous* leaves out the pages of the program file.",
    );
    let mut table =
        Table::new(&["data directory", "start to ready, ms", "aim", "idle RSS, MB", "aim", "anonymous, MB"]);
    for (name, figures) in [("empty", &fresh), ("as a clean stop left it", &again)] {
        let start_verdict = report.judge(&Aim::START, &format!("start, {name}"), figures.ready_ms.median());
        let memory_verdict = report.judge(&Aim::IDLE_MEMORY, &format!("idle, {name}"), figures.resident_mb.median());
        table.row(vec![
            name.to_owned(),
            figures.ready_ms.show(),
            start_verdict,
            figures.resident_mb.show(),
            memory_verdict,
            figures.anonymous_mb.show(),
        ]);
    }
    report.table(&table);
    let size = std::fs::metadata(&node.binary).context("the binary's size")?.len();
    report.paragraph(&format!("Binary: {:.1} MB.", size as f64 / 1e6));
    Ok(())
}

#[derive(Default)]
struct Figures {
    ready_ms: Series,
    resident_mb: Series,
    anonymous_mb: Series,
}

impl Figures {
    fn measure(&mut self, node: &Node, data: &std::path::Path) -> Result<()> {
        let server = Server::start(&node.binary, data)?;
        self.ready_ms.push(server.ready_after.as_secs_f64() * 1e3);
        std::thread::sleep(IDLE_BEFORE_MEMORY);
        let memory = server.process().memory()?;
        self.resident_mb.push(memory.resident as f64 / 1e6);
        self.anonymous_mb.push(memory.anonymous as f64 / 1e6);
        server.stop()
    }
}

const IDLE_BEFORE_MEMORY: Duration = Duration::from_secs(2);
