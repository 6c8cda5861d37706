//! `thalweg cluster`: the whole of it.

mod config;
mod health;
mod info;
mod restart;
mod token;
mod upgrade;

use clap::Subcommand;

pub use config::known as known_broker;
pub use health::{Check, examine};

use super::failure::Failure;

#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Show the cluster's id, brokers and counts
    Info(info::Info),
    /// Say whether every partition has its leader and copies; exit code 0 only if so
    Health(health::Health),
    /// Restart the nodes of `thalweg dev -n N` one by one while clients go on
    Restart(restart::Restart),
    /// Look at and change what brokers use where a topic says nothing
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Make, list and revoke what lets new nodes in
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// From one version to the next: who can do what, and letting the cluster do it
    #[command(subcommand)]
    Upgrade(upgrade::UpgradeCommand),
}

pub async fn run(command: ClusterCommand) -> Result<(), Failure> {
    match command {
        ClusterCommand::Info(verb) => verb.run().await,
        ClusterCommand::Health(verb) => verb.run().await,
        ClusterCommand::Restart(verb) => verb.run().await,
        ClusterCommand::Config(command) => config::run(command).await,
        ClusterCommand::Token(command) => token::run(command).await,
        ClusterCommand::Upgrade(command) => upgrade::run(command).await,
    }
}
