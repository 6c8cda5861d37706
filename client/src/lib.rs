//! A Kafka client in pure Rust: producer, consumer with groups, admin.
//!
//! Works against Thalweg and against Apache Kafka. Start with [`Client::connect`]; whatever is made from it shares its
//! connections.
//!
//! Writing. Records of one partition keep their order; [`Producer::send`] waits only for room, and the [`Delivery`] tells
//! what became of the record:
//!
//! ```no_run
//! # async fn example() -> thalweg_client::Result<()> {
//! use thalweg_client::{Client, ClientConfig, Producer, ProducerConfig, ProducerRecord};
//!
//! let client = Client::connect(ClientConfig::new("127.0.0.1:9092")).await?;
//! let producer = Producer::new(&client, ProducerConfig::default())?;
//! let delivery = producer.send(ProducerRecord::new("orders").key("customer-7").value("3 apples")).await?;
//! let delivered = delivery.wait().await?;
//! println!("partition {}, offset {}", delivered.partition, delivered.offset);
//! producer.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! Reading as a member of a group, with positions stored when the work is done:
//!
//! ```no_run
//! # async fn example(client: thalweg_client::Client) -> thalweg_client::Result<()> {
//! use std::time::Duration;
//! use thalweg_client::{Consumer, ConsumerConfig, OffsetReset};
//!
//! let config = ConsumerConfig { auto_commit: None, ..ConsumerConfig::group("billing") };
//! let mut consumer = Consumer::new(&client, config.offset_reset(OffsetReset::Earliest))?;
//! consumer.subscribe_pattern("orders|returns-.*").await?;
//! while let Some(records) = consumer.poll(Duration::from_secs(10)).await? {
//!     for record in records {
//!         let record = record?;
//!         println!("{}: {:?}", record.offset, record.value);
//!     }
//!     consumer.commit().await?;
//! }
//! consumer.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Managing topics, groups and their offsets:
//!
//! ```no_run
//! # async fn example(client: thalweg_client::Client) -> thalweg_client::Result<()> {
//! use thalweg_client::NewTopic;
//!
//! let admin = client.admin();
//! admin.create_topic(&NewTopic::new("orders").partitions(6).config("retention.ms", "86400000")).await?;
//! for group in admin.groups().await? {
//!     println!("{} is {}", group.group_id, group.state);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Whole programs are in `examples/`: `write_lines`, `work_in_group` and `look_after_topic`.

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
pub use thalweg_model::{ErrorCode, Offset, Timestamp, TopicPartition};
pub use thalweg_wire::records::{Record, RecordHeader, RecordHeaders};
