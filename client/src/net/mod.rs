//! Connections to brokers: pipelined requests, negotiated versions.

mod connection;
mod versions;

pub(crate) use connection::{Answer, Connection, ConnectionConfig};
