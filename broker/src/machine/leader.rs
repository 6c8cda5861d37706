//! A partition's leader within one leader epoch (REPLICATION 3.5).

use std::collections::BTreeMap;
use std::time::Duration;

use thalweg_model::{BrokerEpoch, ErrorCode, LeaderEpoch, MonoTime, NodeId, Offset, mutant};

use super::follower::{EpochEnd, FetchPosition};
use super::image::{BrokerImage, PartitionImage};
use super::isr::{Isr, IsrMember, IsrProposal, ProposalAnswer};
use super::replica::LogEnds;

/// What a leader knows beyond its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    node: NodeId,
    epoch: LeaderEpoch,
    /// Log end offset when the epoch was taken (LESO).
    epoch_start_offset: Offset,
    replicas: Vec<NodeId>,
    /// See [`PartitionImage::factor`].
    factor: usize,
    isr: Isr,
    /// Invariant: of replicas only, never the leader itself.
    followers: BTreeMap<NodeId, Progress>,
    /// As configured; see [`Leader::min_isr`].
    min_insync_replicas: usize,
    recovering: bool,
}

/// How far a follower has come in this epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Progress {
    /// `None` until it has fetched in this epoch.
    fetched: Option<Fetched>,
    /// When it was last known to have everything. While it has everything, that is now, whatever stands here.
    caught_up_at: MonoTime,
    /// A log end, and when it was the end: a follower that counts it had everything at that time.
    mark: (Offset, MonoTime),
}

/// The last fetch of a follower that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fetched {
    counted: Offset,
    log_end_offset: Offset,
    broker_epoch: BrokerEpoch,
}

/// What a fetch of a follower came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchVerdict {
    /// Its log is a prefix of ours: read from its position on, up to our log's end, and answer our high watermark.
    Accepted,
    /// Its log has what ours does not: answer this alone.
    Diverging(EpochEnd),
}

/// Who follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowerId {
    pub id: NodeId,
    /// The life that it fetches in.
    pub broker_epoch: BrokerEpoch,
}

/// What a proposal is judged by.
#[derive(Clone, Copy, Debug)]
pub struct Judgement<'a> {
    pub now: MonoTime,
    /// A member that had not everything for longer than this leaves (`replica.lag.time.max.ms`).
    pub lag_max: Duration,
    pub brokers: &'a BTreeMap<NodeId, BrokerImage>,
    /// This broker's current life; proposals carry it.
    pub broker_epoch: BrokerEpoch,
}

impl Leader {
    /// Takes the epoch with an empty view of the followers (L1).
    pub fn new(
        node: NodeId,
        registration: &PartitionImage,
        log_end_offset: Offset,
        min_insync_replicas: usize,
        now: MonoTime,
    ) -> Leader {
        let mut leader = Leader {
            node,
            epoch: registration.leader_epoch,
            epoch_start_offset: log_end_offset,
            replicas: Vec::new(),
            factor: 1,
            isr: Isr::new(registration.isr.iter().copied(), registration.partition_epoch),
            followers: BTreeMap::new(),
            min_insync_replicas,
            recovering: registration.recovering,
        };
        leader.set_replicas(registration, &[], log_end_offset, now);
        leader
    }

    pub fn epoch(&self) -> LeaderEpoch {
        self.epoch
    }

    pub fn epoch_start_offset(&self) -> Offset {
        self.epoch_start_offset
    }

    pub fn isr(&self) -> &Isr {
        &self.isr
    }

    pub fn set_min_insync_replicas(&mut self, count: usize) {
        self.min_insync_replicas = count;
    }

    /// `min.insync.replicas` beyond the number of replicas, moves left out, counts as that number, as at the coordinator.
    pub fn min_isr(&self) -> usize {
        self.min_insync_replicas.clamp(1, self.factor.max(1))
    }

    /// Whether acks=all may be taken on (L2).
    pub fn has_min_isr(&self) -> bool {
        self.isr.agreed().len() >= self.min_isr()
    }

    /// Whether every replica is in the ISR and no change is under way: then only a follower's silence can be a reason for one.
    pub fn is_complete(&self) -> bool {
        self.isr.is_settled() && self.isr.agreed().len() == self.replicas.len() && !self.recovering
    }

    /// News of the same epoch.
    pub fn registered(&mut self, registration: &PartitionImage, log_end_offset: Offset, now: MonoTime) {
        let before: Vec<NodeId> = self.isr.agreed().iter().copied().collect();
        if !self.isr.registered(registration.isr.iter().copied(), registration.partition_epoch) {
            return;
        }
        self.recovering = registration.recovering;
        self.set_replicas(registration, &before, log_end_offset, now);
    }

