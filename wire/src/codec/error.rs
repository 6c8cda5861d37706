//! What can be wrong with bytes, and with values that should become bytes.

use thiserror::Error;

use crate::api::ApiKey;

/// Why bytes from a peer are not what the version asks for. Always the peer's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("field {field} at byte {position}: {kind}")]
pub struct DecodeError {
    pub kind: DecodeErrorKind,
    /// The field being read, in Kafka's name as snake case.
    pub field: &'static str,
    /// Where in the buffer given to the reader.
    pub position: usize,
}

/// The cause within a [`DecodeError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeErrorKind {
    #[error("version {version} is not supported")]
    UnsupportedVersion { version: i16 },
    #[error("the message ends {missing} bytes too early")]
    Truncated { missing: usize },
    #[error("null where the version allows none")]
    UnexpectedNull,
    #[error("negative length {length}")]
    NegativeLength { length: i64 },
    #[error("an array of {count} elements in {remaining} remaining bytes")]
    TooManyElements { count: u64, remaining: usize },
    #[error("{count} tagged fields; at most {max} are allowed")]
    TooManyTags { count: u32, max: u32 },
    #[error("tag {tag} is not defined in version {version}")]
    TagNotInVersion { tag: u32, version: i16 },
    #[error("tag {tag} declares {declared} bytes but its value takes {used}")]
    TagSize { tag: u32, declared: usize, used: usize },
    #[error("a variable-length integer that does not end or does not fit")]
    BadVarint,
    #[error("not UTF-8")]
    NotUtf8,
    #[error("a null marker of {marker}")]
    BadNullMarker { marker: i8 },
    #[error("decoding would take {bytes} bytes more than the message's size allows")]
    TooMuchMemory { bytes: usize },
}

/// Why a value cannot be written. Always our own fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EncodeError {
    #[error("{} has no version {version} here", api.name())]
    UnsupportedVersion { api: ApiKey, version: i16 },
    #[error("{length} bytes or elements do not fit the version's length field")]
    TooLong { length: usize },
}
