//! `thalweg broker`: one by one.

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use thalweg_client::admin::{Admin, ConfigEntry, ConfigResource, LogDir};
use thalweg_client::{BrokerInfo, Metadata, PartitionInfo};
use thalweg_model::NodeId;

use super::cluster::known_broker;
use super::configs::{config_value, print_configs};
use super::connect::Connection;
use super::drain;
use super::failure::Failure;
use super::output::{Output, Table, bytes, print_line, print_value};
use super::safe_to_restart::SafeToRestart;
use super::traffic::Traffic;

#[derive(Debug, Subcommand)]
pub enum BrokerCommand {
    /// List brokers with what they hold
    List(List),
    /// Show a broker's partitions, disks and configuration
    Describe(Describe),
    /// Move everything away from a broker, and give it nothing any more
    Drain(drain::Drain),
    /// Stop draining
    Undrain(drain::OneBroker),
    /// Give a broker no new replicas; it keeps those that it has
    Cordon(drain::OneBroker),
    /// Give it replicas again
    Uncordon(drain::OneBroker),
    /// Forget a broker that is empty and gone for good
    Remove(drain::OneBroker),
    /// Say whether a broker can be restarted without anybody noticing; exit code 0 if so
    SafeToRestart(SafeToRestart),
}

#[derive(Debug, Args)]
pub struct List {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Args)]
pub struct Describe {
    #[arg(required = true, value_name = "BROKER")]
    ids: Vec<i32>,
    /// Show every setting, not only those that differ from the default (as --format wide does)
    #[arg(short = 'a', long)]
    all_configs: bool,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
}

/// What is shown of a broker.
struct Described {
    broker: BrokerInfo,
    is_controller: bool,
    leader_count: usize,
    replica_count: usize,
    out_of_sync_count: usize,
    dirs: Vec<LogDir>,
}

pub async fn run(command: BrokerCommand) -> Result<(), Failure> {
    match command {
        BrokerCommand::List(verb) => verb.run().await,
        BrokerCommand::Describe(verb) => verb.run().await,
        BrokerCommand::Drain(verb) => verb.run().await,
        BrokerCommand::Undrain(verb) => verb.undrain().await,
        BrokerCommand::Cordon(verb) => verb.cordon(true).await,
        BrokerCommand::Uncordon(verb) => verb.cordon(false).await,
        BrokerCommand::Remove(verb) => verb.remove().await,
        BrokerCommand::SafeToRestart(verb) => verb.run().await,
    }
}

impl List {
    async fn run(self) -> Result<(), Failure> {
        let admin = self.connection.open().await?.admin();
        let cluster = admin.cluster().await?;
        let mut brokers = Vec::new();
        for broker in cluster.brokers.values() {
            brokers.push(Described::ask(&admin, &cluster, broker).await?);
        }
        if self.output.format.is_data() {
            return print_value(self.output.format, &brokers.iter().map(Described::value).collect());
        }
        let mut headings = vec!["BROKER", "ADDRESS", "RACK", "LEADERS", "REPLICAS", "SIZE"];
        if self.output.format.is_wide() {
            headings.extend(["OUT-OF-SYNC", "FREE", "IN", "OUT"]);
        }
        headings.push("");
        let mut table = Table::new(&headings);
        for found in &brokers {
            let mut row = vec![
                found.broker.node.to_string(),
                found.broker.address(),
                found.broker.rack.clone().unwrap_or_else(|| "-".to_owned()),
                found.leader_count.to_string(),
                found.replica_count.to_string(),
                bytes(found.dirs.iter().map(LogDir::size_bytes).sum()),
            ];
            if self.output.format.is_wide() {
                let free: Option<u64> = found.dirs.iter().map(|dir| dir.usable_bytes).sum();
                row.extend([found.out_of_sync_count.to_string(), free.map_or("-".to_owned(), bytes)]);
                row.extend(Traffic::ask(&admin, std::iter::once(found.broker.node)).await?.sum().cells());
            }
            row.push(if found.is_controller { "controller" } else { "" }.to_owned());
            table.row(row);
        }
        table.print()
    }
}

