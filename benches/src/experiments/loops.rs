//! What the machine does without any broker.

use anyhow::Result;

use super::figures::Throughput;
use super::{Bench, synced_bytes};
use crate::loops;
use crate::report::{Report, Table, progress};
use crate::stats::{Series, quantile};

/// The bare loops alone; they run again beside each experiment that is compared with them.
pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let file = bench.dir.join("bare-sendfile");
    let bytes = bench.limits().bytes;
    loops::cached_file(&file, bytes)?;
    let mut sendfile = Throughput::default();
    let mut receives: Vec<Throughput> = vec![Throughput::default(); RECEIVES.len()];
    let (mut fdatasync, mut round_trip) = (Latency::default(), Latency::default());
    for run in 0..bench.runs {
        progress(&format!("bare loops, run {}", run + 1));
        sendfile.add_loop(&loops::sendfile(&file, 4 * bytes, 1)?);
        for (throughput, (chunk_bytes, sync)) in receives.iter_mut().zip(RECEIVES) {
            let bytes = if sync { synced_bytes(bytes, chunk_bytes) } else { bytes };
            throughput.add_loop(&loops::receive(&bench.dir, bytes, chunk_bytes, sync, 1)?);
        }
        fdatasync.add(loops::fdatasync(&bench.dir, 500)?);
        round_trip.add(loops::round_trip(ROUND_TRIP_BYTES, 20_000)?);
    }
    std::fs::remove_file(&file)?;

    report.section("loops", "The machine's bare loops");
    report.paragraph(
        "Over loopback TCP, one thread a side. The server is the side that a broker would be; its partner only writes \
         from, or reads into, one buffer.",
    );
    let mut table = Table::new(&["loop", "MB/s", "server CPU, s/GB", "partner CPU, s/GB"]);
    let mut row = |name: String, throughput: &Throughput| {
        let figures = [&throughput.mb_per_s, &throughput.server_cpu_s_per_gb, &throughput.client_cpu_s_per_gb];
        table.row([name].into_iter().chain(figures.map(Series::show)).collect());
    };
    row("sendfile from the page cache".to_owned(), &sendfile);
    for (throughput, (chunk_bytes, sync)) in receives.iter().zip(RECEIVES) {
        let sync = if sync { " + fdatasync" } else { "" };
        row(format!("receive + CRC-32C + append{sync}, {} KiB", chunk_bytes >> 10), throughput);
    }
    report.table(&table);
    let mut table = Table::new(&["loop", "p50, µs", "p99, µs"]);
    table.row(vec!["append and fdatasync of 4 KiB".to_owned(), fdatasync.p50.show(), fdatasync.p99.show()]);
    let name = format!("loopback round trip of {ROUND_TRIP_BYTES} bytes");
    table.row(vec![name, round_trip.p50.show(), round_trip.p99.show()]);
    report.table(&table);
    Ok(())
}

#[derive(Default)]
struct Latency {
    p50: Series,
    p99: Series,
}

impl Latency {
    fn add(&mut self, mut micros: Vec<f64>) {
        self.p50.push(quantile(&mut micros, 500));
        self.p99.push(quantile(&mut micros, 990));
    }
}

/// Chunk size and whether each chunk is synced.
const RECEIVES: [(usize, bool); 5] =
    [(16 << 10, false), (128 << 10, false), (1 << 20, false), (128 << 10, true), (1 << 20, true)];
/// About a Produce of one record of 200 bytes.
const ROUND_TRIP_BYTES: usize = 300;
