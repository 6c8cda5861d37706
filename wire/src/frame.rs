//! Length-prefixed frames: a 4-byte size, then that many bytes.

use bytes::{Buf, Bytes, BytesMut};
use thiserror::Error;

/// Kafka's `socket.request.max.bytes`: the largest request taken by default, in bytes.
pub const FRAME_BYTES_MAX: usize = 100 << 20;

/// Why a connection cannot go on: what arrives is no Kafka frame. The peer's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    #[error("a frame of negative size {size}")]
    NegativeSize { size: i32 },
    #[error("a frame of size 0")]
    Empty,
    #[error("a frame of {size} bytes; at most {max} are allowed")]
    TooLarge { size: usize, max: usize },
    #[error("a TLS handshake on a listener without TLS; the client's security.protocol must be PLAINTEXT here")]
    Tls,
    #[error("an HTTP request on a Kafka listener")]
    Http,
}

/// Cuts frames off what has been read so far.
///
/// Never reserves memory from the size that a peer names: the buffer grows with the bytes that arrive.
#[derive(Clone, Copy, Debug)]
pub struct FrameDecoder {
    bytes_max: usize,
}

impl FrameDecoder {
    pub fn new(bytes_max: usize) -> FrameDecoder {
        FrameDecoder { bytes_max }
    }

    /// Takes the next frame off the front of `buffer`, without its size; `None` until all of it is there.
    ///
    /// # Errors
    /// No frame can follow: close the connection.
    pub fn next(&self, buffer: &mut BytesMut) -> Result<Option<Bytes>, FrameError> {
        let Some(size) = self.size(buffer)? else { return Ok(None) };
        if buffer.len() < SIZE_BYTES + size {
            return Ok(None);
        }
        buffer.advance(SIZE_BYTES);
        Ok(Some(buffer.split_to(size).freeze()))
    }

    /// How many bytes are still missing from the frame at the front of `buffer`; 4 bytes are awaited when its size
    /// is not known yet. A hint for the next read, bounded by the largest frame.
    ///
    /// # Errors
    /// As [`FrameDecoder::next`].
    pub fn missing(&self, buffer: &[u8]) -> Result<usize, FrameError> {
        let needed = self.size(buffer)?.map_or(SIZE_BYTES, |size| SIZE_BYTES + size);
        Ok(needed.saturating_sub(buffer.len()))
    }

    fn size(&self, buffer: &[u8]) -> Result<Option<usize>, FrameError> {
        let Some(prefix) = buffer.first_chunk::<SIZE_BYTES>() else { return Ok(None) };
        let size = i32::from_be_bytes(*prefix);
        match usize::try_from(size) {
            Ok(0) => Err(FrameError::Empty),
            Ok(size) if size <= self.bytes_max => Ok(Some(size)),
            Ok(size) => Err(foreign(prefix).unwrap_or(FrameError::TooLarge { size, max: self.bytes_max })),
            Err(_) => Err(FrameError::NegativeSize { size }),
        }
    }
}

impl Default for FrameDecoder {
    fn default() -> FrameDecoder {
        FrameDecoder::new(FRAME_BYTES_MAX)
    }
}

/// Starts a frame at the end of `out`; [`finish_frame`] fills in its size.
pub fn start_frame(out: &mut BytesMut) -> FrameStart {
    let start = out.len();
    out.extend_from_slice(&[0; SIZE_BYTES]);
    FrameStart(start)
}

/// Closes the frame that [`start_frame`] began in the same buffer.
///
/// # Errors
/// [`FrameError::TooLarge`]: the frame does not fit a 32-bit size; our fault.
pub fn finish_frame(out: &mut BytesMut, start: FrameStart) -> Result<(), FrameError> {
    let size = out.len() - start.0 - SIZE_BYTES;
    let size_field = i32::try_from(size).map_err(|_| FrameError::TooLarge { size, max: i32::MAX as usize })?;
    out[start.0..start.0 + SIZE_BYTES].copy_from_slice(&size_field.to_be_bytes());
    Ok(())
}

/// Where a frame began.
#[derive(Debug)]
#[must_use = "a frame without its size is garbage"]
pub struct FrameStart(usize);

/// Recognises another protocol by what it sends first. All of these are sizes far above any sensible maximum.
fn foreign(prefix: &[u8; SIZE_BYTES]) -> Option<FrameError> {
    match prefix {
        // TLS record: handshake, version 3.0 to 3.4 (SSL 3.0 to TLS 1.3).
        [0x16, 0x03, 0x00..=0x04, _] => Some(FrameError::Tls),
        b"GET " | b"POST" | b"PUT " | b"HEAD" | b"PRI " | b"DELE" | b"OPTI" | b"PATC" | b"CONN" => {
            Some(FrameError::Http)
        }
        _ => None,
    }
}

const SIZE_BYTES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn next(bytes: &[u8]) -> Result<Option<Bytes>, FrameError> {
        FrameDecoder::default().next(&mut BytesMut::from(bytes))
    }

    #[test]
    fn frames_come_out_whole_and_in_order_whatever_the_cuts() {
        let stream = [0, 0, 0, 3, 1, 2, 3, 0, 0, 0, 1, 9];
        for cut in 0..=stream.len() {
            let mut buffer = BytesMut::new();
            let mut frames = Vec::new();
            for part in [&stream[..cut], &stream[cut..]] {
                buffer.extend_from_slice(part);
                while let Some(frame) = FrameDecoder::default().next(&mut buffer).unwrap() {
                    frames.push(frame);
                }
            }
            assert_eq!(frames, [&[1, 2, 3][..], &[9]], "cut at {cut}");
        }
    }

    #[test]
    fn a_bad_size_is_named() {
        assert_eq!(next(&[0, 0, 0, 0]), Err(FrameError::Empty));
        assert_eq!(next(&[0xff, 0xff, 0xff, 0xff]), Err(FrameError::NegativeSize { size: -1 }));
        let two_gib = next(&[0x7f, 0xff, 0xff, 0xff]).unwrap_err();
        assert_eq!(two_gib, FrameError::TooLarge { size: i32::MAX as usize, max: FRAME_BYTES_MAX });
        assert_eq!(next(&[0x06, 0x40, 0, 0]), Ok(None));
    }

    #[test]
    fn other_protocols_are_recognised() {
        assert_eq!(next(&[0x16, 0x03, 0x01, 0x02, 0x00]), Err(FrameError::Tls));
        assert_eq!(next(b"GET / HTTP/1.1\r\n"), Err(FrameError::Http));
        assert_eq!(next(b"POST / HTTP/1.1\r\n"), Err(FrameError::Http));
    }

    #[test]
    fn a_huge_size_reserves_nothing() {
        let mut buffer = BytesMut::from(&[0x06, 0x40, 0, 0, 1, 2][..]);
        let capacity = buffer.capacity();
        assert_eq!(FrameDecoder::default().next(&mut buffer), Ok(None));
        assert_eq!(buffer.capacity(), capacity);
        assert_eq!(FrameDecoder::default().missing(&buffer), Ok(FRAME_BYTES_MAX - 2));
    }

    #[test]
    fn a_finished_frame_reads_back() {
        let mut out = BytesMut::from(&b"before"[..]);
        let start = start_frame(&mut out);
        out.extend_from_slice(b"body");
        finish_frame(&mut out, start).unwrap();
        assert_eq!(FrameDecoder::default().next(&mut out.split_off(6)).unwrap().unwrap(), &b"body"[..]);
    }
}
