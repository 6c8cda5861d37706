//! What more of everything does to a node: partitions, connections, groups, and the log that it finds at its start.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use thalweg_model::Durability;
use thalweg_wire::messages::api_versions::ApiVersionsRequest;

use super::memory::{settled, starts};
use super::{Bench, Node};
use crate::load::group::join_groups;
use crate::load::{Batch, Connection, Limits, Outcome, ProduceLoad, Target, Topic, Wanted, produce};
use crate::report::{Report, Table, progress};
use crate::servers::Cluster;
use crate::stats::number;

pub fn run(bench: &Bench, node: &Node, report: &mut Report) -> Result<()> {
    report.section("growth", "Growth");
    report.paragraph(
        "A fresh node for each row; one figure each, not a median. *Ready* is until the node answers Metadata and the end \
         of the first partition's log. *Produce* is the processor time of the broker for 200-byte records in batches of \
         16 KiB to one partition, while the others exist; *to all* is for batches of one record to each partition in turn, \
         100 partitions a request.",
    );
    partitions(bench, node, report)?;
    connections(bench, node, report)?;
    groups(bench, node, report)?;
    logs(bench, node, report)
}

fn partitions(bench: &Bench, node: &Node, report: &mut Report) -> Result<()> {
    let counts: &[i32] = if bench.quick { &[10, 1_000] } else { &[10, 1_000, 10_000] };
    let mut table = Table::new(&[
        "partitions",
        "system",
        "made, s",
        "produce, µs a record",
        "to all, µs a record",
        "ready after SIGTERM, ms",
        "ready after SIGKILL, ms",
        "RSS, MB",
    ]);
    for count in counts {
        for (name, start) in starts(bench, node) {
            progress(&format!("growth: {count} partitions, {name}"));
            let folder = format!("growth-partitions-{count}-{name}");
            let cluster = start(&folder)?;
            let target = cluster.target();
            let wanted = Wanted { partition_count: *count, ..Wanted::single(Durability::Replicated) };
            let small = Batch::of(200, 0)?;
            let began = Instant::now();
            let mut topic = Topic::create_unwritten(&target, "bench-many", wanted)?;
            topic.await_leaders(&target, *count)?;
            let to_all = ProduceLoad {
                partitions_per_request: (*count).min(100),
                ..ProduceLoad::one_request_each(&small, *count)
            };
            topic.await_writable(&target, &to_all)?;
            let made = began.elapsed();
            let one = cpu_of_one_partition(&target)?;
            let limits = Limits { duration: Duration::from_secs(2), bytes: u64::MAX };
            let all = micros_a_record(&produce(&target, &topic, &ProduceLoad { limits, ..to_all })?);
            let resident = settled(&target)? as f64 / 1e6;
            cluster.stop()?;
            let (again, after_stop) = ready(&topic, || start(&folder))?;
            again.kill()?;
            let (again, after_kill) = ready(&topic, || start(&folder))?;
            again.stop()?;
            let millis = |time: Duration| time.as_secs_f64() * 1e3;
            let cells = [made.as_secs_f64(), one, all, millis(after_stop), millis(after_kill), resident].map(number);
            table.row([count.to_string(), name.to_owned()].into_iter().chain(cells).collect());
            std::fs::remove_dir_all(bench.dir.join(&folder))?;
        }
    }
    report.table(&table);
    Ok(())
}

fn connections(bench: &Bench, node: &Node, report: &mut Report) -> Result<()> {
    let counts: &[usize] = if bench.quick { &[10, 1_000] } else { &[10, 1_000, 9_000] };
    let mut table = Table::new(&["idle connections", "system", "made, s", "produce, µs a record", "KiB a connection"]);
    for count in counts {
        for (name, start) in starts(bench, node) {
            progress(&format!("growth: {count} connections, {name}"));
            let cluster = start(&format!("growth-connections-{count}-{name}"))?;
            let target = cluster.target();
            // What the load takes for itself is there before.
            cpu_of_one_partition(&target)?;
            let before = settled(&target)?;
            let began = Instant::now();
            let mut open = Vec::with_capacity(*count);
            for _ in 0..*count {
                let mut connection = Connection::open_small(target.address)?;
                connection.call(&ApiVersionsRequest::default(), 0)?;
                open.push(connection);
            }
            let made = began.elapsed();
            let each = (settled(&target)? as f64 - before as f64) / 1024.0 / open.len() as f64;
            let one = cpu_of_one_partition(&target)?;
            drop(open);
            cluster.stop()?;
            let cells = [made.as_secs_f64(), one, each].map(number);
            table.row([count.to_string(), name.to_owned()].into_iter().chain(cells).collect());
        }
    }
    report.table(&table);
    Ok(())
}

