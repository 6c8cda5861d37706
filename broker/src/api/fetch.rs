//! Fetch (key 1, versions 4-18): reads record batches, for consumers.
//!
//! - Consumers see up to the high watermark, read_committed up to the last stable offset; an offset between there and the log's
//!   end is answered empty, beyond it or below the log's start with error 1.
//! - Below `min_bytes` the fetch waits for at most `max_wait_ms`; the first batch is given even if it is larger than every
//!   bound (KIP-74).
//! - Sessions (KIP-227), topic ids from version 13 on (KIP-516), current leaders from version 16 on (KIP-951).
//! - Records leave by sendfile; what is not in the page cache is read in by another thread first.
//! - From version 15 on a request may be a follower's; see [`super::replica_fetch`]. The replica id of earlier versions is not
//!   looked at.
//! - A consumer that names a rack in which the leader does not stand is told of an in-sync replica that does (KIP-392). Followers
//!   serve consumers up to their own high watermark; what they do not have yet is error 78, and the consumer asks the leader.
//! - Whose last record is of an epoch that ended earlier here hears where it ended (KIP-320).

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use thalweg_model::{ErrorCode, LeaderEpoch, NodeId, Offset, PartitionIndex, TopicId, TopicName};
use thalweg_wire::ApiKey;
use thalweg_wire::fetch_response::{
    self, FetchAnswer, FetchAnswerPartition, FetchAnswerTopic, RecordSlice, encode_fetch_response,
};
use thalweg_wire::header::EncodeFrameError;
use thalweg_wire::messages::FetchRequest;
use thalweg_wire::messages::fetch::{
    AbortedTransaction, EpochEndOffset, FetchPartition, ForgottenTopic, LeaderIdAndEpoch, NodeEndpoint, PartitionData,
};
use thalweg_world::send::{FileSlice, Part};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::context::{CloseReason, Reply, RequestContext};
use super::replica_fetch::{self, FollowerConnection};
use crate::machine::delayed::Delayed;
use crate::machine::fetch_session::{Answered, FetchPlan, PartitionKey, SessionRequest, TopicKey, Wanted};
use crate::services::Services;
use crate::shell::fetch_wait::Parked;
use crate::shell::reader::{PartitionRead, ReadBounds, Reader};

/// # Errors
/// The body is not a Fetch request.
pub async fn handle(
    services: &Services,
    cx: &RequestContext,
    body: &Bytes,
    connection: &mut Option<Box<FollowerConnection>>,
    arrived: &Notify,
) -> Result<Reply, CloseReason> {
    let started = Instant::now();
    let mut request: FetchRequest = cx.decode(body)?;
    if let Some(follower) = replica_fetch::follower(&request) {
        let connection = connection.get_or_insert_default();
        // Boxed, so that a consumer's connection does not carry the state of it.
        return Box::pin(replica_fetch::handle(services, cx, connection, follower, request, arrived)).await;
    }
    let impossible = take_impossible(cx.version(), &mut request);
    let bounds = bounds(services, cx.version(), &request);
    let (min_bytes, max_wait_ms) = (request.min_bytes, request.max_wait_ms);
    let plan = match services.fetch_sessions.begin(services, session_request(services, cx.version(), request)) {
        Ok(plan) => plan,
        Err(error) => return encode(cx, refused(error)),
    };
    let reader = Reader::new(services, bounds, &plan.wanted);
    let deadline = started + Duration::from_millis(u64::try_from(max_wait_ms).unwrap_or(0));
    let mut reads = reader.read_all();
    if deadline > started && impossible.is_empty() && !is_enough(&reads, min_bytes) {
        wait(&reader, &reads, min_bytes, deadline).await;
        reads = reader.read_all();
    }
    services.warmer.warm(reads.iter().flat_map(|read| &read.slices)).await;
    services.metrics.fetched_bytes.inc_by(reads.iter().map(PartitionRead::bytes).sum());
    reader.count_out(&reads);
    let mut answer = answer(services, cx, &plan, reads);
    answer.topics.extend(impossible);
    let reply = encode(cx, answer);
    crate::metrics::observe(&services.metrics.fetch_seconds, started.elapsed());
    reply
}

/// Whether the fetch is answered without waiting: enough is there, or something went wrong that the client must hear.
fn is_enough(reads: &[PartitionRead], min_bytes: i32) -> bool {
    let total: u64 = reads.iter().map(PartitionRead::bytes).sum();
    reads.is_empty() || reads.iter().any(|read| read.error.is_error() || read.is_told_more()) || total >= min(min_bytes)
}

/// Waits until enough is there or the time is up.
async fn wait(reader: &Reader<'_>, reads: &[PartitionRead], min_bytes: i32, deadline: Instant) {
    let parked = Parked::new();
    let mut delayed = Delayed::new(min(min_bytes), reads.iter().map(PartitionRead::bytes).collect());
    let mut look: Vec<usize> = (0..reads.len()).collect();
    let time = tokio::time::sleep_until(deadline);
    tokio::pin!(time);
    loop {
        for index in look {
            // First the registration, then the look: a move in between is told.
            reader.park(index, &parked);
            if delayed.looked(index, reader.available(index)) {
                return;
            }
        }
        tokio::select! {
            biased;
            told = parked.told() => look = told,
            () = &mut time => return,
        }
    }
}

