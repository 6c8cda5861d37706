//! What a poll gives: records of one partition, unpacked as they are asked for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use thalweg_model::{Offset, ProducerId, TopicPartition};
use thalweg_wire::batch::{BatchHeader, Batches, verify_crc};
use thalweg_wire::records::{ControlRecord, Record, Records};

use crate::error::{ClientError, Result};

/// Records of one partition, in order. An iterator; the consumer's position is already behind the last.
#[derive(Debug)]
pub struct RecordSet {
    pub tp: TopicPartition,
    /// The log's end as committed, when this was fetched; exclusive.
    pub high_watermark: Offset,
    /// Where the next poll of this partition goes on.
    pub next_offset: Offset,
    data: Bytes,
    position: usize,
    /// Records below are skipped: a batch may begin before the offset that was asked for.
    from: Offset,
    aborted: Aborted,
    current: Option<Records>,
    failed: bool,
}

/// What a fetch brought for one partition.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) tp: TopicPartition,
    pub(crate) life: u64,
    pub(crate) from: Offset,
    pub(crate) next: Offset,
    pub(crate) high_watermark: Offset,
    pub(crate) data: Bytes,
    /// Producer and first offset of each aborted transaction, when only committed records are wanted.
    pub(crate) aborted: Vec<(ProducerId, Offset)>,
}

/// Which transactional batches never happened.
#[derive(Debug, Default)]
struct Aborted {
    /// Ascending by first offset.
    coming: VecDeque<(Offset, ProducerId)>,
    open: BTreeSet<ProducerId>,
}

impl RecordSet {
    pub(crate) fn new(fetched: Fetched) -> RecordSet {
        let mut coming: Vec<(Offset, ProducerId)> =
            fetched.aborted.into_iter().map(|(id, first)| (first, id)).collect();
        coming.sort_unstable();
        RecordSet {
            tp: fetched.tp,
            high_watermark: fetched.high_watermark,
            next_offset: fetched.next,
            data: fetched.data,
            position: 0,
            from: fetched.from,
            aborted: Aborted { coming: coming.into(), open: BTreeSet::new() },
            current: None,
            failed: false,
        }
    }

    /// Where the set begins, inclusive: the consumer's position before it.
    pub fn first_offset(&self) -> Offset {
        self.from
    }

    /// Goes on to the next batch with records for the application; `false` at the end.
    fn open_next(&mut self) -> Result<bool> {
        loop {
            let rest = self.data.slice(self.position..);
            // What is not a whole batch is the cut end of the answer; the next fetch brings it whole.
            let Ok(header) = BatchHeader::read(&rest) else { return Ok(false) };
            let batch = rest.slice(..header.size_bytes());
            self.position += batch.len();
            if header.next_offset() <= self.from {
                continue;
            }
            let corrupt = |detail: String| ClientError::CorruptBatch {
                topic: self.tp.topic.as_str().to_owned(),
                partition: self.tp.partition.0,
                offset: header.base_offset,
                detail,
            };
            verify_crc(&batch).map_err(|error| corrupt(error.to_string()))?;
            let mut records = Records::open(&batch, UNPACKED_BYTES_MAX).map_err(|error| corrupt(error.to_string()))?;
            if self.aborted.hides(&header, &mut records) {
                continue;
            }
            self.current = Some(records);
            return Ok(true);
        }
    }
}

impl Iterator for RecordSet {
    type Item = Result<Record>;

    /// The first error is the last item: what follows cannot be trusted.
    fn next(&mut self) -> Option<Result<Record>> {
        while !self.failed {
            match self.current.as_mut().and_then(Iterator::next) {
                Some(Ok(record)) if record.offset < self.from => {}
                Some(Ok(record)) => return Some(Ok(record)),
                Some(Err(error)) => {
                    self.failed = true;
                    return Some(Err(ClientError::CorruptBatch {
                        topic: self.tp.topic.as_str().to_owned(),
                        partition: self.tp.partition.0,
                        offset: self.current.as_ref().map_or(Offset::NONE, |records| records.header().base_offset),
                        detail: error.to_string(),
                    }));
                }
                None => match self.open_next() {
                    Ok(true) => {}
                    Ok(false) => return None,
                    Err(error) => {
                        self.failed = true;
                        return Some(Err(error));
                    }
                },
            }
        }
        None
    }
}

impl Aborted {
    /// Whether a batch is not for the application: a marker, or part of an aborted transaction. Batches must come
    /// in order.
    fn hides(&mut self, header: &BatchHeader, records: &mut Records) -> bool {
        while self.coming.front().is_some_and(|(first, _)| *first <= header.last_offset()) {
            self.open.extend(self.coming.pop_front().map(|(_, id)| id));
        }
        if header.is_control() {
            let marker = records.next().and_then(|record| ControlRecord::read(&record.ok()?));
            if matches!(marker, Some(ControlRecord::Abort { .. })) {
                self.open.remove(&header.producer_id);
            }
            return true;
        }
        header.is_transactional() && self.open.contains(&header.producer_id)
    }
}

