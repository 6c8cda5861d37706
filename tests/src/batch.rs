//! Record batches of format v2, also wrong ones.

use std::io::{Read, Write};

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// How the records of a batch are compressed, numbered as in its attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    None = 0,
    Gzip = 1,
    Snappy = 2,
    Lz4 = 3,
    Zstd = 4,
}

impl Codec {
    pub const ALL: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Vec<(String, Option<Bytes>)>,
    /// Milliseconds since 1970.
    pub timestamp: i64,
    /// Absolute; counts only when read.
    pub offset: i64,
}

impl Record {
    /// A record without a key, stamped now.
    pub fn of(value: &str) -> Record {
        Record { value: Some(Bytes::copy_from_slice(value.as_bytes())), timestamp: now_ms(), ..Record::default() }
    }

    pub fn keyed(key: &str, value: &str) -> Record {
        Record { key: Some(Bytes::copy_from_slice(key.as_bytes())), ..Record::of(value) }
    }

    pub fn at(mut self, timestamp: i64) -> Record {
        self.timestamp = timestamp;
        self
    }
}

/// A batch to encode. Every header field can be set to what no honest client writes.
#[derive(Clone, Debug)]
pub struct Batch {
    pub records: Vec<Record>,
    pub codec: Codec,
    pub base_offset: i64,
    pub leader_epoch: i32,
    pub magic: i8,
    /// Or-ed to the codec's bits.
    pub attributes: i16,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    /// `None`: what the records say.
    pub last_offset_delta: Option<i32>,
    pub max_timestamp: Option<i64>,
    pub count: Option<i32>,
    pub length: Option<i32>,
    /// Instead of the encoded (and compressed) records.
    pub payload: Option<Vec<u8>>,
    pub corrupt_crc: bool,
}

impl Batch {
    pub fn of(records: Vec<Record>) -> Batch {
        Batch {
            records,
            codec: Codec::None,
            base_offset: 0,
            leader_epoch: -1,
            magic: 2,
            attributes: 0,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            last_offset_delta: None,
            max_timestamp: None,
            count: None,
            length: None,
            payload: None,
            corrupt_crc: false,
        }
    }

    /// A batch of records with these values.
    pub fn values(values: &[&str]) -> Batch {
        Batch::of(values.iter().map(|value| Record::of(value)).collect())
    }

    pub fn codec(mut self, codec: Codec) -> Batch {
        self.codec = codec;
        self
    }

    /// The batch as sent by an idempotent producer.
    pub fn producer(mut self, id: i64, epoch: i16, base_sequence: i32) -> Batch {
        (self.producer_id, self.producer_epoch, self.base_sequence) = (id, epoch, base_sequence);
        self
    }

    pub fn encode(&self) -> Bytes {
        let base_timestamp = self.records.first().map_or(0, |record| record.timestamp);
        let max_timestamp = self.records.iter().map(|record| record.timestamp).max().unwrap_or(-1);
        let count = self.records.len() as i32;
        let payload = self.payload.clone().unwrap_or_else(|| compress(self.codec, &self.records_bytes(base_timestamp)));

        let mut covered = BytesMut::new();
        covered.put_i16(self.attributes | self.codec as i16);
        covered.put_i32(self.last_offset_delta.unwrap_or(count - 1));
        covered.put_i64(base_timestamp);
        covered.put_i64(self.max_timestamp.unwrap_or(max_timestamp));
        covered.put_i64(self.producer_id);
        covered.put_i16(self.producer_epoch);
        covered.put_i32(self.base_sequence);
        covered.put_i32(self.count.unwrap_or(count));
        covered.put_slice(&payload);

        let mut batch = BytesMut::new();
        batch.put_i64(self.base_offset);
        batch.put_i32(self.length.unwrap_or(BYTES_BEFORE_CRC_COVERAGE + covered.len() as i32));
        batch.put_i32(self.leader_epoch);
        batch.put_i8(self.magic);
        batch.put_u32(crc32c::crc32c(&covered) ^ u32::from(self.corrupt_crc));
        batch.put_slice(&covered);
        batch.freeze()
    }

    fn records_bytes(&self, base_timestamp: i64) -> Vec<u8> {
        let mut all = Vec::new();
        for (i, record) in self.records.iter().enumerate() {
            let mut body = vec![0];
            put_varint(&mut body, record.timestamp - base_timestamp);
            put_varint(&mut body, i as i64);
            put_nullable(&mut body, record.key.as_deref());
            put_nullable(&mut body, record.value.as_deref());
            put_varint(&mut body, record.headers.len() as i64);
            for (name, value) in &record.headers {
                put_nullable(&mut body, Some(name.as_bytes()));
                put_nullable(&mut body, value.as_deref());
            }
            put_varint(&mut all, body.len() as i64);
            all.extend_from_slice(&body);
        }
        all
    }
}

/// A batch as a fetch returned it, its checksum verified.
#[derive(Clone, Debug)]
pub struct ReadBatch {
    pub base_offset: i64,
    pub last_offset: i64,
    pub leader_epoch: i32,
    pub attributes: i16,
    pub max_timestamp: i64,
    pub producer_id: i64,
    pub base_sequence: i32,
    pub records: Vec<Record>,
    /// Of the whole batch, in bytes.
    pub size: usize,
}

/// The whole batches in `bytes`; a cut one at the end is left out, as a consumer does.
pub fn read_batches(bytes: &[u8]) -> Vec<ReadBatch> {
    let mut rest = bytes;
    let mut batches = Vec::new();
    while rest.len() >= 12 {
        let size = 12 + i32::from_be_bytes(rest[8..12].try_into().expect("four bytes")) as usize;
        if rest.len() < size {
            break;
        }
        batches.push(read_batch(&rest[..size]));
        rest = &rest[size..];
    }
    batches
}

