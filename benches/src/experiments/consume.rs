//! Consume throughput from the page cache beside the bare sendfile loop.

use std::time::Duration;

use anyhow::{Result, ensure};
use thalweg_model::Durability;

use super::figures::Throughput;
use super::{Bench, of_both};
use crate::aims::Aim;
use crate::load::{Batch, ConsumeLoad, Limits, ProduceLoad, Target, Topic, Wanted, consume, produce};
use crate::loops;
use crate::plot::{Bar, Bars, Group};
use crate::report::{Report, Table, percent, progress, times};

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    report.section("consume", "Consume");
    report.paragraph(
        "Raw Fetch requests (version 12), one at a time on each connection, over a log in the page cache; every batch \
         header is checked for the next offset and the records are discarded. MB/s counts record values only. Batches \
         of 16 KiB. The bare loop has as many pairs of threads as there are connections.",
    );
    let mut table = Table::new(&HEADER);
    let mut groups = Vec::new();
    for value_bytes in [200, 1024] {
        let batch = Batch::of(value_bytes, 16 << 10)?;
        let logs = bench.targets.iter().map(|target| Log::fill(bench, target, &batch)).collect::<Result<Vec<_>>>()?;
        let file = bench.dir.join("bare-sendfile");
        loops::cached_file(&file, bench.limits().bytes)?;
        for (max_bytes, connection_count) in [(1 << 20, 1), (8 << 20, 1), (8 << 20, 2)] {
            let shape = Shape { value_bytes: value_bytes as u64, max_bytes, connection_count };
            let loads = measure(bench, report, &mut table, &shape, &logs, &file)?;
            let bars = bench.targets.iter().zip(&loads);
            let bars = bars.map(|(target, of)| Bar::of(&target.name, &of.k_records_per_cpu_s)).collect();
            groups.push(Group { name: shape.describe(), bars });
        }
        std::fs::remove_file(&file)?;
        for (log, target) in logs.into_iter().zip(&bench.targets) {
            log.topic.delete(target)?;
        }
    }
    report.table(&table);
    report.plot(Bars {
        title: "What a second of the broker's processor time gives out".to_owned(),
        unit: "1000 records a CPU second".to_owned(),
        is_logarithmic: false,
        groups,
    });
    Ok(())
}

struct Shape {
    value_bytes: u64,
    max_bytes: i32,
    connection_count: usize,
}

impl Shape {
    fn describe(&self) -> String {
        let connections = if self.connection_count == 1 { "connection" } else { "connections" };
        format!("{} B, {} MiB a fetch, {} {connections}", self.value_bytes, self.max_bytes >> 20, self.connection_count)
    }
}

/// A filled topic of one partition.
pub struct Log {
    pub topic: Topic,
    pub end_offset: i64,
}

impl Log {
    pub fn fill(bench: &Bench, target: &Target, batch: &Batch) -> Result<Log> {
        let bytes = bench.limits().bytes;
        progress(&format!("filling a log of {} MiB on {}", bytes >> 20, target.name));
        let topic = Topic::create(target, "bench-consume", Wanted::single(Durability::Replicated), batch)?;
        let limits = Limits { duration: Duration::from_secs(300), bytes };
        let load = ProduceLoad { in_flight: 16, limits, ..ProduceLoad::one_request_each(batch, 1) };
        let outcome = produce(target, &topic, &load)?;
        let end_offset = topic.end_offset()?;
        ensure!(end_offset >= i64::try_from(outcome.record_count)?, "fewer records in the log than acknowledged");
        Ok(Log { topic, end_offset })
    }
}

fn measure(
    bench: &Bench,
    report: &mut Report,
    table: &mut Table,
    shape: &Shape,
    logs: &[Log],
    file: &std::path::Path,
) -> Result<Vec<Throughput>> {
    let mut bare = Throughput::default();
    let mut loads: Vec<Throughput> = vec![Throughput::default(); logs.len()];
    for run in 0..bench.runs {
        progress(&format!("consume {}, run {}", shape.describe(), run + 1));
        bare.add_loop(&loops::sendfile(file, 4 * bench.limits().bytes, shape.connection_count)?);
        for ((target, log), throughput) in bench.targets.iter().zip(logs).zip(&mut loads) {
            let load = ConsumeLoad {
                max_bytes: shape.max_bytes,
                connection_count: shape.connection_count,
                end_offset: log.end_offset,
                value_bytes_per_record: shape.value_bytes,
                duration: bench.limits().duration,
            };
            throughput.add_load(&consume(target, &log.topic, &load)?, shape.connection_count);
        }
    }
    row(table, &shape.describe(), "bare sendfile loop", &bare, "", "");
    for (target, throughput) in bench.targets.iter().zip(&loads) {
        let share = throughput.mb_per_s.median() / bare.mb_per_s.median();
        let verdict =
            if target.is_thalweg { report.judge(&Aim::CONSUME, &shape.describe(), share) } else { String::new() };
        row(table, "", &target.name, throughput, &percent(share), &verdict);
    }
    if let Some((ours, kafka)) = of_both(bench, &loads, |of| of.k_records_per_cpu_s.median()) {
        let verdict = report.judge(&Aim::CONSUME_CPU, &shape.describe(), ours / kafka);
        let cells = ["", "records a CPU second against Kafka", "", "", &times(ours / kafka), "", "", "", "", &verdict];
        table.row(cells.map(str::to_owned).to_vec());
    }
    Ok(loads)
}

fn row(table: &mut Table, load: &str, system: &str, throughput: &Throughput, share: &str, verdict: &str) {
    table.row(vec![
        load.to_owned(),
        system.to_owned(),
        throughput.mb_per_s.show(),
        throughput.k_records_per_s.show(),
        throughput.k_records_per_cpu_s.show(),
        throughput.server_cpu_s_per_gb.show(),
        throughput.client_cpu_s_per_gb.show(),
        percent(throughput.client_busy.median()),
        share.to_owned(),
        verdict.to_owned(),
    ]);
}

const HEADER: [&str; 10] = [
    "load",
    "system",
    "MB/s",
    "1000 records/s",
    "1000 records a server CPU s",
    "server CPU, s/GB",
    "client CPU, s/GB",
    "client busy",
    "of the bare loop",
    "aim",
];
