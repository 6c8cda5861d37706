//! From produce to acknowledgement and to the consumer, at fixed rates.

use std::time::Duration;

use anyhow::Result;
use thalweg_model::Durability;

use super::{Bench, of_both};
use crate::aims::Aim;
use crate::load::{Batch, Latencies, LatencyLoad, Target, Topic, Wanted, latency};
use crate::plot::{Bar, Bars, Group};
use crate::report::{Report, Table, progress, times};
use crate::stats::{Series, quantile};

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    report.section("latency", "Latency at a fixed rate");
    report.paragraph(
        "One record of 200 bytes a request, at a rate that does not wait for answers; acks=1, one partition, one \
         replica. *To ack* is until the producer has its answer, *to consumer* until a consumer that waits has the \
         record. A rate above what a system takes shows as *sent a second* below the rate, and as time in queues. \
         `flushed` on Kafka is `flush.messages=1`. Aims are judged at the modest rate, the first; at 50 a second p99.9 is the worst of 150 or fewer.",
    );
    let mut groups = Vec::new();
    for durability in [Durability::Replicated, Durability::Flushed] {
        let mut table = Table::new(&HEADER);
        for per_second in rates(bench.quick, durability) {
            let figures = measure(bench, durability, per_second)?;
            for (target, figures) in bench.targets.iter().zip(&figures) {
                table.row(figures.row(per_second, &target.name));
            }
            if per_second == modest(durability) {
                judge(bench, report, durability, &figures);
                let bars = |pick: fn(&Figures) -> &Series| {
                    bench.targets.iter().zip(&figures).map(|(target, of)| Bar::of(&target.name, pick(of))).collect()
                };
                groups.push(Group {
                    name: format!("{durability}, {per_second}/s, median"),
                    bars: bars(|of| &of.consumer[0]),
                });
                groups.push(Group {
                    name: format!("{durability}, {per_second}/s, p99"),
                    bars: bars(|of| &of.consumer[1]),
                });
                groups.push(Group {
                    name: format!("{durability}, {per_second}/s, p99.9"),
                    bars: bars(|of| &of.consumer[2]),
                });
            }
        }
        report.paragraph(&format!("**durability {durability}**"));
        report.table(&table);
    }
    report.plot(Bars {
        title: "Produce to consume at a modest rate".to_owned(),
        unit: "µs, less is better".to_owned(),
        is_logarithmic: true,
        groups,
    });
    Ok(())
}

fn rates(quick: bool, durability: Durability) -> Vec<f64> {
    match (quick, durability) {
        (true, _) => vec![modest(durability)],
        (false, Durability::Flushed) => vec![modest(durability), 200.0, 1_000.0],
        (false, Durability::Replicated) => vec![modest(durability), 5_000.0, 20_000.0, 50_000.0, 100_000.0],
    }
}

/// What Kafka takes without a queue on a disk whose sync is slow.
fn modest(durability: Durability) -> f64 {
    match durability {
        Durability::Replicated => 1_000.0,
        Durability::Flushed => 50.0,
    }
}

/// p50, p99 and p99.9 of each way.
#[derive(Clone, Default)]
struct Figures {
    sent_per_second: Series,
    ack: [Series; 3],
    consumer: [Series; 3],
    server_us: Series,
}

impl Figures {
    fn add(&mut self, mut latencies: Latencies) {
        self.sent_per_second.push(latencies.sent_per_second);
        self.server_us.push(latencies.server_cpu_us_per_record);
        for (index, per_mille) in [500, 990, 999].into_iter().enumerate() {
            self.ack[index].push(quantile(&mut latencies.to_ack_us, per_mille));
            self.consumer[index].push(quantile(&mut latencies.to_consumer_us, per_mille));
        }
    }

    fn row(&self, per_second: f64, system: &str) -> Vec<String> {
        let figures =
            [&self.sent_per_second].into_iter().chain(&self.ack).chain(&self.consumer).chain([&self.server_us]);
        [format!("{per_second}"), system.to_owned()].into_iter().chain(figures.map(Series::show)).collect()
    }
}

fn measure(bench: &Bench, durability: Durability, per_second: f64) -> Result<Vec<Figures>> {
    let duration = Duration::from_secs(if bench.quick { 2 } else { 3 });
    let mut all = vec![Figures::default(); bench.targets.len()];
    for run in 0..bench.runs {
        progress(&format!("latency {durability}, {per_second}/s, run {}", run + 1));
        for (target, figures) in bench.targets.iter().zip(&mut all) {
            figures.add(once(target, durability, per_second, duration)?);
        }
    }
    Ok(all)
}

fn once(target: &Target, durability: Durability, per_second: f64, duration: Duration) -> Result<Latencies> {
    let batch = Batch::of(200, 0)?;
    let topic = Topic::create(target, "bench-latency", Wanted::single(durability), &batch)?;
    let warm = LatencyLoad { batch, acks: 1, per_second, duration: WARM_UP };
    latency(target, &topic, &warm)?;
    let latencies = latency(target, &topic, &LatencyLoad { duration, ..warm })?;
    topic.delete(target)?;
    Ok(latencies)
}

fn judge(bench: &Bench, report: &mut Report, durability: Durability, figures: &[Figures]) {
    if let Some((ours, kafka)) = of_both(bench, figures, |figures| figures.consumer[1].median()) {
        let verdict = report.judge(&Aim::LATENCY, &durability.to_string(), kafka / ours);
        let (rate, ratio) = (modest(durability), times(kafka / ours));
        report.paragraph(&format!("At {rate}/s, {durability}, Kafka's p99 is {ratio} ours: {verdict}."));
    }
}

const WARM_UP: Duration = Duration::from_millis(500);
const HEADER: [&str; 10] = [
    "records a second",
    "system",
    "sent a second",
    "to ack p50, µs",
    "p99",
    "p99.9",
    "to consumer p50, µs",
    "p99",
    "p99.9",
    "server CPU, µs a record",
];
