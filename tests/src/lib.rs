//! A node under test and a Kafka client that can say anything, also what no real client says.
//!
//! [`target`] gives the broker to talk to: a node of our own binary, or, with `BROKERS=host:port`, a broker that runs
//! already. Apache Kafka behind that variable is the oracle which shows that an expected value is Kafka's; where we
//! answer better on purpose, a test names both values with [`Target::ours_or_kafkas`].

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a test's harness tells people what it does")]

pub mod batch;
pub mod calls;
pub mod cli;
pub mod cluster;
pub mod conn;
pub mod group;
pub mod netns;
pub mod node;
pub mod numbers;
pub mod target;

pub use batch::{Batch, Codec, Record};
pub use cli::Cli;
pub use cluster::Cluster;
pub use conn::Conn;
pub use node::Node;
pub use numbers::Numbers;
pub use target::{Target, target, unique};
pub use thalweg_model::ErrorCode;
