use thalweg_model::{ErrorCode, LeaderEpoch, ProducerEpoch, ProducerId};

use super::*;
use crate::batch::{Batches, set_max_timestamp, stamp, verify_crc, write_crc};
use crate::compression::CompressionError;
use crate::error::ToErrorCode;

const RULES: ProduceRules = ProduceRules {
    produce_version: 9,
    size_bytes_max: 1 << 20,
    unpacked_bytes_max: 1 << 20,
    key_required: false,
    timestamps: None,
};

fn builder(compression: Compression) -> RecordBatchBuilder {
    let mut builder = RecordBatchBuilder::new(compression);
    builder.append(Timestamp(1000), Some(b"k"), Some(b"first"), &[("h", Some(b"1")), ("h", None), ("", Some(b""))]);
    builder.append(Timestamp(3000), None, Some(b""), &[]);
    builder.append(Timestamp(2000), Some(b""), None, &[]);
    builder
}

fn batch(compression: Compression) -> Bytes {
    builder(compression).build().unwrap()
}

/// A batch with one thing changed and the CRC made right again.
fn changed(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = batch(Compression::None).to_vec();
    change(&mut bytes);
    write_crc(&mut bytes);
    bytes
}

/// A batch around raw record bytes, which may be nonsense.
fn around(records: &[u8], record_count: i32) -> Vec<u8> {
    let mut bytes = batch(Compression::None)[..BATCH_HEADER_BYTES].to_vec();
    bytes.extend_from_slice(records);
    let length = (bytes.len() - 12) as i32;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    bytes[23..27].copy_from_slice(&(record_count - 1).to_be_bytes());
    bytes[57..61].copy_from_slice(&record_count.to_be_bytes());
    write_crc(&mut bytes);
    bytes
}

fn refusal(records: &[u8]) -> BatchError {
    check_produced(records, &RULES).unwrap_err()
}

#[test]
fn records_come_out_of_every_codec_as_they_went_in() {
    for compression in Compression::ALL {
        let batch = batch(compression);
        verify_crc(&batch).unwrap();
        let checked = check_produced(&batch, &RULES).unwrap();
        assert_eq!((checked.max_timestamp, checked.max_timestamp_index), (Timestamp(3000), 1));
        let records: Vec<Record> = Records::open(&batch, 1 << 20).unwrap().collect::<Result<_, _>>().unwrap();
        assert_eq!(records.iter().map(|r| r.offset.0).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(records.iter().map(|r| r.timestamp.0).collect::<Vec<_>>(), [1000, 3000, 2000]);
        assert_eq!(records[0].key.as_deref(), Some(&b"k"[..]));
        assert_eq!((records[1].key.as_deref(), records[1].value.as_deref()), (None, Some(&b""[..])));
        assert_eq!((records[2].key.as_deref(), records[2].value.as_deref()), (Some(&b""[..]), None));
        let headers: Vec<_> = records[0].headers.iter().map(|h| (h.key, h.value)).collect();
        let expected: [(&[u8], Option<&[u8]>); 3] = [(b"h", Some(b"1")), (b"h", None), (b"", Some(b""))];
        assert_eq!(headers, expected.map(|(k, v)| (Bytes::from_static(k), v.map(Bytes::copy_from_slice))));
    }
}

/// The bytes of Kafka's own layout, spelled out once.
#[test]
fn a_batch_has_kafkas_layout_byte_for_byte() {
    let mut builder = RecordBatchBuilder::new(Compression::None).producer(ProducerId(7), ProducerEpoch(1), 5);
    builder.append(Timestamp(256), Some(b"k"), Some(b"v"), &[]);
    let bytes = builder.at(Offset(3), LeaderEpoch(2)).build().unwrap();
    let mut expected = vec![0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 58, 0, 0, 0, 2, 2];
    expected.extend_from_slice(&crc32c::crc32c(&bytes[21..]).to_be_bytes());
    expected.extend_from_slice(&[0, 0, 0, 0, 0, 0]); // attributes, last offset delta
    expected.extend_from_slice(&[0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0]); // timestamps
    expected.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 7, 0, 1, 0, 0, 0, 5, 0, 0, 0, 1]);
    expected.extend_from_slice(&[16, 0, 0, 0, 2, b'k', 2, b'v', 0]);
    assert_eq!(bytes, expected);
}

