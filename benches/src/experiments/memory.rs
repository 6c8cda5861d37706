//! What each partition and each idle connection adds to a node's memory.

use std::time::{Duration, Instant};

use anyhow::Result;
use thalweg_model::Durability;
use thalweg_wire::messages::api_versions::ApiVersionsRequest;

use super::{Bench, Node};
use crate::aims::Aim;
use crate::load::{Batch, Connection, ProduceLoad, Target, Topic, Wanted};
use crate::report::{Report, Table, progress};
use crate::servers::{Cluster, Kafka, Thalweg};
use crate::stats::number;

pub fn run(bench: &Bench, node: &Node, report: &mut Report) -> Result<()> {
    report.section("memory", "Memory of partitions and connections");
    report.paragraph(
        "A fresh node for each row, resident memory before and after. Partitions: of one topic, empty, then with one \
         record of 200 bytes in each. Connections: each asked ApiVersions once and then says nothing; the kernel's own \
         memory for sockets is not counted. Kafka's heap is touched as it needs it, so its figures say little per piece.",
    );
    let counts: &[usize] = if bench.quick { &[1_000] } else { &[1_000, 10_000] };
    let mut table = Table::new(&HEADER);
    for count in counts {
        for (name, start) in starts(bench, node) {
            progress(&format!("memory of {count} partitions and connections, {name}"));
            let cluster = start(&format!("memory-partitions-{count}-{name}"))?;
            let (empty, written) = partitions(&cluster.target(), *count)?;
            cluster.stop()?;
            let cluster = start(&format!("memory-connections-{count}-{name}"))?;
            let connected = connections(&cluster.target(), *count)?;
            cluster.stop()?;
            if name == "Thalweg" {
                report.judge(&Aim::PARTITION_MEMORY, &format!("{count} partitions with a record"), written);
                report.judge(&Aim::CONNECTION_MEMORY, &format!("{count} connections"), connected);
            }
            let cells = [empty, written, connected].map(number);
            table.row([count.to_string(), name.to_owned()].into_iter().chain(cells).collect());
        }
    }
    report.table(&table);
    Ok(())
}

type Start<'a> = Box<dyn Fn(&str) -> Result<Cluster> + 'a>;

/// Ours, and Kafka when it is there; each starts on a folder of the given name.
pub fn starts<'a>(bench: &'a Bench, node: &'a Node) -> Vec<(&'static str, Start<'a>)> {
    let ours: Start<'a> = Box::new(|folder| Ok(Thalweg::start(&node.binary, &bench.dir.join(folder))?.0));
    let mut starts = vec![("Thalweg", ours)];
    if let Ok(software) = bench.software.get("kafka") {
        starts.push(("Kafka", Box::new(move |folder| Kafka::start(software, &bench.dir.join(folder), 1))));
    }
    starts
}

/// KiB for each partition: empty, and with a record.
fn partitions(target: &Target, count: usize) -> Result<(f64, f64)> {
    let batch = Batch::of(200, 0)?;
    // What the first topic and the first request of each kind take is not the partitions'.
    Topic::create(target, "bench-first", Wanted::single(Durability::Replicated), &batch)?;
    let before = settled(target)?;
    let wanted = Wanted { partition_count: i32::try_from(count)?, ..Wanted::single(Durability::Replicated) };
    let mut topic = Topic::create_unwritten(target, "bench-partitions", wanted)?;
    let empty = settled(target)?;
    topic.await_leaders(target, wanted.partition_count)?;
    let load = ProduceLoad {
        partitions_per_request: wanted.partition_count.min(PARTITIONS_PER_REQUEST),
        ..ProduceLoad::one_request_each(&batch, wanted.partition_count)
    };
    topic.await_writable(target, &load)?;
    let written = settled(target)?;
    let each = |after: u64| (after as f64 - before as f64) / 1024.0 / count as f64;
    Ok((each(empty), each(written)))
}

/// KiB for each connection.
fn connections(target: &Target, count: usize) -> Result<f64> {
    Connection::open(target.address)?.call(&ApiVersionsRequest::default(), 0)?;
    let before = settled(target)?;
    let mut open = Vec::with_capacity(count);
    for _ in 0..count {
        let mut connection = Connection::open_small(target.address)?;
        connection.call(&ApiVersionsRequest::default(), 0)?;
        open.push(connection);
    }
    let after = settled(target)?;
    Ok((after as f64 - before as f64) / 1024.0 / open.len() as f64)
}

/// Resident bytes, once they have not grown for a second.
pub fn settled(target: &Target) -> Result<u64> {
    let began = Instant::now();
    let mut last = target.processes.memory()?.resident;
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let now = target.processes.memory()?.resident;
        if now <= last || began.elapsed() > SETTLED_WITHIN {
            return Ok(now);
        }
        last = now;
    }
}

const HEADER: [&str; 5] =
    ["how many", "system", "KiB an empty partition", "KiB a partition with a record", "KiB an idle connection"];
const PARTITIONS_PER_REQUEST: i32 = 1_000;
const SETTLED_WITHIN: Duration = Duration::from_secs(20);
