//! The four codecs, read as bounded streams.
//!
//! Nothing is allocated from a size that compressed bytes claim: blocks are bounded by what their codec can make of
//! their length, streams by the caller's maximum.

use std::io::{self, Read, Write};

use bytes::Bytes;
use thiserror::Error;

use self::blocks::{Lz4Frames, SnappyBlocks};

mod blocks;

/// How a batch's records are packed; the ids are those of the attributes' bits 0-2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    #[default]
    None = 0,
    Gzip = 1,
    Snappy = 2,
    Lz4 = 3,
    Zstd = 4,
}

impl Compression {
    pub const ALL: [Compression; 5] =
        [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

    pub fn id(self) -> u8 {
        self as u8
    }

    pub fn from_id(id: u8) -> Option<Compression> {
        Compression::ALL.into_iter().find(|codec| codec.id() == id)
    }

    /// As in `compression.type`.
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Snappy => "snappy",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }

    /// What an error of a [`Decompressor`] of this codec means.
    pub(crate) fn explain(self, error: &io::Error) -> CompressionError {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<CompressionError>()) {
            Some(known) => known.clone(),
            None => CompressionError::Corrupt { codec: self, reason: error.to_string() },
        }
    }
}

/// Why compressed bytes cannot be read. The writer's fault.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CompressionError {
    #[error("the records take more than {max} bytes uncompressed")]
    TooLarge { max: usize },
    #[error("bad {codec} data: {reason}", codec = codec.name())]
    Corrupt { codec: Compression, reason: String },
}

/// Unpacks all of `bytes`, at most `out_max` bytes of it.
///
/// # Errors
/// Bad data, or more than `out_max` bytes. Neither allocates more than twice `out_max`.
pub fn decompress(codec: Compression, bytes: &Bytes, out_max: usize) -> Result<Bytes, CompressionError> {
    if codec == Compression::None {
        return if bytes.len() <= out_max {
            Ok(bytes.clone())
        } else {
            Err(CompressionError::TooLarge { max: out_max })
        };
    }
    let mut stream = Decompressor::new(codec, bytes, out_max)?;
    let mut out = Vec::new();
    match stream.read_to_end(&mut out) {
        Ok(_) => Ok(out.into()),
        Err(error) => Err(codec.explain(&error)),
    }
}

/// Packs `bytes` the way Kafka's own clients do.
///
/// # Errors
/// None that data can cause; the codecs write into memory.
pub fn compress(codec: Compression, bytes: &[u8]) -> io::Result<Vec<u8>> {
    match codec {
        Compression::None => Ok(bytes.to_vec()),
        Compression::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(bytes)?;
            encoder.finish()
        }
        Compression::Snappy => blocks::snappy_xerial(bytes),
        Compression::Lz4 => blocks::lz4_frame(bytes),
        Compression::Zstd => zstd::stream::encode_all(bytes, 0),
    }
}

/// Unpacks as a stream: validation reads records through it without holding them.
pub struct Decompressor<'a> {
    inner: Inner<'a>,
    left: usize,
    max: usize,
}

