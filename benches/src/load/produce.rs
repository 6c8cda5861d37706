//! Produce requests, pipelined over one or several connections.

use std::collections::VecDeque;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use thalweg_wire::Message;
use thalweg_wire::messages::produce::{PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData};

use super::connection::Frame;
use super::{Batch, Connection, Limits, Outcome, Target, Topic};
use crate::process::thread_cpu;

/// One batch, sent again and again.
#[derive(Clone, Debug)]
pub struct ProduceLoad {
    pub batch: Batch,
    /// -1 for all, 1 for the leader alone.
    pub acks: i16,
    /// Requests of one connection that wait for their answer.
    pub in_flight: usize,
    /// From 0; each of them is written to.
    pub partition_count: i32,
    /// A request carries the batch for each of so many neighbours, which must have one leader; a connection has its own
    /// ones. Divides `partition_count`.
    pub partitions_per_request: i32,
    pub limits: Limits,
    /// Whether to keep the latency of each request.
    pub timed: bool,
}

impl ProduceLoad {
    /// A single request to each of the partitions, over a connection each.
    pub fn one_request_each(batch: &Batch, partition_count: i32) -> ProduceLoad {
        ProduceLoad {
            batch: batch.clone(),
            acks: 1,
            in_flight: 1,
            partition_count,
            partitions_per_request: 1,
            limits: Limits { duration: Duration::ZERO, bytes: 0 },
            timed: false,
        }
    }

    pub fn connection_count(&self) -> i32 {
        self.partition_count / self.partitions_per_request
    }

    fn batches_per_request(&self) -> u64 {
        u64::from(self.partitions_per_request.unsigned_abs())
    }
}

/// Runs the load; every request must be acknowledged at the next offset.
pub fn produce(target: &Target, topic: &Topic, load: &ProduceLoad) -> Result<Outcome> {
    let barrier = Barrier::new(usize::try_from(load.connection_count())? + 1);
    std::thread::scope(|scope| {
        let producers: Vec<_> = (0..load.connection_count())
            .map(|connection| {
                let barrier = &barrier;
                scope.spawn(move || {
                    let producer = Producer::new(topic, connection * load.partitions_per_request, load);
                    barrier.wait();
                    producer?.run(load)
                })
            })
            .collect();
        let cpu = target.processes.cpu();
        let began = Instant::now();
        barrier.wait();
        let shares: Vec<Result<Share>> =
            producers.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a producer panicked"))?).collect();
        let elapsed = began.elapsed();
        let server_cpu = target.processes.cpu()?.since(cpu?);
        let mut outcome = Outcome {
            request_count: 0,
            record_count: 0,
            bytes: 0,
            elapsed,
            server_cpu,
            client_cpu: Duration::ZERO,
            latencies_us: Vec::new(),
        };
        for share in shares {
            let share = share?;
            outcome.request_count += share.request_count;
            outcome.client_cpu += share.cpu;
            outcome.latencies_us.extend(share.latencies_us);
        }
        outcome.record_count = outcome.request_count * load.batches_per_request() * load.batch.record_count;
        outcome.bytes = outcome.request_count * load.batches_per_request() * load.batch.value_bytes;
        Ok(outcome)
    })
}

/// What one connection did.
struct Share {
    request_count: u64,
    cpu: Duration,
    latencies_us: Vec<f64>,
}

struct Producer {
    connection: Connection,
    frame: Frame,
    sent: VecDeque<(i32, Instant)>,
    next_offset: Option<i64>,
}

impl Producer {
    fn new(topic: &Topic, first: i32, load: &ProduceLoad) -> Result<Producer> {
        let data = |index| PartitionProduceData { index, records: Some(load.batch.bytes.clone()) };
        let data = TopicProduceData {
            name: topic.name.as_str().into(),
            partition_data: (first..first + load.partitions_per_request).map(data).collect(),
            ..TopicProduceData::default()
        };
        let request =
            ProduceRequest { acks: load.acks, timeout_ms: 30_000, topic_data: vec![data], ..ProduceRequest::default() };
        let frame = Frame::encode(&request, VERSION)?;
        Ok(Producer {
            connection: Connection::open(topic.leader(first)?)?,
            frame,
            sent: VecDeque::new(),
            next_offset: None,
        })
    }

    fn run(mut self, load: &ProduceLoad) -> Result<Share> {
        let cpu = thread_cpu();
        let began = Instant::now();
        let share_of_bytes = load.limits.bytes / u64::from(load.connection_count().unsigned_abs());
        let request_count_max = (share_of_bytes / load.batch.value_bytes / load.batches_per_request()).max(1);
        let mut request_count = 0;
        let mut latencies_us = Vec::new();
        loop {
            let over =
                request_count > 0 && (request_count >= request_count_max || began.elapsed() >= load.limits.duration);
            if !over && self.sent.len() < load.in_flight {
                let correlation_id = self.connection.send(&mut self.frame)?;
                self.sent.push_back((correlation_id, Instant::now()));
                request_count += 1;
                continue;
            }
            let Some((correlation_id, sent_at)) = self.sent.pop_front() else { break };
            self.take_answer(correlation_id, load.batch.record_count)?;
            if load.timed {
                latencies_us.push(sent_at.elapsed().as_secs_f64() * 1e6);
            }
        }
        Ok(Share { request_count, cpu: thread_cpu() - cpu, latencies_us })
    }

    fn take_answer(&mut self, correlation_id: i32, record_count: u64) -> Result<()> {
        let answer = self.connection.answer::<ProduceRequest>(correlation_id, VERSION)?;
        let answer = ProduceResponse::decode_body(&answer, VERSION)?;
        let partitions = &answer.responses.first().context("an empty answer to a Produce")?.partition_responses;
        for partition in partitions {
            ensure!(partition.error_code == 0, "Produce failed with error {}", partition.error_code);
        }
        // Of the first one alone: the others are written to in the same way.
        let base_offset = partitions.first().context("an empty answer to a Produce")?.base_offset;
        let expected = self.next_offset.unwrap_or(base_offset);
        ensure!(base_offset == expected, "appended at {base_offset}, not {expected}");
        self.next_offset = Some(expected + i64::try_from(record_count)?);
        Ok(())
    }
}

/// The first with compact lengths.
const VERSION: i16 = 9;
