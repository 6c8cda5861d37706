//! `thalweg group describe`.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use serde_json::{Value, json};
use thalweg_client::admin::{Admin, GroupDescription, GroupMember};
use thalweg_client::consumer::{CommittedOffset, topic_partition};
use thalweg_client::{Client, ClientError};
use thalweg_model::TopicPartition;

use super::lag::{self, Lag};
use crate::cli::connect::Connection;
use crate::cli::failure::Failure;
use crate::cli::output::{Output, Table, grouped, list, print_line, print_value};
use crate::cli::time;

/// TIME-LAG is how long ago the first record was written that the group has not read; "total lag" counts records. Both
/// are 0 where everything is read.
#[derive(Debug, Args)]
pub struct Describe {
    #[arg(required = true, value_name = "GROUP")]
    groups: Vec<String>,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
}

/// Everything that is shown of a group.
struct Described {
    group: GroupDescription,
    committed: BTreeMap<TopicPartition, CommittedOffset>,
    /// Partitions with a stored offset or a reader.
    lags: BTreeMap<TopicPartition, Lag>,
    /// Index into the members.
    readers: BTreeMap<TopicPartition, usize>,
    /// Records per second, as far as the coordinator has seen commits.
    read_rate: Option<f64>,
}

impl Describe {
    pub async fn run(self) -> Result<(), Failure> {
        let client = self.connection.open().await?;
        let mut values = Vec::new();
        for (i, group_id) in self.groups.iter().enumerate() {
            let described = Described::ask(&client, group_id).await?;
            if self.output.format.is_data() {
                values.push(described.json());
                continue;
            }
            if i > 0 {
                print_line("")?;
            }
            described.print(self.output.format.is_wide())?;
        }
        if self.output.format.is_data() { print_value(self.output.format, &values.into()) } else { Ok(()) }
    }
}

impl Described {
    async fn ask(client: &Client, group_id: &str) -> Result<Described, Failure> {
        let admin = client.admin();
        let group = admin.describe_group(group_id).await?;
        let committed = admin.group_offsets(group_id).await?;
        let mut readers = BTreeMap::new();
        for (i, member) in group.members.iter().enumerate() {
            for (topic, partitions) in member.assignment.iter().flatten() {
                for partition in partitions {
                    readers.insert(topic_partition(topic, *partition)?, i);
                }
            }
        }
        let partitions: BTreeSet<TopicPartition> = committed.keys().chain(readers.keys()).cloned().collect();
        let offsets = committed.iter().map(|(tp, committed)| (tp.clone(), committed.offset)).collect();
        let lags = lag::measure(client, &partitions, &offsets).await?;
        let read_rate = read_rate(&admin, group_id).await?;
        Ok(Described { group, committed, lags, readers, read_rate })
    }

    /// Records per second that come in over all partitions, of the last minute.
    fn write_rate(&self) -> f64 {
        let count: i64 = self.lags.values().map(|lag| lag.recent_count).sum();
        count as f64 * 1_000.0 / lag::RATE_WINDOW_MS as f64
    }

    /// `None` if nobody reads, or not fast enough.
    fn drain_ms(&self) -> Option<i64> {
        lag::drain_ms(self.total_lag(), self.read_rate.unwrap_or(0.0), self.write_rate())
    }

    fn drain_text(&self) -> String {
        match (self.drain_ms(), self.read_rate) {
            (Some(0), _) => "now".to_owned(),
            (Some(ms), Some(rate)) => {
                format!("in about {}, at {rate:.0}/s against {:.0}/s coming", time::span(ms), self.write_rate())
            }
            (_, Some(rate)) => format!("never, at {rate:.0}/s against {:.0}/s coming", self.write_rate()),
            (_, None) => "- (no commit was seen lately)".to_owned(),
        }
    }

    fn total_lag(&self) -> i64 {
        self.lags.values().filter_map(|lag| lag.records).sum()
    }

    /// Of the partition that is furthest behind.
    fn time_lag_ms(&self) -> Option<i64> {
        self.lags.values().filter_map(|lag| lag.ms).max()
    }

    fn print(&self, is_wide: bool) -> Result<(), Failure> {
        let group = &self.group;
        let mut summary = Table::new(&["GROUP", &group.group_id]);
        summary.row(vec!["state".into(), group.state.clone()]);
        summary.row(vec!["assignor".into(), list(Some(&group.protocol).filter(|name| !name.is_empty()))]);
        summary.row(vec!["coordinator".into(), format!("broker {}", group.coordinator)]);
        summary.row(vec!["members".into(), group.members.len().to_string()]);
        summary.row(vec!["total lag".into(), format!("{} record(s)", grouped(self.total_lag().unsigned_abs()))]);
        summary.row(vec!["time lag".into(), self.time_lag_ms().map_or("-".to_owned(), time::span)]);
        summary.row(vec!["drained".into(), self.drain_text()]);
        summary.print()?;
        if !self.lags.is_empty() {
            print_line("")?;
            self.print_partitions(is_wide)?;
        }
        if !group.members.is_empty() {
            print_line("")?;
            self.print_members(is_wide)?;
        }
        Ok(())
    }

