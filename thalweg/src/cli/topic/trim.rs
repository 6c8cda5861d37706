//! `thalweg topic trim`.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::json;
use thalweg_client::Isolation;
use thalweg_model::{Offset, TopicPartition};

use crate::cli::connect::Connection;
use crate::cli::failure::Failure;
use crate::cli::output::{Output, Table, note, print_value};
use crate::cli::place::{Logs, Place};
use crate::cli::select::{Selection, existing};

/// Deletes every record before a place, for good. The space comes back when whole segments lie before it.
#[derive(Debug, Args)]
pub struct Trim {
    /// Topics, or topic:partition,partition
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<Selection>,
    /// The first record to keep: latest (none), an offset such as 123, +10 (all but the first ten), a time such as
    /// 2026-01-31T12:00 (UTC) or @1767225600000 (ms), or that long ago: 90s, 15m, 6h, 2d
    #[arg(long, visible_alias = "before", value_name = "PLACE", allow_hyphen_values = true)]
    to: Place,
    /// Show what would go, and delete nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
}

impl Trim {
    pub async fn run(self) -> Result<(), Failure> {
        let client = self.connection.open().await?;
        let admin = client.admin();
        let partitions = existing(&admin, &self.topics).await?;
        let logs = Logs::ask(&client, &partitions, self.to, Isolation::ReadUncommitted).await?;
        let mut cuts = BTreeMap::new();
        for tp in partitions {
            let start = logs.start(&tp);
            if let (Some(start), Some(to)) = (start, logs.resolve(&tp, start)) {
                cuts.insert(tp, (start, to));
            }
        }
        if !self.dry_run {
            let before = cuts.iter().filter(|(_, (start, to))| to > start).map(|(tp, (_, to))| (tp.clone(), *to));
            admin.delete_records(&before.collect()).await?;
        }
        self.show(&cuts)?;
        if self.dry_run {
            note("nothing was deleted: --dry-run");
        }
        Ok(())
    }

    fn show(&self, cuts: &BTreeMap<TopicPartition, (Offset, Offset)>) -> Result<(), Failure> {
        if self.output.format.is_data() {
            let entry = |(tp, (start, to)): (&TopicPartition, &(Offset, Offset))| {
                json!({
                    "topic": tp.topic.as_str(),
                    "partition": tp.partition.0,
                    "from": start.0,
                    "to": to.0,
                    "deleted": to.since(*start),
                })
            };
            return print_value(self.output.format, &cuts.iter().map(entry).collect());
        }
        let mut table = Table::new(&["TOPIC", "PARTITION", "START", "NEW-START", "DELETED"]);
        for (tp, (start, to)) in cuts {
            let numbers = [tp.partition.to_string(), start.to_string(), to.to_string(), to.since(*start).to_string()];
            table.row([tp.topic.to_string()].into_iter().chain(numbers).collect());
        }
        table.print()
    }
}
