//! The records inside a batch: read lazily, built, checked without being held.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use thalweg_model::topic_config::TimestampType;
use thalweg_model::{Offset, Timestamp};
use thiserror::Error;

use crate::batch::{BATCH_HEADER_BYTES, BatchError, BatchHeader};
use crate::compression::{Compression, decompress};

mod builder;
mod check;
mod control;

pub use builder::{BuildError, RecordBatchBuilder};
pub use check::{CheckedBatch, ProduceRules, TimestampWindow, check_produced};
pub use control::ControlRecord;

/// One record; keys, values and headers are slices of the unpacked batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub offset: Offset,
    /// The batch's maximum timestamp if the broker stamped it.
    pub timestamp: Timestamp,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: RecordHeaders,
}

/// A record's headers, in order; names may repeat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordHeaders {
    count: usize,
    /// Checked when the record was read.
    bytes: Bytes,
}

/// One header of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    pub key: Bytes,
    pub value: Option<Bytes>,
}

impl RecordHeader {
    /// The key as text; bytes that are no UTF-8 are replaced.
    pub fn key_text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.key)
    }
}

impl RecordHeaders {
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = RecordHeader> + use<> {
        let mut cursor = Cursor::new(self.bytes.clone());
        (0..self.count).map_while(move |_| {
            let (key, value) = cursor.skip_header().ok()?;
            Some(RecordHeader { key: cursor.bytes.slice(key), value: value.map(|range| cursor.bytes.slice(range)) })
        })
    }
}

/// Reads the records of one batch, in order.
///
/// Yields the first error and then ends. A gap in the offsets is no error: compaction leaves gaps.
#[derive(Clone, Debug)]
pub struct Records {
    header: BatchHeader,
    cursor: Cursor,
    left: i32,
    index: i32,
}

impl Records {
    /// Opens a whole batch, unpacking at most `unpacked_bytes_max` bytes.
    ///
    /// # Errors
    /// The header or the compressed data is bad; the writer's fault. The CRC is not looked at.
    pub fn open(batch: &Bytes, unpacked_bytes_max: usize) -> Result<Records, BatchError> {
        let header = BatchHeader::read(batch)?;
        let packed = batch.slice(BATCH_HEADER_BYTES..header.size_bytes());
        let codec = codec_of(&header)?;
        let cursor = Cursor::new(decompress(codec, &packed, unpacked_bytes_max)?);
        Ok(Records { header, cursor, left: header.record_count, index: 0 })
    }

    pub fn header(&self) -> &BatchHeader {
        &self.header
    }
}

impl Iterator for Records {
    type Item = Result<Record, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left <= 0 {
            return None;
        }
        self.left -= 1;
        let result = self.cursor.record(&self.header);
        if result.is_err() {
            self.left = 0;
        }
        let index = self.index;
        self.index += 1;
        Some(result.map_err(|error| BatchError::Record { index, error }))
    }
}

/// Why a record cannot be read. The writer's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RecordError {
    #[error("the record is cut")]
    Truncated,
    #[error("a variable-length integer that does not end or does not fit")]
    BadVarint,
    #[error("negative length {length}")]
    NegativeLength { length: i64 },
    #[error("a record of {stated} bytes whose fields take {used}")]
    LengthMismatch { stated: usize, used: usize },
    #[error("offset delta {found} where {expected} is due")]
    OffsetDelta { found: i64, expected: i64 },
    #[error("{extra} bytes after the last record")]
    TrailingBytes { extra: u64 },
}

/// The codec that a batch's attributes name.
pub(crate) fn codec_of(header: &BatchHeader) -> Result<Compression, BatchError> {
    header.compression().ok_or(BatchError::UnknownCompression { id: header.attributes.compression_id() })
}

/// Reads records off unpacked bytes. Makes no slices but those it returns: each costs an atomic count.
#[derive(Clone, Debug)]
struct Cursor {
    bytes: Bytes,
    position: usize,
    /// Exclusive: of the record being read, or of all.
    end: usize,
}

impl Cursor {
    fn new(bytes: Bytes) -> Cursor {
        let end = bytes.len();
        Cursor { bytes, position: 0, end }
    }

