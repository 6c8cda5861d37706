//! Who has written what, so that a retried batch is stored once (KIP-98; REPLICATION P2, P3).
//!
//! A pure function of the log's prefix: the same batches give the same state, on every replica and
//! after every restart. So time is the log's own, the largest timestamp it holds, and never a clock.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_model::{Offset, ProducerEpoch, ProducerId, Timestamp};

use crate::config::LogConfig;
use crate::recent_batches::{RecentBatches, StoredBatch};
use crate::txn_index::AbortedTxn;

/// Every producer that a log remembers, and its transactions that are not decided below the high watermark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProducerState {
    pub(crate) producers: BTreeMap<ProducerId, Producer>,
    /// Producers by their last touch; the front is the one to forget first. `log_time` grows along it.
    pub(crate) by_age: BTreeSet<(Offset, ProducerId)>,
    /// Open transactions by first offset.
    pub(crate) open: BTreeMap<Offset, ProducerId>,
    /// Transactions that are decided, but by a marker at or above the high watermark: first offset, marker.
    pub(crate) completed: BTreeMap<Offset, Offset>,
    /// The largest timestamp so far, approached in steps.
    pub(crate) log_time: Timestamp0,
}

/// A timestamp that starts at 0, so that a batch without one does not count as old.
pub(crate) type Timestamp0 = i64;

/// One producer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Producer {
    pub epoch: ProducerEpoch,
    /// Of the last marker; `-1` before one.
    pub coordinator_epoch: i32,
    /// Of this epoch.
    pub batches: RecentBatches,
    pub open_txn: Option<Offset>,
    /// The log's time when it last wrote.
    pub last_time: Timestamp0,
    /// The last offset of its last batch or marker.
    pub last_touch: Offset,
}

/// What the state has to know of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducedBatch {
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    pub base_sequence: i32,
    pub base_offset: Offset,
    pub last_offset: Offset,
    pub max_timestamp: Timestamp,
    pub transactional: bool,
    pub marker: Option<Marker>,
}

/// A transaction's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    pub committed: bool,
    pub coordinator_epoch: i32,
}

/// What to do with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Append,
    /// It is here already.
    Duplicate(StoredBatch),
}

/// Why a producer's batch is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProducerError {
    /// The producer's fault, not retriable as it is: a batch before this one is missing.
    #[error("producer {producer_id} sent sequence {sequence}, expected {expected}")]
    OutOfOrderSequence { producer_id: ProducerId, sequence: i32, expected: i32 },
    /// A newer life of the producer has written; this one is fenced.
    #[error("producer {producer_id} has epoch {epoch}, the log knows {known}")]
    InvalidProducerEpoch { producer_id: ProducerId, epoch: ProducerEpoch, known: ProducerEpoch },
    /// A marker of a deposed transaction coordinator (REPLICATION T3).
    #[error("marker for producer {producer_id} has coordinator epoch {epoch}, the log knows {known}")]
    TransactionCoordinatorFenced { producer_id: ProducerId, epoch: i32, known: i32 },
}

impl ProducerState {
    /// Judges a client's batch before it is appended (REPLICATION P2).
    ///
    /// # Errors
    /// See [`ProducerError`]; the state is as it was.
    pub fn check(&self, batch: &ProducedBatch) -> Result<Verdict, ProducerError> {
        let producer_id = batch.producer_id;
        // A producer that is not known may begin anywhere: its state may have expired.
        let Some(producer) = self.producers.get(&producer_id).filter(|_| producer_id.is_some()) else {
            return Ok(Verdict::Append);
        };
        if batch.producer_epoch < producer.epoch {
            let (epoch, known) = (batch.producer_epoch, producer.epoch);
            return Err(ProducerError::InvalidProducerEpoch { producer_id, epoch, known });
        }
        if let Some(marker) = batch.marker {
            let (epoch, known) = (marker.coordinator_epoch, producer.coordinator_epoch);
            if epoch < known {
                return Err(ProducerError::TransactionCoordinatorFenced { producer_id, epoch, known });
            }
            return Ok(Verdict::Append);
        }
        let same_epoch = batch.producer_epoch == producer.epoch;
        let last_sequence = add_sequence(batch.base_sequence, batch.last_offset.since(batch.base_offset));
        let repeats = |stored: &&StoredBatch| {
            stored.last_sequence == last_sequence && stored.first_sequence() == batch.base_sequence
        };
        if same_epoch && let Some(stored) = producer.batches.iter().find(repeats) {
            return Ok(Verdict::Duplicate(*stored));
        }
        let expected = match producer.batches.back() {
            Some(last) if same_epoch => add_sequence(last.last_sequence, 1),
            _ => 0,
        };
        if batch.base_sequence != expected {
            let sequence = batch.base_sequence;
            return Err(ProducerError::OutOfOrderSequence { producer_id, sequence, expected });
        }
        Ok(Verdict::Append)
    }

