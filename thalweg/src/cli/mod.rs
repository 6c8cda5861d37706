//! The verbs: what people and scripts type at a cluster, and at files on disk.
//!
//! Data goes to stdout, everything else to stderr. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found,
//! 4 no cluster there.

mod connect;
mod failure;
mod group;
mod log;
mod output;
mod time;
mod topic;

use std::process::ExitCode;

use clap::Subcommand;

use failure::Failure;

/// The first word.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create, look at, delete, write and read topics
    #[command(subcommand)]
    Topic(topic::TopicCommand),
    /// Look at consumer groups
    #[command(subcommand)]
    Group(group::GroupCommand),
    /// Look at log files on disk, of Thalweg or Apache Kafka; no node needed
    #[command(subcommand)]
    Log(log::LogCommand),
}

/// Carries out a verb to its end.
pub fn run(command: Command) -> ExitCode {
    match carry_out(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.complain();
            ExitCode::from(failure.code())
        }
    }
}

fn carry_out(command: Command) -> Result<(), Failure> {
    match command {
        Command::Topic(command) => in_runtime(topic::run(command)),
        Command::Group(command) => in_runtime(group::run(command)),
        Command::Log(command) => log::run(command),
    }
}

fn in_runtime(verb: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::failed(format!("cannot start: {error}")))?;
    let result = runtime.block_on(verb);
    // A read of stdin that is still blocked must not keep the process.
    runtime.shutdown_background();
    result
}
