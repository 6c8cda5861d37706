//! `thalweg group explain`.

use clap::Args;
use serde_json::json;
use thalweg_client::admin::report::{CauseReport, GroupReport, MemberReport, RebalanceReport};

use crate::cli::connect::Connection;
use crate::cli::failure::Failure;
use crate::cli::output::{Output, Table, list, note, print_line, print_value};
use crate::cli::time;

/// The coordinator keeps the last 20 rebalances of a group in memory; another coordinator that takes over begins anew.
#[derive(Debug, Args)]
pub struct Explain {
    group: String,
    /// So many rebalances, newest first
    #[arg(short = 'n', long, default_value_t = 5, value_name = "N")]
    count: usize,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
}

impl Explain {
    pub async fn run(self) -> Result<(), Failure> {
        let mut report = self.connection.open().await?.admin().explain_group(&self.group).await?;
        report.rebalances.truncate(self.count);
        if self.output.format.is_data() {
            return print_value(self.output.format, &json!(report));
        }
        if report.rebalances.is_empty() {
            let since = time::span(report.journal_age_ms);
            note(&format!("group {} had no rebalance since the coordinator took over, {since} ago", self.group));
        }
        print(&report, self.output.format.is_wide())
    }
}

fn print(report: &GroupReport, is_wide: bool) -> Result<(), Failure> {
    for (i, rebalance) in report.rebalances.iter().enumerate() {
        if i > 0 {
            print_line("")?;
        }
        summary(rebalance).print()?;
        for (j, cause) in rebalance.causes.iter().enumerate() {
            print_line(&format!("{}{}", if j == 0 { "because     " } else { "            " }, caused(cause)))?;
        }
        if rebalance.causes_left_out > 0 {
            print_line(&format!("            and {} more", rebalance.causes_left_out))?;
        }
        if is_wide {
            print_line("")?;
            print_details(rebalance)?;
        }
    }
    Ok(())
}

fn summary(rebalance: &RebalanceReport) -> Table {
    let span = |ms: Option<i64>| ms.map_or("not over".to_owned(), time::span);
    let generation = match rebalance.generation_id {
        ..0 => "under way".to_owned(),
        generation => format!("generation {generation}"),
    };
    let mut table = Table::new(&["REBALANCE", &generation]);
    table.row(vec!["began".into(), format!("{} ago", time::span(rebalance.age_ms))]);
    let total = rebalance.barrier_ms.zip(rebalance.assignment_ms).map(|(barrier, assignment)| barrier + assignment);
    let parts = format!("joining {}, assigning {}", span(rebalance.barrier_ms), span(rebalance.assignment_ms));
    table.row(vec!["took".into(), format!("{} ({parts})", span(total))]);
    if rebalance.restart_count > 0 {
        table.row(vec!["began anew".into(), format!("{} time(s)", rebalance.restart_count)]);
    }
    table.row(vec!["assignor".into(), list(Some(&rebalance.protocol).filter(|name| !name.is_empty()))]);
    table.row(vec!["members".into(), rebalance.members.len().to_string()]);
    table.row(vec!["moved".into(), format!("{} partition(s)", rebalance.moved_count)]);
    table
}

/// `session expired: worker-3 from 10.0.0.7 (member-id), 12.0 s ago`.
fn caused(cause: &CauseReport) -> String {
    let reason =
        if cause.reason.is_empty() { String::new() } else { format!(", saying \"{}\"", printable(&cause.reason)) };
    format!("{}: {}{reason}, {} ago", cause.kind, named(&cause.member), time::span(cause.age_ms))
}

fn named(member: &MemberReport) -> String {
    let instance = member.instance_id.as_ref().map(|id| format!(" as {id}")).unwrap_or_default();
    let host = member.client_host.trim_start_matches('/');
    printable(&format!("{}{instance} from {host} ({})", member.client_id, member.member_id))
}

/// What a client chose must not steer a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn print_details(rebalance: &RebalanceReport) -> Result<(), Failure> {
    let mut members = Table::new(&["MEMBER", "CLIENT", "HOST", "INSTANCE", "PARTITIONS"]);
    for member in &rebalance.members {
        members.row(vec![
            printable(&member.member_id),
            printable(&member.client_id),
            member.client_host.clone(),
            list(&member.instance_id),
            member.partition_count.to_string(),
        ]);
    }
    members.print()?;
    print_line("")?;
    let mut moved = Table::new(&["TOPIC", "PARTITION", "FROM", "TO"]);
    let owner = |id: &str| if id.is_empty() { "nobody".to_owned() } else { printable(id) };
    for step in &rebalance.moved {
        moved.row(vec![step.topic.clone(), step.partition.to_string(), owner(&step.from), owner(&step.to)]);
    }
    moved.print()
}
