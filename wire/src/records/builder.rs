//! Builds record batches: for our own client, for markers, for tests.

use bytes::Bytes;
use thalweg_model::topic_config::TimestampType;
use thalweg_model::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Timestamp};
use thiserror::Error;

use super::{ControlRecord, put_varint};
use crate::batch::{Attributes, BATCH_HEADER_BYTES, BatchHeader, LOG_OVERHEAD_BYTES, write_crc};
use crate::compression::{Compression, compress};

/// Gathers records into one batch.
#[derive(Clone, Debug)]
pub struct RecordBatchBuilder {
    compression: Compression,
    attributes: Attributes,
    base_offset: Offset,
    leader_epoch: LeaderEpoch,
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    base_sequence: i32,
    base_timestamp: Timestamp,
    max_timestamp: Timestamp,
    record_count: i32,
    records: Vec<u8>,
    scratch: Vec<u8>,
}

impl RecordBatchBuilder {
    /// An empty batch as a producer sends it: base offset 0, no producer id.
    pub fn new(compression: Compression) -> RecordBatchBuilder {
        RecordBatchBuilder {
            compression,
            attributes: Attributes::new(compression, TimestampType::CreateTime),
            base_offset: Offset::ZERO,
            leader_epoch: LeaderEpoch::NONE,
            producer_id: ProducerId::NONE,
            producer_epoch: ProducerEpoch::NONE,
            base_sequence: -1,
            base_timestamp: Timestamp::NONE,
            max_timestamp: Timestamp::NONE,
            record_count: 0,
            records: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Where the batch stands in a log.
    #[must_use]
    pub fn at(mut self, base_offset: Offset, leader_epoch: LeaderEpoch) -> RecordBatchBuilder {
        self.base_offset = base_offset;
        self.leader_epoch = leader_epoch;
        self
    }

    /// Makes the batch idempotent (KIP-98).
    #[must_use]
    pub fn producer(mut self, id: ProducerId, epoch: ProducerEpoch, base_sequence: i32) -> RecordBatchBuilder {
        self.producer_id = id;
        self.producer_epoch = epoch;
        self.base_sequence = base_sequence;
        self
    }

    #[must_use]
    pub fn transactional(mut self) -> RecordBatchBuilder {
        self.attributes = self.attributes.transactional(true);
        self
    }

    /// A batch of one record that ends the transaction of `id`. It has no sequence.
    ///
    /// # Errors
    /// [`BuildError::NoMarker`] for [`ControlRecord::Other`].
    pub fn marker(
        marker: ControlRecord,
        id: ProducerId,
        epoch: ProducerEpoch,
        timestamp: Timestamp,
    ) -> Result<RecordBatchBuilder, BuildError> {
        let (key, value) = marker.key_value().ok_or(BuildError::NoMarker)?;
        let mut builder = RecordBatchBuilder::new(Compression::None).producer(id, epoch, -1).transactional();
        builder.attributes = builder.attributes.control(true);
        builder.append(timestamp, Some(&key), Some(&value), &[]);
        Ok(builder)
    }

    /// Adds a record. A header is a name and a value that may be null.
    pub fn append(
        &mut self,
        timestamp: Timestamp,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&str, Option<&[u8]>)],
    ) {
        if self.record_count == 0 {
            self.base_timestamp = timestamp;
        }
        self.max_timestamp = self.max_timestamp.max(timestamp);
        let body = &mut self.scratch;
        body.clear();
        body.push(0); // attributes, unused
        put_varint(body, timestamp.ms_since(self.base_timestamp));
        put_varint(body, i64::from(self.record_count));
        put_bytes(body, key);
        put_bytes(body, value);
        put_varint(body, headers.len() as i64);
        for (name, value) in headers {
            put_bytes(body, Some(name.as_bytes()));
            put_bytes(body, *value);
        }
        put_varint(&mut self.records, body.len() as i64);
        self.records.extend_from_slice(body);
        self.record_count += 1;
    }

    pub fn record_count(&self) -> i32 {
        self.record_count
    }

    pub fn is_empty(&self) -> bool {
        self.record_count == 0
    }

    /// The batch's size before compression, in bytes.
    pub fn size_bytes(&self) -> usize {
        BATCH_HEADER_BYTES + self.records.len()
    }

    /// Packs the records and writes the batch.
    ///
    /// # Errors
    /// Our fault: nothing was appended, or more than a length field holds.
    pub fn build(self) -> Result<Bytes, BuildError> {
        if self.record_count == 0 {
            return Err(BuildError::Empty);
        }
        let packed = compress(self.compression, &self.records).map_err(|_| BuildError::Compression)?;
        let size = BATCH_HEADER_BYTES + packed.len();
        let length = i32::try_from(size - LOG_OVERHEAD_BYTES).map_err(|_| BuildError::TooLarge { size })?;
        let header = BatchHeader {
            base_offset: self.base_offset,
            length,
            leader_epoch: self.leader_epoch,
            crc: 0,
            attributes: self.attributes,
            last_offset_delta: self.record_count - 1,
            base_timestamp: self.base_timestamp,
            max_timestamp: self.max_timestamp,
            producer_id: self.producer_id,
            producer_epoch: self.producer_epoch,
            base_sequence: self.base_sequence,
            record_count: self.record_count,
        };
        let mut head = [0; BATCH_HEADER_BYTES];
        header.write(&mut head);
        let mut batch = Vec::with_capacity(size);
        batch.extend_from_slice(&head);
        batch.extend_from_slice(&packed);
        write_crc(&mut batch);
        Ok(batch.into())
    }
}

/// Why no batch could be built. Our fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BuildError {
    #[error("a batch without records")]
    Empty,
    #[error("a batch of {size} bytes does not fit its length field")]
    TooLarge { size: usize },
    #[error("no marker ends a transaction like that")]
    NoMarker,
    #[error("the codec failed")]
    Compression,
}

fn put_bytes(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => {
            put_varint(out, bytes.len() as i64);
            out.extend_from_slice(bytes);
        }
        None => put_varint(out, -1),
    }
}
