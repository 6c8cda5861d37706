//! `thalweg cluster health`.

use clap::Args;
use serde_json::json;
use thalweg_client::admin::Admin;
use thalweg_client::{Metadata, PartitionInfo};

use crate::cli::connect::Connection;
use crate::cli::failure::Failure;
use crate::cli::output::{Output, Table, print_value};

#[derive(Debug, Args)]
pub struct Health {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
}

/// One thing that should hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub name: &'static str,
    pub is_good: bool,
    /// What was counted, and which partitions or disks are meant if it does not hold.
    pub detail: String,
    /// What to do and type if it does not hold.
    pub remedy: &'static str,
}

impl Health {
    pub async fn run(self) -> Result<(), Failure> {
        let admin = self.connection.open().await?.admin();
        let checks = examine(&admin).await?;
        if self.output.format.is_data() {
            let entry = |check: &Check| {
                let remedy = (!check.is_good).then_some(check.remedy);
                json!({"check": check.name, "good": check.is_good, "detail": check.detail, "remedy": remedy})
            };
            let value = json!({
                "healthy": checks.iter().all(|check| check.is_good),
                "checks": checks.iter().map(entry).collect::<Vec<_>>(),
            });
            print_value(self.output.format, &value)?;
        } else {
            let mut table = Table::new(&["", "CHECK", "DETAIL"]);
            for check in &checks {
                let mark = if check.is_good { "ok" } else { "BAD" };
                table.row(vec![mark.to_owned(), check.name.to_owned(), check.detail.clone()]);
                if !check.is_good {
                    table.row(vec![String::new(), String::new(), format!("-> {}", check.remedy)]);
                }
            }
            table.print()?;
        }
        let bad: Vec<&str> = checks.iter().filter(|check| !check.is_good).map(|check| check.name).collect();
        if bad.is_empty() {
            Ok(())
        } else {
            Err(Failure::failed(format!("the cluster is not healthy: {}", bad.join(", "))))
        }
    }
}

/// Every check, in a fixed order.
///
/// # Errors
/// No broker answers.
pub async fn examine(admin: &Admin) -> Result<Vec<Check>, Failure> {
    let cluster = admin.cluster().await?;
    let mut checks = of_partitions(&cluster);
    let names = cluster.topics.keys().map(String::as_str);
    let min_isrs = admin.describe_topics_number(names, "min.insync.replicas").await?;
    let is_short = |topic: &str, partition: &PartitionInfo| {
        let least = min_isrs.get(topic).and_then(|least| usize::try_from(*least).ok());
        // A topic with fewer copies than that takes writes from them all.
        least.is_some_and(|least| partition.isr.len() < least.min(partition.replicas.len()))
    };
    let name = "every partition has min.insync.replicas";
    checks.push(partitions_check(&cluster, name, "until then acks=all is refused: as above", is_short));
    checks.extend(brokers_check(admin).await);
    for broker in cluster.brokers.keys() {
        checks.extend(disks(admin, *broker).await);
    }
    Ok(checks)
}

/// What metadata alone tells.
fn of_partitions(cluster: &Metadata) -> Vec<Check> {
    let controller = Check {
        name: "a controller leads",
        is_good: cluster.controller.is_some(),
        detail: cluster.controller.map_or("none".to_owned(), |node| format!("broker {node}")),
        remedy: "start brokers, and coordinators until more than half of them run: thalweg coordinator list",
    };
    vec![
        controller,
        partitions_check(
            cluster,
            "every partition has a leader",
            "start the brokers that hold it: thalweg topic describe TOPIC names its replicas",
            |_, partition| partition.leader.is_none(),
        ),
        partitions_check(cluster, "every replica is in sync", BEHIND, |_, partition| {
            partition.isr.len() < partition.replicas.len()
        }),
    ]
}

