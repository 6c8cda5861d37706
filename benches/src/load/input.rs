//! The receiving side of a connection.

use std::io::Read;

use anyhow::{Result, bail, ensure};
use bytes::Bytes;

use crate::loops::READ_BUFFER_BYTES;

/// Reads off a socket (or what stands for one) in large pieces; lets most bytes go by without a second look.
#[derive(Debug)]
pub struct Input<S> {
    stream: S,
    buffer: Vec<u8>,
    /// What of `buffer` is filled and not yet taken.
    start: usize,
    end: usize,
}

impl<S: Read> Input<S> {
    pub fn new(stream: S) -> Input<S> {
        Input::with_buffer(stream, READ_BUFFER_BYTES)
    }

    pub fn with_buffer(stream: S, bytes: usize) -> Input<S> {
        Input { stream, buffer: vec![0; bytes], start: 0, end: 0 }
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        for byte in &mut bytes {
            if self.start == self.end {
                self.fill()?;
            }
            *byte = self.buffer[self.start];
            self.start += 1;
        }
        Ok(bytes)
    }

    /// Takes `count` bytes off the socket and forgets them.
    pub fn skip(&mut self, mut count: usize) -> Result<()> {
        loop {
            let buffered = (self.end - self.start).min(count);
            self.start += buffered;
            count -= buffered;
            if count == 0 {
                return Ok(());
            }
            self.fill()?;
        }
    }

    /// The next frame, whole; for answers without records.
    pub fn frame(&mut self) -> Result<Bytes> {
        let size = i32::from_be_bytes(self.array()?);
        let mut left = usize::try_from(size)?;
        ensure!(left <= SMALL_FRAME_BYTES_MAX, "an answer of {size} bytes");
        let mut frame = Vec::with_capacity(left);
        while left > 0 {
            if self.start == self.end {
                self.fill()?;
            }
            let count = (self.end - self.start).min(left);
            frame.extend_from_slice(&self.buffer[self.start..self.start + count]);
            self.start += count;
            left -= count;
        }
        Ok(frame.into())
    }

    fn fill(&mut self) -> Result<()> {
        self.start = 0;
        self.end = self.stream.read(&mut self.buffer)?;
        if self.end == 0 {
            bail!("the broker closed the connection");
        }
        Ok(())
    }
}

const SMALL_FRAME_BYTES_MAX: usize = 16 << 20;
