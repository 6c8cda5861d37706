//! One client connection: requests in, replies out in the same order.
//!
//! A produce request has two phases. The first (decode, validate, enqueue) runs in the order of arrival and fixes the order of
//! records; the second waits for the log, and meanwhile the next produce request may be taken. So have offset commits, whose
//! order is that of the calls to the coordinators. Any other request runs alone: it starts when everything before it is
//! answered and nothing is taken before its answer has left.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use thalweg_wire::ApiKey;
use thalweg_wire::header::{self, RequestError, RequestHeader};
use thalweg_world::send::{self, Part, Sent};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::input::{Frame, Input, InputError, broken};
use super::pending::Pending;
use super::unreachable;
use crate::api::replica_fetch::FollowerConnection;
use crate::api::{self, CloseReason, ConnectionInfo, Reply, RequestContext};
use crate::services::Services;

/// Serves one connection until either side ends it.
pub struct Connection {
    stream: TcpStream,
    services: Arc<Services>,
    info: Arc<ConnectionInfo>,
    input: Input,
    pending: Pending,
    /// The next request, which must wait until `pending` is empty.
    held: Option<Frame>,
    /// If the client is a broker that follows this one.
    follower: Option<Box<FollowerConnection>>,
    last_active: Instant,
    idle_max: Duration,
}

/// Why a connection ended before its client was done.
#[derive(Debug, Error)]
enum Ended {
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Close(#[from] CloseReason),
    #[error("the client took nothing of its answer for {} s", .0.as_secs())]
    Stalled(Duration),
    #[error("no request for {} s", .0.as_secs())]
    Idle(Duration),
    #[error("the client left while it was waiting")]
    Left,
}

impl Connection {
    pub fn new(stream: TcpStream, services: Arc<Services>, info: ConnectionInfo, input: Input) -> Connection {
        let idle_ms = services.config.properties.number("connections.max.idle.ms");
        Connection {
            stream,
            services,
            info: Arc::new(info),
            input,
            pending: Pending::default(),
            held: None,
            follower: None,
            last_active: Instant::now(),
            idle_max: Duration::from_millis(idle_ms.unsigned_abs()),
        }
    }

    /// Runs until the client leaves, breaks the protocol or is idle for too long, or until `stop`: then what was taken is still
    /// answered, unless it only waits for others.
    pub async fn run(mut self, stop: CancellationToken) {
        match self.serve(&stop).await {
            Ok(()) => {}
            Err(Ended::Io(error)) => debug!(peer = %self.info.peer, %error, "connection broke"),
            Err(Ended::Left) => debug!(peer = %self.info.peer, "the client left while it was waiting"),
            Err(Ended::Idle(_)) => debug!(peer = %self.info.peer, "idle connection closed"),
            Err(Ended::Input(InputError::Io(error))) => debug!(peer = %self.info.peer, %error, "connection broke"),
            Err(Ended::Input(InputError::Cut)) => debug!(peer = %self.info.peer, "connection ended within a request"),
            Err(cause) => {
                self.services.metrics.connections_broken.inc();
                warn!(peer = %self.info.peer, local = %self.info.local, %cause, "connection closed");
            }
        }
        if let Some(follower) = self.follower.as_ref().and_then(|connection| connection.follower()) {
            let services = self.services;
            drop((self.stream, self.follower));
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = unreachable::look_after(&services, follower.id) => {}
            }
        }
    }

    async fn serve(&mut self, stop: &CancellationToken) -> Result<(), Ended> {
        let timer = tokio::time::sleep(self.idle_max);
        tokio::pin!(timer);
        loop {
            self.write_done().await?;
            if self.pending.is_empty()
                && let Some(frame) = self.held.take()
            {
                match self.pending.takes(key(&frame.bytes)) {
                    true => self.begin(frame).await?,
                    false => self.answer_alone(frame, stop).await?,
                }
                continue;
            }
            let stopping = stop.is_cancelled();
            let may_read = !stopping && self.held.is_none() && self.pending.has_room() && !self.input.is_exhausted();
            let has_pending = !self.pending.is_empty();
            if !may_read && !has_pending {
                return Ok(());
            }
            // Only ever brought forward here; a deadline that has moved back is noticed when the timer fires.
            if self.deadline() < timer.deadline() {
                timer.as_mut().reset(self.deadline());
            }
            tokio::select! {
                biased;
                () = self.pending.front_done(), if has_pending => {}
                frame = self.input.next(&self.stream), if may_read => match frame? {
                    Some(frame) => self.take(frame).await?,
                    None if has_pending => {}
                    None => return Ok(()),
                },
                () = &mut timer => {
                    if self.deadline() <= Instant::now() {
                        self.time_is_up()?;
                    }
                    timer.as_mut().reset(self.deadline());
                }
                lost = broken(&self.stream), if !may_read => lost?,
                () = stop.cancelled(), if !stopping => {}
            }
        }
    }

    /// The front request's own time limit, or the connection's, which is not idle while it waits for an answer of ours.
    fn deadline(&self) -> Instant {
        let active = if self.pending.is_empty() { self.last_active } else { Instant::now() };
        self.pending.deadline().unwrap_or(active + self.idle_max)
    }

    fn time_is_up(&mut self) -> Result<(), Ended> {
        match self.pending.deadline() {
            Some(_) => {
                self.pending.expire();
                Ok(())
            }
            None => Err(Ended::Idle(self.idle_max)),
        }
    }

