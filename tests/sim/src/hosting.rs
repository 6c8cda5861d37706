//! A broker's replicas: the product's machines, driven as a broker's shell drives them.

use std::time::Duration;

use thalweg_broker::machine::follower::{FetchAnswer, FetchId, FetchPosition, FollowerAction};
use thalweg_broker::machine::isr::{IsrProposal, ProposalAnswer};
use thalweg_broker::machine::leader::{FetchVerdict, FollowerId};
use thalweg_broker::machine::replica::{Change, LogEnds, Replica, ReplicaSettings};
use thalweg_broker::machine::waiters::Waiters;
use thalweg_model::{BrokerEpoch, ErrorCode, LeaderEpoch, Offset, PartitionIndex, TopicId};
use thalweg_proto::v1;
use thalweg_storage::Verdict;

use crate::broker::{code, no_defaults};
use crate::coordinator::TOPIC;
use crate::log::{Sequence, SimLog, SimRecord};
use crate::message::{Body, Life, Node, Timer};
use crate::plan::{Acks, MS};
use crate::world::World;

/// A replica and what waits for it.
pub struct Hosted {
    pub replica: Replica,
    /// Highest watermark that the checker has looked at, and the leader epoch then.
    pub seen: (Offset, LeaderEpoch),
    is_flushing: bool,
    parked: Vec<Parked>,
    waits_for_all: Waiters<Waiting>,
    waits_for_leader: Waiters<Waiting>,
    /// The proposal that was sent last, until it is answered.
    asked: Option<IsrProposal>,
}

/// A follower's fetch that is answered when there is news.
struct Parked {
    life: Life,
    follower: FollowerId,
    id: FetchId,
    position: FetchPosition,
}

/// A producer that waits for its acknowledgement.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    pub client: Node,
    pub request: u64,
    pub base: Offset,
    /// Exclusive.
    pub end: Offset,
    pub acks: Acks,
}

impl Hosted {
    fn new(node: thalweg_model::NodeId, settings: ReplicaSettings, log: &SimLog) -> Hosted {
        // What recovery left is synced, as it says.
        let ends = LogEnds { flushed_offset: log.end(), ..ends(log) };
        let replica = Replica::new(node, settings, ends, Offset(log.checkpoint));
        Hosted {
            seen: (Offset::ZERO, LeaderEpoch::NONE),
            replica,
            is_flushing: false,
            parked: Vec::new(),
            waits_for_all: Waiters::default(),
            waits_for_leader: Waiters::default(),
            asked: None,
        }
    }

    pub fn is_waited_for(&self) -> bool {
        !self.waits_for_all.is_empty() || !self.waits_for_leader.is_empty()
    }
}

impl World {
    /// The feed has brought a partition's registration.
    pub fn partition_registered(&mut self, broker: usize, partition: usize) {
        let now = self.local(broker);
        let this = &mut self.brokers[broker];
        let (Some(process), log) = (&mut this.process, &mut this.disk.logs[partition]) else { return };
        let index = PartitionIndex(partition as i32);
        let Some(registration) = process.image.partition(TOPIC, index) else { return };
        let Some(slot) = process.hosted.get_mut(partition) else { return };
        if slot.is_none() && !registration.replicas.contains(&this.id) {
            return;
        }
        let config = process.image.topic_config(TOPIC, this.id, &no_defaults());
        let settings = ReplicaSettings {
            durability: config.durability,
            min_insync_replicas: usize::try_from(config.min_insync_replicas).unwrap_or(1),
            lag_max: Duration::from_nanos(self.plan.lag_max),
        };
        let hosted = slot.get_or_insert_with(|| Hosted::new(this.id, settings, log));
        let change = hosted.replica.registered(now, registration);
        match change {
            Change::Nothing => return,
            Change::News => {}
            Change::Leads { epoch, .. } => {
                if !thalweg_model::mutant!("epoch-start-record") {
                    log.begin_epoch(epoch);
                }
            }
            Change::Follows { .. } => log.forget_empty_epochs(),
            Change::Idle => {}
        }
        let line = format!("broker {}: partition {partition}: {change:?} with {registration:?}", broker + 1);
        self.tell(|_| line);
        if change != Change::News {
            self.end_leading(broker, partition);
        }
        if matches!(change, Change::Follows { .. }) {
            self.timer(broker, 0, Timer::Fetch { partition });
        }
        self.settle(broker, partition);
    }

