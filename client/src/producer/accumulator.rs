//! Which records leave when, in which batch and with which sequence: the producer without its I/O.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use thalweg_model::{ErrorCode, MonoTime, NodeId, Offset, ProducerEpoch, Timestamp, TopicPartition};

use super::batch::{Batch, BatchId, ID_ROOM, Identity, Sequence};
use super::delivery::{Delivery, Fate, Outcome};
use super::record::BatchRecord;
use crate::error::ClientError;

/// Queues of batches by partition.
///
/// A batch is *open* (takes records), *closed* (full, or its linger is over), *in flight*, and then done or
/// waiting again. Order within a partition is kept over retries:
/// - with idempotence up to five batches are in flight; each has a sequence when it first leaves and keeps it. One
///   that comes back goes out again only when no earlier one is in flight, and no new one passes it (KIP-98).
/// - without it one batch is in flight at a time.
///
/// A broker that knows nothing of a producer takes any sequence as its first: the first batch under an identity goes
/// alone, else the second could be written before it.
///
/// When a batch with a sequence fails for good and later ones have theirs already, there is a *gap*: the broker
/// refuses the later ones (45). As they come back they lose their sequences, and when none is left the partition
/// goes on from sequence 0 under the producer's next epoch (KIP-360). A batch that may have been written never
/// gets a second sequence, so that no record is written twice.
#[derive(Debug)]
pub(crate) struct Accumulator {
    config: AccumulatorConfig,
    /// `None` until the broker gave one, and when its epochs are used up.
    identity: Option<Identity>,
    partitions: BTreeMap<TopicPartition, Queue>,
    next_id: u64,
    /// Bytes of batches that are done, to be given back.
    freed_bytes: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct AccumulatorConfig {
    pub(crate) batch_bytes: usize,
    pub(crate) request_bytes_max: usize,
    pub(crate) linger: Duration,
    pub(crate) delivery_timeout: Duration,
    pub(crate) retry_backoff: Duration,
    pub(crate) idempotent: bool,
}

/// A batch to send now.
#[derive(Clone, Debug)]
pub(crate) struct Outbound {
    pub(crate) tp: TopicPartition,
    pub(crate) id: BatchId,
    pub(crate) records: Arc<Vec<BatchRecord>>,
    pub(crate) sequence: Option<Sequence>,
}

/// What [`Accumulator::plan`] wants done.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// One request each, in this order.
    pub(crate) requests: Vec<(NodeId, Vec<Outbound>)>,
    /// Some partition with records has no leader.
    pub(crate) leader_unknown: bool,
    /// Records wait for a producer id.
    pub(crate) identity_wanted: bool,
    /// When to plan again at the latest.
    pub(crate) next_at: Option<MonoTime>,
}

#[derive(Debug, Default)]
struct Queue {
    /// In order of ids; only the last may be open.
    waiting: VecDeque<Batch>,
    in_flight: Vec<Batch>,
    identity: Option<Identity>,
    /// The broker has written something under `identity`, so it knows which sequence is next.
    established: bool,
    next_sequence: i32,
    gap: bool,
    retry_at: Option<MonoTime>,
}

impl Accumulator {
    pub(crate) fn new(config: AccumulatorConfig) -> Accumulator {
        Accumulator { config, identity: None, partitions: BTreeMap::new(), next_id: 0, freed_bytes: 0 }
    }

    /// Adds a record. The second value says whether there is something new to plan.
    pub(crate) fn append(&mut self, tp: &TopicPartition, record: BatchRecord, now: MonoTime) -> (Delivery, bool) {
        let bytes = record.bytes_max();
        let batch_bytes = self.config.batch_bytes;
        let queue = match self.partitions.get_mut(tp) {
            Some(queue) => queue,
            None => self.partitions.entry(tp.clone()).or_default(),
        };
        let mut wake = false;
        let fits = queue.waiting.back().is_some_and(|batch| !batch.closed && batch.bytes + bytes <= batch_bytes);
        if !fits {
            if let Some(batch) = queue.waiting.back_mut() {
                batch.closed = true;
            }
            queue.waiting.push_back(Batch::new(self.next_id, now));
            self.next_id += ID_ROOM;
            wake = true;
        }
        let batch = queue.waiting.back_mut().expect("pushed above if there was none");
        let index = batch.push(record, bytes);
        if batch.bytes >= batch_bytes {
            batch.closed = true;
            wake = true;
        }
        (Delivery { outcome: Arc::clone(&batch.outcome), index }, wake)
    }

    /// The broker gave a producer id.
    pub(crate) fn set_identity(&mut self, identity: Identity) {
        self.identity = Some(identity);
    }

