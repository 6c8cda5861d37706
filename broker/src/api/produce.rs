//! Produce (key 0, versions 3-11; 0-2 are advertised but refused): appends record batches.
//!
//! - Two phases: [`start`] decodes, validates and enqueues in the order of the connection; the answer comes when the logs
//!   have said what became of each batch, or when `timeout_ms` has passed (error 7; the records may still be there).
//! - acks 0: no answer, an error closes the connection. 1: the leader counts the records. -1: they are below the high
//!   watermark. Anything else: error 21.
//! - Exactly one batch per partition. Offsets and epochs are stamped in the memory of the request; the batch itself is
//!   neither copied nor changed, unless the broker stamps timestamps.
//! - A partition named twice is refused (42): Kafka loses one of the batches.
//! - From version 10 on, error 6 names the current leader (KIP-951).

use std::collections::HashSet;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use thalweg_model::topic_config::TimestampType;
use thalweg_model::{ErrorCode, LeaderEpoch, PartitionIndex, Timestamp, TopicConfig};
use thalweg_wire::ApiKey;
use thalweg_wire::batch::{self, BatchError};
use thalweg_wire::error::ToErrorCode;
use thalweg_wire::header;
use thalweg_wire::messages::produce::{
    BatchIndexAndErrorMessage, LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse, TopicProduceResponse,
};
use thalweg_wire::messages::{ProduceRequest, ProduceResponse};
use thalweg_wire::records::{ProduceRules, TimestampWindow, check_produced};
use tokio::time::Instant;

use super::context::{CloseReason, RequestContext};
use super::recompress::{recompress, wanted_codec};
use crate::services::Services;
use crate::shell::ack::{Acks, AppendOutcome};
use crate::shell::partitions::Partition;
use crate::shell::worker::{Append, RequiredAcks};

/// A produce request in its second phase.
#[derive(Debug)]
pub struct PendingProduce {
    cx: RequestContext,
    /// `None`: unknown, refused with every partition.
    required: Option<RequiredAcks>,
    topics: Vec<Topic>,
    acks: Arc<Acks>,
    deadline: Instant,
    expired: bool,
}

/// What to answer under which name, in the request's order.
#[derive(Debug)]
struct Topic {
    name: String,
    partitions: Vec<i32>,
}

/// One partition's share of a request before it is looked at.
struct Share {
    index: i32,
    /// Where its records lie in the body.
    records: Option<(usize, usize)>,
}

/// The first phase. Waits only when the owner of a log is too far behind.
///
/// # Errors
/// The body is not a Produce request.
///
/// `alone`: the connection waits for no earlier request and has not sent the next one yet.
pub async fn start(
    services: &Services,
    cx: RequestContext,
    body: Bytes,
    alone: bool,
) -> Result<PendingProduce, CloseReason> {
    services.metrics.count_request(ApiKey::Produce);
    let (request, shares) = split(&cx, &body)?;
    let required = match request.acks {
        0 => Some(RequiredAcks::None),
        1 => Some(RequiredAcks::Leader),
        -1 => Some(RequiredAcks::All),
        _ => None,
    };
    let (acks, mut duties) = Acks::new(shares.iter().map(Vec::len).sum());
    let mut batches = Batches::new(body);
    let mut topics = Vec::with_capacity(shares.len());
    let mut seen = HashSet::new();
    for (topic, shares) in request.topic_data.into_iter().zip(shares).filter(|(_, shares)| !shares.is_empty()) {
        let local = services.partitions.topic(&topic.name);
        for share in &shares {
            let Some(ack) = duties.next() else { break };
            let batch = share.records.map(|(start, len)| batches.take(start, len));
            // Only a request with several partitions can name one twice.
            let repeated = (shares.len() > 1 || !topics.is_empty()) && !seen.insert((topic.name.clone(), share.index));
            let partition = local.as_ref().and_then(|local| local.partition(PartitionIndex(share.index)));
            let checked = match (required, partition) {
                _ if repeated => Err(AppendOutcome::failed(ErrorCode::InvalidRequest)),
                (None, _) => Err(AppendOutcome::failed(ErrorCode::InvalidRequiredAcks)),
                (Some(_), None) => {
                    Err(AppendOutcome::failed(services.absent(&topic.name, PartitionIndex(share.index))))
                }
                (Some(required), Some(partition)) => check(services, cx.version(), partition, batch)
                    .map(|(batch, record_count)| (Arc::clone(partition), required, batch, record_count)),
            };
            match checked {
                Err(outcome) => ack.answer(outcome),
                Ok((partition, required, batch, record_count)) => {
                    services.workers().append(Append { partition, batch, record_count, required, ack }, alone).await;
                }
            }
        }
        topics.push(Topic { name: topic.name, partitions: shares.into_iter().map(|share| share.index).collect() });
        if topics.len() == 1 {
            // The names seen so far count as well once there is a second topic.
            let first = &topics[0];
            seen.extend(first.partitions.iter().map(|index| (first.name.clone(), *index)));
        }
    }
    drop(duties);
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    Ok(PendingProduce { cx, required, topics, acks, deadline: Instant::now() + timeout, expired: false })
}

