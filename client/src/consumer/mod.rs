//! Reading records: by partition, or as a member of a group.

pub mod assignor;
mod commit;
mod config;
mod fetcher;
mod group;
mod join;
mod membership;
mod pattern;
mod positions;
pub mod protocol;
mod records;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use thalweg_model::{ErrorCode, MonoTime, NodeId, Offset, PartitionIndex, TopicName, TopicPartition};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::{debug, warn};

pub use assignor::Assignor;
pub use commit::CommittedOffset;
pub(crate) use commit::committed_of;
pub use config::{ConsumerConfig, OffsetReset, Rebalance, RebalanceListener};
pub use records::{RecordSet, collect};

use crate::client::{Client, OwnerId};
use crate::error::{ClientError, Result};
use crate::offsets::OffsetSpec;
pub(crate) use commit::commit_topics;
use fetcher::FetchResult;
use group::Group;
use positions::{Positions, Start, ToFetch};
use records::Fetched;

/// Reads records. One task owns it and polls it; heartbeats and fetches run in the background.
#[derive(Debug)]
pub struct Consumer {
    client: Client,
    owner: OwnerId,
    config: ConsumerConfig,
    positions: Positions,
    /// Fetched and not yet given out, oldest first.
    ready: VecDeque<Fetched>,
    fetches: JoinSet<()>,
    /// Brokers with a fetch under way.
    fetching: BTreeSet<NodeId>,
    fetched: mpsc::UnboundedReceiver<FetchDone>,
    fetched_sender: mpsc::UnboundedSender<FetchDone>,
    group: Option<Group>,
    next_auto_commit: Option<Instant>,
}

#[derive(Debug)]
struct FetchDone {
    node: NodeId,
    results: Vec<(ToFetch, FetchResult)>,
}

/// Where to read a partition from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAt {
    /// The group's committed offset, or what [`ConsumerConfig::offset_reset`] says if there is none.
    Committed,
    Offset(Offset),
    Spec(OffsetSpec),
}

impl Consumer {
    /// # Errors
    /// The settings contradict each other.
    pub fn new(client: &Client, config: ConsumerConfig) -> Result<Consumer> {
        let invalid = |what: &str, remedy: &str| {
            Err(ClientError::InvalidUse { what: what.to_owned(), remedy: remedy.to_owned() })
        };
        if config.heartbeat_interval * 2 > config.session_timeout {
            return invalid("a lost heartbeat would end the session", "set heartbeat_interval to a third of it");
        }
        if config.assignors.is_empty() {
            return invalid("a group member needs an assignor", "leave assignors at its default");
        }
        let (fetched_sender, fetched) = mpsc::unbounded_channel();
        let owner = client.new_owner();
        let group = config.group_id.clone().map(|group_id| Group::new(client, owner, &config, group_id));
        Ok(Consumer {
            client: client.clone(),
            owner,
            next_auto_commit: config.auto_commit.map(|every| Instant::now() + every),
            config,
            positions: Positions::default(),
            ready: VecDeque::new(),
            fetches: JoinSet::new(),
            fetching: BTreeSet::new(),
            fetched,
            fetched_sender,
            group,
        })
    }

    /// Reads exactly these partitions; those that were assigned already go on where they are.
    ///
    /// # Errors
    /// The consumer is subscribed, or [`StartAt::Committed`] is asked of one without a group.
    pub fn assign(&mut self, partitions: impl IntoIterator<Item = (TopicPartition, StartAt)>) -> Result<()> {
        if self.group.as_ref().is_some_and(Group::is_subscribed) {
            return Err(ClientError::InvalidUse {
                what: "a subscribed consumer cannot be assigned".to_owned(),
                remedy: "use one or the other".to_owned(),
            });
        }
        let partitions = partitions.into_iter().map(|(tp, start)| Ok((tp, self.start(start)?)));
        let partitions: Vec<(TopicPartition, Start)> = partitions.collect::<Result<_>>()?;
        self.positions.assign(partitions);
        Ok(())
    }

