//! The cluster as a plan is made for it.

use std::collections::BTreeMap;

use thalweg_client::admin::Admin;
use thalweg_client::admin::placement::PlacementReport;
use thalweg_coordinator::planner::{BrokerPicture, PartitionPicture, Picture};
use thalweg_model::NodeId;

use crate::cli::failure::Failure;
use crate::cli::traffic::Traffic;

/// What brokers say, and what their disks hold.
pub struct Situation {
    pub report: PlacementReport,
    /// Bytes of one replica.
    sizes: BTreeMap<(String, i32), u64>,
    traffic: Traffic,
}

impl Situation {
    /// With what brokers have measured of traffic, if it is wanted.
    pub async fn look(admin: &Admin, with_traffic: bool) -> Result<Situation, Failure> {
        let report = admin.placement().await?;
        let sizes = sizes(admin, &report).await?;
        let serving = report.brokers.iter().filter(|broker| with_traffic && !broker.is_fenced);
        let traffic = Traffic::ask(admin, serving.map(|broker| NodeId(broker.id))).await?;
        Ok(Situation { report, sizes, traffic })
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
                    bytes_per_second: self.traffic.of(&topic.name, index).of_a_replica(partition.replicas.len()),
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
