//! What clients ask of the cluster besides records: offset commits, heartbeats, topics made and deleted; one node and three.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use thalweg_model::Durability;
use thalweg_wire::messages::create_topics::{CreatableTopic, CreateTopicsRequest};
use thalweg_wire::messages::heartbeat::HeartbeatRequest;
use thalweg_wire::messages::offset_commit::OffsetCommitRequest;

use super::{Bench, Node};
use crate::load::group::{Member, join_groups};
use crate::load::{CallLoad, Called, Caller, Target, Topic, Wanted, call};
use crate::plot::{Bar, Bars, Group};
use crate::report::{Report, Table, progress};
use crate::servers::{Cluster, Kafka, Thalweg};
use crate::stats::{Series, quantile};

pub fn run(bench: &Bench, node: &Node, report: &mut Report) -> Result<()> {
    report.section("control", "Offsets, members, topics");
    report.paragraph(
        "Each system as one node, then as three nodes that are all voters. *Commits*: groups of one member on \
         connections of their own, one partition a commit. *Heartbeats*: 200 groups of \
         one member over 8 connections, 8 unanswered at a time; a member that beats every 3 s, as clients do by default, \
         needs a third of a heartbeat a second. *Topics*: made one after another on one connection, and on 8 at a time, \
         of one partition with as many replicas as nodes. An answer with an error ends the run. Processor time is of all \
         nodes together.",
    );
    let mut groups = Vec::new();
    for node_count in [1, 3] {
        let clusters = clusters(bench, node, node_count)?;
        let mut all: Vec<Vec<Figures>> = vec![vec![Figures::default(); KINDS.len()]; clusters.len()];
        for run in 0..bench.runs {
            for (cluster, figures) in clusters.iter().zip(&mut all) {
                measure(bench, &cluster.target(), node_count, run, figures)?;
            }
        }
        let mut table = Table::new(&HEADER);
        for (kind, name) in KINDS.iter().enumerate() {
            let mut bars = Vec::new();
            for (cluster, figures) in clusters.iter().zip(&all) {
                table.row(figures[kind].row(name, &cluster.target().name));
                bars.push(Bar::of(&cluster.target().name, &figures[kind].per_second));
            }
            groups.push(Group { name: format!("{name}, {node_count} voters"), bars });
        }
        report.paragraph(&format!("**{node_count} {}**", if node_count == 1 { "voter" } else { "voters" }));
        report.table(&table);
        // Nobody starts them again, and the last of three Kafka nodes waits for a majority that has stopped.
        clusters.into_iter().try_for_each(Cluster::kill)?;
    }
    report.plot(Bars {
        title: "Offset commits, heartbeats, new topics".to_owned(),
        unit: "a second".to_owned(),
        is_logarithmic: true,
        groups,
    });
    Ok(())
}

#[derive(Clone, Default)]
struct Figures {
    per_second: Series,
    server_us: Series,
    p50_us: Series,
    p99_us: Series,
}

impl Figures {
    fn add(&mut self, mut called: Called) {
        self.per_second.push(called.call_count as f64 / called.elapsed.as_secs_f64());
        self.server_us.push(called.server_cpu.as_secs_f64() * 1e6 / called.call_count as f64);
        self.p50_us.push(quantile(&mut called.latencies_us, 500));
        self.p99_us.push(quantile(&mut called.latencies_us, 990));
    }

    fn row(&self, kind: &str, system: &str) -> Vec<String> {
        let figures = [&self.per_second, &self.server_us, &self.p50_us, &self.p99_us].map(Series::show);
        [kind.to_owned(), system.to_owned()].into_iter().chain(figures).collect()
    }
}

fn clusters(bench: &Bench, node: &Node, node_count: usize) -> Result<Vec<Cluster>> {
    let folder = |name: &str| bench.dir.join(format!("control-{node_count}-{name}"));
    let ours = if node_count == 1 {
        Thalweg::start(&node.binary, &folder("thalweg"))?.0
    } else {
        Thalweg::start_three(&node.binary, &folder("thalweg"))?
    };
    let mut clusters = vec![ours];
    if let Ok(software) = bench.software.get("kafka") {
        clusters.push(Kafka::start(software, &folder("kafka"), node_count)?);
    }
    Ok(clusters)
}

