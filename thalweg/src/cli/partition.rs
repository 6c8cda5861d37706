//! `thalweg partition`: where partitions lie, and who leads them.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use thalweg_client::admin::{Admin, Reassignment};
use thalweg_client::consumer::topic_partition;
use thalweg_client::{Metadata, PartitionInfo};
use thalweg_model::{NodeId, TopicPartition};

use super::connect::Connection;
use super::failure::Failure;
use super::output::{Output, Table, list, note, print_value};
use super::select::{Selection, existing};
use super::traffic::Traffic;

#[derive(Debug, Subcommand)]
pub enum PartitionCommand {
    /// List partitions with their replicas, and the moves under way
    List(List),
    /// Move partitions to other brokers, change their number of replicas, or call moves off
    Move(Move),
    /// Let another in-sync replica lead
    TransferLeader(TransferLeader),
}

#[derive(Debug, Args)]
pub struct List {
    /// `topic` or `topic:0,3`; by default every partition
    #[arg(value_name = "TOPIC[:PARTITIONS]")]
    selections: Vec<Selection>,
    /// Only those that are being moved
    #[arg(long)]
    moving: bool,
    /// Only those that lack in-sync replicas or a leader
    #[arg(long)]
    unhealthy: bool,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Args)]
pub struct Move {
    /// `topic` or `topic:0,3`
    #[arg(required = true, value_name = "TOPIC[:PARTITIONS]")]
    selections: Vec<Selection>,
    /// The brokers that are to hold it, the first preferred as leader
    #[arg(long, value_delimiter = ',', value_name = "BROKERS", required_unless_present = "cancel")]
    to: Vec<i32>,
    /// Go back to where the moves under way began
    #[arg(long, conflicts_with = "to")]
    cancel: bool,
    /// Return at once; the moves go on
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, Args)]
pub struct TransferLeader {
    /// `topic` or `topic:0,3`
    #[arg(required = true, value_name = "TOPIC[:PARTITIONS]")]
    selections: Vec<Selection>,
    /// Who is to lead, and to be preferred as leader from now on; by default the preferred leader
    #[arg(long, value_name = "BROKER")]
    to: Option<i32>,
    #[command(flatten)]
    connection: Connection,
}

pub async fn run(command: PartitionCommand) -> Result<(), Failure> {
    match command {
        PartitionCommand::List(verb) => verb.run().await,
        PartitionCommand::Move(verb) => verb.run().await,
        PartitionCommand::TransferLeader(verb) => verb.run().await,
    }
}

impl List {
    async fn run(self) -> Result<(), Failure> {
        let admin = self.connection.open().await?.admin();
        let selected = if self.selections.is_empty() { None } else { Some(existing(&admin, &self.selections).await?) };
        let moves = admin.reassignments().await?;
        let cluster = admin.cluster().await?;
        let mut rows = Vec::new();
        for (tp, partition) in partitions(&cluster)? {
            let found = moves.get(&tp);
            let is_well = partition.leader.is_some() && partition.isr.len() >= replica_count(partition, found);
            let is_shown = selected.as_ref().is_none_or(|selected| selected.contains(&tp))
                && (found.is_some() || !self.moving)
                && (!is_well || !self.unhealthy);
            if is_shown {
                rows.push((tp, partition, found));
            }
        }
        if self.output.format.is_data() {
            let value = rows.iter().map(|(tp, partition, found)| {
                let ids = |nodes: &[NodeId]| nodes.iter().map(|node| node.0).collect::<Vec<_>>();
                json!({
                    "topic": tp.topic.as_str(),
                    "partition": tp.partition.0,
                    "leader": partition.leader.map(|node| node.0),
                    "replicas": ids(&partition.replicas),
                    "isr": ids(&partition.isr),
                    "adding": found.map_or(Vec::new(), |found| ids(&found.adding)),
                    "removing": found.map_or(Vec::new(), |found| ids(&found.removing)),
                })
            });
            return print_value(self.output.format, &value.collect());
        }
        let mut headings = vec!["TOPIC", "PARTITION", "LEADER", "REPLICAS", "ISR", "COMING", "GOING"];
        let is_wide = self.output.format.is_wide();
        if is_wide {
            headings.extend(["IN", "OUT"]);
        }
        let traffic = Traffic::ask(&admin, cluster.brokers.keys().copied().filter(|_| is_wide)).await?;
        let mut table = Table::new(&headings);
        for (tp, partition, found) in rows {
            let mut row = vec![
                tp.topic.to_string(),
                tp.partition.to_string(),
                partition.leader.map_or("none".to_owned(), |node| node.to_string()),
                list(&partition.replicas),
                list(&partition.isr),
                found.map_or("-".to_owned(), |found| list(&found.adding)),
                found.map_or("-".to_owned(), |found| list(&found.removing)),
            ];
            if is_wide {
                row.extend(traffic.of(tp.topic.as_str(), tp.partition.0).cells());
            }
            table.row(row);
        }
        table.print()
    }
}

