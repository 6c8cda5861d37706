//! The producer's background task: carries out the accumulator's plans.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use thalweg_model::{ErrorCode, NodeId, Offset, ProducerEpoch, ProducerId, Timestamp, TopicId, TopicPartition};
use thalweg_wire::messages::produce::{PartitionProduceData, PartitionProduceResponse, TopicProduceData};
use thalweg_wire::messages::{InitProducerIdRequest, ProduceRequest, ProduceResponse};
use tokio::sync::mpsc;
use tracing::{debug, warn};

use super::accumulator::{Outbound, Plan};
use super::batch::Identity;
use super::encode::encode_batch;
use super::{Acks, Shared};
use crate::client::{Client, Lane};
use crate::config::Compression;
use crate::error::{ClientError, Result};
use crate::net::{Answer, Connection};

/// One per producer. Each broker has a lane task that encodes and sends its requests in order.
pub(super) struct Sender {
    shared: Arc<Shared>,
    lanes: BTreeMap<NodeId, LaneHandle>,
    done: mpsc::UnboundedReceiver<Done>,
    done_sender: mpsc::UnboundedSender<Done>,
    refresh: Option<tokio::task::JoinHandle<()>>,
    identity: Option<tokio::task::JoinHandle<()>>,
    /// Helpers that failed are not started again before this.
    helpers_at: Instant,
}

struct LaneHandle {
    requests: mpsc::UnboundedSender<Vec<Outbound>>,
    in_flight: usize,
    task: tokio::task::JoinHandle<()>,
}

/// A request's end, one result per batch.
struct Done {
    node: NodeId,
    results: Vec<(Outbound, std::result::Result<Written, Failure>)>,
}

struct Written {
    base_offset: Offset,
    append_time: Timestamp,
}

struct Failure {
    error: ClientError,
    sent: bool,
}

impl Sender {
    pub(super) fn new(shared: Arc<Shared>) -> Sender {
        let (done_sender, done) = mpsc::unbounded_channel();
        let helpers_at = Instant::now();
        Sender { shared, lanes: BTreeMap::new(), done, done_sender, refresh: None, identity: None, helpers_at }
    }