    /// Reads the topics as a member of the group: the next polls join it.
    ///
    /// # Errors
    /// There is no group, partitions are assigned by hand, or a name is not valid.
    pub fn subscribe<T: AsRef<str>>(&mut self, topics: impl IntoIterator<Item = T>) -> Result<()> {
        let topics: BTreeSet<String> = topics.into_iter().map(|topic| topic.as_ref().to_owned()).collect();
        for topic in &topics {
            topic_name(topic)?;
        }
        let Some(group) = &mut self.group else {
            return Err(ClientError::InvalidUse {
                what: "subscribing needs a group".to_owned(),
                remedy: "set group_id, or assign partitions".to_owned(),
            });
        };
        group.subscribe(topics);
        Ok(())
    }

    /// Partitions that are read now.
    pub fn assignment(&self) -> BTreeSet<TopicPartition> {
        self.positions.assigned()
    }

    /// The group's generation that [`Consumer::assignment`] is of; `None` for one that is no member, and while the
    /// group rebalances.
    pub fn generation_id(&self) -> Option<i32> {
        self.group.as_ref().and_then(Group::generation_id)
    }

    /// Goes on elsewhere; takes effect with the next poll.
    ///
    /// # Errors
    /// The partition is not assigned.
    pub fn seek(&mut self, tp: &TopicPartition, start: StartAt) -> Result<()> {
        let start = self.start(start)?;
        self.ready.retain(|fetched| fetched.tp != *tp);
        if self.positions.seek(tp, start) { Ok(()) } else { Err(not_assigned(tp)) }
    }

    /// The next record to be given out; `None` until it is known.
    pub fn position(&self, tp: &TopicPartition) -> Option<Offset> {
        self.positions.position(tp)
    }

    /// The log's end as of the last fetch; exclusive.
    pub fn high_watermark(&self, tp: &TopicPartition) -> Option<Offset> {
        self.positions.high_watermark(tp)
    }

    /// Gives no records of the partition until [`Consumer::resume`]. It stays assigned.
    ///
    /// # Errors
    /// The partition is not assigned.
    pub fn pause(&mut self, tp: &TopicPartition) -> Result<()> {
        if self.positions.set_paused(tp, true) { Ok(()) } else { Err(not_assigned(tp)) }
    }

    /// # Errors
    /// The partition is not assigned.
    pub fn resume(&mut self, tp: &TopicPartition) -> Result<()> {
        if self.positions.set_paused(tp, false) { Ok(()) } else { Err(not_assigned(tp)) }
    }

