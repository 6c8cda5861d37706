//! Fetches from one leader for every partition that this broker follows it in.
//!
//! One connection, one fetch session. A partition has one position at the leader at a time; a second request may be under way
//! with positions that are new since the first: it ends the leader's wait for the first, so that what a disk has just synced,
//! or a partition that has just been made, waits for nobody.

mod entries;
mod link;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use thalweg_model::{BrokerEpoch, ErrorCode, LeaderEpoch, NodeId, Offset, PartitionIndex};
use thalweg_wire::batch::{BatchHeader, verify_crc};
use thalweg_wire::messages::fetch::{FetchPartition, FetchTopic, ForgottenTopic, PartitionData, ReplicaState};
use thalweg_wire::messages::{FetchRequest, FetchResponse};
use thalweg_wire::{ApiKey, DecodeError, Message, header};
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use self::entries::Entries;
use self::link::Event;
pub use self::link::{AnswerDuty, FetchLink, Next};
use super::endpoints;
use super::owner::{Copied, Owner};
use super::partitions::Partition;
use super::peer::{Peer, PeerError};
use super::unreachable;
use crate::machine::follower::{EpochEnd, FetchAnswer, FetchId, FetchPosition};
use crate::machine::move_pace::{AnswerTimes, Limit, MovePace};
use crate::services::Services;

/// The fetchers of this broker, one per leader that it has ever followed.
pub struct Fetchers {
    services: Arc<Services>,
    tasks: TaskTracker,
    stop: CancellationToken,
    links: HashMap<NodeId, FetchLink>,
}

struct Fetcher {
    leader: NodeId,
    services: Arc<Services>,
    link: FetchLink,
    events: mpsc::UnboundedReceiver<Event>,
    entries: Entries,
    peer: Option<Peer>,
    /// Of the next request; 0 starts a session.
    session_epoch: i32,
    in_flight: VecDeque<InFlight>,
    next_request: u64,
    /// Until when the next request waits for flushes under way, so that it can report them.
    hold: Option<Instant>,
    /// For what replicas moved here copy from this leader.
    pace: MovePace,
    answer_times: AnswerTimes,
    is_failing: bool,
}

struct InFlight {
    request: u64,
    correlation_id: i32,
    sent_at: Instant,
    deadline: Instant,
}

/// Why a connection is given up.
#[derive(Debug, Error)]
enum FetchError {
    #[error("it is not in the cluster's image")]
    NoAddress,
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error("its answer cannot be read: {0}")]
    Malformed(#[from] DecodeError),
    #[error("its answer is to another request")]
    OutOfOrder,
    #[error("it refuses to serve us: {0}")]
    Refused(ErrorCode),
}

impl Fetchers {
    /// Each fetcher is one of `tasks`, until `stop`.
    pub fn new(services: Arc<Services>, tasks: TaskTracker, stop: CancellationToken) -> Fetchers {
        Fetchers { services, tasks, stop, links: HashMap::new() }
    }

    /// To the fetcher of this leader, which is started if there is none.
    pub fn link(&mut self, leader: NodeId) -> FetchLink {
        let (services, tasks, stop) = (&self.services, &self.tasks, &self.stop);
        let start = || {
            let (sender, events) = mpsc::unbounded_channel();
            let link = FetchLink(sender);
            let fetcher = Fetcher::new(leader, Arc::clone(services), link.clone(), events);
            let stop = stop.clone();
            tasks.spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = fetcher.run() => {}
                }
            });
            link
        };
        self.links.entry(leader).or_insert_with(start).clone()
    }
}

impl Fetcher {
    fn new(
        leader: NodeId,
        services: Arc<Services>,
        link: FetchLink,
        events: mpsc::UnboundedReceiver<Event>,
    ) -> Fetcher {
        Fetcher {
            leader,
            link,
            events,
            entries: Entries::default(),
            peer: None,
            session_epoch: 0,
            in_flight: VecDeque::new(),
            next_request: 0,
            hold: None,
            pace: MovePace::new(services.clock.mono(), u64::MAX),
            answer_times: AnswerTimes::default(),
            is_failing: false,
            services,
        }
    }