    /// Whoever waits for a leader that is not one any more, or is one anew, is told so.
    fn end_leading(&mut self, broker: usize, partition: usize) {
        let Some((hosted, _)) = self.hosted(broker, partition) else { return };
        let parked = std::mem::take(&mut hosted.parked);
        let mut waiting: Vec<Waiting> = hosted.waits_for_all.drain().collect();
        waiting.extend(hosted.waits_for_leader.drain());
        hosted.asked = None;
        for fetch in parked {
            let error = ErrorCode::NotLeaderOrFollower;
            self.answer_fetch(broker, partition, &fetch, FetchAnswer::Error { error, log_start_offset: Offset::ZERO });
        }
        for waiting in waiting {
            self.answer_produce(broker, waiting.client, waiting.request, Err(ErrorCode::NotLeaderOrFollower));
        }
    }

    pub fn settle_all(&mut self, broker: usize) {
        for partition in 0..self.plan.partition_count {
            self.settle(broker, partition);
        }
    }

    /// Does what follows from whatever has happened to a replica, then checks it.
    pub fn settle(&mut self, broker: usize, partition: usize) {
        let Some((hosted, log)) = self.hosted(broker, partition) else { return };
        hosted.replica.advance_high_watermark();
        let (high_watermark, counted) = (hosted.replica.high_watermark(), hosted.replica.counted());
        let mut acked: Vec<Waiting> = hosted.waits_for_all.pass(high_watermark).collect();
        acked.extend(hosted.waits_for_leader.pass(counted));
        let end = log.end();
        let has_news =
            |fetch: &Parked| end > fetch.position.fetch_offset || high_watermark > fetch.position.high_watermark;
        let (ready, parked) = std::mem::take(&mut hosted.parked).into_iter().partition(has_news);
        hosted.parked = parked;
        let flush = !hosted.is_flushing && hosted.replica.flushed_offset() < end;
        hosted.is_flushing |= flush;
        // First: what is told to anybody below must hold.
        self.check_replica(broker, partition);
        for waiting in acked {
            self.check_ack(broker, partition, &waiting);
            self.counts.acked += 1;
            self.answer_produce(broker, waiting.client, waiting.request, Ok(waiting.base));
        }
        let ready: Vec<Parked> = ready;
        for fetch in ready {
            self.answer_records(broker, partition, &fetch);
        }
        if flush {
            let wait = self.plan.flush_wait;
            self.timer(broker, wait, Timer::Flush { partition });
        }
        self.propose_isr(broker, partition);
    }

    fn propose_isr(&mut self, broker: usize, partition: usize) {
        let now = self.local(broker);
        let topic = self.coordinator.topic;
        let this = &mut self.brokers[broker];
        let (Some(process), Some(topic)) = (&mut this.process, topic) else { return };
        let Some(epoch) = process.lease.epoch().filter(|_| process.lease.may_lead(now)) else { return };
        let Some(hosted) = &mut process.hosted[partition] else { return };
        let Some(proposal) = hosted.replica.proposal(now, epoch, &process.image.brokers) else { return };
        hosted.asked = Some(proposal.clone());
        let life = process.life;
        let request = alter_isr(this.id.0, topic, partition, &proposal);
        self.tell(|_| format!("broker {}: partition {partition}: proposes {:?}", broker + 1, proposal.isr));
        let body = Body::AlterIsr { life, partition, asked: proposal, request };
        self.send(Node(broker + 1), Node::COORDINATOR, body);
        let patience = self.rng.between(200, 800) * MS;
        self.timer(broker, patience, Timer::IsrTimeout { partition });
        self.check_leader(broker, partition);
    }

