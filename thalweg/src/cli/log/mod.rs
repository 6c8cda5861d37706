//! `thalweg log`: files on disk, without a node. Reads only, never repairs.

mod dump;
mod dump_json;
mod files;
mod segment;
mod verify;

use clap::Subcommand;

use super::failure::Failure;

#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Print what a file of a log holds: .log, .index, .timeindex, .txnindex, .snapshot, checkpoints
    Dump(dump::Dump),
    /// Check checksums, offsets and indexes of segments, partitions or whole log directories
    Verify(verify::Verify),
}

pub fn run(command: LogCommand) -> Result<(), Failure> {
    match command {
        LogCommand::Dump(verb) => verb.run(),
        LogCommand::Verify(verb) => verb.run(),
    }
}
