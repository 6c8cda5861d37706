//! The cluster as a plan is made for it.

use std::collections::BTreeMap;
use std::time::Duration;

use thalweg_client::admin::Admin;
use thalweg_client::admin::placement::PlacementReport;
use thalweg_coordinator::planner::{BrokerPicture, PartitionPicture, Picture};
use thalweg_model::NodeId;

use crate::cli::failure::Failure;

/// What brokers say, and what their disks hold.
pub struct Situation {
    pub report: PlacementReport,
    /// Bytes of one replica.
    sizes: BTreeMap<(String, i32), u64>,
    bytes_per_second: BTreeMap<(String, i32), u64>,
}

impl Situation {
    /// `measured`: seconds to measure traffic for.
    pub async fn look(admin: &Admin, measured: Option<u64>) -> Result<Situation, Failure> {
        let report = admin.placement().await?;
        let sizes = sizes(admin, &report).await?;
        let mut bytes_per_second = BTreeMap::new();
        if let Some(seconds) = measured {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            for (partition, now) in self::sizes(admin, &report).await? {
                let before = sizes.get(&partition).copied().unwrap_or(0);
                // Retention may have taken more away than came.
                bytes_per_second.insert(partition, now.saturating_sub(before) / seconds.max(1));
            }
        }
        Ok(Situation { report, sizes, bytes_per_second })
    }

    /// Each partition's topic, its number, and what the planner sees, in one order; `grow_to` as the number of replicas that
    /// each should have at least.
    pub fn picture(&self, grow_to: usize) -> (Vec<(&str, i32)>, Picture) {
        let mut picture = Picture::default();
        for broker in &self.report.brokers {
            picture.brokers.push(BrokerPicture {
                id: NodeId(broker.id),
                rack: broker.rack.clone(),
                is_open: !broker.is_fenced && !broker.is_stopping && !broker.is_cordoned && !broker.is_draining,
                is_leaving: broker.is_draining,
            });
        }
        let open = picture.brokers.iter().filter(|broker| broker.is_open).count();
        let mut names = Vec::new();
        for topic in &self.report.topics {
            for (index, partition) in (0..).zip(&topic.partitions) {
                names.push((topic.name.as_str(), index));
                picture.partitions.push(PartitionPicture {
                    replicas: partition.replicas.iter().copied().map(NodeId).collect(),
                    factor: partition.replicas.len().max(grow_to.min(open)),
                    bytes: self.size(&topic.name, index),
                    bytes_per_second: self.bytes_per_second.get(&(topic.name.clone(), index)).copied().unwrap_or(0),
                    is_busy: !partition.adding.is_empty() || !partition.removing.is_empty(),
                });
            }
        }
        (names, picture)
    }

    /// Bytes of one replica.
    pub fn size(&self, topic: &str, partition: i32) -> u64 {
        self.sizes.get(&(topic.to_owned(), partition)).copied().unwrap_or(0)
    }
}

/// Of the largest replica each.
async fn sizes(admin: &Admin, report: &PlacementReport) -> Result<BTreeMap<(String, i32), u64>, Failure> {
    let mut sizes: BTreeMap<(String, i32), u64> = BTreeMap::new();
    for broker in report.brokers.iter().filter(|broker| !broker.is_fenced) {
        for dir in admin.log_dirs(NodeId(broker.id)).await? {
            for (tp, bytes) in dir.partitions {
                let known = sizes.entry((tp.topic.to_string(), tp.partition.0)).or_default();
                *known = (*known).max(bytes);
            }
        }
    }
    Ok(sizes)
}
