//! A log dir that Apache Kafka 4.4 wrote (tests/fixtures/kafka-log/make) opens here with equal contents.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use thalweg_model::{LeaderEpoch, NodeId, Offset, Timestamp, TopicId, TopicName, TopicPartition};
use thalweg_model::{PartitionIndex, ProducerId};
use thalweg_storage::recovery::RecoveryReport;
use thalweg_storage::{AppendOrigin, DirIdentity, LogConfig, LogDir, LogDirConfig, MetaProperties, PartitionLog};
use thalweg_wire::batch::Batches;
use thalweg_wire::compression::Compression;
use thalweg_wire::records::{Record, Records};
use thalweg_world::disk::RealDisk;

struct Fixture {
    _copy: tempfile::TempDir,
    path: PathBuf,
    dir: LogDir,
}

fn fixture_path() -> PathBuf {
    Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("../tests/fixtures/kafka-log")
}

fn orders() -> TopicPartition {
    TopicPartition::new(TopicName::new("orders").unwrap(), PartitionIndex(0))
}

/// As the topic was made.
fn config() -> LogConfig {
    LogConfig { segment_ms: 3_600_000, index_interval_bytes: 200, retention_ms: -1, ..LogConfig::default() }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn open() -> Fixture {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("data");
    copy(&fixture_path().join("data"), &path);
    let meta = fs::read_to_string(path.join("meta.properties")).unwrap();
    let value = |key: &str| meta.lines().find_map(|line| line.strip_prefix(key)).unwrap().to_owned();
    let identity = DirIdentity {
        cluster_id: value("cluster.id="),
        node_id: NodeId(1),
        boot_id: "boot".into(),
        new_directory_id: TopicId([1; 16]),
    };
    let dir = LogDir::open(Arc::new(RealDisk), &path, &identity, LogDirConfig::default()).unwrap();
    let MetaProperties { directory_id, .. } = dir.meta();
    assert_eq!(directory_id.unwrap().to_string(), value("directory.id="), "Kafka's own id is kept");
    Fixture { _copy: temporary, path, dir }
}

fn open_log(fixture: &Fixture) -> PartitionLog {
    let found = fixture.dir.partitions().unwrap();
    assert_eq!(found.len(), 1);
    fixture.dir.open_partition(&orders(), found[0].topic_id.unwrap(), config()).unwrap()
}

fn hex(bytes: Option<&Bytes>) -> String {
    bytes.map_or("-".to_owned(), |bytes| bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn line(record: &Record) -> String {
    let mut text =
        format!("{} {} {} {}", record.offset, record.timestamp, hex(record.key.as_ref()), hex(record.value.as_ref()));
    for header in record.headers.iter() {
        text.push_str(&format!(" {}={}", header.key_text(), hex(header.value.as_ref())));
    }
    text
}

fn expected(name: &str) -> Vec<String> {
    let text = fs::read_to_string(fixture_path().join(name)).unwrap();
    text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

/// Every data record, by the rules of a `read_uncommitted` or `read_committed` consumer, and the codecs met.
fn consume(log: &PartitionLog, committed: bool) -> (Vec<String>, Vec<Compression>) {
    let view = log.view();
    let bytes = Bytes::from(support::contents_from(&view, view.log_start_offset(), 300));
    let aborted = view.aborted_transactions(Offset::ZERO, view.log_end_offset()).unwrap();
    let (mut lines, mut codecs) = (Vec::new(), Vec::new());
    for found in Batches::new(&bytes) {
        let (header, batch) = found.unwrap();
        thalweg_wire::batch::verify_crc(batch).unwrap();
        let skipped = aborted.iter().any(|txn| {
            let inside = txn.first_offset <= header.base_offset && header.base_offset <= txn.last_offset;
            inside && txn.producer_id == header.producer_id && header.is_transactional()
        });
        if header.is_control() || (committed && skipped) {
            continue;
        }
        codecs.push(header.compression().unwrap());
        for record in Records::open(&bytes.slice_ref(batch), 1 << 20).unwrap() {
            lines.push(line(&record.unwrap()));
        }
    }
    (lines, codecs)
}

#[test]
fn kafkas_log_has_the_records_that_kafka_reads_from_it() {
    let fixture = open();
    assert!(fixture.dir.clean_stop().unwrap().broker_epoch.is_some());
    let log = open_log(&fixture);
    assert!(log.view().segment_count() >= 3);
    let (records, codecs) = consume(&log, false);
    assert_eq!(records, expected("records.txt"));
    for codec in Compression::ALL {
        assert!(codecs.contains(&codec), "{codec:?}");
    }
    assert_eq!(consume(&log, true).0, expected("records-committed.txt"));
    assert_eq!(log.last_stable_offset(), log.log_end_offset());
    assert_eq!(log.view().epoch_end_offset(LeaderEpoch(0)).unwrap().1, log.log_end_offset());
}

#[test]
fn after_kafkas_clean_stop_only_a_piece_of_the_tail_is_looked_at() {
    let fixture = open();
    let log = open_log(&fixture);
    let RecoveryReport { scanned_bytes, cut_bytes, .. } = log.recovery_report();
    assert!(scanned_bytes < 1000 && cut_bytes == 0, "{:?}", log.recovery_report());
    drop(log);
    let log = open_log(&fixture);
    assert_eq!(log.recovery_report().rebuilt_count, 0, "nothing is left to do");
}

#[test]
fn kafkas_producers_go_on_where_they_were() {
    let fixture = open();
    let mut log = open_log(&fixture);
    let producers = log.producer_state();
    assert_eq!(producers.len(), 7, "{producers:?}");
    let last = producers.iter().filter(|p| p.last_sequence >= 0).max_by_key(|p| p.producer_id).unwrap();
    // The snapshot keeps the last batch of each producer: a repeat of it is known.
    let view = log.view();
    let bytes = support::contents_from(&view, Offset::ZERO, 1 << 20);
    let of_last =
        |header: &thalweg_wire::batch::BatchHeader| header.producer_id == last.producer_id && !header.is_control();
    let (header, batch) =
        Batches::new(&bytes).map(Result::unwrap).filter(|(header, _)| of_last(header)).last().unwrap();
    let again = log.append(&mut batch.to_vec(), Timestamp(0), LeaderEpoch(0), AppendOrigin::Client).unwrap();
    assert!(again.duplicate);
    assert_eq!(again.base_offset, header.base_offset);
    let unknown = producers.iter().all(|p| p.producer_id != ProducerId(1 << 40));
    assert!(unknown);
}

#[test]
fn what_is_derived_from_kafkas_log_is_what_kafka_derived() {
    let fixture = open();
    let before = open_log(&fixture);
    let state = (before.producer_state(), before.log_end_offset());
    let aborted = before.view().aborted_transactions(Offset::ZERO, Offset::MAX).unwrap();
    assert_eq!(aborted.len(), 2);
    drop(before);
    let partition = fixture.path.join("orders-0");
    let mut originals = Vec::new();
    for entry in fs::read_dir(&partition).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.ends_with("index") {
            originals.push((path.clone(), fs::read(&path).unwrap()));
        }
        if !name.ends_with(".log") && name != "partition.metadata" {
            fs::remove_file(&path).unwrap();
        }
    }
    let after = open_log(&fixture);
    assert_eq!((after.producer_state(), after.log_end_offset()), state);
    assert_eq!(after.view().aborted_transactions(Offset::ZERO, Offset::MAX).unwrap(), aborted);
    for (path, bytes) in originals.iter().filter(|(_, bytes)| !bytes.is_empty()) {
        assert_eq!(&fs::read(path).unwrap(), bytes, "{}", path.display());
    }
}

#[test]
fn records_of_kafkas_log_are_found_by_time() {
    let fixture = open();
    let log = open_log(&fixture);
    let view = log.view();
    let records: Vec<(i64, i64)> = expected("records.txt")
        .iter()
        .map(|line| {
            let mut words = line.split(' ').map(|word| word.parse::<i64>().ok());
            (words.next().unwrap().unwrap(), words.next().unwrap().unwrap())
        })
        .collect();
    for (_, timestamp) in records.iter().step_by(7) {
        let found = view.offset_for_timestamp(Timestamp(*timestamp), log.log_end_offset()).unwrap().unwrap();
        let first = records.iter().find(|(_, other)| other >= timestamp).unwrap();
        assert_eq!((found.offset.0, found.timestamp.0), *first);
    }
}
