//! Looks at the cluster, and remembers the last look for rates.

use std::collections::BTreeMap;
use std::time::Instant;

use thalweg_client::consumer::topic_partition;
use thalweg_client::{Client, ClientError, Isolation, Metadata, OffsetSpec};
use thalweg_model::{Offset, TopicPartition};

use super::state::{GroupRow, Picture, TopicRow};
use crate::cli::cluster::examine;
use crate::cli::failure::Failure;
use crate::cli::group::measure;

/// Holds the last look's counts.
pub struct Gatherer {
    client: Client,
    before: Option<Counts>,
}

/// What only grows, when it was read.
struct Counts {
    at: Instant,
    /// By topic: the sum of the ends, and bytes.
    topics: BTreeMap<String, (i64, u64)>,
    /// By group: the sum of the stored offsets.
    groups: BTreeMap<String, i64>,
}

impl Gatherer {
    pub fn new(client: Client) -> Gatherer {
        Gatherer { client, before: None }
    }

    /// # Errors
    /// The cluster does not answer.
    pub async fn look(&mut self) -> Result<Picture, Failure> {
        let started = Instant::now();
        let admin = self.client.admin();
        let cluster = admin.cluster().await?;
        let checks = examine(&admin).await?;
        let troubles =
            checks.into_iter().filter(|check| !check.is_good).map(|check| format!("{}: {}", check.name, check.detail));
        let mut counts = Counts { at: started, topics: BTreeMap::new(), groups: BTreeMap::new() };
        let topics = self.topics(&cluster, &mut counts).await?;
        let groups = self.groups(&mut counts).await?;
        let picture = Picture {
            cluster_id: cluster.cluster_id.clone().unwrap_or_default(),
            broker_count: cluster.brokers.len(),
            troubles: troubles.collect(),
            topics,
            groups,
            took_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        self.before = Some(counts);
        Ok(picture)
    }

    async fn topics(&self, cluster: &Metadata, counts: &mut Counts) -> Result<Vec<TopicRow>, Failure> {
        let mut led = Vec::new();
        for topic in cluster.topics.values().filter(|topic| !topic.is_internal) {
            for partition in topic.partitions.iter().filter(|partition| partition.leader.is_some()) {
                led.push(topic_partition(&topic.name, partition.index)?);
            }
        }
        let starts = self.offsets(&led, OffsetSpec::Earliest).await?;
        let ends = self.offsets(&led, OffsetSpec::Latest).await?;
        let sizes = self.sizes(cluster).await;
        let sum = |of: &BTreeMap<TopicPartition, Offset>, name: &str| -> i64 {
            of.iter().filter(|(tp, _)| tp.topic.as_str() == name).map(|(_, offset)| offset.0).sum()
        };
        let mut rows = Vec::new();
        for topic in cluster.topics.values().filter(|topic| !topic.is_internal) {
            let end = sum(&ends, &topic.name);
            let size_bytes = sizes.get(&topic.name).copied().unwrap_or(0);
            let before = self.before.as_ref().and_then(|before| Some((before.at, *before.topics.get(&topic.name)?)));
            let rate =
                |now: f64, then: f64, at: Instant| (now - then).max(0.0) / (counts.at - at).as_secs_f64().max(1e-9);
            rows.push(TopicRow {
                name: topic.name.clone(),
                partition_count: topic.partition_count(),
                record_count: end - sum(&starts, &topic.name),
                size_bytes,
                records_per_s: before.map(|(at, (then, _))| rate(end as f64, then as f64, at)),
                bytes_per_s: before.map(|(at, (_, then))| rate(size_bytes as f64, then as f64, at)),
                is_well: topic.partitions.iter().all(|p| p.leader.is_some() && p.isr.len() >= p.replicas.len()),
            });
            counts.topics.insert(topic.name.clone(), (end, size_bytes));
        }
        Ok(rows)
    }

    async fn offsets(
        &self,
        partitions: &[TopicPartition],
        spec: OffsetSpec,
    ) -> Result<BTreeMap<TopicPartition, Offset>, Failure> {
        let specs = partitions.iter().map(|tp| (tp.clone(), spec)).collect();
        let found = self.client.list_offsets(&specs, Isolation::ReadUncommitted).await?;
        Ok(found.into_iter().map(|(tp, listed)| (tp, listed.offset)).collect())
    }

    /// One copy of each record, as its leader has it; of brokers that do not answer nothing.
    async fn sizes(&self, cluster: &Metadata) -> BTreeMap<String, u64> {
        let mut sizes: BTreeMap<String, u64> = BTreeMap::new();
        for node in cluster.brokers.keys() {
            let dirs = self.client.admin().log_dirs(*node).await.unwrap_or_default();
            for (tp, size) in dirs.into_iter().flat_map(|dir| dir.partitions) {
                let topic = cluster.topic(tp.topic.as_str());
                let leader = topic.and_then(|topic| topic.partition(tp.partition.0)).and_then(|p| p.leader);
                if leader == Some(*node) {
                    *sizes.entry(tp.topic.to_string()).or_default() += size;
                }
            }
        }
        sizes
    }

    async fn groups(&self, counts: &mut Counts) -> Result<Vec<GroupRow>, Failure> {
        let admin = self.client.admin();
        let mut rows = Vec::new();
        for listed in admin.groups().await? {
            let id = listed.group_id;
            let member_count = match admin.describe_group(&id).await {
                Ok(group) => group.members.len(),
                // Gone meanwhile, or of a kind that this API does not describe.
                Err(ClientError::Broker { .. }) => 0,
                Err(error) => return Err(error.into()),
            };
            let committed: BTreeMap<TopicPartition, Offset> =
                admin.group_offsets(&id).await?.into_iter().map(|(tp, stored)| (tp, stored.offset)).collect();
            let lags = measure(&self.client, &committed.keys().cloned().collect(), &committed).await?;
            let sum: i64 = committed.values().map(|offset| offset.0).sum();
            let before = self.before.as_ref().and_then(|before| Some((before.at, *before.groups.get(&id)?)));
            rows.push(GroupRow {
                state: listed.state,
                member_count,
                lag: lags.values().filter_map(|lag| lag.records).sum(),
                lag_ms: lags.values().filter_map(|lag| lag.ms).max(),
                records_per_s: before
                    .map(|(at, then)| (sum - then).max(0) as f64 / (counts.at - at).as_secs_f64().max(1e-9)),
                name: id.clone(),
            });
            counts.groups.insert(id, sum);
        }
        Ok(rows)
    }
}
