//! The systems that are measured: each starts on free ports of the loopback address, with its data under a given folder.

mod activemq;
mod cluster;
mod kafka;
mod nats;
mod rabbitmq;
mod software;
mod spawned;
mod thalweg;

pub use activemq::ActiveMq;
pub use cluster::Cluster;
pub use kafka::Kafka;
pub use nats::Nats;
pub use rabbitmq::RabbitMq;
pub use software::Software;

pub use thalweg::Thalweg;