    fn print_partitions(&self, is_wide: bool) -> Result<(), Failure> {
        let mut headings = vec!["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "TIME-LAG", "CLIENT", "HOST"];
        if is_wide {
            headings.extend(["MEMBER", "METADATA"]);
        }
        let mut table = Table::new(&headings);
        for (tp, lag) in &self.lags {
            let text = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
            let reader = self.readers.get(tp).and_then(|i| self.group.members.get(*i));
            let committed = self.committed.get(tp);
            let mut row = vec![
                tp.topic.to_string(),
                tp.partition.to_string(),
                text(committed.map(|committed| committed.offset.to_string())),
                text(lag.end.map(|end| end.to_string())),
                text(lag.records.map(|records| records.to_string())),
                text(lag.ms.map(time::span)),
                text(reader.map(|member| member.client_id.clone())),
                text(reader.map(|member| member.client_host.clone())),
            ];
            if is_wide {
                row.push(text(reader.map(|member| member.member_id.clone())));
                row.push(text(committed.map(|c| c.metadata.clone()).filter(|metadata| !metadata.is_empty())));
            }
            table.row(row);
        }
        table.print()
    }

    fn print_members(&self, is_wide: bool) -> Result<(), Failure> {
        let mut headings = vec!["MEMBER", "CLIENT", "HOST", "PARTITIONS"];
        if is_wide {
            headings.extend(["INSTANCE", "ASSIGNMENT", "SUBSCRIPTION"]);
        }
        let mut table = Table::new(&headings);
        for member in &self.group.members {
            let count: usize = member.assignment.iter().flatten().map(|(_, partitions)| partitions.len()).sum();
            let mut row =
                vec![member.member_id.clone(), member.client_id.clone(), member.client_host.clone(), count.to_string()];
            if is_wide {
                let assigned = member.assignment.iter().flatten();
                let assigned = assigned.map(|(topic, partitions)| format!("{topic}:{}", list(partitions)));
                row.push(list(&member.group_instance_id));
                row.push(assigned.collect::<Vec<_>>().join(" "));
                row.push(list(member.subscription.iter().flatten()));
            }
            table.row(row);
        }
        table.print()
    }

    fn json(&self) -> Value {
        let partition = |(tp, lag): (&TopicPartition, &Lag)| {
            let committed = self.committed.get(tp);
            json!({
                "topic": tp.topic.as_str(),
                "partition": tp.partition.0,
                "committed_offset": committed.map(|committed| committed.offset.0),
                "metadata": committed.map(|committed| committed.metadata.as_str()),
                "log_end_offset": lag.end.map(|end| end.0),
                "lag": lag.records,
                "time_lag_ms": lag.ms,
                "member": self.readers.get(tp).and_then(|i| self.group.members.get(*i)).map(|m| m.member_id.as_str()),
            })
        };
        let member = |member: &GroupMember| {
            json!({
                "member": member.member_id,
                "instance": member.group_instance_id,
                "client": member.client_id,
                "host": member.client_host,
                "subscription": member.subscription,
                "assignment": member.assignment,
            })
        };
        json!({
            "group": self.group.group_id,
            "state": self.group.state,
            "protocol_type": self.group.protocol_type,
            "assignor": self.group.protocol,
            "coordinator": self.group.coordinator.0,
            "total_lag": self.total_lag(),
            "time_lag_ms": self.time_lag_ms(),
            "read_rate": self.read_rate,
            "write_rate": self.write_rate(),
            "drained_in_ms": self.drain_ms(),
            "partitions": self.lags.iter().map(partition).collect::<Vec<_>>(),
            "members": self.group.members.iter().map(member).collect::<Vec<_>>(),
        })
    }
}

/// Records per second that the group commits; `None` if it has not lately, or the cluster does not tell.
async fn read_rate(admin: &Admin, group_id: &str) -> Result<Option<f64>, Failure> {
    let report = match admin.explain_group(group_id).await {
        Err(ClientError::UnsupportedApi { .. }) => return Ok(None),
        report => report?,
    };
    let seen = report.progress.iter().filter(|one| one.over_ms > 0 && one.age_ms <= lag::RATE_WINDOW_MS);
    let rates: Vec<f64> = seen.map(|one| one.records as f64 * 1_000.0 / one.over_ms as f64).collect();
    Ok((!rates.is_empty()).then(|| rates.iter().sum()))
}
