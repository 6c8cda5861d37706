//! A Kafka client in pure Rust: producer, consumer with groups, admin.
//!
//! Works against Thalweg and against Apache Kafka. Start with [`Client::connect`].

mod backoff;
mod client;
mod config;
mod error;
mod metadata;
mod net;
mod offsets;

pub mod admin;
pub mod consumer;
pub mod producer;

pub use admin::{Admin, NewTopic};
pub use client::Client;
pub use config::{ClientConfig, Compression};
pub use consumer::{Consumer, ConsumerConfig, OffsetReset, RecordSet, StartAt};
pub use error::{ClientError, Result};
pub use metadata::{BrokerInfo, Metadata, PartitionInfo, TopicInfo};
pub use offsets::{Isolation, ListedOffset, OffsetSpec};
pub use producer::{Acks, Delivered, Delivery, Header, Producer, ProducerConfig, ProducerRecord};
pub use thalweg_wire::records::{Record, RecordHeader, RecordHeaders};