impl PendingProduce {
    /// When the answer goes out whatever the logs have said.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The deadline has passed.
    pub fn expire(&mut self) {
        self.expired = true;
    }

    pub fn is_done(&self) -> bool {
        self.expired || self.acks.is_done()
    }

    pub fn poll_done(&mut self, context: &Context<'_>) -> Poll<()> {
        if self.expired { Poll::Ready(()) } else { self.acks.poll_done(context) }
    }

    /// Appends the answer's frame to `out`; nothing for acks 0.
    ///
    /// # Errors
    /// acks 0 and a partition failed: the only way to tell the client is to close.
    pub fn finish(self, services: &Services, out: &mut BytesMut) -> Result<(), CloseReason> {
        let outcomes = self.acks.take(ErrorCode::RequestTimedOut);
        if self.required == Some(RequiredAcks::None) {
            return match outcomes.iter().find(|outcome| outcome.error.is_error()) {
                None => Ok(()),
                Some(outcome) => Err(CloseReason::Unacknowledged {
                    reason: outcome.message.clone().unwrap_or_else(|| outcome.error.to_string()),
                }),
            };
        }
        let response = respond(services, &self.cx, self.topics, outcomes);
        header::encode_response(out, self.cx.version(), self.cx.header.correlation_id, &response)
            .map_err(|source| CloseReason::Unwritable { api: ApiKey::Produce, source })
    }
}

/// Cuts batches out of a request's body, front to back, without copying.
struct Batches {
    rest: BytesMut,
    /// Where `rest` begins in the body.
    position: usize,
}

impl Batches {
    /// `body` must be the only handle to its memory; otherwise it is copied.
    fn new(body: Bytes) -> Batches {
        Batches { rest: body.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..])), position: 0 }
    }

    fn take(&mut self, start: usize, len: usize) -> BytesMut {
        drop(self.rest.split_to(start - self.position));
        self.position = start + len;
        self.rest.split_to(len)
    }
}

/// Decodes the request and says where in the body each partition's records lie, so that no handle to the body stays.
fn split(cx: &RequestContext, body: &Bytes) -> Result<(ProduceRequest, Vec<Vec<Share>>), CloseReason> {
    let mut request: ProduceRequest = cx.decode(body)?;
    let start = body.as_ptr() as usize;
    let share = |partition: &mut thalweg_wire::messages::produce::PartitionProduceData| {
        let records = partition.records.take();
        // Slices of the body, as the reader makes them; their places ascend.
        Share {
            index: partition.index,
            records: records.map(|records| match records.len() {
                0 => (0, 0),
                len => (records.as_ptr() as usize - start, len),
            }),
        }
    };
    let mut shares = Vec::with_capacity(request.topic_data.len());
    let mut end = 0;
    for topic in &mut request.topic_data {
        let mut of_topic: Vec<Share> = topic.partition_data.iter_mut().map(share).collect();
        for share in &mut of_topic {
            match &mut share.records {
                // An empty slice has no place of its own.
                Some((start, 0)) => *start = end,
                Some((start, len)) => end = *start + *len,
                None => {}
            }
        }
        shares.push(of_topic);
    }
    Ok((request, shares))
}

/// Validates one batch by its topic's rules; returns it with the number of its records.
fn check(
    services: &Services,
    version: i16,
    partition: &Partition,
    batch: Option<BytesMut>,
) -> Result<(BytesMut, i32), AppendOutcome> {
    partition.check_leader(LeaderEpoch::NONE).map_err(AppendOutcome::failed)?;
    let config = partition.config();
    let now = services.clock.wall();
    let mut batch = batch.unwrap_or_default();
    let checked = check_produced(&batch, &rules(&config, version, now)).map_err(refused)?;
    if checked.header.is_transactional() {
        return Err(AppendOutcome::failed(ErrorCode::InvalidTxnState));
    }
    if config.message_timestamp_type == TimestampType::CreateTime
        && (checked.header.max_timestamp != checked.max_timestamp
            || checked.header.timestamp_type() == TimestampType::LogAppendTime)
    {
        // Some clients leave the header's at -1; lookups by time trust it. And only a broker can know the time of appending.
        batch::set_max_timestamp(&mut batch, TimestampType::CreateTime, checked.max_timestamp);
    }
    let codec = wanted_codec(config.compression_type).filter(|codec| checked.header.compression() != Some(*codec));
    if let Some(codec) = codec {
        batch = recompress(batch, codec).map_err(refused)?;
    }
    Ok((batch, checked.header.record_count))
}

