//! The words of the domain: ids, offsets, epochs, errors, topic configuration.
//!
//! No I/O, no async, no clock, no randomness. Everything here is a value that two crates agree on.

pub mod epoch;
pub mod error_code;
pub mod ids;
pub mod invariant;
pub mod mutant;
pub mod offset;
pub mod partition;
pub mod time;
pub mod topic;
pub mod topic_config;

pub use epoch::{BrokerEpoch, LeaderEpoch, PartitionEpoch};
pub use error_code::ErrorCode;
pub use ids::{NodeId, ProducerEpoch, ProducerId, TopicId};
pub use offset::Offset;
pub use partition::{PartitionIndex, TopicPartition};
pub use time::{MonoTime, Timestamp};
pub use topic::{TopicName, TopicNameError};
pub use topic_config::{Durability, TopicConfig, TopicConfigError};