impl Move {
    async fn run(self) -> Result<(), Failure> {
        let admin = self.connection.open().await?.admin();
        let target = (!self.cancel).then(|| self.to.iter().copied().map(NodeId).collect::<Vec<_>>());
        let mut wanted = BTreeMap::new();
        let moving = admin.reassignments().await?;
        for tp in existing(&admin, &self.selections).await? {
            if target.is_some() || moving.contains_key(&tp) {
                wanted.insert(tp, target.clone());
            }
        }
        if wanted.is_empty() {
            return Err(Failure::failed("none of these partitions is being moved"));
        }
        let mut refused = None;
        let mut begun = Vec::new();
        for (tp, result) in admin.reassign(&wanted).await? {
            match result {
                Ok(()) => begun.push(tp),
                // The last one is told as what the verb ends with.
                Err(error) => refused.replace(error).iter().for_each(|earlier| note(&earlier.to_string())),
            }
        }
        if !self.no_wait {
            until_settled(&admin, &begun).await?;
        }
        match refused {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }
}

impl TransferLeader {
    async fn run(self) -> Result<(), Failure> {
        let admin = self.connection.open().await?.admin();
        let selected: Vec<TopicPartition> = existing(&admin, &self.selections).await?.into_iter().collect();
        if let Some(to) = self.to.map(NodeId) {
            let cluster = admin.cluster().await?;
            let known: BTreeMap<TopicPartition, &PartitionInfo> = partitions(&cluster)?.into_iter().collect();
            let mut wanted = BTreeMap::new();
            for tp in &selected {
                let Some(partition) = known.get(tp) else { continue };
                if !partition.isr.contains(&to) {
                    return Err(Failure::failed(format!(
                        "broker {to} is not in sync with {tp} ({}); only an in-sync replica can lead without loss",
                        list(&partition.isr)
                    )));
                }
                let others = partition.replicas.iter().copied().filter(|id| *id != to);
                wanted.insert(tp.clone(), Some(std::iter::once(to).chain(others).collect()));
            }
            for (_, result) in admin.reassign(&wanted).await? {
                result?;
            }
        }
        admin.elect_preferred(&selected).await?;
        for tp in &selected {
            let topic = admin.topic(tp.topic.as_str()).await?;
            let partition = topic.partitions.iter().find(|partition| partition.index == tp.partition.0);
            let leader = partition.and_then(|partition| partition.leader);
            note(&format!("{tp} is led by {}", leader.map_or("nobody".to_owned(), |node| format!("broker {node}"))));
        }
        Ok(())
    }
}

/// Returns once none of these is being moved. Stopped, it changes nothing: moves go on by themselves.
async fn until_settled(admin: &Admin, begun: &[TopicPartition]) -> Result<(), Failure> {
    let mut left: Vec<&TopicPartition> = begun.iter().collect();
    while !left.is_empty() {
        let moving = admin.reassignments().await?;
        let (still, done): (Vec<_>, Vec<_>) = left.into_iter().partition(|tp| moving.contains_key(*tp));
        for tp in done {
            note(&format!("{tp} is settled"));
        }
        left = still;
        if !left.is_empty() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
    Ok(())
}

/// Every partition of the cluster.
fn partitions(cluster: &Metadata) -> Result<Vec<(TopicPartition, &PartitionInfo)>, Failure> {
    let mut all = Vec::new();
    for topic in cluster.topics.values() {
        for partition in &topic.partitions {
            all.push((topic_partition(&topic.name, partition.index)?, partition));
        }
    }
    Ok(all)
}

/// How many replicas it should have without those that are still coming.
fn replica_count(partition: &PartitionInfo, found: Option<&Reassignment>) -> usize {
    partition.replicas.len() - found.map_or(0, |found| found.adding.len().min(partition.replicas.len()))
}

const POLL_INTERVAL: Duration = Duration::from_millis(200);