    /// Takes in a batch that is in the log now; whoever wrote it there was to check it.
    ///
    /// Returns the transaction that it aborted, for the transaction index.
    pub fn apply(&mut self, batch: &ProducedBatch, config: &LogConfig) -> Option<AbortedTxn> {
        self.advance_time(batch.max_timestamp, config);
        self.expire(config);
        if !batch.producer_id.is_some() {
            return None;
        }
        let producer = self.touch(batch);
        if batch.producer_epoch > producer.epoch {
            producer.epoch = batch.producer_epoch;
            producer.batches.clear();
        }
        let aborted = match batch.marker {
            Some(marker) => self.end_txn(batch, marker),
            None => {
                self.store(batch);
                None
            }
        };
        self.bound(config);
        aborted
    }

    /// The first offset whose transaction is open or decided only at or above the high watermark.
    pub fn first_unstable_offset(&self) -> Option<Offset> {
        let open = self.open.first_key_value().map(|(first, _)| *first);
        let completed = self.completed.first_key_value().map(|(first, _)| *first);
        open.into_iter().chain(completed).min()
    }

    /// Lets go of transactions whose marker is below the high watermark; returns whether there were any.
    pub fn advance_high_watermark(&mut self, high_watermark: Offset) -> bool {
        let before = self.completed.len();
        self.completed.retain(|_, marker| *marker >= high_watermark);
        self.completed.len() != before
    }

    /// Makes room in the maps of a log whose start has moved; transactions below it can no longer be read.
    pub fn advance_log_start(&mut self, log_start_offset: Offset) {
        self.completed.retain(|_, marker| *marker >= log_start_offset);
    }

    /// Moves the log's time on, by a small part of the expiration at most.
    ///
    /// Else one batch could make everyone old at once: a marker stamped by a broker among records that
    /// carry last year's times, or a producer whose clock is wrong. So nobody is forgotten before
    /// [`EXPIRATION_STEPS`] batches came after theirs.
    fn advance_time(&mut self, timestamp: Timestamp, config: &LogConfig) {
        if self.log_time == 0 && timestamp.0 > 0 {
            // The first timestamp of all says nothing about how long anyone has been silent.
            self.log_time = timestamp.0;
            self.producers.values_mut().for_each(|producer| producer.last_time = timestamp.0);
        }
        let step = (config.producer_id_expiration_ms / EXPIRATION_STEPS).max(1);
        self.log_time = self.log_time.max(timestamp.0.min(self.log_time.saturating_add(step)));
    }

    fn touch(&mut self, batch: &ProducedBatch) -> &mut Producer {
        let fresh = Producer {
            epoch: batch.producer_epoch,
            coordinator_epoch: -1,
            batches: RecentBatches::default(),
            open_txn: None,
            last_time: 0,
            last_touch: batch.last_offset,
        };
        let producer = self.producers.entry(batch.producer_id).or_insert(fresh);
        self.by_age.remove(&(producer.last_touch, batch.producer_id));
        self.by_age.insert((batch.last_offset, batch.producer_id));
        producer.last_touch = batch.last_offset;
        producer.last_time = self.log_time;
        producer
    }

    fn store(&mut self, batch: &ProducedBatch) {
        let Some(producer) = self.producers.get_mut(&batch.producer_id) else { return };
        let delta = batch.last_offset.since(batch.base_offset);
        if batch.base_sequence >= 0 {
            producer.batches.push(StoredBatch {
                last_sequence: add_sequence(batch.base_sequence, delta),
                last_offset: batch.last_offset,
                offset_delta: i32::try_from(delta).unwrap_or(i32::MAX),
                timestamp: batch.max_timestamp,
            });
        }
        if batch.transactional && producer.open_txn.is_none() {
            producer.open_txn = Some(batch.base_offset);
            self.open.insert(batch.base_offset, batch.producer_id);
        }
    }

