//! `thalweg cluster config`: the defaults of all brokers, or of one.

use clap::{Args, Subcommand};
use thalweg_client::Client;
use thalweg_client::admin::{ConfigChange, ConfigEntry, ConfigResource};
use thalweg_model::NodeId;

use crate::cli::configs::{Changes, config_value, print_configs};
use crate::cli::connect::Connection;
use crate::cli::failure::Failure;
use crate::cli::output::{Output, note, print_line, print_value};

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// List settings as they hold on a broker
    List(List),
    /// Print one setting's value
    Get(Get),
    /// Change settings of all brokers, or of one
    Set(Set),
}

#[derive(Debug, Args)]
pub struct List {
    /// As this broker has them; left out: the controller
    #[arg(long, value_name = "ID")]
    broker: Option<i32>,
    /// Defaults too
    #[arg(short = 'a', long)]
    all: bool,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Args)]
pub struct Get {
    key: String,
    /// As this broker has it; left out: the controller
    #[arg(long, value_name = "ID")]
    broker: Option<i32>,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, Args)]
pub struct Set {
    /// A key and its new value, such as coordinators 3
    #[arg(num_args = 2, value_names = ["KEY", "VALUE"], group = "Changes")]
    pair: Vec<String>,
    #[command(flatten)]
    changes: Changes,
    /// Only this broker; left out: all of them
    #[arg(long, value_name = "ID")]
    broker: Option<i32>,
    /// Only check whether it could be changed
    #[arg(short = 'd', long)]
    dry_run: bool,
    #[command(flatten)]
    connection: Connection,
}

pub async fn run(command: ConfigCommand) -> Result<(), Failure> {
    match command {
        ConfigCommand::List(verb) => verb.run().await,
        ConfigCommand::Get(verb) => verb.run().await,
        ConfigCommand::Set(verb) => verb.run().await,
    }
}

impl List {
    async fn run(self) -> Result<(), Failure> {
        let configs = configs(&self.connection.open().await?, self.broker).await?;
        if self.output.format.is_data() {
            return print_value(self.output.format, &configs.iter().map(config_value).collect());
        }
        print_configs(&configs, self.all || self.output.format.is_wide())
    }
}

impl Get {
    async fn run(self) -> Result<(), Failure> {
        let configs = configs(&self.connection.open().await?, self.broker).await?;
        let found = configs.iter().find(|entry| entry.name == self.key).ok_or_else(|| {
            Failure::not_found(format!("there is no setting {}; see `thalweg cluster config list -a`", self.key))
        })?;
        print_line(found.value.as_deref().unwrap_or_default())
    }
}

impl Set {
    async fn run(self) -> Result<(), Failure> {
        let client = self.connection.open().await?;
        let resource = match self.broker {
            Some(id) => ConfigResource::Broker(known(&client, NodeId(id))?),
            None => ConfigResource::AllBrokers,
        };
        let mut changes = self.changes.list();
        if let [key, value] = &self.pair[..] {
            changes.push(ConfigChange::Set(key.clone(), value.clone()));
        }
        client.admin().alter_configs(&resource, &changes, self.dry_run).await?;
        let whose = self.broker.map_or("all brokers".to_owned(), |id| format!("broker {id}"));
        note(&format!("{} the configuration of {whose}", if self.dry_run { "could change" } else { "changed" }));
        Ok(())
    }
}

async fn configs(client: &Client, broker: Option<i32>) -> Result<Vec<ConfigEntry>, Failure> {
    let metadata = client.metadata();
    let node = match broker {
        Some(id) => known(client, NodeId(id))?,
        None => {
            let any = metadata.controller.or_else(|| metadata.brokers.keys().next().copied());
            any.ok_or_else(|| Failure::failed("the cluster names no broker"))?
        }
    };
    Ok(client.admin().describe_configs(&ConfigResource::Broker(node)).await?)
}

/// The broker, if it is there.
pub fn known(client: &Client, node: NodeId) -> Result<NodeId, Failure> {
    let metadata = client.metadata();
    if metadata.brokers.contains_key(&node) {
        return Ok(node);
    }
    let ids: Vec<String> = metadata.brokers.keys().map(ToString::to_string).collect();
    Err(Failure::not_found(format!("there is no broker {node} now; there are {}", ids.join(", "))))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        set: Set,
    }

    #[test]
    fn a_key_and_its_value_are_a_change_as_flags_are() {
        let set = |line: &str| Line::try_parse_from(line.split(' ')).map(|line| line.set);
        assert_eq!(set("x coordinators 3").unwrap().pair, ["coordinators", "3"]);
        assert_eq!(set("x --set a=b").unwrap().changes.list().len(), 1);
        assert!(set("x coordinators").is_err() && set("x").is_err());
    }
}