enum Inner<'a> {
    Plain(&'a [u8]),
    Gzip(Box<flate2::bufread::MultiGzDecoder<&'a [u8]>>),
    Snappy(SnappyBlocks<'a>),
    Lz4(Lz4Frames<'a>),
    Zstd(zstd::stream::read::Decoder<'a, &'a [u8]>),
}

impl<'a> Decompressor<'a> {
    /// A stream that fails after `out_max` bytes.
    ///
    /// # Errors
    /// The data does not begin as the codec's does.
    pub fn new(codec: Compression, bytes: &'a [u8], out_max: usize) -> Result<Decompressor<'a>, CompressionError> {
        let inner = match codec {
            Compression::None => Inner::Plain(bytes),
            Compression::Gzip => Inner::Gzip(Box::new(flate2::bufread::MultiGzDecoder::new(bytes))),
            Compression::Snappy => Inner::Snappy(SnappyBlocks::new(bytes, out_max)),
            Compression::Lz4 => Inner::Lz4(Lz4Frames::new(bytes, out_max)),
            Compression::Zstd => Inner::Zstd(zstd_decoder(bytes).map_err(|error| codec.explain(&error))?),
        };
        Ok(Decompressor { inner, left: out_max, max: out_max })
    }
}

impl Read for Decompressor<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        // One byte more than allowed may be asked for, to tell the end from an excess.
        let room = out.len().min(self.left.saturating_add(1));
        let out = &mut out[..room];
        let read = match &mut self.inner {
            Inner::Plain(bytes) => bytes.read(out),
            Inner::Gzip(decoder) => decoder.read(out),
            Inner::Snappy(blocks) => blocks.read(out),
            Inner::Lz4(frames) => frames.read(out),
            Inner::Zstd(decoder) => decoder.read(out),
        }?;
        match self.left.checked_sub(read) {
            Some(left) => {
                self.left = left;
                Ok(read)
            }
            None => Err(io::Error::other(CompressionError::TooLarge { max: self.max })),
        }
    }
}

fn zstd_decoder(bytes: &[u8]) -> io::Result<zstd::stream::read::Decoder<'_, &[u8]>> {
    // The bytes are in memory already: the buffer of 128 KiB that the decoder would make is for files.
    let mut decoder = zstd::stream::read::Decoder::with_buffer(bytes)?;
    // What any zstd level writes; the window is reserved, but touched only as far as output goes.
    decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
    Ok(decoder)
}

const ZSTD_WINDOW_LOG_MAX: u32 = 27;

#[cfg(test)]
mod tests {
    use super::*;

    const CODECS: [Compression; 4] = [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

    fn text(length: usize) -> Vec<u8> {
        let mut state = 1u32;
        (0..length)
            .map(|i| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                if i % 3 == 0 { (state >> 24) as u8 } else { b'a' }
            })
            .collect()
    }

    #[test]
    fn what_is_packed_comes_out_again() {
        for codec in Compression::ALL {
            for length in [0, 1, 100, 32 << 10, (32 << 10) + 1, 64 << 10, 300_000] {
                let data = text(length);
                let packed = Bytes::from(compress(codec, &data).unwrap());
                assert_eq!(decompress(codec, &packed, length).unwrap(), data, "{codec:?} {length}");
            }
        }
    }

    #[test]
    fn one_byte_over_the_maximum_is_refused() {
        for codec in Compression::ALL {
            let packed = Bytes::from(compress(codec, &text(100_000)).unwrap());
            let error = decompress(codec, &packed, 99_999).unwrap_err();
            assert_eq!(error, CompressionError::TooLarge { max: 99_999 }, "{codec:?}");
        }
    }

    #[test]
    fn a_bomb_is_refused_at_the_maximum() {
        let zeros = vec![0; 16 << 20];
        for codec in CODECS {
            let packed = Bytes::from(compress(codec, &zeros).unwrap());
            assert!(packed.len() < 1 << 20, "{codec:?}: {} bytes", packed.len());
            let error = decompress(codec, &packed, 1 << 20).unwrap_err();
            assert_eq!(error, CompressionError::TooLarge { max: 1 << 20 }, "{codec:?}");
        }
    }

    #[test]
    fn garbage_and_cut_data_are_errors() {
        for codec in CODECS {
            let garbage = Bytes::from(text(1000));
            assert!(matches!(decompress(codec, &garbage, 1 << 20), Err(CompressionError::Corrupt { .. })), "{codec:?}");
            let packed = Bytes::from(compress(codec, &text(5000)).unwrap());
            for cut in [1, packed.len() / 2, packed.len() - 1] {
                let result = decompress(codec, &packed.slice(..cut), 1 << 20);
                // A cut between two snappy blocks cannot be seen, but these are one block each.
                assert!(matches!(result, Err(CompressionError::Corrupt { .. })), "{codec:?} cut at {cut}");
            }
        }
    }
}
