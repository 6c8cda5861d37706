//! ListOffsets, OffsetForLeaderEpoch and DeleteRecords: what an offset may be asked and answered.

use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use kafka_protocol::messages::{BrokerId, DeleteRecordsRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest};
use thalweg_tests::batch::{Codec, Record, read_values};
use thalweg_tests::calls::{Fetch, append, list_offset, list_offset_at, read_from, topic_name};
use thalweg_tests::{Batch, Conn, ErrorCode, Node, target, unique};

/// Records stamped in 1970 are past every retention time.
const KEEP: [(&str, &str); 1] = [("retention.ms", "-1")];

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;

/// `(low_watermark, error_code)`.
fn delete_records(conn: &mut Conn, topic: &str, partition: i32, offset: i64) -> (i64, i16) {
    let asked = DeleteRecordsPartition::default().with_partition_index(partition).with_offset(offset);
    let topic = DeleteRecordsTopic::default().with_name(topic_name(topic)).with_partitions(vec![asked]);
    let request = DeleteRecordsRequest::default().with_topics(vec![topic]).with_timeout_ms(10_000);
    let answer = conn.call(2, &request);
    let got = &answer.topics[0].partitions[0];
    (got.low_watermark, got.error_code)
}

fn stamped(stamps: &[i64]) -> Batch {
    Batch::of(stamps.iter().map(|stamp| Record::of("x").at(*stamp)).collect())
}

/// -1 and -2 in every version; a batch of the future or past changes neither.
#[test]
fn latest_and_earliest_are_the_ends_of_the_log_in_every_version() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic_with(&mut conn, 1, &KEEP);
    for version in 1..=10 {
        assert_eq!(list_offset_at(&mut conn, version, &topic, 0, LATEST).1, 0, "v{version}");
    }
    append(&mut conn, &topic, stamped(&[50, 10, 90]).encode());
    for version in 1..=10 {
        let latest = list_offset_at(&mut conn, version, &topic, 0, LATEST);
        let earliest = list_offset_at(&mut conn, version, &topic, 0, EARLIEST);
        assert_eq!((latest.0, latest.1, latest.2), (0, 3, -1), "v{version}");
        assert_eq!((earliest.0, earliest.1, earliest.2), (0, 0, -1), "v{version}");
        if version >= 4 {
            assert!(latest.3 >= 0 && earliest.3 >= 0, "v{version} carries leader epochs");
        }
    }
}

/// Case 51: a timestamp on an empty topic is -1; on one that DeleteRecords trimmed it is never below the log's start.
#[test]
fn a_timestamp_finds_nothing_on_an_empty_log_and_nothing_below_its_start() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic_with(&mut conn, 1, &KEEP);
    for stamp in [0, 5, i64::MAX] {
        assert_eq!(list_offset(&mut conn, &topic, 0, stamp), (0, -1, -1, -1));
    }
    for i in 0..10 {
        append(&mut conn, &topic, stamped(&[i * 10, i * 10 + 5]).encode());
    }
    assert_eq!(delete_records(&mut conn, &topic, 0, 7), (7, 0));
    for (stamp, offset, its_stamp) in [(0, 7, 35), (20, 7, 35), (35, 7, 35), (36, 8, 40), (95, 19, 95)] {
        let got = list_offset(&mut conn, &topic, 0, stamp);
        assert_eq!((got.0, got.1, got.2), (0, offset, its_stamp), "timestamp {stamp}");
        assert!(got.3 >= 0);
    }
    assert_eq!(list_offset(&mut conn, &topic, 0, 96), (0, -1, -1, -1));
    assert_eq!(list_offset(&mut conn, &topic, 0, EARLIEST).1, 7);
    assert_eq!(delete_records(&mut conn, &topic, 0, 20), (20, 0));
    assert_eq!(list_offset(&mut conn, &topic, 0, 0), (0, -1, -1, -1));
}