    pub fn proposal_answered(
        &mut self,
        broker: usize,
        partition: usize,
        asked: &IsrProposal,
        answer: &v1::AlterIsrResponse,
    ) {
        let Some((hosted, _)) = self.hosted(broker, partition) else { return };
        let of_partition = answer.partitions.first().and_then(|result| result.error.as_ref());
        let verdict = match (code(answer.error.as_ref()), code(of_partition)) {
            (ErrorCode::None, ErrorCode::NotController) => ProposalAnswer::Retry,
            // The mutant's leader takes a refusal for the end of its proposal, and nothing else.
            (ErrorCode::None, refused)
                if thalweg_model::mutant!("partition-epoch-on-refusal") && refused != ErrorCode::IneligibleReplica =>
            {
                ProposalAnswer::Retry
            }
            (ErrorCode::None, _) => ProposalAnswer::Decided,
            _ => ProposalAnswer::Retry,
        };
        // To ask again at once would be to ask the same one again: the timeout does it.
        if verdict == ProposalAnswer::Decided {
            hosted.replica.proposal_answered(asked, verdict);
            if hosted.asked.as_ref() == Some(asked) {
                hosted.asked = None;
            }
            self.settle(broker, partition);
        }
    }

    pub fn proposal_unanswered(&mut self, broker: usize, partition: usize) {
        let Some((hosted, _)) = self.hosted(broker, partition) else { return };
        if let Some(asked) = hosted.asked.take() {
            hosted.replica.proposal_answered(&asked, ProposalAnswer::Retry);
            self.settle(broker, partition);
        }
    }

    pub fn flush(&mut self, broker: usize, partition: usize) {
        let slowness = self.brokers[broker].disk.slowness;
        let duration = self.rng.between(self.plan.sync_max / 4, self.plan.sync_max) + slowness;
        let Some((hosted, log)) = self.hosted(broker, partition) else { return };
        let (up_to, generation) = (log.end(), log.generation);
        if hosted.is_flushing {
            self.timer(broker, duration, Timer::Flushed { partition, up_to, generation });
        }
    }

    pub fn flushed(&mut self, broker: usize, partition: usize, up_to: Offset, generation: u64) {
        if self.brokers[broker].disk.is_failing {
            let Some(process) = &mut self.brokers[broker].process else { return };
            process.hosted.iter_mut().flatten().for_each(|hosted| hosted.replica.failed());
            process.has_failed = true;
            self.brokers[broker].write_back_failed();
            self.tell(|_| format!("broker {}: a sync has failed", broker + 1));
            for partition in 0..self.plan.partition_count {
                self.end_leading(broker, partition);
            }
            let lingers = self.rng.between(1, 1_500) * MS;
            return self.timer(broker, lingers, Timer::Exit);
        }
        if self.brokers[broker].process.as_ref().is_none_or(|process| process.has_failed) {
            return;
        }
        let is_eager = self.plan.eager_reports;
        let Some((hosted, log)) = self.hosted(broker, partition) else { return };
        hosted.is_flushing = false;
        if generation == log.generation {
            log.synced(up_to);
            hosted.replica.flushed(up_to);
        }
        let standing = hosted.replica.follower().and_then(|follower| follower.asked());
        if let Some((id, position)) = standing.filter(|_| is_eager) {
            self.send_fetch(broker, partition, id, position);
        }
        self.settle(broker, partition);
    }

    /// Asks the leader, unless a fetch stands.
    pub fn fetch(&mut self, broker: usize, partition: usize) {
        let Some((hosted, log)) = self.hosted(broker, partition) else { return };
        if hosted.replica.follower().is_none_or(|follower| follower.asked().is_some()) {
            return;
        }
        let Some((id, position)) = hosted.replica.next_fetch(log.start(), log.last_epoch()) else { return };
        self.send_fetch(broker, partition, id, position);
        let patience = self.plan.fetch_timeout + self.plan.fetch_wait;
        self.timer(broker, patience, Timer::FetchTimeout { partition, id });
    }

    pub fn fetch_unanswered(&mut self, broker: usize, partition: usize, id: FetchId) {
        let Some((hosted, log)) = self.hosted(broker, partition) else { return };
        if hosted.replica.follower().and_then(|follower| follower.asked()).is_none_or(|(asked, _)| asked != id) {
            return;
        }
        let Some((id, position)) = hosted.replica.next_fetch(log.start(), log.last_epoch()) else { return };
        self.send_fetch(broker, partition, id, position);
        let patience = self.plan.fetch_timeout + self.plan.fetch_wait;
        self.timer(broker, patience, Timer::FetchTimeout { partition, id });
    }

