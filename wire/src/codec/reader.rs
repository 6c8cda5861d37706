//! A bounded cursor over one message.

use bytes::Bytes;

use super::{DecodeError, DecodeErrorKind};

/// Reads primitive values off a frame and keeps count of the memory that decoding takes.
///
/// Nothing is allocated from a length that the remaining bytes cannot hold, and in all never more than the memory
/// limit: one wire byte may stand for a struct of 200 bytes, so counting bytes alone would not do.
pub struct Reader {
    frame: Bytes,
    position: usize,
    /// Exclusive; below `frame.len()` while a tagged field is read.
    end: usize,
    memory_left: usize,
    field: &'static str,
}

impl Reader {
    /// A reader that may allocate 4 bytes per byte of `frame` and 64 KiB on top.
    pub fn new(frame: Bytes) -> Reader {
        let limit = frame.len().saturating_mul(MEMORY_PER_BYTE).saturating_add(MEMORY_BASE);
        Reader::with_memory_limit(frame, limit)
    }

    /// A reader with another limit, in bytes; for answers of a server that the caller trusts with its memory.
    pub fn with_memory_limit(frame: Bytes, memory_limit: usize) -> Reader {
        let end = frame.len();
        Reader { frame, position: 0, end, memory_left: memory_limit, field: "start" }
    }

    pub fn position(&self) -> usize {
        self.position
    }

    pub fn remaining(&self) -> usize {
        self.end - self.position
    }

    /// What is left, without copying.
    pub fn into_rest(self) -> Bytes {
        self.frame.slice(self.position..self.end)
    }

    /// Names the field that is read next, for errors.
    pub fn enter(&mut self, field: &'static str) {
        self.field = field;
    }

    pub fn error(&self, kind: DecodeErrorKind) -> DecodeError {
        DecodeError { kind, field: self.field, position: self.position }
    }

    pub fn i8(&mut self) -> Result<i8, DecodeError> {
        self.array().map(i8::from_be_bytes)
    }

    pub fn i16(&mut self) -> Result<i16, DecodeError> {
        self.array().map(i16::from_be_bytes)
    }

    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_be_bytes)
    }

    pub fn i32(&mut self) -> Result<i32, DecodeError> {
        self.array().map(i32::from_be_bytes)
    }

    pub fn i64(&mut self) -> Result<i64, DecodeError> {
        self.array().map(i64::from_be_bytes)
    }

    /// `N` bytes by value.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.slice(N)?);
        Ok(bytes)
    }

    /// An unsigned LEB128 of at most 32 bits.
    pub fn uvarint(&mut self) -> Result<u32, DecodeError> {
        let mut value: u64 = 0;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.array::<1>()?[0];
            value |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(value).map_err(|_| self.error(DecodeErrorKind::BadVarint));
            }
        }
        Err(self.error(DecodeErrorKind::BadVarint))
    }

    /// The length of a string or byte field; `None` for null.
    ///
    /// `plain` reads the length of a version that is not flexible.
    pub fn length(
        &mut self,
        flexible: bool,
        plain: impl FnOnce(&mut Reader) -> Result<i32, DecodeError>,
    ) -> Result<Option<usize>, DecodeError> {
        if flexible {
            return Ok(self.uvarint()?.checked_sub(1).map(|length| length as usize));
        }
        match plain(self)? {
            -1 => Ok(None),
            length => match usize::try_from(length) {
                Ok(length) => Ok(Some(length)),
                Err(_) => Err(self.error(DecodeErrorKind::NegativeLength { length: i64::from(length) })),
            },
        }
    }

    /// The number of elements that follow, checked against what the remaining bytes can hold.
    pub fn count(&mut self, flexible: bool) -> Result<Option<usize>, DecodeError> {
        let Some(count) = self.length(flexible, Reader::i32)? else { return Ok(None) };
        // Every element takes at least one byte on the wire.
        if count > self.remaining() || count > ELEMENTS_MAX {
            let kind = DecodeErrorKind::TooManyElements { count: count as u64, remaining: self.remaining() };
            return Err(self.error(kind));
        }
        Ok(Some(count))
    }

    /// Takes `length` bytes as UTF-8.
    pub fn string(&mut self, length: usize) -> Result<String, DecodeError> {
        self.need(length)?;
        self.charge(length)?;
        let text = std::str::from_utf8(self.slice(length)?).map(str::to_owned);
        text.map_err(|_| self.error(DecodeErrorKind::NotUtf8))
    }

    /// Takes `length` bytes as a slice of the frame; copies nothing.
    pub fn bytes(&mut self, length: usize) -> Result<Bytes, DecodeError> {
        self.need(length)?;
        let start = self.position;
        self.position += length;
        Ok(self.frame.slice(start..self.position))
    }

    pub fn skip(&mut self, length: usize) -> Result<(), DecodeError> {
        self.slice(length).map(|_| ())
    }

    /// Books `bytes` of memory that decoding is about to allocate.
    pub fn charge(&mut self, bytes: usize) -> Result<(), DecodeError> {
        match self.memory_left.checked_sub(bytes) {
            Some(left) => {
                self.memory_left = left;
                Ok(())
            }
            None => Err(self.error(DecodeErrorKind::TooMuchMemory { bytes: bytes - self.memory_left })),
        }
    }

    /// Reads `count` elements; grows as they arrive, so that a lying count costs little.
    pub fn elements<T>(
        &mut self,
        count: usize,
        mut read: impl FnMut(&mut Reader) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let mut elements = Vec::new();
        while elements.len() < count {
            if elements.len() == elements.capacity() {
                let more = (count - elements.len()).min(elements.len().max(CAPACITY_FIRST));
                self.charge(more * size_of::<T>())?;
                elements.reserve_exact(more);
            }
            elements.push(read(self)?);
        }
        Ok(elements)
    }

    /// The number of tagged fields that follow.
    pub fn tag_count(&mut self) -> Result<u32, DecodeError> {
        self.enter("tagged fields");
        let count = self.uvarint()?;
        if count > TAGS_MAX {
            return Err(self.error(DecodeErrorKind::TooManyTags { count, max: TAGS_MAX }));
        }
        Ok(count)
    }

    /// A tag's number and the size of its value in bytes.
    pub fn tag(&mut self) -> Result<(u32, usize), DecodeError> {
        let tag = self.uvarint()?;
        let size = self.uvarint()? as usize;
        self.need(size)?;
        Ok((tag, size))
    }

    /// Reads a known tag's value: `read` sees only its `size` bytes and must use them all.
    pub fn tagged<T>(
        &mut self,
        tag: u32,
        size: usize,
        read: impl FnOnce(&mut Reader) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        self.need(size)?;
        let (start, outer_end) = (self.position, self.end);
        self.end = start + size;
        let value = read(self)?;
        let used = self.position - start;
        self.end = outer_end;
        if used != size {
            return Err(self.error(DecodeErrorKind::TagSize { tag, declared: size, used }));
        }
        Ok(value)
    }

    /// Skips a section of tagged fields of which none is known.
    pub fn skip_tags(&mut self) -> Result<(), DecodeError> {
        for _ in 0..self.tag_count()? {
            let (_, size) = self.tag()?;
            self.skip(size)?;
        }
        Ok(())
    }

    pub(crate) fn slice(&mut self, length: usize) -> Result<&[u8], DecodeError> {
        self.need(length)?;
        let start = self.position;
        self.position += length;
        Ok(&self.frame[start..self.position])
    }

    fn need(&self, length: usize) -> Result<(), DecodeError> {
        match length.checked_sub(self.remaining()) {
            None | Some(0) => Ok(()),
            Some(missing) => Err(self.error(DecodeErrorKind::Truncated { missing })),
        }
    }
}

