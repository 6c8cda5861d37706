//! How each type of field looks on the wire.

use bytes::{BufMut, Bytes, BytesMut};
use thalweg_model::TopicId;

use super::schema::{FieldSpec, Kind};
use super::writer::{array_count, raw_bytes, string};
use super::{DecodeError, DecodeErrorKind, EncodeError, Reader, TagWriter};

/// The version being read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    pub version: i16,
    /// Compact lengths and tagged fields.
    pub flexible: bool,
}

/// A type that a field may have.
pub trait Field: Sized {
    /// `nullable`: whether the version allows null; only `Option` looks at it.
    ///
    /// # Errors
    /// The peer's fault.
    fn read(reader: &mut Reader, cx: Context, nullable: bool) -> Result<Self, DecodeError>;

    /// # Errors
    /// Our fault: too long for the version's length field.
    fn write(&self, out: &mut BytesMut, cx: Context, nullable: bool) -> Result<(), EncodeError>;

    /// For tests that walk the schema.
    fn kind() -> Kind;
}

/// A type with a null on the wire.
pub trait Nullable: Field + Default {
    /// # Errors
    /// The peer's fault.
    fn read_nullable(reader: &mut Reader, cx: Context) -> Result<Option<Self>, DecodeError>;

    /// # Errors
    /// As [`Field::write`].
    fn write_nullable(value: Option<&Self>, out: &mut BytesMut, cx: Context) -> Result<(), EncodeError>;
}

/// What `structure!` implements: a list of fields, then tagged fields in flexible versions.
pub trait Structure: Sized + Default {
    /// # Errors
    /// The peer's fault.
    fn read_structure(reader: &mut Reader, cx: Context) -> Result<Self, DecodeError>;

    /// Takes the value of `tag` if it is known; says whether it was.
    ///
    /// # Errors
    /// The peer's fault: bad value, or a known tag in a version without it.
    fn read_tag(&mut self, tag: u32, size: usize, reader: &mut Reader, cx: Context) -> Result<bool, DecodeError>;

    /// # Errors
    /// As [`Field::write`].
    fn write_structure(&self, out: &mut BytesMut, cx: Context) -> Result<(), EncodeError>;

    /// Hands the tagged fields that differ from their default to `tags`.
    ///
    /// # Errors
    /// As [`Field::write`].
    fn collect_tags(&self, tags: &mut TagWriter, cx: Context) -> Result<(), EncodeError>;

    /// The declaration, for tests that walk it.
    fn fields() -> Vec<FieldSpec>;

    /// Reads the section of tagged fields; skips what is unknown.
    ///
    /// # Errors
    /// The peer's fault.
    fn read_tags(&mut self, reader: &mut Reader, cx: Context) -> Result<(), DecodeError> {
        for _ in 0..reader.tag_count()? {
            let (tag, size) = reader.tag()?;
            if !self.read_tag(tag, size, reader, cx)? {
                reader.skip(size)?;
            }
        }
        Ok(())
    }

    /// Writes the section of tagged fields; nothing in versions that have none.
    ///
    /// # Errors
    /// As [`Field::write`].
    fn write_tags(&self, out: &mut BytesMut, cx: Context) -> Result<(), EncodeError> {
        if cx.flexible {
            let mut tags = TagWriter::default();
            self.collect_tags(&mut tags, cx)?;
            tags.finish(out);
        }
        Ok(())
    }
}

macro_rules! number {
    ($type:ty, $read:ident, $write:ident, $kind:ident) => {
        impl Field for $type {
            fn read(reader: &mut Reader, _: Context, _: bool) -> Result<Self, DecodeError> {
                reader.$read()
            }

            fn write(&self, out: &mut BytesMut, _: Context, _: bool) -> Result<(), EncodeError> {
                out.$write(*self);
                Ok(())
            }

            fn kind() -> Kind {
                Kind::$kind
            }
        }
    };
}

number!(i8, i8, put_i8, Int8);
number!(i16, i16, put_i16, Int16);
// As wide as i16: what walks the schema need not tell them apart.
number!(u16, u16, put_u16, Int16);
number!(i32, i32, put_i32, Int32);
number!(i64, i64, put_i64, Int64);

impl Field for bool {
    fn read(reader: &mut Reader, _: Context, _: bool) -> Result<bool, DecodeError> {
        reader.i8().map(|byte| byte != 0)
    }

    fn write(&self, out: &mut BytesMut, _: Context, _: bool) -> Result<(), EncodeError> {
        out.put_u8(u8::from(*self));
        Ok(())
    }

    fn kind() -> Kind {
        Kind::Bool
    }
}

impl Field for TopicId {
    fn read(reader: &mut Reader, _: Context, _: bool) -> Result<TopicId, DecodeError> {
        reader.array().map(TopicId)
    }

    fn write(&self, out: &mut BytesMut, _: Context, _: bool) -> Result<(), EncodeError> {
        out.put_slice(&self.0);
        Ok(())
    }

