//! Produce throughput beside the bare receive loop.

use anyhow::Result;
use thalweg_model::Durability;

use super::figures::Throughput;
use super::{Bench, of_both, synced_bytes};
use crate::aims::Aim;
use crate::load::{Batch, Limits, ProduceLoad, Target, Topic, Wanted, produce};
use crate::loops;
use crate::plot::{Bar, Bars, Group};
use crate::report::{Report, Table, percent, progress, times};

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    report.section("produce", "Produce");
    report.paragraph(
        "Uncompressed batches, encoded beforehand and sent again and again; each answer's error code and offset are \
         checked. MB/s counts record values only. The bare loop receives chunks of the batch's size, takes their \
         CRC-32C and appends them to a file; for `flushed` there is also one that syncs each chunk. It has as many pairs of \
         threads as there are connections. A peer's `flushed` \
         is `flush.messages=1`. *client busy* is the share of one processor that each of the client's connections \
         uses: near 100 % the client is the limit.",
    );
    let shapes = shapes(bench.quick);
    let mut ours: Vec<f64> = Vec::new();
    let mut groups = Vec::new();
    for durability in [Durability::Replicated, Durability::Flushed] {
        let mut table = Table::new(&HEADER);
        for shape in &shapes {
            let loads = measure(bench, report, &mut table, durability, shape)?;
            ours.push(loads.first().map_or(f64::NAN, |throughput| throughput.mb_per_s.median()));
            let bars = bench.targets.iter().zip(&loads);
            let bars = bars.map(|(target, of)| Bar::of(&target.name, &of.k_records_per_cpu_s)).collect();
            groups.push(Group { name: format!("{durability}, {}", shape.describe()), bars });
        }
        report.paragraph(&format!("**durability {durability}**"));
        report.table(&table);
    }
    if bench.node.is_some() {
        let (replicated, flushed) = ours.split_at(shapes.len());
        let mut table = Table::new(&["load", "replicated / flushed", "aim"]);
        for ((shape, replicated), flushed) in shapes.iter().zip(replicated).zip(flushed) {
            let verdict = report.judge(&Aim::FLUSHED, &shape.describe(), replicated / flushed);
            table.row(vec![shape.describe(), times(replicated / flushed), verdict]);
        }
        report.table(&table);
    }
    report.plot(Bars {
        title: "What a second of the broker's processor time takes in".to_owned(),
        unit: "1000 records a CPU second".to_owned(),
        is_logarithmic: false,
        groups,
    });
    Ok(())
}

/// One way of producing.
struct Shape {
    value_bytes: usize,
    batch_bytes: usize,
    acks: i16,
    connection_count: i32,
}

impl Shape {
    /// What keeps 2 MiB on their way, but not fewer than clients do by default.
    fn in_flight(&self) -> usize {
        ((2 << 20) / self.batch_bytes).clamp(5, 64)
    }

    fn describe(&self) -> String {
        let acks = if self.acks == -1 { "all".to_owned() } else { self.acks.to_string() };
        format!(
            "{} B, {} KiB batches, acks={acks}, {} x {} in flight",
            self.value_bytes,
            self.batch_bytes >> 10,
            self.connection_count,
            self.in_flight()
        )
    }
}

fn shapes(quick: bool) -> Vec<Shape> {
    let mut shapes = Vec::new();
    for value_bytes in [200, 1024] {
        for batch_bytes in [16 << 10, 128 << 10, 1 << 20] {
            shapes.push(Shape { value_bytes, batch_bytes, acks: 1, connection_count: 1 });
        }
        if !quick {
            shapes.push(Shape { value_bytes, batch_bytes: 128 << 10, acks: -1, connection_count: 1 });
            shapes.push(Shape { value_bytes, batch_bytes: 128 << 10, acks: 1, connection_count: 4 });
        }
    }
    shapes
}

fn measure(
    bench: &Bench,
    report: &mut Report,
    table: &mut Table,
    durability: Durability,
    shape: &Shape,
) -> Result<Vec<Throughput>> {
    let limits = bench.limits();
    let load = ProduceLoad {
        batch: Batch::of(shape.value_bytes, shape.batch_bytes)?,
        acks: shape.acks,
        in_flight: shape.in_flight(),
        partition_count: shape.connection_count,
        partitions_per_request: 1,
        limits,
        timed: false,
    };
    let (mut bare, mut bare_synced) = (Throughput::default(), Throughput::default());
    let mut loads: Vec<Throughput> = vec![Throughput::default(); bench.targets.len()];
    for run in 0..bench.runs {
        progress(&format!("produce {durability}, {}, run {}", shape.describe(), run + 1));
        let pairs = usize::try_from(shape.connection_count)?;
        bare.add_loop(&loops::receive(&bench.dir, limits.bytes, shape.batch_bytes, false, pairs)?);
        if durability == Durability::Flushed {
            let bytes = synced_bytes(limits.bytes, shape.batch_bytes);
            bare_synced.add_loop(&loops::receive(&bench.dir, bytes, shape.batch_bytes, true, pairs)?);
        }
        for (target, throughput) in bench.targets.iter().zip(&mut loads) {
            let outcome = once(target, durability, &load)?;
            throughput.add_load(&outcome, pairs);
        }
    }
    row(table, &shape.describe(), "bare loop", &bare, "", "");
    let bare_median = bare.mb_per_s.median();
    if durability == Durability::Flushed {
        let share = percent(bare_synced.mb_per_s.median() / bare_median);
        row(table, "", "bare loop + fdatasync", &bare_synced, &share, "");
    }
    for (target, throughput) in bench.targets.iter().zip(&loads) {
        let share = throughput.mb_per_s.median() / bare_median;
        let verdict = if target.is_thalweg && durability == Durability::Replicated {
            report.judge(&Aim::PRODUCE, &shape.describe(), share)
        } else {
            String::new()
        };
        row(table, "", &target.name, throughput, &percent(share), &verdict);
    }
    if let Some((ours, kafka)) = of_both(bench, &loads, |of| of.k_records_per_cpu_s.median()) {
        let verdict = report.judge(&Aim::PRODUCE_CPU, &format!("{durability}, {}", shape.describe()), ours / kafka);
        let cells = ["", "records a CPU second against Kafka", "", "", &times(ours / kafka), "", "", "", "", &verdict];
        table.row(cells.map(str::to_owned).to_vec());
    }
    Ok(loads)
}

/// Into a topic of its own.
fn once(target: &Target, durability: Durability, load: &ProduceLoad) -> Result<crate::load::Outcome> {
    let wanted = Wanted { partition_count: load.partition_count, ..Wanted::single(durability) };
    let topic = Topic::create(target, "bench-produce", wanted, &load.batch)?;
    let warm = Limits { duration: WARM_UP, ..load.limits };
    produce(target, &topic, &ProduceLoad { limits: warm, ..load.clone() })?;
    let outcome = produce(target, &topic, load)?;
    topic.delete(target)?;
    Ok(outcome)
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
/// A just-in-time compiler gets some; a native broker does not need it.
const WARM_UP: std::time::Duration = std::time::Duration::from_millis(200);
