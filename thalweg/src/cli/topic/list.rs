//! `thalweg topic list`.

use clap::Args;
use serde_json::json;
use thalweg_client::TopicInfo;

use crate::cli::connect::Connection;
use crate::cli::failure::Failure;
use crate::cli::output::{Format, Output, Table, print_value};

#[derive(Debug, Args)]
pub struct List {
    /// Only names that contain this
    filter: Option<String>,
    /// Internal topics too
    #[arg(short, long)]
    internal: bool,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
}

impl List {
    pub async fn run(self) -> Result<(), Failure> {
        let topics = self.connection.open().await?.admin().topics().await?;
        let is_wanted = |topic: &&TopicInfo| {
            (self.internal || !topic.is_internal)
                && self.filter.as_ref().is_none_or(|filter| topic.name.contains(filter.as_str()))
        };
        let topics: Vec<&TopicInfo> = topics.values().filter(is_wanted).collect();
        let replicas = |topic: &TopicInfo| topic.partitions.first().map_or(0, |partition| partition.replicas.len());
        let leaderless = |topic: &TopicInfo| topic.partitions.iter().filter(|p| p.leader.is_none()).count();
        let under_replicated =
            |topic: &TopicInfo| topic.partitions.iter().filter(|p| p.isr.len() < p.replicas.len()).count();
        match self.output.format {
            Format::Json | Format::Yaml => {
                let entry = |topic: &&TopicInfo| {
                    json!({
                        "topic": topic.name,
                        "id": topic.id.to_string(),
                        "partitions": topic.partition_count(),
                        "replicas": replicas(topic),
                        "internal": topic.is_internal,
                        "leaderless_partitions": leaderless(topic),
                        "under_replicated_partitions": under_replicated(topic),
                    })
                };
                print_value(self.output.format, &topics.iter().map(entry).collect())
            }
            Format::Table => {
                let mut table = Table::new(&["TOPIC", "PARTITIONS", "REPLICAS"]);
                for topic in topics {
                    let counts = [topic.partition_count().to_string(), replicas(topic).to_string()];
                    table.row([topic.name.clone()].into_iter().chain(counts).collect());
                }
                table.print()
            }
            Format::Wide => {
                let headings = ["TOPIC", "PARTITIONS", "REPLICAS", "INTERNAL", "LEADERLESS", "UNDER-REPLICATED", "ID"];
                let mut table = Table::new(&headings);
                for topic in topics {
                    table.row(vec![
                        topic.name.clone(),
                        topic.partition_count().to_string(),
                        replicas(topic).to_string(),
                        topic.is_internal.to_string(),
                        leaderless(topic).to_string(),
                        under_replicated(topic).to_string(),
                        topic.id.to_string(),
                    ]);
                }
                table.print()
            }
        }
    }
}