/// A timestamp finds the first record at or after it by offset, also inside a compressed batch and with times that go
/// back.
#[test]
fn a_timestamp_finds_the_first_record_not_older() {
    let target = target();
    let mut conn = target.conn();
    for codec in Codec::ALL {
        let topic = target.topic_with(&mut conn, 1, &KEEP);
        append(&mut conn, &topic, stamped(&[100, 300, 200]).codec(codec).encode());
        append(&mut conn, &topic, stamped(&[150, 400, 250]).codec(codec).encode());
        for (stamp, offset, its_stamp) in
            [(0, 0, 100), (100, 0, 100), (101, 1, 300), (250, 1, 300), (300, 1, 300), (301, 4, 400), (400, 4, 400)]
        {
            let got = list_offset(&mut conn, &topic, 0, stamp);
            assert_eq!((got.0, got.1, got.2), (0, offset, its_stamp), "{codec:?} {stamp}");
        }
        assert_eq!(list_offset(&mut conn, &topic, 0, 401).1, -1);
    }
}

/// -3 from v7: the record with the greatest timestamp, the first of them if several; none on an empty log.
#[test]
fn max_timestamp_is_the_first_record_with_the_greatest_time() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic_with(&mut conn, 1, &KEEP);
    assert_eq!(list_offset_at(&mut conn, 7, &topic, 0, MAX_TIMESTAMP), (0, -1, -1, -1));
    append(&mut conn, &topic, stamped(&[100, 900, 200]).encode());
    append(&mut conn, &topic, stamped(&[900, 300]).encode());
    let got = list_offset_at(&mut conn, 7, &topic, 0, MAX_TIMESTAMP);
    assert_eq!((got.0, got.1, got.2), (0, 1, 900));
}

/// -4 from v8 is the earliest; -5 from v9 is nothing without tiers.
#[test]
fn local_and_tiered_ends_without_tiers() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic_with(&mut conn, 1, &KEEP);
    append(&mut conn, &topic, stamped(&[1, 2, 3]).encode());
    delete_records(&mut conn, &topic, 0, 1);
    for version in 8..=10 {
        let got = list_offset_at(&mut conn, version, &topic, 0, EARLIEST_LOCAL);
        assert_eq!((got.0, got.1), (0, 1), "v{version}");
    }
    for version in 9..=10 {
        assert_eq!(list_offset_at(&mut conn, version, &topic, 0, LATEST_TIERED), (0, -1, -1, -1), "v{version}");
    }
}

/// A special value that the version does not know is error 35 for that partition only.
#[test]
fn a_special_timestamp_of_a_later_version_is_unsupported() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic_with(&mut conn, 2, &KEEP);
    for (version, special) in [(6, MAX_TIMESTAMP), (7, EARLIEST_LOCAL), (8, LATEST_TIERED), (10, -6), (10, -99)] {
        let asked = [(0, special), (1, LATEST)].map(|(partition, timestamp)| {
            ListOffsetsPartition::default()
                .with_partition_index(partition)
                .with_current_leader_epoch(-1)
                .with_timestamp(timestamp)
        });
        let topic = ListOffsetsTopic::default().with_name(topic_name(&topic)).with_partitions(asked.to_vec());
        let request = ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic]);
        let answer = conn.call(version, &request);
        let mut codes: Vec<(i32, i16)> =
            answer.topics[0].partitions.iter().map(|p| (p.partition_index, p.error_code)).collect();
        codes.sort_unstable();
        assert_eq!(codes, [(0, ErrorCode::UnsupportedVersion.code()), (1, 0)], "v{version} {special}");
    }
}