fn rules(config: &TopicConfig, produce_version: i16, now: Timestamp) -> ProduceRules {
    let window = || {
        let (before, after) = (config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms);
        TimestampWindow::around(now, before, after)
    };
    ProduceRules {
        produce_version,
        size_bytes_max: usize::try_from(config.max_message_bytes).unwrap_or(0),
        unpacked_bytes_max: ProduceRules::UNPACKED_BYTES_MAX,
        key_required: config.cleanup_policy.compact,
        timestamps: (config.message_timestamp_type == TimestampType::CreateTime).then(window),
    }
}

fn refused(error: BatchError) -> AppendOutcome {
    let record_indexes = match &error {
        BatchError::KeyMissing { indexes } | BatchError::TimestampOutsideWindow { indexes } => indexes.clone(),
        BatchError::Record { index, .. } => vec![*index],
        _ => Vec::new(),
    };
    AppendOutcome { record_indexes, ..AppendOutcome::failed_because(error.error_code(), error.to_string()) }
}

fn respond(
    services: &Services,
    cx: &RequestContext,
    topics: Vec<Topic>,
    outcomes: Vec<AppendOutcome>,
) -> ProduceResponse {
    let mut outcomes = outcomes.into_iter();
    let mut leaders = Leaders { services, cx, endpoints: Vec::new() };
    let responses = topics.into_iter().map(|topic| {
        let results = topic.partitions.iter().zip(&mut outcomes);
        let partition_responses = results.map(|(index, outcome)| leaders.partition(&topic.name, *index, outcome));
        TopicProduceResponse {
            partition_responses: partition_responses.collect(),
            name: topic.name,
            ..Default::default()
        }
    });
    let responses = responses.collect();
    ProduceResponse { responses, node_endpoints: leaders.endpoints, ..Default::default() }
}

/// Tells clients that came to the wrong broker where to go (KIP-951).
struct Leaders<'a> {
    services: &'a Services,
    cx: &'a RequestContext,
    endpoints: Vec<NodeEndpoint>,
}

impl Leaders<'_> {
    fn partition(&mut self, topic: &str, index: i32, outcome: AppendOutcome) -> PartitionProduceResponse {
        let current_leader = match outcome.error {
            ErrorCode::NotLeaderOrFollower if self.cx.version() >= LEADER_VERSION_MIN => self.leader(topic, index),
            _ => LeaderIdAndEpoch::default(),
        };
        let message = outcome.message;
        let record_errors = outcome.record_indexes.into_iter();
        PartitionProduceResponse {
            index,
            error_code: outcome.error.code(),
            base_offset: outcome.base_offset.0,
            log_append_time_ms: outcome.log_append_time.0,
            log_start_offset: outcome.log_start_offset.0,
            record_errors: record_errors
                .map(|batch_index| BatchIndexAndErrorMessage {
                    batch_index,
                    batch_index_error_message: message.clone(),
                })
                .collect(),
            error_message: message,
            current_leader,
        }
    }

    fn leader(&mut self, topic: &str, index: i32) -> LeaderIdAndEpoch {
        let image = self.services.image();
        let found = image.partition(topic, PartitionIndex(index));
        let Some((leader, epoch)) = found.and_then(|found| Some((found.leader?, found.leader_epoch))) else {
            return LeaderIdAndEpoch::default();
        };
        let broker = image.brokers.get(&leader);
        let address = broker.and_then(|broker| self.cx.address_of(self.services, leader, broker));
        if let Some((host, port)) = address
            && !self.endpoints.iter().any(|endpoint| endpoint.node_id == leader.0)
        {
            let rack = broker.and_then(|broker| broker.rack.clone());
            self.endpoints.push(NodeEndpoint { node_id: leader.0, host, port: i32::from(port), rack });
        }
        LeaderIdAndEpoch { leader_id: leader.0, leader_epoch: epoch.0 }
    }
}

const LEADER_VERSION_MIN: i16 = 10;
