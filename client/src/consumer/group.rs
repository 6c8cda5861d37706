//! A consumer's membership: joining in the background, heartbeats, giving partitions up in order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thalweg_model::{ErrorCode, NodeId, TopicPartition};
use thalweg_wire::codec::Request;
use thalweg_wire::messages::leave_group::MemberIdentity;
use thalweg_wire::messages::{HeartbeatRequest, LeaveGroupRequest};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tracing::{debug, info, warn};

use super::config::Rebalance;
use super::membership::{Generation, Membership, Next, State};
use super::pattern::TopicPattern;
use super::positions::Start;
use super::protocol::{Held, TopicPartitions};
use super::{Assignor, Consumer, ConsumerConfig, topic_partition};
use crate::client::{Client, Lane, OwnerId};
use crate::error::{ClientError, Result};

/// What a consumer holds of its group.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) shared: Arc<Shared>,
    pub(super) topics: Option<BTreeSet<String>>,
    /// What `topics` are the matches of; `None` if they were named.
    pub(super) pattern: Option<TopicPattern>,
    joining: Option<JoinHandle<Result<Joined>>>,
    /// Partition counts that the last assignment was made from, if we made it.
    counts: Option<BTreeMap<String, i32>>,
    counts_checked: Instant,
    heartbeats: JoinHandle<()>,
    config: ConsumerConfig,
}

/// What the consumer, its heartbeats and its joins share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) client: Client,
    pub(super) owner: OwnerId,
    pub(super) group_id: String,
    pub(super) instance_id: Option<String>,
    membership: Mutex<Membership>,
    coordinator: Mutex<Option<NodeId>>,
    /// The last assignment that was taken up.
    held: Mutex<Held>,
    /// The consumer should look at the membership.
    changed: Notify,
    /// The heartbeats should.
    stirred: Notify,
    /// What ended the membership for good.
    fatal: Mutex<Option<ClientError>>,
}

/// The outcome of a join.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) partitions: TopicPartitions,
    pub(super) assignor: Assignor,
    pub(super) counts: Option<BTreeMap<String, i32>>,
}

impl Group {
    pub(super) fn new(client: &Client, owner: OwnerId, config: &ConsumerConfig, group_id: String) -> Group {
        let now = client.clock().mono();
        let membership =
            Membership::new(config.session_timeout, config.heartbeat_interval, config.max_poll_interval, now);
        let shared = Arc::new(Shared {
            client: client.clone(),
            owner,
            group_id,
            instance_id: config.group_instance_id.clone(),
            membership: Mutex::new(membership),
            coordinator: Mutex::new(None),
            held: Mutex::default(),
            changed: Notify::new(),
            stirred: Notify::new(),
            fatal: Mutex::new(None),
        });
        Group {
            heartbeats: tokio::spawn(beat(Arc::clone(&shared))),
            shared,
            topics: None,
            pattern: None,
            joining: None,
            counts: None,
            counts_checked: Instant::now(),
            config: config.clone(),
        }
    }

    /// The generation that the assignment is of; `None` while there is none or another is being joined.
    pub(super) fn generation_id(&self) -> Option<i32> {
        let membership = self.shared.membership();
        (self.joining.is_none() && membership.is_stable()).then(|| membership.generation().generation_id)
    }

    pub(super) fn is_subscribed(&self) -> bool {
        self.topics.is_some()
    }

    pub(super) fn subscribe(&mut self, topics: BTreeSet<String>) {
        self.pattern = None;
        if self.topics.as_ref() != Some(&topics) {
            self.topics = Some(topics);
            self.shared.membership().request_rejoin();
        }
    }

    /// Leaves, unless the member is static: it may come back.
    pub(super) async fn leave(&mut self) {
        if let Some(joining) = self.joining.take() {
            joining.abort();
        }
        self.heartbeats.abort();
        if self.shared.instance_id.is_none() {
            self.shared.leave("the consumer is being closed").await;
        }
    }

    /// Members keep partitions during a rebalance only if every assignor that may be chosen allows it.
    fn is_cooperative(&self) -> bool {
        self.config.assignors.iter().all(|assignor| assignor.is_cooperative())
    }

    /// As the one who made the assignment: makes a new one when topics came or grew.
    async fn watch_topics(&mut self) {
        let Some(counts) = &self.counts else { return };
        let has_missing = counts.values().any(|count| *count == 0);
        let pause = if has_missing { MISSING_TOPIC_PAUSE } else { self.shared.client.config().metadata_max_age };
        if self.counts_checked.elapsed() < pause {
            return;
        }
        self.counts_checked = Instant::now();
        let names = counts.keys().cloned().collect();
        match self.shared.client.ask_topics(names).await {
            Ok(metadata) => {
                let now = super::join::partition_counts(&metadata, counts.keys());
                if now != *counts {
                    info!(group = self.shared.group_id, "topics changed, rebalancing");
                    self.shared.membership().request_rejoin();
                }
            }
            Err(error) => debug!(%error, "no fresh metadata"),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.heartbeats.abort();
        if let Some(joining) = &self.joining {
            joining.abort();
        }
    }
}

impl Shared {
    pub(super) fn membership(&self) -> MutexGuard<'_, Membership> {
        self.membership.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fatal(&self) -> MutexGuard<'_, Option<ClientError>> {
        self.fatal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who coordinates the group; asked for if it is not known.
    pub(super) async fn coordinator(&self) -> Result<NodeId> {
        let known = *self.coordinator.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(node) = known {
            return Ok(node);
        }
        let node = self.client.find_group_coordinator(&self.group_id).await?;
        *self.coordinator.lock().unwrap_or_else(PoisonError::into_inner) = Some(node);
        Ok(node)
    }

