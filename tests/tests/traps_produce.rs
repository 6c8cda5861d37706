//! Produce: what a batch must be, what the answer says, and the idempotent producer's sequence.

use bytes::Bytes;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{InitProducerIdRequest, ProduceRequest, ProducerId};
use thalweg_tests::batch::{Codec, Record, compress, now_ms, read_batches};
use thalweg_tests::calls::{
    Fetch, append, init_producer_id, metadata, produce, produce_at, produce_request, read_from, text, topic_name,
};
use thalweg_tests::{Batch, Conn, ErrorCode, Node, target, unique};

fn code(error: ErrorCode) -> i16 {
    error.code()
}

/// Case 13 and 49: offsets of a new topic start at 0, have no holes, and the answer names the first one.
#[test]
fn offsets_start_at_zero_and_the_answer_names_the_first() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    let answer = produce(&mut conn, &topic, Batch::values(&["a", "b", "c"]).encode());
    assert_eq!((answer.error_code, answer.base_offset), (0, 0));
    assert_eq!((answer.log_append_time_ms, answer.log_start_offset), (-1, 0));
    assert_eq!(append(&mut conn, &topic, Batch::values(&["d"]).encode()), 3);
    let data = Fetch::default().one(&mut conn, &topic, 0);
    let offsets: Vec<i64> =
        read_batches(&data.records.unwrap()).into_iter().flat_map(|b| b.records).map(|r| r.offset).collect();
    assert_eq!(offsets, [0, 1, 2, 3]);
    assert_eq!(data.high_watermark, 4);
}

/// Case 15: one request for several partitions of several topics gets one result for each.
#[test]
fn every_partition_sent_gets_a_result() {
    let target = target();
    let mut conn = target.conn();
    let topics = [target.topic_with(&mut conn, 3, &[]), target.topic(&mut conn)];
    let records = Batch::values(&["x"]).encode();
    let mut request = produce_request(
        -1,
        &topics[0],
        &[
            (2, Some(records.clone())),
            (0, Some(records.clone())),
            (1, Some(records.clone())),
            (3, Some(records.clone())),
        ],
    );
    request.topic_data.extend(produce_request(-1, &topics[1], &[(0, Some(records))]).topic_data);
    for version in [3, 8, 9, 11] {
        let answer = conn.call(version, &request);
        let mut results: Vec<(String, i32, i16)> = answer
            .responses
            .iter()
            .flat_map(|t| t.partition_responses.iter().map(|p| (t.name.to_string(), p.index, p.error_code)))
            .collect();
        results.sort();
        let mut expected = vec![
            (topics[0].clone(), 0, 0),
            (topics[0].clone(), 1, 0),
            (topics[0].clone(), 2, 0),
            (topics[0].clone(), 3, code(ErrorCode::UnknownTopicOrPartition)),
            (topics[1].clone(), 0, 0),
        ];
        expected.sort();
        assert_eq!(results, expected, "v{version}");
    }
}

/// Case 9: acks=0 gets no byte back; the next request on the connection is answered as if nothing had been before.
#[test]
fn acks_0_is_not_answered_and_the_connection_is_not_muted() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    for i in 0..10 {
        conn.send(9, &produce_request(0, &topic, &[(0, Some(Batch::values(&[&i.to_string()]).encode()))]));
    }
    assert_eq!(metadata(&mut conn, 9, Some(&[]), false).brokers.len(), 1);
    assert_eq!(append(&mut conn, &topic, Batch::values(&["last"]).encode()), 10);
    assert_eq!(read_from(&mut conn, &topic, 0).len(), 11);
}

/// acks=0 with an error: nothing can be said, so the connection is closed.
#[test]
fn acks_0_with_an_error_closes() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    conn.send(9, &produce_request(0, &topic, &[(99, Some(Batch::values(&["x"]).encode()))]));
    conn.expect_closed();
}

