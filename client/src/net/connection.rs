//! One TCP connection: requests leave in order, answers come back in the same order.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use thalweg_model::ErrorCode;
use thalweg_wire::api::ApiKey;
use thalweg_wire::codec::{Message, Reader, Request};
use thalweg_wire::frame::FrameDecoder;
use thalweg_wire::header::{decode_response_header, encode_request};
use thalweg_wire::messages::{ApiVersionsRequest, ApiVersionsResponse};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::AbortHandle;
use tracing::debug;

use super::versions::OfferedVersions;
use crate::error::{ClientError, Result};

/// A connection that has agreed on versions. Clones share it; it closes when the last is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    shared: Arc<Shared>,
}

/// What a connection needs of the client's settings.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionConfig {
    pub(crate) client_id: String,
    pub(crate) connect_timeout: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) in_flight_max: usize,
    pub(crate) response_bytes_max: usize,
}

/// A request that was queued; its answer comes later.
#[derive(Debug)]
pub(crate) struct Answer<R: Request> {
    connection: Connection,
    version: i16,
    timeout: Duration,
    receiver: oneshot::Receiver<Result<Bytes>>,
    request: std::marker::PhantomData<fn() -> R>,
}

#[derive(Debug)]
struct Shared {
    address: String,
    config: ConnectionConfig,
    offered: OfferedVersions,
    correlation_ids: AtomicI32,
    outgoing: mpsc::Sender<Outgoing>,
    permits: Arc<Semaphore>,
    pending: Arc<Mutex<Pending>>,
    tasks: [AbortHandle; 2],
}

/// Requests whose answer is due, oldest first.
#[derive(Debug, Default)]
struct Pending {
    waiting: VecDeque<Waiting>,
    /// Set once; nothing is added after it.
    closed: Option<ClientError>,
}

#[derive(Debug)]
struct Waiting {
    correlation_id: i32,
    key: ApiKey,
    version: i16,
    reply: oneshot::Sender<Result<Bytes>>,
    _permit: OwnedSemaphorePermit,
}

#[derive(Debug)]
struct Outgoing {
    frame: Bytes,
    /// `None` where no answer comes (acks=0).
    waiting: Option<Waiting>,
}

impl Connection {
    /// Connects and agrees on versions.
    ///
    /// # Errors
    /// [`ClientError::Disconnected`], [`ClientError::TimedOut`], [`ClientError::Malformed`].
    pub(crate) async fn open(address: &str, config: ConnectionConfig) -> Result<Connection> {
        let connecting = tokio::time::timeout(config.connect_timeout, TcpStream::connect(address)).await;
        let stream = match connecting {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(disconnected(address, describe_io(&error))),
            Err(_) => {
                let after = config.connect_timeout;
                return Err(ClientError::TimedOut { what: "connecting", address: address.to_owned(), after });
            }
        };
        // Only latency is lost without it.
        let _ = stream.set_nodelay(true);
        let (read, write) = stream.into_split();
        let (outgoing, queue) = mpsc::channel(config.in_flight_max + 1);
        let pending = Arc::new(Mutex::new(Pending::default()));
        let writer = tokio::spawn(write_requests(write, queue, Arc::clone(&pending), address.to_owned()));
        let reader =
            tokio::spawn(read_answers(read, Arc::clone(&pending), address.to_owned(), config.response_bytes_max));
        let mut shared = Shared {
            address: address.to_owned(),
            permits: Arc::new(Semaphore::new(config.in_flight_max)),
            config,
            offered: OfferedVersions::default(),
            correlation_ids: AtomicI32::new(0),
            outgoing,
            pending,
            tasks: [writer.abort_handle(), reader.abort_handle()],
        };
        shared.offered = negotiate(&shared).await?;
        Ok(Connection { shared: Arc::new(shared) })
    }

    pub(crate) fn address(&self) -> &str {
        &self.shared.address
    }

    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.shared.pending).closed.is_some()
    }

    /// The version that a request would be sent in, at most `version_max`.
    pub(crate) fn version_of<R: Request>(&self, version_max: i16) -> Result<i16> {
        let ours = *R::VERSIONS.start()..=version_max.min(*R::VERSIONS.end());
        self.shared.version(R::KEY, &ours)
    }

    /// Sends a request and waits for its answer; `extra` is how long the broker may hold it back.
    pub(crate) async fn call<R: Request>(&self, request: &R, extra: Duration) -> Result<R::Response> {
        self.call_at_most(request, i16::MAX, extra).await
    }

    pub(crate) async fn call_at_most<R: Request>(
        &self,
        request: &R,
        version_max: i16,
        extra: Duration,
    ) -> Result<R::Response> {
        let version = self.version_of::<R>(version_max)?;
        self.submit(request, version, extra).await?.wait().await
    }

    /// Queues a request. Requests of one caller leave in the order of their calls; waits while too many are in flight.
    pub(crate) async fn submit<R: Request>(&self, request: &R, version: i16, extra: Duration) -> Result<Answer<R>> {
        let receiver = self.shared.send(request, version).await?;
        let timeout = self.shared.config.request_timeout + extra;
        Ok(Answer { connection: self.clone(), version, timeout, receiver, request: std::marker::PhantomData })
    }

    /// Queues a request that gets no answer (Produce with acks=0).
    pub(crate) async fn submit_unanswered<R: Request>(&self, request: &R, version: i16) -> Result<()> {
        let (frame, _) = self.shared.frame(request, version)?;
        let sent = self.shared.outgoing.send(Outgoing { frame, waiting: None }).await;
        sent.map_err(|_| self.shared.closed_error())
    }

    /// Closes at once; whoever waits gets `error`.
    pub(crate) fn close(&self, error: ClientError) {
        close(&self.shared.pending, error);
        for task in &self.shared.tasks {
            task.abort();
        }
    }
}

