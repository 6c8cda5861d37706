//! What brokers' disks hold.

use std::collections::BTreeMap;
use std::time::Duration;

use thalweg_model::{NodeId, TopicPartition};
use thalweg_wire::messages::DescribeLogDirsRequest;
use thalweg_wire::messages::describe_log_dirs::DescribeLogDirsResult;

use super::Admin;
use crate::client::Lane;
use crate::consumer::topic_partition;
use crate::error::{ClientError, Result};

/// One log directory of a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogDir {
    pub path: String,
    /// Set while the directory is offline.
    pub error: Option<ClientError>,
    /// Of the volume; `None` from brokers before Kafka 3.3.
    pub total_bytes: Option<u64>,
    /// Free to the broker; `None` as above.
    pub usable_bytes: Option<u64>,
    /// Each partition's size in bytes.
    pub partitions: BTreeMap<TopicPartition, u64>,
}

impl LogDir {
    /// Of all its partitions.
    pub fn size_bytes(&self) -> u64 {
        self.partitions.values().sum()
    }
}

impl Admin {
    /// The log directories of one broker.
    ///
    /// # Errors
    /// The broker is not there or does not answer.
    pub async fn log_dirs(&self, node: NodeId) -> Result<Vec<LogDir>> {
        let request = DescribeLogDirsRequest { topics: None };
        let answer = self.client.call_node(node, Lane::Control, &request, Duration::ZERO).await?;
        ClientError::check(answer.error_code, || format!("log directories of broker {node}"), None)?;
        answer.results.into_iter().map(log_dir).collect()
    }
}

fn log_dir(result: DescribeLogDirsResult) -> Result<LogDir> {
    let mut partitions = BTreeMap::new();
    for topic in result.topics {
        // What is being moved here is not served yet.
        for partition in topic.partitions.iter().filter(|partition| !partition.is_future_key) {
            let size = u64::try_from(partition.partition_size).unwrap_or(0);
            partitions.insert(topic_partition(&topic.name, partition.partition_index)?, size);
        }
    }
    let error = ClientError::check(result.error_code, || format!("log directory {}", result.log_dir), None).err();
    Ok(LogDir {
        error,
        total_bytes: u64::try_from(result.total_bytes).ok(),
        usable_bytes: u64::try_from(result.usable_bytes).ok(),
        path: result.log_dir,
        partitions,
    })
}
