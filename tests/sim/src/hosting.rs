//! A broker's replicas: the product's machines, driven as a broker's shell drives them.

use std::time::Duration;

use thalweg_broker::machine::follower::{FetchAnswer, FetchId, FetchPosition};
use thalweg_broker::machine::isr::{IsrProposal, ProposalAnswer};
use thalweg_broker::machine::leader::FollowerId;
use thalweg_broker::machine::replica::{Change, LogEnds, Replica, ReplicaSettings};
use thalweg_broker::machine::waiters::Waiters;
use thalweg_model::{ErrorCode, LeaderEpoch, NodeId, Offset, TopicId};
use thalweg_proto::v1;

use crate::broker::{code, no_defaults};
use crate::coordinator::TOPIC;
use crate::log::SimLog;
use crate::message::{Body, Life, Node, Timer};
use crate::parts::Part;
use crate::plan::{Acks, MS};
use crate::world::World;

/// A replica and what waits for it.
pub struct Hosted {
    pub replica: Replica,
    /// Never given twice: an answer that is meant for a replica that was given up is not taken by the one made anew.
    pub number: u64,
    /// Highest watermark that the checker has looked at, and the leader epoch then.
    pub seen: (Offset, LeaderEpoch),
    is_flushing: bool,
    pub parked: Vec<Parked>,
    pub waits_for_all: Waiters<Waiting>,
    pub waits_for_leader: Waiters<Waiting>,
    /// The proposal that was sent last, until it is answered.
    asked: Option<IsrProposal>,
}

/// A follower's fetch that is answered when there is news.
#[derive(Clone, Copy, Debug)]
pub struct Parked {
    pub life: Life,
    /// See [`Hosted::number`].
    pub hosting: u64,
    pub follower: FollowerId,
    pub id: FetchId,
    pub position: FetchPosition,
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
    fn new(node: NodeId, number: u64, settings: ReplicaSettings, log: &SimLog) -> Hosted {
        // What recovery left is synced, as it says.
        let ends = LogEnds { flushed_offset: log.end(), ..ends(log) };
        let replica = Replica::new(node, settings, ends, log.checkpoint());
        Hosted {
            seen: (Offset::ZERO, LeaderEpoch::NONE),
            replica,
            number,
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
        let part = self.parts.get(partition);
        let Some(topic) = process.image.topic_by_id(part.topic) else { return };
        let Some(registration) = topic.partitions.get(&part.index) else { return };
        if !registration.replicas.contains(&this.id) {
            return self.give_up(broker, partition, ErrorCode::NotLeaderOrFollower);
        }
        let slot = &mut process.hosted[partition];
        log.is_made = true;
        let config = process.image.topic_config(TOPIC, this.id, &no_defaults());
        let settings = ReplicaSettings {
            durability: config.durability,
            min_insync_replicas: usize::try_from(config.min_insync_replicas).unwrap_or(1),
            lag_max: Duration::from_nanos(self.plan.lag_max),
        };
        self.next_hosting += u64::from(slot.is_none());
        let hosted = slot.get_or_insert_with(|| Hosted::new(this.id, self.next_hosting, settings, log));
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
            self.end_leading(broker, partition, ErrorCode::NotLeaderOrFollower);
        }
        if matches!(change, Change::Follows { .. }) {
            self.timer(broker, 0, Timer::Fetch { partition });
        }
        self.settle(broker, partition);
    }

    /// Whoever waits for a leader that is not one any more, or is one anew, is told so.
    fn end_leading(&mut self, broker: usize, partition: usize, error: ErrorCode) {
        let Some((hosted, _)) = self.hosted(broker, partition) else { return };
        let parked = std::mem::take(&mut hosted.parked);
        let mut waiting: Vec<Waiting> = hosted.waits_for_all.drain().collect();
        waiting.extend(hosted.waits_for_leader.drain());
        hosted.asked = None;
        for fetch in parked {
            self.answer_fetch(broker, partition, &fetch, FetchAnswer::Error { error, log_start_offset: Offset::ZERO });
        }
        for waiting in waiting {
            self.answer_produce(broker, waiting.client, waiting.request, Err(error));
        }
    }

    /// The replica is not to be here any more: whoever waits is told so, and the log goes.
    fn give_up(&mut self, broker: usize, partition: usize, error: ErrorCode) {
        self.end_leading(broker, partition, error);
        let this = &mut self.brokers[broker];
        if let Some(process) = &mut this.process {
            process.hosted[partition] = None;
        }
        if this.disk.logs[partition].is_made {
            this.disk.logs[partition].remove();
            self.tell(|_| format!("broker {}: gives up its replica of partition {partition}", broker + 1));
        }
    }