    /// Closes all open batches; returns what is to be awaited until everything appended so far is done.
    pub(crate) fn flush(&mut self) -> Vec<Arc<Outcome>> {
        let mut outcomes = Vec::new();
        for queue in self.partitions.values_mut() {
            if let Some(batch) = queue.waiting.back_mut() {
                batch.closed = true;
            }
            outcomes.extend(queue.in_flight.iter().chain(&queue.waiting).map(|batch| Arc::clone(&batch.outcome)));
        }
        outcomes
    }

    /// Bytes of records that are done since the last call.
    pub(crate) fn take_freed_bytes(&mut self) -> usize {
        std::mem::take(&mut self.freed_bytes)
    }

    /// Chooses the batches that leave now. `leader_of` may be `None`; `has_room` says whether a node takes
    /// another request.
    pub(crate) fn plan(
        &mut self,
        now: MonoTime,
        leader_of: impl Fn(&TopicPartition) -> Option<NodeId>,
        mut room_of: impl FnMut(NodeId) -> usize,
    ) -> Plan {
        let mut plan = Plan::default();
        let mut requests: BTreeMap<NodeId, Vec<(usize, Vec<Outbound>)>> = BTreeMap::new();
        let mut wake_at = |at: MonoTime| plan.next_at = Some(plan.next_at.map_or(at, |next| next.min(at)));
        for (tp, queue) in &mut self.partitions {
            self.freed_bytes += queue.expire(tp, now, self.config.delivery_timeout);
            if let Some(batch) = queue.waiting.front() {
                wake_at(batch.created.plus(self.config.delivery_timeout));
            }
            // A request holds one batch of a partition, so this one may join the n-th request of its node.
            for round in 0.. {
                match queue.sendable(&self.config, self.identity, now) {
                    Sendable::No => break,
                    Sendable::At(at) => {
                        wake_at(at);
                        break;
                    }
                    Sendable::NeedsIdentity => {
                        plan.identity_wanted = true;
                        break;
                    }
                    Sendable::Yes => {}
                }
                let Some(node) = leader_of(tp) else {
                    plan.leader_unknown = true;
                    break;
                };
                let node_requests = requests.entry(node).or_default();
                let size = queue.waiting.get(queue.next_index()).map_or(0, |batch| batch.bytes);
                let fits = |(bytes, _): &(usize, Vec<Outbound>)| bytes + size <= self.config.request_bytes_max;
                let at = (round..node_requests.len()).find(|i| fits(&node_requests[*i]));
                let at = match at {
                    Some(at) => at,
                    None if node_requests.len() < room_of(node) => {
                        node_requests.push((0, Vec::new()));
                        node_requests.len() - 1
                    }
                    None => break,
                };
                let outbound = queue.take(tp, &mut self.identity, self.config.idempotent);
                node_requests[at].0 += size;
                node_requests[at].1.push(outbound);
                if at > round {
                    // The next batch of this partition must not travel before this one.
                    break;
                }
            }
        }
        for (node, node_requests) in requests {
            plan.requests.extend(node_requests.into_iter().map(|(_, batches)| (node, batches)));
        }
        self.partitions.retain(|_, queue| !queue.is_idle());
        plan
    }

    /// The broker wrote the batch.
    pub(crate) fn on_written(&mut self, tp: &TopicPartition, id: BatchId, base_offset: Offset, append_time: Timestamp) {
        let Some((queue, batch)) = self.take_in_flight(tp, id) else { return };
        queue.established |= batch.sequence.is_some_and(|sequence| Some(sequence.identity) == queue.identity);
        let partition = tp.partition.0;
        self.freed_bytes += batch.finish(Fate::Written { partition, base_offset, append_time });
    }