    pub(super) fn forget_coordinator(&self) {
        *self.coordinator.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Calls the coordinator; one that does not answer is looked for again next time.
    pub(super) async fn call<R: Request>(
        &self,
        lane: Lane,
        request: &R,
        version_max: i16,
        extra: Duration,
    ) -> Result<R::Response> {
        let node = self.coordinator().await?;
        let called = async {
            let connection = self.client.connection(node, lane).await?;
            connection.call_at_most(request, version_max, extra).await
        };
        let result = called.await;
        if matches!(result, Err(ClientError::Disconnected { .. } | ClientError::TimedOut { .. })) {
            self.forget_coordinator();
        }
        result
    }

    /// What an answer's [`Next`] asks for besides the membership's own change.
    pub(super) fn follow(&self, next: Next, code: ErrorCode) {
        match next {
            Next::Proceed => {}
            Next::FindCoordinator => self.forget_coordinator(),
            Next::JoinAgain | Next::JoinLater => self.changed.notify_one(),
            Next::Fail => {
                *self.fatal() = Some(self.error(code));
                self.changed.notify_one();
            }
        }
    }

    pub(super) fn error(&self, code: ErrorCode) -> ClientError {
        match (code, &self.instance_id) {
            (ErrorCode::FencedInstanceId, Some(instance)) => {
                ClientError::FencedInstance { group: self.group_id.clone(), instance: instance.clone() }
            }
            _ => ClientError::from_code(code as i16, format!("group {}", self.group_id), None),
        }
    }

    /// The member is in its generation: heartbeats begin.
    pub(super) fn joined(&self) {
        self.stirred.notify_one();
        self.changed.notify_one();
    }

    async fn leave(&self, reason: &str) {
        let member_id = self.membership().member_id().to_owned();
        if member_id.is_empty() {
            return;
        }
        let request = LeaveGroupRequest {
            group_id: self.group_id.clone(),
            member_id: member_id.clone(),
            members: vec![MemberIdentity {
                member_id,
                group_instance_id: self.instance_id.clone(),
                reason: Some(reason.to_owned()),
            }],
        };
        // Without it the group expels us when the session ends.
        let leaving = self.call(Lane::Group(self.owner), &request, i16::MAX, Duration::ZERO);
        if let Ok(Err(error)) = tokio::time::timeout(LEAVE_TIMEOUT, leaving).await {
            debug!(group = self.group_id, %error, "could not leave");
        }
    }

    async fn heartbeat(&self, of: &Generation) {
        let request = HeartbeatRequest {
            group_id: self.group_id.clone(),
            generation_id: of.generation_id,
            member_id: of.member_id.clone(),
            group_instance_id: self.instance_id.clone(),
        };
        match self.call(Lane::Group(self.owner), &request, i16::MAX, Duration::ZERO).await {
            Ok(answer) => {
                let code = ErrorCode::from_code(answer.error_code).unwrap_or(ErrorCode::UnknownServerError);
                let next = self.membership().on_heartbeat_answer(code, of, self.client.clock().mono());
                if code != ErrorCode::None {
                    debug!(group = self.group_id, code = code.name(), "heartbeat answered");
                }
                self.follow(next, code);
            }
            Err(error) => debug!(group = self.group_id, %error, "heartbeat failed"),
        }
    }
}

/// Resolves when the membership needs the consumer; never without a group.
pub(super) async fn changed(group: Option<&Group>) {
    match group {
        Some(group) => group.shared.changed.notified().await,
        None => std::future::pending().await,
    }
}

/// Keeps the member alive while it is in a generation and its application polls.
async fn beat(shared: Arc<Shared>) {
    loop {
        let due = shared.membership().heartbeat_due();
        let Some(due) = due else {
            shared.stirred.notified().await;
            continue;
        };
        let now = shared.client.clock().mono();
        if due > now {
            tokio::time::sleep(due.since(now)).await;
            continue;
        }
        if shared.membership().is_poll_overdue(now) {
            warn!(group = shared.group_id, "the application did not poll within max_poll_interval, leaving the group");
            shared.leave("max_poll_interval has passed without a poll").await;
            shared.membership().reset(true);
            shared.changed.notify_one();
            continue;
        }
        if shared.membership().is_session_expired(now) {
            shared.forget_coordinator();
        }
        let generation = {
            let mut membership = shared.membership();
            membership.note_heartbeat_sent(now);
            membership.generation()
        };
        shared.heartbeat(&generation).await;
    }
}

impl Consumer {
    /// Brings the membership on: until the member is in a generation with its partitions, or until `deadline`.
    pub(super) async fn drive_group(&mut self, deadline: Instant) -> Result<()> {
        loop {
            let Some(group) = &mut self.group else { return Ok(()) };
            if !group.is_subscribed() {
                return Ok(());
            }
            group.shared.membership().note_poll(self.client.clock().mono());
            let fatal = group.shared.fatal().take();
            if let Some(error) = fatal {
                self.lose_all();
                return Err(error);
            }
            if group.joining.is_none() {
                group.watch_pattern().await;
                group.watch_topics().await;
                let state = group.shared.membership().state();
                match state {
                    State::Stable => return Ok(()),
                    State::Fenced => {
                        let error = group.shared.error(ErrorCode::FencedInstanceId);
                        self.lose_all();
                        return Err(error);
                    }
                    State::Unjoined | State::Joining | State::Syncing => self.begin_join().await,
                }
            }
            let Some(joining) = self.group.as_mut().and_then(|group| group.joining.as_mut()) else { continue };
            match tokio::time::timeout_at(deadline.into(), joining).await {
                Err(_) => return Ok(()),
                Ok(joined) => {
                    if let Some(group) = &mut self.group {
                        group.joining = None;
                    }
                    // The task neither panics nor is it aborted while we hold it.
                    let joined = joined.unwrap_or(Err(ClientError::Closed))?;
                    self.apply(joined).await?;
                }
            }
        }
    }

