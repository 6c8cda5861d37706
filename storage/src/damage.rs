//! Tells a batch from bytes that are none, and a torn write from corruption.

use std::io;

use thalweg_model::{LeaderEpoch, Offset};
use thalweg_wire::batch::{self, BATCH_HEADER_BYTES, BatchHeader};
use thalweg_world::disk::DiskFile;

use crate::batch_walk::parse_header;

/// Where a segment stops making sense.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Damage {
    pub position: u64,
    /// The offset that was expected there.
    pub offset: Offset,
    pub cause: &'static str,
}

/// What must be true of the next batch in a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    /// Of the segment.
    pub base_offset: Offset,
    /// Where the batch before ended, exclusive.
    pub offset: Offset,
    /// Compaction may have left gaps.
    pub gaps: bool,
    /// Of the batch before.
    pub leader_epoch: LeaderEpoch,
}

/// Reads and verifies the batch at `position`; the inner error says what is wrong with it.
///
/// `bytes` is room that is used again from batch to batch; it never grows past the file.
pub(crate) fn check_batch(
    file: &dyn DiskFile,
    position: u64,
    file_len: u64,
    expected: &Expected,
    bytes: &mut Vec<u8>,
) -> io::Result<Result<BatchHeader, &'static str>> {
    let mut head = [0; BATCH_HEADER_BYTES];
    let count = file.read_at(&mut head, position)?;
    if count < head.len() {
        return Ok(Err("the file ends within a batch header"));
    }
    let Some(header) = parse_header(&head) else { return Ok(Err("no batch begins here")) };
    if header.size_bytes() as u64 > file_len - position {
        return Ok(Err("the file ends within a batch"));
    }
    if header.base_offset < expected.offset {
        return Ok(Err("the batch's offset was used before"));
    }
    // No checksum covers the base offset: in a log without gaps the one before it does as well.
    if header.base_offset > expected.offset && !expected.gaps {
        return Ok(Err("offsets are missing before the batch"));
    }
    if header.last_offset().since(expected.base_offset) > i64::from(i32::MAX) {
        return Ok(Err("the batch's offset lies outside the segment"));
    }
    if header.leader_epoch < expected.leader_epoch {
        return Ok(Err("the batch's leader epoch is older than that of the one before it"));
    }
    if position + header.size_bytes() as u64 > u64::from(u32::MAX) {
        return Ok(Err("the segment is larger than 4 GiB"));
    }
    if !has_valid_crc(file, position, &header, bytes)? {
        return Ok(Err("the batch's checksum is wrong"));
    }
    Ok(Ok(header))
}

/// The position of the first whole valid batch from `from` on that could follow offset `expected`.
///
/// Looks at each byte, since damage may have eaten the length that would lead there. Checksums cost at
/// most a few times the bytes looked at; bytes crafted to cost more count as a find, which cuts nothing.
pub(crate) fn next_valid_batch(
    file: &dyn DiskFile,
    from: u64,
    file_len: u64,
    expected: Offset,
) -> io::Result<Option<u64>> {
    let mut budget = CRC_BUDGET_FACTOR * file_len.saturating_sub(from) + CRC_BUDGET_MIN;
    let mut window = vec![0; WINDOW];
    let mut batch = Vec::new();
    let mut start = from;
    while start + BATCH_HEADER_BYTES as u64 <= file_len {
        let count = file.read_at(&mut window, start)?;
        for at in 0..(count + 1).saturating_sub(BATCH_HEADER_BYTES) {
            if window[at + MAGIC_POSITION] != MAGIC {
                continue;
            }
            let position = start + at as u64;
            let Some(header) = parse_header(&window[at..at + BATCH_HEADER_BYTES]) else { continue };
            let ahead = header.base_offset.since(expected);
            if header.size_bytes() as u64 > file_len - position || !(0..=i64::from(i32::MAX)).contains(&ahead) {
                continue;
            }
            match budget.checked_sub(header.size_bytes() as u64) {
                Some(left) => budget = left,
                None => return Ok(Some(position)),
            }
            if has_valid_crc(file, position, &header, &mut batch)? {
                return Ok(Some(position));
            }
        }
        if count < window.len() {
            break;
        }
        // The next window begins with the first header that did not fit into this one.
        start += (count + 1 - BATCH_HEADER_BYTES) as u64;
    }
    Ok(None)
}

/// Whether a sector between `from` and `to` is nothing but zeros from `from` on: written, but never on the medium.
///
/// A power cut may lose any sector of an unsynced tail and keep later ones. A flipped bit looks different.
pub(crate) fn has_lost_sector(file: &dyn DiskFile, from: u64, to: u64) -> io::Result<bool> {
    let mut bytes = [0; SECTOR];
    let mut sector = from / SECTOR as u64 * SECTOR as u64;
    while sector + SECTOR as u64 <= to {
        let count = file.read_at(&mut bytes, sector)?;
        let begin = usize::try_from(from.saturating_sub(sector)).unwrap_or(0);
        if count == SECTOR && bytes[begin..].iter().all(|byte| *byte == 0) {
            return Ok(true);
        }
        sector += SECTOR as u64;
    }
    Ok(false)
}

fn has_valid_crc(file: &dyn DiskFile, position: u64, header: &BatchHeader, bytes: &mut Vec<u8>) -> io::Result<bool> {
    bytes.resize(header.size_bytes(), 0);
    let count = file.read_at(bytes, position)?;
    Ok(count == bytes.len() && batch::verify_crc(bytes).is_ok())
}

const SECTOR: usize = 512;
/// A quick look before the whole header is read.
const MAGIC_POSITION: usize = 16;
const MAGIC: u8 = 2;
const WINDOW: usize = 32 * 1024;
const CRC_BUDGET_FACTOR: u64 = 4;
const CRC_BUDGET_MIN: u64 = 1 << 20;