    async fn run(mut self) {
        let mut backoff = BACKOFF_FIRST;
        loop {
            let Err(error) = self.work(&mut backoff).await;
            self.disconnect();
            let was_failing = self.is_failing;
            // A leader may be heard of before its address is.
            if self.is_failing || matches!(error, FetchError::NoAddress) {
                debug!(leader = %self.leader, %error, "fetching from a leader fails");
            } else {
                warn!(leader = %self.leader, %error, "fetching from a leader fails, trying again");
            }
            self.is_failing |= !matches!(error, FetchError::NoAddress);
            if let FetchError::Peer(PeerError::Io(cause)) = &error
                && cause.kind() == std::io::ErrorKind::ConnectionRefused
            {
                unreachable::suspect(&self.services, self.leader);
                unreachable::report(&self.services, self.leader).await;
            }
            // A leader that is gone refuses the next connection, mostly at once, and clients ask where it is in the same
            // milliseconds: whoever knows by then names none.
            let is_first = self.is_failing && !was_failing;
            if !is_first {
                tokio::time::sleep(backoff).await;
                backoff = (backoff * 2).min(BACKOFF_MAX);
            }
        }
    }

    /// Goes on until the connection is of no use.
    async fn work(&mut self, backoff: &mut Duration) -> Result<std::convert::Infallible, FetchError> {
        loop {
            while let Ok(event) = self.events.try_recv() {
                self.on(event);
            }
            self.wake();
            let now = Instant::now();
            let may_send = self.entries.nothing_in_hand() && !self.is_held(now);
            let wants = match self.in_flight.len() {
                0 => self.entries.any_ready(),
                1 => self.entries.has_news(),
                _ => false,
            };
            if may_send && wants {
                self.send().await?;
                continue;
            }
            let deadline = self.in_flight.front().map(|request| request.deadline);
            let wakeup = [deadline, self.hold, self.entries.next_wakeup()].into_iter().flatten().min();
            // Answers wait in the socket while owners are at work: a position is renewed before the next answer is looked at.
            let may_take = !self.in_flight.is_empty() && self.entries.nothing_in_hand();
            tokio::select! {
                biased;
                event = self.events.recv() => match event {
                    Some(event) => self.on(event),
                    None => std::future::pending().await,
                },
                frame = next_frame(&mut self.peer), if may_take => {
                    self.take(frame?)?;
                    *backoff = BACKOFF_FIRST;
                    self.is_failing = false;
                }
                () = sleep_until(wakeup) => {
                    if deadline.is_some_and(|deadline| deadline <= Instant::now()) && may_take {
                        return Err(PeerError::TimedOut(self.timeout()).into());
                    }
                }
            }
        }
    }

    fn on(&mut self, event: Event) {
        match event {
            Event::Ask(partition, id, position) => self.entries.ask(&partition, id, position),
            Event::Forget(number) => self.entries.forget(number),
            Event::Done(number, next) => {
                let wait_max = self.services.config.properties.millis("replica.fetch.backoff.ms");
                self.entries.done(number, next, wait_max);
                self.entries.pay(number);
            }
        }
    }

    /// Whether flushes that end soon are worth waiting for.
    fn is_held(&mut self, now: Instant) -> bool {
        self.hold = self.hold.filter(|until| *until > now && self.entries.any_unflushed());
        self.hold.is_some() && self.in_flight.is_empty()
    }

    /// Asks owners anew where a leader could not serve for a while.
    fn wake(&mut self) {
        for partition in self.entries.awake(Instant::now()) {
            self.services.workers().tell(&partition, Owner::ask_again);
        }
    }