    fn send_fetch(&mut self, broker: usize, partition: usize, id: FetchId, position: FetchPosition) {
        let this = &self.brokers[broker];
        let Some(process) = &this.process else { return };
        let Some(leader) = process.hosted[partition].as_ref().and_then(|hosted| hosted.replica.follower()) else {
            return;
        };
        let broker_epoch = process.lease.epoch().unwrap_or(BrokerEpoch::NONE);
        let follower = FollowerId { id: this.id, broker_epoch };
        let (life, to) = (process.life, Node(leader.leader().0 as usize));
        self.send(Node(broker + 1), to, Body::Fetch { life, partition, follower, id, position });
    }

    /// A follower's fetch has come.
    pub fn follower_fetched(
        &mut self,
        broker: usize,
        partition: usize,
        life: Life,
        follower: FollowerId,
        id: FetchId,
        position: &FetchPosition,
    ) {
        let now = self.local(broker);
        let fetch = Parked { life, follower, id, position: *position };
        let Some((hosted, log)) = self.hosted(broker, partition) else {
            let error = ErrorCode::UnknownTopicOrPartition;
            let answer = FetchAnswer::Error { error, log_start_offset: Offset::ZERO };
            return self.answer_fetch(broker, partition, &fetch, answer);
        };
        let log_start_offset = log.start();
        let lookup = |epoch| log.end_of_epoch(epoch);
        match hosted.replica.follower_fetched(now, follower, position, log_start_offset, lookup) {
            Ok(FetchVerdict::Accepted) => {
                hosted.parked.retain(|parked| parked.follower.id != follower.id);
                hosted.parked.push(fetch);
                let wait = self.plan.fetch_wait;
                let follower = follower.id.0 as usize;
                self.timer(broker, wait, Timer::FetchWait { partition, follower, id });
            }
            Ok(FetchVerdict::Diverging(end)) => {
                self.answer_fetch(broker, partition, &fetch, FetchAnswer::Diverging { end, log_start_offset });
            }
            Err(error) => {
                self.answer_fetch(broker, partition, &fetch, FetchAnswer::Error { error, log_start_offset });
            }
        }
        self.settle(broker, partition);
    }

    pub fn fetch_waited(&mut self, broker: usize, partition: usize, follower: usize, id: FetchId) {
        let Some((hosted, _)) = self.hosted(broker, partition) else { return };
        let is_it = |parked: &Parked| parked.follower.id.0 as usize == follower && parked.id == id;
        if let Some(at) = hosted.parked.iter().position(is_it) {
            let fetch = hosted.parked.swap_remove(at);
            self.answer_records(broker, partition, &fetch);
        }
    }

    fn answer_records(&mut self, broker: usize, partition: usize, fetch: &Parked) {
        let count = self.rng.between(1, 60) as usize;
        let Some((hosted, log)) = self.hosted(broker, partition) else { return };
        let high_watermark = hosted.replica.high_watermark();
        let answer = FetchAnswer::Records { high_watermark, log_start_offset: log.start() };
        let records = log.read(fetch.position.fetch_offset, count);
        self.send_answer(broker, partition, fetch, answer, records);
    }

    fn answer_fetch(&mut self, broker: usize, partition: usize, fetch: &Parked, answer: FetchAnswer) {
        self.send_answer(broker, partition, fetch, answer, Vec::new());
    }

    fn send_answer(
        &mut self,
        broker: usize,
        partition: usize,
        fetch: &Parked,
        answer: FetchAnswer,
        records: Vec<SimRecord>,
    ) {
        let high_watermark =
            self.hosted(broker, partition).map_or(Offset::ZERO, |(hosted, _)| hosted.replica.high_watermark());
        let to = Node(fetch.follower.id.0 as usize);
        let (life, id) = (fetch.life, fetch.id);
        self.send(Node(broker + 1), to, Body::FetchAnswer { life, partition, id, answer, records, high_watermark });
    }