/// The offset after the last whole batch in `data`; `None` if there is none.
pub(crate) fn next_offset(data: &[u8]) -> Option<Offset> {
    Batches::new(data).map_while(std::result::Result::ok).last().map(|(header, _)| header.next_offset())
}

/// Records of several partitions, by partition; for tests and small jobs.
pub fn collect(sets: impl IntoIterator<Item = RecordSet>) -> Result<BTreeMap<TopicPartition, Vec<Record>>> {
    let mut all: BTreeMap<TopicPartition, Vec<Record>> = BTreeMap::new();
    for set in sets {
        let records = all.entry(set.tp.clone()).or_default();
        for record in set {
            records.push(record?);
        }
    }
    Ok(all)
}

/// One batch may unpack to this at most: far above what brokers take, below what would hurt.
const UNPACKED_BYTES_MAX: usize = 256 << 20;

#[cfg(test)]
mod tests {
    use thalweg_model::{LeaderEpoch, PartitionIndex, ProducerEpoch, Timestamp, TopicName};
    use thalweg_wire::compression::Compression;
    use thalweg_wire::records::RecordBatchBuilder;

    use super::*;

    fn batch(base: i64, values: &[&str], producer: Option<i64>) -> Bytes {
        let mut builder = RecordBatchBuilder::new(Compression::Lz4).at(Offset(base), LeaderEpoch(0));
        if let Some(id) = producer {
            builder = builder.producer(ProducerId(id), ProducerEpoch(0), 0).transactional();
        }
        for value in values {
            builder.append(Timestamp(1), None, Some(value.as_bytes()), &[]);
        }
        builder.build().unwrap()
    }

    fn abort(base: i64, producer: i64) -> Bytes {
        let marker = ControlRecord::Abort { coordinator_epoch: 0 };
        RecordBatchBuilder::marker(marker, ProducerId(producer), ProducerEpoch(0), Timestamp(1))
            .unwrap()
            .at(Offset(base), LeaderEpoch(0))
            .build()
            .unwrap()
    }

    fn set(parts: &[Bytes], from: i64, aborted: &[(i64, i64)]) -> RecordSet {
        let data = Bytes::from(parts.concat());
        RecordSet::new(Fetched {
            tp: TopicPartition::new(TopicName::new("t").unwrap(), PartitionIndex(0)),
            life: 1,
            from: Offset(from),
            next: next_offset(&data).unwrap_or(Offset(from)),
            high_watermark: Offset(100),
            data,
            aborted: aborted.iter().map(|(id, first)| (ProducerId(*id), Offset(*first))).collect(),
        })
    }

    fn values(set: RecordSet) -> Vec<String> {
        set.map(|record| String::from_utf8(record.unwrap().value.unwrap().to_vec()).unwrap()).collect()
    }

    #[test]
    fn records_before_the_offset_asked_for_are_skipped() {
        let set = set(&[batch(0, &["a", "b"], None), batch(2, &["c", "d"], None)], 3, &[]);
        assert_eq!(set.next_offset, Offset(4));
        assert_eq!(values(set), ["d"]);
    }

    #[test]
    fn a_cut_batch_at_the_end_is_left_for_the_next_fetch() {
        let cut = batch(2, &["c"], None);
        let set = set(&[batch(0, &["a", "b"], None), cut.slice(..cut.len() - 1)], 0, &[]);
        assert_eq!(set.next_offset, Offset(2));
        assert_eq!(values(set), ["a", "b"]);
    }

    /// Goal: of two transactions of one producer only the committed one is seen, and markers never.
    #[test]
    fn aborted_records_and_markers_are_hidden() {
        let parts = [
            batch(0, &["aborted"], Some(7)),
            batch(1, &["plain"], None),
            abort(2, 7),
            batch(3, &["committed"], Some(7)),
            batch(4, &["aborted again"], Some(7)),
            abort(5, 7),
        ];
        let set = set(&parts, 0, &[(7, 4), (7, 0)]);
        assert_eq!(set.next_offset, Offset(6));
        assert_eq!(values(set), ["plain", "committed"]);
    }

    #[test]
    fn a_flipped_bit_is_an_error_that_names_the_batch_and_ends_the_set() {
        let mut bad = batch(2, &["c"], None).to_vec();
        *bad.last_mut().unwrap() ^= 1;
        let mut set = set(&[batch(0, &["a", "b"], None), bad.into(), batch(3, &["d"], None)], 0, &[]);
        assert!(set.next().unwrap().is_ok() && set.next().unwrap().is_ok());
        match set.next() {
            Some(Err(ClientError::CorruptBatch { offset, .. })) => assert_eq!(offset, Offset(2)),
            other => panic!("{other:?}"),
        }
        assert!(set.next().is_none());
    }
}
