//! `thalweg cluster upgrade`: from one version to the next, and when there is no way back.

use clap::{Args, Subcommand};
use serde_json::json;
use thalweg_proto::v1::admin_client::AdminClient;
use thalweg_proto::v1::{DescribeLevelsRequest, DescribeLevelsResponse, NodeLevels, RaiseLevelRequest};

use crate::cli::coordinators::{Connect, Coordinators, in_time, told};
use crate::cli::failure::Failure;
use crate::cli::output::{Output, Table, note, print_line, print_value};

#[derive(Debug, Subcommand)]
pub enum UpgradeCommand {
    /// Show the cluster's level, and which levels each node can do
    Status(Status),
    /// Let the cluster do what the new version brought; earlier versions cannot come back afterwards
    Finalize(Finalize),
}

#[derive(Debug, Args)]
pub struct Status {
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Args)]
pub struct Finalize {
    /// The level; left out: the highest that the coordinators' leader knows
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    level: Option<u32>,
    /// Only check whether it could be done
    #[arg(short = 'd', long)]
    dry_run: bool,
    #[command(flatten)]
    connect: Connect,
}

pub async fn run(command: UpgradeCommand) -> Result<(), Failure> {
    match command {
        UpgradeCommand::Status(verb) => verb.run().await,
        UpgradeCommand::Finalize(verb) => verb.run().await,
    }
}

impl Status {
    async fn run(self) -> Result<(), Failure> {
        let known = describe(&self.connect.find().await?).await?;
        if self.output.format.is_data() {
            let nodes: Vec<_> = known.nodes.iter().map(value).collect();
            let value = json!({"level": known.level, "leader_max": leader_max(&known), "nodes": nodes});
            return print_value(self.output.format, &value);
        }
        let mut table = Table::new(&["NODE", "VERSION", "LEVELS"]);
        for node in &known.nodes {
            table.row(vec![name(node), or_dash(&node.version), levels(node)]);
        }
        table.print()?;
        print_line("")?;
        print_line(&summary(&known))
    }
}

impl Finalize {
    async fn run(self) -> Result<(), Failure> {
        let coordinators = self.connect.find().await?;
        let before = describe(&coordinators).await?;
        let level = self.level.unwrap_or_else(|| leader_max(&before));
        if level == before.level {
            note(&format!("the cluster is at level {level} already"));
            return Ok(());
        }
        let raise = |channel| {
            let request = RaiseLevelRequest { level, validate_only: self.dry_run };
            async move { AdminClient::new(channel).raise_level(in_time(request)).await }
        };
        told(coordinators.call(raise).await?.error)?;
        let from = before.level;
        note(&match self.dry_run {
            true => format!("every node can go from level {from} to {level}"),
            false => format!("the cluster went from level {from} to {level}; earlier versions cannot come back"),
        });
        Ok(())
    }
}

async fn describe(coordinators: &Coordinators) -> Result<DescribeLevelsResponse, Failure> {
    let describe =
        |channel| async move { AdminClient::new(channel).describe_levels(in_time(DescribeLevelsRequest {})).await };
    coordinators.call(describe).await
}

fn leader_max(known: &DescribeLevelsResponse) -> u32 {
    known.leader.map_or(known.level, |levels| levels.max)
}

/// What there is to do next.
fn summary(known: &DescribeLevelsResponse) -> String {
    let (level, most) = (known.level, leader_max(known));
    let behind: Vec<String> =
        known.nodes.iter().filter(|node| !node.levels.is_some_and(|levels| levels.contains(most))).map(name).collect();
    if most <= level {
        return format!("The cluster is at level {level}, the highest that its leading coordinator knows.");
    }
    if behind.is_empty() {
        return format!(
            "The cluster is at level {level}; every node can do {most}. Until `thalweg cluster upgrade finalize` the version \
             before can come back."
        );
    }
    format!(
        "The cluster is at level {level}; {most} waits for {}: start the newer version there, or remove who is gone for good.",
        behind.join(", ")
    )
}

fn name(node: &NodeLevels) -> String {
    format!("{} {}", if node.coordinator { "coordinator" } else { "broker" }, node.id)
}

fn levels(node: &NodeLevels) -> String {
    match node.levels {
        Some(levels) => levels.to_string(),
        None => format!("not known: {}", node.unknown),
    }
}

fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

fn value(node: &NodeLevels) -> serde_json::Value {
    let role = if node.coordinator { "coordinator" } else { "broker" };
    json!({
        "role": role,
        "id": node.id,
        "version": node.version,
        "level_min": node.levels.map(|levels| levels.min),
        "level_max": node.levels.map(|levels| levels.max),
        "runs": node.answers,
    })
}

#[cfg(test)]
mod tests {
    use thalweg_proto::v1::Levels;

    use super::*;

    #[test]
    fn the_summary_says_who_stands_in_the_way() {
        let node = |id, max| NodeLevels { id, levels: Some(Levels { min: 1, max }), ..NodeLevels::default() };
        let with = |level, nodes: Vec<NodeLevels>| DescribeLevelsResponse {
            level,
            leader: Some(Levels { min: 1, max: 4 }),
            nodes,
        };
        assert!(summary(&with(4, vec![node(1, 4)])).contains("the highest"));
        assert!(summary(&with(3, vec![node(1, 4), node(2, 4)])).contains("upgrade finalize"));
        let waits = summary(&with(3, vec![node(1, 4), node(2, 3), NodeLevels { id: 3, ..NodeLevels::default() }]));
        assert!(waits.contains("waits for broker 2, broker 3"), "{waits}");
    }
}
