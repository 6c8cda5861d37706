//! Snappy and LZ4 as Kafka frames them, read block by block.

use std::io::{self, Read, Write};

use super::CompressionError;

/// Reads raw snappy, or the framing of Java's snappy library: a 16-byte header, then blocks with a 4-byte length.
pub(super) struct SnappyBlocks<'a> {
    rest: &'a [u8],
    framed: bool,
    block: Block,
    out_max: usize,
}

impl<'a> SnappyBlocks<'a> {
    pub(super) fn new(bytes: &'a [u8], out_max: usize) -> SnappyBlocks<'a> {
        let framed = bytes.strip_prefix(XERIAL_MAGIC).and_then(|rest| rest.get(XERIAL_VERSIONS_BYTES..));
        SnappyBlocks { rest: framed.unwrap_or(bytes), framed: framed.is_some(), block: Block::default(), out_max }
    }

    fn next_block(&mut self) -> io::Result<()> {
        let packed = if self.framed {
            let (length, rest) = split_chunk(self.rest)?;
            let length = u32::from_be_bytes(length) as usize;
            let (packed, rest) = rest.split_at_checked(length).ok_or_else(|| invalid("a block is cut"))?;
            self.rest = rest;
            packed
        } else {
            std::mem::take(&mut self.rest)
        };
        let length = snap::raw::decompress_len(packed)?;
        // The densest element copies 64 bytes and takes 3.
        if length > packed.len().saturating_mul(SNAPPY_RATIO_MAX) {
            return Err(invalid("a block claims more than snappy can pack"));
        }
        if length > self.out_max {
            return Err(too_large(self.out_max));
        }
        self.block.data.resize(length, 0);
        self.block.position = 0;
        snap::raw::Decoder::new().decompress(packed, &mut self.block.data)?;
        Ok(())
    }
}

impl Read for SnappyBlocks<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.block.is_used_up() && !self.rest.is_empty() {
            self.next_block()?;
        }
        Ok(self.block.take(out))
    }
}

/// Reads LZ4 frames with independent blocks, the only kind that Kafka's Java clients read.
///
/// Checksums are skipped: the batch's CRC covers the same bytes.
pub(super) struct Lz4Frames<'a> {
    rest: &'a [u8],
    /// Of the frame being read; `None` between frames.
    frame: Option<Lz4Frame>,
    block: Block,
    seen_frame: bool,
    out_max: usize,
}

#[derive(Clone, Copy)]
struct Lz4Frame {
    block_bytes_max: usize,
    block_checksum: bool,
    content_checksum: bool,
}

impl<'a> Lz4Frames<'a> {
    pub(super) fn new(bytes: &'a [u8], out_max: usize) -> Lz4Frames<'a> {
        Lz4Frames { rest: bytes, frame: None, block: Block::default(), seen_frame: false, out_max }
    }

    fn next_block(&mut self) -> io::Result<()> {
        let frame = match self.frame {
            Some(frame) => frame,
            None => self.frame_header()?,
        };
        self.frame = Some(frame);
        let header = u32::from_le_bytes(self.chunk()?);
        if header == 0 {
            if frame.content_checksum {
                self.chunk::<4>()?;
            }
            self.frame = None;
            return Ok(());
        }
        let length = (header & !LZ4_STORED_BIT) as usize;
        let (packed, rest) = self.rest.split_at_checked(length).ok_or_else(|| invalid("a block is cut"))?;
        self.rest = rest;
        if frame.block_checksum {
            self.chunk::<4>()?;
        }
        if header & LZ4_STORED_BIT == 0 {
            // A byte of LZ4 stands for at most 255 bytes.
            let possible = frame.block_bytes_max.min(length.saturating_mul(LZ4_RATIO_MAX));
            self.block.data.resize(possible.min(self.out_max.saturating_add(1)), 0);
            match lz4_flex::block::decompress_into(packed, &mut self.block.data) {
                Ok(written) => self.block.data.truncate(written),
                Err(lz4_flex::block::DecompressError::OutputTooSmall { .. }) if possible > self.out_max => {
                    return Err(too_large(self.out_max));
                }
                Err(error) => return Err(invalid(error)),
            }
        } else if length <= frame.block_bytes_max {
            self.block.data.clear();
            self.block.data.extend_from_slice(packed);
        } else {
            return Err(invalid("a block is larger than its frame allows"));
        }
        self.block.position = 0;
        Ok(())
    }

    fn frame_header(&mut self) -> io::Result<Lz4Frame> {
        if self.chunk()? != LZ4_MAGIC {
            return Err(invalid("no LZ4 frame"));
        }
        let [flags, descriptor] = self.chunk()?;
        if flags >> 6 != 1 {
            return Err(invalid("unknown LZ4 frame version"));
        }
        if flags & 1 << 5 == 0 {
            return Err(invalid("linked blocks, which Kafka's clients cannot read"));
        }
        if flags & 1 << 3 != 0 {
            self.chunk::<8>()?; // content size
        }
        if flags & 1 != 0 {
            return Err(invalid("a dictionary, which nobody has"));
        }
        self.chunk::<1>()?; // header checksum
        let block_bytes_max = match descriptor >> 4 & 7 {
            id @ 4..=7 => 1 << (8 + 2 * id),
            _ => return Err(invalid("unknown LZ4 block size")),
        };
        self.seen_frame = true;
        Ok(Lz4Frame { block_bytes_max, block_checksum: flags & 1 << 4 != 0, content_checksum: flags & 1 << 2 != 0 })
    }

    fn chunk<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let (chunk, rest) = split_chunk(self.rest)?;
        self.rest = rest;
        Ok(chunk)
    }

