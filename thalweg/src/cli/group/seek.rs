//! `thalweg group seek`: moves a group's stored offsets, also under living members.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use serde_json::json;
use thalweg_client::admin::{Admin, GroupDescription};
use thalweg_client::consumer::CommittedOffset;
use thalweg_client::{Client, ClientError, Isolation};
use thalweg_model::{ErrorCode, Offset, TopicPartition};

use crate::cli::connect::Connection;
use crate::cli::failure::Failure;
use crate::cli::output::{Output, Table, note, print_value};
use crate::cli::place::{Logs, Place};
use crate::cli::select::{Selection, existing};

/// Without --topic it moves every partition that the group has a stored offset of. Places outside the log become its
/// nearest end.
#[derive(Debug, Args)]
pub struct Seek {
    group: String,
    /// earliest, latest, an offset such as 123, +10 or -10 from where it is, a time such as 2026-01-31T12:00 (UTC) or
    /// @1767225600000 (ms), or that long ago: 90s, 15m, 6h, 2d
    #[arg(long, value_name = "PLACE", allow_hyphen_values = true)]
    to: Place,
    /// A topic, or topic:partition,partition; may be repeated
    #[arg(long = "topic", short = 't', value_name = "TOPIC")]
    topics: Vec<Selection>,
    /// Show what would change, and change nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Do it while members run: fence them, move the offsets, let them join again
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
}

/// One partition's move.
#[derive(Debug, PartialEq, Eq)]
struct Move {
    from: Option<Offset>,
    to: Offset,
}

impl Seek {
    pub async fn run(self) -> Result<(), Failure> {
        let client = self.connection.open().await?;
        let admin = client.admin();
        let group = match admin.describe_group(&self.group).await {
            Err(ClientError::Broker { code: ErrorCode::GroupIdNotFound, .. }) if !self.topics.is_empty() => {
                note(&format!("group {} is new", self.group));
                None
            }
            result => Some(result?),
        };
        let member_count = group.as_ref().map_or(0, |group| group.members.len());
        if let Some(group) = group.as_ref().filter(|_| member_count > 0 && !self.live && !self.dry_run) {
            return Err(refuse(group));
        }
        let committed = admin.group_offsets(&self.group).await?;
        let moves = self.plan(&client, &admin, &committed).await?;
        if !self.dry_run {
            let offsets = moves.iter().map(|(tp, step)| (tp.clone(), step.to)).collect();
            if member_count > 0 {
                let fenced = admin.commit_group_offsets_live(&self.group, &offsets).await?;
                note(&format!("fenced {fenced} member(s); they join again and go on from the new offsets"));
            } else {
                admin.commit_group_offsets(&self.group, &offsets).await?;
            }
        }
        self.show(&moves)?;
        if self.dry_run {
            note("nothing was changed: --dry-run");
        }
        Ok(())
    }

    async fn plan(
        &self,
        client: &Client,
        admin: &Admin,
        committed: &BTreeMap<TopicPartition, CommittedOffset>,
    ) -> Result<BTreeMap<TopicPartition, Move>, Failure> {
        let partitions: BTreeSet<TopicPartition> = match self.topics.as_slice() {
            [] => committed.keys().cloned().collect(),
            topics => existing(admin, topics).await?,
        };
        if partitions.is_empty() {
            let message = format!("group {} has no stored offsets; name what to set with --topic", self.group);
            return Err(Failure::not_found(message));
        }
        let logs = Logs::ask(client, &partitions, self.to, Isolation::ReadUncommitted).await?;
        let mut moves = BTreeMap::new();
        for tp in partitions {
            let from = committed.get(&tp).map(|committed| committed.offset);
            let to = logs
                .resolve(&tp, from)
                .ok_or_else(|| Failure::failed(format!("{tp} has no stored offset to count from; use --to OFFSET")))?;
            moves.insert(tp, Move { from, to });
        }
        Ok(moves)
    }

    fn show(&self, moves: &BTreeMap<TopicPartition, Move>) -> Result<(), Failure> {
        if self.output.format.is_data() {
            let entry = |(tp, step): (&TopicPartition, &Move)| {
                json!({
                    "topic": tp.topic.as_str(),
                    "partition": tp.partition.0,
                    "from": step.from.map(|from| from.0),
                    "to": step.to.0,
                    "delta": step.from.map(|from| step.to.since(from)),
                })
            };
            return print_value(self.output.format, &moves.iter().map(entry).collect());
        }
        let mut table = Table::new(&["TOPIC", "PARTITION", "FROM", "TO", "DELTA"]);
        for (tp, step) in moves {
            table.row(vec![
                tp.topic.to_string(),
                tp.partition.to_string(),
                step.from.map_or("-".to_owned(), |from| from.to_string()),
                step.to.to_string(),
                step.from.map_or("-".to_owned(), |from| format!("{:+}", step.to.since(from))),
            ]);
        }
        table.print()
    }
}

fn refuse(group: &GroupDescription) -> Failure {
    let clients: BTreeSet<&str> = group.members.iter().map(|member| member.client_id.as_str()).collect();
    let clients: Vec<&str> = clients.into_iter().take(5).collect();
    Failure::failed(format!(
        "group {} has {} member(s) ({}) that would go on from where they are; stop them, or use --live",
        group.group_id,
        group.members.len(),
        clients.join(", ")
    ))
}