    /// The next records, of one partition; `None` if none come within `timeout`.
    ///
    /// A group member must poll at least once in `max_poll_interval`: joining, committing and giving up partitions
    /// happens here. What an earlier poll gave counts as processed. Dropping the future loses nothing.
    ///
    /// # Errors
    /// What the application must decide: no valid position, data that fails its checks, not authorized, fenced.
    pub async fn poll(&mut self, timeout: Duration) -> Result<Option<RecordSet>> {
        let deadline = Instant::now() + timeout;
        loop {
            self.drive_group(deadline).await?;
            self.auto_commit();
            if let Err(error) = self.client.refresh_metadata_if_old().await {
                debug!(%error, "no fresh metadata");
            }
            self.find_starts().await?;
            self.start_fetches();
            while let Ok(done) = self.fetched.try_recv() {
                self.take_up(done)?;
            }
            if let Some(set) = self.next_ready() {
                // What comes next travels while the application works.
                self.start_fetches();
                return Ok(Some(set));
            }
            let now = Instant::now();
            if now >= deadline {
                return Ok(None);
            }
            let wait = self.wait_max().min(deadline - now);
            // The branches commute: each only ends the wait.
            tokio::select! {
                Some(done) = self.fetched.recv() => self.take_up(done)?,
                () = group::changed(self.group.as_ref()) => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Commits, leaves the group and stops.
    ///
    /// # Errors
    /// The commit failed; the consumer has left all the same.
    pub async fn close(mut self) -> Result<()> {
        let Some(mut group) = self.group.take() else { return Ok(()) };
        let result = match self.config.auto_commit {
            Some(_) => group.commit(&self.positions.positions()).await,
            None => Ok(()),
        };
        group.leave().await;
        result
    }

    fn start(&self, start: StartAt) -> Result<Start> {
        match start {
            StartAt::Committed if self.group.is_none() => Err(ClientError::InvalidUse {
                what: "without a group there are no committed offsets".to_owned(),
                remedy: "set group_id, or start elsewhere".to_owned(),
            }),
            StartAt::Committed => Ok(Start::Committed),
            StartAt::Offset(offset) => Ok(Start::At(offset)),
            StartAt::Spec(spec) => Ok(Start::Reset(spec)),
        }
    }

    fn now(&self) -> MonoTime {
        self.client.clock().mono()
    }

    /// Finds where partitions start that do not know it yet.
    async fn find_starts(&mut self) -> Result<()> {
        let now = self.now();
        let retry_at = now.plus(RETRY_PAUSE);
        let wanted = self.positions.want_committed(now);
        if let (false, Some(group)) = (wanted.is_empty(), &self.group) {
            match group.committed(Some(&wanted)).await {
                Ok(committed) => {
                    for tp in &wanted {
                        let offset = committed.get(tp).map(|committed| committed.offset);
                        let policy = self.config.offset_reset.spec();
                        if offset.is_none() && policy.is_none() {
                            return Err(ClientError::NoOffset {
                                topic: tp.topic.as_str().to_owned(),
                                partition: tp.partition.0,
                            });
                        }
                        self.positions.on_committed(tp, offset, policy);
                    }
                }
                Err(error) if error.is_retriable() => {
                    wanted.iter().for_each(|tp| self.positions.on_start_failed(tp, retry_at));
                }
                Err(error) => return Err(error),
            }
        }
        let wanted = self.positions.want_reset(now);
        if wanted.is_empty() {
            return Ok(());
        }
        match self.client.list_offsets(&wanted, self.config.isolation).await {
            Ok(mut found) => {
                let missing: BTreeMap<TopicPartition, OffsetSpec> = wanted
                    .iter()
                    .filter(|(tp, _)| found.get(*tp).is_none_or(|listed| listed.offset < Offset::ZERO))
                    .map(|(tp, _)| (tp.clone(), OffsetSpec::Latest))
                    .collect();
                if !missing.is_empty() {
                    // Nothing is as late as the time asked for: what comes next is.
                    found.extend(self.client.list_offsets(&missing, self.config.isolation).await?);
                }
                for (tp, spec) in wanted {
                    if let Some(listed) = found.get(&tp) {
                        self.positions.on_listed(&tp, spec, listed.offset);
                    }
                }
                Ok(())
            }
            Err(error) if error.is_retriable() => {
                wanted.keys().for_each(|tp| self.positions.on_start_failed(tp, retry_at));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Sends a fetch to every broker that has none under way and leads something to read.
    fn start_fetches(&mut self) {
        let metadata = self.client.metadata();
        let buffer_max = usize::try_from(self.config.partition_bytes_max).unwrap_or(0);
        let fetchable =
            self.positions.fetchable(self.now(), buffer_max, |tp| metadata.leader(tp.topic.as_str(), tp.partition.0));
        for (node, wanted) in fetchable.by_leader {
            if !self.fetching.insert(node) {
                continue;
            }
            for want in &wanted {
                self.positions.set_in_flight(&want.tp, want.life, true);
            }
            let (client, owner) = (self.client.clone(), self.owner);
            let (mut config, sender) = (self.config.clone(), self.fetched_sender.clone());
            if fetchable.hurried.contains(&node) {
                config.fetch_wait = Duration::ZERO;
            }
            self.fetches.spawn(async move {
                let results = fetcher::fetch(&client, &config, owner, node, wanted).await;
                let is_stale = results.iter().any(|(_, result)| matches!(result, FetchResult::Retry(_)));
                if is_stale && let Err(error) = client.refresh_metadata().await {
                    debug!(%error, "no fresh metadata");
                }
                // Nobody listens any more only when the consumer is gone.
                let _ = sender.send(FetchDone { node, results });
            });
        }
        while self.fetches.try_join_next().is_some() {}
        if fetchable.leader_unknown {
            self.find_leaders();
        }
    }

    /// Learns the topics of assigned partitions whose leader is not known, in the background.
    fn find_leaders(&mut self) {
        let metadata = self.client.metadata();
        let retry_at = self.now().plus(RETRY_PAUSE);
        let is_unknown = |tp: &TopicPartition| metadata.leader(tp.topic.as_str(), tp.partition.0).is_none();
        let unknown: BTreeSet<TopicPartition> = self.positions.assigned().into_iter().filter(is_unknown).collect();
        for tp in &unknown {
            self.positions.on_start_failed(tp, retry_at);
        }
        let client = self.client.clone();
        self.fetches.spawn(async move {
            let topics: BTreeSet<&str> = unknown.iter().map(|tp| tp.topic.as_str()).collect();
            for topic in topics {
                if let Err(error) = client.fetch_topic(topic, false).await {
                    warn!(%topic, %error, "no leader known");
                }
            }
        });
    }

    fn take_up(&mut self, done: FetchDone) -> Result<()> {
        self.fetching.remove(&done.node);
        let retry_at = self.now().plus(RETRY_PAUSE);
        let mut first_error = None;
        for (want, result) in done.results {
            match result {
                FetchResult::Data(fetched) => {
                    let next = (fetched.next > fetched.from).then_some(fetched.next);
                    let bytes = fetched.data.len();
                    let waited = self.positions.on_fetched(&want.tp, want.life, next, bytes, fetched.high_watermark);
                    if waited && next.is_some() {
                        self.ready.push_back(fetched);
                    }
                }
                FetchResult::OutOfRange => {
                    if let Err(error) = self.reset(&want) {
                        self.positions.on_fetch_failed(&want.tp, want.life, retry_at);
                        first_error.get_or_insert(error);
                    }
                }
                FetchResult::Retry(error) => {
                    debug!(tp = %want.tp, %error, "fetch failed, trying again");
                    self.positions.on_fetch_failed(&want.tp, want.life, retry_at);
                }
                FetchResult::Failed(error) => {
                    self.positions.on_fetch_failed(&want.tp, want.life, retry_at);
                    if self.positions.contains(&want.tp) {
                        first_error.get_or_insert(error);
                    }
                }
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// The position is not in the log any more: goes where the policy says.
    fn reset(&mut self, want: &ToFetch) -> Result<()> {
        // What is buffered comes before the offset that failed; it is given out first, then the fetch fails again.
        if !self.positions.contains(&want.tp) || self.ready.iter().any(|f| f.tp == want.tp && f.life == want.life) {
            self.positions.on_fetch_failed(&want.tp, want.life, self.now().plus(RETRY_PAUSE));
            return Ok(());
        }
        match self.config.offset_reset.spec() {
            Some(spec) => {
                warn!(tp = %want.tp, offset = %want.offset, policy = ?spec, "offset is not in the log, resetting");
                self.positions.seek(&want.tp, Start::Reset(spec));
                Ok(())
            }
            None => Err(ClientError::OffsetOutOfRange {
                topic: want.tp.topic.as_str().to_owned(),
                partition: want.tp.partition.0,
                offset: want.offset,
                start: Offset::NONE,
                end: self.positions.high_watermark(&want.tp).unwrap_or(Offset::NONE),
            }),
        }
    }

    fn next_ready(&mut self) -> Option<RecordSet> {
        let mut at = 0;
        while let Some(fetched) = self.ready.get(at) {
            if self.positions.is_paused(&fetched.tp) {
                at += 1;
                continue;
            }
            let fetched = self.ready.remove(at)?;
            if self.positions.on_taken(&fetched.tp, fetched.life, fetched.next, fetched.data.len()) {
                return Some(RecordSet::new(fetched));
            }
        }
        None
    }

    /// How long to wait at most before looking around again.
    fn wait_max(&self) -> Duration {
        let retry = self.positions.next_retry(self.now()).unwrap_or(WAIT_MAX);
        let commit = self.next_auto_commit.map_or(WAIT_MAX, |at| at.saturating_duration_since(Instant::now()));
        // A commit that is due but has nothing to commit must not make us spin.
        retry.min(commit.max(RETRY_PAUSE)).min(WAIT_MAX)
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.client.release(self.owner);
    }
}

/// What names a partition in this crate's answers.
pub fn topic_partition(topic: &str, partition: i32) -> Result<TopicPartition> {
    Ok(TopicPartition::new(topic_name(topic)?, PartitionIndex(partition)))
}

fn topic_name(topic: &str) -> Result<TopicName> {
    TopicName::new(topic).map_err(|error| ClientError::Broker {
        code: ErrorCode::InvalidTopicException,
        subject: format!("topic {topic:?}"),
        detail: Some(error.to_string()),
    })
}

fn not_assigned(tp: &TopicPartition) -> ClientError {
    ClientError::InvalidUse {
        what: format!("{tp} is not assigned to this consumer"),
        remedy: "assign it first, or wait for the group to do so".to_owned(),
    }
}

const RETRY_PAUSE: Duration = Duration::from_millis(100);
const WAIT_MAX: Duration = Duration::from_secs(1);