impl<R: Request> Answer<R> {
    /// # Errors
    /// As the connection's calls. After a timeout the connection is closed: what comes later on it could not be
    /// told apart from the answer that is missing.
    pub(crate) async fn wait(self) -> Result<R::Response> {
        let address = self.connection.address().to_owned();
        match tokio::time::timeout(self.timeout, self.receiver).await {
            Ok(Ok(body)) => decode::<R::Response>(&body?, self.version, R::KEY.name(), &address),
            Ok(Err(_)) => Err(self.connection.shared.closed_error()),
            Err(_) => {
                let error = ClientError::TimedOut { what: R::KEY.name(), address, after: self.timeout };
                self.connection.close(error.clone());
                Err(error)
            }
        }
    }
}

impl Shared {
    fn version(&self, key: ApiKey, ours: &RangeInclusive<i16>) -> Result<i16> {
        self.offered.highest_common(key, ours).ok_or_else(|| ClientError::UnsupportedApi {
            api: key.name(),
            ours_min: *ours.start(),
            ours_max: *ours.end(),
            theirs: self.offered.describe(key),
            address: self.address.clone(),
        })
    }

    async fn send<R: Request>(&self, request: &R, version: i16) -> Result<oneshot::Receiver<Result<Bytes>>> {
        let Ok(permit) = Arc::clone(&self.permits).acquire_owned().await else {
            return Err(self.closed_error());
        };
        let (frame, correlation_id) = self.frame(request, version)?;
        let (reply, receiver) = oneshot::channel();
        let waiting = Waiting { correlation_id, key: R::KEY, version, reply, _permit: permit };
        let sent = self.outgoing.send(Outgoing { frame, waiting: Some(waiting) }).await;
        sent.map_err(|_| self.closed_error())?;
        Ok(receiver)
    }

    fn frame<R: Request>(&self, request: &R, version: i16) -> Result<(Bytes, i32)> {
        let correlation_id = self.correlation_ids.fetch_add(1, Ordering::Relaxed) & i32::MAX;
        let mut frame = BytesMut::new();
        let client_id = Some(self.config.client_id.as_str());
        encode_request(&mut frame, version, correlation_id, client_id, request).map_err(|error| {
            ClientError::InvalidUse {
                what: format!("{} cannot be written: {error}", R::KEY),
                remedy: "shorten its names or send less at once".to_owned(),
            }
        })?;
        Ok((frame.freeze(), correlation_id))
    }

