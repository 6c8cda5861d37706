//! A connection that frames requests as Kafka does, and lets a test break every rule of it.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};

use crate::Target;

/// One TCP connection to a broker. Every method panics when the broker does not do what the call needs.
pub struct Conn {
    stream: TcpStream,
    next_correlation_id: i32,
    /// The shared broker lives as long as somebody talks to it.
    pub(crate) _target: Option<Arc<Target>>,
    pub client_id: Option<String>,
}

impl Conn {
    pub fn open(addr: &str) -> Conn {
        let stream = TcpStream::connect(addr).unwrap_or_else(|e| panic!("no connection to {addr}: {e}"));
        stream.set_nodelay(true).expect("a TCP socket takes nodelay");
        stream.set_read_timeout(Some(DEADLINE)).expect("a socket takes a timeout");
        Conn { stream, next_correlation_id: 1, _target: None, client_id: Some("thalweg-tests".to_owned()) }
    }

    /// Sends `request` and reads its answer.
    pub fn call<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        let id = self.send(version, request);
        self.receive::<R>(version, id)
    }

    /// Sends `request`; the answer is to be read with [`Conn::receive`]. Gives the correlation id.
    pub fn send<R: Request>(&mut self, version: i16, request: &R) -> i32 {
        let mut body = BytesMut::new();
        request.encode(&mut body, version).unwrap_or_else(|e| panic!("key {} v{version}: {e}", R::KEY));
        self.send_parts(R::KEY, version, R::header_version(version), &body)
    }

    /// Sends any body under any key and version, with a request header of `header_version` 0, 1 or 2.
    pub fn send_parts(&mut self, key: i16, version: i16, header_version: i16, body: &[u8]) -> i32 {
        let id = self.next_correlation_id;
        self.next_correlation_id += 1;
        let header = RequestHeader::default()
            .with_request_api_key(key)
            .with_request_api_version(version)
            .with_correlation_id(id)
            .with_client_id(self.client_id.clone().map(StrBytes::from_string));
        let mut frame = BytesMut::new();
        header.encode(&mut frame, header_version).expect("a header encodes");
        frame.extend_from_slice(body);
        self.send_frame(&frame);
        id
    }

    /// Puts a length before `payload` and sends both.
    pub fn send_frame(&mut self, payload: &[u8]) {
        let mut framed = BytesMut::with_capacity(4 + payload.len());
        framed.put_i32(payload.len() as i32);
        framed.extend_from_slice(payload);
        self.send_bytes(&framed);
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap_or_else(|e| panic!("the broker stopped reading: {e}"));
    }

    /// [`Conn::send_bytes`] to a broker that may hang up while we still write.
    pub fn send_bytes_anyway(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// The answer to a request of type `R`; its correlation id must be `id`.
    pub fn receive<R: Request>(&mut self, version: i16, id: i32) -> R::Response {
        let body = self.receive_body(<R::Response as HeaderVersion>::header_version(version), id);
        decode_whole::<R::Response>(body, version, R::KEY)
    }

    /// The body of the next answer, after a response header of `header_version` 0 or 1.
    pub fn receive_body(&mut self, header_version: i16, id: i32) -> Bytes {
        let mut frame = self.receive_frame().unwrap_or_else(|| panic!("the broker closed instead of answering"));
        let header = ResponseHeader::decode(&mut frame, header_version).expect("a response header");
        assert_eq!(header.correlation_id, id, "answers leave in the order of the requests");
        assert!(header.unknown_tagged_fields.is_empty(), "Kafka defines no tag in a response header");
        frame
    }

    /// The next frame without its length, or `None` when the broker closed the connection.
    pub fn receive_frame(&mut self) -> Option<Bytes> {
        let mut length = [0; 4];
        if !self.read_exact_or_closed(&mut length) {
            return None;
        }
        let length = i32::from_be_bytes(length);
        assert!((4..=256 << 20).contains(&length), "a response of {length} bytes");
        let mut payload = vec![0; length as usize];
        assert!(self.read_exact_or_closed(&mut payload), "the broker closed inside a frame");
        Some(Bytes::from(payload))
    }

    /// The broker must close without another byte.
    pub fn expect_closed(&mut self) {
        let mut byte = [0; 1];
        assert!(!self.read_exact_or_closed(&mut byte), "the broker must close, but it sent byte {}", byte[0]);
    }

    /// Nothing more will be sent; answers can still be read.
    pub fn shutdown_write(&mut self) {
        self.stream.shutdown(Shutdown::Write).expect("an open socket can be half closed");
    }

    /// The address the broker sees us at, and ours of the broker.
    pub fn peer(&self) -> std::net::SocketAddr {
        self.stream.peer_addr().expect("a connected socket has a peer")
    }

    fn read_exact_or_closed(&mut self, into: &mut [u8]) -> bool {
        match self.stream.read_exact(into) {
            Ok(()) => true,
            Err(e) if matches!(e.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => false,
            Err(e) => panic!("neither an answer nor a close within {DEADLINE:?}: {e}"),
        }
    }
}

/// Decodes a response and takes bytes that are left over for the error they are.
pub fn decode_whole<T: Decodable>(mut body: Bytes, version: i16, key: i16) -> T {
    let value = T::decode(&mut body, version).unwrap_or_else(|e| panic!("answer to key {key} v{version}: {e}"));
    assert_eq!(body.remaining(), 0, "answer to key {key} v{version} has bytes after its last field");
    value
}

/// Longer than any wait a test asks for; reached only by a broker that hangs.
const DEADLINE: Duration = Duration::from_secs(30);
