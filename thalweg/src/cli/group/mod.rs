//! `thalweg group`: consumer groups.

mod delete;
mod describe;
mod explain;
mod lag;
mod list;
mod offset_delete;
mod seek;

use clap::Subcommand;

pub use lag::measure;

use super::failure::Failure;

#[derive(Debug, Subcommand)]
pub enum GroupCommand {
    /// List groups
    List(list::List),
    /// Show a group's members, stored offsets, and lag in records and seconds
    Describe(describe::Describe),
    /// Show the group's last rebalances: who caused them, how long they took, what moved
    Explain(explain::Explain),
    /// Move a group's stored offsets
    Seek(seek::Seek),
    /// Delete groups without members, with their offsets
    Delete(delete::Delete),
    /// Delete a group's stored offsets of some topics or partitions
    OffsetDelete(offset_delete::OffsetDelete),
}

pub async fn run(command: GroupCommand) -> Result<(), Failure> {
    match command {
        GroupCommand::List(verb) => verb.run().await,
        GroupCommand::Describe(verb) => verb.run().await,
        GroupCommand::Explain(verb) => verb.run().await,
        GroupCommand::Seek(verb) => verb.run().await,
        GroupCommand::Delete(verb) => verb.run().await,
        GroupCommand::OffsetDelete(verb) => verb.run().await,
    }
}
