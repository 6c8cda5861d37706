//! A whole broker, with a coordinator in memory and mostly a disk in memory, over real connections.

mod connection;
mod durability;
mod leadership;
mod replication;
mod support;