    /// The batch was not acknowledged. `sent`: whether it left at all.
    pub(crate) fn on_failed(
        &mut self,
        tp: &TopicPartition,
        id: BatchId,
        error: ClientError,
        sent: bool,
        now: MonoTime,
    ) {
        let delivery_timeout = self.config.delivery_timeout;
        let retry_backoff = self.config.retry_backoff;
        let can_split = |batch: &Batch| batch.records.len() > 1 && !batch.maybe_written;
        let Some((queue, mut batch)) = self.take_in_flight(tp, id) else { return };
        batch.maybe_written |= sent && error.is_outcome_unknown();
        let code = error.code();
        match code {
            // Written by an earlier try, so long ago that the broker does not know the offset any more.
            Some(ErrorCode::DuplicateSequenceNumber) => {
                let fate = Fate::Written {
                    partition: tp.partition.0,
                    base_offset: Offset::NONE,
                    append_time: Timestamp::NONE,
                };
                self.freed_bytes += batch.finish(fate);
                return;
            }
            Some(ErrorCode::OutOfOrderSequenceNumber) if batch.sequence.is_some() => {
                if queue.is_anything_before(id) {
                    queue.put_back(batch);
                    return;
                }
                if queue.gap && !batch.maybe_written {
                    batch.sequence = None;
                    queue.put_back(batch);
                    queue.strip_sequences();
                    return;
                }
            }
            Some(ErrorCode::InvalidProducerEpoch | ErrorCode::UnknownProducerId)
                if batch.sequence.is_some() && !batch.maybe_written =>
            {
                queue.gap = true;
                batch.sequence = None;
                batch.last_error = Some(error);
                queue.put_back(batch);
                queue.strip_sequences();
                return;
            }
            Some(ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge) if can_split(&batch) => {
                queue.note_sequence_free(&batch);
                queue.split(&batch);
                return;
            }
            _ => {}
        }
        let expired = now.since(batch.created) >= delivery_timeout;
        if error.is_retriable() && !expired {
            batch.last_error = Some(error);
            queue.retry_at = Some(now.plus(retry_backoff));
            queue.put_back(batch);
            return;
        }
        queue.note_sequence_free(&batch);
        let error = match error {
            error if error.is_retriable() => batch.timed_out(tp, delivery_timeout, Some(error)),
            error if batch.maybe_written && !error.is_outcome_unknown() => ClientError::UnknownOutcome {
                topic: tp.topic.as_str().to_owned(),
                partition: tp.partition.0,
                cause: error.to_string(),
            },
            error => error,
        };
        self.freed_bytes += batch.finish(Fate::Failed(error));
    }

    /// Fails everything that is not done: the producer ends.
    pub(crate) fn fail_all(&mut self, error: &ClientError) {
        for (_, queue) in std::mem::take(&mut self.partitions) {
            for batch in queue.in_flight.into_iter().chain(queue.waiting) {
                self.freed_bytes += batch.finish(Fate::Failed(error.clone()));
            }
        }
    }

    /// Fails what waits for a topic that turned out not to exist, or not to be ours to write.
    pub(crate) fn fail_topic(&mut self, topic: &str, error: &ClientError) {
        for (tp, queue) in &mut self.partitions {
            if tp.topic.as_str() == topic {
                for batch in std::mem::take(&mut queue.waiting) {
                    queue.note_sequence_free(&batch);
                    self.freed_bytes += batch.finish(Fate::Failed(error.clone()));
                }
            }
        }
    }

    /// Topics with records that are not done.
    pub(crate) fn topics(&self) -> Vec<String> {
        let mut topics: Vec<String> = self.partitions.keys().map(|tp| tp.topic.as_str().to_owned()).collect();
        topics.dedup();
        topics
    }

    fn take_in_flight(&mut self, tp: &TopicPartition, id: BatchId) -> Option<(&mut Queue, Batch)> {
        let queue = self.partitions.get_mut(tp)?;
        let at = queue.in_flight.iter().position(|batch| batch.id == id)?;
        let batch = queue.in_flight.remove(at);
        Some((queue, batch))
    }
}

enum Sendable {
    Yes,
    No,
    At(MonoTime),
    NeedsIdentity,
}