/// acks other than -1, 0 and 1: error 21, nothing appended.
#[test]
fn odd_acks_are_refused() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    for acks in [2, -2, i16::MAX, i16::MIN] {
        let answer = conn.call(9, &produce_request(acks, &topic, &[(0, Some(Batch::values(&["x"]).encode()))]));
        let got = &answer.responses[0].partition_responses[0];
        assert_eq!((got.error_code, got.base_offset), (code(ErrorCode::InvalidRequiredAcks), -1), "acks {acks}");
    }
    assert!(read_from(&mut conn, &topic, 0).is_empty());
}

/// Each codec comes back byte for byte, in every version that may carry it; zstd below v7 is error 76.
#[test]
fn every_codec_passes_through_untouched() {
    let target = target();
    let mut conn = target.conn();
    for codec in Codec::ALL {
        let topic = target.topic(&mut conn);
        let sent = Batch::values(&["aaaaaaaaaaaaaaaaaaaaaaaa", "b", ""]).codec(codec).encode();
        for version in 3..=11 {
            let answer = produce_at(&mut conn, version, &topic, sent.clone());
            let expected = if codec == Codec::Zstd && version < 7 {
                ErrorCode::UnsupportedCompressionType
            } else {
                ErrorCode::None
            };
            assert_eq!(answer.error_code, code(expected), "{codec:?} v{version}");
        }
        let got = Fetch::default().one(&mut conn, &topic, 0).records.unwrap();
        assert_eq!(got[..8], [0; 8]);
        // Base offset and leader epoch are the broker's; all the rest is the client's.
        assert_eq!(got[17..sent.len()], sent[17..], "{codec:?}");
    }
}

/// Snappy without Java's block framing is read too.
#[test]
fn raw_snappy_is_accepted() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    let plain = Batch::values(&["snappy"]).encode();
    let mut batch = Batch::values(&["snappy"]).codec(Codec::Snappy);
    let records = snap::raw::Encoder::new().compress_vec(&plain[61..]).unwrap();
    batch.payload = Some(records);
    assert_eq!(append(&mut conn, &topic, batch.encode()), 0);
    assert_eq!(read_from(&mut conn, &topic, 0), ["snappy"]);
}

/// What is not one whole batch of format v2 is refused, each with the code that clients act on, and nothing of it is
/// stored.
#[test]
fn a_malformed_batch_is_refused_and_not_stored() {
    use ErrorCode::{CorruptMessage, InvalidRecord};
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    let good = || Batch::values(&["a", "b"]);
    let whole = good().encode();
    // Kafka cannot say what is wrong with a payload that does not decompress.
    let undecodable = target.ours_or_kafkas(InvalidRecord, ErrorCode::UnknownServerError);
    let with = |change: fn(&mut Batch)| {
        let mut batch = good();
        change(&mut batch);
        batch.encode()
    };
    let cases: Vec<(&str, Bytes, ErrorCode)> = vec![
        ("no batch", Bytes::new(), InvalidRecord),
        ("two batches", Bytes::from([whole.as_ref(), whole.as_ref()].concat()), InvalidRecord),
        ("a cut batch", whole.slice(..whole.len() - 3), InvalidRecord),
        ("a cut header", whole.slice(..40), InvalidRecord),
        ("a wrong checksum", with(|b| b.corrupt_crc = true), CorruptMessage),
        ("a length below a header", with(|b| b.length = Some(10)), CorruptMessage),
        ("a negative length", with(|b| b.length = Some(-1)), CorruptMessage),
        ("magic 0", with(|b| b.magic = 0), InvalidRecord),
        ("magic 1", with(|b| b.magic = 1), InvalidRecord),
        ("magic 3", with(|b| b.magic = 3), CorruptMessage),
        ("a count above the deltas", with(|b| b.count = Some(3)), InvalidRecord),
        ("a negative count", with(|b| b.count = Some(-1)), InvalidRecord),
        ("a last delta above the count", with(|b| b.last_offset_delta = Some(7)), InvalidRecord),
        ("a base offset", with(|b| b.base_offset = 5), InvalidRecord),
        ("a control batch", with(|b| b.attributes = 0x20), InvalidRecord),
        ("codec 5", with(|b| b.attributes = 5), undecodable),
        ("records that are no records", with(|b| b.payload = Some(vec![0xff; 30])), undecodable),
        (
            "gzip that is none",
            {
                let mut b = good().codec(Codec::Gzip);
                b.payload = Some(vec![1; 30]);
                b.encode()
            },
            undecodable,
        ),
        (
            "zstd that is none",
            {
                let mut b = good().codec(Codec::Zstd);
                b.payload = Some(vec![1; 30]);
                b.encode()
            },
            undecodable,
        ),
    ];
    for (what, records, expected) in cases {
        let answer = produce(&mut conn, &topic, records);
        assert_eq!(
            (ErrorCode::from_code(answer.error_code), answer.base_offset),
            (Some(expected), -1),
            "{what}: {:?}",
            answer.error_message
        );
    }
    if target.is_kafka() {
        return; // It never answers null records.
    }
    let null = conn.call(9, &produce_request(-1, &topic, &[(0, None)]));
    assert_eq!(null.responses[0].partition_responses[0].error_code, code(InvalidRecord), "null records");
    assert!(read_from(&mut conn, &topic, 0).is_empty());
    assert_eq!(append(&mut conn, &topic, whole), 0);
}