    pub(super) async fn run(mut self) {
        loop {
            let plan = self.plan();
            self.shared.release();
            let next_at = plan.next_at;
            let is_stuck = plan.leader_unknown || plan.identity_wanted;
            self.carry_out(plan);
            if self.shared.state().closing && self.lanes.values().all(|lane| lane.in_flight == 0) {
                return;
            }
            let now = self.shared.client.clock().mono();
            // A helper that has just failed is started again after a pause.
            let idle = if is_stuck { self.shared.client.config().backoff } else { IDLE_WAIT };
            let wait = next_at.map_or(idle, |at| at.since(now).min(idle));
            let shared = Arc::clone(&self.shared);
            // The branches commute: each only brings the next plan forward.
            tokio::select! {
                () = shared.changed.notified() => {}
                Some(done) = self.done.recv() => {
                    self.finish(done);
                    while let Ok(done) = self.done.try_recv() {
                        self.finish(done);
                    }
                }
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    fn plan(&self) -> Plan {
        let metadata = self.shared.client.metadata();
        let in_flight_max = self.shared.config.in_flight_max;
        let now = self.shared.client.clock().mono();
        self.shared.state().accumulator.plan(
            now,
            |tp| metadata.leader(tp.topic.as_str(), tp.partition.0).map(|(node, _)| node),
            |node| in_flight_max.saturating_sub(self.lanes.get(&node).map_or(0, |lane| lane.in_flight)),
        )
    }

    fn carry_out(&mut self, plan: Plan) {
        for (node, batches) in plan.requests {
            let lane = self.lanes.entry(node).or_insert_with(|| {
                let (requests, queue) = mpsc::unbounded_channel();
                let shared = Arc::clone(&self.shared);
                let task = tokio::spawn(run_lane(shared, node, queue, self.done_sender.clone()));
                LaneHandle { requests, in_flight: 0, task }
            });
            lane.in_flight += 1;
            if let Err(refused) = lane.requests.send(batches) {
                let error = ClientError::Closed;
                let failed = |batch| (batch, Err(Failure { error: error.clone(), sent: false }));
                let results = refused.0.into_iter().map(failed).collect();
                // We hold the receiver.
                let _ = self.done_sender.send(Done { node, results });
            }
        }
        if plan.leader_unknown {
            self.refresh_metadata();
        }
        if plan.identity_wanted {
            self.ask_identity();
        }
    }

    fn finish(&mut self, done: Done) {
        if let Some(lane) = self.lanes.get_mut(&done.node) {
            lane.in_flight = lane.in_flight.saturating_sub(1);
        }
        let now = self.shared.client.clock().mono();
        let mut stale = false;
        {
            let mut state = self.shared.state();
            for (batch, result) in done.results {
                match result {
                    Ok(written) => {
                        state.accumulator.on_written(&batch.tp, batch.id, written.base_offset, written.append_time);
                    }
                    Err(Failure { error, sent }) => {
                        debug!(tp = %batch.tp, %error, "batch not acknowledged");
                        stale |= error.code().is_none_or(is_metadata_stale);
                        state.accumulator.on_failed(&batch.tp, batch.id, error, sent, now);
                    }
                }
            }
        }
        self.shared.release();
        if stale {
            self.refresh_metadata();
        }
    }

    fn refresh_metadata(&mut self) {
        if !may_start(&mut self.refresh, &mut self.helpers_at, self.shared.client.config().backoff) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        self.refresh = Some(tokio::spawn(async move {
            if let Err(error) = refresh(&shared).await {
                warn!(%error, "no fresh metadata");
            }
            shared.changed.notify_one();
        }));
    }

    fn ask_identity(&mut self) {
        if !may_start(&mut self.identity, &mut self.helpers_at, self.shared.client.config().backoff) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        self.identity = Some(tokio::spawn(async move {
            match new_identity(&shared.client).await {
                Ok(identity) => shared.state().accumulator.set_identity(identity),
                Err(error) if error.is_retriable() => warn!(%error, "no producer id"),
                // Nothing can be sent without one.
                Err(error) => shared.state().accumulator.fail_all(&error),
            }
            shared.changed.notify_one();
        }));
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let helpers = self.refresh.iter().chain(&self.identity);
        for task in helpers.chain(self.lanes.values().map(|lane| &lane.task)) {
            task.abort();
        }
    }
}

/// Whether a helper may be started: the last one has ended, and not just now.
fn may_start(helper: &mut Option<tokio::task::JoinHandle<()>>, at: &mut Instant, pause: Duration) -> bool {
    if helper.as_ref().is_some_and(|task| !task.is_finished()) || (helper.is_some() && Instant::now() < *at) {
        return false;
    }
    *at = Instant::now() + pause;
    true
}

/// Asks for the topics that have records waiting.
async fn refresh(shared: &Shared) -> Result<()> {
    shared.client.refresh_metadata().await?;
    let topics = shared.state().accumulator.topics();
    for topic in topics {
        match shared.client.fetch_topic(&topic, shared.config.create_topics).await {
            Ok(info) => shared.learn(&info)?,
            Err(error) if error.is_retriable() => debug!(%topic, %error, "topic not ready"),
            Err(error) => shared.state().accumulator.fail_topic(&topic, &error),
        }
    }
    Ok(())
}

async fn new_identity(client: &Client) -> Result<Identity> {
    let request =
        InitProducerIdRequest { transactional_id: None, transaction_timeout_ms: i32::MAX, ..Default::default() };
    let answer = client
        .retrying(|| async {
            let answer = client.call_any(&request).await?;
            ClientError::check(answer.error_code, || "producer id".to_owned(), None)?;
            Ok(answer)
        })
        .await?;
    Ok(Identity { producer_id: ProducerId(answer.producer_id), epoch: ProducerEpoch(answer.producer_epoch) })
}

/// Encodes and sends one broker's requests, one after the other, and leaves their answers to tasks.
async fn run_lane(
    shared: Arc<Shared>,
    node: NodeId,
    mut queue: mpsc::UnboundedReceiver<Vec<Outbound>>,
    done: mpsc::UnboundedSender<Done>,
) {
    while let Some(batches) = queue.recv().await {
        match submit(&shared, node, &batches).await {
            Ok(Submitted::Answered(answer, topic_ids)) => {
                let done = done.clone();
                let address_of = node;
                tokio::spawn(async move {
                    let results = match answer.wait().await {
                        Ok(response) => results_of(batches, &response, &topic_ids, address_of),
                        Err(error) => all_failed(batches, &error, true),
                    };
                    // Nobody listens any more only when the producer is gone.
                    let _ = done.send(Done { node, results });
                });
            }
            Ok(Submitted::Unanswered) => {
                let written = |batch| (batch, Ok(Written { base_offset: Offset::NONE, append_time: Timestamp::NONE }));
                let _ = done.send(Done { node, results: batches.into_iter().map(written).collect() });
            }
            Err(Failure { error, sent }) => {
                let _ = done.send(Done { node, results: all_failed(batches, &error, sent) });
            }
        }
    }
}

enum Submitted {
    Answered(Answer<ProduceRequest>, BTreeMap<TopicId, String>),
    Unanswered,
}

async fn submit(shared: &Shared, node: NodeId, batches: &[Outbound]) -> std::result::Result<Submitted, Failure> {
    let unsent = |error| Failure { error, sent: false };
    let encoded = encode_all(batches, shared.config.compression).await.map_err(unsent)?;
    let connection = shared.client.connection(node, Lane::Produce(shared.owner)).await.map_err(unsent)?;
    let topic_ids = topic_ids(&shared.client, batches);
    let version = version(&connection, topic_ids.is_some()).map_err(unsent)?;
    let topic_ids = topic_ids.unwrap_or_default();
    let request = ProduceRequest {
        transactional_id: None,
        acks: shared.config.acks.code(),
        timeout_ms: millis(shared.client.config().request_timeout),
        topic_data: topic_data(batches, encoded, &topic_ids),
    };
    if shared.config.acks == Acks::None {
        let sent = connection.submit_unanswered(&request, version).await;
        return sent.map(|()| Submitted::Unanswered).map_err(|error| Failure { error, sent: true });
    }
    let answer = connection.submit(&request, version, Duration::ZERO).await;
    let names = topic_ids.into_iter().map(|(name, id)| (id, name)).collect();
    answer.map(|answer| Submitted::Answered(answer, names)).map_err(|error| Failure { error, sent: true })
}

/// Versions from 13 on name topics by id.
fn version(connection: &Connection, ids_known: bool) -> Result<i16> {
    connection.version_of::<ProduceRequest>(if ids_known { i16::MAX } else { LAST_VERSION_WITH_NAMES })
}

/// Ids of the batches' topics; `None` unless all are known.
fn topic_ids(client: &Client, batches: &[Outbound]) -> Option<BTreeMap<String, TopicId>> {
    let metadata = client.metadata();
    let id_of = |batch: &Outbound| {
        let topic = metadata.topic(batch.tp.topic.as_str())?;
        (!topic.id.is_zero()).then(|| (topic.name.clone(), topic.id))
    };
    batches.iter().map(id_of).collect()
}

fn topic_data(batches: &[Outbound], encoded: Vec<Bytes>, ids: &BTreeMap<String, TopicId>) -> Vec<TopicProduceData> {
    let mut topics: BTreeMap<&str, Vec<PartitionProduceData>> = BTreeMap::new();
    for (batch, records) in batches.iter().zip(encoded) {
        let data = PartitionProduceData { index: batch.tp.partition.0, records: Some(records) };
        topics.entry(batch.tp.topic.as_str()).or_default().push(data);
    }
    let topic = |(name, partition_data): (&str, _)| TopicProduceData {
        name: name.to_owned(),
        topic_id: ids.get(name).copied().unwrap_or(TopicId::ZERO),
        partition_data,
    };
    topics.into_iter().map(topic).collect()
}

async fn encode_all(batches: &[Outbound], compression: Compression) -> Result<Vec<Bytes>> {
    let batches = batches.to_vec();
    let encode = move || {
        batches
            .iter()
            .map(|batch| encode_batch(batch.tp.topic.as_str(), &batch.records, compression, batch.sequence))
            .collect()
    };
    if compression == Compression::None {
        return encode();
    }
    // Compressing a full request takes milliseconds.
    tokio::task::spawn_blocking(encode).await.unwrap_or(Err(ClientError::Closed))
}

fn results_of(
    batches: Vec<Outbound>,
    response: &ProduceResponse,
    names: &BTreeMap<TopicId, String>,
    node: NodeId,
) -> Vec<(Outbound, std::result::Result<Written, Failure>)> {
    let mut found: BTreeMap<(&str, i32), &PartitionProduceResponse> = BTreeMap::new();
    for topic in &response.responses {
        let name = names.get(&topic.topic_id).map_or(topic.name.as_str(), String::as_str);
        found.extend(topic.partition_responses.iter().map(|partition| ((name, partition.index), partition)));
    }
    let result_of = |batch: &Outbound| match found.get(&(batch.tp.topic.as_str(), batch.tp.partition.0)) {
        Some(partition) => result(&batch.tp, partition),
        None => Err(ClientError::Malformed {
            what: "Produce",
            address: format!("broker {node}"),
            detail: format!("nothing is said of {}", batch.tp),
        }),
    };
    batches
        .into_iter()
        .map(|batch| {
            let result = result_of(&batch).map_err(|error| Failure { error, sent: true });
            (batch, result)
        })
        .collect()
}

fn result(tp: &TopicPartition, partition: &PartitionProduceResponse) -> Result<Written> {
    if partition.error_code == 0 {
        let append_time = Timestamp(partition.log_append_time_ms);
        return Ok(Written { base_offset: Offset(partition.base_offset), append_time });
    }
    let mut detail = partition.error_message.clone().unwrap_or_default();
    if let Some(first) = partition.record_errors.first() {
        let message = first.batch_index_error_message.as_deref().unwrap_or("refused");
        detail = format!("{detail} (record {} of the batch: {message})", first.batch_index);
    }
    if partition.error_code == ErrorCode::MessageTooLarge as i16 {
        detail.push_str("; raise max.message.bytes of the topic, or send smaller records");
    }
    let detail = detail.trim_start_matches("; ").trim().to_owned();
    Err(ClientError::from_code(partition.error_code, tp.to_string(), Some(detail)))
}

fn all_failed(
    batches: Vec<Outbound>,
    error: &ClientError,
    sent: bool,
) -> Vec<(Outbound, std::result::Result<Written, Failure>)> {
    batches.into_iter().map(|batch| (batch, Err(Failure { error: error.clone(), sent }))).collect()
}

/// Whether an error means that the leader is another one.
fn is_metadata_stale(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::UnknownTopicOrPartition
            | ErrorCode::LeaderNotAvailable
            | ErrorCode::NotLeaderOrFollower
            | ErrorCode::KafkaStorageError
            | ErrorCode::FencedLeaderEpoch
            | ErrorCode::UnknownLeaderEpoch
            | ErrorCode::UnknownTopicId
            | ErrorCode::InconsistentTopicId
    )
}

fn millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

const LAST_VERSION_WITH_NAMES: i16 = 12;
/// A look around when nothing is to be expected.
const IDLE_WAIT: Duration = Duration::from_secs(10);
