//! One replica of a partition on this broker: role, watermarks, what may be acknowledged.
//!
//! ```text
//! Idle, Leader, Follower --registered: leads--> Leader      (L1: the driver begins the epoch in the log)
//! Idle, Leader, Follower --registered: another leads--> Follower   (F1: the driver drops epochs without records)
//! Idle, Leader, Follower --registered: no leader, or no replica here--> Idle
//! any --failed--> Offline, for good (G2)
//! ```
//! Registrations with a partition epoch that is not larger than the known one change nothing. The log itself is elsewhere;
//! whoever owns it tells this machine what happened to it.

use std::collections::BTreeMap;

use thalweg_model::invariant::InvariantId;
use thalweg_model::{Durability, ErrorCode, LeaderEpoch, MonoTime, NodeId, Offset, PartitionEpoch, check, mutant};

use super::follower::{FetchAnswer, FetchId, FetchPosition, Follower, FollowerAction};
use super::image::{BrokerImage, PartitionImage};
use super::isr::{IsrProposal, ProposalAnswer};
use super::leader::{FetchVerdict, FollowerId, Judgement, Leader};

/// A replica's state. All offsets exclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    node: NodeId,
    settings: ReplicaSettings,
    log_end_offset: Offset,
    flushed_offset: Offset,
    high_watermark: Offset,
    /// The newest registration that was heard.
    known: Option<(LeaderEpoch, PartitionEpoch)>,
    role: Role,
    next_fetch_id: u64,
}

/// What a replica does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Nobody leads, or nothing was heard yet.
    Idle,
    Leader(Leader),
    Follower(Follower),
    /// Its disk failed.
    Offline,
}

/// What an operator chose for the topic and the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaSettings {
    pub durability: Durability,
    pub min_insync_replicas: usize,
    /// A follower that had not everything for longer than this leaves the ISR.
    pub lag_max: std::time::Duration,
}

/// What a log says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnds {
    /// Inclusive.
    pub log_start_offset: Offset,
    pub log_end_offset: Offset,
    pub flushed_offset: Offset,
}

/// What a registration changed; the log follows before anything else happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Old news, or this replica is offline.
    Nothing,
    /// The same role in the same epoch; ISR or replicas may differ.
    News,
    /// Record durably that the epoch begins at the log's end (L1). `goes_on`: it led up to now, so nobody has cut its log, and
    /// whoever waits for a record to be committed still waits for that very record.
    Leads { epoch: LeaderEpoch, goes_on: bool },
    /// Forget epochs that have no records (F1), then fetch.
    Follows { leader: NodeId, epoch: LeaderEpoch },
    /// Serve nothing.
    Idle,
}

impl Replica {
    /// A replica as its log was found. `high_watermark` is the checkpointed lower bound (G6); it is put within the log.
    pub fn new(node: NodeId, settings: ReplicaSettings, log: LogEnds, high_watermark: Offset) -> Replica {
        Replica {
            node,
            settings,
            log_end_offset: log.log_end_offset,
            flushed_offset: log.flushed_offset,
            high_watermark: high_watermark.max(log.log_start_offset).min(log.log_end_offset),
            known: None,
            role: Role::Idle,
            next_fetch_id: 0,
        }
    }

    /// Whose replica this is.
    pub fn node(&self) -> NodeId {
        self.node
    }

    pub fn role(&self) -> &Role {
        &self.role
    }

    pub fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    pub fn log_end_offset(&self) -> Offset {
        self.log_end_offset
    }

    /// Everything below is on stable storage here (FLO).
    pub fn flushed_offset(&self) -> Offset {
        self.flushed_offset
    }

    pub fn leader(&self) -> Option<&Leader> {
        match &self.role {
            Role::Leader(leader) => Some(leader),
            Role::Idle | Role::Follower(_) | Role::Offline => None,
        }
    }

    pub fn follower(&self) -> Option<&Follower> {
        match &self.role {
            Role::Follower(follower) => Some(follower),
            Role::Idle | Role::Leader(_) | Role::Offline => None,
        }
    }

    /// The epoch of the newest registration that was heard, whatever our role in it.
    pub fn known_epoch(&self) -> Option<LeaderEpoch> {
        self.known.map(|(epoch, _)| epoch)
    }

    /// K of this replica: below it, records may be counted (REPLICATION 3.1).
    pub fn counted(&self) -> Offset {
        match self.settings.durability {
            Durability::Flushed if mutant!("flush-gate") => self.log_end_offset,
            Durability::Flushed => self.flushed_offset,
            Durability::Replicated => self.log_end_offset,
        }
    }

