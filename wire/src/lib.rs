//! Kafka bytes, sans-io: frames, headers, the API table, messages, record batches, the fetch response writer.
//!
//! Everything is a function from bytes to values or back. Bytes from a peer never panic and never make it allocate
//! more than 4 bytes per byte received plus 64 KiB (docs/decisions/0001-own-message-codec.md).

#[macro_use]
pub mod codec;
pub mod api;
pub mod batch;
pub mod compression;
pub mod error;
pub mod fetch_response;
pub mod frame;
pub mod header;
pub mod inspect;
pub mod messages;
pub mod placement;
pub mod records;

pub use api::ApiKey;
pub use codec::{DecodeError, DecodeErrorKind, EncodeError, Message, Reader, Request};