    /// The feed says that a life of the topic is over.
    pub fn topic_removed(&mut self, broker: usize, topic: TopicId) {
        for partition in 0..self.parts.count() {
            if self.parts.get(partition).topic == topic {
                self.give_up(broker, partition, ErrorCode::UnknownTopicOrPartition);
            }
        }
    }

    /// What was found at the start and is nobody's: its topic was deleted, or the replica moved, while the broker was away.
    pub fn clear_unclaimed(&mut self, broker: usize) {
        for partition in 0..self.parts.count() {
            let this = &self.brokers[broker];
            let Some(process) = &this.process else { return };
            let part = self.parts.get(partition);
            let registered = process.image.topic_by_id(part.topic).and_then(|topic| topic.partitions.get(&part.index));
            let is_claimed = registered.is_some_and(|registered| registered.replicas.contains(&this.id));
            if !is_claimed && this.disk.logs[partition].is_made && !self.is_taken_for_another(broker, partition) {
                self.give_up(broker, partition, ErrorCode::UnknownTopicOrPartition);
            }
        }
    }

    /// The mutant's broker takes a log for that of another topic which has the same name by now.
    fn is_taken_for_another(&mut self, broker: usize, partition: usize) -> bool {
        if !thalweg_model::mutant!("topic-id-on-disk") {
            return false;
        }
        let index = self.parts.get(partition).index;
        let successor = self.parts.live().find(|other| self.parts.get(*other).index == index && *other != partition);
        let logs = &mut self.brokers[broker].disk.logs;
        let Some(successor) = successor.filter(|successor| !logs[*successor].is_made) else { return false };
        logs.swap(partition, successor);
        true
    }

    pub fn settle_all(&mut self, broker: usize) {
        for partition in 0..self.parts.count() {
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
        let part = self.parts.get(partition);
        let this = &mut self.brokers[broker];
        let Some(process) = &mut this.process else { return };
        let Some(epoch) = process.lease.epoch().filter(|_| process.lease.may_lead(now)) else { return };
        let Some(hosted) = &mut process.hosted[partition] else { return };
        let Some(proposal) = hosted.replica.proposal(now, epoch, &process.image.brokers) else { return };
        hosted.asked = Some(proposal.clone());
        let life = process.life;
        let request = alter_isr(this.id.0, part, &proposal);
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
            for partition in 0..self.parts.count() {
                self.end_leading(broker, partition, ErrorCode::KafkaStorageError);
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

    pub fn write_checkpoints(&mut self, broker: usize) {
        for partition in 0..self.parts.count() {
            if let Some((hosted, log)) = self.hosted(broker, partition) {
                log.write_checkpoint(hosted.replica.high_watermark());
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

    /// Which replica of the partition runs on a broker now.
    pub fn hosting(&self, broker: usize, partition: usize) -> Option<u64> {
        self.brokers[broker].process.as_ref()?.hosted[partition].as_ref().map(|hosted| hosted.number)
    }

    pub fn hosted(&mut self, broker: usize, partition: usize) -> Option<(&mut Hosted, &mut SimLog)> {
        let this = &mut self.brokers[broker];
        let hosted = this.process.as_mut()?.hosted.get_mut(partition)?.as_mut()?;
        Some((hosted, &mut this.disk.logs[partition]))
    }
}

pub fn ends(log: &SimLog) -> LogEnds {
    LogEnds { log_start_offset: log.start(), log_end_offset: log.end(), flushed_offset: log.flushed() }
}

fn alter_isr(broker_id: i32, part: Part, proposal: &IsrProposal) -> v1::AlterIsrRequest {
    let isr =
        proposal.isr.iter().map(|member| v1::IsrMember { broker_id: member.id.0, broker_epoch: member.broker_epoch.0 });
    v1::AlterIsrRequest {
        broker_id,
        broker_epoch: proposal.broker_epoch.0,
        partitions: vec![v1::PartitionIsr {
            topic_id: part.topic.0.to_vec().into(),
            partition: part.index.0,
            leader_epoch: proposal.leader_epoch.0,
            partition_epoch: proposal.partition_epoch.0,
            isr: isr.collect(),
            recovered: proposal.recovered,
        }],
    }
}
