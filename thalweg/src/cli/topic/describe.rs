//! `thalweg topic describe`.

use std::collections::BTreeMap;
use std::ops::Range;

use clap::Args;
use serde_json::{Value, json};
use thalweg_client::admin::{Admin, ConfigEntry, ConfigResource};
use thalweg_client::{Isolation, PartitionInfo, TopicInfo};
use thalweg_model::Offset;

use crate::cli::configs::{config_value, print_configs};
use crate::cli::connect::Connection;
use crate::cli::failure::Failure;
use crate::cli::output::{Output, Table, list, print_line, print_value};

#[derive(Debug, Args)]
pub struct Describe {
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    /// Show every setting, not only those that differ from the default (as --format wide does)
    #[arg(short = 'a', long)]
    all_configs: bool,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
}

/// Everything that is shown of a topic.
struct Described {
    topic: TopicInfo,
    configs: Vec<ConfigEntry>,
    /// By partition; missing where no leader answers.
    ends: BTreeMap<i32, Range<Offset>>,
}

impl Describe {
    pub async fn run(self) -> Result<(), Failure> {
        let admin = self.connection.open().await?.admin();
        let mut values = Vec::new();
        for (i, name) in self.topics.iter().enumerate() {
            let described = Described::ask(&admin, name).await?;
            if self.output.format.is_data() {
                values.push(described.json());
                continue;
            }
            if i > 0 {
                print_line("")?;
            }
            described.print(self.output.format.is_wide(), self.all_configs)?;
        }
        if self.output.format.is_data() { print_value(self.output.format, &values.into()) } else { Ok(()) }
    }
}

impl Described {
    async fn ask(admin: &Admin, name: &str) -> Result<Described, Failure> {
        let topic = admin.topic(name).await?;
        let configs = admin.describe_configs(&ConfigResource::Topic(name.to_owned())).await?;
        // Partitions without a leader are shown as such; the others' ends are asked for.
        let mut led = topic.clone();
        led.partitions.retain(|partition| partition.leader.is_some());
        let ends = admin.topic_ends(&led, Isolation::ReadUncommitted).await?;
        let ends = ends.into_iter().map(|(tp, range)| (tp.partition.0, range)).collect();
        Ok(Described { topic, configs, ends })
    }

    fn config(&self, name: &str) -> Option<&str> {
        self.configs.iter().find(|entry| entry.name == name)?.value.as_deref()
    }

    /// What an acknowledgement means; `None` from brokers that do not say.
    fn durability(&self) -> Option<(&str, &'static str)> {
        let level = self.config("durability")?;
        let meaning = match level {
            "flushed" => "acknowledged means on the disks of the in-sync replicas",
            "replicated" => "acknowledged means in the memory of the in-sync replicas",
            _ => "a level that this version does not know",
        };
        Some((level, meaning))
    }

    fn print(&self, is_wide: bool, all_configs: bool) -> Result<(), Failure> {
        let replicas = self.topic.partitions.first().map_or(0, |partition| partition.replicas.len());
        let mut summary = Table::new(&["TOPIC", &self.topic.name]);
        summary.row(vec!["id".into(), self.topic.id.to_string()]);
        summary.row(vec!["partitions".into(), self.topic.partition_count().to_string()]);
        summary.row(vec!["replicas".into(), replicas.to_string()]);
        if let Some(min_isr) = self.config("min.insync.replicas") {
            summary.row(vec!["min in-sync".into(), min_isr.to_owned()]);
        }
        if let Some((level, meaning)) = self.durability() {
            summary.row(vec!["durability".into(), format!("{level}: {meaning}")]);
        }
        summary.print()?;
        print_line("")?;
        self.print_partitions(is_wide)?;
        print_line("")?;
        print_configs(&self.configs, is_wide || all_configs)
    }

    fn print_partitions(&self, is_wide: bool) -> Result<(), Failure> {
        let mut headings = vec!["PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "START", "END", "RECORDS"];
        if is_wide {
            headings.push("OFFLINE");
        }
        let mut table = Table::new(&headings);
        for partition in &self.topic.partitions {
            let ends = self.ends.get(&partition.index);
            let end_text = |offset: Option<Offset>| offset.map_or("-".to_owned(), |offset| offset.to_string());
            let count = ends.map_or("-".to_owned(), |range| range.end.since(range.start).to_string());
            let mut row = vec![
                partition.index.to_string(),
                partition.leader.map_or("none".to_owned(), |node| node.to_string()),
                partition.leader_epoch.to_string(),
                list(&partition.replicas),
                list(&partition.isr),
                end_text(ends.map(|range| range.start)),
                end_text(ends.map(|range| range.end)),
                count,
            ];
            if is_wide {
                row.push(list(&partition.offline));
            }
            table.row(row);
        }
        table.print()
    }

    fn json(&self) -> Value {
        let partition = |partition: &PartitionInfo| {
            let ends = self.ends.get(&partition.index);
            let ids = |nodes: &[thalweg_model::NodeId]| nodes.iter().map(|node| node.0).collect::<Vec<_>>();
            json!({
                "partition": partition.index,
                "leader": partition.leader.map(|node| node.0),
                "leader_epoch": partition.leader_epoch.0,
                "replicas": ids(&partition.replicas),
                "isr": ids(&partition.isr),
                "offline_replicas": ids(&partition.offline),
                "log_start_offset": ends.map(|range| range.start.0),
                "log_end_offset": ends.map(|range| range.end.0),
            })
        };
        json!({
            "topic": self.topic.name,
            "id": self.topic.id.to_string(),
            "internal": self.topic.is_internal,
            "durability": self.durability().map(|(level, _)| level),
            "partitions": self.topic.partitions.iter().map(partition).collect::<Vec<_>>(),
            "configs": self.configs.iter().map(config_value).collect::<Vec<_>>(),
        })
    }
}
