//! Record batches v2: the 61-byte header read and patched in place, the checks on what a client sends.
//!
//! The layout is that of Kafka's log and wire alike (KIP-98): base offset i64, length i32, leader epoch i32, magic
//! i8, crc u32 (CRC-32C of all that follows it), attributes i16, last offset delta i32, base timestamp i64, max
//! timestamp i64, producer id i64, producer epoch i16, base sequence i32, record count i32; then the records.

use thalweg_model::topic_config::TimestampType;
use thalweg_model::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Timestamp};
use thiserror::Error;

use crate::compression::Compression;

/// Bytes of a batch before its records.
pub const BATCH_HEADER_BYTES: usize = 61;
/// Bytes of a batch that its length field does not count: base offset and length.
pub const LOG_OVERHEAD_BYTES: usize = 12;

/// A batch's header, by value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Of the first record; compaction may have removed that record.
    pub base_offset: Offset,
    /// As in the length field: bytes after it. The whole batch is [`BatchHeader::size_bytes`].
    pub length: i32,
    pub leader_epoch: LeaderEpoch,
    pub crc: u32,
    pub attributes: Attributes,
    pub last_offset_delta: i32,
    /// Records carry differences to it.
    pub base_timestamp: Timestamp,
    pub max_timestamp: Timestamp,
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    /// Of the first record; -1 without a producer id.
    pub base_sequence: i32,
    pub record_count: i32,
}

impl BatchHeader {
    /// Reads the header at the front of `bytes`; checks magic and length, and that the whole batch is there.
    ///
    /// # Errors
    /// Whoever wrote the bytes is at fault. CRC and records are not looked at; see [`verify_crc`].
    pub fn read(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
        let header = BatchHeader::read_partial(bytes)?;
        let size = header.size_bytes();
        if bytes.len() < size {
            return Err(BatchError::Truncated { needed: size, found: bytes.len() });
        }
        Ok(header)
    }

    /// As [`BatchHeader::read`], but the records may be missing: for scans that read headers only.
    ///
    /// # Errors
    /// Whoever wrote the bytes is at fault.
    pub fn read_partial(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
        let Some(magic) = bytes.get(MAGIC) else {
            return Err(BatchError::Truncated { needed: BATCH_HEADER_BYTES, found: bytes.len() });
        };
        // Old formats have another layout behind the magic, but the same length in front of it.
        match *magic as i8 {
            2 => {}
            magic @ 0..=1 => return Err(BatchError::OldMagic { magic }),
            magic => return Err(BatchError::UnknownMagic { magic }),
        }
        let Some(bytes) = bytes.first_chunk::<BATCH_HEADER_BYTES>() else {
            return Err(BatchError::Truncated { needed: BATCH_HEADER_BYTES, found: bytes.len() });
        };
        let header = BatchHeader {
            base_offset: Offset(i64::from_be_bytes(at(bytes, BASE_OFFSET))),
            length: i32::from_be_bytes(at(bytes, LENGTH)),
            leader_epoch: LeaderEpoch(i32::from_be_bytes(at(bytes, LEADER_EPOCH))),
            crc: u32::from_be_bytes(at(bytes, CRC)),
            attributes: Attributes(i16::from_be_bytes(at(bytes, ATTRIBUTES))),
            last_offset_delta: i32::from_be_bytes(at(bytes, LAST_OFFSET_DELTA)),
            base_timestamp: Timestamp(i64::from_be_bytes(at(bytes, BASE_TIMESTAMP))),
            max_timestamp: Timestamp(i64::from_be_bytes(at(bytes, MAX_TIMESTAMP))),
            producer_id: ProducerId(i64::from_be_bytes(at(bytes, PRODUCER_ID))),
            producer_epoch: ProducerEpoch(i16::from_be_bytes(at(bytes, PRODUCER_EPOCH))),
            base_sequence: i32::from_be_bytes(at(bytes, BASE_SEQUENCE)),
            record_count: i32::from_be_bytes(at(bytes, RECORD_COUNT)),
        };
        if header.length < LENGTH_MIN {
            return Err(BatchError::LengthTooSmall { length: header.length });
        }
        Ok(header)
    }

    pub(crate) fn write(&self, out: &mut [u8; BATCH_HEADER_BYTES]) {
        put(out, BASE_OFFSET, self.base_offset.0.to_be_bytes());
        put(out, LENGTH, self.length.to_be_bytes());
        put(out, LEADER_EPOCH, self.leader_epoch.0.to_be_bytes());
        out[MAGIC] = 2;
        put(out, CRC, self.crc.to_be_bytes());
        put(out, ATTRIBUTES, self.attributes.0.to_be_bytes());
        put(out, LAST_OFFSET_DELTA, self.last_offset_delta.to_be_bytes());
        put(out, BASE_TIMESTAMP, self.base_timestamp.0.to_be_bytes());
        put(out, MAX_TIMESTAMP, self.max_timestamp.0.to_be_bytes());
        put(out, PRODUCER_ID, self.producer_id.0.to_be_bytes());
        put(out, PRODUCER_EPOCH, self.producer_epoch.0.to_be_bytes());
        put(out, BASE_SEQUENCE, self.base_sequence.to_be_bytes());
        put(out, RECORD_COUNT, self.record_count.to_be_bytes());
    }