impl Queue {
    /// Whether nothing would be lost by forgetting the partition. Sequences must be remembered.
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.in_flight.is_empty() && self.identity.is_none()
    }

    /// The batch to send next: the first; but when there is a gap, first those that have a sequence of before it.
    /// The broker only says of them whether it has them: it takes nothing new behind a gap.
    fn next_index(&self) -> usize {
        let before_gap = self.waiting.iter().position(|batch| self.gap && batch.sequence.is_some());
        before_gap.unwrap_or(0)
    }

    fn sendable(&self, config: &AccumulatorConfig, identity: Option<Identity>, now: MonoTime) -> Sendable {
        let Some(next) = self.waiting.get(self.next_index()) else { return Sendable::No };
        let in_flight_max = if config.idempotent { IN_FLIGHT_MAX } else { 1 };
        if self.in_flight.len() >= in_flight_max {
            return Sendable::No;
        }
        if let Some(retry_at) = self.retry_at.filter(|at| *at > now) {
            return Sendable::At(retry_at);
        }
        let linger_ends = next.created.plus(config.linger);
        if !next.closed && linger_ends > now {
            return Sendable::At(linger_ends);
        }
        if config.idempotent {
            if next.sequence.is_some() {
                // A retry: alone, or before everything that is under way.
                return if self.in_flight.iter().any(|batch| batch.id < next.id) {
                    Sendable::No
                } else {
                    Sendable::Yes
                };
            }
            let is_alone = self.in_flight.is_empty();
            if !is_alone && (self.gap || !self.established) {
                return Sendable::No;
            }
            if identity.is_none() && (self.identity.is_none() || self.gap) {
                return Sendable::NeedsIdentity;
            }
        }
        Sendable::Yes
    }

    /// Moves the next batch into flight and gives it a sequence if it has none.
    fn take(&mut self, tp: &TopicPartition, producer: &mut Option<Identity>, idempotent: bool) -> Outbound {
        let mut batch = self.waiting.remove(self.next_index()).expect("sendable says there is one");
        batch.closed = true;
        if idempotent && batch.sequence.is_none() {
            batch.sequence = self.next_sequence(producer, batch.records.len());
        }
        let outbound =
            Outbound { tp: tp.clone(), id: batch.id, records: Arc::clone(&batch.records), sequence: batch.sequence };
        self.retry_at = None;
        self.in_flight.push(batch);
        outbound
    }

    fn next_sequence(&mut self, producer: &mut Option<Identity>, record_count: usize) -> Option<Sequence> {
        if self.gap {
            if self.identity == *producer {
                bump(producer);
            }
            self.gap = false;
            self.identity = None;
        }
        if self.identity != *producer && self.in_flight.is_empty() && producer.is_some() {
            self.identity = *producer;
            self.established = false;
            self.next_sequence = 0;
        }
        let identity = self.identity.or(*producer)?;
        let base = self.next_sequence;
        self.next_sequence = sequence_after(base, record_count);
        Some(Sequence { identity, base })
    }

    /// Whether an earlier batch than `id` has not got its answer.
    fn is_anything_before(&self, id: BatchId) -> bool {
        let waiting = self.waiting.iter().filter(|batch| batch.sequence.is_some());
        self.in_flight.iter().chain(waiting).any(|batch| batch.id < id)
    }

    /// `batch` will not use its sequence. If it was the last one given out, and surely not written, the next
    /// batch takes it; else there is a gap.
    fn note_sequence_free(&mut self, batch: &Batch) {
        let Some(sequence) = batch.sequence else { return };
        if self.identity != Some(sequence.identity) {
            return;
        }
        let after = sequence_after(sequence.base, batch.records.len());
        if after == self.next_sequence && !batch.maybe_written {
            self.next_sequence = sequence.base;
        } else {
            self.gap = true;
        }
    }

    /// Behind a gap: what waits and was surely not written will get a new sequence.
    fn strip_sequences(&mut self) {
        for batch in self.waiting.iter_mut().filter(|batch| !batch.maybe_written) {
            batch.sequence = None;
        }
    }

    /// Into its place by id.
    fn put_back(&mut self, batch: Batch) {
        let at = self.waiting.iter().position(|other| other.id > batch.id).unwrap_or(self.waiting.len());
        self.waiting.insert(at, batch);
    }

    /// Puts two halves in the place of a batch that is too large.
    fn split(&mut self, batch: &Batch) {
        let at = batch.records.len() / 2;
        let id_room = batch.id_room / 2;
        let half = |id, records: &[BatchRecord]| {
            let charged_bytes = records.iter().map(BatchRecord::bytes_max).sum::<usize>();
            let mut half = Batch::new(id, batch.created);
            half.id_room = id_room;
            half.records = Arc::new(records.to_vec());
            half.bytes += charged_bytes;
            half.charged_bytes = charged_bytes;
            half.closed = true;
            half
        };
        let first = half(batch.id, &batch.records[..at]);
        let second = half(batch.id + id_room, &batch.records[at..]);
        batch.outcome.set(Fate::Split { at, first: Arc::clone(&first.outcome), second: Arc::clone(&second.outcome) });
        self.put_back(second);
        self.put_back(first);
    }

    /// Fails what waited too long; returns its bytes.
    fn expire(&mut self, tp: &TopicPartition, now: MonoTime, delivery_timeout: Duration) -> usize {
        let mut freed = 0;
        while self.waiting.front().is_some_and(|batch| now.since(batch.created) >= delivery_timeout) {
            let Some(batch) = self.waiting.pop_front() else { break };
            self.note_sequence_free(&batch);
            let last = batch.last_error.clone();
            let error = batch.timed_out(tp, delivery_timeout, last);
            freed += batch.finish(Fate::Failed(error));
        }
        freed
    }
}

/// The next epoch of the same producer id; `None` when there is none left.
fn bump(producer: &mut Option<Identity>) {
    *producer = producer.and_then(|identity| {
        let epoch = identity.epoch.0.checked_add(1).filter(|epoch| *epoch < i16::MAX)?;
        Some(Identity { epoch: ProducerEpoch(epoch), ..identity })
    });
}

/// Sequences run from 0 to 2^31-1 and then start again at 0.
fn sequence_after(base: i32, record_count: usize) -> i32 {
    let next = (i64::from(base) + i64::try_from(record_count).unwrap_or(0)) % (i64::from(i32::MAX) + 1);
    i32::try_from(next).unwrap_or(0)
}

/// As many as a broker remembers per producer and partition.
const IN_FLIGHT_MAX: usize = 5;

#[cfg(test)]
#[path = "accumulator_model.rs"]
mod model;
#[cfg(test)]
#[path = "accumulator_tests.rs"]
mod tests;
