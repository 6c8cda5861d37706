//! A partition's log in memory: the storage crate's epoch list over records, with what a power cut may take.

use std::sync::LazyLock;

use thalweg_model::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Timestamp};
use thalweg_storage::{LeaderEpochs, LogConfig, ProducedBatch, ProducerError, ProducerState, Verdict};

use crate::rng::mix;

/// A record, reduced to what tells it from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimRecord {
    pub epoch: LeaderEpoch,
    pub value: u64,
    /// Stands for this record and everything before it in its log.
    pub chain: u64,
    pub starts_batch: bool,
    /// Of an idempotent producer's record.
    pub sequence: Option<Sequence>,
}

/// A place in what an idempotent producer has written to a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    pub producer: ProducerId,
    pub number: i32,
}

/// A log as the kernel holds it. Everything below `flushed` survives a power cut.
#[derive(Clone, Debug, Default)]
pub struct SimLog {
    /// Offset of `records[0]`.
    base: i64,
    /// First readable offset.
    start: i64,
    /// As it was written down last.
    start_kept: i64,
    records: Vec<SimRecord>,
    flushed: i64,
    /// From here on the kernel shows what it has given up writing, and calls it written.
    given_up: Option<i64>,
    epochs: LeaderEpochs,
    /// A function of `records` (P3).
    producers: ProducerState,
    /// Of the high watermark; a lower bound (G6).
    checkpoint: i64,
    /// Counts truncations: a flush that began before one says nothing afterwards.
    pub generation: u64,
    /// There is a replica here, or was when its broker last knew.
    pub is_made: bool,
}

impl SimLog {
    pub fn start(&self) -> Offset {
        Offset(self.start)
    }

    /// Of the first record that is kept; below [`SimLog::start`] they are hidden.
    pub fn base(&self) -> Offset {
        Offset(self.base)
    }

    pub fn end(&self) -> Offset {
        Offset(self.base + self.records.len() as i64)
    }

    pub fn checkpoint(&self) -> Offset {
        Offset(self.checkpoint)
    }

    pub fn flushed(&self) -> Offset {
        Offset(self.flushed)
    }

    pub fn last_epoch(&self) -> Option<LeaderEpoch> {
        self.records.last().map(|record| record.epoch)
    }

    pub fn end_of_epoch(&self, epoch: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        self.epochs.end_offset(epoch, self.end())
    }

    pub fn record(&self, offset: Offset) -> Option<&SimRecord> {
        usize::try_from(offset.0 - self.base).ok().and_then(|index| self.records.get(index))
    }

    /// From `from`, which begins a batch, whole batches until `count` records are passed.
    pub fn read(&self, from: Offset, count: usize) -> Vec<SimRecord> {
        let Ok(first) = usize::try_from(from.0 - self.base) else { return Vec::new() };
        let rest = self.records.get(first..).unwrap_or_default();
        let mut end = rest.len().min(count.max(1));
        while end < rest.len() && !rest[end].starts_batch {
            end += 1;
        }
        rest[..end].to_vec()
    }

    /// Records from `from` up to `to`, exclusive.
    pub fn slice(&self, from: Offset, to: Offset) -> &[SimRecord] {
        let index = |offset: Offset| usize::try_from(offset.0 - self.base).unwrap_or(0).min(self.records.len());
        self.records.get(index(from)..index(to)).unwrap_or_default()
    }

    /// Takes the epoch (L1); durable on return.
    pub fn begin_epoch(&mut self, epoch: LeaderEpoch) {
        self.epochs.assign(epoch, self.end());
    }

    /// F1.
    pub fn forget_empty_epochs(&mut self) {
        self.epochs.truncate_from_end(self.end());
    }

    /// What becomes of an idempotent producer's batch (P2).
    ///
    /// # Errors
    /// The producer's fault.
    pub fn judge(&self, first: Sequence, count: usize) -> Result<Verdict, ProducerError> {
        self.producers.check(&produced(self.end(), count, first))
    }

    /// A leader's batch; returns its base offset.
    pub fn append(&mut self, epoch: LeaderEpoch, values: &[u64], first: Option<Sequence>) -> Offset {
        let base = self.end();
        self.epochs.assign(epoch, base);
        let mut chain = self.records.last().map_or(mix(self.base as u64), |record| record.chain);
        for (index, value) in values.iter().enumerate() {
            chain = mix(chain ^ mix(*value ^ mix(epoch.0 as u64)));
            let sequence = first.map(|first| Sequence { number: first.number + index as i32, ..first });
            self.records.push(SimRecord { epoch, value: *value, chain, starts_batch: index == 0, sequence });
        }
        self.remember(base);
        base
    }

    /// A follower's copy, verbatim (F3).
    pub fn copy(&mut self, records: &[SimRecord]) {
        let base = self.end();
        for record in records {
            let end = self.end();
            if self.epochs.latest().is_none_or(|latest| latest.epoch < record.epoch) {
                self.epochs.assign(record.epoch, end);
            }
            self.records.push(*record);
        }
        self.remember(base);
    }

    /// Takes the batches from `from` on into the producers' state.
    fn remember(&mut self, from: Offset) {
        let first = usize::try_from(from.0 - self.base).unwrap_or(0);
        let mut offset = from;
        for batch in self.records[first..].chunk_by(|_, next| !next.starts_batch) {
            if let Some(sequence) = batch.first().and_then(|record| record.sequence) {
                self.producers.apply(&produced(offset, batch.len(), sequence), &CONFIG);
            }
            offset = offset.plus(batch.len() as i64);
        }
    }

