//! One record a request: what the broker spends on each.

use anyhow::Result;
use thalweg_model::Durability;

use super::{Bench, of_both};
use crate::aims::Aim;
use crate::load::{Batch, Limits, ProduceLoad, Target, Topic, Wanted, produce};
use crate::loops;
use crate::plot::{Bar, Bars, Group};
use crate::report::{Report, Table, progress, times};
use crate::stats::{Series, quantile};

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    report.section("unbatched", "Unbatched produce");
    report.paragraph(
        "One record of 200 bytes a request, one connection, acks=1. CPU is what the operating system counted for the \
         whole process, so it holds the kernel's share of both socket and file. The bare round trip is of 300 bytes.",
    );
    let batch = Batch::of(200, 0)?;
    let mut table = Table::new(&HEADER);
    let mut groups = Vec::new();
    for durability in [Durability::Replicated, Durability::Flushed] {
        for in_flight in [1, 5] {
            let limits = Limits { bytes: u64::MAX, ..bench.limits() };
            let load = ProduceLoad { in_flight, limits, timed: true, ..ProduceLoad::one_request_each(&batch, 1) };
            let figures = measure(bench, report, &mut table, durability, &load)?;
            let bars = bench.targets.iter().zip(&figures);
            let bars = bars.map(|(target, figures)| Bar::of(&target.name, &figures.server_us)).collect();
            groups.push(Group { name: format!("{durability}, {in_flight} in flight"), bars });
        }
    }
    report.table(&table);
    report.plot(Bars {
        title: "One record of 200 bytes a request: processor time of the broker".to_owned(),
        unit: "µs a request, less is better".to_owned(),
        is_logarithmic: false,
        groups,
    });
    Ok(())
}

#[derive(Clone, Default)]
struct Figures {
    requests_per_s: Series,
    server_us: Series,
    client_us: Series,
    p50_us: Series,
    p99_us: Series,
    p999_us: Series,
}

impl Figures {
    fn latencies(&mut self, micros: &mut [f64]) {
        self.p50_us.push(quantile(micros, 500));
        self.p99_us.push(quantile(micros, 990));
        self.p999_us.push(quantile(micros, 999));
    }

    fn row(&self, load: &str, system: &str) -> Vec<String> {
        let figures =
            [&self.requests_per_s, &self.server_us, &self.client_us, &self.p50_us, &self.p99_us, &self.p999_us];
        [load.to_owned(), system.to_owned()].into_iter().chain(figures.map(Series::show)).collect()
    }
}

fn measure(
    bench: &Bench,
    report: &mut Report,
    table: &mut Table,
    durability: Durability,
    load: &ProduceLoad,
) -> Result<Vec<Figures>> {
    let mut bare = Figures::default();
    let mut loads: Vec<Figures> = vec![Figures::default(); bench.targets.len()];
    let name = format!("{durability}, {} in flight", load.in_flight);
    for run in 0..bench.runs {
        progress(&format!("unbatched, {name}, run {}", run + 1));
        bare.latencies(&mut loops::round_trip(300, 20_000)?);
        for (target, figures) in bench.targets.iter().zip(&mut loads) {
            once(target, durability, load, figures)?;
        }
    }
    table.row(bare.row(&name, "bare round trip"));
    for (target, figures) in bench.targets.iter().zip(&loads) {
        table.row(figures.row("", &target.name));
    }
    if let Some((ours, kafka)) = of_both(bench, &loads, |of| of.server_us.median()) {
        let verdict = report.judge(&Aim::REQUEST_CPU, &name, kafka / ours);
        let cells = ["", "Kafka's broker CPU against ours", "", &times(kafka / ours), &verdict, "", "", ""];
        table.row(cells.map(str::to_owned).to_vec());
    }
    Ok(loads)
}

fn once(target: &Target, durability: Durability, load: &ProduceLoad, figures: &mut Figures) -> Result<()> {
    let topic = Topic::create(target, "bench-unbatched", Wanted::single(durability), &load.batch)?;
    let mut outcome = produce(target, &topic, load)?;
    topic.delete(target)?;
    let request_count = outcome.request_count as f64;
    figures.requests_per_s.push(request_count / outcome.elapsed.as_secs_f64());
    figures.server_us.push(outcome.server_cpu.as_secs_f64() * 1e6 / request_count);
    figures.client_us.push(outcome.client_cpu.as_secs_f64() * 1e6 / request_count);
    figures.latencies(&mut outcome.latencies_us);
    Ok(())
}

const HEADER: [&str; 8] =
    ["load", "system", "requests/s", "server CPU, µs", "client CPU, µs", "p50, µs", "p99, µs", "p99.9, µs"];
