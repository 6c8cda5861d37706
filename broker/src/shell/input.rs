//! Cuts a connection's input into frames, each in memory of its own.
//!
//! A frame's memory is nobody else's: batches are stamped in it, and it is freed with its request. An idle connection holds
//! no buffer at all.

use std::io;

use bytes::{Buf, BufMut, BytesMut};
use thalweg_wire::frame::{FrameDecoder, FrameError};
use thiserror::Error;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::budget::{BudgetShare, ByteBudget};

/// What a connection has sent and nobody has looked at yet.
#[derive(Debug)]
pub struct Input {
    decoder: FrameDecoder,
    budget: ByteBudget,
    buffer: BytesMut,
    /// Held for the frame at the front of `buffer` once its size is known.
    share: Option<BudgetShare>,
    /// How much the next read asks for when it need not stop at a frame's end: more while the client keeps up with it.
    read_bytes: usize,
    ended: bool,
}

/// One request, whole.
#[derive(Debug)]
pub struct Frame {
    /// Without the size prefix.
    pub bytes: BytesMut,
    pub share: BudgetShare,
}

/// Why nothing more can be read.
#[derive(Debug, Error)]
pub enum InputError {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the connection ended within a request")]
    Cut,
}

impl Input {
    pub fn new(frame_bytes_max: usize, budget: ByteBudget) -> Input {
        Input {
            decoder: FrameDecoder::new(frame_bytes_max),
            budget,
            buffer: BytesMut::new(),
            share: None,
            read_bytes: READ_BYTES_MIN,
            ended: false,
        }
    }

    /// The next request; `None` when the client will send no more. Cancellation loses nothing.
    ///
    /// # Errors
    /// The connection must end.
    pub async fn next(&mut self, stream: &TcpStream) -> Result<Option<Frame>, InputError> {
        loop {
            let missing = self.decoder.missing(&self.buffer)?;
            let size = self.buffer.first_chunk::<4>().map(|prefix| u32::from_be_bytes(*prefix) as usize);
            if let Some(size) = size {
                // The share comes before the memory.
                if self.share.is_none() {
                    self.share = Some(self.budget.take(size).await);
                }
                if missing == 0 {
                    return Ok(Some(self.cut(size)));
                }
            }
            if self.ended {
                return if self.buffer.is_empty() { Ok(None) } else { Err(InputError::Cut) };
            }
            // Of a large frame exactly what is missing, so that it ends where its memory ends; small ones come many at a time.
            let is_large = size.is_some_and(|size| SIZE_BYTES + size > COPIED_BYTES_MAX);
            let wanted = if is_large { missing } else { self.read_bytes };
            stream.readable().await?;
            self.read(stream, wanted)?;
        }
    }

    /// Waits, while a request is being answered, for the client to go away: resolves at the end of input, or with an error
    /// when the connection breaks. Reads ahead a little to see that end; `arrived` hears that there is something.
    ///
    /// # Errors
    /// The connection is gone.
    pub async fn end(&mut self, stream: &TcpStream, arrived: &Notify) -> io::Result<()> {
        while !self.ended && self.buffer.len() < READ_AHEAD_BYTES {
            if !self.buffer.is_empty() {
                arrived.notify_one();
            }
            stream.readable().await?;
            let room = READ_AHEAD_BYTES - self.buffer.len();
            self.read(stream, room.min(READ_BYTES_MIN))?;
        }
        if self.ended {
            return Ok(());
        }
        arrived.notify_one();
        broken(stream).await
    }

    /// Whether nothing of the next request has been read.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Whether there is nothing more to take: the client sends no more and everything was taken.
    pub fn is_exhausted(&self) -> bool {
        self.ended && self.buffer.is_empty()
    }