const MEMORY_PER_BYTE: usize = 4;
const MEMORY_BASE: usize = 64 << 10;
/// Kafka 4.4's own bounds.
const ELEMENTS_MAX: usize = 1_000_000;
const TAGS_MAX: u32 = 10_000;
const CAPACITY_FIRST: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(bytes: &'static [u8]) -> Reader {
        Reader::new(Bytes::from_static(bytes))
    }

    #[test]
    fn a_varint_of_five_bytes_holds_32_bits_and_no_more() {
        assert_eq!(reader(&[0xff, 0xff, 0xff, 0xff, 0x0f]).uvarint().unwrap(), u32::MAX);
        for bytes in [&[0xff, 0xff, 0xff, 0xff, 0x1f][..], &[0x80, 0x80, 0x80, 0x80, 0x80, 0x00]] {
            let error = Reader::new(Bytes::copy_from_slice(bytes)).uvarint().unwrap_err();
            assert_eq!(error.kind, DecodeErrorKind::BadVarint);
        }
    }

    #[test]
    fn a_count_larger_than_the_remaining_bytes_is_refused_before_allocating() {
        let error = reader(&[0xff, 0xff, 0xff, 0xff, 0x07]).count(true).unwrap_err();
        assert_eq!(error.kind, DecodeErrorKind::TooManyElements { count: 0x7fff_fffe, remaining: 0 });
        let error = reader(&[0x80, 0, 0, 0]).count(false).unwrap_err();
        assert_eq!(error.kind, DecodeErrorKind::NegativeLength { length: i64::from(i32::MIN) });
    }

    #[test]
    fn small_bytes_cannot_become_many_large_structs() {
        let frame = Bytes::from(vec![0; 100_000]);
        let error = Reader::new(frame).elements(100_000, |r| r.i8().map(|_| [0u64; 32])).unwrap_err();
        assert!(matches!(error.kind, DecodeErrorKind::TooMuchMemory { .. }), "{error}");
    }

    #[test]
    fn a_tag_must_use_exactly_the_bytes_it_declares() {
        let error = reader(&[0, 0, 0, 1, 9]).tagged(7, 5, Reader::i32).unwrap_err();
        assert_eq!(error.kind, DecodeErrorKind::TagSize { tag: 7, declared: 5, used: 4 });
        let error = reader(&[0, 0, 0, 1]).tagged(7, 3, Reader::i32).unwrap_err();
        assert_eq!(error.kind, DecodeErrorKind::Truncated { missing: 1 });
    }
}