    fn closed_error(&self) -> ClientError {
        let closed = lock(&self.pending).closed.clone();
        closed.unwrap_or_else(|| disconnected(&self.address, "closed here"))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Asks for the versions; a broker that does not know ours answers in version 0 and says which it knows (KIP-511).
async fn negotiate(shared: &Shared) -> Result<OfferedVersions> {
    let name = "ApiVersions";
    let mut version = API_VERSIONS_FIRST;
    for _ in 0..2 {
        let request = ApiVersionsRequest {
            client_software_name: "thalweg".to_owned(),
            client_software_version: env!("CARGO_PKG_VERSION").to_owned(),
            ..ApiVersionsRequest::default()
        };
        let receiver = shared.send(&request, version).await?;
        let timeout = shared.config.request_timeout.min(shared.config.connect_timeout);
        let body = match tokio::time::timeout(timeout, receiver).await {
            Ok(Ok(body)) => body?,
            Ok(Err(_)) => return Err(shared.closed_error()),
            Err(_) => {
                return Err(ClientError::TimedOut { what: name, address: shared.address.clone(), after: timeout });
            }
        };
        let unsupported = body.starts_with(&(ErrorCode::UnsupportedVersion as i16).to_be_bytes());
        let answer: ApiVersionsResponse = decode(&body, if unsupported { 0 } else { version }, name, &shared.address)?;
        if !unsupported {
            ClientError::check(answer.error_code, || format!("{name} at {}", shared.address), None)?;
            return Ok(OfferedVersions::from_answer(&answer));
        }
        let offered = OfferedVersions::from_answer(&answer);
        version = offered.highest_common(ApiKey::ApiVersions, &(0..=API_VERSIONS_FIRST)).unwrap_or(0);
    }
    let offered = OfferedVersions::default();
    let ours = ApiVersionsRequest::VERSIONS;
    Err(ClientError::UnsupportedApi {
        api: name,
        ours_min: *ours.start(),
        ours_max: *ours.end(),
        theirs: offered.describe(ApiKey::ApiVersions),
        address: shared.address.clone(),
    })
}

async fn write_requests(
    mut write: OwnedWriteHalf,
    mut queue: mpsc::Receiver<Outgoing>,
    pending: Arc<Mutex<Pending>>,
    address: String,
) {
    while let Some(Outgoing { frame, waiting }) = queue.recv().await {
        if let Some(waiting) = waiting {
            let mut pending = lock(&pending);
            if let Some(error) = &pending.closed {
                let _ = waiting.reply.send(Err(error.clone()));
                continue;
            }
            // Before the bytes leave, for the answer may be faster than we are.
            pending.waiting.push_back(waiting);
        }
        if let Err(error) = write.write_all(&frame).await {
            close(&pending, disconnected(&address, describe_io(&error)));
            return;
        }
    }
}

async fn read_answers(mut read: OwnedReadHalf, pending: Arc<Mutex<Pending>>, address: String, bytes_max: usize) {
    loop {
        let frame = match read_frame(&mut read, &address, bytes_max).await {
            Ok(frame) => frame,
            Err(error) => return close(&pending, error),
        };
        let waiting = lock(&pending).waiting.pop_front();
        let Some(waiting) = waiting else {
            return close(&pending, malformed("nothing", &address, "an answer that nobody asked for"));
        };
        match body_of(&frame, &waiting, &address) {
            Ok(body) => {
                // Whoever asked may have gone.
                let _ = waiting.reply.send(Ok(body));
            }
            Err(error) => {
                let _ = waiting.reply.send(Err(error.clone()));
                return close(&pending, error);
            }
        }
    }
}

async fn read_frame(read: &mut OwnedReadHalf, address: &str, bytes_max: usize) -> Result<Bytes> {
    let mut prefix = [0; 4];
    read.read_exact(&mut prefix).await.map_err(|error| disconnected(address, describe_io(&error)))?;
    // With only the size read, what is missing is the frame.
    let length = FrameDecoder::new(bytes_max)
        .missing(&prefix)
        .map_err(|error| malformed("a request", address, format!("{error} (response_bytes_max)")))?;
    let mut frame = BytesMut::with_capacity(length);
    while frame.len() < length {
        let mut rest = (&mut *read).take((length - frame.len()) as u64);
        match rest.read_buf(&mut frame).await {
            Ok(0) => return Err(disconnected(address, "closed in the middle of an answer")),
            Ok(_) => {}
            Err(error) => return Err(disconnected(address, describe_io(&error))),
        }
    }
    Ok(frame.freeze())
}

/// Checks the header and strips it.
fn body_of(frame: &Bytes, waiting: &Waiting, address: &str) -> Result<Bytes> {
    let what = waiting.key.name();
    let (correlation_id, body) = decode_response_header(frame, waiting.key, waiting.version)
        .map_err(|error| malformed(what, address, error.to_string()))?;
    if correlation_id != waiting.correlation_id {
        let detail = format!("it answers request {correlation_id}, due is {}", waiting.correlation_id);
        return Err(malformed(what, address, detail));
    }
    Ok(body)
}

fn decode<M: Message>(body: &Bytes, version: i16, what: &'static str, address: &str) -> Result<M> {
    // Larger than a server would allow a client: lists of small structs take many times their size on the wire.
    let memory_max = body.len().saturating_mul(32).saturating_add(1 << 20);
    let mut reader = Reader::with_memory_limit(body.clone(), memory_max);
    M::decode(&mut reader, version).map_err(|error| malformed(what, address, error.to_string()))
}

fn close(pending: &Mutex<Pending>, error: ClientError) {
    let waiting = {
        let mut pending = lock(pending);
        if pending.closed.is_none() {
            debug!(%error, "connection closed");
            pending.closed = Some(error.clone());
        }
        std::mem::take(&mut pending.waiting)
    };
    for waiting in waiting {
        let _ = waiting.reply.send(Err(error.clone()));
    }
}

fn lock(pending: &Mutex<Pending>) -> std::sync::MutexGuard<'_, Pending> {
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}

fn disconnected(address: &str, cause: impl Into<String>) -> ClientError {
    ClientError::Disconnected { address: address.to_owned(), cause: cause.into() }
}

fn malformed(what: &'static str, address: &str, detail: impl Into<String>) -> ClientError {
    ClientError::Malformed { what, address: address.to_owned(), detail: detail.into() }
}

fn describe_io(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connection refused, nothing listens there".to_owned(),
        std::io::ErrorKind::UnexpectedEof => "closed by the broker".to_owned(),
        _ => error.to_string(),
    }
}

/// Version 5 only adds the cluster and node that we expect, which we do not know when we connect.
const API_VERSIONS_FIRST: i16 = 4;
