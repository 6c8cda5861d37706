//! Logs on a simulated disk, and batches to put into them.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_model::{
    LeaderEpoch, NodeId, Offset, PartitionIndex, ProducerEpoch, ProducerId, Timestamp, TopicId, TopicName,
    TopicPartition,
};
use thalweg_storage::{
    AppendError, AppendInfo, AppendOrigin, DirIdentity, LogConfig, LogDir, LogDirConfig, LogDirError,
};
use thalweg_storage::{OpenError, PartitionLog, ReadView};
use thalweg_wire::batch::Batches;
use thalweg_wire::compression::Compression;
use thalweg_wire::records::{ControlRecord, RecordBatchBuilder};
use thalweg_world::disk::{Disk, SimDisk};

pub const TOPIC_ID: TopicId = TopicId([7; 16]);

pub fn tp() -> TopicPartition {
    TopicPartition::new(TopicName::new("topic").unwrap(), PartitionIndex(0))
}

pub fn dir_path() -> &'static Path {
    Path::new("/data")
}

pub fn partition_path(name: &str) -> PathBuf {
    dir_path().join("topic-0").join(name)
}

pub fn identity() -> DirIdentity {
    DirIdentity {
        cluster_id: "cluster".into(),
        node_id: NodeId(1),
        boot_id: "boot-1".into(),
        new_directory_id: TopicId([9; 16]),
    }
}

pub fn open_dir(disk: &SimDisk) -> Result<LogDir, LogDirError> {
    LogDir::open(Arc::new(disk.clone()) as Arc<dyn Disk>, dir_path(), &identity(), LogDirConfig::default())
}

/// Segments of a few batches, an index entry every other batch.
pub fn small_config() -> LogConfig {
    LogConfig { segment_bytes: 1500, index_interval_bytes: 150, ..LogConfig::default() }
}

/// The log of [`tp`], made if it is not there.
pub fn open_log(dir: &LogDir, config: LogConfig) -> Result<PartitionLog, OpenError> {
    match dir.create_partition(&tp(), TOPIC_ID, config.clone()) {
        Err(OpenError::Exists { .. }) => dir.open_partition(&tp(), TOPIC_ID, config),
        other => other,
    }
}

pub fn new_log(config: LogConfig) -> (SimDisk, LogDir, PartitionLog) {
    let disk = SimDisk::new();
    let dir = open_dir(&disk).unwrap();
    let mut log = open_log(&dir, config).unwrap();
    log.begin_epoch(LeaderEpoch(0)).unwrap();
    (disk, dir, log)
}

/// `count` records that say what they are.
pub fn batch(tag: i64, count: i64) -> Vec<u8> {
    build(RecordBatchBuilder::new(Compression::None), tag, count)
}

pub fn idempotent(id: i64, epoch: i16, sequence: i32, count: i64) -> Vec<u8> {
    let builder = RecordBatchBuilder::new(Compression::None);
    build(builder.producer(ProducerId(id), ProducerEpoch(epoch), sequence), i64::from(sequence), count)
}

pub fn transactional(id: i64, epoch: i16, sequence: i32, count: i64) -> Vec<u8> {
    let builder = RecordBatchBuilder::new(Compression::None).transactional();
    build(builder.producer(ProducerId(id), ProducerEpoch(epoch), sequence), i64::from(sequence), count)
}

pub fn marker(id: i64, epoch: i16, committed: bool) -> Vec<u8> {
    let end = if committed {
        ControlRecord::Commit { coordinator_epoch: 1 }
    } else {
        ControlRecord::Abort { coordinator_epoch: 1 }
    };
    let builder = RecordBatchBuilder::marker(end, ProducerId(id), ProducerEpoch(epoch), Timestamp(1)).unwrap();
    builder.build().unwrap().to_vec()
}

fn build(mut builder: RecordBatchBuilder, tag: i64, count: i64) -> Vec<u8> {
    for i in 0..count {
        let value = format!("record {tag}.{i} {}", "x".repeat((tag % 7) as usize * 3));
        builder.append(Timestamp(1000 + tag), Some(&tag.to_be_bytes()), Some(value.as_bytes()), &[]);
    }
    builder.build().unwrap().to_vec()
}

pub fn append(log: &mut PartitionLog, mut batch: Vec<u8>) -> Result<AppendInfo, AppendError> {
    let epoch = log.latest_epoch().unwrap_or(LeaderEpoch(0));
    log.append(&mut batch, Timestamp(1000), epoch, AppendOrigin::Client)
}

pub fn flush(log: &mut PartitionLog) {
    if let Some(ticket) = log.flush_ticket() {
        let outcome = ticket.sync();
        log.flushed(outcome).unwrap();
    }
}

/// Every byte from the log's start to its end, read as a consumer would.
pub fn contents(view: &ReadView) -> Vec<u8> {
    contents_from(view, view.log_start_offset(), 400)
}

/// As [`contents`], from an offset on, in reads of `max_bytes`.
pub fn contents_from(view: &ReadView, from: Offset, max_bytes: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut from = from;
    loop {
        let slice = view.read(from, Offset::MAX, max_bytes, true).unwrap();
        if slice.is_empty() {
            assert_eq!(from, view.log_end_offset());
            return bytes;
        }
        let part = slice.read().unwrap();
        let headers: Vec<_> = Batches::new(&part).map(|batch| batch.unwrap().0).collect();
        assert_eq!(headers[0].base_offset, slice.first_offset);
        assert_eq!(headers.last().unwrap().next_offset(), slice.next_offset);
        bytes.extend_from_slice(&part);
        from = slice.next_offset;
    }
}
