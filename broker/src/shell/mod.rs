//! I/O around the machines: sockets, threads, files, calls.

pub mod ack;
pub mod batcher;
pub mod budget;
pub mod connection;
pub mod coordinators;
pub mod dirs;
pub mod fetch_wait;
pub mod fetcher;
pub mod flusher;
pub mod group_calls;
pub mod input;
pub mod interest;
pub mod isr;
pub mod lifecycle;
pub mod listener;
pub mod mailbox;
pub mod maintenance;
pub mod owner;
pub mod partitions;
pub mod peer;
pub mod producer_ids;
pub mod reader;
pub mod reconcile;
pub mod sessions;
pub mod warmer;
pub mod worker;