    /// Whether the client has said that it sends no more; some of it may still wait here.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    fn read(&mut self, stream: &TcpStream, wanted: usize) -> io::Result<()> {
        self.buffer.reserve(wanted);
        match stream.try_read_buf(&mut (&mut self.buffer).limit(wanted)) {
            Ok(0) => self.ended = true,
            Ok(read) if read == wanted => self.read_bytes = (self.read_bytes * 2).min(READ_BYTES_MAX),
            Ok(read) if read < self.read_bytes / 4 => self.read_bytes = READ_BYTES_MIN,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Takes the whole frame of `size` bytes off the front. A small one is copied, so that it does not hold on to the memory of
    /// a whole read; a large one keeps its memory, and what follows it moves.
    fn cut(&mut self, size: usize) -> Frame {
        let share = self.share.take().expect("a frame is cut only with its share");
        let end = SIZE_BYTES + size;
        if end <= COPIED_BYTES_MAX {
            let bytes = BytesMut::from(&self.buffer[SIZE_BYTES..end]);
            self.buffer.advance(end);
            if self.buffer.is_empty() {
                self.buffer = BytesMut::new();
            }
            return Frame { bytes, share };
        }
        let rest = BytesMut::from(&self.buffer[end..]);
        let mut bytes = std::mem::replace(&mut self.buffer, rest);
        bytes.truncate(end);
        bytes.advance(SIZE_BYTES);
        Frame { bytes, share }
    }
}

/// Resolves, with an error, when the connection is reset or otherwise broken; never on an orderly end of input.
pub async fn broken(stream: &TcpStream) -> io::Result<()> {
    stream.ready(Interest::ERROR).await?;
    Err(stream.take_error()?.unwrap_or_else(|| io::ErrorKind::ConnectionReset.into()))
}

const SIZE_BYTES: usize = 4;
const READ_BYTES_MIN: usize = 16 << 10;
const READ_BYTES_MAX: usize = 64 << 10;
/// Up to here copying a frame costs less than a read of its own.
const COPIED_BYTES_MAX: usize = 20 << 10;
const READ_AHEAD_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (client, listener.accept().await.unwrap().0)
    }

    fn input() -> Input {
        Input::new(1 << 20, ByteBudget::new(8 << 20))
    }

    #[tokio::test]
    async fn pipelined_and_large_frames_come_out_whole_each_in_its_own_memory() {
        let (mut client, server) = pair().await;
        let large = vec![7; 300_000];
        let stream =
            [&[0, 0, 0, 2, 1, 2, 0, 0, 0, 1, 3][..], &300_000u32.to_be_bytes(), &large, &[0, 0, 0, 1, 9]].concat();
        let writer = tokio::spawn(async move {
            client.write_all(&stream).await.unwrap();
            client
        });
        let mut input = input();
        let mut frames = Vec::new();
        for _ in 0..4 {
            frames.push(input.next(&server).await.unwrap().unwrap().bytes);
        }
        assert_eq!(frames[0][..], [1, 2]);
        assert_eq!(frames[1][..], [3]);
        assert!(frames[2][..] == large[..]);
        assert_eq!(frames[3][..], [9]);
        for frame in frames {
            assert!(frame.freeze().try_into_mut().is_ok(), "nobody shares a frame's memory");
        }
        drop(writer.await.unwrap());
        assert!(input.next(&server).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn an_end_within_a_frame_is_an_error() {
        let (mut client, server) = pair().await;
        client.write_all(&[0, 0, 0, 5, 1]).await.unwrap();
        drop(client);
        assert!(matches!(input().next(&server).await, Err(InputError::Cut)));
    }

    #[tokio::test]
    async fn a_frame_waits_for_its_share_of_the_budget_before_it_gets_memory() {
        let (mut client, server) = pair().await;
        let budget = ByteBudget::new(4 << 10);
        let held = budget.take(4 << 10).await;
        let mut input = Input::new(1 << 20, budget);
        client.write_all(&[0, 0, 8, 0]).await.unwrap();
        server.readable().await.unwrap();
        assert!(input.next(&server).now_or_never().is_none());
        assert!(input.buffer.capacity() <= READ_BYTES_MIN);
        drop(held);
        client.write_all(&[1; 2048]).await.unwrap();
        assert_eq!(input.next(&server).await.unwrap().unwrap().bytes.len(), 2048);
    }

    #[tokio::test]
    async fn the_end_of_input_and_a_reset_are_told_apart() {
        let (client, server) = pair().await;
        let mut half = input();
        let mut client = client;
        client.shutdown().await.unwrap();
        half.end(&server, &Notify::new()).await.unwrap();
        assert!(half.has_ended());

        let (client, server) = pair().await;
        client.set_zero_linger().unwrap();
        drop(client);
        assert!(input().end(&server, &Notify::new()).await.is_err());
    }
}