    fn is_done(&self) -> bool {
        self.rest.is_empty() && self.frame.is_none() && self.seen_frame
    }
}

impl Read for Lz4Frames<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.block.is_used_up() && !self.is_done() {
            self.next_block()?;
        }
        Ok(self.block.take(out))
    }
}

/// The framing that Java's snappy library writes, in its blocks of 32 KiB.
pub(super) fn snappy_xerial(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(XERIAL_MAGIC.len() + XERIAL_VERSIONS_BYTES + bytes.len() / 2);
    out.extend_from_slice(XERIAL_MAGIC);
    out.extend_from_slice(&1u32.to_be_bytes());
    out.extend_from_slice(&1u32.to_be_bytes());
    let mut encoder = snap::raw::Encoder::new();
    for block in bytes.chunks(XERIAL_BLOCK_BYTES) {
        let packed = encoder.compress_vec(block)?;
        // A block of 32 KiB packs into far less than 4 GiB.
        out.extend_from_slice(&(packed.len() as u32).to_be_bytes());
        out.extend_from_slice(&packed);
    }
    Ok(out)
}

/// A frame of independent blocks without checksums, as Kafka's Java client writes it.
pub(super) fn lz4_frame(bytes: &[u8]) -> io::Result<Vec<u8>> {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    let info = FrameInfo::new().block_mode(BlockMode::Independent).block_size(BlockSize::Max64KB);
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(bytes)?;
    encoder.finish().map_err(io::Error::other)
}

/// An unpacked block and how much of it is used.
#[derive(Default)]
struct Block {
    data: Vec<u8>,
    position: usize,
}

impl Block {
    fn is_used_up(&self) -> bool {
        self.position == self.data.len()
    }

    fn take(&mut self, out: &mut [u8]) -> usize {
        let rest = &self.data[self.position..];
        let taken = rest.len().min(out.len());
        out[..taken].copy_from_slice(&rest[..taken]);
        self.position += taken;
        taken
    }
}

fn split_chunk<const N: usize>(bytes: &[u8]) -> io::Result<([u8; N], &[u8])> {
    bytes.split_first_chunk().map(|(chunk, rest)| (*chunk, rest)).ok_or_else(|| invalid("the data is cut"))
}

fn too_large(max: usize) -> io::Error {
    io::Error::other(CompressionError::TooLarge { max })
}

fn invalid(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

const XERIAL_MAGIC: &[u8] = b"\x82SNAPPY\0";
/// Version and least compatible version, 4 bytes each.
const XERIAL_VERSIONS_BYTES: usize = 8;
const XERIAL_BLOCK_BYTES: usize = 32 << 10;
const SNAPPY_RATIO_MAX: usize = 22;
const LZ4_MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
const LZ4_STORED_BIT: u32 = 1 << 31;
const LZ4_RATIO_MAX: usize = 255;