fn measure(bench: &Bench, target: &Target, node_count: usize, run: usize, figures: &mut [Figures]) -> Result<()> {
    progress(&format!("offsets, members, topics: {}, {node_count} nodes, run {}", target.name, run + 1));
    let duration = Duration::from_secs(if bench.quick { 1 } else { 2 });
    let replication_factor = i16::try_from(node_count)?;
    let wanted = Wanted { replication_factor, ..Wanted::single(Durability::Replicated) };
    let topic = Topic::create_unwritten(target, &format!("bench-commits-{run}"), wanted)?;
    let members = join_groups(target.address, &format!("bench-commit-{run}"), COMMITTING_GROUPS)?;
    let shapes = [(FEW_GROUPS, 1), (FEW_GROUPS, 16), (COMMITTING_GROUPS, 1), (COMMITTING_GROUPS, 16)];
    for (index, (groups, in_flight)) in shapes.into_iter().enumerate() {
        let load = CallLoad { in_flight, duration, count_max: u64::MAX };
        figures[index].add(commits(target, &topic, &members[..groups], &load)?);
    }
    let members = join_groups(target.address, &format!("bench-beat-{run}"), BEATING_GROUPS)?;
    figures[4].add(heartbeats(target, &members, &CallLoad { in_flight: 8, duration, count_max: u64::MAX })?);
    for (index, connection_count) in [1, 8].into_iter().enumerate() {
        let prefix = format!("bench-made-{run}-{connection_count}");
        let load = CallLoad { in_flight: 1, duration, count_max: 400 / connection_count as u64 };
        figures[5 + index].add(topics(target, &prefix, connection_count, replication_factor, &load)?);
    }
    Ok(())
}

fn commits(target: &Target, topic: &Topic, members: &[Member], load: &CallLoad) -> Result<Called> {
    let caller = |member: &Member| {
        let (member, topic) = (member.clone(), topic.name.clone());
        Caller {
            address: member.address,
            next: Box::new(move |count| member.commit(&topic, 1, i64::try_from(count).unwrap_or(i64::MAX))),
            check: |answer: &<OffsetCommitRequest as thalweg_wire::Request>::Response| {
                let partition = answer.topics.first().and_then(|topic| topic.partitions.first());
                let error_code = partition.context("an empty answer to OffsetCommit")?.error_code;
                ensure!(error_code == 0, "OffsetCommit failed with error {error_code}");
                Ok(())
            },
        }
    };
    call::<OffsetCommitRequest>(target, 7, members.iter().map(caller).collect(), load)
}

fn heartbeats(target: &Target, members: &[Member], load: &CallLoad) -> Result<Called> {
    let mut callers = Vec::new();
    let mut addresses: Vec<_> = members.iter().map(|member| member.address).collect();
    addresses.sort();
    addresses.dedup();
    for address in addresses {
        let fronted: Vec<Member> = members.iter().filter(|member| member.address == address).cloned().collect();
        for share in fronted.chunks(fronted.len().div_ceil(BEATING_CONNECTIONS)) {
            let share = share.to_vec();
            callers.push(Caller {
                address,
                next: Box::new(move |count| share[count as usize % share.len()].heartbeat()),
                check: |answer: &<HeartbeatRequest as thalweg_wire::Request>::Response| {
                    ensure!(answer.error_code == 0, "Heartbeat failed with error {}", answer.error_code);
                    Ok(())
                },
            });
        }
    }
    call::<HeartbeatRequest>(target, 3, callers, load)
}

fn topics(
    target: &Target,
    prefix: &str,
    connection_count: usize,
    replication_factor: i16,
    load: &CallLoad,
) -> Result<Called> {
    let caller = |connection: usize| {
        let prefix = format!("{prefix}-{connection}");
        Caller {
            address: target.address,
            next: Box::new(move |count| CreateTopicsRequest {
                topics: vec![CreatableTopic {
                    name: format!("{prefix}-{count}"),
                    num_partitions: 1,
                    replication_factor,
                    ..CreatableTopic::default()
                }],
                timeout_ms: 30_000,
                ..CreateTopicsRequest::default()
            }),
            check: |answer: &<CreateTopicsRequest as thalweg_wire::Request>::Response| {
                let error_code = answer.topics.first().context("an empty answer to CreateTopics")?.error_code;
                ensure!(error_code == 0, "CreateTopics failed with error {error_code}");
                Ok(())
            },
        }
    };
    call::<CreateTopicsRequest>(target, 5, (0..connection_count).map(caller).collect(), load)
}

const KINDS: [&str; 7] = [
    "commits, 16 groups, 1 unanswered",
    "commits, 16 groups, 16 unanswered",
    "commits, 256 groups, 1 unanswered",
    "commits, 256 groups, 16 unanswered",
    "heartbeats",
    "topics made, 1 connection",
    "topics made, 8 connections",
];
const HEADER: [&str; 6] = ["what", "system", "a second", "server CPU, µs", "p50, µs", "p99, µs"];
const FEW_GROUPS: usize = 16;
const COMMITTING_GROUPS: usize = 256;
const BEATING_GROUPS: usize = 200;
const BEATING_CONNECTIONS: usize = 8;
