//! I/O around the machines: sockets, threads, files, calls.

pub mod coordinators;
