//! Record batches: any records survive the trip, and another implementation reads them and is read.

use bytes::{Bytes, BytesMut};
use kafka_protocol::indexmap::IndexMap;
use kafka_protocol::protocol::StrBytes;
use kafka_protocol::records as oracle;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use thalweg_model::Timestamp;
use thalweg_wire::batch::{BATCH_HEADER_BYTES, Batches, verify_crc};
use thalweg_wire::compression::Compression;
use thalweg_wire::records::{ProduceRules, Record, RecordBatchBuilder, Records, check_produced};

#[derive(Clone, Debug)]
struct Sample {
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
}

fn samples() -> impl Strategy<Value = Vec<Sample>> {
    let bytes = || option::of(vec(any::<u8>(), 0..40));
    let headers = vec(("[a-z]{0,5}", option::of(vec(any::<u8>(), 0..5))), 0..4);
    let sample = (0..i64::MAX / 2, bytes(), bytes(), headers).prop_map(|(timestamp, key, value, headers)| Sample {
        timestamp,
        key,
        value,
        headers,
    });
    vec(sample, 1..30)
}

fn codec() -> impl Strategy<Value = Compression> {
    proptest::sample::select(&Compression::ALL[..])
}

fn build(samples: &[Sample], compression: Compression) -> Bytes {
    let mut builder = RecordBatchBuilder::new(compression);
    for sample in samples {
        let headers: Vec<_> = sample.headers.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect();
        builder.append(Timestamp(sample.timestamp), sample.key.as_deref(), sample.value.as_deref(), &headers);
    }
    builder.build().unwrap()
}

fn is_same(record: &Record, sample: &Sample) -> bool {
    let headers: Vec<_> = record.headers.iter().map(|h| (h.key_text().into_owned(), h.value.map(Vec::from))).collect();
    record.timestamp.0 == sample.timestamp
        && record.key.as_deref() == sample.key.as_deref()
        && record.value.as_deref() == sample.value.as_deref()
        && headers == sample.headers
}

const RULES: ProduceRules = ProduceRules {
    produce_version: 9,
    size_bytes_max: 1 << 20,
    unpacked_bytes_max: 1 << 20,
    key_required: false,
    timestamps: None,
};

