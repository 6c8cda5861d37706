//! Writes lengths, counts and tagged fields.

use bytes::{BufMut, BytesMut};

use super::{Context, EncodeError, Field};

/// Collects the tagged fields of one struct, then writes them with their count.
#[derive(Default)]
pub struct TagWriter {
    count: u32,
    body: BytesMut,
}

impl TagWriter {
    /// Tags must come in ascending order.
    ///
    /// # Errors
    /// As [`Field::write`].
    pub fn add(&mut self, tag: u32, value: &impl Field, cx: Context, nullable: bool) -> Result<(), EncodeError> {
        let mut bytes = BytesMut::new();
        value.write(&mut bytes, cx, nullable)?;
        put_uvarint(&mut self.body, tag);
        put_uvarint(&mut self.body, length_u32(bytes.len())?);
        self.body.put_slice(&bytes);
        self.count += 1;
        Ok(())
    }

    pub fn finish(self, out: &mut BytesMut) {
        put_uvarint(out, self.count);
        out.put_slice(&self.body);
    }
}

/// Appends an unsigned LEB128.
pub(crate) fn put_uvarint(out: &mut BytesMut, mut value: u32) {
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// Appends an array's count, or null.
pub(crate) fn array_count(out: &mut BytesMut, count: Option<usize>, flexible: bool) -> Result<(), EncodeError> {
    match (count, flexible) {
        (None, true) => put_uvarint(out, 0),
        (Some(count), true) => put_uvarint(out, compact(count)?),
        (None, false) => out.put_i32(-1),
        (Some(count), false) => out.put_i32(length_i32(count)?),
    }
    Ok(())
}

/// Appends a byte field, or null.
pub(crate) fn raw_bytes(out: &mut BytesMut, bytes: Option<&[u8]>, flexible: bool) -> Result<(), EncodeError> {
    array_count(out, bytes.map(<[u8]>::len), flexible)?;
    out.put_slice(bytes.unwrap_or_default());
    Ok(())
}

/// Appends a string, or null.
pub(crate) fn string(out: &mut BytesMut, text: Option<&str>, flexible: bool) -> Result<(), EncodeError> {
    let length = text.map(str::len);
    match (length, flexible) {
        (None, true) => put_uvarint(out, 0),
        (Some(length), true) => put_uvarint(out, compact(length)?),
        (None, false) => out.put_i16(-1),
        (Some(length), false) => out.put_i16(i16::try_from(length).map_err(|_| EncodeError::TooLong { length })?),
    }
    out.put_slice(text.unwrap_or_default().as_bytes());
    Ok(())
}

fn compact(length: usize) -> Result<u32, EncodeError> {
    // Kafka reads lengths as signed 32-bit.
    length_i32(length).map(|length| length.unsigned_abs() + 1)
}

fn length_i32(length: usize) -> Result<i32, EncodeError> {
    i32::try_from(length).map_err(|_| EncodeError::TooLong { length })
}

fn length_u32(length: usize) -> Result<u32, EncodeError> {
    length_i32(length).map(i32::unsigned_abs)
}
