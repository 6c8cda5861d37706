//! `.snapshot`: the producer state at an offset, in Kafka's format, so that recovery need not read the log from its start.
//!
//! version i16 (1), CRC-32C u32 of all that follows, count i32, then per producer: id i64, epoch i16,
//! last sequence i32, last offset i64, offset delta i32, timestamp i64, coordinator epoch i32, first
//! offset of its open transaction i64 (-1: none). Big endian. Kafka keeps one batch per producer there
//! and ignores what follows the producers; we put the other four batches there, so that a repeat is
//! known after a restart as it was before (REPLICATION P3). A snapshot by Kafka has no such part.

use thalweg_model::{Offset, ProducerEpoch, ProducerId, Timestamp};

use crate::config::LogConfig;
use crate::producer_state::{Producer, ProducerState};
use crate::recent_batches::{BATCHES_KEPT, RecentBatches, StoredBatch};

/// The bytes of a snapshot file.
pub(crate) fn encode(state: &ProducerState) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD_LEN + state.producers.len() * (ENTRY_LEN + 16));
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    put_count(&mut out, state.producers.len());
    for (id, producer) in &state.producers {
        let last = producer.batches.back();
        out.extend_from_slice(&id.0.to_be_bytes());
        out.extend_from_slice(&producer.epoch.0.to_be_bytes());
        out.extend_from_slice(&last.map_or(-1, |batch| batch.last_sequence).to_be_bytes());
        out.extend_from_slice(&last.map_or(-1, |batch| batch.last_offset.0).to_be_bytes());
        out.extend_from_slice(&last.map_or(0, |batch| batch.offset_delta).to_be_bytes());
        out.extend_from_slice(&last.map_or(producer.last_time, |batch| batch.timestamp.0).to_be_bytes());
        out.extend_from_slice(&producer.coordinator_epoch.to_be_bytes());
        out.extend_from_slice(&producer.open_txn.map_or(-1, |first| first.0).to_be_bytes());
    }
    out.extend_from_slice(&TRAILER_MAGIC);
    out.extend_from_slice(&state.log_time.to_be_bytes());
    for producer in state.producers.values() {
        out.extend_from_slice(&producer.last_time.to_be_bytes());
        out.extend_from_slice(&producer.last_touch.0.to_be_bytes());
        let older = producer.batches.older();
        out.push(u8::try_from(older.len()).unwrap_or(0));
        older.iter().for_each(|batch| put_batch(&mut out, batch));
    }
    put_count(&mut out, state.completed.len());
    for (first, marker) in &state.completed {
        out.extend_from_slice(&first.0.to_be_bytes());
        out.extend_from_slice(&marker.0.to_be_bytes());
    }
    let crc = crc32c::crc32c(&out[CRC_END..]);
    out[CRC_START..CRC_END].copy_from_slice(&crc.to_be_bytes());
    out
}

/// Reads a snapshot taken at `offset`; `None` if it is damaged or of an unknown version.
pub(crate) fn decode(bytes: &[u8], offset: Offset, config: &LogConfig) -> Option<ProducerState> {
    let mut reader = Reader { bytes };
    if reader.take::<2>()? != VERSION.to_be_bytes() {
        return None;
    }
    let crc = u32::from_be_bytes(reader.take()?);
    if crc32c::crc32c(reader.bytes) != crc {
        return None;
    }
    let mut state = ProducerState::default();
    let count = reader.count(ENTRY_LEN)?;
    let mut order = Vec::with_capacity(count);
    for _ in 0..count {
        let (id, producer) = reader.producer(offset)?;
        order.push(id);
        if state.producers.insert(id, producer).is_some() {
            return None;
        }
    }
    if reader.bytes.is_empty() {
        state.log_time = state.producers.values().map(|producer| producer.last_time).max().unwrap_or(0);
    } else {
        reader.trailer(&mut state, &order, offset)?;
    }
    for (id, producer) in &state.producers {
        state.by_age.insert((producer.last_touch, *id));
        if let Some(first) = producer.open_txn
            && state.open.insert(first, *id).is_some()
        {
            return None;
        }
    }
    state.bound(config);
    Some(state)
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.bytes.split_first_chunk::<N>()?;
        self.bytes = tail;
        Some(*head)
    }

    fn i16(&mut self) -> Option<i16> {
        self.take().map(i16::from_be_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.take().map(i32::from_be_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.take().map(i64::from_be_bytes)
    }

    /// A count that the bytes left can hold.
    fn count(&mut self, entry_len: usize) -> Option<usize> {
        let count = usize::try_from(self.i32()?).ok()?;
        (count <= self.bytes.len() / entry_len).then_some(count)
    }

    /// An offset below the snapshot's own.
    fn offset(&mut self, end: Offset) -> Option<Offset> {
        self.i64().map(Offset).filter(|offset| Offset::ZERO <= *offset && *offset < end)
    }

    fn producer(&mut self, end: Offset) -> Option<(ProducerId, Producer)> {
        let id = ProducerId(self.i64()?);
        let epoch = ProducerEpoch(self.i16()?);
        let last_sequence = self.i32()?;
        let last_offset = Offset(self.i64()?);
        let offset_delta = self.i32()?;
        let timestamp = Timestamp(self.i64()?);
        let coordinator_epoch = self.i32()?;
        let first = Offset(self.i64()?);
        if !id.is_some() || last_offset >= end || first >= end {
            return None;
        }
        let mut batches = RecentBatches::default();
        if last_offset >= Offset::ZERO && last_sequence >= 0 {
            batches.push(checked(StoredBatch { last_sequence, last_offset, offset_delta, timestamp })?);
        }
        let producer = Producer {
            epoch,
            coordinator_epoch,
            batches,
            open_txn: (first >= Offset::ZERO).then_some(first),
            last_time: timestamp.0.max(0),
            last_touch: last_offset,
        };
        Some((id, producer))
    }

    fn trailer(&mut self, state: &mut ProducerState, order: &[ProducerId], end: Offset) -> Option<()> {
        if self.take()? != TRAILER_MAGIC {
            return None;
        }
        state.log_time = self.i64()?;
        for id in order {
            let producer = state.producers.get_mut(id)?;
            producer.last_time = self.i64()?;
            producer.last_touch = self.offset(end)?;
            let [older] = self.take()?;
            if usize::from(older) >= BATCHES_KEPT || older > 0 && producer.batches.back().is_none() {
                return None;
            }
            for _ in 0..older {
                let last_sequence = self.i32()?;
                let last_offset = self.offset(end)?;
                let offset_delta = self.i32()?;
                let timestamp = Timestamp(self.i64()?);
                producer.batches.push_older(checked(StoredBatch {
                    last_sequence,
                    last_offset,
                    offset_delta,
                    timestamp,
                })?);
            }
        }
        for _ in 0..self.count(16)? {
            let (first, marker) = (self.offset(end)?, self.offset(end)?);
            state.completed.insert(first, marker);
        }
        self.bytes.is_empty().then_some(())
    }
}

fn checked(batch: StoredBatch) -> Option<StoredBatch> {
    let sane = batch.last_sequence >= 0 && batch.offset_delta >= 0 && batch.base_offset() >= Offset::ZERO;
    sane.then_some(batch)
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&i32::try_from(count).unwrap_or(i32::MAX).to_be_bytes());
}