/// The records of [`read_batches`], in order.
pub fn read_records(bytes: &[u8]) -> Vec<Record> {
    read_batches(bytes).into_iter().flat_map(|batch| batch.records).collect()
}

/// The values of [`read_records`], as text.
pub fn read_values(bytes: &[u8]) -> Vec<String> {
    read_records(bytes)
        .into_iter()
        .map(|record| String::from_utf8(record.value.expect("a value").to_vec()).expect("text"))
        .collect()
}

fn read_batch(mut bytes: &[u8]) -> ReadBatch {
    let size = bytes.len();
    let base_offset = bytes.get_i64();
    bytes.advance(4);
    let leader_epoch = bytes.get_i32();
    assert_eq!(bytes.get_i8(), 2, "the magic of a served batch");
    assert_eq!(bytes.get_u32(), crc32c::crc32c(bytes), "the checksum of a served batch");
    let attributes = bytes.get_i16();
    let last_offset = base_offset + i64::from(bytes.get_i32());
    let base_timestamp = bytes.get_i64();
    let max_timestamp = bytes.get_i64();
    let producer_id = bytes.get_i64();
    bytes.advance(2);
    let base_sequence = bytes.get_i32();
    let count = bytes.get_i32();
    let plain = decompress(attributes & 7, bytes);
    let mut rest = plain.as_slice();
    let mut records = Vec::new();
    for _ in 0..count {
        get_varint(&mut rest);
        rest.advance(1);
        let timestamp = base_timestamp + get_varint(&mut rest);
        let offset = base_offset + get_varint(&mut rest);
        let key = get_nullable(&mut rest);
        let value = get_nullable(&mut rest);
        let headers = (0..get_varint(&mut rest))
            .map(|_| {
                let name = get_nullable(&mut rest).expect("a header has a name");
                (String::from_utf8(name.to_vec()).expect("a header's name is text"), get_nullable(&mut rest))
            })
            .collect();
        records.push(Record { key, value, headers, timestamp, offset });
    }
    assert!(rest.is_empty(), "bytes after a batch's last record");
    ReadBatch {
        base_offset,
        last_offset,
        leader_epoch,
        attributes,
        max_timestamp,
        producer_id,
        base_sequence,
        records,
        size,
    }
}

/// Compresses as clients do; snappy in the block framing that Java writes.
pub fn compress(codec: Codec, plain: &[u8]) -> Vec<u8> {
    match codec {
        Codec::None => plain.to_vec(),
        Codec::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(plain).expect("memory takes bytes");
            encoder.finish().expect("memory takes bytes")
        }
        Codec::Snappy => {
            let mut framed = XERIAL_HEADER.to_vec();
            for block in plain.chunks(32 << 10) {
                let packed = snap::raw::Encoder::new().compress_vec(block).expect("a block of 32 KiB compresses");
                framed.extend_from_slice(&(packed.len() as u32).to_be_bytes());
                framed.extend_from_slice(&packed);
            }
            framed
        }
        Codec::Lz4 => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            encoder.write_all(plain).expect("memory takes bytes");
            encoder.finish().expect("memory takes bytes")
        }
        Codec::Zstd => zstd::bulk::compress(plain, 3).expect("memory takes bytes"),
    }
}

fn decompress(codec: i16, packed: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    match codec {
        0 => plain.extend_from_slice(packed),
        1 => drop(flate2::read::GzDecoder::new(packed).read_to_end(&mut plain).expect("gzip")),
        2 if packed.starts_with(&XERIAL_HEADER[..8]) => {
            let mut rest = &packed[XERIAL_HEADER.len()..];
            while rest.has_remaining() {
                let length = rest.get_u32() as usize;
                plain.extend(snap::raw::Decoder::new().decompress_vec(&rest[..length]).expect("snappy"));
                rest.advance(length);
            }
        }
        2 => plain = snap::raw::Decoder::new().decompress_vec(packed).expect("snappy"),
        3 => drop(lz4_flex::frame::FrameDecoder::new(packed).read_to_end(&mut plain).expect("lz4")),
        4 => plain = zstd::stream::decode_all(packed).expect("zstd"),
        other => panic!("codec {other} in a served batch"),
    }
    plain
}

pub fn now_ms() -> i64 {
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since_1970.expect("the clock is past 1970").as_millis() as i64
}

fn put_varint(into: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        into.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    into.push(rest as u8);
}

fn get_varint(from: &mut &[u8]) -> i64 {
    let mut value = 0u64;
    for shift in (0..70).step_by(7) {
        let byte = from.get_u8();
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

fn put_nullable(into: &mut Vec<u8>, bytes: Option<&[u8]>) {
    put_varint(into, bytes.map_or(-1, |bytes| bytes.len() as i64));
    into.extend_from_slice(bytes.unwrap_or_default());
}

fn get_nullable(from: &mut &[u8]) -> Option<Bytes> {
    let length = usize::try_from(get_varint(from)).ok()?;
    let bytes = Bytes::copy_from_slice(&from[..length]);
    from.advance(length);
    Some(bytes)
}

/// Magic, version 1, compatible version 1 (xerial snappy-java).
const XERIAL_HEADER: [u8; 16] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1];

/// Leader epoch, magic and checksum: counted by the length, not by the checksum.
const BYTES_BEFORE_CRC_COVERAGE: i32 = 9;
