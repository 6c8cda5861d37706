//! Targets over the wire crate: no panic, no more memory than promised, what is read can be written and read again.

use std::path::{Component, Path};
use std::sync::LazyLock;

use bytes::{Bytes, BytesMut};
use thalweg_model::{TopicId, TopicName, TopicPartition};
use thalweg_wire::DecodeError;
use thalweg_wire::batch::{BATCH_HEADER_BYTES, Batches};
use thalweg_wire::compression::{Compression, compress, decompress};
use thalweg_wire::frame::FrameDecoder;
use thalweg_wire::header::{decode_request_header, decode_response_header};
use thalweg_wire::messages::{MessageInfo, all};
use thalweg_wire::records::{ProduceRules, Records, check_produced};

use super::counting_allocator::peak_bytes;

/// Bytes off a socket: frames, request header, body of every served API and version.
pub fn frame_header_request(data: &[u8]) {
    let mut stream = BytesMut::from(data);
    while let Ok(Some(frame)) = FrameDecoder::default().next(&mut stream) {
        request(&frame);
    }
    // Without a size in front too, else most inputs would be wasted on getting it right.
    request(&Bytes::copy_from_slice(data));
}

fn request(frame: &Bytes) {
    let (header, peak) = peak_bytes(|| decode_request_header(frame));
    assert!(peak <= memory_bound(frame.len()), "the header took {peak} bytes");
    if let Ok((header, body)) = header {
        message(find(|info| info.is_request && info.key == header.api_key), &body, header.api_version);
    }
}

/// Bytes from a server, as a client reads them: key and version (2 bytes each), response header, body.
pub fn response(data: &[u8]) {
    let Some((&[key, version], rest)) = data.split_first_chunk() else { return };
    let Some(info) = MESSAGES.iter().find(|info| !info.is_request && info.key.code() == i16::from(key)) else { return };
    let version = i16::from(version);
    if let Ok((_, body)) = decode_response_header(&Bytes::copy_from_slice(rest), info.key, version) {
        message(info, &body, version);
    }
}

fn message(info: &MessageInfo, body: &Bytes, version: i16) {
    // With a long tail the counts that a fuzzer comes up with can be true, which is when memory is at stake.
    let mut padded = body.to_vec();
    padded.resize(body.len() + PADDING_BYTES, body.last().map_or(0, |last| last & 1));
    let _ = decode(info, &padded.into(), version);
    if decode(info, body, version).is_err() {
        return;
    }
    // The first writing may drop tags that have their default; from then on nothing changes.
    let canonical = (info.transcode)(body, version).expect("what was read can be written");
    let again = (info.transcode)(&canonical, version).expect("what was written can be read");
    assert_eq!(canonical, again, "{} version {version}", info.name);
}

fn decode(info: &MessageInfo, body: &Bytes, version: i16) -> Result<(), DecodeError> {
    let (result, peak) = peak_bytes(|| (info.decode)(body, version));
    assert!(peak <= memory_bound(body.len()), "{} took {peak} bytes for {}", info.name, body.len());
    result
}

/// Record batches as a client sends them, with the CRC and length put right so that the inside is reached.
///
/// The first byte chooses a codec, under which the rest is tried as compressed data too.
pub fn record_batch(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let codec = Compression::ALL[usize::from(*choice) % Compression::ALL.len()];
    produced(data);
    if data.len() >= BATCH_HEADER_BYTES {
        let mut mended = data.to_vec();
        let length = mended.len() as u32 - 12;
        mended[8..12].copy_from_slice(&length.to_be_bytes());
        mended[16] = 2;
        let crc = crc32c(&mended[21..]);
        mended[17..21].copy_from_slice(&crc.to_be_bytes());
        produced(&mended);
    }
    for item in Batches::new(data) {
        drop(item);
    }
    unpacked(codec, &Bytes::copy_from_slice(data));
}

fn produced(batch: &[u8]) {
    let (result, peak) = peak_bytes(|| check_produced(batch, &RULES));
    assert!(peak <= memory_bound(batch.len()) + UNPACKED_BYTES_MAX, "checking took {peak} bytes for {}", batch.len());
    let batch = Bytes::copy_from_slice(batch);
    let records = Records::open(&batch, UNPACKED_BYTES_MAX).map(|records| records.collect::<Vec<_>>());
    let Ok(checked) = result else { return };
    let records = records.expect("what was accepted opens");
    assert_eq!(records.len(), checked.header.record_count as usize);
    for record in records {
        let record = record.expect("what was accepted reads");
        assert_eq!(record.headers.iter().count(), record.headers.len());
    }
}

fn unpacked(codec: Compression, bytes: &Bytes) {
    let (result, peak) = peak_bytes(|| decompress(codec, bytes, UNPACKED_BYTES_MAX));
    // The output grows by doubling, beside one block.
    let bound = memory_bound(bytes.len()) + 3 * UNPACKED_BYTES_MAX;
    assert!(peak <= bound, "unpacking {codec:?} took {peak} bytes for {}", bytes.len());
    if let Ok(out) = result {
        assert!(out.len() <= UNPACKED_BYTES_MAX);
    }
    let packed = compress(codec, bytes).expect("packing into memory cannot fail");
    let again = decompress(codec, &packed.into(), bytes.len()).expect("what was packed unpacks");
    assert_eq!(again, bytes);
}

/// Names that become directories: a valid one is one plain path component and reads back.
pub fn topic_name(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(name) = TopicName::new(text) {
        assert_eq!(name.as_str(), text);
        let dir = TopicPartition::new(name, thalweg_model::PartitionIndex(7)).to_string();
        for part in [text, &dir] {
            let components: Vec<_> = Path::new(part).components().collect();
            assert!(matches!(components[..], [Component::Normal(found)] if found == part), "{part:?}");
        }
        assert!(TopicPartition::from_dir_name(&dir).is_some());
    }
    if let Some(partition) = TopicPartition::from_dir_name(text) {
        assert_eq!(partition.to_string(), text);
    }
    if let Some(id) = TopicId::from_base64(text) {
        assert_eq!(id.to_base64(), text);
    }
}

fn find(wanted: impl Fn(&MessageInfo) -> bool) -> &'static MessageInfo {
    MESSAGES.iter().find(|info| wanted(info)).expect("every served key has its messages")
}

/// What a decoder may hold: 4 bytes per byte and 64 KiB, plus the small header that shares a frame between slices.
fn memory_bound(length: usize) -> usize {
    4 * length + (64 << 10) + 64
}

fn crc32c(bytes: &[u8]) -> u32 {
    // Bitwise, and so independent of the crate that the code under test uses.
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 0 { crc >> 1 } else { crc >> 1 ^ 0x82f6_3b78 })
    })
}

static MESSAGES: LazyLock<Vec<MessageInfo>> = LazyLock::new(all);

const PADDING_BYTES: usize = 16 << 10;
const UNPACKED_BYTES_MAX: usize = 1 << 20;
const RULES: ProduceRules = ProduceRules {
    produce_version: 9,
    size_bytes_max: 1 << 20,
    unpacked_bytes_max: UNPACKED_BYTES_MAX,
    key_required: false,
    timestamps: None,
};
