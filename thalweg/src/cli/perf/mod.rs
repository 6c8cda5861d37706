//! `thalweg perf`: how fast a cluster is from here, with percentiles and with what was waited for.

mod consume;
mod e2e;
mod pace;
mod produce;
mod summary;

use clap::Subcommand;

use super::failure::Failure;

#[derive(Debug, Subcommand)]
pub enum PerfCommand {
    /// Write records and measure until each is acknowledged
    Produce(produce::Produce),
    /// Read a topic from its beginning to its end as fast as it comes
    Consume(consume::Consume),
    /// Write records at a steady rate and measure until a consumer has each of them
    E2e(e2e::EndToEnd),
}

pub async fn run(command: PerfCommand) -> Result<(), Failure> {
    match command {
        PerfCommand::Produce(verb) => verb.run().await,
        PerfCommand::Consume(verb) => verb.run().await,
        PerfCommand::E2e(verb) => verb.run().await,
    }
}