    /// The leader has answered a fetch of ours.
    pub fn fetch_answered(
        &mut self,
        broker: usize,
        partition: usize,
        id: FetchId,
        answer: FetchAnswer,
        records: &[SimRecord],
        leaders_high_watermark: Offset,
    ) {
        let Some((hosted, log)) = self.hosted(broker, partition) else { return };
        let is_asked =
            hosted.replica.follower().and_then(|follower| follower.asked()).is_some_and(|(asked, _)| asked == id);
        if thalweg_model::mutant!("watermark-before-truncation")
            && is_asked
            && matches!(answer, FetchAnswer::Diverging { .. })
        {
            hosted.replica.copied(log.end(), leaders_high_watermark);
        }
        let before = log.end();
        let lookup = |epoch| log.end_of_epoch(epoch);
        let action = hosted.replica.fetch_answered(id, answer, log.start(), lookup);
        let mut pause = 0;
        match action {
            // The fetch may have been used up all the same; this asks anew only if none stands.
            FollowerAction::Ignore => return self.timer(broker, 0, Timer::Fetch { partition }),
            FollowerAction::Append { high_watermark, log_start_offset } => {
                log.copy(records);
                hosted.replica.copied(log.end(), high_watermark);
                if log_start_offset <= hosted.replica.high_watermark() && log.advance_start(log_start_offset) {
                    hosted.replica.log_started(log_start_offset);
                }
                self.check_appended(broker, partition, before);
            }
            FollowerAction::TruncateTo(to) => {
                log.truncate_to(to);
                hosted.replica.truncated(ends(log));
                self.tell(|_| {
                    format!("broker {}: partition {partition}: cuts its log from {before} to {to}", broker + 1)
                });
            }
            FollowerAction::StartAt(start) => {
                log.start_at(start);
                hosted.replica.truncated(ends(log));
                self.tell(|_| format!("broker {}: partition {partition}: begins anew at {start}", broker + 1));
            }
            FollowerAction::Wait(_) => pause = self.rng.between(20, 150) * MS,
        }
        self.settle(broker, partition);
        self.timer(broker, pause, Timer::Fetch { partition });
    }

    /// A producer's batch; `waiting` gets its place here.
    pub fn produced(
        &mut self,
        broker: usize,
        partition: usize,
        mut waiting: Waiting,
        values: &[u64],
        sequence: Option<Sequence>,
    ) {
        let may_lead = self.may_lead(broker);
        let now = self.local(broker);
        let Waiting { client, request, acks, .. } = waiting;
        let Some((hosted, log)) = self.hosted(broker, partition) else {
            return self.answer_produce(broker, client, request, Err(ErrorCode::UnknownTopicOrPartition));
        };
        let epoch = match hosted.replica.admit(may_lead, acks == Acks::All) {
            Ok(epoch) => epoch,
            Err(error) => return self.answer_produce(broker, client, request, Err(error)),
        };
        let before = log.end();
        match sequence.map_or(Ok(Verdict::Append), |first| log.judge(first, values.len())) {
            Ok(Verdict::Append) => {
                waiting.base = log.append(epoch, values, sequence);
                waiting.end = log.end();
                hosted.replica.appended(now, waiting.end);
            }
            // Acknowledged by the same rule as the original (P2).
            Ok(Verdict::Duplicate(stored)) => {
                waiting.base = stored.base_offset();
                waiting.end = stored.last_offset.plus(1);
                let is_same = log.record(waiting.base).is_some_and(|record| Some(&record.value) == values.first());
                if !is_same {
                    let what = format!("a repetition is said to lie at {}", waiting.base);
                    return self.checker.fail(15, format!("partition {partition}, broker {}: {what}", broker + 1));
                }
            }
            Err(_) => return self.answer_produce(broker, client, request, Err(ErrorCode::OutOfOrderSequenceNumber)),
        }
        let end = waiting.end;
        match acks {
            Acks::None => {}
            Acks::Leader => hosted.waits_for_leader.park(end, waiting),
            Acks::All if thalweg_model::mutant!("acks-all-waits") => hosted.waits_for_leader.park(end, waiting),
            Acks::All => hosted.waits_for_all.park(end, waiting),
        }
        self.check_appended(broker, partition, before);
        self.settle(broker, partition);
    }

    fn answer_produce(&mut self, broker: usize, client: Node, request: u64, result: Result<Offset, ErrorCode>) {
        self.send(Node(broker + 1), client, Body::ProduceAnswer { request, result });
    }