/// A small batch that decompresses to far more than max.message.bytes is a legal batch; one that lies about its records
/// inside is not.
#[test]
fn records_inside_a_compressed_batch_are_checked() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    let big = "0".repeat(3 << 20);
    assert_eq!(append(&mut conn, &topic, Batch::values(&[&big]).codec(Codec::Zstd).encode()), 0);
    let mut lying = Batch::values(&["a"]).codec(Codec::Lz4);
    lying.payload = Some(compress(Codec::Lz4, &[0x7f; 50]));
    let answer = produce(&mut conn, &topic, lying.encode());
    assert_eq!(answer.error_code, code(ErrorCode::InvalidRecord), "{:?}", answer.error_message);
}

/// A bad partition does not spoil the good ones of its request.
#[test]
fn a_bad_partition_leaves_its_neighbours_alone() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic_with(&mut conn, 2, &[]);
    let mut bad = Batch::values(&["x"]);
    bad.corrupt_crc = true;
    let request = produce_request(1, &topic, &[(0, Some(bad.encode())), (1, Some(Batch::values(&["y"]).encode()))]);
    let answer = conn.call(9, &request);
    let mut results: Vec<(i32, i16)> =
        answer.responses[0].partition_responses.iter().map(|p| (p.index, p.error_code)).collect();
    results.sort_unstable();
    assert_eq!(results, [(0, code(ErrorCode::CorruptMessage)), (1, 0)]);
}

/// A partition named twice in one request would lose a batch silently in Kafka; we refuse what comes twice.
#[test]
fn a_partition_named_twice_is_never_acknowledged_and_lost() {
    let target = target();
    if target.is_kafka() {
        println!("not run: Kafka loses one of the two batches");
        return;
    }
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    let (a, b) = (Batch::values(&["a"]).encode(), Batch::values(&["b"]).encode());
    let answer = conn.call(9, &produce_request(-1, &topic, &[(0, Some(a)), (0, Some(b))]));
    let results: Vec<i16> =
        answer.responses.iter().flat_map(|t| &t.partition_responses).map(|p| p.error_code).collect();
    let stored = results.iter().filter(|code| **code == 0).count();
    assert!(results.contains(&ErrorCode::InvalidRequest.code()) && results.len() == 2, "{results:?}");
    assert_eq!(read_from(&mut conn, &topic, 0).len(), stored);
}

