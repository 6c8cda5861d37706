//! `thalweg group list`.

use clap::Args;
use serde_json::json;
use thalweg_client::admin::GroupListing;

use crate::cli::connect::Connection;
use crate::cli::failure::Failure;
use crate::cli::output::{Format, Output, Table, print_value};

#[derive(Debug, Args)]
pub struct List {
    /// Only ids that contain this
    filter: Option<String>,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
}

impl List {
    pub async fn run(self) -> Result<(), Failure> {
        let mut groups = self.connection.open().await?.admin().groups().await?;
        if let Some(filter) = &self.filter {
            groups.retain(|group| group.group_id.contains(filter.as_str()));
        }
        match self.output.format {
            Format::Json | Format::Yaml => {
                let entry = |group: &GroupListing| {
                    json!({
                        "group": group.group_id,
                        "state": group.state,
                        "type": group.kind,
                        "protocol_type": group.protocol_type,
                        "coordinator": group.coordinator.0,
                    })
                };
                print_value(self.output.format, &groups.iter().map(entry).collect())
            }
            Format::Table => {
                let mut table = Table::new(&["GROUP", "STATE"]);
                for group in groups {
                    table.row(vec![group.group_id, group.state]);
                }
                table.print()
            }
            Format::Wide => {
                let mut table = Table::new(&["GROUP", "STATE", "TYPE", "PROTOCOL-TYPE", "COORDINATOR"]);
                for group in groups {
                    let coordinator = group.coordinator.to_string();
                    table.row(vec![group.group_id, group.state, group.kind, group.protocol_type, coordinator]);
                }
                table.print()
            }
        }
    }
}