fn partitions_check(
    cluster: &Metadata,
    name: &'static str,
    remedy: &'static str,
    is_bad: impl Fn(&str, &PartitionInfo) -> bool,
) -> Check {
    let all = cluster.topics.values().flat_map(|topic| topic.partitions.iter().map(move |p| (topic.name.as_str(), p)));
    let mut count = 0;
    let mut bad = Vec::new();
    for (topic, partition) in all {
        count += 1;
        if is_bad(topic, partition) {
            bad.push(format!("{topic}-{}", partition.index));
        }
    }
    let detail = match bad.as_slice() {
        [] => format!("{count} partition(s)"),
        shown => {
            let more = shown.len().saturating_sub(SHOWN_MAX);
            let names = shown.iter().take(SHOWN_MAX).cloned().collect::<Vec<_>>().join(", ");
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{} of {count}: {names}{more}", shown.len())
        }
    };
    Check { name, is_good: bad.is_empty(), detail, remedy }
}

/// Only Thalweg tells of brokers that are registered and do not serve.
async fn brokers_check(admin: &Admin) -> Option<Check> {
    let report = admin.explain_any_broker().await.ok()?;
    let fenced: Vec<String> =
        report.brokers.iter().filter(|broker| broker.is_fenced).map(|broker| broker.node_id.to_string()).collect();
    let count = report.brokers.len();
    let detail = if fenced.is_empty() {
        format!("{count} broker(s)")
    } else {
        format!("{} of {count}: {}", fenced.len(), fenced.join(", "))
    };
    Some(Check {
        name: "every registered broker serves",
        is_good: fenced.is_empty(),
        detail,
        remedy: "start it; if it runs, its log says why it is not let in",
    })
}

/// A broker that does not answer has a check that says so.
async fn disks(admin: &Admin, broker: thalweg_model::NodeId) -> Vec<Check> {
    let dirs = match admin.log_dirs(broker).await {
        Ok(dirs) => dirs,
        Err(error) => {
            return vec![Check {
                name: "the broker answers",
                is_good: false,
                detail: format!("broker {broker}: {error}"),
                remedy: "start it if it is down; else: thalweg doctor listeners",
            }];
        }
    };
    let check = |dir: &thalweg_client::admin::LogDir| {
        let place = format!("broker {broker} {}", dir.path);
        let (is_good, detail) = match (&dir.error, dir.total_bytes.zip(dir.usable_bytes)) {
            (Some(error), _) => (false, format!("{place}: {error}")),
            (None, Some((total, usable))) => {
                let percent = usable.saturating_mul(100) / total.max(1);
                (percent >= FREE_PERCENT_MIN, format!("{place}: {percent} % free"))
            }
            (None, None) => (true, format!("{place}: online")),
        };
        let remedy =
            "thalweg topic why-kept TOPIC; lower its retention, or add space. A failed disk: replace it, restart";
        Check { name: "the log directory has room", is_good, detail, remedy }
    };
    dirs.iter().map(check).collect()
}

const BEHIND: &str = "a broker is down or catches up: thalweg broker list; start it, or wait while this number falls";
const SHOWN_MAX: usize = 10;
/// Below this share of the volume a disk counts as nearly full.
const FREE_PERCENT_MIN: u64 = 5;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use thalweg_client::TopicInfo;
    use thalweg_model::{LeaderEpoch, NodeId, TopicId};

    use super::*;

    fn cluster(leader: Option<i32>, isr: &[i32]) -> Metadata {
        let partition = PartitionInfo {
            index: 0,
            leader: leader.map(NodeId),
            leader_epoch: LeaderEpoch(0),
            replicas: vec![NodeId(1), NodeId(2)],
            isr: isr.iter().copied().map(NodeId).collect(),
            offline: Vec::new(),
        };
        let topic = TopicInfo {
            name: "t".to_owned(),
            id: TopicId::ZERO,
            is_internal: false,
            error: None,
            partitions: vec![partition],
        };
        Metadata {
            cluster_id: None,
            controller: Some(NodeId(1)),
            brokers: BTreeMap::new(),
            topics: [("t".to_owned(), topic)].into(),
        }
    }

    #[test]
    fn each_kind_of_bad_partition_is_named() {
        let good = |cluster: &Metadata| of_partitions(cluster).iter().map(|check| check.is_good).collect::<Vec<_>>();
        assert_eq!(good(&cluster(Some(1), &[1, 2])), [true, true, true]);
        assert_eq!(good(&cluster(None, &[1, 2])), [true, false, true]);
        assert_eq!(good(&cluster(Some(1), &[1])), [true, true, false]);
        assert_eq!(of_partitions(&cluster(None, &[]))[1].detail, "1 of 1: t-0");
    }
}
