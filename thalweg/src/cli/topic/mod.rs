//! `thalweg topic`: the verbs on topics.

mod add_partitions;
mod alter;
mod consume;
mod create;
mod delete;
mod describe;
mod list;
pub mod print;
mod produce;
mod start;
mod trim;
mod why_kept;

use clap::Subcommand;

pub use print::{as_base64, as_text};
pub use produce::{AcksName, CodecName};

use super::failure::Failure;

#[derive(Debug, Subcommand)]
pub enum TopicCommand {
    /// Create topics
    Create(create::Create),
    /// List topics
    List(list::List),
    /// Show a topic's partitions, durability and configuration
    Describe(describe::Describe),
    /// Change a topic's configuration
    Alter(alter::Alter),
    /// Give a topic more partitions
    AddPartitions(add_partitions::AddPartitions),
    /// Delete a topic's oldest records
    Trim(trim::Trim),
    /// Show each segment with the rule that holds it
    WhyKept(why_kept::WhyKept),
    /// Delete topics with their records
    Delete(delete::Delete),
    /// Write records: one per line of stdin
    Produce(produce::Produce),
    /// Read records to stdout
    Consume(consume::Consume),
}

pub async fn run(command: TopicCommand) -> Result<(), Failure> {
    match command {
        TopicCommand::Create(verb) => verb.run().await,
        TopicCommand::List(verb) => verb.run().await,
        TopicCommand::Describe(verb) => verb.run().await,
        TopicCommand::Alter(verb) => verb.run().await,
        TopicCommand::AddPartitions(verb) => verb.run().await,
        TopicCommand::Trim(verb) => verb.run().await,
        TopicCommand::WhyKept(verb) => verb.run().await,
        TopicCommand::Delete(verb) => verb.run().await,
        TopicCommand::Produce(verb) => verb.run().await,
        TopicCommand::Consume(verb) => verb.run().await,
    }
}

/// Splits `key=value`.
pub(super) fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("'{text}' is not of the form key=value")),
    }
}