fn min(min_bytes: i32) -> u64 {
    u64::try_from(min_bytes).unwrap_or(0)
}

fn bounds(services: &Services, version: i16, request: &FetchRequest) -> ReadBounds {
    let allowed = services.config.properties.size("fetch.max.bytes");
    ReadBounds {
        bytes_max: usize::try_from(request.max_bytes).unwrap_or(0).min(allowed),
        committed_only: request.isolation_level == READ_COMMITTED,
        may_follow: version >= FOLLOWER_VERSION_MIN,
        // An empty rack is none.
        client_rack: Some(request.rack_id.clone()).filter(|rack| !rack.is_empty()),
    }
}

/// Takes topics out of the request whose names no topic can have; returns the answers for them. No session remembers them.
fn take_impossible(version: i16, request: &mut FetchRequest) -> Vec<FetchAnswerTopic<FileSlice>> {
    if version >= TOPIC_ID_VERSION_MIN {
        return Vec::new();
    }
    let impossible = request.topics.extract_if(.., |topic| TopicName::new(&topic.topic).is_err());
    let answers = impossible.map(|topic| {
        let unknown = |partition: FetchPartition| FetchAnswerPartition {
            data: PartitionData {
                partition_index: partition.partition,
                error_code: ErrorCode::UnknownTopicOrPartition.code(),
                high_watermark: Offset::NONE.0,
                ..Default::default()
            },
            records: Vec::new(),
        };
        let partitions = topic.partitions.into_iter().map(unknown).collect();
        FetchAnswerTopic { topic: topic.topic, topic_id: TopicId::ZERO, partitions }
    });
    answers.collect()
}

fn session_request(services: &Services, version: i16, request: FetchRequest) -> SessionRequest {
    let by_topic_id = version >= TOPIC_ID_VERSION_MIN;
    let image = services.image();
    let mut wanted = Vec::new();
    for topic in request.topics {
        let Some(key) = topic_key(by_topic_id, &topic.topic, topic.topic_id) else { continue };
        let id = match &key {
            TopicKey::Id(id) => *id,
            TopicKey::Name(name) => image.topic(name.as_str()).map_or(TopicId::ZERO, |topic| topic.id),
        };
        wanted.extend(topic.partitions.iter().map(|partition| wanted_of(key.clone(), id, partition)));
    }
    let forgotten = |topic: ForgottenTopic| {
        let key = topic_key(by_topic_id, &topic.topic, topic.topic_id);
        let partitions = topic.partitions.into_iter().map(PartitionIndex);
        partitions
            .filter_map(move |partition| Some(PartitionKey { topic: key.clone()?, partition }))
            .collect::<Vec<_>>()
    };
    SessionRequest {
        session_id: request.session_id,
        session_epoch: request.session_epoch,
        by_topic_id,
        wanted,
        forgotten: request.forgotten_topics_data.into_iter().flat_map(forgotten).collect(),
    }
}

/// `None` for a name that no topic can have.
fn topic_key(by_topic_id: bool, name: &str, id: TopicId) -> Option<TopicKey> {
    if by_topic_id { Some(TopicKey::Id(id)) } else { TopicName::new(name).ok().map(TopicKey::Name) }
}

fn wanted_of(topic: TopicKey, topic_id: TopicId, partition: &FetchPartition) -> Wanted {
    Wanted {
        key: PartitionKey { topic, partition: PartitionIndex(partition.partition) },
        topic_id,
        current_leader_epoch: LeaderEpoch(partition.current_leader_epoch),
        fetch_offset: Offset(partition.fetch_offset),
        last_fetched_epoch: LeaderEpoch(partition.last_fetched_epoch),
        max_bytes: partition.partition_max_bytes,
    }
}

pub(super) fn refused(error: ErrorCode) -> FetchAnswer<FileSlice> {
    FetchAnswer {
        throttle_time_ms: 0,
        error_code: error.code(),
        session_id: 0,
        topics: Vec::new(),
        node_endpoints: Vec::new(),
    }
}