/// Case 17: a record without a key on a compacted topic: 87, the record named by its index, other partitions unaffected.
#[test]
fn a_record_without_key_on_a_compacted_topic_is_named() {
    let target = target();
    let mut conn = target.conn();
    let compacted = target.topic_with(&mut conn, 1, &[("cleanup.policy", "compact")]);
    let plain = target.topic(&mut conn);
    let mixed = Batch::of(vec![Record::keyed("k", "v"), Record::of("no key"), Record::keyed("l", "w"), Record::of("")]);
    for codec in [Codec::None, Codec::Gzip] {
        let mut request = produce_request(-1, &compacted, &[(0, Some(mixed.clone().codec(codec).encode()))]);
        request.topic_data.extend(produce_request(-1, &plain, &[(0, Some(mixed.clone().encode()))]).topic_data);
        let answer = conn.call(9, &request);
        let of = |name: &str| {
            &answer.responses.iter().find(|t| t.name.as_str() == name).expect("a result").partition_responses[0]
        };
        assert_eq!(of(&plain).error_code, 0);
        let refused = of(&compacted);
        assert_eq!(refused.error_code, code(ErrorCode::InvalidRecord));
        let indexes: Vec<i32> = refused.record_errors.iter().map(|e| e.batch_index).collect();
        assert_eq!(indexes, [1, 3]);
        assert!(refused.record_errors.iter().all(|e| e.batch_index_error_message.is_some()));
        assert!(refused.error_message.is_some());
    }
    assert_eq!(append(&mut conn, &compacted, Batch::of(vec![Record::keyed("k", "v")]).encode()), 0);
}

/// Case 21: timestamp 0 is a timestamp.
#[test]
fn timestamp_zero_comes_back_as_zero() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    append(&mut conn, &topic, Batch::of(vec![Record::of("old").at(0), Record::of("new").at(5)]).encode());
    let data = Fetch::default().one(&mut conn, &topic, 0);
    let stamps: Vec<i64> =
        read_batches(&data.records.unwrap()).into_iter().flat_map(|b| b.records).map(|r| r.timestamp).collect();
    assert_eq!(stamps, [0, 5]);
}

/// Outside message.timestamp.before/after.max.ms: error 32 with the records named.
#[test]
fn timestamps_outside_the_window_are_refused() {
    let target = target();
    let mut conn = target.conn();
    let window = [("message.timestamp.before.max.ms", "60000"), ("message.timestamp.after.max.ms", "60000")];
    let topic = target.topic_with(&mut conn, 1, &window);
    let now = now_ms();
    for stamp in [now - 600_000, now + 600_000] {
        let records = vec![Record::of("in").at(now), Record::of("out").at(stamp)];
        let answer = produce(&mut conn, &topic, Batch::of(records).encode());
        assert_eq!(answer.error_code, code(ErrorCode::InvalidTimestamp));
        assert_eq!(answer.record_errors.iter().map(|e| e.batch_index).collect::<Vec<_>>(), [1]);
    }
    append(&mut conn, &topic, Batch::of(vec![Record::of("in").at(now - 1000)]).encode());
}

/// LogAppendTime: the answer and every record carry the broker's time, the attribute says so, the checksum is right.
#[test]
fn log_append_time_is_stamped_and_checksummed() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic_with(&mut conn, 1, &[("message.timestamp.type", "LogAppendTime")]);
    for codec in [Codec::None, Codec::Snappy] {
        let before = now_ms();
        let sent = Batch::of(vec![Record::of("a").at(17), Record::of("b").at(18)]).codec(codec);
        let answer = produce(&mut conn, &topic, sent.encode());
        assert_eq!(answer.error_code, 0);
        assert!((before..=now_ms()).contains(&answer.log_append_time_ms), "{}", answer.log_append_time_ms);
        let data = Fetch::default().one(&mut conn, &topic, answer.base_offset);
        let batch = read_batches(&data.records.unwrap()).remove(0);
        assert_eq!(batch.max_timestamp, answer.log_append_time_ms);
        assert_eq!(batch.attributes & 8, 8);
    }
}

/// A producer that claims LogAppendTime where the topic keeps its own times: the claim is taken off, the checksum is right.
#[test]
fn a_producers_claim_of_log_append_time_is_not_stored() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    let mut sent = Batch::of(vec![Record::of("a")]);
    sent.attributes = 8;
    let answer = produce(&mut conn, &topic, sent.encode());
    assert_eq!((answer.error_code, answer.log_append_time_ms), (0, -1));
    let data = Fetch::default().one(&mut conn, &topic, answer.base_offset);
    assert_eq!(read_batches(&data.records.unwrap()).remove(0).attributes, 0);
}

