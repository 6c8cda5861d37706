//! Sizes, partitions, codecs, acknowledgements and replicas: one varied at a time, Thalweg beside Kafka.

use std::time::Duration;

use anyhow::Result;
use thalweg_model::Durability;
use thalweg_wire::compression::Compression;

use super::figures::Throughput;
use super::{Bench, Node};
use crate::load::{Batch, ConsumeLoad, Limits, ProduceLoad, Target, Topic, Wanted, consume, produce};
use crate::report::{Report, Table, progress, times};
use crate::servers::{Cluster, Kafka, Thalweg};

pub fn run(bench: &Bench, node: &Node, report: &mut Report) -> Result<()> {
    report.section("matrix", "Sizes, partitions, codecs, acknowledgements, replicas");
    report.paragraph(
        "One thing varied at a time from 1 KiB, 6 partitions, no codec, acks=1, one replica, `replicated`; batches of 64 KiB \
         (1 MiB for records of that size), 2 MiB under way on each connection. Partitions have connections of their own; 100 \
         partitions share four, 25 batches of 16 KiB a request. Replicas: three nodes on this machine, `min.insync.replicas` 2; \
         with acks=1 the followers may be behind at the end. Compressed values are letters of which three bits are random. \
         Consuming reads the first partition again and again, 1 MiB a fetch, without unpacking. MB/s and processor time (of all \
         nodes) for values before compression.",
    );
    let mut table = Table::new(&HEADER);
    for replication_factor in [1, 3] {
        let three = if replication_factor == 3 { clusters_of_three(bench, node)? } else { Vec::new() };
        let targets: Vec<Target> =
            if three.is_empty() { bench.targets.clone() } else { three.iter().map(Cluster::target).collect() };
        for shape in shapes().into_iter().filter(|shape| shape.replication_factor == replication_factor) {
            measure(bench, &mut table, &targets, &shape)?;
        }
        // Nobody starts them again, and the last of three Kafka nodes waits for a majority that has stopped.
        three.into_iter().try_for_each(Cluster::kill)?;
    }
    report.table(&table);
    Ok(())
}

#[derive(Clone, Copy)]
struct Shape {
    value_bytes: usize,
    partition_count: i32,
    acks: i16,
    codec: Compression,
    replication_factor: i16,
    durability: Durability,
}

const BASE: Shape = Shape {
    value_bytes: 1024,
    partition_count: 6,
    acks: 1,
    codec: Compression::None,
    replication_factor: 1,
    durability: Durability::Replicated,
};

fn shapes() -> Vec<Shape> {
    let mut shapes = Vec::new();
    for (replication_factor, acks, durability) in [
        (1, 1, Durability::Replicated),
        (1, -1, Durability::Replicated),
        (1, 1, Durability::Flushed),
        (3, 1, Durability::Replicated),
        (3, -1, Durability::Replicated),
        (3, -1, Durability::Flushed),
    ] {
        shapes.push(Shape { acks, replication_factor, durability, ..BASE });
    }
    for (replication_factor, acks) in [(1, 1), (3, -1)] {
        let base = Shape { replication_factor, acks, ..BASE };
        shapes.extend([100, 200, 16 << 10, 1 << 20].map(|value_bytes| Shape { value_bytes, ..base }));
        shapes.extend([Compression::Lz4, Compression::Zstd].map(|codec| Shape { codec, ..base }));
    }
    shapes.extend([1, 100].map(|partition_count| Shape { partition_count, ..BASE }));
    shapes.push(Shape { partition_count: 1, replication_factor: 3, acks: -1, ..BASE });
    shapes
}

impl Shape {
    fn describe(&self) -> String {
        let acks = if self.acks == -1 { "all".to_owned() } else { self.acks.to_string() };
        let size = if self.value_bytes < 1024 {
            format!("{} B", self.value_bytes)
        } else {
            format!("{} KiB", self.value_bytes >> 10)
        };
        let (partitions, replicas) = (self.partition_count, self.replication_factor);
        let codec = format!("{:?}", self.codec).to_lowercase();
        format!("{size}, {partitions} partitions, codec {codec}, acks={acks}, {replicas} replicas, {}", self.durability)
    }

