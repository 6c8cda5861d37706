//! Goes from batch header to batch header through a `.log` file.

use std::io;

use thalweg_model::Offset;
use thalweg_wire::batch::{BATCH_HEADER_BYTES, BatchHeader};
use thalweg_world::disk::DiskFile;

/// Reads headers only, in chunks that fit how large the batches are.
pub(crate) struct BatchWalk<'a> {
    file: &'a dyn DiskFile,
    position: u64,
    end: u64,
    buffer: Vec<u8>,
    buffer_start: u64,
    chunk: usize,
}

/// What stands at a position.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// A header that makes sense and whose batch ends within the file.
    Batch(FoundBatch),
    End,
    /// Bytes that are no batch.
    Invalid,
}

/// A batch in a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundBatch {
    pub position: u64,
    pub header: BatchHeader,
}

impl FoundBatch {
    /// Where the next batch begins.
    pub fn end(&self) -> u64 {
        self.position + self.header.size_bytes() as u64
    }
}

impl<'a> BatchWalk<'a> {
    /// Begins at `position`, which must be a batch's; looks at nothing from `end` on.
    pub fn new(file: &'a dyn DiskFile, position: u64, end: u64) -> BatchWalk<'a> {
        BatchWalk { file, position, end, buffer: Vec::new(), buffer_start: 0, chunk: CHUNK_MIN }
    }

    /// # Errors
    /// Only what the disk says; bytes that are no batch are a [`Step::Invalid`], again at each call.
    pub fn next(&mut self) -> io::Result<Step> {
        let position = self.position;
        if position >= self.end {
            return Ok(Step::End);
        }
        let left = self.end - position;
        let Some(bytes) = self.header_bytes()? else { return Ok(Step::Invalid) };
        match parse_header(bytes) {
            Some(header) if header.size_bytes() as u64 <= left => {
                self.position += header.size_bytes() as u64;
                // Large batches: reading on past a header would be for nothing.
                let small = header.size_bytes() < CHUNK_MIN;
                self.chunk = if small { (self.chunk * 2).min(CHUNK_MAX) } else { BATCH_HEADER_BYTES };
                Ok(Step::Batch(FoundBatch { position, header }))
            }
            _ => Ok(Step::Invalid),
        }
    }

    /// The next batch; `None` at the end and at bytes that are no batch.
    pub fn next_batch(&mut self) -> io::Result<Option<FoundBatch>> {
        Ok(match self.next()? {
            Step::Batch(found) => Some(found),
            Step::End | Step::Invalid => None,
        })
    }

    fn header_bytes(&mut self) -> io::Result<Option<&[u8]>> {
        let held = self.buffer_start..self.buffer_start + self.buffer.len() as u64;
        if !held.contains(&self.position) || held.end < self.position + BATCH_HEADER_BYTES as u64 {
            let left = usize::try_from(self.end - self.position).unwrap_or(usize::MAX);
            self.buffer.resize(self.chunk.min(left), 0);
            let count = self.file.read_at(&mut self.buffer, self.position)?;
            self.buffer.truncate(count);
            self.buffer_start = self.position;
        }
        let at = usize::try_from(self.position - self.buffer_start).unwrap_or(usize::MAX);
        Ok(self.buffer.get(at..at.saturating_add(BATCH_HEADER_BYTES)))
    }
}

/// A header that can stand in a log; the whole batch need not be in `bytes`.
pub(crate) fn parse_header(bytes: &[u8]) -> Option<BatchHeader> {
    let header = BatchHeader::read_partial(bytes).ok()?;
    (header.base_offset >= Offset::ZERO && header.last_offset_delta >= 0).then_some(header)
}

const CHUNK_MIN: usize = 4096;
const CHUNK_MAX: usize = 32 * 1024;
