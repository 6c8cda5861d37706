//! A connection to another broker, as its client.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use thalweg_wire::frame::FRAME_BYTES_MAX;
use thalweg_wire::header::EncodeFrameError;
use thalweg_wire::{Request, header};
use thiserror::Error;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::budget::ByteBudget;
use super::input::{Input, InputError};

/// Requests go out and answers come back in order.
#[derive(Debug)]
pub struct Peer {
    stream: TcpStream,
    input: Input,
    next_id: i32,
}

/// Why a connection is of no use any more.
#[derive(Debug, Error)]
pub enum PeerError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Encode(#[from] EncodeFrameError),
    #[error("it ended")]
    Ended,
    #[error("no answer for {} s", .0.as_secs())]
    TimedOut(Duration),
}

impl Peer {
    /// # Errors
    /// It cannot be reached in time.
    pub async fn connect(host: &str, port: u16, timeout: Duration) -> Result<Peer, PeerError> {
        let connecting = tokio::time::timeout(timeout, TcpStream::connect((host, port))).await;
        let stream = connecting.map_err(|_| PeerError::TimedOut(timeout))??;
        stream.set_nodelay(true)?;
        // One batch may be larger than what was asked for (KIP-74), and is no larger than a request that brought it.
        let input = Input::new(2 * FRAME_BYTES_MAX, ByteBudget::new(2 * FRAME_BYTES_MAX));
        Ok(Peer { stream, input, next_id: 0 })
    }

    /// Returns the correlation id.
    ///
    /// # Errors
    /// The connection is broken.
    pub async fn send<Q: Request>(&mut self, version: i16, client_id: &str, request: &Q) -> Result<i32, PeerError> {
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        let mut out = BytesMut::new();
        header::encode_request(&mut out, version, id, Some(client_id), request)?;
        self.stream.write_all(&out).await?;
        Ok(id)
    }

    /// The next answer, with its header. Cancellation loses nothing.
    ///
    /// # Errors
    /// The connection is broken.
    pub async fn next(&mut self) -> Result<Bytes, PeerError> {
        match self.input.next(&self.stream).await? {
            Some(frame) => Ok(frame.bytes.freeze()),
            None => Err(PeerError::Ended),
        }
    }
}