    /// Gives up what must be given up before a join, and starts it.
    async fn begin_join(&mut self) {
        let Some(group) = &self.group else { return };
        let is_cooperative = group.is_cooperative();
        let is_lost = group.shared.membership().take_lost();
        if is_lost {
            self.lose_all();
        } else if !is_cooperative {
            let all = self.positions.assigned();
            self.revoke(all).await;
        }
        let owned = self.positions.assigned();
        if let Some(group) = &mut self.group {
            let topics = group.topics.clone().unwrap_or_default();
            let joining = super::join::join(Arc::clone(&group.shared), group.config.clone(), topics, owned);
            group.joining = Some(tokio::spawn(joining));
        }
    }

    /// Takes up a new assignment. A cooperative member that must give something up joins again afterwards.
    async fn apply(&mut self, joined: Joined) -> Result<()> {
        let mut wanted = BTreeSet::new();
        for (topic, partitions) in &joined.partitions {
            for partition in partitions {
                wanted.insert(topic_partition(topic, *partition)?);
            }
        }
        let Some(group) = &mut self.group else { return Ok(()) };
        debug!(group = group.shared.group_id, assignor = joined.assignor.name(), ?wanted, "assigned");
        let generation_id = group.shared.membership().generation().generation_id;
        *group.shared.held() = Held { partitions: joined.partitions, generation_id };
        group.counts = joined.counts;
        group.counts_checked = Instant::now();
        let had = self.positions.assigned();
        let gone: BTreeSet<TopicPartition> = had.difference(&wanted).cloned().collect();
        if !gone.is_empty() {
            self.revoke(gone).await;
            if let Some(group) = &self.group {
                group.shared.membership().request_rejoin();
            }
        }
        let added: BTreeSet<TopicPartition> = wanted.difference(&had).cloned().collect();
        self.positions.assign(wanted.into_iter().map(|tp| (tp, Start::Committed)));
        self.tell(Rebalance::Assigned(added));
        Ok(())
    }

    /// Commits and gives up partitions, in this order.
    async fn revoke(&mut self, gone: BTreeSet<TopicPartition>) {
        if gone.is_empty() {
            return;
        }
        if let (Some(_), Some(group)) = (self.config.auto_commit, &self.group) {
            let mut positions = self.positions.positions();
            positions.retain(|tp, _| gone.contains(tp));
            if let Err(error) = group.commit(&positions).await {
                warn!(%error, "positions not committed before giving partitions up; records will come again");
            }
        }
        self.drop_partitions(&gone);
        self.tell(Rebalance::Revoked(gone));
    }

    fn lose_all(&mut self) {
        let all = self.positions.assigned();
        if !all.is_empty() {
            self.drop_partitions(&all);
            self.tell(Rebalance::Lost(all));
        }
    }

    fn drop_partitions(&mut self, gone: &BTreeSet<TopicPartition>) {
        self.positions.unassign(gone);
        self.ready.retain(|fetched| !gone.contains(&fetched.tp));
    }

    fn tell(&self, rebalance: Rebalance) {
        if let Some(listener) = &self.config.on_rebalance {
            (listener.0)(&rebalance);
        }
    }
}

/// A topic that does not exist yet is looked for this often.
pub(super) const MISSING_TOPIC_PAUSE: Duration = Duration::from_secs(3);
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);
