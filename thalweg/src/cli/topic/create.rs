//! `thalweg topic create`.

use clap::Args;
use serde_json::json;
use thalweg_client::{ClientError, NewTopic};
use thalweg_model::ErrorCode;

use super::key_value;
use crate::cli::connect::Connection;
use crate::cli::failure::Failure;
use crate::cli::output::{Format, Output, Table, note, print_value};

#[derive(Debug, Args)]
pub struct Create {
    /// Names: 1 to 249 of a-z, A-Z, 0-9, '.', '_', '-'
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    /// Partitions; left out: the cluster's num.partitions
    #[arg(short, long, value_parser = clap::value_parser!(i32).range(1..))]
    partitions: Option<i32>,
    /// Copies of each partition; left out: the cluster's default
    #[arg(short, long, visible_alias = "replication-factor", value_parser = clap::value_parser!(i16).range(1..))]
    replicas: Option<i16>,
    /// A setting such as retention.ms=3600000; may be repeated
    #[arg(short = 'c', long = "config", visible_alias = "topic-config", value_parser = key_value, value_name = "KEY=VALUE")]
    configs: Vec<(String, String)>,
    /// It is fine if the topic exists
    #[arg(long)]
    if_not_exists: bool,
    /// Only check whether it could be created
    #[arg(short = 'd', long)]
    dry_run: bool,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
}

impl Create {
    pub async fn run(self) -> Result<(), Failure> {
        let admin = self.connection.open().await?.admin();
        let mut table = Table::new(&["TOPIC", "PARTITIONS", "REPLICAS", "ID"]);
        let mut created = Vec::new();
        for name in &self.topics {
            let topic = NewTopic {
                partition_count: self.partitions,
                replication_factor: self.replicas,
                configs: self.configs.iter().cloned().collect(),
                validate_only: self.dry_run,
                ..NewTopic::new(name)
            };
            let topic = match admin.create_topic(&topic).await {
                Err(ClientError::Broker { code: ErrorCode::TopicAlreadyExists, .. }) if self.if_not_exists => {
                    note(&format!("topic {name} exists already"));
                    continue;
                }
                Err(ClientError::Broker { code: ErrorCode::TopicAlreadyExists, .. }) => {
                    return Err(Failure::failed(format!(
                        "topic {name} exists already; see `thalweg topic describe {name}`, or use --if-not-exists"
                    )));
                }
                result => result?,
            };
            let text = |count: Option<String>| count.unwrap_or_else(|| "-".to_owned());
            table.row(vec![
                name.clone(),
                text(topic.partition_count.map(|count| count.to_string())),
                text(topic.replication_factor.map(|factor| factor.to_string())),
                topic.id.to_string(),
            ]);
            created.push(json!({
                "topic": name,
                "partitions": topic.partition_count,
                "replicas": topic.replication_factor,
                "id": topic.id.to_string(),
            }));
        }
        if self.dry_run {
            note("nothing was created: --dry-run");
        }
        match self.output.format {
            Format::Json | Format::Yaml => print_value(self.output.format, &created.into()),
            Format::Table | Format::Wide if created.is_empty() => Ok(()),
            Format::Table | Format::Wide => table.print(),
        }
    }
}