/// Larger than max.message.bytes: error 10; the limit is inclusive.
#[test]
fn a_batch_above_max_message_bytes_is_refused() {
    let target = target();
    let mut conn = target.conn();
    let batch = Batch::values(&["0123456789"; 20]).encode();
    let at = target.topic_with(&mut conn, 1, &[("max.message.bytes", &batch.len().to_string())]);
    let below = target.topic_with(&mut conn, 1, &[("max.message.bytes", &(batch.len() - 1).to_string())]);
    assert_eq!(append(&mut conn, &at, batch.clone()), 0);
    assert_eq!(produce(&mut conn, &below, batch).error_code, code(ErrorCode::MessageTooLarge));
    assert!(read_from(&mut conn, &below, 0).is_empty());
}

/// Produce does not create topics, and a bad partition of a good topic is as unknown.
#[test]
fn produce_to_a_missing_topic_is_error_3_and_creates_nothing() {
    let target = target();
    let mut conn = target.conn();
    let name = unique("missing");
    assert_eq!(produce(&mut conn, &name, Batch::values(&["x"]).encode()).error_code, 3);
    assert_eq!(metadata(&mut conn, 9, Some(&[&name]), false).topics[0].error_code, 3);
}

/// A new topic serves at once: CreateTopics answers when this broker can take its records.
#[test]
fn a_created_topic_serves_at_once() {
    let target = target();
    if target.is_kafka() {
        println!("not run: Kafka answers NOT_LEADER_OR_FOLLOWER for a moment");
        return;
    }
    let mut conn = target.conn();
    for _ in 0..20 {
        let topic = target.topic_with(&mut conn, 3, &[]);
        let request = produce_request(-1, &topic, &[(2, Some(Batch::values(&["x"]).encode()))]);
        assert_eq!(conn.call(9, &request).responses[0].partition_responses[0].error_code, 0);
    }
}

/// InitProducerId v0-2 have no id fields, v3+ with (-1, -1): each gets a new id at epoch 0 (the part of case 93
/// without transactions).
#[test]
fn every_init_producer_id_gives_a_new_id() {
    let target = target();
    let mut conn = target.conn();
    let mut ids = Vec::new();
    for version in 0..=4 {
        let request = InitProducerIdRequest::default().with_transactional_id(None).with_transaction_timeout_ms(60_000);
        let request =
            if version < 3 { request } else { request.with_producer_id(ProducerId(-1)).with_producer_epoch(-1) };
        let answer = conn.call(version, &request);
        assert_eq!((answer.error_code, answer.producer_epoch), (0, 0), "v{version}");
        assert!(answer.producer_id.0 >= 0);
        ids.push(answer.producer_id.0);
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 5);
    for (id, epoch) in [(7, -1), (-1, 0)] {
        let request = InitProducerIdRequest::default().with_transactional_id(None).with_producer_id(ProducerId(id));
        let answer = conn.call(4, &request.with_producer_epoch(epoch));
        assert_eq!(answer.error_code, code(ErrorCode::InvalidRequest), "an id or an epoch alone");
    }
}

fn sequenced(id: i64, epoch: i16, sequence: i32, values: &[&str]) -> Bytes {
    Batch::values(values).producer(id, epoch, sequence).encode()
}

fn outcome(conn: &mut Conn, topic: &str, batch: Bytes) -> (i16, i64) {
    let answer = produce(conn, topic, batch);
    (answer.error_code, answer.base_offset)
}