    async fn send(&mut self) -> Result<(), FetchError> {
        if self.peer.is_none() {
            self.peer = Some(self.connect().await?);
        }
        let number = self.next_request;
        self.next_request += 1;
        let request = self.request(number);
        let Some(peer) = self.peer.as_mut() else { return Err(FetchError::NoAddress) };
        let correlation_id = peer.send(FETCH_VERSION, CLIENT_ID, &request).await?;
        self.session_epoch = self.session_epoch.checked_add(1).unwrap_or(1);
        let sent_at = Instant::now();
        let deadline = sent_at + self.timeout();
        self.in_flight.push_back(InFlight { request: number, correlation_id, sent_at, deadline });
        Ok(())
    }

    async fn connect(&self) -> Result<Peer, FetchError> {
        let address = {
            let image = self.services.image();
            image.brokers.get(&self.leader).and_then(|broker| endpoints::between(&self.services, broker))
        };
        let address = address.ok_or(FetchError::NoAddress)?;
        let peer = Peer::connect(&address.host, address.port, CONNECT_TIMEOUT).await?;
        unreachable::trust(&self.services, self.leader);
        info!(leader = %self.leader, host = %address.host, port = address.port, "fetching from this leader");
        Ok(peer)
    }

    fn request(&mut self, number: u64) -> FetchRequest {
        let properties = &self.services.config.properties;
        let bytes_max = i32::try_from(properties.number("replica.fetch.max.bytes")).unwrap_or(i32::MAX);
        let is_first = self.session_epoch == 0;
        let mut topics: BTreeMap<_, Vec<FetchPartition>> = BTreeMap::new();
        for (partition, position) in self.entries.take_asked(number, is_first) {
            // Small pieces, so that what in-sync replicas copy does not stand behind them in one answer.
            let bytes_max = if partition.is_arriving() { bytes_max.min(MOVE_BYTES_MAX) } else { bytes_max };
            let asked = fetch_partition(partition.index, &position, bytes_max);
            topics.entry(partition.topic_id.0).or_default().push(asked);
        }
        let mut forgotten: BTreeMap<_, Vec<i32>> = BTreeMap::new();
        for (topic_id, partition) in self.entries.take_forgotten() {
            forgotten.entry(topic_id.0).or_default().push(partition.0);
        }
        let topic =
            |(id, partitions)| FetchTopic { topic_id: thalweg_model::TopicId(id), partitions, ..Default::default() };
        let gone = |(id, partitions)| {
            let topic_id = thalweg_model::TopicId(id);
            ForgottenTopic { topic_id, partitions, ..Default::default() }
        };
        let node = self.services.node_id();
        let life = self.services.image().brokers.get(&node).map_or(BrokerEpoch::NONE, |broker| broker.epoch);
        FetchRequest {
            replica_state: ReplicaState { replica_id: node.0, replica_epoch: life.0 },
            max_wait_ms: i32::try_from(properties.number("replica.fetch.wait.max.ms")).unwrap_or(i32::MAX),
            min_bytes: 1,
            max_bytes: i32::try_from(properties.number("replica.fetch.response.max.bytes")).unwrap_or(i32::MAX),
            session_id: i32::from(!is_first),
            session_epoch: self.session_epoch,
            topics: topics.into_iter().map(topic).collect(),
            forgotten_topics_data: forgotten.into_iter().map(gone).collect(),
            ..Default::default()
        }
    }