    /// Judges a follower's fetch and takes note of it (L3). Only an accepted one changes anything.
    ///
    /// `end_of_epoch`: the largest epoch of our log not above the asked one, and its exclusive end.
    ///
    /// # Errors
    /// The follower's fault, or it has not heard of us yet: the epoch is older (74) or newer (75), the follower no replica (6)
    /// or in a life that has ended (77), its position below our log's start (1).
    pub fn follower_fetched(
        &mut self,
        now: MonoTime,
        follower: FollowerId,
        fetch: &FetchPosition,
        log: LogEnds,
        end_of_epoch: impl FnOnce(LeaderEpoch) -> Option<(LeaderEpoch, Offset)>,
    ) -> Result<FetchVerdict, ErrorCode> {
        if fetch.leader_epoch != self.epoch && !mutant!("leader-epoch-on-fetch") {
            let is_old = fetch.leader_epoch < self.epoch;
            return Err(if is_old { ErrorCode::FencedLeaderEpoch } else { ErrorCode::UnknownLeaderEpoch });
        }
        if follower.id == self.node || !self.replicas.contains(&follower.id) {
            return Err(ErrorCode::NotLeaderOrFollower);
        }
        let known = self.followers.get(&follower.id).copied();
        let last_life = known.and_then(|progress| progress.fetched).map(|fetched| fetched.broker_epoch);
        if last_life.is_some_and(|last| follower.broker_epoch < last) && !mutant!("stale-life-fetch") {
            return Err(ErrorCode::StaleBrokerEpoch);
        }
        if fetch.fetch_offset < log.log_start_offset {
            return Err(ErrorCode::OffsetOutOfRange);
        }
        if let Some(diverging) = diverging(fetch, log, end_of_epoch) {
            return Ok(FetchVerdict::Diverging(diverging));
        }
        let unknown = Progress { fetched: None, caught_up_at: MonoTime::ZERO, mark: (log.log_end_offset, now) };
        let mut progress = known.unwrap_or(unknown);
        progress.fetched(now, follower.broker_epoch, fetch, log.log_end_offset);
        self.followers.insert(follower.id, progress);
        Ok(FetchVerdict::Accepted)
    }

    /// Our own log has grown: who had everything until now has not any more.
    pub fn appended(&mut self, now: MonoTime, before: Offset, after: Offset) {
        for progress in self.followers.values_mut() {
            if progress.has_everything(before) {
                progress.caught_up_at = now;
                progress.mark = (after, now);
            }
        }
    }

    /// The least counted offset of the maximal ISR, where `own` is the leader's; `None` while it must not move (L4).
    pub fn committed(&self, own: Offset) -> Option<Offset> {
        if !self.has_min_isr() && !mutant!("strict-min-isr") {
            return None;
        }
        let counted = |id: NodeId| {
            if id == self.node { Some(own) } else { self.followers.get(&id)?.fetched.map(|fetched| fetched.counted) }
        };
        // A member that was not heard of in this epoch holds the watermark where it is.
        self.isr.maximal().map(counted).collect::<Option<Vec<Offset>>>()?.into_iter().min()
    }

    /// How many records the replicas lack that lack most: 0 when all have everything. A replica that has not fetched yet
    /// lacks everything.
    pub fn replica_lag(&self, log: LogEnds) -> i64 {
        let others = self.replicas.iter().filter(|id| **id != self.node);
        let end_of = |id: &NodeId| Some(self.followers.get(id)?.fetched?.log_end_offset);
        let lag = others.map(|id| log.log_end_offset.since(end_of(id).unwrap_or(log.log_start_offset)));
        lag.max().unwrap_or(0).max(0)
    }

    /// Opens a proposal if the ISR should be another one and none is open; returns what is to be sent now (L5-L7).
    pub fn proposal(
        &mut self,
        log_end_offset: Offset,
        high_watermark: Offset,
        by: Judgement<'_>,
    ) -> Option<IsrProposal> {
        if self.isr.is_settled()
            && let Some(isr) = self.wanted_isr(log_end_offset, high_watermark, by)
        {
            let proposal = IsrProposal {
                broker_epoch: by.broker_epoch,
                leader_epoch: self.epoch,
                partition_epoch: self.isr.partition_epoch(),
                isr,
                recovered: self.recovering,
            };
            self.isr.propose(proposal);
        }
        let mut due = self.isr.take_due();
        if mutant!("identical-retry") {
            let life = |id: &NodeId| by.brokers.get(id).map_or(BrokerEpoch::NONE, |broker| broker.epoch);
            due.iter_mut().flat_map(|due| &mut due.isr).for_each(|member| member.broker_epoch = life(&member.id));
        }
        due
    }

    /// See [`Isr::answered`].
    pub fn proposal_answered(&mut self, asked: &IsrProposal, answer: ProposalAnswer) {
        self.isr.answered(asked, answer);
    }