/// Case 25: a duplicate of one of the last five batches is acknowledged with its first offset and not stored again.
#[test]
fn a_duplicate_of_the_last_five_batches_gets_its_first_offset() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    let (id, epoch) = init_producer_id(&mut conn);
    for i in 0..6 {
        let batch = sequenced(id, epoch, i * 2, &["a", "b"]);
        assert_eq!(outcome(&mut conn, &topic, batch), (0, i64::from(i) * 2));
    }
    for i in 1..6 {
        let batch = sequenced(id, epoch, i * 2, &["a", "b"]);
        assert_eq!(outcome(&mut conn, &topic, batch), (0, i64::from(i) * 2), "batch {i}");
    }
    assert_eq!(read_from(&mut conn, &topic, 0).len(), 12);
    // The sixth last is not remembered; half of a known batch is no duplicate.
    let older = outcome(&mut conn, &topic, sequenced(id, epoch, 0, &["a", "b"]));
    assert_eq!(older, (code(ErrorCode::OutOfOrderSequenceNumber), -1));
    let half = outcome(&mut conn, &topic, sequenced(id, epoch, 8, &["a"]));
    assert_eq!(half, (code(ErrorCode::OutOfOrderSequenceNumber), -1));
    assert_eq!(read_from(&mut conn, &topic, 0).len(), 12);
}

/// A gap is error 45; the right next sequence is then still accepted.
#[test]
fn a_sequence_gap_is_out_of_order() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    let (id, epoch) = init_producer_id(&mut conn);
    assert_eq!(outcome(&mut conn, &topic, sequenced(id, epoch, 0, &["a", "b"])), (0, 0));
    assert_eq!(
        outcome(&mut conn, &topic, sequenced(id, epoch, 3, &["d"])),
        (code(ErrorCode::OutOfOrderSequenceNumber), -1)
    );
    assert_eq!(outcome(&mut conn, &topic, sequenced(id, epoch, 2, &["c"])), (0, 2));
}

/// Sequences wrap from 2^31 - 1 to 0, also inside a batch. An unknown producer may start anywhere.
#[test]
fn sequences_wrap_to_zero_and_an_unknown_producer_starts_anywhere() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    let (id, epoch) = init_producer_id(&mut conn);
    assert_eq!(outcome(&mut conn, &topic, sequenced(id, epoch, i32::MAX - 1, &["a"])), (0, 0));
    assert_eq!(outcome(&mut conn, &topic, sequenced(id, epoch, i32::MAX, &["b", "c", "d"])), (0, 1));
    assert_eq!(outcome(&mut conn, &topic, sequenced(id, epoch, i32::MAX, &["b", "c", "d"])), (0, 1));
    assert_eq!(outcome(&mut conn, &topic, sequenced(id, epoch, 2, &["e"])), (0, 4));
    let (id, epoch) = init_producer_id(&mut conn);
    assert_eq!(outcome(&mut conn, &topic, sequenced(id, epoch, i32::MAX, &["f"])), (0, 5));
    assert_eq!(outcome(&mut conn, &topic, sequenced(id, epoch, 0, &["g"])), (0, 6));
}

/// Case 27: an older epoch is INVALID_PRODUCER_EPOCH, and a newer one starts at sequence 0.
#[test]
fn an_older_epoch_is_fenced_and_a_newer_one_starts_at_zero() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    let (id, _) = init_producer_id(&mut conn);
    assert_eq!(outcome(&mut conn, &topic, sequenced(id, 3, 0, &["a"])), (0, 0));
    let skipping = outcome(&mut conn, &topic, sequenced(id, 4, 1, &["b"]));
    assert_eq!(skipping, (code(ErrorCode::OutOfOrderSequenceNumber), -1));
    assert_eq!(outcome(&mut conn, &topic, sequenced(id, 4, 0, &["b"])), (0, 1));
    let old = outcome(&mut conn, &topic, sequenced(id, 3, 1, &["c"]));
    assert_eq!(old, (code(ErrorCode::InvalidProducerEpoch), -1));
    // Also an exact copy of what was stored under the older epoch.
    let copy = outcome(&mut conn, &topic, sequenced(id, 3, 0, &["a"]));
    assert_eq!(copy, (code(ErrorCode::InvalidProducerEpoch), -1));
}

