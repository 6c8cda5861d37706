//! `thalweg group`: consumer groups.

use std::collections::{BTreeMap, BTreeSet};

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use thalweg_client::admin::{Admin, GroupDescription, GroupListing, GroupMember};
use thalweg_client::consumer::{CommittedOffset, topic_partition};
use thalweg_client::{Client, ClientError, Isolation, OffsetSpec};
use thalweg_model::{ErrorCode, Offset, TopicPartition};

use super::connect::Connection;
use super::failure::Failure;
use super::output::{Format, Output, Table, list, print_json, print_line};

#[derive(Debug, Subcommand)]
pub enum GroupCommand {
    /// List groups
    List(List),
    /// Show a group's members, stored offsets and lag
    Describe(Describe),
}

#[derive(Debug, Args)]
pub struct List {
    /// Only ids that contain this
    filter: Option<String>,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Args)]
pub struct Describe {
    #[arg(required = true, value_name = "GROUP")]
    groups: Vec<String>,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
}

pub async fn run(command: GroupCommand) -> Result<(), Failure> {
    match command {
        GroupCommand::List(verb) => verb.run().await,
        GroupCommand::Describe(verb) => verb.run().await,
    }
}

impl List {
    async fn run(self) -> Result<(), Failure> {
        let mut groups = self.connection.open().await?.admin().groups().await?;
        if let Some(filter) = &self.filter {
            groups.retain(|group| group.group_id.contains(filter.as_str()));
        }
        match self.output.format {
            Format::Json => {
                let entry = |group: &GroupListing| {
                    json!({
                        "group": group.group_id,
                        "state": group.state,
                        "type": group.kind,
                        "protocol_type": group.protocol_type,
                        "coordinator": group.coordinator.0,
                    })
                };
                print_json(&groups.iter().map(entry).collect())
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

/// Everything that is shown of a group.
struct Described {
    group: GroupDescription,
    committed: BTreeMap<TopicPartition, CommittedOffset>,
    /// Partitions with a stored offset or a reader.
    ends: BTreeMap<TopicPartition, Offset>,
    /// Index into the members.
    readers: BTreeMap<TopicPartition, usize>,
}

impl Describe {
    async fn run(self) -> Result<(), Failure> {
        let client = self.connection.open().await?;
        let mut values = Vec::new();
        for (i, group_id) in self.groups.iter().enumerate() {
            let described = Described::ask(&client, group_id).await?;
            if self.output.format == Format::Json {
                values.push(described.json());
                continue;
            }
            if i > 0 {
                print_line("")?;
            }
            described.print(self.output.format == Format::Wide)?;
        }
        if self.output.format == Format::Json { print_json(&values.into()) } else { Ok(()) }
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
        let ends = log_ends(client, &admin, partitions).await?;
        Ok(Described { group, committed, ends, readers })
    }

    fn partitions(&self) -> BTreeSet<&TopicPartition> {
        self.committed.keys().chain(self.readers.keys()).collect()
    }

    /// Records that are not read yet; without a stored offset nobody knows.
    fn lag(&self, tp: &TopicPartition) -> Option<i64> {
        let committed = self.committed.get(tp)?.offset;
        Some(self.ends.get(tp)?.since(committed).max(0))
    }

    fn total_lag(&self) -> i64 {
        self.partitions().into_iter().filter_map(|tp| self.lag(tp)).sum()
    }

    fn print(&self, is_wide: bool) -> Result<(), Failure> {
        let group = &self.group;
        let mut summary = Table::new(&["GROUP", &group.group_id]);
        summary.row(vec!["state".into(), group.state.clone()]);
        summary.row(vec!["assignor".into(), list(Some(&group.protocol).filter(|name| !name.is_empty()))]);
        summary.row(vec!["coordinator".into(), format!("broker {}", group.coordinator)]);
        summary.row(vec!["members".into(), group.members.len().to_string()]);
        summary.row(vec!["total lag".into(), self.total_lag().to_string()]);
        summary.print()?;
        let partitions = self.partitions();
        if !partitions.is_empty() {
            print_line("")?;
            self.print_partitions(partitions, is_wide)?;
        }
        if !group.members.is_empty() {
            print_line("")?;
            self.print_members(is_wide)?;
        }
        Ok(())
    }

    fn print_partitions(&self, partitions: BTreeSet<&TopicPartition>, is_wide: bool) -> Result<(), Failure> {
        let mut headings = vec!["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "CLIENT", "HOST"];
        if is_wide {
            headings.extend(["MEMBER", "METADATA"]);
        }
        let mut table = Table::new(&headings);
        for tp in partitions {
            let text = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
            let reader = self.readers.get(tp).and_then(|i| self.group.members.get(*i));
            let committed = self.committed.get(tp);
            let mut row = vec![
                tp.topic.to_string(),
                tp.partition.to_string(),
                text(committed.map(|committed| committed.offset.to_string())),
                text(self.ends.get(tp).map(|end| end.to_string())),
                text(self.lag(tp).map(|lag| lag.to_string())),
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
        let partition = |tp: &TopicPartition| {
            let committed = self.committed.get(tp);
            json!({
                "topic": tp.topic.as_str(),
                "partition": tp.partition.0,
                "committed_offset": committed.map(|committed| committed.offset.0),
                "metadata": committed.map(|committed| committed.metadata.as_str()),
                "log_end_offset": self.ends.get(tp).map(|end| end.0),
                "lag": self.lag(tp),
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
            "partitions": self.partitions().into_iter().map(partition).collect::<Vec<_>>(),
            "members": self.group.members.iter().map(member).collect::<Vec<_>>(),
        })
    }
}

/// The ends of these partitions; those of topics that are gone are left out.
async fn log_ends(
    client: &Client,
    admin: &Admin,
    partitions: BTreeSet<TopicPartition>,
) -> Result<BTreeMap<TopicPartition, Offset>, Failure> {
    let mut wanted = BTreeMap::new();
    let mut counts: BTreeMap<String, i32> = BTreeMap::new();
    for tp in partitions {
        let topic = tp.topic.as_str();
        if !counts.contains_key(topic) {
            let count = match admin.topic(topic).await {
                Ok(info) => info.partition_count(),
                Err(ClientError::UnknownTopic { .. }) => 0,
                Err(ClientError::Broker { code: ErrorCode::TopicAuthorizationFailed, .. }) => 0,
                Err(error) => return Err(error.into()),
            };
            counts.insert(topic.to_owned(), count);
        }
        if counts.get(topic).is_some_and(|count| tp.partition.0 < *count) {
            wanted.insert(tp, OffsetSpec::Latest);
        }
    }
    let listed = client.list_offsets(&wanted, Isolation::ReadUncommitted).await?;
    Ok(listed.into_iter().map(|(tp, listed)| (tp, listed.offset)).collect())
}