impl Describe {
    async fn run(self) -> Result<(), Failure> {
        let client = self.connection.open().await?;
        let admin = client.admin();
        let cluster = admin.cluster().await?;
        let mut values = Vec::new();
        for (i, id) in self.ids.iter().enumerate() {
            let node = known_broker(&client, NodeId(*id))?;
            let Some(broker) = cluster.brokers.get(&node) else { continue };
            let found = Described::ask(&admin, &cluster, broker).await?;
            let configs = admin.describe_configs(&ConfigResource::Broker(node)).await?;
            if self.output.format.is_data() {
                let mut value = found.value();
                value["configs"] = configs.iter().map(config_value).collect();
                values.push(value);
                continue;
            }
            if i > 0 {
                print_line("")?;
            }
            found.print(&configs, self.all_configs || self.output.format.is_wide())?;
        }
        if self.output.format.is_data() { print_value(self.output.format, &values.into()) } else { Ok(()) }
    }
}

impl Described {
    async fn ask(admin: &Admin, cluster: &Metadata, broker: &BrokerInfo) -> Result<Described, Failure> {
        let node = broker.node;
        let count = |holds: &dyn Fn(&PartitionInfo) -> bool| {
            cluster.topics.values().flat_map(|topic| &topic.partitions).filter(|partition| holds(partition)).count()
        };
        Ok(Described {
            is_controller: cluster.controller == Some(node),
            leader_count: count(&|partition| partition.leader == Some(node)),
            replica_count: count(&|partition| partition.replicas.contains(&node)),
            out_of_sync_count: count(&|partition| partition.replicas.contains(&node) && !partition.isr.contains(&node)),
            dirs: admin.log_dirs(node).await?,
            broker: broker.clone(),
        })
    }

    fn print(&self, configs: &[ConfigEntry], all_configs: bool) -> Result<(), Failure> {
        let mut summary = Table::new(&["BROKER", &self.broker.node.to_string()]);
        summary.row(vec!["address".into(), self.broker.address()]);
        summary.row(vec!["rack".into(), self.broker.rack.clone().unwrap_or_else(|| "-".to_owned())]);
        summary.row(vec!["controller".into(), if self.is_controller { "yes" } else { "no" }.into()]);
        summary.row(vec!["leads".into(), format!("{} partition(s)", self.leader_count)]);
        summary.row(vec!["replicas".into(), self.replica_count.to_string()]);
        summary.row(vec!["out of sync".into(), self.out_of_sync_count.to_string()]);
        summary.print()?;
        print_line("")?;
        let mut table = Table::new(&["LOG-DIR", "PARTITIONS", "SIZE", "FREE", "OF", "STATE"]);
        for dir in &self.dirs {
            table.row(vec![
                dir.path.clone(),
                dir.partitions.len().to_string(),
                bytes(dir.size_bytes()),
                dir.usable_bytes.map_or("-".to_owned(), bytes),
                dir.total_bytes.map_or("-".to_owned(), bytes),
                dir.error.as_ref().map_or("online".to_owned(), ToString::to_string),
            ]);
        }
        table.print()?;
        print_line("")?;
        print_configs(configs, all_configs)
    }

    fn value(&self) -> Value {
        let dir = |dir: &LogDir| {
            json!({
                "path": dir.path,
                "error": dir.error.as_ref().map(ToString::to_string),
                "partitions": dir.partitions.len(),
                "size_bytes": dir.size_bytes(),
                "usable_bytes": dir.usable_bytes,
                "total_bytes": dir.total_bytes,
            })
        };
        json!({
            "broker": self.broker.node.0,
            "host": self.broker.host,
            "port": self.broker.port,
            "rack": self.broker.rack,
            "controller": self.is_controller,
            "leaders": self.leader_count,
            "replicas": self.replica_count,
            "out_of_sync": self.out_of_sync_count,
            "log_dirs": self.dirs.iter().map(dir).collect::<Vec<_>>(),
        })
    }
}
