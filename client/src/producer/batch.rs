//! A batch on its way: from its first record to its fate.

use std::sync::Arc;
use std::time::Duration;

use thalweg_model::{MonoTime, ProducerEpoch, ProducerId, TopicPartition};

use super::delivery::{Fate, Outcome};
use super::record::{BATCH_HEADER_BYTES, BatchRecord};
use crate::error::ClientError;

/// Records that are sent, retried and acknowledged together.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) id: BatchId,
    /// Ids from `id` on that are free for the pieces of this batch.
    pub(super) id_room: u64,
    pub(super) records: Arc<Vec<BatchRecord>>,
    /// At most, uncompressed.
    pub(super) bytes: usize,
    pub(super) charged_bytes: usize,
    pub(super) created: MonoTime,
    pub(super) closed: bool,
    pub(super) sequence: Option<Sequence>,
    pub(super) maybe_written: bool,
    pub(super) last_error: Option<ClientError>,
    pub(super) outcome: Arc<Outcome>,
}

impl Batch {
    pub(super) fn new(id: BatchId, now: MonoTime) -> Batch {
        Batch {
            id,
            id_room: ID_ROOM,
            records: Arc::default(),
            bytes: BATCH_HEADER_BYTES,
            charged_bytes: 0,
            created: now,
            closed: false,
            sequence: None,
            maybe_written: false,
            last_error: None,
            outcome: Arc::default(),
        }
    }

    pub(super) fn push(&mut self, record: BatchRecord, bytes: usize) -> usize {
        self.bytes += bytes;
        self.charged_bytes += bytes;
        // Open batches are not shared, so this never copies.
        let records = Arc::make_mut(&mut self.records);
        records.push(record);
        records.len() - 1
    }

    pub(super) fn timed_out(&self, tp: &TopicPartition, after: Duration, last: Option<ClientError>) -> ClientError {
        ClientError::DeliveryTimedOut {
            topic: tp.topic.as_str().to_owned(),
            partition: tp.partition.0,
            after,
            unknown: self.maybe_written,
            last: last.map(|error| error.to_string()),
        }
    }

    /// Tells whoever waits; returns the bytes to give back.
    pub(super) fn finish(self, fate: Fate) -> usize {
        self.outcome.set(fate);
        self.charged_bytes
    }
}

/// A producer id and the epoch under which a partition's sequences count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) producer_id: ProducerId,
    pub(crate) epoch: ProducerEpoch,
}

/// What makes a batch recognisable to the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sequence {
    pub(crate) identity: Identity,
    pub(crate) base: i32,
}

/// Names a batch; within a partition the order of ids is the order of records.
pub(crate) type BatchId = u64;

/// A batch can be halved this many times over (as a power of two): more often than it has records.
pub(super) const ID_ROOM: u64 = 1 << 24;