    /// The ISR as it should be; `None` if that is the agreed one.
    fn wanted_isr(&self, log_end_offset: Offset, high_watermark: Offset, by: Judgement<'_>) -> Option<Vec<IsrMember>> {
        let life = |id: NodeId| by.brokers.get(&id).map_or(BrokerEpoch::NONE, |broker| broker.epoch);
        let leader = IsrMember { id: self.node, broker_epoch: by.broker_epoch };
        if self.recovering {
            // Alone first: the set grows from what this leader has (REPLICATION 3.4, RECOVERING).
            return Some(vec![leader]);
        }
        if !self.replicas.contains(&self.node) {
            return None;
        }
        let stays =
            |id: NodeId| by.brokers.get(&id).is_some_and(|broker| !broker.fenced) && !self.lags(id, log_end_offset, by);
        let mut isr: Vec<IsrMember> = Vec::new();
        for id in self.replicas.iter().copied() {
            if id == self.node {
                isr.push(leader);
            } else if self.isr.agreed().contains(&id) {
                if stays(id) {
                    isr.push(IsrMember { id, broker_epoch: life(id) });
                }
            } else if let Some(broker_epoch) = self.may_join(id, high_watermark, by) {
                isr.push(IsrMember { id, broker_epoch });
            }
        }
        isr.sort_by_key(|member| member.id);
        let changes = !isr.iter().map(|member| &member.id).eq(self.isr.agreed());
        changes.then_some(isr)
    }

    fn lags(&self, id: NodeId, log_end_offset: Offset, by: Judgement<'_>) -> bool {
        let Some(progress) = self.followers.get(&id) else { return true };
        !progress.has_everything(log_end_offset) && by.now.since(progress.caught_up_at) > by.lag_max
    }

    /// The life in which a follower may enter the ISR (L6): it counts all that is committed and all from before this epoch,
    /// has proved so in this epoch, and has not been replaced by another life that may have lost it.
    fn may_join(&self, id: NodeId, high_watermark: Offset, by: Judgement<'_>) -> Option<BrokerEpoch> {
        let fetched = self.followers.get(&id)?.fetched?;
        let broker = by.brokers.get(&id)?;
        let is_same_life = broker.epoch == fetched.broker_epoch || mutant!("broker-epoch-at-join");
        let is_eligible = !broker.fenced && !broker.shutting_down && is_same_life;
        let has_committed = fetched.counted >= high_watermark || mutant!("watermark-at-join");
        let has_all = has_committed && (fetched.counted >= self.epoch_start_offset || mutant!("epoch-start-at-join"));
        (is_eligible && has_all).then_some(fetched.broker_epoch)
    }

    /// Whoever is no replica is forgotten; whoever was not in the ISR `before` gets the time that any member has.
    fn set_replicas(
        &mut self,
        registration: &PartitionImage,
        before: &[NodeId],
        log_end_offset: Offset,
        now: MonoTime,
    ) {
        self.replicas.clone_from(&registration.replicas);
        self.factor = registration.factor();
        self.followers.retain(|id, _| registration.replicas.contains(id));
        for id in registration.isr.iter().filter(|id| **id != self.node && !before.contains(id)) {
            let fresh = Progress { fetched: None, caught_up_at: now, mark: (log_end_offset, now) };
            self.followers.entry(*id).or_insert(fresh).caught_up_at = now;
        }
    }
}

impl Progress {
    fn has_everything(&self, log_end_offset: Offset) -> bool {
        self.fetched.is_some_and(|fetched| fetched.counted >= log_end_offset)
    }

    fn fetched(&mut self, now: MonoTime, broker_epoch: BrokerEpoch, fetch: &FetchPosition, log_end_offset: Offset) {
        // A follower cannot count what it does not have, whatever it says.
        let counted = fetch.counted.min(fetch.fetch_offset);
        self.fetched = Some(Fetched { counted, log_end_offset: fetch.fetch_offset, broker_epoch });
        if counted >= log_end_offset {
            self.caught_up_at = now;
        } else if counted >= self.mark.0 {
            self.caught_up_at = self.mark.1;
        } else {
            return;
        }
        self.mark = (log_end_offset, now);
    }
}

/// Where the follower's log stops being ours; `None` while it is a prefix.
fn diverging(
    fetch: &FetchPosition,
    log: LogEnds,
    end_of_epoch: impl FnOnce(LeaderEpoch) -> Option<(LeaderEpoch, Offset)>,
) -> Option<EpochEnd> {
    let asked = fetch.last_fetched_epoch;
    let is_beyond = fetch.fetch_offset > log.log_end_offset;
    if asked == LeaderEpoch::NONE {
        // An empty log agrees with any other. One that begins beyond our end must not leave out what we have.
        return is_beyond.then_some(EpochEnd { epoch: asked, end_offset: log.log_start_offset });
    }
    if mutant!("truncation-by-epoch") {
        return is_beyond.then_some(EpochEnd { epoch: asked, end_offset: log.log_end_offset });
    }
    let (epoch, end) = end_of_epoch(asked).unwrap_or((asked, log.log_end_offset));
    let diverges = epoch < asked || end < fetch.fetch_offset || is_beyond;
    diverges.then_some(EpochEnd { epoch, end_offset: end.min(log.log_end_offset) })
}
