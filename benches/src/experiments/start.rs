//! Start to ready, memory of an idle node, size of the binary, beside Kafka.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::{Bench, Node};
use crate::aims::Aim;
use crate::plot::{Bar, Bars, Group};
use crate::report::{Report, Table, progress, times};
use crate::servers::{Cluster, Kafka, Thalweg};
use crate::stats::Series;

/// Starts nodes one after the other: on an empty data directory, then again on the same one.
pub fn run(bench: &Bench, node: &Node, report: &mut Report) -> Result<()> {
    let (mut ours, mut kafka) = (Sides::default(), Sides::default());
    for run in 0..bench.runs {
        progress(&format!("start, run {}", run + 1));
        let data = bench.dir.join(format!("start-{run}"));
        ours.measure(|| Ok(Thalweg::start(&node.binary, &data)?.0))?;
        if let Ok(software) = bench.software.get("kafka") {
            kafka.measure(|| Kafka::start(software, &bench.dir.join(format!("start-kafka-{run}")), 1))?;
        }
    }
    report.section("start", "Start, idle memory, size");
    report.paragraph(
        "From just before the process is spawned until a client that connects again and again has its first answer to \
         Metadata; memory two seconds later, without a client. *anonymous* leaves out the pages of the program file. \
         Kafka's data directory was formatted before; it has a heap of 1 GiB, which it touches as it needs it.",
    );
    let mut table = Table::new(&["system", "data directory", "start to ready, ms", "idle RSS, MB", "anonymous, MB"]);
    for (name, sides) in [("Thalweg", &ours), ("Kafka", &kafka)] {
        for (data, figures) in [("empty", &sides.fresh), ("as a clean stop left it", &sides.again)] {
            let cells = [&figures.ready_ms, &figures.resident_mb, &figures.anonymous_mb].map(Series::show);
            table.row([name.to_owned(), data.to_owned()].into_iter().chain(cells).collect());
        }
    }
    report.table(&table);
    if bench.software.get("kafka").is_ok() {
        let ratio = |pick: fn(&Figures) -> &Series| pick(&kafka.again).median() / pick(&ours.again).median();
        let (start, memory) = (ratio(|figures| &figures.ready_ms), ratio(|figures| &figures.resident_mb));
        let start_verdict = report.judge(&Aim::START, "as a clean stop left it", start);
        let memory_verdict = report.judge(&Aim::IDLE_MEMORY, "as a clean stop left it", memory);
        report.paragraph(&format!(
            "As a clean stop left it, Kafka takes {} as long to be ready ({start_verdict}) and {} the memory ({memory_verdict}).",
            times(start),
            times(memory)
        ));
    }
    report.plot(plot(&ours, &kafka));
    report.paragraph(&format!("Binary: {:.1} MB.", size(&node.binary)? as f64 / 1e6));
    Ok(())
}

#[derive(Default)]
struct Sides {
    fresh: Figures,
    again: Figures,
}

#[derive(Default)]
struct Figures {
    ready_ms: Series,
    resident_mb: Series,
    anonymous_mb: Series,
}

impl Sides {
    fn measure(&mut self, start: impl Fn() -> Result<Cluster>) -> Result<()> {
        self.fresh.measure(start()?)?;
        self.again.measure(start()?)
    }
}

impl Figures {
    fn measure(&mut self, cluster: Cluster) -> Result<()> {
        self.ready_ms.push(cluster.ready_after.as_secs_f64() * 1e3);
        std::thread::sleep(IDLE_BEFORE_MEMORY);
        let memory = cluster.processes().memory()?;
        self.resident_mb.push(memory.resident as f64 / 1e6);
        self.anonymous_mb.push(memory.anonymous as f64 / 1e6);
        cluster.stop()
    }
}

fn plot(ours: &Sides, kafka: &Sides) -> Bars {
    let group = |name: &str, pick: fn(&Figures) -> &Series| Group {
        name: name.to_owned(),
        bars: vec![Bar::of("Thalweg", pick(&ours.again)), Bar::of("Kafka", pick(&kafka.again))],
    };
    Bars {
        title: "An idle node".to_owned(),
        unit: "less is better".to_owned(),
        is_logarithmic: true,
        groups: vec![
            group("start to ready, ms", |figures| &figures.ready_ms),
            group("resident memory, MB", |figures| &figures.resident_mb),
        ],
    }
}

fn size(binary: &Path) -> Result<u64> {
    Ok(std::fs::metadata(binary).context("the binary's size")?.len())
}

const IDLE_BEFORE_MEMORY: Duration = Duration::from_secs(2);
