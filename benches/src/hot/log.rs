//! The log's own share of an append and of a fetch. The kernel's share is not counted.

use std::hint::black_box;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use bytes::BytesMut;
use tempfile::TempDir;
use thalweg_model::{
    LeaderEpoch, NodeId, Offset, PartitionIndex, ProducerEpoch, ProducerId, Timestamp, TopicId, TopicName,
    TopicPartition,
};
use thalweg_storage::{AppendOrigin, DirIdentity, LogConfig, LogDir, LogDirConfig, PartitionLog};
use thalweg_wire::compression::Compression;
use thalweg_wire::records::RecordBatchBuilder;
use thalweg_world::disk::RealDisk;

use super::Step;

pub fn append() -> Result<Step> {
    let (folder, mut log) = empty()?;
    let mut sequence = 0;
    Ok(Box::new(move || {
        let _kept = &folder;
        append_one(&mut log, sequence)?;
        sequence += 1;
        Ok(())
    }))
}

pub fn find() -> Result<Step> {
    let (folder, mut log) = empty()?;
    for sequence in 0..BATCHES {
        append_one(&mut log, sequence)?;
    }
    let view = log.view();
    let mut from = 0;
    Ok(Box::new(move || {
        let _kept = (&folder, &log);
        // A step that shares no factor with the count visits every batch.
        from = (from + 387) % i64::from(BATCHES);
        black_box(view.read(Offset(from), view.log_end_offset(), 1 << 20, true)?);
        Ok(())
    }))
}

fn empty() -> Result<(TempDir, PartitionLog)> {
    let folder = tempfile::tempdir()?;
    let identity = DirIdentity {
        cluster_id: "hot".into(),
        node_id: NodeId(1),
        boot_id: "hot".into(),
        new_directory_id: TopicId([2; 16]),
    };
    // Opening a directory lists its parent: in a folder that nobody else writes to, that costs the same each time.
    let dir = LogDir::open(Arc::new(RealDisk), &folder.path().join("log"), &identity, LogDirConfig::default())?;
    let tp = TopicPartition::new(TopicName::new("orders").map_err(|error| anyhow!("{error}"))?, PartitionIndex(0));
    let log = dir.create_partition(&tp, TopicId([7; 16]), LogConfig::default())?;
    Ok((folder, log))
}

fn append_one(log: &mut PartitionLog, sequence: i32) -> Result<()> {
    let builder = RecordBatchBuilder::new(Compression::None);
    let mut builder = builder.producer(ProducerId(1), ProducerEpoch(0), sequence);
    builder.append(Timestamp(1), None, Some(&[b'x'; 200]), &[]);
    let mut batch = BytesMut::from(&builder.build()?[..]);
    let results = log.append_many(&mut [&mut batch[..]], Timestamp(1), LeaderEpoch(0), AppendOrigin::Client);
    for result in results {
        result?;
    }
    Ok(())
}

const BATCHES: i32 = 1_000;