    /// The whole batch, in bytes.
    pub fn size_bytes(&self) -> usize {
        LOG_OVERHEAD_BYTES + self.length.max(0).unsigned_abs() as usize
    }

    /// Inclusive.
    pub fn last_offset(&self) -> Offset {
        self.base_offset.plus(i64::from(self.last_offset_delta))
    }

    /// The offset after the last one.
    pub fn next_offset(&self) -> Offset {
        self.last_offset().plus(1)
    }

    /// Inclusive; sequences go on at 0 after `i32::MAX`. -1 without sequences.
    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence < 0 { -1 } else { advance_sequence(self.base_sequence, self.last_offset_delta) }
    }

    /// `None`: an id that no codec has.
    pub fn compression(&self) -> Option<Compression> {
        Compression::from_id(self.attributes.compression_id())
    }

    pub fn timestamp_type(&self) -> TimestampType {
        self.attributes.timestamp_type()
    }

    pub fn is_transactional(&self) -> bool {
        self.attributes.is_transactional()
    }

    pub fn is_control(&self) -> bool {
        self.attributes.is_control()
    }
}

/// The sequence `count` records after `sequence`; wraps from `i32::MAX` to 0 (KIP-98).
pub fn advance_sequence(sequence: i32, count: i32) -> i32 {
    ((i64::from(sequence) + i64::from(count)) & i64::from(i32::MAX)) as i32
}

/// A batch's attributes: codec (bits 0-2), timestamp type (3), transactional (4), control (5), delete horizon (6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes(pub i16);

impl Attributes {
    pub fn new(compression: Compression, timestamp_type: TimestampType) -> Attributes {
        Attributes(i16::from(compression.id())).with(TIMESTAMP_TYPE_BIT, timestamp_type == TimestampType::LogAppendTime)
    }

    pub fn compression_id(self) -> u8 {
        (self.0 & 0x07) as u8
    }

    pub fn timestamp_type(self) -> TimestampType {
        if self.0 & TIMESTAMP_TYPE_BIT == 0 { TimestampType::CreateTime } else { TimestampType::LogAppendTime }
    }

    pub fn is_transactional(self) -> bool {
        self.0 & TRANSACTIONAL_BIT != 0
    }

    pub fn is_control(self) -> bool {
        self.0 & CONTROL_BIT != 0
    }

    /// Whether the base timestamp is the time after which compaction drops the tombstones (KIP-534).
    pub fn has_delete_horizon(self) -> bool {
        self.0 & DELETE_HORIZON_BIT != 0
    }

    #[must_use]
    pub fn transactional(self, yes: bool) -> Attributes {
        self.with(TRANSACTIONAL_BIT, yes)
    }

    #[must_use]
    pub fn control(self, yes: bool) -> Attributes {
        self.with(CONTROL_BIT, yes)
    }

    fn with(self, bit: i16, yes: bool) -> Attributes {
        Attributes(if yes { self.0 | bit } else { self.0 & !bit })
    }
}

/// Compares a whole batch's CRC-32C with its bytes.
///
/// # Errors
/// [`BatchError::BadCrc`]: the bytes changed since they were written.
pub fn verify_crc(batch: &[u8]) -> Result<(), BatchError> {
    let (stated, computed) = match batch.first_chunk::<BATCH_HEADER_BYTES>() {
        Some(header) => (u32::from_be_bytes(at(header, CRC)), crc_of(batch)),
        None => return Err(BatchError::Truncated { needed: BATCH_HEADER_BYTES, found: batch.len() }),
    };
    if stated == computed { Ok(()) } else { Err(BatchError::BadCrc { stated, computed }) }
}

/// Writes base offset and leader epoch into a batch that passed [`BatchHeader::read`]. Both lie outside the CRC.
///
/// # Panics
/// If `batch` is shorter than a header.
pub fn stamp(batch: &mut [u8], base_offset: Offset, leader_epoch: LeaderEpoch) {
    let header = header_mut(batch);
    put(header, BASE_OFFSET, base_offset.0.to_be_bytes());
    put(header, LEADER_EPOCH, leader_epoch.0.to_be_bytes());
}

/// Sets a whole batch's timestamp type and maximum timestamp; computes the CRC anew if that changed anything.
///
/// With `LogAppendTime` every record then counts as written at `max_timestamp`.
///
/// # Panics
/// If `batch` is shorter than a header.
pub fn set_max_timestamp(batch: &mut [u8], timestamp_type: TimestampType, max_timestamp: Timestamp) {
    let header = header_mut(batch);
    let attributes = Attributes(i16::from_be_bytes(at(header, ATTRIBUTES)));
    let wanted = attributes.with(TIMESTAMP_TYPE_BIT, timestamp_type == TimestampType::LogAppendTime);
    if wanted == attributes && i64::from_be_bytes(at(header, MAX_TIMESTAMP)) == max_timestamp.0 {
        return;
    }
    put(header, ATTRIBUTES, wanted.0.to_be_bytes());
    put(header, MAX_TIMESTAMP, max_timestamp.0.to_be_bytes());
    write_crc(batch);
}

