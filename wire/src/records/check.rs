//! The checks on a batch that a client wants appended.

use std::io::{self, BufRead, BufReader};

use thalweg_model::Timestamp;

use super::{RecordError, VARINT_BYTES_MAX, codec_of, read_varint};
use crate::batch::{BATCH_HEADER_BYTES, BatchError, BatchHeader, verify_crc};
use crate::compression::{Compression, Decompressor};

/// What a topic and a request's version ask of a batch.
#[derive(Clone, Copy, Debug)]
pub struct ProduceRules {
    pub produce_version: i16,
    /// `max.message.bytes`, of the batch as sent.
    pub size_bytes_max: usize,
    /// Most bytes that the records may take unpacked.
    pub unpacked_bytes_max: usize,
    /// Compacted topics need keys.
    pub key_required: bool,
    /// `None`: the broker stamps the records, so theirs do not matter.
    pub timestamps: Option<TimestampWindow>,
}

impl ProduceRules {
    /// A bound on what one request makes the broker unpack, where nothing else is configured.
    pub const UNPACKED_BYTES_MAX: usize = 128 << 20;
}

/// Inclusive bounds of a record's timestamp; records without one (-1) pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampWindow {
    pub earliest: Timestamp,
    pub latest: Timestamp,
}

impl TimestampWindow {
    /// From `message.timestamp.before.max.ms` and `message.timestamp.after.max.ms`.
    pub fn around(now: Timestamp, before_max_ms: i64, after_max_ms: i64) -> TimestampWindow {
        TimestampWindow {
            earliest: Timestamp(now.0.saturating_sub(before_max_ms)),
            latest: Timestamp(now.0.saturating_add(after_max_ms)),
        }
    }

    fn contains(&self, timestamp: Timestamp) -> bool {
        timestamp == Timestamp::NONE || (self.earliest..=self.latest).contains(&timestamp)
    }
}

/// A batch that may be appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckedBatch {
    pub header: BatchHeader,
    /// The largest timestamp of its records. Some clients leave the header's at -1: pass this one to
    /// [`crate::batch::set_max_timestamp`].
    pub max_timestamp: Timestamp,
    /// Position in the batch of the first record that has it.
    pub max_timestamp_index: i32,
}

/// Checks what a Produce request holds for one partition.
///
/// Exactly one batch of format 2; right length and CRC; a known codec; as many records as stated, each readable and
/// with the next offset delta. Compressed records are unpacked as a stream and not kept.
///
/// # Errors
/// The client's fault; [`crate::error`] gives each its Kafka code.
pub fn check_produced(records: &[u8], rules: &ProduceRules) -> Result<CheckedBatch, BatchError> {
    if records.is_empty() {
        return Err(BatchError::Empty);
    }
    let header = BatchHeader::read(records)?;
    let size = header.size_bytes();
    if records.len() > size {
        return Err(BatchError::MoreThanOneBatch { extra: records.len() - size });
    }
    if size > rules.size_bytes_max {
        return Err(BatchError::TooLarge { size, max: rules.size_bytes_max });
    }
    verify_crc(records)?;
    let codec = check_header(&header, rules)?;
    check_records(&header, codec, &records[BATCH_HEADER_BYTES..], rules)
}

fn check_header(header: &BatchHeader, rules: &ProduceRules) -> Result<Compression, BatchError> {
    if header.base_offset.0 != 0 {
        return Err(BatchError::BaseOffsetNotZero { base_offset: header.base_offset.0 });
    }
    if header.is_control() {
        return Err(BatchError::Control);
    }
    let (record_count, last_offset_delta) = (header.record_count, header.last_offset_delta);
    if record_count < 1 || last_offset_delta != record_count - 1 {
        return Err(BatchError::CountMismatch { record_count, last_offset_delta });
    }
    let has_producer = header.producer_id.is_some();
    if (has_producer && (header.producer_epoch.0 < 0 || header.base_sequence < 0))
        || (!has_producer && header.is_transactional())
    {
        return Err(BatchError::BadProducer {
            producer_id: header.producer_id.0,
            producer_epoch: header.producer_epoch.0,
            base_sequence: header.base_sequence,
        });
    }
    match codec_of(header)? {
        Compression::Zstd if rules.produce_version < ZSTD_PRODUCE_VERSION_MIN => Err(BatchError::ZstdTooEarly),
        codec => Ok(codec),
    }
}

fn check_records(
    header: &BatchHeader,
    codec: Compression,
    packed: &[u8],
    rules: &ProduceRules,
) -> Result<CheckedBatch, BatchError> {
    if codec == Compression::None {
        // No copy for what is not packed.
        return check_stream(header, codec, packed, rules);
    }
    let unpacked = Decompressor::new(codec, packed, rules.unpacked_bytes_max)?;
    check_stream(header, codec, BufReader::with_capacity(BUFFER_BYTES, unpacked), rules)
}