    /// Rewinds the producers' state to what the log holds.
    fn remember_anew(&mut self) {
        self.producers = ProducerState::default();
        self.remember(Offset(self.base));
    }

    /// Cuts at the start of the batch that holds `to`. Durable on return, as in the storage crate.
    pub fn truncate_to(&mut self, to: Offset) {
        let Ok(mut keep) = usize::try_from(to.0 - self.base) else { return self.start_at(to) };
        while keep < self.records.len() && !self.records[keep].starts_batch {
            keep = keep.saturating_sub(1);
        }
        self.records.truncate(keep);
        self.remember_anew();
        let end = self.end();
        self.flushed = self.flushed.min(end.0);
        self.given_up = self.given_up.filter(|given_up| *given_up < end.0);
        self.checkpoint = self.checkpoint.min(end.0);
        self.epochs.truncate_from_end(end);
        self.generation += 1;
    }

    /// Empties the log; it goes on at `offset` (F5). Durable on return.
    pub fn start_at(&mut self, offset: Offset) {
        let generation = self.generation + 1;
        let (base, start, flushed) = (offset.0, offset.0, offset.0);
        let (start_kept, checkpoint) = (start, start);
        *self = SimLog { base, start, start_kept, flushed, generation, checkpoint, is_made: true, ..SimLog::default() };
    }

    /// The replica is given up, and its log with it.
    pub fn remove(&mut self) {
        *self = SimLog { generation: self.generation + 1, ..SimLog::default() };
    }

    /// Hides what is below (delete-records). Does nothing but for the start of a batch ahead of us.
    pub fn advance_start(&mut self, start: Offset) -> bool {
        let begins = start == self.end() || self.record(start).is_some_and(|record| record.starts_batch);
        if start.0 <= self.start || start > self.end() || !begins {
            return false;
        }
        self.start = start.0;
        self.epochs.truncate_from_start(start);
        true
    }

    /// Writes down where the log starts, and the high watermark.
    pub fn write_checkpoint(&mut self, high_watermark: Offset) {
        self.checkpoint = high_watermark.0;
        self.start_kept = self.start;
    }

    /// A sync has reached the disk.
    pub fn synced(&mut self, up_to: Offset) {
        self.flushed = self.flushed.max(up_to.0.min(self.end().0));
    }

    /// A sync has failed: the kernel goes on showing what it could not write, and will not try again.
    pub fn give_up(&mut self) {
        if self.unflushed_count() > 0 {
            self.given_up = Some(self.given_up.unwrap_or(self.flushed).min(self.flushed));
        }
    }

    /// What is shown is changed again, to the same (B2): the next sync writes it.
    pub fn write_anew(&mut self) {
        self.given_up = None;
    }

    /// The power fails: of what was not synced, `kept` records stay, rounded down to a batch; a torn one is cut by recovery.
    pub fn power_cut(&mut self, kept: u64) {
        if let Some(given_up) = self.given_up.take() {
            self.records.truncate((given_up - self.base).max(0) as usize);
        }
        let mut end = self.end().0.min(self.flushed + kept as i64);
        while end > self.flushed && self.record(Offset(end)).is_some_and(|record| !record.starts_batch) {
            end -= 1;
        }
        self.records.truncate((end - self.base).max(0) as usize);
        self.generation += 1;
    }

    /// How many records a power cut could take.
    pub fn unflushed_count(&self) -> u64 {
        (self.end().0 - self.flushed).max(0) as u64
    }

    /// Opens the log again: epochs without records are forgotten, everything is synced (G5).
    pub fn recover(&mut self) {
        self.remember_anew();
        let end = self.end();
        // The start moves durably only with the checkpoint.
        self.start = self.start_kept.min(end.0);
        if !self.epochs.reaches(self.start()) {
            self.epochs = self.epochs_of_records();
        }
        self.epochs.truncate_from_end(end);
        self.checkpoint = self.checkpoint.clamp(self.start, end.0);
        if !thalweg_model::mutant!("recovery-sync") {
            self.flushed = end.0;
        }
        self.generation += 1;
    }

    /// What the records themselves tell, from the start on.
    fn epochs_of_records(&self) -> LeaderEpochs {
        let mut epochs = LeaderEpochs::default();
        for (record, offset) in self.records.iter().zip(self.base..) {
            epochs.assign(record.epoch, Offset(offset));
        }
        epochs.truncate_from_start(self.start());
        epochs
    }

    /// What stands for the whole log below `offset`; `None` if that is not here or there is nothing below.
    pub fn chain_below(&self, offset: Offset) -> Option<u64> {
        self.record(Offset(offset.0 - 1)).map(|record| record.chain)
    }

    /// Whether records below `offset` were here once and are not kept any more.
    pub fn starts_at(&self, offset: Offset) -> bool {
        self.base == offset.0
    }
}

fn produced(base_offset: Offset, count: usize, first: Sequence) -> ProducedBatch {
    ProducedBatch {
        producer_id: first.producer,
        producer_epoch: ProducerEpoch(0),
        base_sequence: first.number,
        base_offset,
        last_offset: base_offset.plus(count as i64 - 1),
        max_timestamp: Timestamp::NONE,
        transactional: false,
        marker: None,
    }
}

static CONFIG: LazyLock<LogConfig> = LazyLock::new(LogConfig::default);