proptest! {
    #[test]
    fn any_records_come_back_equal(samples in samples(), compression in codec()) {
        let batch = build(&samples, compression);
        let checked = check_produced(&batch, &RULES).unwrap();
        prop_assert_eq!(checked.max_timestamp.0, samples.iter().map(|s| s.timestamp).max().unwrap());
        prop_assert_eq!(checked.header.max_timestamp, checked.max_timestamp);
        let records: Vec<Record> = Records::open(&batch, 1 << 20).unwrap().collect::<Result<_, _>>().unwrap();
        prop_assert_eq!(records.len(), samples.len());
        for (index, (record, sample)) in records.iter().zip(&samples).enumerate() {
            prop_assert_eq!(record.offset.0, index as i64);
            prop_assert!(is_same(record, sample), "{:?} is not {:?}", record, sample);
        }
    }

    /// Any flipped bit but those the broker stamps is seen.
    #[test]
    fn a_flipped_bit_is_never_accepted(samples in samples(), compression in codec(), at in any::<prop::sample::Index>(), bit in 0..8u8) {
        let mut batch = build(&samples, compression).to_vec();
        let at = at.index(batch.len());
        batch[at] ^= 1u8 << bit;
        let stamped = (12..16).contains(&at);
        prop_assert_eq!(check_produced(&batch, &RULES).is_ok(), stamped, "byte {} bit {}", at, bit);
    }

    /// Damage behind a right CRC is survived: by the check, by the lazy reader, by the walk over batches.
    #[test]
    fn damaged_records_never_panic(
        samples in samples(),
        compression in codec(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let mut batch = build(&samples, compression).to_vec();
        for (at, byte) in damage {
            let at = BATCH_HEADER_BYTES + at.index(batch.len() - BATCH_HEADER_BYTES);
            batch[at] = byte;
        }
        let crc = crc32c::crc32c(&batch[21..]);
        batch[17..21].copy_from_slice(&crc.to_be_bytes());
        let batch = Bytes::from(batch);
        let accepted = check_produced(&batch, &RULES).is_ok();
        let readable = match Records::open(&batch, 1 << 20) {
            Ok(mut records) => records.all(|record| record.is_ok()),
            Err(_) => false,
        };
        prop_assert!(!accepted || readable, "what is accepted must be readable");
        prop_assert!(Batches::new(&batch).all(|item| item.is_ok()));
    }

    #[test]
    fn the_oracle_reads_our_batches(samples in samples()) {
        let batch = build(&samples, Compression::None);
        let set = oracle::RecordBatchDecoder::decode(&mut batch.clone()).unwrap();
        prop_assert_eq!(set.records.len(), samples.len());
        for (record, sample) in set.records.iter().zip(&samples) {
            prop_assert_eq!(record.timestamp, sample.timestamp);
            prop_assert_eq!(record.key.as_deref(), sample.key.as_deref());
            prop_assert_eq!(record.value.as_deref(), sample.value.as_deref());
        }
    }

    #[test]
    fn we_read_the_oracles_batches(samples in samples()) {
        // Its header map holds each name once.
        let samples: Vec<Sample> = samples.into_iter().map(|mut sample| { sample.headers.truncate(1); sample }).collect();
        let records: Vec<oracle::Record> = samples.iter().enumerate().map(|(i, s)| record(i as i64, s)).collect();
        let options = oracle::RecordEncodeOptions { version: 2, compression: oracle::Compression::None };
        let mut out = BytesMut::new();
        oracle::RecordBatchEncoder::encode(&mut out, &records, &options).unwrap();
        let out = out.freeze();
        let mut read = Vec::new();
        for item in Batches::new(&out) {
            let (_, batch) = item.unwrap();
            verify_crc(batch).unwrap();
            let batch = out.slice_ref(batch);
            read.extend(Records::open(&batch, 1 << 20).unwrap().map(Result::unwrap));
        }
        prop_assert_eq!(read.len(), samples.len());
        for (record, sample) in read.iter().zip(&samples) {
            prop_assert!(is_same(record, sample), "{:?} is not {:?}", record, sample);
        }
    }
}

/// Batches that Apache Kafka 4.4's own classes wrote; `wire/tests/kafka/check` makes them anew.
#[test]
fn batches_written_by_kafka_read_back_in_every_codec() {
    for codec in Compression::ALL {
        let path = format!("{}/tests/kafka/{}.batch", std::env::var("CARGO_MANIFEST_DIR").unwrap(), codec.name());
        let batch = Bytes::from(std::fs::read(path).unwrap());
        let header = check_produced(&batch, &RULES).unwrap().header;
        assert_eq!((header.compression(), header.producer_id.0, header.base_sequence), (Some(codec), 7, 5));
        let records: Vec<Record> = Records::open(&batch, 1 << 20).unwrap().collect::<Result<_, _>>().unwrap();
        assert_eq!(records.len(), 100);
        for (i, record) in records.iter().enumerate() {
            let sample = Sample {
                timestamp: 1_000_000 + i as i64,
                key: (i % 3 != 0).then(|| format!("key {i}").into_bytes()),
                value: (i % 5 != 0).then(|| format!("value {i} ").repeat(10).into_bytes()),
                headers: vec![("header".into(), Some(vec![i as u8])), ("null".into(), None)],
            };
            assert!(is_same(record, &sample), "{codec:?}: {record:?} is not {sample:?}");
        }
    }
}

fn record(offset: i64, sample: &Sample) -> oracle::Record {
    let header = |(name, value): &(String, Option<Vec<u8>>)| {
        (StrBytes::from_string(name.clone()), value.clone().map(Bytes::from))
    };
    oracle::Record {
        transactional: false,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: 0,
        producer_id: -1,
        producer_epoch: -1,
        timestamp_type: oracle::TimestampType::Creation,
        offset,
        sequence: offset as i32,
        timestamp: sample.timestamp,
        key: sample.key.clone().map(Bytes::from),
        value: sample.value.clone().map(Bytes::from),
        headers: sample.headers.iter().map(header).collect::<IndexMap<_, _>>(),
    }
}