    /// A consumer's fetch (L9).
    pub fn consumed(
        &mut self,
        broker: usize,
        partition: usize,
        position: Offset,
        leader_epoch: LeaderEpoch,
        read_epoch: LeaderEpoch,
    ) -> Result<Vec<SimRecord>, ErrorCode> {
        let may_lead = self.may_lead(broker);
        let (hosted, log) = self.hosted(broker, partition).ok_or(ErrorCode::UnknownTopicOrPartition)?;
        if let Some(follower) = hosted.replica.follower() {
            // F6. What is out of its range the leader will judge.
            let high_watermark = hosted.replica.high_watermark();
            let is_here = follower.epoch() == leader_epoch && (log.start()..=high_watermark).contains(&position);
            let here = || log.slice(position, high_watermark).to_vec();
            return is_here.then(here).ok_or(ErrorCode::NotLeaderOrFollower);
        }
        let epoch = hosted.replica.leader().filter(|_| may_lead).ok_or(ErrorCode::NotLeaderOrFollower)?.epoch();
        if leader_epoch != epoch {
            let is_old = leader_epoch < epoch;
            return Err(if is_old { ErrorCode::FencedLeaderEpoch } else { ErrorCode::UnknownLeaderEpoch });
        }
        if position < log.start() {
            return Err(ErrorCode::OffsetOutOfRange);
        }
        // KIP-320: what was read in an epoch that ends earlier here was never committed.
        let read = Some(read_epoch).filter(|epoch| *epoch != LeaderEpoch::NONE && log.start() < position);
        let cut = read
            .and_then(|epoch| log.end_of_epoch(epoch))
            .filter(|(found, end)| *found < read_epoch || *end < position);
        if position > log.end() || cut.is_some() {
            let end = log.end();
            let what = format!(
                "broker {} leads in epoch {epoch} up to {end}; a consumer has read to {position} in {read_epoch}",
                broker + 1
            );
            self.checker.fail(13, format!("partition {partition}: {what}"));
            return Err(ErrorCode::OffsetOutOfRange);
        }
        Ok(log.slice(position, hosted.replica.high_watermark()).to_vec())
    }

    pub fn write_checkpoints(&mut self, broker: usize) {
        for partition in 0..self.plan.partition_count {
            if let Some((hosted, log)) = self.hosted(broker, partition) {
                log.checkpoint = hosted.replica.high_watermark().0;
            }
        }
    }

    /// Records below `start` go, for every reader (delete-records); never above the high watermark.
    pub fn delete_records(&mut self, broker: usize, partition: usize, start: Offset) -> bool {
        let Some((hosted, log)) = self.hosted(broker, partition) else { return false };
        if hosted.replica.leader().is_none() || start > hosted.replica.high_watermark() || !log.advance_start(start) {
            return false;
        }
        hosted.replica.log_started(start);
        self.settle(broker, partition);
        true
    }

    pub fn may_lead(&self, broker: usize) -> bool {
        let now = self.local(broker);
        self.brokers[broker].process.as_ref().is_some_and(|process| process.lease.may_lead(now))
    }

    pub fn hosted(&mut self, broker: usize, partition: usize) -> Option<(&mut Hosted, &mut SimLog)> {
        let this = &mut self.brokers[broker];
        let hosted = this.process.as_mut()?.hosted.get_mut(partition)?.as_mut()?;
        Some((hosted, &mut this.disk.logs[partition]))
    }
}

fn ends(log: &SimLog) -> LogEnds {
    LogEnds { log_start_offset: log.start(), log_end_offset: log.end(), flushed_offset: log.flushed() }
}

fn alter_isr(broker_id: i32, topic: TopicId, partition: usize, proposal: &IsrProposal) -> v1::AlterIsrRequest {
    let isr =
        proposal.isr.iter().map(|member| v1::IsrMember { broker_id: member.id.0, broker_epoch: member.broker_epoch.0 });
    v1::AlterIsrRequest {
        broker_id,
        broker_epoch: proposal.broker_epoch.0,
        partitions: vec![v1::PartitionIsr {
            topic_id: topic.0.to_vec().into(),
            partition: partition as i32,
            leader_epoch: proposal.leader_epoch.0,
            partition_epoch: proposal.partition_epoch.0,
            isr: isr.collect(),
            recovered: proposal.recovered,
        }],
    }
}
