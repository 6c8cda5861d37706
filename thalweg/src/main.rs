//! The one binary: a node of either role, and every verb that talks to one.

mod cli;
mod config;
mod dev;
mod environment;
mod http;
mod joining;
mod metrics;
mod node;
mod telemetry;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::config::{NodeConfig, Overrides};
use crate::node::StopWith;

#[derive(Parser)]
#[command(name = "thalweg", version, about = "A distributed log that Kafka clients use", max_term_width = 120)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a node on this machine for development: no set-up, loopback only
    Dev(dev::DevArguments),
    /// Run a node as a configuration file, flags and variables say
    Start(Box<StartArguments>),
    #[command(flatten)]
    Verb(cli::Command),
}

#[derive(clap::Args)]
struct StartArguments {
    /// The configuration file (TOML); `--print-config` shows every key with its default
    #[arg(long, env = "THALWEG_CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
    /// Stop when standard input ends: for whoever starts nodes and must not leave any behind
    #[arg(long, hide = true)]
    stop_with_parent: bool,
    /// Print a commented configuration with the defaults and exit
    #[arg(long)]
    print_config: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::from_arg_matches(&environment::without_empty(Arguments::command()).get_matches());
    let arguments = arguments.unwrap_or_else(|error| error.exit());
    let outcome = match arguments.command {
        Command::Dev(dev) => dev::run(&dev),
        Command::Start(start) => run_start(*start),
        Command::Verb(verb) => return cli::run(verb, Arguments::command),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            telemetry::complain(&error);
            ExitCode::FAILURE
        }
    }
}

fn run_start(arguments: StartArguments) -> Result<()> {
    if arguments.print_config {
        telemetry::say(&config::commented_defaults());
        return Ok(());
    }
    let config = NodeConfig::read(arguments.config.as_deref(), arguments.overrides)?;
    telemetry::start(config.log.format, &config.log.level)?;
    let stop_with = if arguments.stop_with_parent { StopWith::Parent } else { StopWith::Signals };
    node::run(config, stop_with, |node| {
        let listening: Vec<String> = node.addresses().iter().map(ToString::to_string).collect();
        telemetry::say(&format!("thalweg {} ready, listening on {}", env!("CARGO_PKG_VERSION"), listening.join(", ")));
    })
}