    /// Hands the answers to the owners of the logs.
    fn take(&mut self, frame: Bytes) -> Result<(), FetchError> {
        let Some(sent) = self.in_flight.pop_front() else { return Err(FetchError::OutOfOrder) };
        let (correlation_id, body) = header::decode_response_header(&frame, ApiKey::Fetch, FETCH_VERSION)?;
        if correlation_id != sent.correlation_id {
            return Err(FetchError::OutOfOrder);
        }
        let response = FetchResponse::decode_body(&body, FETCH_VERSION)?;
        match ErrorCode::from_code(response.error_code) {
            Some(ErrorCode::None) => {}
            code => return Err(FetchError::Refused(code.unwrap_or(ErrorCode::UnknownServerError))),
        }
        let mut bytes = 0;
        for topic in response.responses {
            for data in topic.partitions {
                let here = data.records.as_ref().map_or(0, Bytes::len);
                bytes += here;
                let key = (topic.topic_id, PartitionIndex(data.partition_index));
                if let Some((partition, id, position)) = self.entries.answered(key, sent.request) {
                    // One that has nothing left to copy is about to be in sync.
                    if partition.is_arriving() && here > 0 {
                        let lag = data.high_watermark.saturating_sub(position.fetch_offset.0);
                        if let Some(wait) = self.moved(&partition, here, lag, sent.sent_at.elapsed()) {
                            self.entries.owes(partition.number, wait);
                        }
                    }
                    self.hand_over(partition, id, position, data);
                }
            }
        }
        self.services.metrics.replicated_bytes.inc_by(bytes as u64);
        // Behind a full answer there is more at once.
        let is_full = bytes >= self.services.config.properties.size("replica.fetch.max.bytes") / 2;
        self.hold = (bytes > 0 && !is_full).then(|| Instant::now() + HOLD_MAX);
        Ok(())
    }

    /// Takes note of what a replica on its way in has copied in an answer that took so long, when it lacked `lag` records; how
    /// long it is to leave off.
    fn moved(&mut self, partition: &Partition, bytes: usize, lag: i64, took: Duration) -> Option<Duration> {
        let (services, now) = (&self.services, self.services.clock.mono());
        services.metrics.moved_bytes.inc_by(bytes as u64);
        // A full piece was there before it was asked for: nobody waited for records.
        let is_slow = bytes >= MOVE_BYTES_MAX as usize / 2 && self.answer_times.is_slow(took);
        let is_strained = is_slow || services.flushers.oldest_seconds() > STRAIN_SECONDS;
        let limit = |node, name| {
            let rate_max = u64::try_from(services.running_number(node, name)).unwrap_or(1);
            Limit { rate_max, is_strained }
        };
        let ours = limit(services.node_id(), "follower.replication.throttled.rate");
        let theirs = limit(self.leader, "leader.replication.throttled.rate");
        let is_stuck = self.entries.is_stuck(partition.number, now, lag);
        let mut pace = services.move_pace.lock().unwrap_or_else(PoisonError::into_inner);
        let here = pace.copied(now, bytes as u64, ours);
        let there = self.pace.copied(now, bytes as u64, theirs);
        for (pace, limit) in [(&mut *pace, ours), (&mut self.pace, theirs)] {
            if is_stuck && let Some(rate) = pace.give_way(now, limit) {
                warn!(tp = %partition.tp(), lag, rate, "a move made no progress under its limit, which gives way for a while");
            }
        }
        here.max(there)
    }

    fn hand_over(&mut self, partition: Arc<Partition>, id: FetchId, position: FetchPosition, data: PartitionData) {
        let high_watermark = Offset(data.high_watermark);
        let log_start_offset = Offset(data.log_start_offset);
        let records = data.records.unwrap_or_default();
        let error = ErrorCode::from_code(data.error_code).unwrap_or(ErrorCode::UnknownServerError);
        let answer = if error.is_error() {
            FetchAnswer::Error { error, log_start_offset }
        } else if data.diverging_epoch.end_offset >= 0 {
            let epoch = LeaderEpoch(data.diverging_epoch.epoch);
            let end = EpochEnd { epoch, end_offset: Offset(data.diverging_epoch.end_offset) };
            FetchAnswer::Diverging { end, log_start_offset }
        } else if records.is_empty() {
            self.services.workers().tell(&partition, move |owner| {
                owner.marks_heard(id, high_watermark, log_start_offset);
            });
            return;
        } else {
            FetchAnswer::Records { high_watermark, log_start_offset }
        };
        let records = match checked(&records, &position, partition.config().cleanup_policy.compact) {
            Ok(len) => BytesMut::from(&records[..len]),
            Err(reason) => {
                warn!(tp = %partition.tp(), leader = %self.leader, reason, "the leader's records are not taken");
                let wait_max = self.services.config.properties.millis("replica.fetch.backoff.ms");
                self.entries.done(partition.number, Next::Later, wait_max);
                return;
            }
        };
        self.entries.in_hand(partition.number);
        let duty = AnswerDuty { link: self.link.clone(), number: partition.number, id, is_done: false };
        let copied = Copied { answer, records, duty };
        self.services.workers().tell(&partition, move |owner| owner.fetch_answered(copied));
    }

