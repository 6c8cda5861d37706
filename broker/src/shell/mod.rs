//! I/O around the machines: sockets, threads, files, calls.

pub mod batcher;
pub mod coordinators;
pub mod group_calls;
