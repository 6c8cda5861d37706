//! The one place where errors of logs become Kafka's codes. Exhaustive: a new error does not compile until it has a code.
//!
//! Batches and frames have theirs in `thalweg_wire::error`; the coordinator answers in Kafka's codes itself.

use thalweg_model::ErrorCode;
use thalweg_storage::{AppendError, LogDirError, LogError, OpenError, ProducerError, ReadError};

pub fn append(error: &AppendError) -> ErrorCode {
    match error {
        AppendError::Producer(error) => producer(error),
        AppendError::BatchTooLarge { .. } => ErrorCode::RecordListTooLarge,
        AppendError::Malformed(_) => ErrorCode::InvalidRecord,
        AppendError::OffsetOutOfOrder { .. } => ErrorCode::UnknownServerError,
        AppendError::DiskFull { .. } | AppendError::LogDirOffline => ErrorCode::KafkaStorageError,
    }
}

fn producer(error: &ProducerError) -> ErrorCode {
    match error {
        ProducerError::OutOfOrderSequence { .. } => ErrorCode::OutOfOrderSequenceNumber,
        ProducerError::InvalidProducerEpoch { .. } => ErrorCode::InvalidProducerEpoch,
        ProducerError::TransactionCoordinatorFenced { .. } => ErrorCode::TransactionCoordinatorFenced,
    }
}

pub fn read(error: &ReadError) -> ErrorCode {
    match error {
        ReadError::OutOfRange { .. } => ErrorCode::OffsetOutOfRange,
        ReadError::Corrupt { .. } | ReadError::Io(_) => ErrorCode::KafkaStorageError,
    }
}

pub fn log(error: &LogError) -> ErrorCode {
    match error {
        LogError::LogDirOffline => ErrorCode::KafkaStorageError,
        LogError::OutOfRange { .. } => ErrorCode::OffsetOutOfRange,
        LogError::Open(error) => open(error),
    }
}

pub fn open(error: &OpenError) -> ErrorCode {
    match error {
        OpenError::Corrupt { .. }
        | OpenError::UnfinishedCompaction { .. }
        | OpenError::LogDirOffline
        | OpenError::Io { .. } => ErrorCode::KafkaStorageError,
        OpenError::OtherTopicId { .. } => ErrorCode::InconsistentTopicId,
        OpenError::Exists { .. } | OpenError::NotFound { .. } | OpenError::AlreadyOpen { .. } => {
            ErrorCode::UnknownServerError
        }
    }
}

pub fn log_dir(error: &LogDirError) -> ErrorCode {
    match error {
        LogDirError::InUse { .. }
        | LogDirError::NewerVersion { .. }
        | LogDirError::OtherCluster { .. }
        | LogDirError::OtherNode { .. }
        | LogDirError::Malformed { .. }
        | LogDirError::Offline { .. }
        | LogDirError::Io { .. } => ErrorCode::KafkaStorageError,
    }
}
