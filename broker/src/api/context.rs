//! What a handler knows of the request that it answers.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use thalweg_model::NodeId;
use thalweg_wire::header::{EncodeFrameError, RequestHeader};
use thalweg_wire::{ApiKey, DecodeError, Message, header};
use thalweg_world::send::Part;
use thiserror::Error;

use crate::config::{Advertised, ListenerConfig};
use crate::machine::addresses::Arrival;
use crate::machine::image::BrokerImage;
use crate::services::Services;

/// One request.
#[derive(Clone, Debug)]
pub struct RequestContext {
    pub header: RequestHeader,
    pub connection: Arc<ConnectionInfo>,
}

/// The connection that requests come from.
#[derive(Clone, Debug)]
pub struct ConnectionInfo {
    pub peer: SocketAddr,
    /// Our end, as the client reached it.
    pub local: SocketAddr,
    pub listener: Arc<ListenerConfig>,
}

impl ConnectionInfo {
    /// Where whoever came this way is told that a broker is; `None` if it has no such listener.
    pub fn told(&self, services: &Services, id: NodeId, broker: &BrokerImage) -> Option<Advertised> {
        let ConnectionInfo { peer, local, listener } = self;
        if id == services.node_id() {
            return Some(listener.told(peer.ip(), *local));
        }
        let arrival = Arrival { listener: &listener.name, from: &[peer.ip()], to: &[local.ip()] };
        let endpoint = arrival.choose(broker)?;
        Some(Advertised { host: endpoint.host.clone(), port: endpoint.port })
    }
}

/// What goes back.
#[derive(Debug)]
pub enum Reply {
    /// A whole frame.
    Frame(Bytes),
    /// A whole frame with record bytes that are still in files.
    Parts(Vec<Part>),
    /// The client does not want an answer (acks=0).
    Nothing,
}

/// Why the connection ends instead of an answer.
#[derive(Debug, Error)]
pub enum CloseReason {
    #[error("request body of {api} version {version}: {source}")]
    Malformed { api: ApiKey, version: i16, source: DecodeError },
    #[error("{api} is not served here")]
    NotServed { api: ApiKey },
    #[error("the answer to {api} cannot be written: {source}")]
    Unwritable { api: ApiKey, source: EncodeFrameError },
    /// acks=0 has no other way to tell (as Kafka does).
    #[error("a produce request with acks=0 failed: {reason}")]
    Unacknowledged { reason: String },
}

impl RequestContext {
    pub fn version(&self) -> i16 {
        self.header.api_version
    }

    /// Empty if the client gave none.
    pub fn client_id(&self) -> &str {
        self.header.client_id.as_deref().unwrap_or_default()
    }

    /// As Kafka shows hosts of members: `/127.0.0.1`.
    pub fn client_host(&self) -> String {
        format!("/{}", self.connection.peer.ip().to_canonical())
    }

    /// Where clients of this request's listener reach a broker; `None` if it has no such listener.
    pub fn address_of(&self, services: &Services, id: NodeId, broker: &BrokerImage) -> Option<(String, u16)> {
        let Advertised { host, port } = self.connection.told(services, id, broker)?;
        Some((host, port))
    }

    pub(super) fn decode<M: Message>(&self, body: &Bytes) -> Result<M, CloseReason> {
        M::decode_body(body, self.version()).map_err(|source| CloseReason::Malformed {
            api: self.header.api_key,
            version: self.version(),
            source,
        })
    }

    pub(super) fn encode<M: Message>(&self, response: &M) -> Result<Reply, CloseReason> {
        self.encode_in(response, self.version())
    }

    pub(super) fn encode_in<M: Message>(&self, response: &M, version: i16) -> Result<Reply, CloseReason> {
        let mut out = BytesMut::new();
        header::encode_response(&mut out, version, self.header.correlation_id, response)
            .map_err(|source| CloseReason::Unwritable { api: self.header.api_key, source })?;
        Ok(Reply::Frame(out.freeze()))
    }
}