    fn end_txn(&mut self, batch: &ProducedBatch, marker: Marker) -> Option<AbortedTxn> {
        let producer = self.producers.get_mut(&batch.producer_id)?;
        producer.coordinator_epoch = producer.coordinator_epoch.max(marker.coordinator_epoch);
        let first_offset = producer.open_txn.take()?;
        self.open.remove(&first_offset);
        let last_offset = batch.base_offset;
        self.completed.insert(first_offset, last_offset);
        // Kafka asks only the transactions that are open still.
        let last_stable_offset = self.open.first_key_value().map_or(last_offset.plus(1), |(first, _)| *first);
        let producer_id = batch.producer_id;
        (!marker.committed).then_some(AbortedTxn { producer_id, first_offset, last_offset, last_stable_offset })
    }

    /// Forgets who has been silent for longer than `producer.id.expiration.ms`, by the log's time.
    fn expire(&mut self, config: &LogConfig) {
        while let Some((last_touch, producer_id)) = self.by_age.first().copied() {
            let Some(producer) = self.producers.get(&producer_id) else { return };
            let silent = self.log_time.saturating_sub(producer.last_time) > config.producer_id_expiration_ms;
            if !silent || producer.open_txn.is_some() {
                return;
            }
            self.producers.remove(&producer_id);
            self.by_age.remove(&(last_touch, producer_id));
        }
    }

    /// Forgets the longest silent producer that has no open transaction, while there are too many (FAILURES row 54).
    pub(crate) fn bound(&mut self, config: &LogConfig) {
        while self.producers.len() > config.producer_count_max.max(1) {
            let idle = |(_, id): &&(Offset, ProducerId)| self.producers.get(id).is_none_or(|p| p.open_txn.is_none());
            let Some(oldest) = self.by_age.iter().find(idle).copied() else { return };
            self.by_age.remove(&oldest);
            self.producers.remove(&oldest.1);
        }
    }
}

/// The sequence `count` further on; after 2^31-1 comes 0.
fn add_sequence(sequence: i32, count: i64) -> i32 {
    let sum = (i64::from(sequence) + count) & i64::from(i32::MAX);
    i32::try_from(sum).unwrap_or(0)
}

