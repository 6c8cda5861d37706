//! A whole broker, with a coordinator in memory and mostly a disk in memory, over real connections.

mod connection;
mod durability;
mod failed_disks;
mod leadership;
mod refusals;
mod replication;
mod support;
