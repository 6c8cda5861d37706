//! `thalweg broker safe-to-restart`: whether anybody would notice if a broker stopped now.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::json;
use thalweg_client::admin::Admin;
use thalweg_client::{Metadata, PartitionInfo};
use thalweg_model::NodeId;

use super::cluster::known_broker;
use super::connect::Connection;
use super::failure::Failure;
use super::output::{Output, note, print_value};

/// Exit code 0 if it may stop: others can lead all that it leads, and every partition still takes acks=all.
#[derive(Debug, Args)]
pub struct SafeToRestart {
    #[arg(value_name = "BROKER")]
    id: i32,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
}

impl SafeToRestart {
    pub async fn run(self) -> Result<(), Failure> {
        let client = self.connection.open().await?;
        known_broker(&client, NodeId(self.id))?;
        let reasons = reasons(&client.admin(), NodeId(self.id)).await?;
        if self.output.format.is_data() {
            print_value(
                self.output.format,
                &json!({"broker": self.id, "safe": reasons.is_empty(), "reasons": reasons}),
            )?;
        }
        if reasons.is_empty() {
            note(&format!("broker {} may be restarted: nobody will miss it", self.id));
            return Ok(());
        }
        let remedy = "wait until `thalweg cluster health` is good, or give those topics more replicas";
        Err(Failure::failed(format!("broker {} is needed now: {}; {remedy}", self.id, reasons.join("; "))))
    }
}

/// Why a broker cannot be spared; nothing if it can.
///
/// # Errors
/// No broker answers.
pub async fn reasons(admin: &Admin, id: NodeId) -> Result<Vec<String>, Failure> {
    let cluster = admin.cluster().await?;
    let names = cluster.topics.keys().map(String::as_str);
    let min_isrs = admin.describe_topics_number(names, "min.insync.replicas").await?;
    let min_isrs = min_isrs.iter().map(|(topic, least)| (topic.clone(), usize::try_from(*least).unwrap_or(1)));
    Ok(judge(&cluster, &min_isrs.collect(), id))
}

fn judge(cluster: &Metadata, min_isrs: &BTreeMap<String, usize>, id: NodeId) -> Vec<String> {
    let mut only_copy = Vec::new();
    let mut too_few = Vec::new();
    for topic in cluster.topics.values() {
        // Metadata of a topic that is about to go has no setting any more.
        let least = min_isrs.get(&topic.name).copied().unwrap_or(1);
        for partition in topic.partitions.iter().filter(|partition| partition.isr.contains(&id)) {
            let name = || format!("{}-{}", topic.name, partition.index);
            let rest = others(cluster, partition, id);
            if rest == 0 {
                only_copy.push(name());
            } else if rest < least.min(partition.replicas.len()) {
                too_few.push(name());
            }
        }
    }
    let said = |names: &[String], what: &str| {
        let shown = names.iter().take(SHOWN_MAX).cloned().collect::<Vec<_>>().join(", ");
        let more = names.len().saturating_sub(SHOWN_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        (!names.is_empty()).then(|| format!("{what} {shown}{more}"))
    };
    let missing = "without it acks=all is refused, for want of min.insync.replicas, by";
    [said(&only_copy, "it has the only copy in sync of"), said(&too_few, missing)].into_iter().flatten().collect()
}

/// In-sync replicas on other brokers that live.
fn others(cluster: &Metadata, partition: &PartitionInfo, id: NodeId) -> usize {
    let lives =
        |node: &&NodeId| **node != id && cluster.brokers.contains_key(node) && !partition.offline.contains(node);
    partition.isr.iter().filter(lives).count()
}

const SHOWN_MAX: usize = 5;

#[cfg(test)]
mod tests {
    use thalweg_client::{BrokerInfo, TopicInfo};
    use thalweg_model::{LeaderEpoch, TopicId};

    use super::*;

    fn cluster(brokers: &[i32], replicas: &[i32], isr: &[i32]) -> Metadata {
        let nodes = |ids: &[i32]| ids.iter().copied().map(NodeId).collect::<Vec<_>>();
        let partition = PartitionInfo {
            index: 0,
            leader: isr.first().copied().map(NodeId),
            leader_epoch: LeaderEpoch(0),
            replicas: nodes(replicas),
            isr: nodes(isr),
            offline: Vec::new(),
        };
        let topic = TopicInfo {
            name: "t".to_owned(),
            id: TopicId::ZERO,
            is_internal: false,
            error: None,
            partitions: vec![partition],
        };
        let broker =
            |id: &i32| (NodeId(*id), BrokerInfo { node: NodeId(*id), host: "h".to_owned(), port: 1, rack: None });
        Metadata {
            cluster_id: None,
            controller: None,
            brokers: brokers.iter().map(broker).collect(),
            topics: [("t".to_owned(), topic)].into(),
        }
    }

    #[test]
    fn a_broker_is_spared_only_if_enough_others_are_in_sync_and_live() {
        let judged = |brokers: &[i32], replicas: &[i32], isr: &[i32], least| {
            judge(&cluster(brokers, replicas, isr), &[("t".to_owned(), least)].into(), NodeId(1))
        };
        assert_eq!(judged(&[1, 2, 3], &[1, 2, 3], &[1, 2, 3], 2), [""; 0]);
        assert_eq!(judged(&[1, 2, 3], &[1, 2, 3], &[2, 3], 2), [""; 0], "it is not in sync, so nobody counts on it");
        assert!(judged(&[1, 2, 3], &[1, 2, 3], &[1, 2], 2)[0].contains("acks=all is refused"));
        assert!(judged(&[1, 3], &[1, 2, 3], &[1, 2, 3], 2)[0].contains("t-0"), "broker 2 is down");
        assert!(judged(&[1, 2, 3], &[1], &[1], 1)[0].contains("the only copy in sync of t-0"));
        assert_eq!(judged(&[1, 2, 3], &[2], &[2], 1), [""; 0], "it has nothing to do with it");
    }
}