fn check_stream(
    header: &BatchHeader,
    codec: Compression,
    source: impl BufRead,
    rules: &ProduceRules,
) -> Result<CheckedBatch, BatchError> {
    let mut stream = RecordStream { source, taken: 0 };
    let mut checked = CheckedBatch { header: *header, max_timestamp: Timestamp::NONE, max_timestamp_index: 0 };
    let (mut without_key, mut outside_window) = (Vec::new(), Vec::new());
    for index in 0..header.record_count {
        let record = stream.record().map_err(|error| error.at(index, codec))?;
        if record.offset_delta != i64::from(index) {
            let error = RecordError::OffsetDelta { found: record.offset_delta, expected: i64::from(index) };
            return Err(BatchError::Record { index, error });
        }
        let timestamp = Timestamp(header.base_timestamp.0.saturating_add(record.timestamp_delta));
        if timestamp > checked.max_timestamp {
            checked.max_timestamp = timestamp;
            checked.max_timestamp_index = index;
        }
        if rules.key_required && !record.has_key && without_key.len() < NAMED_RECORDS_MAX {
            without_key.push(index);
        }
        let inside = rules.timestamps.is_none_or(|window| window.contains(timestamp));
        if !inside && outside_window.len() < NAMED_RECORDS_MAX {
            outside_window.push(index);
        }
    }
    stream.finish().map_err(|error| error.at(header.record_count - 1, codec))?;
    if !without_key.is_empty() {
        return Err(BatchError::KeyMissing { indexes: without_key });
    }
    if !outside_window.is_empty() {
        return Err(BatchError::TimestampOutsideWindow { indexes: outside_window });
    }
    Ok(checked)
}

/// What the checks need of a record.
#[derive(Debug, PartialEq)]
struct RecordFacts {
    timestamp_delta: i64,
    offset_delta: i64,
    has_key: bool,
}

/// Walks records as they are unpacked; keys, values and headers are skipped, not kept.
struct RecordStream<R> {
    source: R,
    /// Bytes taken since the start of the batch's records.
    taken: u64,
}

impl<R: BufRead> RecordStream<R> {
    #[inline]
    fn record(&mut self) -> Result<RecordFacts, StreamError> {
        match whole_record(self.source.fill_buf()?) {
            Some((facts, size)) => {
                self.consume(size);
                Ok(facts)
            }
            None => self.split_record(),
        }
    }

    /// A record that goes on in the next piece of the stream, or a bad one: finds out what is wrong with it.
    fn split_record(&mut self) -> Result<RecordFacts, StreamError> {
        let length = self.varint()?;
        let length = u64::try_from(length).map_err(|_| RecordError::NegativeLength { length })?;
        let begin = self.taken;
        self.skip(1)?; // attributes, unused
        let timestamp_delta = self.varint()?;
        let offset_delta = self.varint()?;
        let has_key = self.skip_nullable()?;
        self.skip_nullable()?;
        self.skip_headers(begin.saturating_add(length))?;
        let used = self.taken - begin;
        if used != length {
            return Err(RecordError::LengthMismatch { stated: length as usize, used: used as usize }.into());
        }
        Ok(RecordFacts { timestamp_delta, offset_delta, has_key })
    }

    fn skip_headers(&mut self, record_end: u64) -> Result<(), StreamError> {
        let count = self.varint()?;
        if count < 0 {
            return Err(RecordError::NegativeLength { length: count }.into());
        }
        for _ in 0..count {
            // A lying count must not walk on through the records that follow.
            if self.taken >= record_end {
                return Err(RecordError::Truncated.into());
            }
            if !self.skip_nullable()? {
                return Err(RecordError::NegativeLength { length: -1 }.into());
            }
            self.skip_nullable()?;
        }
        Ok(())
    }

    /// Checks that nothing follows the last record.
    fn finish(&mut self) -> Result<(), StreamError> {
        match self.source.fill_buf()?.len() {
            0 => Ok(()),
            extra => Err(RecordError::TrailingBytes { extra: extra as u64 }.into()),
        }
    }

    /// Skips bytes with their length in front; says whether they were there (not null).
    fn skip_nullable(&mut self) -> Result<bool, StreamError> {
        match self.varint()? {
            -1 => Ok(false),
            length => {
                self.skip(u64::try_from(length).map_err(|_| RecordError::NegativeLength { length })?)?;
                Ok(true)
            }
        }
    }

