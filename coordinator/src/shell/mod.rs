//! Everything that touches the network, the disk or a clock.

pub mod batcher;
pub mod codec;
pub mod connections;
pub mod coordinator;
pub mod feed;
pub mod formation;
pub mod identity;
pub mod leader;
pub mod log_store;
pub mod members;
pub mod network;
pub mod raft_codec;
pub mod services;
pub mod snapshot;
mod staffing;
pub mod state_machine;
pub mod types;