    /// Begins a request that need not wait; holds any other.
    async fn take(&mut self, frame: Frame) -> Result<(), Ended> {
        self.last_active = Instant::now();
        self.services.metrics.request_bytes.inc_by(frame.bytes.len() as u64 + 4);
        if self.pending.takes(key(&frame.bytes)) {
            return self.begin(frame).await;
        }
        self.held = Some(frame);
        Ok(())
    }

    async fn begin(&mut self, frame: Frame) -> Result<(), Ended> {
        let bytes = frame.bytes.freeze();
        let (header, body) = header::decode_request_header(&bytes)?;
        drop(bytes);
        let cx = self.context(header);
        if cx.header.api_key == ApiKey::Produce {
            let alone = self.pending.is_empty() && self.input.is_empty();
            let produce = api::produce::start(&self.services, cx, body, alone).await?;
            self.pending.push_produce(produce, self.last_active, frame.share);
        } else {
            self.services.metrics.count_request(cx.header.api_key);
            let services = Arc::clone(&self.services);
            let answer = Box::pin(async move { api::answer(&services, &cx, &body).await });
            self.pending.push_commit(answer, self.last_active, frame.share);
        }
        Ok(())
    }

    /// Runs a request to its end and sends the answer.
    async fn answer_alone(&mut self, frame: Frame, stop: &CancellationToken) -> Result<(), Ended> {
        let Frame { bytes, share } = frame;
        let (header, body) = match header::decode_request_header(&bytes.freeze()) {
            Ok(request) => request,
            Err(RequestError::UnsupportedVersion { api_key: ApiKey::ApiVersions, correlation_id, .. }) => {
                let frame = api::api_versions::unsupported(correlation_id)
                    .map_err(|source| CloseReason::Unwritable { api: ApiKey::ApiVersions, source })?;
                self.send(Reply::Frame(frame)).await?;
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let key = header.api_key;
        let cx = self.context(header);
        self.services.metrics.count_request(key);
        let reply = {
            let (services, follower, arrived) = (Arc::clone(&self.services), &mut self.follower, Notify::new());
            let answer = async {
                match key {
                    ApiKey::Fetch => api::fetch::handle(&services, &cx, &body, follower, &arrived).await,
                    _ => api::answer(&services, &cx, &body).await,
                }
            };
            tokio::pin!(answer);
            loop {
                tokio::select! {
                    biased;
                    reply = &mut answer => break reply?,
                    // Dropping the answer cancels it, with the calls that it makes.
                    ended = self.input.end(&self.stream, &arrived), if !self.input.has_ended() => {
                        ended?;
                        if api::ends_with_input(key) {
                            return Err(Ended::Left);
                        }
                    }
                    lost = broken(&self.stream), if self.input.has_ended() => lost?,
                    () = stop.cancelled(), if key == ApiKey::Fetch || api::ends_with_input(key) => return Ok(()),
                }
            }
        };
        self.send(reply).await?;
        self.last_active = Instant::now();
        drop(share);
        Ok(())
    }

    /// Sends the answers of all begun requests at the front that are done, in one write.
    async fn write_done(&mut self) -> Result<(), Ended> {
        let frames = self.pending.take_done(&self.services)?;
        if !frames.is_empty() {
            self.send_frame(frames).await?;
        }
        Ok(())
    }

    async fn send(&mut self, reply: Reply) -> Result<(), Ended> {
        let parts = match reply {
            Reply::Frame(frame) => return self.send_frame(frame).await,
            Reply::Parts(parts) => parts,
            Reply::Nothing => return Ok(()),
        };
        let sent = in_time(self.idle_max, send::send(&self.stream, &parts)).await?;
        self.count(sent);
        Ok(())
    }

    /// Nearly every frame fits the socket's buffer: one system call and no waiting.
    async fn send_frame(&mut self, frame: Bytes) -> Result<(), Ended> {
        let total = frame.len() as u64;
        let written = match self.stream.try_write(&frame) {
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error.into()),
        };
        if written < frame.len() {
            in_time(self.idle_max, send::send(&self.stream, &[Part::Bytes(frame.slice(written..))])).await?;
        }
        self.count(Sent { total_bytes: total, ..Sent::default() });
        Ok(())
    }

    fn count(&self, sent: Sent) {
        let metrics = &self.services.metrics;
        metrics.response_bytes.inc_by(sent.total_bytes);
        metrics.sendfile_bytes.inc_by(sent.sendfile_bytes);
        metrics.copied_bytes.inc_by(sent.copied_bytes);
    }

    fn context(&self, header: RequestHeader) -> RequestContext {
        RequestContext { header, connection: Arc::clone(&self.info) }
    }
}

/// A client that does not read its answer is cut off as an idle one is.
async fn in_time(limit: Duration, sending: impl Future<Output = io::Result<Sent>>) -> Result<Sent, Ended> {
    match tokio::time::timeout(limit, sending).await {
        Ok(sent) => Ok(sent?),
        Err(_) => Err(Ended::Stalled(limit)),
    }
}

/// What the frame asks for; `None` if that is not known here.
fn key(frame: &[u8]) -> Option<ApiKey> {
    frame.first_chunk().and_then(|code| ApiKey::from_code(i16::from_be_bytes(*code)))
}
