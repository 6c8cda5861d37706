//! The coordinators: one Raft group that knows brokers, topics, partitions, configurations, groups and offsets.
//!
//! `registry` is the replicated, pure state; `planner` says, as pure, what should lie elsewhere; `session` the leader's pure, short-lived state; `shell` does the I/O.

pub mod error;
pub mod metrics;
pub mod planner;
pub mod registry;
pub mod session;
pub mod settings;
pub mod shell;
pub mod store;
pub mod token;

pub use error::CoordinatorError;
pub use metrics::CoordinatorMetrics;
pub use settings::CoordinatorSettings;
pub use shell::coordinator::{Coordinator, CoordinatorConfig, Joined, MetricsSource};
pub use shell::feed::FeedLimits;
pub use shell::formation::CoordinatorPeer;
pub use store::{KvStore, MemStore};
pub use token::JoinToken;