/// A partition named twice is error 42 for it; unknown ones are 3; leader epochs are fenced as in Fetch.
#[test]
fn list_offsets_refuses_duplicates_unknowns_and_wrong_epochs() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic_with(&mut conn, 1, &KEEP);
    let mut ask = |partitions: &[i32], epoch: i32| {
        let asked = partitions
            .iter()
            .map(|p| {
                ListOffsetsPartition::default()
                    .with_partition_index(*p)
                    .with_current_leader_epoch(epoch)
                    .with_timestamp(LATEST)
            })
            .collect();
        let topic = ListOffsetsTopic::default().with_name(topic_name(&topic)).with_partitions(asked);
        let request = ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic]);
        let answer = conn.call(7, &request);
        answer.topics[0].partitions.iter().map(|p| p.error_code).collect::<Vec<_>>()
    };
    let duplicated = ask(&[0, 0], -1);
    assert!(
        !duplicated.is_empty() && duplicated.iter().all(|code| *code == ErrorCode::InvalidRequest.code()),
        "{duplicated:?}"
    );
    assert_eq!(ask(&[5], -1), [3]);
    assert_eq!(ask(&[0], 1000), [ErrorCode::UnknownLeaderEpoch.code()]);
    assert_eq!(list_offset(&mut target.conn(), &unique("missing"), 0, LATEST).0, 3);
}

/// `(error_code, leader_epoch, end_offset)`.
fn end_of_epoch(conn: &mut Conn, version: i16, topic: &str, replica: i32, current: i32, epoch: i32) -> (i16, i32, i64) {
    let asked = OffsetForLeaderPartition::default().with_current_leader_epoch(current).with_leader_epoch(epoch);
    let topic = OffsetForLeaderTopic::default().with_topic(topic_name(topic)).with_partitions(vec![asked]);
    let request = OffsetForLeaderEpochRequest::default().with_topics(vec![topic]);
    let request = if version < 3 { request } else { request.with_replica_id(BrokerId(replica)) };
    let answer = conn.call(version, &request);
    let got = &answer.topics[0].partitions[0];
    (got.error_code, got.leader_epoch, got.end_offset)
}

/// Case 55: a consumer with replica_id -2 or -1 and no epoch of its own gets an answer; an epoch above the log's is
/// (-1, -1); a wrong current epoch is fenced.
#[test]
fn the_end_of_an_epoch_is_told_to_consumers() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic_with(&mut conn, 1, &KEEP);
    append(&mut conn, &topic, stamped(&[1, 2, 3]).encode());
    let epoch = list_offset(&mut conn, &topic, 0, LATEST).3;
    for version in 2..=4 {
        for replica in [-1, -2] {
            for current in [-1, epoch] {
                let got = end_of_epoch(&mut conn, version, &topic, replica, current, epoch);
                assert_eq!(got, (0, epoch, 3), "v{version} replica {replica} current {current}");
            }
        }
        assert_eq!(end_of_epoch(&mut conn, version, &topic, -1, -1, epoch + 5), (0, -1, -1), "v{version}");
        assert_eq!(end_of_epoch(&mut conn, version, &topic, -1, epoch + 1, epoch).0, 75, "v{version}");
    }
    assert_eq!(end_of_epoch(&mut conn, 4, &unique("missing"), -1, -1, 0).0, 3);
}

/// An epoch that wrote nothing is answered with the greatest known one below it and that one's end.
#[test]
fn an_epoch_between_known_ones_gets_the_one_below() {
    let Some(mut node) = Node::own(&[]) else { return };
    let mut conn = node.conn();
    assert_eq!(thalweg_tests::calls::create_topic(&mut conn, "t", 1, &[]).error_code, 0);
    let mut ends = Vec::new();
    for life in 0..3 {
        append(&mut conn, "t", stamped(&[1, 2]).encode());
        ends.push((list_offset(&mut conn, "t", 0, LATEST).3, (life + 1) * 2));
        node.kill();
        node.restart();
        conn = node.conn();
    }
    // Records of one epoch may span lives; the end of an epoch is where the last of its lives ended.
    let current = list_offset(&mut conn, "t", 0, LATEST).3;
    // The current one began when its leader took over, with or without records.
    ends.push((current, 6));
    for asked in 0..=current {
        let known = ends.iter().rev().find(|(epoch, _)| *epoch <= asked);
        let Some((epoch, end)) = known else { continue };
        assert_eq!(end_of_epoch(&mut conn, 4, "t", -1, -1, asked), (0, *epoch, *end), "epoch {asked} of {ends:?}");
    }
}