const EXPIRATION_STEPS: i64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    struct Log {
        state: ProducerState,
        end: i64,
        config: LogConfig,
    }

    impl Log {
        fn new() -> Log {
            Log { state: ProducerState::default(), end: 0, config: LogConfig::default() }
        }

        fn batch(&self, id: i64, epoch: i16, sequence: i32, count: i64) -> ProducedBatch {
            ProducedBatch {
                producer_id: ProducerId(id),
                producer_epoch: ProducerEpoch(epoch),
                base_sequence: sequence,
                base_offset: Offset(self.end),
                last_offset: Offset(self.end + count - 1),
                max_timestamp: Timestamp(self.end),
                transactional: false,
                marker: None,
            }
        }

        /// The base offset that the producer is told.
        fn send(&mut self, batch: ProducedBatch) -> Result<i64, ProducerError> {
            match self.state.check(&batch)? {
                Verdict::Duplicate(stored) => Ok(stored.base_offset().0),
                Verdict::Append => {
                    self.state.apply(&batch, &self.config);
                    self.end = batch.last_offset.0 + 1;
                    Ok(batch.base_offset.0)
                }
            }
        }

        fn produce(&mut self, id: i64, epoch: i16, sequence: i32, count: i64) -> Result<i64, ProducerError> {
            self.send(self.batch(id, epoch, sequence, count))
        }

        fn marker(&mut self, id: i64, epoch: i16, committed: bool) -> Option<AbortedTxn> {
            let marker = Some(Marker { committed, coordinator_epoch: 0 });
            let batch = ProducedBatch { marker, transactional: true, ..self.batch(id, epoch, -1, 1) };
            assert_eq!(self.state.check(&batch), Ok(Verdict::Append));
            self.end += 1;
            self.state.apply(&batch, &self.config)
        }
    }

    #[test]
    fn a_repeat_of_one_of_the_last_five_gets_its_first_offset() {
        let mut log = Log::new();
        for i in 0..6 {
            assert_eq!(log.produce(7, 0, i * 10, 10), Ok(i64::from(i) * 10));
        }
        for i in 1..6 {
            assert_eq!(log.produce(7, 0, i * 10, 10), Ok(i64::from(i) * 10), "repeat of {i}");
        }
        assert!(matches!(log.produce(7, 0, 0, 10), Err(ProducerError::OutOfOrderSequence { expected: 60, .. })));
        assert!(log.produce(7, 0, 50, 9).is_err(), "a part of a batch is no repeat");
        assert!(log.produce(7, 0, 61, 1).is_err());
        assert_eq!(log.end, 60);
    }

    #[test]
    fn sequences_wrap_after_2_31_minus_1() {
        let mut log = Log::new();
        assert_eq!(log.produce(1, 0, i32::MAX - 2, 2), Ok(0), "an unknown producer may begin anywhere");
        assert_eq!(log.produce(1, 0, i32::MAX, 3), Ok(2));
        assert_eq!(log.produce(1, 0, i32::MAX, 3), Ok(2));
        assert_eq!(log.produce(1, 0, 2, 1), Ok(5));
        let mut log = Log::new();
        assert_eq!(log.produce(1, 0, i32::MAX, 1), Ok(0));
        assert_eq!(log.produce(1, 0, 0, 1), Ok(1));
    }

    #[test]
    fn a_new_epoch_begins_at_zero_and_fences_the_old() {
        let mut log = Log::new();
        log.produce(1, 3, 0, 5).unwrap();
        assert!(matches!(log.produce(1, 4, 5, 1), Err(ProducerError::OutOfOrderSequence { expected: 0, .. })));
        assert_eq!(log.produce(1, 4, 0, 5), Ok(5));
        assert!(matches!(log.produce(1, 3, 5, 1), Err(ProducerError::InvalidProducerEpoch { .. })));
        assert_eq!(log.produce(1, 4, 0, 5), Ok(5), "the repeat is of the new epoch");
    }

    #[test]
    fn a_silent_producer_is_forgotten_but_not_by_one_odd_timestamp() {
        let mut log = Log::new();
        let mut batch = log.batch(2, 0, 0, 1);
        batch.max_timestamp = Timestamp::NONE;
        log.send(batch).unwrap();
        let mut late = log.batch(3, 0, 0, 1);
        late.max_timestamp = Timestamp(1 << 50);
        for sequence in 0..=EXPIRATION_STEPS {
            assert_eq!(log.send(batch), Ok(0), "still known, so still a repeat, at {sequence}");
            let offset = Offset(log.end);
            let base_sequence = i32::try_from(sequence).unwrap();
            log.send(ProducedBatch { base_sequence, base_offset: offset, last_offset: offset, ..late }).unwrap();
            late.max_timestamp.0 += log.config.producer_id_expiration_ms;
        }
        let offset = Offset(log.end);
        let base_sequence = i32::try_from(EXPIRATION_STEPS + 1).unwrap();
        log.send(ProducedBatch { base_sequence, base_offset: offset, last_offset: offset, ..late }).unwrap();
        assert_eq!(log.state.producers.keys().map(|id| id.0).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn the_longest_silent_producer_goes_first_unless_its_transaction_is_open() {
        let mut log = Log::new();
        log.config.producer_count_max = 2;
        let batch = ProducedBatch { transactional: true, ..log.batch(1, 0, 0, 1) };
        log.send(batch).unwrap();
        log.produce(2, 0, 0, 1).unwrap();
        log.produce(3, 0, 0, 1).unwrap();
        assert_eq!(log.state.producers.keys().map(|id| id.0).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(log.state.by_age.len(), 2);
    }

    #[test]
    fn an_abort_names_its_records_and_holds_the_stable_offset_until_committed() {
        let mut log = Log::new();
        log.produce(9, 0, 0, 4).unwrap();
        for id in [1, 2] {
            let batch = ProducedBatch { transactional: true, ..log.batch(id, 0, 0, 2) };
            log.send(batch).unwrap();
        }
        assert_eq!(log.state.first_unstable_offset(), Some(Offset(4)));
        assert_eq!(log.marker(2, 0, true), None);
        let aborted = log.marker(1, 0, false).unwrap();
        let expected = (Offset(4), Offset(9), Offset(10));
        assert_eq!((aborted.first_offset, aborted.last_offset, aborted.last_stable_offset), expected);
        assert_eq!(log.state.first_unstable_offset(), Some(Offset(4)), "its marker is not committed yet");
        assert!(log.state.advance_high_watermark(Offset(9)));
        assert_eq!(log.state.first_unstable_offset(), Some(Offset(4)));
        assert!(log.state.advance_high_watermark(Offset(10)));
        assert_eq!(log.state.first_unstable_offset(), None);
    }

    #[test]
    fn a_marker_of_a_deposed_coordinator_is_refused() {
        let mut log = Log::new();
        let with = |log: &Log, coordinator_epoch| ProducedBatch {
            marker: Some(Marker { committed: true, coordinator_epoch }),
            ..log.batch(1, 0, -1, 1)
        };
        log.send(with(&log, 5)).unwrap();
        assert!(matches!(log.send(with(&log, 4)), Err(ProducerError::TransactionCoordinatorFenced { .. })));
        log.send(with(&log, 5)).unwrap();
    }
}
