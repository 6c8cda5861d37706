//! A `.log` file, batch by batch.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use bytes::Bytes;
use thalweg_wire::batch::{BATCH_HEADER_BYTES, BatchHeader};

/// Reads one batch after the other; holds one at a time.
pub struct SegmentFile {
    input: BufReader<File>,
    len: u64,
    position: u64,
}

/// A batch where it stands.
pub struct FoundBatch {
    pub position: u64,
    pub header: BatchHeader,
    pub bytes: Bytes,
}

/// What comes next in a file.
pub enum Step {
    Batch(FoundBatch),
    End,
    /// The file ends within a batch: a write that was not finished.
    Torn {
        position: u64,
        bytes: u64,
    },
    /// Bytes that are no batch; what follows cannot be found.
    Damaged {
        position: u64,
        reason: String,
    },
}

impl SegmentFile {
    pub fn open(path: &Path) -> io::Result<SegmentFile> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        Ok(SegmentFile { input: BufReader::with_capacity(256 << 10, file), len, position: 0 })
    }

    /// # Errors
    /// The disk's.
    pub fn next(&mut self) -> io::Result<Step> {
        let position = self.position;
        let left = self.len.saturating_sub(position);
        if left == 0 {
            return Ok(Step::End);
        }
        let mut bytes = vec![0; BATCH_HEADER_BYTES.min(usize::try_from(left).unwrap_or(BATCH_HEADER_BYTES))];
        self.input.read_exact(&mut bytes)?;
        if bytes.len() < BATCH_HEADER_BYTES {
            return Ok(Step::Torn { position, bytes: left });
        }
        let header = match BatchHeader::read_partial(&bytes) {
            Ok(header) => header,
            Err(error) => return Ok(Step::Damaged { position, reason: error.to_string() }),
        };
        let size = header.size_bytes();
        // No memory for a length that the file cannot hold.
        if size as u64 > left {
            return Ok(Step::Torn { position, bytes: left });
        }
        bytes.resize(size, 0);
        self.input.read_exact(&mut bytes[BATCH_HEADER_BYTES..])?;
        self.position += size as u64;
        Ok(Step::Batch(FoundBatch { position, header, bytes: bytes.into() }))
    }
}

/// One batch may unpack to this at most.
pub const UNPACKED_BYTES_MAX: usize = 256 << 20;
