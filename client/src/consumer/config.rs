//! How a consumer reads.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use thalweg_model::TopicPartition;

use super::assignor::Assignor;
use super::fetcher::FETCH_WAIT;
use crate::offsets::{Isolation, OffsetSpec};

/// Where to start without a committed offset, and where to go on when the position is not in the log any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetReset {
    Earliest,
    Latest,
    /// Neither: an error.
    None,
}

/// Settings of a consumer; the group's count only with [`ConsumerConfig::group`].
#[derive(Clone, Debug)]
pub struct ConsumerConfig {
    pub group_id: Option<String>,
    /// Makes the member static: it keeps its partitions over a restart within the session timeout (KIP-345).
    pub group_instance_id: Option<String>,
    /// In order of preference; the group uses the first that all members know.
    pub assignors: Vec<Assignor>,
    /// Silence after which the group expels a member.
    pub session_timeout: Duration,
    pub heartbeat_interval: Duration,
    /// Without a poll for this long the member leaves: the application is stuck.
    pub max_poll_interval: Duration,
    /// Commit positions this often, and before partitions are given up. `None`: only by hand.
    pub auto_commit: Option<Duration>,
    pub offset_reset: OffsetReset,
    pub isolation: Isolation,
    /// How long the broker waits for `fetch_bytes_min`.
    pub fetch_wait: Duration,
    pub fetch_bytes_min: i32,
    /// Of one answer. A larger batch still comes, alone.
    pub fetch_bytes_max: i32,
    /// Of one partition in one answer.
    pub partition_bytes_max: i32,
    /// Told when partitions come and go.
    pub on_rebalance: Option<RebalanceListener>,
}

/// Called within [`super::Consumer::poll`].
#[derive(Clone)]
pub struct RebalanceListener(pub Arc<dyn Fn(&Rebalance) + Send + Sync>);

/// What changed in a member's assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rebalance {
    Assigned(BTreeSet<TopicPartition>),
    /// Given up in order; positions were committed if auto-commit is on.
    Revoked(BTreeSet<TopicPartition>),
    /// Taken away: another member may read them already.
    Lost(BTreeSet<TopicPartition>),
}

impl fmt::Debug for RebalanceListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RebalanceListener")
    }
}

impl Default for ConsumerConfig {
    fn default() -> ConsumerConfig {
        ConsumerConfig {
            group_id: None,
            group_instance_id: None,
            assignors: vec![Assignor::Range, Assignor::CooperativeSticky],
            session_timeout: Duration::from_secs(45),
            heartbeat_interval: Duration::from_secs(3),
            max_poll_interval: Duration::from_secs(300),
            auto_commit: Some(Duration::from_secs(5)),
            offset_reset: OffsetReset::Latest,
            isolation: Isolation::ReadUncommitted,
            fetch_wait: FETCH_WAIT,
            fetch_bytes_min: 1,
            fetch_bytes_max: 50 << 20,
            partition_bytes_max: 1 << 20,
            on_rebalance: None,
        }
    }
}

impl ConsumerConfig {
    /// A member of a group.
    pub fn group(group_id: impl Into<String>) -> ConsumerConfig {
        ConsumerConfig { group_id: Some(group_id.into()), ..ConsumerConfig::default() }
    }

    #[must_use]
    pub fn offset_reset(mut self, reset: OffsetReset) -> ConsumerConfig {
        self.offset_reset = reset;
        self
    }
}

impl OffsetReset {
    pub(crate) fn spec(self) -> Option<OffsetSpec> {
        match self {
            OffsetReset::Earliest => Some(OffsetSpec::Earliest),
            OffsetReset::Latest => Some(OffsetSpec::Latest),
            OffsetReset::None => None,
        }
    }
}