#[test]
fn stamping_leaves_the_crc_right_and_so_does_a_new_timestamp_type() {
    let mut bytes = batch(Compression::Zstd).to_vec();
    let crc = BatchHeader::read(&bytes).unwrap().crc;
    stamp(&mut bytes, Offset(1 << 40), LeaderEpoch(9));
    let header = BatchHeader::read(&bytes).unwrap();
    assert_eq!((header.base_offset, header.leader_epoch, header.crc), (Offset(1 << 40), LeaderEpoch(9), crc));
    assert_eq!(header.next_offset(), Offset((1 << 40) + 3));
    verify_crc(&bytes).unwrap();

    set_max_timestamp(&mut bytes, TimestampType::CreateTime, Timestamp(3000));
    assert_eq!(BatchHeader::read(&bytes).unwrap().crc, crc, "nothing changed");
    set_max_timestamp(&mut bytes, TimestampType::LogAppendTime, Timestamp(5000));
    verify_crc(&bytes).unwrap();
    let records = Records::open(&bytes.into(), 1 << 20).unwrap();
    assert_eq!(records.header().timestamp_type(), TimestampType::LogAppendTime);
    assert!(records.map(|record| record.unwrap().timestamp).all(|timestamp| timestamp == Timestamp(5000)));
}

#[test]
fn each_broken_rule_has_its_own_error_and_kafkas_code() {
    let good = batch(Compression::None);
    let two = [&good[..], &good[..]].concat();
    let cases: Vec<(Vec<u8>, &str, ErrorCode)> = vec![
        (vec![], "no record batch", ErrorCode::InvalidRecord),
        (good[..good.len() - 1].to_vec(), "is cut", ErrorCode::InvalidRecord),
        (good[..20].to_vec(), "is cut", ErrorCode::InvalidRecord),
        (good[..7].to_vec(), "is cut", ErrorCode::InvalidRecord),
        (changed(|b| b[16] = 1), "too old", ErrorCode::InvalidRecord),
        (changed(|b| b[16] = 0), "too old", ErrorCode::InvalidRecord),
        (changed(|b| b[16] = 3), "unknown message format 3", ErrorCode::CorruptMessage),
        (changed(|b| b[16] = 0xff), "unknown message format -1", ErrorCode::CorruptMessage),
        (changed(|b| b[8..12].fill(0)), "too small", ErrorCode::CorruptMessage),
        (changed(|b| b[8..12].fill(0xff)), "too small", ErrorCode::CorruptMessage),
        ([&good[..40], &[1], &good[41..]].concat(), "CRC-32C", ErrorCode::CorruptMessage),
        (two, "after the one batch", ErrorCode::InvalidRecord),
        (changed(|b| b[7] = 1), "base offset 1", ErrorCode::InvalidRecord),
        (changed(|b| b[60] = 4), "4 records", ErrorCode::InvalidRecord),
        (changed(|b| b[57..61].fill(0)), "0 records", ErrorCode::InvalidRecord),
        (changed(|b| (b[57], b[23]) = (0x80, 0x80)), "records but", ErrorCode::InvalidRecord),
        (changed(|b| b[22] = 5), "unknown compression 5", ErrorCode::InvalidRecord),
        (changed(|b| b[22] = 1), "bad gzip data", ErrorCode::InvalidRecord),
        (changed(|b| b[22] = 1 << 5), "control", ErrorCode::InvalidRecord),
        (changed(|b| b[22] = 1 << 4), "producer id -1", ErrorCode::InvalidRecord),
        (changed(|b| b[43..51].fill(0)), "producer id 0", ErrorCode::InvalidRecord),
    ];
    for (bytes, message, code) in cases {
        let error = refusal(&bytes);
        assert!(error.to_string().contains(message), "{error} should contain {message}");
        assert_eq!(error.error_code(), code, "{error}");
    }
    let too_large = check_produced(&good, &ProduceRules { size_bytes_max: good.len() - 1, ..RULES }).unwrap_err();
    assert_eq!(too_large.error_code(), ErrorCode::MessageTooLarge);
    let zstd = batch(Compression::Zstd);
    let early = check_produced(&zstd, &ProduceRules { produce_version: 6, ..RULES }).unwrap_err();
    assert_eq!(early.error_code(), ErrorCode::UnsupportedCompressionType);
    assert!(check_produced(&zstd, &ProduceRules { produce_version: 7, ..RULES }).is_ok());
}