    /// Takes what the coordinator says of the partition.
    pub fn registered(&mut self, now: MonoTime, registration: &PartitionImage) -> Change {
        let news = (registration.leader_epoch, registration.partition_epoch);
        let is_news = self.known.is_none_or(|(epoch, partition_epoch)| news.0 >= epoch && news.1 > partition_epoch);
        if (!is_news && !mutant!("newer-registrations-only")) || self.role == Role::Offline {
            return Change::Nothing;
        }
        let is_epoch_new = self.known.is_none_or(|(epoch, _)| news.0 > epoch);
        self.known = Some(news);
        if !is_epoch_new {
            if let Role::Leader(leader) = &mut self.role {
                leader.registered(registration, self.log_end_offset, now);
            }
            return Change::News;
        }
        let min_isr = self.settings.min_insync_replicas;
        match registration.leader.filter(|_| registration.replicas.contains(&self.node)) {
            Some(leader) if leader == self.node => {
                let goes_on = self.leader().is_some();
                let leader = Leader::new(self.node, registration, self.log_end_offset, min_isr, now);
                self.role = Role::Leader(leader);
                Change::Leads { epoch: news.0, goes_on }
            }
            Some(leader) => {
                self.role = Role::Follower(Follower::new(leader, news.0));
                Change::Follows { leader, epoch: news.0 }
            }
            None => {
                self.role = Role::Idle;
                Change::Idle
            }
        }
    }

    /// The disk failed: this replica does nothing any more until it is opened again.
    pub fn failed(&mut self) {
        self.role = Role::Offline;
    }

    pub fn configure(&mut self, settings: ReplicaSettings) {
        self.settings = settings;
        if let Role::Leader(leader) = &mut self.role {
            leader.set_min_insync_replicas(settings.min_insync_replicas);
        }
    }

    /// Whether a batch may be appended, and in which epoch (L2).
    ///
    /// # Errors
    /// Not leading, or no longer sure to (6); too few in-sync replicas for acks=all (19); the disk failed (56).
    pub fn admit(&self, may_lead: bool, acks_all: bool) -> Result<LeaderEpoch, ErrorCode> {
        match &self.role {
            Role::Offline => Err(ErrorCode::KafkaStorageError),
            Role::Leader(leader) if may_lead => {
                if acks_all && !leader.has_min_isr() {
                    return Err(ErrorCode::NotEnoughReplicas);
                }
                Ok(leader.epoch())
            }
            Role::Idle | Role::Leader(_) | Role::Follower(_) => Err(ErrorCode::NotLeaderOrFollower),
        }
    }

    /// The leader's log has grown.
    pub fn appended(&mut self, now: MonoTime, log_end_offset: Offset) {
        check!(InvariantId::Log2, log_end_offset >= self.log_end_offset);
        if let Role::Leader(leader) = &mut self.role
            && log_end_offset > self.log_end_offset
        {
            leader.appended(now, self.log_end_offset, log_end_offset);
        }
        self.log_end_offset = log_end_offset;
    }

    pub fn flushed(&mut self, flushed_offset: Offset) {
        check!(InvariantId::Log3, flushed_offset <= self.log_end_offset, "flushed {flushed_offset}");
        self.flushed_offset = self.flushed_offset.max(flushed_offset);
        self.report();
    }

    /// Records below `log_start_offset` are gone; the watermark is never left among them.
    pub fn log_started(&mut self, log_start_offset: Offset) {
        check!(InvariantId::Log1, log_start_offset <= self.log_end_offset);
        self.high_watermark = self.high_watermark.max(log_start_offset);
    }

    /// Moves the high watermark up to the least counted offset of the maximal ISR.
    ///
    /// Returns the new value, or `None` if it did not move. Never falls within one leader epoch (HW-1).
    ///
    /// Source: KIP-497 (maximal ISR), KIP-966 (min ISR).
    pub fn advance_high_watermark(&mut self) -> Option<Offset> {
        let committed = self.leader()?.committed(self.counted())?;
        if committed <= self.high_watermark {
            return None;
        }
        check!(InvariantId::Log1, committed <= self.log_end_offset);
        self.high_watermark = committed;
        Some(committed)
    }

    /// Below it, a new leader cannot yet say what is committed (L9): ListOffsets(latest) waits.
    pub fn knows_latest(&self) -> bool {
        self.leader().is_some_and(|leader| self.high_watermark >= leader.epoch_start_offset())
    }