fn answer(
    services: &Services,
    cx: &RequestContext,
    plan: &FetchPlan,
    reads: Vec<PartitionRead>,
) -> FetchAnswer<FileSlice> {
    let answered = |read: &PartitionRead| Answered {
        error: read.error,
        high_watermark: read.visible.high_watermark,
        log_start_offset: read.visible.log_start_offset,
        records_bytes: usize::try_from(read.bytes()).unwrap_or(usize::MAX),
        is_told_more: read.is_told_more(),
    };
    let named = services.fetch_sessions.finish(plan, &reads.iter().map(answered).collect::<Vec<_>>());
    let mut leaders = Leaders { services, cx, endpoints: HashMap::new() };
    let mut topics: Vec<FetchAnswerTopic<FileSlice>> = Vec::new();
    let mut last: Option<&TopicKey> = None;
    for ((wanted, read), named) in plan.wanted.iter().zip(reads).zip(named) {
        if !named {
            continue;
        }
        let key = &wanted.key.topic;
        if last != Some(key) {
            let (topic, topic_id) = match key {
                TopicKey::Name(name) => (name.to_string(), TopicId::ZERO),
                TopicKey::Id(id) => (String::new(), *id),
            };
            topics.push(FetchAnswerTopic { topic, topic_id, partitions: Vec::new() });
            last = Some(key);
        }
        if let Some(topic) = topics.last_mut() {
            topic.partitions.push(partition(&mut leaders, wanted, read));
        }
    }
    let node_endpoints = leaders.endpoints.into_values().collect();
    FetchAnswer { throttle_time_ms: 0, error_code: 0, session_id: plan.session_id, topics, node_endpoints }
}

fn partition(leaders: &mut Leaders<'_>, wanted: &Wanted, read: PartitionRead) -> FetchAnswerPartition<FileSlice> {
    let aborted = |aborted: Vec<thalweg_storage::AbortedTxn>| {
        let entries = aborted.into_iter().map(|aborted| AbortedTransaction {
            producer_id: aborted.producer_id.0,
            first_offset: aborted.first_offset.0,
        });
        let mut entries: Vec<AbortedTransaction> = entries.collect();
        entries.sort_by_key(|entry| entry.first_offset);
        entries
    };
    let current_leader = match read.error {
        ErrorCode::NotLeaderOrFollower | ErrorCode::FencedLeaderEpoch => leaders.of(wanted),
        _ => LeaderIdAndEpoch::default(),
    };
    FetchAnswerPartition {
        data: PartitionData {
            partition_index: wanted.key.partition.0,
            error_code: read.error.code(),
            high_watermark: read.visible.high_watermark.0,
            last_stable_offset: read.visible.last_stable_offset.0,
            log_start_offset: read.visible.log_start_offset.0,
            aborted_transactions: read.aborted.map(aborted),
            current_leader,
            preferred_read_replica: read.preferred.unwrap_or(NodeId::NONE).0,
            diverging_epoch: read.diverging.map_or_else(EpochEndOffset::default, |end| EpochEndOffset {
                epoch: end.epoch.0,
                end_offset: end.end_offset.0,
            }),
            ..Default::default()
        },
        records: read
            .slices
            .into_iter()
            .filter_map(|source| Some(RecordSlice { bytes: u32::try_from(source.length).ok()?, source }))
            .collect(),
    }
}

pub(super) fn encode(cx: &RequestContext, answer: FetchAnswer<FileSlice>) -> Result<Reply, CloseReason> {
    let parts = encode_fetch_response(answer, cx.version(), cx.header.correlation_id)
        .map_err(|source| CloseReason::Unwritable { api: ApiKey::Fetch, source: EncodeFrameError::Body(source) })?;
    let parts = parts.into_iter().map(|part| match part {
        fetch_response::Part::Bytes(bytes) => Part::Bytes(bytes),
        fetch_response::Part::Records(slice) => Part::File(slice.source),
    });
    Ok(Reply::Parts(parts.collect()))
}

/// Tells clients that came to the wrong broker where to go (KIP-951).
struct Leaders<'a> {
    services: &'a Services,
    cx: &'a RequestContext,
    endpoints: HashMap<NodeId, NodeEndpoint>,
}

impl Leaders<'_> {
    fn of(&mut self, wanted: &Wanted) -> LeaderIdAndEpoch {
        if self.cx.version() < LEADER_VERSION_MIN {
            return LeaderIdAndEpoch::default();
        }
        let image = self.services.image();
        let topic = match &wanted.key.topic {
            TopicKey::Name(name) => image.topic(name.as_str()),
            TopicKey::Id(id) => image.topic_by_id(*id),
        };
        let found = topic.and_then(|topic| topic.partitions.get(&wanted.key.partition));
        let Some((leader, epoch)) = found.and_then(|found| Some((found.leader?, found.leader_epoch))) else {
            return LeaderIdAndEpoch::default();
        };
        if let Some(broker) = image.brokers.get(&leader)
            && let Some((host, port)) = self.cx.address_of(self.services, leader, broker)
        {
            let endpoint = NodeEndpoint { node_id: leader.0, host, port: i32::from(port), rack: broker.rack.clone() };
            self.endpoints.insert(leader, endpoint);
        }
        LeaderIdAndEpoch { leader_id: leader.0, leader_epoch: epoch.0 }
    }
}

const READ_COMMITTED: i8 = 1;
const TOPIC_ID_VERSION_MIN: i16 = 13;
const LEADER_VERSION_MIN: i16 = 16;
/// From here on consumers name their rack and may read from followers (KIP-392).
const FOLLOWER_VERSION_MIN: i16 = 11;
