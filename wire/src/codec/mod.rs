//! The schema machinery: a message is declared once, its codec follows from the declaration.
//!
//! `structure!` and `message!` (module `macros`) turn a list of fields (name, type, versions, null versions, tag, default) into
//! a struct, its `Default`, a bounded reader, a writer and a description that tests walk. Semantics are those of
//! Kafka's message schemas:
//! - a field outside the version is not on the wire and has its default after reading;
//! - a tagged field is written only if it differs from its default (traps in docs/COMPAT.md: old clients break
//!   on the others);
//! - reading never allocates more than [`Reader`]'s memory limit allows, whatever the counts claim.

mod error;
mod field;
#[macro_use]
mod macros;
mod reader;
mod schema;
mod writer;

pub use error::{DecodeError, DecodeErrorKind, EncodeError};
pub use field::{Context, Field, Nullable, Structure};
pub(crate) use field::{read_nullable_structure, write_nullable_structure};
pub use reader::Reader;
pub use schema::{FieldSpec, Kind, Versions};
pub use writer::TagWriter;
pub(crate) use writer::{array_count, put_uvarint, string};

use std::ops::RangeInclusive;

use bytes::{Bytes, BytesMut};

use crate::api::ApiKey;

/// A request or response body: what follows the header in a frame.
pub trait Message: Structure {
    const KEY: ApiKey;
    /// Versions that can be read and written here.
    const VERSIONS: RangeInclusive<i16>;
    /// First version with compact lengths and tagged fields; `i16::MAX` for none.
    const FLEXIBLE_FROM: i16;

    /// Reads a body. Bytes after the last field stay in the reader: Kafka ignores them.
    ///
    /// # Errors
    /// The peer's fault, except [`DecodeErrorKind::UnsupportedVersion`].
    fn decode(reader: &mut Reader, version: i16) -> Result<Self, DecodeError> {
        if !Self::VERSIONS.contains(&version) {
            return Err(reader.error(DecodeErrorKind::UnsupportedVersion { version }));
        }
        Self::read_structure(reader, Self::context(version))
    }

    /// [`Message::decode`] over the whole of `body`, with the memory limit of [`Reader::new`].
    ///
    /// # Errors
    /// As [`Message::decode`].
    fn decode_body(body: &Bytes, version: i16) -> Result<Self, DecodeError> {
        Self::decode(&mut Reader::new(body.clone()), version)
    }

    /// Appends the body. Fields outside `version` are left out; `None` where the version has no null is written
    /// as the empty value.
    ///
    /// # Errors
    /// Our fault: the version is not known, or a string or array is too long for it.
    fn encode(&self, out: &mut BytesMut, version: i16) -> Result<(), EncodeError> {
        if !Self::VERSIONS.contains(&version) {
            return Err(EncodeError::UnsupportedVersion { api: Self::KEY, version });
        }
        self.write_structure(out, Self::context(version))
    }

    fn is_flexible(version: i16) -> bool {
        version >= Self::FLEXIBLE_FROM
    }

    fn context(version: i16) -> Context {
        Context { version, flexible: Self::is_flexible(version) }
    }
}

/// A request body; names the body that answers it.
pub trait Request: Message {
    type Response: Message;
}