fn groups(bench: &Bench, node: &Node, report: &mut Report) -> Result<()> {
    let counts: &[usize] = if bench.quick { &[1, 100] } else { &[1, 100, 1_000] };
    let mut table =
        Table::new(&["groups of one member", "system", "all joined, s", "produce, µs a record", "KiB a group"]);
    for count in counts {
        for (name, start) in starts(bench, node) {
            progress(&format!("growth: {count} groups, {name}"));
            let cluster = start(&format!("growth-groups-{count}-{name}"))?;
            let target = cluster.target();
            join_groups(target.address, "bench-first", 1)?;
            cpu_of_one_partition(&target)?;
            let before = settled(&target)?;
            let began = Instant::now();
            let members = join_groups(target.address, "bench", *count)?;
            let joined = began.elapsed();
            let each = (settled(&target)? as f64 - before as f64) / 1024.0 / members.len() as f64;
            let one = cpu_of_one_partition(&target)?;
            cluster.stop()?;
            let cells = [joined.as_secs_f64(), one, each].map(number);
            table.row([count.to_string(), name.to_owned()].into_iter().chain(cells).collect());
        }
    }
    report.table(&table);
    Ok(())
}

fn logs(bench: &Bench, node: &Node, report: &mut Report) -> Result<()> {
    let sizes: &[u64] = if bench.quick { &[1] } else { &[1, 10] };
    let mut table = Table::new(&["log, GiB", "system", "ready after SIGKILL, ms"]);
    for gib in sizes {
        for (name, start) in starts(bench, node) {
            progress(&format!("growth: a log of {gib} GiB, {name}"));
            let folder = format!("growth-log-{gib}-{name}");
            let cluster = start(&folder)?;
            let target = cluster.target();
            let batch = Batch::of(1024, 128 << 10)?;
            let topic = Topic::create(&target, "bench-log", Wanted::single(Durability::Replicated), &batch)?;
            let limits = Limits { duration: Duration::from_secs(600), bytes: gib << 30 };
            produce(
                &target,
                &topic,
                &ProduceLoad { in_flight: 16, limits, ..ProduceLoad::one_request_each(&batch, 1) },
            )?;
            let end = topic.end_offset()?;
            cluster.kill()?;
            let (again, took) = ready(&topic, || start(&folder))?;
            let found = topic.at(again.target().address).end_offset()?;
            ensure!(found == end, "{name}: the log ended at {end} and ends at {found} after SIGKILL");
            again.stop()?;
            table.row(vec![gib.to_string(), name.to_owned(), number(took.as_secs_f64() * 1e3)]);
            std::fs::remove_dir_all(bench.dir.join(&folder))?;
        }
    }
    report.table(&table);
    Ok(())
}

/// Starts again; until the end of the first partition's log is known.
fn ready(topic: &Topic, start: impl Fn() -> Result<Cluster>) -> Result<(Cluster, Duration)> {
    let cluster = start()?;
    let answered = Instant::now();
    let topic = topic.at(cluster.target().address);
    while topic.end_offset().is_err() {
        ensure!(answered.elapsed() < READY_WITHIN, "{} is not led after a restart", topic.name);
        std::thread::sleep(Duration::from_millis(1));
    }
    let took = cluster.ready_after + answered.elapsed();
    Ok((cluster, took))
}

/// µs of the broker's processor time for each record.
fn cpu_of_one_partition(target: &Target) -> Result<f64> {
    let batch = Batch::of(200, 16 << 10)?;
    let topic = Topic::create(target, "bench-one", Wanted::single(Durability::Replicated), &batch)?;
    let load = ProduceLoad { in_flight: 64, ..ProduceLoad::one_request_each(&batch, 1) };
    let limits = |seconds| Limits { duration: Duration::from_secs(seconds), bytes: u64::MAX };
    produce(target, &topic, &ProduceLoad { limits: limits(3), ..load.clone() })?;
    let outcome = produce(target, &topic, &ProduceLoad { limits: limits(2), ..load })?;
    topic.delete(target)?;
    Ok(micros_a_record(&outcome))
}

fn micros_a_record(outcome: &Outcome) -> f64 {
    outcome.server_cpu.as_secs_f64() * 1e6 / outcome.record_count as f64
}

const READY_WITHIN: Duration = Duration::from_secs(300);