    /// A follower asks us. After an accepted fetch the watermark may move and a proposal be due.
    ///
    /// # Errors
    /// As [`Leader::follower_fetched`]; we do not lead (6), our disk failed (56).
    pub fn follower_fetched(
        &mut self,
        now: MonoTime,
        follower: FollowerId,
        fetch: &FetchPosition,
        log_start_offset: Offset,
        end_of_epoch: impl FnOnce(LeaderEpoch) -> Option<(LeaderEpoch, Offset)>,
    ) -> Result<FetchVerdict, ErrorCode> {
        let log = self.ends(log_start_offset);
        match &mut self.role {
            Role::Leader(leader) => leader.follower_fetched(now, follower, fetch, log, end_of_epoch),
            Role::Offline => Err(ErrorCode::KafkaStorageError),
            Role::Idle | Role::Follower(_) => Err(ErrorCode::NotLeaderOrFollower),
        }
    }

    /// The proposal to send to the coordinator now, if there is one (L5-L7). Not to be asked without a lease (B4).
    pub fn proposal(
        &mut self,
        now: MonoTime,
        broker_epoch: thalweg_model::BrokerEpoch,
        brokers: &BTreeMap<NodeId, BrokerImage>,
    ) -> Option<IsrProposal> {
        let by = Judgement { now, lag_max: self.settings.lag_max, brokers, broker_epoch };
        match &mut self.role {
            Role::Leader(leader) => leader.proposal(self.log_end_offset, self.high_watermark, by),
            Role::Idle | Role::Follower(_) | Role::Offline => None,
        }
    }

    pub fn proposal_answered(&mut self, asked: &IsrProposal, answer: ProposalAnswer) {
        if let Role::Leader(leader) = &mut self.role {
            leader.proposal_answered(asked, answer);
        }
    }

    /// The fetch to send to the leader next; from here on an answer to an earlier one is ignored. `None` while we do not
    /// follow.
    ///
    /// `last_epoch`: of the log's last record.
    pub fn next_fetch(
        &mut self,
        log_start_offset: Offset,
        last_epoch: Option<LeaderEpoch>,
    ) -> Option<(FetchId, FetchPosition)> {
        let id = FetchId(self.next_fetch_id);
        let (fetch_offset, counted, high_watermark) = (self.log_end_offset, self.counted(), self.high_watermark);
        let Role::Follower(follower) = &mut self.role else { return None };
        let position = FetchPosition {
            leader_epoch: follower.epoch(),
            fetch_offset,
            last_fetched_epoch: last_epoch.unwrap_or(LeaderEpoch::NONE),
            counted,
            log_start_offset,
            high_watermark,
        };
        follower.ask(id, position);
        self.next_fetch_id += 1;
        Some((id, position))
    }

    /// The leader answered. The action is carried out before anything else happens to the log.
    pub fn fetch_answered(
        &mut self,
        id: FetchId,
        answer: FetchAnswer,
        log_start_offset: Offset,
        end_of_epoch: impl FnOnce(LeaderEpoch) -> Option<(LeaderEpoch, Offset)>,
    ) -> FollowerAction {
        let (log, high_watermark) = (self.ends(log_start_offset), self.high_watermark);
        match &mut self.role {
            Role::Follower(follower) => follower.answered(id, answer, log, high_watermark, end_of_epoch),
            Role::Idle | Role::Leader(_) | Role::Offline => FollowerAction::Ignore,
        }
    }

    /// A follower's log holds the leader's records up to `log_end_offset` now (F3). Returns the watermark if it moved.
    pub fn copied(&mut self, log_end_offset: Offset, leader_high_watermark: Offset) -> Option<Offset> {
        check!(InvariantId::Log2, log_end_offset >= self.log_end_offset);
        self.log_end_offset = log_end_offset;
        // A new leader may know less than we do; what was committed stays so.
        let high_watermark = leader_high_watermark.min(log_end_offset).max(self.high_watermark);
        let moved = high_watermark > self.high_watermark;
        self.high_watermark = high_watermark;
        self.report();
        moved.then_some(high_watermark)
    }

    /// A follower's log was cut, or emptied and begun elsewhere.
    pub fn truncated(&mut self, log: LogEnds) {
        self.log_end_offset = log.log_end_offset;
        self.flushed_offset = log.flushed_offset;
        self.high_watermark = self.high_watermark.min(log.log_end_offset).max(log.log_start_offset);
        if let Role::Follower(follower) = &mut self.role {
            follower.abandon();
        }
    }

    /// Lets the standing fetch report what we count now.
    fn report(&mut self) {
        let (counted, high_watermark) = (self.counted(), self.high_watermark);
        if let Role::Follower(follower) = &mut self.role {
            follower.report(counted, high_watermark);
        }
    }

    fn ends(&self, log_start_offset: Offset) -> LogEnds {
        let (log_end_offset, flushed_offset) = (self.log_end_offset, self.flushed_offset);
        LogEnds { log_start_offset, log_end_offset, flushed_offset }
    }
}

#[cfg(test)]
mod tests;
