//! One connection to a broker.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::{Bytes, BytesMut};
use thalweg_wire::header::{decode_response_header, encode_request};
use thalweg_wire::{Message, Request};

use super::input::Input;
use crate::loops::READ_BUFFER_BYTES;

/// A connection that frames requests and takes answers in order.
#[derive(Debug)]
pub struct Connection {
    output: TcpStream,
    pub input: Input<TcpStream>,
    next_correlation_id: i32,
}

impl Connection {
    pub fn open(address: SocketAddr) -> Result<Connection> {
        Connection::with_buffer(address, READ_BUFFER_BYTES)
    }

    /// With a buffer so small that thousands fit.
    pub fn open_small(address: SocketAddr) -> Result<Connection> {
        Connection::with_buffer(address, 1024)
    }

    fn with_buffer(address: SocketAddr, buffer_bytes: usize) -> Result<Connection> {
        let output = TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
        output.set_nodelay(true)?;
        output.set_read_timeout(Some(ANSWER_WITHIN))?;
        output.set_write_timeout(Some(ANSWER_WITHIN))?;
        let input = Input::with_buffer(output.try_clone()?, buffer_bytes);
        Ok(Connection { output, input, next_correlation_id: 0 })
    }

    /// One half for sending and one for answers, for two threads.
    pub fn split(self) -> Result<(Connection, Connection)> {
        let sending = self.output.try_clone()?;
        let input = Input::new(sending.try_clone()?);
        Ok((Connection { output: sending, input, next_correlation_id: self.next_correlation_id }, self))
    }

    /// Sends one request and waits for its answer.
    pub fn call<R: Request>(&mut self, request: &R, version: i16) -> Result<R::Response> {
        let mut frame = Frame::encode(request, version)?;
        let correlation_id = self.send(&mut frame)?;
        Ok(R::Response::decode_body(&self.answer::<R>(correlation_id, version)?, version)?)
    }

    /// Sends a frame under the next correlation id and returns that id.
    pub fn send(&mut self, frame: &mut Frame) -> Result<i32> {
        let correlation_id = self.next_correlation_id;
        self.next_correlation_id = correlation_id.wrapping_add(1);
        frame.bytes[CORRELATION_ID_AT..CORRELATION_ID_AT + 4].copy_from_slice(&correlation_id.to_be_bytes());
        self.output.write_all(&frame.bytes)?;
        Ok(correlation_id)
    }

    /// The body of the next answer, which must be the one to `correlation_id`.
    pub fn answer<R: Request>(&mut self, correlation_id: i32, version: i16) -> Result<Bytes> {
        let (answered, body) = decode_response_header(&self.input.frame()?, R::KEY, version)?;
        ensure!(answered == correlation_id, "asked {correlation_id}, answered {answered}");
        Ok(body)
    }
}

/// A request as it goes over the wire, size and header included.
#[derive(Clone, Debug)]
pub struct Frame {
    bytes: BytesMut,
}

impl Frame {
    pub fn encode<R: Request>(request: &R, version: i16) -> Result<Frame> {
        let mut bytes = BytesMut::new();
        encode_request(&mut bytes, version, 0, Some("thalweg-bench"), request)?;
        Ok(Frame { bytes })
    }
}

/// After size, key and version.
const CORRELATION_ID_AT: usize = 8;
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
