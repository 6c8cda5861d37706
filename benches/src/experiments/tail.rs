//! Readers at the end of a log while another one scans old data that has to come from the disk.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, anyhow};
use rustix::fs::Advice;
use thalweg_model::Durability;

use super::memory::starts;
use super::{Bench, Node};
use crate::load::{
    Batch, ConsumeLoad, Latencies, LatencyLoad, Limits, ProduceLoad, Target, Topic, Wanted, consume, latency, produce,
};
use crate::report::{Report, Table, progress};
use crate::stats::{Series, mb_per_s, quantile};

pub fn run(bench: &Bench, node: &Node, report: &mut Report) -> Result<()> {
    let gib: u64 = if bench.quick { 1 } else { 6 };
    report.section("tail", "Readers at the end beside a cold scan");
    report.paragraph(&format!(
        "1,000 records of 200 bytes a second to one topic, one request each, and a consumer at its end: µs from produce \
         to consumer. Alone, then while another consumer reads {gib} GiB of another topic that were taken out of the page \
         cache just before. One replica, `replicated`."
    ));
    let mut table = Table::new(&["system", "meanwhile", "p50, µs", "p99, µs", "p99.9, µs", "scan, MB/s"]);
    for (name, start) in starts(bench, node) {
        let folder = format!("tail-{name}");
        let cluster = start(&folder)?;
        let target = cluster.target();
        progress(&format!("a cold log of {gib} GiB, {name}"));
        let batch = Batch::of(1024, 128 << 10)?;
        let old = Topic::create(&target, "bench-old", Wanted::single(Durability::Replicated), &batch)?;
        let limits = Limits { duration: Duration::from_secs(600), bytes: gib << 30 };
        produce(&target, &old, &ProduceLoad { in_flight: 16, limits, ..ProduceLoad::one_request_each(&batch, 1) })?;
        let mut alone = Figures::default();
        let mut beside = Figures::default();
        for run in 0..bench.runs.min(3) {
            progress(&format!("readers at the end, {name}, run {}", run + 1));
            alone.add(at_the_end(bench, &target)?, None);
            forget(&bench.dir.join(&folder))?;
            let (latencies, scanned) = beside_a_scan(bench, &target, &old)?;
            beside.add(latencies, Some(scanned));
        }
        for (meanwhile, figures) in [("nothing", &alone), ("a cold scan", &beside)] {
            let cells = [&figures.p50, &figures.p99, &figures.p999, &figures.scan_mb_per_s].map(Series::show);
            table.row([name.to_owned(), meanwhile.to_owned()].into_iter().chain(cells).collect());
        }
        cluster.stop()?;
        fs::remove_dir_all(bench.dir.join(&folder))?;
    }
    report.table(&table);
    Ok(())
}

#[derive(Default)]
struct Figures {
    p50: Series,
    p99: Series,
    p999: Series,
    scan_mb_per_s: Series,
}

impl Figures {
    fn add(&mut self, mut latencies: Latencies, scan_mb_per_s: Option<f64>) {
        self.p50.push(quantile(&mut latencies.to_consumer_us, 500));
        self.p99.push(quantile(&mut latencies.to_consumer_us, 990));
        self.p999.push(quantile(&mut latencies.to_consumer_us, 999));
        if let Some(rate) = scan_mb_per_s {
            self.scan_mb_per_s.push(rate);
        }
    }
}

fn at_the_end(bench: &Bench, target: &Target) -> Result<Latencies> {
    let batch = Batch::of(200, 0)?;
    let topic = Topic::create(target, "bench-tail", Wanted::single(Durability::Replicated), &batch)?;
    let load = LatencyLoad { batch, acks: 1, per_second: 1_000.0, duration: duration(bench) };
    let latencies = latency(target, &topic, &load)?;
    topic.delete(target)?;
    Ok(latencies)
}

/// The scan lasts as long as the readers at the end; its MB/s.
fn beside_a_scan(bench: &Bench, target: &Target, old: &Topic) -> Result<(Latencies, f64)> {
    let load = ConsumeLoad {
        max_bytes: 1 << 20,
        connection_count: 1,
        end_offset: old.end_offset()?,
        value_bytes_per_record: 1024,
        duration: duration(bench),
    };
    std::thread::scope(|scope| {
        let scan = scope.spawn(|| consume(target, old, &load));
        let latencies = at_the_end(bench, target);
        let outcome = scan.join().map_err(|_| anyhow!("the scan panicked"))??;
        Ok((latencies?, mb_per_s(outcome.bytes, outcome.elapsed.as_secs_f64())))
    })
}

fn duration(bench: &Bench) -> Duration {
    Duration::from_secs(if bench.quick { 2 } else { 5 })
}

/// Writes back every file below `folder` and takes it out of the page cache.
fn forget(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            forget(&path)?;
        } else if path.extension().is_some_and(|extension| extension == "log") {
            let file = fs::File::open(&path)?;
            file.sync_data()?;
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
        }
    }
    Ok(())
}