fn put_batch(out: &mut Vec<u8>, batch: &StoredBatch) {
    out.extend_from_slice(&batch.last_sequence.to_be_bytes());
    out.extend_from_slice(&batch.last_offset.0.to_be_bytes());
    out.extend_from_slice(&batch.offset_delta.to_be_bytes());
    out.extend_from_slice(&batch.timestamp.0.to_be_bytes());
}

const VERSION: i16 = 1;
const CRC_START: usize = 2;
const CRC_END: usize = 6;
const HEAD_LEN: usize = 10;
const ENTRY_LEN: usize = 46;
const TRAILER_MAGIC: [u8; 4] = *b"thw1";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::producer_state::{Marker, ProducedBatch};

    fn state() -> ProducerState {
        let config = LogConfig::default();
        let mut state = ProducerState::default();
        for i in 0..40 {
            let batch = ProducedBatch {
                producer_id: ProducerId(i % 4),
                producer_epoch: ProducerEpoch(1),
                base_sequence: 10 * (i / 4) as i32,
                base_offset: Offset(10 * i),
                last_offset: Offset(10 * i + 9),
                max_timestamp: Timestamp(1000 - i),
                transactional: i % 4 == 3,
                marker: None,
            };
            state.apply(&batch, &config);
        }
        for (id, offset) in [(3, 400), (5, 401)] {
            let batch = ProducedBatch {
                producer_id: ProducerId(id),
                producer_epoch: ProducerEpoch(1),
                base_sequence: -1,
                base_offset: Offset(offset),
                last_offset: Offset(offset),
                max_timestamp: Timestamp(5),
                transactional: true,
                marker: Some(Marker { committed: false, coordinator_epoch: 2 }),
            };
            state.apply(&batch, &config);
        }
        state
    }

    #[test]
    fn the_whole_state_reads_back() {
        let state = state();
        assert_eq!(decode(&encode(&state), Offset(402), &LogConfig::default()), Some(state));
    }

    #[test]
    fn a_snapshot_without_our_part_gives_the_last_batch_of_each() {
        let state = state();
        let mut bytes = encode(&state);
        bytes.truncate(HEAD_LEN + state.producers.len() * ENTRY_LEN);
        let crc = crc32c::crc32c(&bytes[CRC_END..]);
        bytes[CRC_START..CRC_END].copy_from_slice(&crc.to_be_bytes());
        let found = decode(&bytes, Offset(402), &LogConfig::default()).unwrap();
        assert_eq!(found.producers.len(), 5);
        let batches = &found.producers[&ProducerId(0)].batches;
        assert!(batches.older().is_empty());
        assert_eq!(batches.back(), state.producers[&ProducerId(0)].batches.back());
    }

    #[test]
    fn any_flipped_bit_or_cut_is_noticed() {
        let bytes = encode(&state());
        for at in 0..bytes.len() {
            assert_eq!(decode(&bytes[..at], Offset(402), &LogConfig::default()), None, "cut at {at}");
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            assert_eq!(decode(&flipped, Offset(402), &LogConfig::default()), None, "flip at {at}");
        }
        assert_eq!(decode(&bytes, Offset(401), &LogConfig::default()), None, "it knows offsets that are not there");
    }
}
