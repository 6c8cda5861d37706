//! The one place where this crate's errors become Kafka's codes.

use thalweg_model::ErrorCode;

use crate::batch::BatchError;
use crate::codec::{DecodeError, EncodeError};
use crate::compression::CompressionError;
use crate::header::RequestError;

/// What a client is told. Kafka 4.4 was watched for each.
pub trait ToErrorCode {
    fn error_code(&self) -> ErrorCode;
}

impl ToErrorCode for BatchError {
    fn error_code(&self) -> ErrorCode {
        match self {
            BatchError::LengthTooSmall { .. } | BatchError::UnknownMagic { .. } | BatchError::BadCrc { .. } => {
                ErrorCode::CorruptMessage
            }
            BatchError::TooLarge { .. } => ErrorCode::MessageTooLarge,
            BatchError::ZstdTooEarly => ErrorCode::UnsupportedCompressionType,
            BatchError::TimestampOutsideWindow { .. } => ErrorCode::InvalidTimestamp,
            BatchError::Compression(error) => error.error_code(),
            BatchError::Empty
            | BatchError::Truncated { .. }
            | BatchError::OldMagic { .. }
            | BatchError::MoreThanOneBatch { .. }
            | BatchError::BaseOffsetNotZero { .. }
            | BatchError::CountMismatch { .. }
            | BatchError::UnknownCompression { .. }
            | BatchError::Control
            | BatchError::BadProducer { .. }
            | BatchError::Record { .. }
            | BatchError::KeyMissing { .. } => ErrorCode::InvalidRecord,
        }
    }
}

impl ToErrorCode for CompressionError {
    fn error_code(&self) -> ErrorCode {
        match self {
            // Retrying does not help, so not CORRUPT_MESSAGE.
            CompressionError::Corrupt { .. } => ErrorCode::InvalidRecord,
            CompressionError::TooLarge { .. } => ErrorCode::MessageTooLarge,
        }
    }
}

impl ToErrorCode for DecodeError {
    fn error_code(&self) -> ErrorCode {
        ErrorCode::InvalidRequest
    }
}

impl ToErrorCode for EncodeError {
    fn error_code(&self) -> ErrorCode {
        match self {
            EncodeError::UnsupportedVersion { .. } | EncodeError::TooLong { .. } => ErrorCode::UnknownServerError,
        }
    }
}

impl ToErrorCode for RequestError {
    fn error_code(&self) -> ErrorCode {
        match self {
            RequestError::UnknownApi { .. } | RequestError::Malformed(_) => ErrorCode::InvalidRequest,
            RequestError::UnsupportedVersion { .. } => ErrorCode::UnsupportedVersion,
        }
    }
}