#[test]
fn records_that_do_not_read_are_refused() {
    // A good record: length 8, attributes, deltas 0 0, null key, value of 1 byte, no headers.
    let good = [14, 0, 0, 0, 1, 2, b'v', 0];
    assert!(check_produced(&around(&good, 1), &RULES).is_ok());
    let cases: Vec<(Vec<u8>, RecordError)> = vec![
        (vec![], RecordError::Truncated),
        (good[..7].to_vec(), RecordError::Truncated),
        (vec![1], RecordError::NegativeLength { length: -1 }),
        (vec![14, 0, 0, 2, 1, 2, b'v', 0], RecordError::OffsetDelta { found: 1, expected: 0 }),
        (vec![14, 0, 0, 0, 1, 4, b'v', b'w', 0], RecordError::LengthMismatch { stated: 7, used: 8 }),
        (vec![14, 0, 0, 0, 3, 2, b'v', 0], RecordError::NegativeLength { length: -2 }),
        (vec![16, 0, 0, 0, 1, 2, b'v', 0, 0], RecordError::LengthMismatch { stated: 8, used: 7 }),
        (vec![14, 0, 0, 0, 1, 2, b'v', 1], RecordError::NegativeLength { length: -1 }),
        (vec![18, 0, 0, 0, 1, 2, b'v', 2, 1, 1], RecordError::NegativeLength { length: -1 }),
        (vec![0xff; 11], RecordError::BadVarint),
        ([&good[..], &[0]].concat(), RecordError::TrailingBytes { extra: 1 }),
    ];
    for (bytes, expected) in cases {
        let error = refusal(&around(&bytes, 1));
        assert_eq!(error, BatchError::Record { index: 0, error: expected }, "{bytes:?}");
        assert_eq!(error.error_code(), ErrorCode::InvalidRecord);
        // The lazy reader never panics on the same bytes.
        for record in Records::open(&around(&bytes, 1).into(), 1 << 20).unwrap() {
            drop(record);
        }
    }
}

#[test]
fn a_missing_key_names_its_records() {
    let error = check_produced(&batch(Compression::Lz4), &ProduceRules { key_required: true, ..RULES }).unwrap_err();
    assert_eq!(error, BatchError::KeyMissing { indexes: vec![1] });
    assert_eq!(error.error_code(), ErrorCode::InvalidRecord);
}

#[test]
fn timestamps_outside_the_window_are_named_but_minus_one_passes() {
    let window = TimestampWindow::around(Timestamp(2000), 1000, 500);
    let rules = ProduceRules { timestamps: Some(window), ..RULES };
    let error = check_produced(&batch(Compression::None), &rules).unwrap_err();
    assert_eq!(error, BatchError::TimestampOutsideWindow { indexes: vec![1] });
    assert_eq!(error.error_code(), ErrorCode::InvalidTimestamp);
    let mut builder = RecordBatchBuilder::new(Compression::None);
    builder.append(Timestamp::NONE, None, Some(b"v"), &[]);
    assert!(check_produced(&builder.build().unwrap(), &rules).is_ok());
    let forever = TimestampWindow::around(Timestamp(2000), i64::MAX, i64::MAX);
    assert!(check_produced(&batch(Compression::None), &ProduceRules { timestamps: Some(forever), ..RULES }).is_ok());
}

