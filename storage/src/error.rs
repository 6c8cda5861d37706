//! What can go wrong, by whose fault.

use std::io;
use std::path::PathBuf;

use thalweg_model::{Offset, TopicId, TopicPartition};

pub use crate::producer_state::ProducerError;

/// Why a log dir cannot be used. Each names the cause and what to do.
#[derive(Debug, thiserror::Error)]
pub enum LogDirError {
    #[error("{path} is in use by another process; stop that one, or give this one a directory of its own")]
    InUse { path: PathBuf },
    #[error(
        "{path} has data format version {version}, this program reads version 1; run the newer program that wrote it"
    )]
    NewerVersion { path: PathBuf, version: String },
    #[error("{path} belongs to cluster {found}, not to {expected}; correct log.dirs or the cluster id")]
    OtherCluster { path: PathBuf, found: String, expected: String },
    #[error("{path} belongs to node {found}, not to node {expected}; correct log.dirs or node.id")]
    OtherNode { path: PathBuf, found: i32, expected: i32 },
    #[error("{path} is damaged: {detail}; restore it from a copy, or move the directory away to start it empty")]
    Malformed { path: PathBuf, detail: String },
    #[error("{path} is offline after an i/o error; replace the disk or fix its cause, then restart")]
    Offline { path: PathBuf },
    #[error("{path}: {source}; check the path, its owner and its disk")]
    Io { path: PathBuf, source: io::Error },
}

/// Why a partition's log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Damage below what was flushed, or in front of valid batches: never cut, the file stays as it is.
    /// The replica leaves the ISR and fetches again (REPLICATION G4).
    #[error("{path} is corrupt at byte {position} (offset {offset}): {detail}")]
    Corrupt { path: PathBuf, position: u64, offset: Offset, detail: &'static str },
    #[error("{partition} holds topic id {found}, not {expected}: it belongs to another life of the topic")]
    OtherTopicId { partition: TopicPartition, found: TopicId, expected: TopicId },
    #[error("{partition} exists already")]
    Exists { partition: TopicPartition },
    #[error("{partition} is open already")]
    AlreadyOpen { partition: TopicPartition },
    #[error("{partition} is not in this log dir")]
    NotFound { partition: TopicPartition },
    #[error("{path} is the rest of an unfinished compaction; start the broker that wrote it once and stop it cleanly")]
    UnfinishedCompaction { path: PathBuf },
    #[error("the log dir is offline after an i/o error")]
    LogDirOffline,
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
}

/// Why a batch was not appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The client's fault, or a repeat that is too old (KIP-98).
    #[error(transparent)]
    Producer(#[from] ProducerError),
    #[error("a batch of {batch_bytes} bytes does not fit into a segment of {segment_bytes}")]
    BatchTooLarge { batch_bytes: usize, segment_bytes: u32 },
    /// What calls itself a batch is none; whoever validated it is at fault.
    #[error("malformed batch: {0}")]
    Malformed(String),
    /// A replica's batch must follow the log's end (REPLICATION F3).
    #[error("batch begins at {base_offset}, the log ends at {log_end_offset}")]
    OffsetOutOfOrder { base_offset: Offset, log_end_offset: Offset },
    /// Retriable; heals when space returns (REPLICATION G8).
    #[error("the disk has {free_bytes} bytes left, {reserve_bytes} are kept in reserve")]
    DiskFull { free_bytes: u64, reserve_bytes: u64 },
    /// Our disk failed; the partition moves away, the client retries.
    #[error("the log dir is offline after an i/o error")]
    LogDirOffline,
}

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("offset {offset} lies outside {log_start_offset}..={log_end_offset}")]
    OutOfRange { offset: Offset, log_start_offset: Offset, log_end_offset: Offset },
    /// The bytes changed on the disk.
    #[error("there is no valid batch at offset {offset}")]
    Corrupt { offset: Offset },
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A change of a log, other than an append, that failed. After [`LogError::LogDirOffline`] nothing is tried again.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("the log dir is offline after an i/o error")]
    LogDirOffline,
    #[error("offset {offset} lies outside {log_start_offset}..={log_end_offset}")]
    OutOfRange { offset: Offset, log_start_offset: Offset, log_end_offset: Offset },
    #[error(transparent)]
    Open(#[from] OpenError),
}