    fn kind() -> Kind {
        Kind::Uuid
    }
}

impl Field for String {
    fn read(reader: &mut Reader, cx: Context, _: bool) -> Result<String, DecodeError> {
        present(String::read_nullable(reader, cx)?, reader)
    }

    fn write(&self, out: &mut BytesMut, cx: Context, _: bool) -> Result<(), EncodeError> {
        string(out, Some(self), cx.flexible)
    }

    fn kind() -> Kind {
        Kind::String
    }
}

impl Nullable for String {
    fn read_nullable(reader: &mut Reader, cx: Context) -> Result<Option<String>, DecodeError> {
        match reader.length(cx.flexible, |r| r.i16().map(i32::from))? {
            Some(length) => reader.string(length).map(Some),
            None => Ok(None),
        }
    }

    fn write_nullable(value: Option<&String>, out: &mut BytesMut, cx: Context) -> Result<(), EncodeError> {
        string(out, value.map(String::as_str), cx.flexible)
    }
}

impl Field for Bytes {
    fn read(reader: &mut Reader, cx: Context, _: bool) -> Result<Bytes, DecodeError> {
        present(Bytes::read_nullable(reader, cx)?, reader)
    }

    fn write(&self, out: &mut BytesMut, cx: Context, _: bool) -> Result<(), EncodeError> {
        raw_bytes(out, Some(self), cx.flexible)
    }

    fn kind() -> Kind {
        Kind::Bytes
    }
}

impl Nullable for Bytes {
    fn read_nullable(reader: &mut Reader, cx: Context) -> Result<Option<Bytes>, DecodeError> {
        match reader.length(cx.flexible, Reader::i32)? {
            Some(length) => reader.bytes(length).map(Some),
            None => Ok(None),
        }
    }

    fn write_nullable(value: Option<&Bytes>, out: &mut BytesMut, cx: Context) -> Result<(), EncodeError> {
        raw_bytes(out, value.map(|bytes| &bytes[..]), cx.flexible)
    }
}

impl<T: Field> Field for Vec<T> {
    fn read(reader: &mut Reader, cx: Context, _: bool) -> Result<Vec<T>, DecodeError> {
        present(Vec::read_nullable(reader, cx)?, reader)
    }

    fn write(&self, out: &mut BytesMut, cx: Context, _: bool) -> Result<(), EncodeError> {
        Vec::write_nullable(Some(self), out, cx)
    }

    fn kind() -> Kind {
        Kind::Array(Box::new(T::kind()))
    }
}

impl<T: Field> Nullable for Vec<T> {
    fn read_nullable(reader: &mut Reader, cx: Context) -> Result<Option<Vec<T>>, DecodeError> {
        match reader.count(cx.flexible)? {
            Some(count) => reader.elements(count, |r| T::read(r, cx, false)).map(Some),
            None => Ok(None),
        }
    }

    fn write_nullable(value: Option<&Vec<T>>, out: &mut BytesMut, cx: Context) -> Result<(), EncodeError> {
        array_count(out, value.map(Vec::len), cx.flexible)?;
        value.into_iter().flatten().try_for_each(|element| element.write(out, cx, false))
    }
}

impl<T: Nullable> Field for Option<T> {
    fn read(reader: &mut Reader, cx: Context, nullable: bool) -> Result<Option<T>, DecodeError> {
        if nullable { T::read_nullable(reader, cx) } else { T::read(reader, cx, false).map(Some) }
    }

    fn write(&self, out: &mut BytesMut, cx: Context, nullable: bool) -> Result<(), EncodeError> {
        match self {
            value if nullable => T::write_nullable(value.as_ref(), out, cx),
            Some(value) => value.write(out, cx, false),
            None => T::default().write(out, cx, false),
        }
    }

    fn kind() -> Kind {
        T::kind()
    }
}

/// Reads the marker before a struct that may be null.
pub(crate) fn read_nullable_structure<T: Structure>(
    reader: &mut Reader,
    cx: Context,
) -> Result<Option<T>, DecodeError> {
    match reader.i8()? {
        -1 => Ok(None),
        1 => T::read_structure(reader, cx).map(Some),
        marker => Err(reader.error(DecodeErrorKind::BadNullMarker { marker })),
    }
}

/// Writes a struct that may be null, with its marker.
pub(crate) fn write_nullable_structure<T: Structure>(
    value: Option<&T>,
    out: &mut BytesMut,
    cx: Context,
) -> Result<(), EncodeError> {
    out.put_i8(if value.is_some() { 1 } else { -1 });
    value.map_or(Ok(()), |value| value.write_structure(out, cx))
}

fn present<T>(value: Option<T>, reader: &Reader) -> Result<T, DecodeError> {
    value.ok_or_else(|| reader.error(DecodeErrorKind::UnexpectedNull))
}