/// Old sarama leaves the maximum at -1; deduplication and lookups by time need the true one.
#[test]
fn a_header_without_maximum_timestamp_is_mended() {
    let mut bytes = changed(|b| b[35..43].fill(0xff));
    let checked = check_produced(&bytes, &RULES).unwrap();
    assert_eq!((checked.header.max_timestamp, checked.max_timestamp), (Timestamp::NONE, Timestamp(3000)));
    set_max_timestamp(&mut bytes, TimestampType::CreateTime, checked.max_timestamp);
    assert_eq!(bytes, batch(Compression::None));
}

#[test]
fn a_bomb_stops_at_the_limit_without_being_held() {
    let mut builder = RecordBatchBuilder::new(Compression::Gzip);
    builder.append(Timestamp(0), None, Some(&vec![0; 8 << 20]), &[]);
    let bomb = builder.build().unwrap();
    let error = refusal(&bomb);
    assert_eq!(error, BatchError::Compression(CompressionError::TooLarge { max: 1 << 20 }));
    assert_eq!(error.error_code(), ErrorCode::MessageTooLarge);
    assert!(check_produced(&bomb, &ProduceRules { unpacked_bytes_max: 9 << 20, ..RULES }).is_ok());
}

#[test]
fn snappy_is_read_with_and_without_the_java_framing() {
    let plain = batch(Compression::None);
    let raw = snap::raw::Encoder::new().compress_vec(&plain[BATCH_HEADER_BYTES..]).unwrap();
    let mut bytes = around(&raw, 3);
    bytes[22] = Compression::Snappy.id();
    write_crc(&mut bytes);
    assert!(check_produced(&bytes, &RULES).is_ok());
    let framed = batch(Compression::Snappy);
    assert_eq!(&framed[BATCH_HEADER_BYTES..BATCH_HEADER_BYTES + 8], b"\x82SNAPPY\0");
    assert_eq!(Records::open(&bytes.into(), 1 << 20).unwrap().count(), 3);
}

#[test]
fn batches_are_walked_up_to_a_cut_one() {
    let (first, second) = (batch(Compression::None), batch(Compression::Gzip));
    let bytes = [&first[..], &second[..], &first[..30]].concat();
    let mut batches = Batches::new(&bytes);
    assert_eq!(batches.next().unwrap().unwrap().1, &first[..]);
    assert_eq!(batches.next().unwrap().unwrap().1, &second[..]);
    let end = batches.position();
    assert!(matches!(batches.next(), Some(Err(BatchError::Truncated { .. }))));
    assert_eq!((batches.next(), batches.position()), (None, end));
}

#[test]
fn sequences_wrap_to_zero() {
    use crate::batch::advance_sequence;
    assert_eq!(advance_sequence(i32::MAX, 1), 0);
    assert_eq!(advance_sequence(i32::MAX - 1, 3), 1);
    assert_eq!(advance_sequence(5, 2), 7);
    let batch = builder(Compression::None).producer(ProducerId(1), ProducerEpoch(0), i32::MAX - 1).build().unwrap();
    assert_eq!(BatchHeader::read(&batch).unwrap().last_sequence(), 0);
    assert_eq!(BatchHeader::read(&self::batch(Compression::None)).unwrap().last_sequence(), -1);
}

#[test]
fn markers_read_back() {
    for marker in [ControlRecord::Abort { coordinator_epoch: 3 }, ControlRecord::Commit { coordinator_epoch: 4 }] {
        let builder = RecordBatchBuilder::marker(marker, ProducerId(9), ProducerEpoch(2), Timestamp(77)).unwrap();
        let bytes = builder.build().unwrap();
        let mut records = Records::open(&bytes, 1 << 20).unwrap();
        assert!(records.header().is_control() && records.header().is_transactional());
        assert_eq!(ControlRecord::read(&records.next().unwrap().unwrap()), Some(marker));
        assert_eq!(refusal(&bytes), BatchError::Control);
    }
}