    fn batch(&self) -> Result<Batch> {
        let batch_bytes = if self.partition_count > 6 { 16 << 10 } else { 64 << 10 };
        match self.codec {
            Compression::None => Batch::of(self.value_bytes, batch_bytes),
            codec => Batch::compressed(self.value_bytes, batch_bytes, codec),
        }
    }
}

fn clusters_of_three(bench: &Bench, node: &Node) -> Result<Vec<Cluster>> {
    progress("starting clusters of three");
    let mut clusters = vec![Thalweg::start_three(&node.binary, &bench.dir.join("matrix-thalweg"))?];
    if let Ok(software) = bench.software.get("kafka") {
        clusters.push(Kafka::start(software, &bench.dir.join("matrix-kafka"), 3)?);
    }
    for cluster in &clusters {
        let wanted = Wanted { replication_factor: 3, ..Wanted::single(Durability::Replicated) };
        let shape = Shape { replication_factor: 3, acks: -1, ..BASE };
        let limits = Limits { duration: Duration::from_secs(10), bytes: 1 << 30 };
        let load = ProduceLoad { acks: -1, in_flight: 32, limits, ..ProduceLoad::one_request_each(&shape.batch()?, 1) };
        let topic = Topic::create(&cluster.target(), "bench-warm", wanted, &load.batch)?;
        produce(&cluster.target(), &topic, &load)?;
        topic.delete(&cluster.target())?;
    }
    Ok(clusters)
}

fn measure(bench: &Bench, table: &mut Table, targets: &[Target], shape: &Shape) -> Result<()> {
    let batch = shape.batch()?;
    let partitions_per_request = if shape.partition_count > 6 { shape.partition_count / 4 } else { 1 };
    let request_bytes = batch.bytes.len() * usize::try_from(partitions_per_request)?;
    let load = ProduceLoad {
        acks: shape.acks,
        in_flight: ((2 << 20) / request_bytes).clamp(2, 64),
        partitions_per_request,
        limits: Limits { duration: Duration::from_millis(1500), bytes: 1 << 30 },
        ..ProduceLoad::one_request_each(&batch, shape.partition_count)
    };
    let mut produced = vec![Throughput::default(); targets.len()];
    let mut consumed = vec![Throughput::default(); targets.len()];
    for run in 0..bench.runs.min(3) {
        progress(&format!("{}, run {}", shape.describe(), run + 1));
        for (index, target) in targets.iter().enumerate() {
            let wanted = Wanted {
                partition_count: shape.partition_count,
                replication_factor: shape.replication_factor,
                durability: shape.durability,
            };
            let topic = Topic::create(target, "bench-matrix", wanted, &batch)?;
            let outcome = produce(target, &topic, &load)?;
            produced[index].add_load(&outcome, usize::try_from(load.connection_count())?);
            let reading = ConsumeLoad {
                // A fetch of a record that is larger than this still gives it.
                max_bytes: 1 << 20,
                connection_count: 1,
                end_offset: topic.end_offset()?,
                value_bytes_per_record: shape.value_bytes as u64,
                duration: Duration::from_secs(1),
            };
            consumed[index].add_load(&consume(target, &topic, &reading)?, 1);
            topic.delete(target)?;
        }
    }
    for (index, target) in targets.iter().enumerate() {
        let (produced, consumed) = (&produced[index], &consumed[index]);
        table.row(vec![
            if index == 0 { shape.describe() } else { String::new() },
            target.name.clone(),
            produced.mb_per_s.show(),
            produced.server_cpu_s_per_gb.show(),
            consumed.mb_per_s.show(),
            consumed.server_cpu_s_per_gb.show(),
        ]);
    }
    if let [ours, kafka] = produced.as_slice() {
        let ratio = |left: f64, right: f64| times(left / right);
        table.row(vec![
            String::new(),
            "Thalweg against Kafka, more is better".to_owned(),
            ratio(ours.mb_per_s.median(), kafka.mb_per_s.median()),
            ratio(kafka.server_cpu_s_per_gb.median(), ours.server_cpu_s_per_gb.median()),
            ratio(consumed[0].mb_per_s.median(), consumed[1].mb_per_s.median()),
            ratio(consumed[1].server_cpu_s_per_gb.median(), consumed[0].server_cpu_s_per_gb.median()),
        ]);
    }
    Ok(())
}

const HEADER: [&str; 6] = ["load", "system", "produce, MB/s", "server CPU, s/GB", "consume, MB/s", "server CPU, s/GB"];
