//! How far a group is behind: in records, in time, and how long until it has caught up.
//!
//! Time lag: how long ago the first record that the group has not read was written, by that record's timestamp and this
//! machine's clock. It is 0 where everything is read.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use thalweg_client::admin::Admin;
use thalweg_client::{Client, ClientError, Consumer, ConsumerConfig, Isolation, OffsetReset, OffsetSpec, StartAt};
use thalweg_model::{ErrorCode, Offset, Timestamp, TopicPartition};

use crate::cli::failure::Failure;
use crate::cli::time;

/// What is known of one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// `None`: the group has stored no offset, or the partition is gone.
    pub records: Option<i64>,
    /// `None`: as above, or the record could not be read.
    pub ms: Option<i64>,
    /// Exclusive; `None` if the partition is gone.
    pub end: Option<Offset>,
    /// Written within the last [`RATE_WINDOW_MS`].
    pub recent_count: i64,
}

/// The lag of each partition of `partitions`, of which `committed` has stored offsets.
///
/// # Errors
/// A cluster that does not answer; topics that are gone are no error.
pub async fn measure(
    client: &Client,
    partitions: &BTreeSet<TopicPartition>,
    committed: &BTreeMap<TopicPartition, Offset>,
) -> Result<BTreeMap<TopicPartition, Lag>, Failure> {
    let now = time::now();
    let present = existing(&client.admin(), partitions).await?;
    let ask = |spec| present.iter().map(|tp| (tp.clone(), spec)).collect::<BTreeMap<_, _>>();
    let ends = client.list_offsets(&ask(OffsetSpec::Latest), Isolation::ReadUncommitted).await?;
    let since = ask(OffsetSpec::AtTime(Timestamp(now.0 - RATE_WINDOW_MS)));
    let recent = client.list_offsets(&since, Isolation::ReadUncommitted).await?;
    let mut lags = BTreeMap::new();
    let mut unread = BTreeMap::new();
    for tp in partitions {
        let mut lag = Lag { end: ends.get(tp).map(|listed| listed.offset), ..Lag::default() };
        if let (Some(end), Some(offset)) = (lag.end, committed.get(tp)) {
            let records = end.since(*offset).max(0);
            lag.records = Some(records);
            if records == 0 {
                lag.ms = Some(0);
            } else {
                unread.insert(tp.clone(), *offset);
            }
        }
        if let (Some(end), Some(first)) = (lag.end, recent.get(tp).filter(|first| first.offset >= Offset::ZERO)) {
            lag.recent_count = end.since(first.offset).max(0);
        }
        lags.insert(tp.clone(), lag);
    }
    for (tp, written) in record_times(client, unread).await? {
        if let Some(lag) = lags.get_mut(&tp) {
            lag.ms = Some(now.ms_since(written).max(0));
        }
    }
    Ok(lags)
}

/// When the first record at or behind each offset was written; partitions where none came in time are left out.
async fn record_times(
    client: &Client,
    mut wanted: BTreeMap<TopicPartition, Offset>,
) -> Result<BTreeMap<TopicPartition, Timestamp>, Failure> {
    let config = ConsumerConfig {
        // One batch a partition is all that is needed.
        partition_bytes_max: 1,
        // The oldest unread record may have been deleted: the one after it counts.
        offset_reset: OffsetReset::Earliest,
        fetch_wait: Duration::ZERO,
        auto_commit: None,
        ..ConsumerConfig::default()
    };
    let mut consumer = Consumer::new(client, config)?;
    let mut found = BTreeMap::new();
    let deadline = Instant::now() + READ_WAIT;
    while !wanted.is_empty() && Instant::now() < deadline {
        consumer.assign(wanted.iter().map(|(tp, offset)| (tp.clone(), StartAt::Offset(*offset))))?;
        let Some(mut set) = consumer.poll(deadline.saturating_duration_since(Instant::now())).await? else { break };
        let tp = set.tp.clone();
        if let Some(record) = set.next() {
            found.insert(tp.clone(), record?.timestamp);
            wanted.remove(&tp);
        }
    }
    Ok(found)
}

/// Those whose topic is there and has so many partitions.
async fn existing(admin: &Admin, partitions: &BTreeSet<TopicPartition>) -> Result<BTreeSet<TopicPartition>, Failure> {
    let mut counts: BTreeMap<&str, i32> = BTreeMap::new();
    for tp in partitions {
        let topic = tp.topic.as_str();
        if counts.contains_key(topic) {
            continue;
        }
        let count = match admin.topic(topic).await {
            Ok(info) => info.partition_count(),
            Err(ClientError::UnknownTopic { .. }) => 0,
            Err(ClientError::Broker { code: ErrorCode::TopicAuthorizationFailed, .. }) => 0,
            Err(error) => return Err(error.into()),
        };
        counts.insert(topic, count);
    }
    let is_there = |tp: &&TopicPartition| counts.get(tp.topic.as_str()).is_some_and(|count| tp.partition.0 < *count);
    Ok(partitions.iter().filter(is_there).cloned().collect())
}

/// How long until everything is read, in ms: `lag` records, read at one rate while others come at another, both in
/// records per second. `None` if it never ends so.
pub fn drain_ms(lag: i64, read_rate: f64, write_rate: f64) -> Option<i64> {
    if lag == 0 {
        return Some(0);
    }
    let gain = read_rate - write_rate;
    (gain > 0.0).then(|| (lag as f64 / gain * 1_000.0) as i64)
}

/// Over this the rate of writing is taken.
pub const RATE_WINDOW_MS: i64 = 60_000;
/// Reading one batch of each partition takes this at most.
const READ_WAIT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_no_faster_than_others_write_never_catches_up() {
        assert_eq!(drain_ms(0, 0.0, 5.0), Some(0));
        assert_eq!(drain_ms(100, 30.0, 10.0), Some(5_000));
        assert_eq!(drain_ms(100, 10.0, 10.0), None);
    }
}