/// Case 23: a batch whose max timestamp is -1 (old sarama) counts for deduplication like any other.
#[test]
fn a_batch_with_max_timestamp_minus_one_is_deduplicated() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    let (id, epoch) = init_producer_id(&mut conn);
    let odd = |sequence| {
        let mut batch = Batch::of(vec![Record::of("x").at(-1)]).producer(id, epoch, sequence);
        batch.max_timestamp = Some(-1);
        batch.encode()
    };
    assert_eq!(outcome(&mut conn, &topic, odd(0)), (0, 0));
    assert_eq!(outcome(&mut conn, &topic, odd(1)), (0, 1));
    assert_eq!(outcome(&mut conn, &topic, odd(1)), (0, 1));
    assert_eq!(outcome(&mut conn, &topic, odd(3)).0, code(ErrorCode::OutOfOrderSequenceNumber));
    assert_eq!(outcome(&mut conn, &topic, sequenced(id, epoch, 2, &["y"])), (0, 2));
}

/// The sequence state is in the log: a kill and a clean stop keep it, so a retry over a restart is no duplicate.
#[test]
fn producer_state_survives_a_kill_and_a_stop() {
    let Some(mut node) = Node::own(&[]) else { return };
    let mut conn = node.conn();
    assert_eq!(thalweg_tests::calls::create_topic(&mut conn, "t", 1, &[]).error_code, 0);
    let (id, epoch) = init_producer_id(&mut conn);
    for i in 0..5 {
        assert_eq!(outcome(&mut conn, "t", sequenced(id, epoch, i, &["x"])), (0, i64::from(i)));
    }
    for clean in [false, true] {
        if clean {
            assert_eq!(node.stop(), Some(0));
        } else {
            node.kill();
        }
        node.restart();
        let mut conn = node.conn();
        for i in 0..5 {
            assert_eq!(outcome(&mut conn, "t", sequenced(id, epoch, i, &["x"])), (0, i64::from(i)), "clean: {clean}");
        }
        let gap = outcome(&mut conn, "t", sequenced(id, epoch, 6, &["x"]));
        assert_eq!(gap.0, code(ErrorCode::OutOfOrderSequenceNumber));
        assert_ne!(init_producer_id(&mut conn).0, id, "an id is given once");
        assert_eq!(read_from(&mut conn, "t", 0).len(), 5);
    }
}

/// By topic id, from v13, where it is advertised; the unknown id is error 100.
#[test]
fn produce_by_topic_id_where_advertised() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    let versions = conn.call(0, &kafka_protocol::messages::ApiVersionsRequest::default());
    let max = versions.api_keys.iter().find(|api| api.api_key == 0).expect("Produce is advertised").max_version;
    if max < 13 {
        println!("not run: Produce is advertised to v{max}");
        return;
    }
    let known = thalweg_tests::calls::topic_id(&mut conn, &topic);
    for (id, expected) in [(known, 0), (uuid::Uuid::from_u128(5), code(ErrorCode::UnknownTopicId))] {
        let data = PartitionProduceData::default().with_records(Some(Batch::values(&["x"]).encode()));
        let topic = TopicProduceData::default().with_topic_id(id).with_partition_data(vec![data]);
        let request = ProduceRequest::default().with_acks(-1).with_timeout_ms(9000).with_topic_data(vec![topic]);
        assert_eq!(conn.call(13, &request).responses[0].partition_responses[0].error_code, expected);
    }
}

/// A transactional id on Produce is for transactions only; without them nothing may be stored under one.
#[test]
fn a_transactional_batch_outside_a_transaction_is_refused() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    let (id, epoch) = init_producer_id(&mut conn);
    let mut batch = Batch::values(&["x"]).producer(id, epoch, 0);
    batch.attributes = 0x10;
    let request = produce_request(-1, &topic, &[(0, Some(batch.encode()))])
        .with_transactional_id(Some(kafka_protocol::messages::TransactionalId(text("nobody"))));
    let answer = conn.call(9, &request);
    assert_ne!(answer.responses[0].partition_responses[0].error_code, 0);
    assert_eq!(answer.responses[0].name, topic_name(&topic));
    assert!(read_from(&mut conn, &topic, 0).is_empty());
}