    fn disconnect(&mut self) {
        self.peer = None;
        self.session_epoch = 0;
        self.in_flight.clear();
        self.hold = None;
        self.entries.start_over();
    }

    /// From a request to its answer, the wait for records included.
    fn timeout(&self) -> Duration {
        let properties = &self.services.config.properties;
        properties.millis("replica.fetch.wait.max.ms") + properties.millis("replica.socket.timeout.ms")
    }
}

fn fetch_partition(partition: PartitionIndex, position: &FetchPosition, bytes_max: i32) -> FetchPartition {
    let all_counted = position.counted == position.fetch_offset;
    FetchPartition {
        partition: partition.0,
        current_leader_epoch: position.leader_epoch.0,
        fetch_offset: position.fetch_offset.0,
        last_fetched_epoch: position.last_fetched_epoch.0,
        log_start_offset: position.log_start_offset.0,
        partition_max_bytes: bytes_max,
        high_watermark: position.high_watermark.0,
        counted_offset: if all_counted { -1 } else { position.counted.0 },
        ..Default::default()
    }
}

/// How many bytes at the front of `records` are whole batches that follow the position (F3).
fn checked(records: &[u8], position: &FetchPosition, may_have_gaps: bool) -> Result<usize, String> {
    let mut taken = 0;
    let mut next = position.fetch_offset;
    while taken < records.len() {
        let rest = &records[taken..];
        let header = match BatchHeader::read(rest) {
            Ok(header) => header,
            // A last batch may be cut; alone it is nothing to go on with.
            Err(thalweg_wire::batch::BatchError::Truncated { .. }) if taken > 0 => break,
            Err(error) => return Err(error.to_string()),
        };
        verify_crc(&rest[..header.size_bytes()]).map_err(|error| error.to_string())?;
        let follows = header.base_offset == next || (may_have_gaps && header.base_offset > next);
        if !follows || header.last_offset_delta < 0 {
            return Err(format!("a batch begins at {} where {next} was next", header.base_offset));
        }
        if header.leader_epoch > position.leader_epoch {
            return Err(format!(
                "a batch of epoch {} from a leader of epoch {}",
                header.leader_epoch, position.leader_epoch
            ));
        }
        next = header.next_offset();
        taken += header.size_bytes();
    }
    Ok(taken)
}

async fn next_frame(peer: &mut Option<Peer>) -> Result<Bytes, PeerError> {
    match peer {
        Some(peer) => peer.next().await,
        None => Err(PeerError::Ended),
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// The newest: topic ids, our life (KIP-903) and our watermark (KIP-1166).
const FETCH_VERSION: i16 = 18;
const CLIENT_ID: &str = "thalweg-follower";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const BACKOFF_FIRST: Duration = Duration::from_millis(1);
const BACKOFF_MAX: Duration = Duration::from_millis(500);
/// Of a partition that is moved here, at a time.
const MOVE_BYTES_MAX: i32 = 256 << 10;
/// A sync that takes longer is a sign that the disks have enough to do.
const STRAIN_SECONDS: f64 = 0.1;
/// A sync that takes longer is reported on its own.
const HOLD_MAX: Duration = Duration::from_millis(5);
