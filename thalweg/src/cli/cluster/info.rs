//! `thalweg cluster info`.

use clap::Args;
use serde_json::json;
use thalweg_client::BrokerInfo;

use crate::cli::connect::Connection;
use crate::cli::failure::Failure;
use crate::cli::output::{Output, Table, print_line, print_value};

#[derive(Debug, Args)]
pub struct Info {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
}

impl Info {
    pub async fn run(self) -> Result<(), Failure> {
        let admin = self.connection.open().await?.admin();
        let cluster = admin.cluster().await?;
        let group_count = admin.groups().await?.len();
        let topic_count = cluster.topics.values().filter(|topic| !topic.is_internal).count();
        let partition_count: i32 = cluster.topics.values().map(|topic| topic.partition_count()).sum();
        let cluster_id = cluster.cluster_id.clone().unwrap_or_else(|| "-".to_owned());
        let rack = |broker: &BrokerInfo| broker.rack.clone().unwrap_or_else(|| "-".to_owned());
        if self.output.format.is_data() {
            let broker = |broker: &BrokerInfo| json!({"broker": broker.node.0, "host": broker.host, "port": broker.port, "rack": broker.rack});
            return print_value(
                self.output.format,
                &json!({
                    "cluster_id": cluster.cluster_id,
                    "controller": cluster.controller.map(|node| node.0),
                    "brokers": cluster.brokers.values().map(broker).collect::<Vec<_>>(),
                    "topics": topic_count,
                    "partitions": partition_count,
                    "groups": group_count,
                }),
            );
        }
        let mut summary = Table::new(&["CLUSTER", &cluster_id]);
        summary.row(vec!["topics".into(), topic_count.to_string()]);
        summary.row(vec!["partitions".into(), partition_count.to_string()]);
        summary.row(vec!["groups".into(), group_count.to_string()]);
        summary.print()?;
        print_line("")?;
        let mut table = Table::new(&["BROKER", "ADDRESS", "RACK", ""]);
        for broker in cluster.brokers.values() {
            let mark = if cluster.controller == Some(broker.node) { "controller" } else { "" };
            table.row(vec![broker.node.to_string(), broker.address(), rack(broker), mark.to_owned()]);
        }
        table.print()
    }
}