/// Case 85: beyond the high watermark is error 1; -1 means up to it; the low watermark is returned and never goes back.
#[test]
fn delete_records_moves_the_low_watermark_forward_only() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic_with(&mut conn, 1, &KEEP);
    for i in 0..6 {
        append(&mut conn, &topic, Batch::values(&[&i.to_string()]).encode());
    }
    assert_eq!(delete_records(&mut conn, &topic, 0, 7), (-1, ErrorCode::OffsetOutOfRange.code()));
    assert_eq!(delete_records(&mut conn, &topic, 0, -2).1, ErrorCode::OffsetOutOfRange.code());
    assert_eq!(delete_records(&mut conn, &topic, 0, 2), (2, 0));
    assert_eq!(read_from(&mut conn, &topic, 2), ["2", "3", "4", "5"]);
    assert_eq!(delete_records(&mut conn, &topic, 0, 1), (2, 0));
    assert_eq!(delete_records(&mut conn, &topic, 0, -1), (6, 0));
    assert_eq!((list_offset(&mut conn, &topic, 0, EARLIEST).1, list_offset(&mut conn, &topic, 0, LATEST).1), (6, 6));
    assert_eq!(append(&mut conn, &topic, Batch::values(&["6"]).encode()), 6);
    assert_eq!(read_from(&mut conn, &topic, 6), ["6"]);
    assert_eq!(delete_records(&mut conn, &topic, 4, 0).1, 3);
    assert_eq!(delete_records(&mut conn, &unique("missing"), 0, 0).1, 3);
}

/// What is only compacted keeps the last record of each key; offsets do not decide there.
#[test]
fn records_of_a_compacted_topic_are_not_deleted_by_offset() {
    let target = target();
    let mut conn = target.conn();
    for (policy, expected) in [("compact", (-1, ErrorCode::PolicyViolation.code())), ("compact,delete", (1, 0))] {
        let topic = target.topic_with(&mut conn, 1, &[("cleanup.policy", policy)]);
        append(&mut conn, &topic, Batch::of(vec![Record::keyed("k", "v")]).encode());
        assert_eq!(delete_records(&mut conn, &topic, 0, 1), expected, "{policy}");
    }
}

/// A start inside a batch: its earlier records are below the log start, and a fetch from the start gives the batch.
#[test]
fn delete_records_may_cut_inside_a_batch() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic_with(&mut conn, 1, &KEEP);
    append(&mut conn, &topic, Batch::values(&["a", "b", "c"]).codec(Codec::Lz4).encode());
    assert_eq!(delete_records(&mut conn, &topic, 0, 2), (2, 0));
    let data = Fetch::default().one(&mut conn, &topic, 2);
    assert_eq!((data.error_code, data.log_start_offset), (0, 2));
    assert_eq!(read_values(data.records.as_ref().unwrap()), ["a", "b", "c"], "whole batches; clients skip");
    assert_eq!(Fetch::default().one(&mut conn, &topic, 1).error_code, ErrorCode::OffsetOutOfRange.code());
}

/// The log's start outlives a kill: deleted records do not come back.
#[test]
fn deleted_records_stay_deleted_after_a_kill() {
    let Some(mut node) = Node::own(&[]) else { return };
    let mut conn = node.conn();
    assert_eq!(thalweg_tests::calls::create_topic(&mut conn, "t", 1, &[]).error_code, 0);
    for i in 0..6 {
        append(&mut conn, "t", Batch::values(&[&i.to_string()]).encode());
    }
    assert_eq!(delete_records(&mut conn, "t", 0, 4), (4, 0));
    node.kill();
    node.restart();
    let mut conn = node.conn();
    assert_eq!(list_offset(&mut conn, "t", 0, EARLIEST).1, 4);
    assert_eq!(Fetch::default().one(&mut conn, "t", 3).error_code, ErrorCode::OffsetOutOfRange.code());
    assert_eq!(read_from(&mut conn, "t", 4), ["4", "5"]);
}
