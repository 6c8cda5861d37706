//! Writes a log dir with everything that a partition can hold, for other programs to read.
//!
//! `write_segments DIR`: topic `dump`, partition 0, in several segments; every codec, idempotent and
//! transactional batches, both kinds of marker, an epoch change. Prints the log's end offset.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use thalweg_model::{
    LeaderEpoch, NodeId, PartitionIndex, ProducerEpoch, ProducerId, Timestamp, TopicId, TopicName, TopicPartition,
};
use thalweg_storage::{AppendOrigin, DirIdentity, LogConfig, LogDir, LogDirConfig};
use thalweg_wire::compression::Compression;
use thalweg_wire::records::{ControlRecord, RecordBatchBuilder};
use thalweg_world::disk::RealDisk;

fn main() -> Result<(), Box<dyn Error>> {
    let path = PathBuf::from(std::env::args().nth(1).ok_or("usage: write_segments DIR")?);
    let identity = DirIdentity {
        cluster_id: "dump".into(),
        node_id: NodeId(1),
        boot_id: "none".into(),
        new_directory_id: TopicId([3; 16]),
    };
    let dir = LogDir::open(Arc::new(RealDisk), &path, &identity, LogDirConfig::default())?;
    let tp = TopicPartition::new(TopicName::new("dump")?, PartitionIndex(0));
    let config = LogConfig { segment_bytes: 40_000, index_interval_bytes: 500, ..LogConfig::default() };
    let mut log = dir.create_partition(&tp, TopicId([4; 16]), config)?;
    for i in 0..400i32 {
        let epoch = LeaderEpoch(i / 150);
        log.begin_epoch(epoch)?;
        let mut batch = batch(i)?.to_vec();
        // Time goes back now and then.
        log.append(&mut batch, Timestamp(NOW), epoch, AppendOrigin::Client)?;
    }
    let end = log.log_end_offset();
    log.close()?;
    dir.write_checkpoints()?;
    dir.mark_clean(None)?;
    #[expect(clippy::print_stdout, reason = "the answer of a program")]
    {
        println!("{end}");
    }
    Ok(())
}

/// Of ten: six plain ones, one with a sequence, one in a transaction, its marker, one with many records.
fn batch(i: i32) -> Result<bytes::Bytes, Box<dyn Error>> {
    let time = Timestamp(NOW + i64::from(i) * 10 - if i % 7 == 0 { 500 } else { 0 });
    let codec = Compression::ALL[i as usize % Compression::ALL.len()];
    let round = i / 10;
    let builder = RecordBatchBuilder::new(codec);
    let (mut builder, count) = match i % 10 {
        6 => (builder.producer(ProducerId(1), ProducerEpoch(0), round * 3), 3),
        7 => (builder.producer(ProducerId(2), ProducerEpoch(0), round * 2).transactional(), 2),
        8 => {
            let end = match round % 2 {
                0 => ControlRecord::Abort { coordinator_epoch: 1 },
                _ => ControlRecord::Commit { coordinator_epoch: 1 },
            };
            return Ok(RecordBatchBuilder::marker(end, ProducerId(2), ProducerEpoch(0), time)?.build()?);
        }
        9 => (builder, 60),
        _ => (builder, 1 + i % 4),
    };
    for n in 0..count {
        let value = format!("batch {i} record {n} {}", "z".repeat(i as usize % 50));
        builder.append(time, (n % 3 != 0).then_some(b"key"), Some(value.as_bytes()), &[("n", Some(b"1"))]);
    }
    Ok(builder.build()?)
}

const NOW: i64 = 1_700_000_000_000;