    fn record(&mut self, batch: &BatchHeader) -> Result<Record, RecordError> {
        let length = self.length()?.ok_or(RecordError::NegativeLength { length: -1 })?;
        let start = self.position;
        let record_end = self.skip(length)?.end;
        (self.position, self.end) = (start, record_end);
        self.skip(1)?; // attributes, unused
        let timestamp_delta = self.varint()?;
        let offset_delta = self.varint()?;
        let key = self.skip_nullable()?;
        let value = self.skip_nullable()?;
        let (headers_count, headers) = self.skip_headers()?;
        if self.position != record_end {
            return Err(RecordError::LengthMismatch { stated: length, used: self.position - start });
        }
        self.end = self.bytes.len();
        let timestamp = match batch.timestamp_type() {
            TimestampType::LogAppendTime => batch.max_timestamp,
            TimestampType::CreateTime => Timestamp(batch.base_timestamp.0.saturating_add(timestamp_delta)),
        };
        Ok(Record {
            offset: batch.base_offset.plus(offset_delta),
            timestamp,
            key: key.map(|range| self.bytes.slice(range)),
            value: value.map(|range| self.bytes.slice(range)),
            headers: RecordHeaders { count: headers_count, bytes: self.bytes.slice(headers) },
        })
    }

    fn skip_headers(&mut self) -> Result<(usize, Range<usize>), RecordError> {
        let count = self.varint()?;
        let count = usize::try_from(count).map_err(|_| RecordError::NegativeLength { length: count })?;
        let start = self.position;
        for _ in 0..count {
            self.skip_header()?;
        }
        Ok((count, start..self.position))
    }

    fn skip_header(&mut self) -> Result<(Range<usize>, Option<Range<usize>>), RecordError> {
        let key = self.skip_nullable()?.ok_or(RecordError::NegativeLength { length: -1 })?;
        Ok((key, self.skip_nullable()?))
    }

    /// Skips bytes with their length in front; says where they are, or that they are null.
    fn skip_nullable(&mut self) -> Result<Option<Range<usize>>, RecordError> {
        self.length()?.map(|length| self.skip(length)).transpose()
    }

    /// A length; `None` for -1.
    fn length(&mut self) -> Result<Option<usize>, RecordError> {
        match self.varint()? {
            -1 => Ok(None),
            length => usize::try_from(length).map(Some).map_err(|_| RecordError::NegativeLength { length }),
        }
    }

    fn skip(&mut self, length: usize) -> Result<Range<usize>, RecordError> {
        let start = self.position;
        let end = start.checked_add(length).filter(|end| *end <= self.end).ok_or(RecordError::Truncated)?;
        self.position = end;
        Ok(start..end)
    }

    fn varint(&mut self) -> Result<i64, RecordError> {
        let (value, length) = read_varint(&self.bytes[self.position..self.end])?.ok_or(RecordError::Truncated)?;
        self.position += length;
        Ok(value)
    }
}

/// Reads a signed zigzag LEB128 of at most 64 bits off the front of `bytes`, with its length; `None` if it goes on
/// behind their end.
#[inline]
fn read_varint(bytes: &[u8]) -> Result<Option<(i64, usize)>, RecordError> {
    // Most of a record's fields are one byte and most lengths are two: worth ways of their own, past the loop.
    match bytes {
        [low @ 0..0x80, ..] => Ok(Some((unzigzag(u64::from(*low)), 1))),
        [low, high @ 0..0x80, ..] => Ok(Some((unzigzag(u64::from(low & 0x7F) | u64::from(*high) << 7), 2))),
        longer => read_long_varint(longer),
    }
}

fn read_long_varint(bytes: &[u8]) -> Result<Option<(i64, usize)>, RecordError> {
    let mut bits = 0;
    for (i, byte) in bytes.iter().take(VARINT_BYTES_MAX).enumerate() {
        bits |= u64::from(byte & 0x7F) << (7 * i);
        if byte & 0x80 == 0 {
            // The tenth byte has room for one bit.
            return match i == VARINT_BYTES_MAX - 1 && *byte > 1 {
                true => Err(RecordError::BadVarint),
                false => Ok(Some((unzigzag(bits), i + 1))),
            };
        }
    }
    if bytes.len() < VARINT_BYTES_MAX { Ok(None) } else { Err(RecordError::BadVarint) }
}

fn unzigzag(bits: u64) -> i64 {
    (bits >> 1) as i64 ^ -((bits & 1) as i64)
}

/// Appends a signed zigzag LEB128.
pub(crate) fn put_varint(out: &mut Vec<u8>, value: i64) {
    let mut bits = (value << 1 ^ value >> 63) as u64;
    while bits >= 0x80 {
        out.push(bits as u8 | 0x80);
        bits >>= 7;
    }
    out.push(bits as u8);
}

const VARINT_BYTES_MAX: usize = 10;

#[cfg(test)]
mod tests;