    fn skip(&mut self, mut count: u64) -> Result<(), StreamError> {
        while count > 0 {
            let here = (self.source.fill_buf()?.len() as u64).min(count);
            if here == 0 {
                return Err(RecordError::Truncated.into());
            }
            self.consume(here as usize);
            count -= here;
        }
        Ok(())
    }

    #[inline]
    fn varint(&mut self) -> Result<i64, StreamError> {
        match read_varint(self.source.fill_buf()?)? {
            Some((value, length)) => {
                self.consume(length);
                Ok(value)
            }
            None => self.split_varint(),
        }
    }

    /// One that goes on in the next piece of the stream.
    #[cold]
    fn split_varint(&mut self) -> Result<i64, StreamError> {
        let (mut bytes, mut length) = ([0; VARINT_BYTES_MAX], 0);
        loop {
            let Some(byte) = self.source.fill_buf()?.first().copied() else {
                return Err(RecordError::Truncated.into());
            };
            self.consume(1);
            bytes[length] = byte;
            length += 1;
            // Ten bytes always end it, one way or the other.
            if let Some((value, _)) = read_varint(&bytes[..length])? {
                return Ok(value);
            }
        }
    }

    fn consume(&mut self, count: usize) {
        self.source.consume(count);
        self.taken += count as u64;
    }
}

/// The record at the front of `piece` and its size, if all of it is there and nothing is wrong with it. Nearly every record:
/// this way takes a third of the time of the careful one.
fn whole_record(piece: &[u8]) -> Option<(RecordFacts, usize)> {
    let mut cursor = Cursor { bytes: piece };
    let length = usize::try_from(cursor.varint()?).ok()?;
    let rest = cursor.bytes.get(length..)?;
    cursor.bytes = &cursor.bytes[..length];
    cursor.skip(1)?; // attributes, unused
    let (timestamp_delta, offset_delta) = (cursor.varint()?, cursor.varint()?);
    let has_key = cursor.skip_nullable()?;
    cursor.skip_nullable()?;
    let header_count = cursor.varint()?;
    for _ in 0..usize::try_from(header_count).ok()? {
        let has_name = cursor.skip_nullable()?;
        cursor.skip_nullable().filter(|_| has_name)?;
    }
    let facts = RecordFacts { timestamp_delta, offset_delta, has_key };
    cursor.bytes.is_empty().then(|| (facts, piece.len() - rest.len()))
}

/// What is left of a piece. `None` from any method: it is not there, or bad.
struct Cursor<'a> {
    bytes: &'a [u8],
}

impl Cursor<'_> {
    #[inline]
    fn varint(&mut self) -> Option<i64> {
        let (value, length) = read_varint(self.bytes).ok()??;
        self.skip(length)?;
        Some(value)
    }

    #[inline]
    fn skip(&mut self, count: usize) -> Option<()> {
        self.bytes = self.bytes.get(count..)?;
        Some(())
    }

    #[inline]
    fn skip_nullable(&mut self) -> Option<bool> {
        match self.varint()? {
            -1 => Some(false),
            length => self.skip(usize::try_from(length).ok()?).map(|()| true),
        }
    }
}

enum StreamError {
    Record(RecordError),
    Unpacking(io::Error),
}

impl StreamError {
    fn at(self, index: i32, codec: Compression) -> BatchError {
        match self {
            StreamError::Record(error) => BatchError::Record { index, error },
            StreamError::Unpacking(error) => BatchError::Compression(codec.explain(&error)),
        }
    }
}

impl From<RecordError> for StreamError {
    fn from(error: RecordError) -> StreamError {
        StreamError::Record(error)
    }
}

impl From<io::Error> for StreamError {
    fn from(error: io::Error) -> StreamError {
        StreamError::Unpacking(error)
    }
}

const BUFFER_BYTES: usize = 8 << 10;
const ZSTD_PRODUCE_VERSION_MIN: i16 = 7;
/// An answer names at most this many bad records.
const NAMED_RECORDS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn both_ways_of_reading_a_record_agree(
            mut bytes in prop::collection::vec(any::<u8>(), 0..40),
            small in any::<bool>(),
            length in any::<Option<u8>>(),
        ) {
            if small {
                // Bytes that are likely to make a record.
                bytes.iter_mut().for_each(|byte| *byte %= 5);
            }
            if let Some(length) = length {
                bytes.insert(0, (length % 40) << 1);
            }
            let mut stream = RecordStream { source: &bytes[..], taken: 0 };
            let careful = stream.split_record().ok().map(|facts| (facts, stream.taken as usize));
            prop_assert_eq!(whole_record(&bytes), careful);
        }
    }
}