/// Computes the CRC over a whole batch and writes it.
pub(crate) fn write_crc(batch: &mut [u8]) {
    let crc = crc_of(batch);
    put(header_mut(batch), CRC, crc.to_be_bytes());
}

/// The batches that stand one after another in a buffer, such as a fetch answer or a piece of a log.
///
/// Ends at the first error; [`Batches::position`] then tells where it lies.
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    bytes: &'a [u8],
    position: usize,
    failed: bool,
}

impl<'a> Batches<'a> {
    pub fn new(bytes: &'a [u8]) -> Batches<'a> {
        Batches { bytes, position: 0, failed: false }
    }

    /// Where the next batch begins, or the one that is in error.
    pub fn position(&self) -> usize {
        self.position
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<(BatchHeader, &'a [u8]), BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.bytes[self.position..];
        if rest.is_empty() || self.failed {
            return None;
        }
        let header = match BatchHeader::read(rest) {
            Ok(header) => header,
            Err(error) => {
                self.failed = true;
                return Some(Err(error));
            }
        };
        let batch = &rest[..header.size_bytes()];
        self.position += batch.len();
        Some(Ok((header, batch)))
    }
}

/// Why bytes are no acceptable record batch. The writer's fault; [`crate::error`] gives each its Kafka code.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BatchError {
    #[error("no record batch")]
    Empty,
    #[error("the batch is cut: {needed} bytes needed, {found} found")]
    Truncated { needed: usize, found: usize },
    #[error("a length of {length} bytes is too small for a batch")]
    LengthTooSmall { length: i32 },
    #[error("message format {magic} is too old; clients of Kafka 0.11 and later write format 2")]
    OldMagic { magic: i8 },
    #[error("unknown message format {magic}")]
    UnknownMagic { magic: i8 },
    #[error("CRC-32C is {computed:08x} but the batch states {stated:08x}")]
    BadCrc { stated: u32, computed: u32 },
    #[error("{extra} bytes after the one batch that is allowed")]
    MoreThanOneBatch { extra: usize },
    #[error("a batch of {size} bytes; max.message.bytes is {max}")]
    TooLarge { size: usize, max: usize },
    #[error("base offset {base_offset} where a client must send 0")]
    BaseOffsetNotZero { base_offset: i64 },
    #[error("{record_count} records but a last offset delta of {last_offset_delta}")]
    CountMismatch { record_count: i32, last_offset_delta: i32 },
    #[error("unknown compression {id}")]
    UnknownCompression { id: u8 },
    #[error("zstd needs Produce version 7 or later")]
    ZstdTooEarly,
    #[error("clients may not write control records")]
    Control,
    #[error("producer id {producer_id} with epoch {producer_epoch} and sequence {base_sequence}")]
    BadProducer { producer_id: i64, producer_epoch: i16, base_sequence: i32 },
    #[error("record {index}: {error}")]
    Record { index: i32, error: crate::records::RecordError },
    #[error(transparent)]
    Compression(#[from] crate::compression::CompressionError),
    #[error("{} records without a key in a compacted topic", indexes.len())]
    KeyMissing {
        /// The first ones, by position in the batch.
        indexes: Vec<i32>,
    },
    #[error("{} records with a timestamp outside the topic's window", indexes.len())]
    TimestampOutsideWindow {
        /// The first ones, by position in the batch.
        indexes: Vec<i32>,
    },
}

fn crc_of(batch: &[u8]) -> u32 {
    crc32c::crc32c(&batch[ATTRIBUTES..])
}

fn header_mut(batch: &mut [u8]) -> &mut [u8; BATCH_HEADER_BYTES] {
    batch.first_chunk_mut().expect("the caller read this batch's header before")
}

fn at<const N: usize>(header: &[u8; BATCH_HEADER_BYTES], position: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&header[position..position + N]);
    bytes
}

fn put<const N: usize>(header: &mut [u8; BATCH_HEADER_BYTES], position: usize, bytes: [u8; N]) {
    header[position..position + N].copy_from_slice(&bytes);
}

const BASE_OFFSET: usize = 0;
const LENGTH: usize = 8;
const LEADER_EPOCH: usize = 12;
const MAGIC: usize = 16;
const CRC: usize = 17;
const ATTRIBUTES: usize = 21;
const LAST_OFFSET_DELTA: usize = 23;
const BASE_TIMESTAMP: usize = 27;
const MAX_TIMESTAMP: usize = 35;
const PRODUCER_ID: usize = 43;
const PRODUCER_EPOCH: usize = 51;
const BASE_SEQUENCE: usize = 53;
const RECORD_COUNT: usize = 57;
const LENGTH_MIN: i32 = (BATCH_HEADER_BYTES - LOG_OVERHEAD_BYTES) as i32;
const TIMESTAMP_TYPE_BIT: i16 = 1 << 3;
const TRANSACTIONAL_BIT: i16 = 1 << 4;
const CONTROL_BIT: i16 = 1 << 5;
const DELETE_HORIZON_BIT: i16 = 1 << 6;
