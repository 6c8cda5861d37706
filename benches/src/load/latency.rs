//! One record a request at a fixed rate, and a consumer that waits for each: how long both take.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use thalweg_wire::Message;
use thalweg_wire::batch::Batches;
use thalweg_wire::messages::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use thalweg_wire::messages::produce::{PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData};

use super::connection::Frame;
use super::{Batch, Connection, Target, Topic};

/// A rate that does not wait for answers, so that a slow answer delays no later record until the socket is full.
#[derive(Clone, Debug)]
pub struct LatencyLoad {
    /// One record.
    pub batch: Batch,
    pub acks: i16,
    pub per_second: f64,
    pub duration: Duration,
}

/// In µs, one for each record, from just before its request was written.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// Less than was asked for when the broker takes no more.
    pub sent_per_second: f64,
    pub to_ack_us: Vec<f64>,
    pub to_consumer_us: Vec<f64>,
    pub server_cpu_us_per_record: f64,
}

/// Runs the load on partition 0, after what is there already.
pub fn latency(target: &Target, topic: &Topic, load: &LatencyLoad) -> Result<Latencies> {
    let count = (load.per_second * load.duration.as_secs_f64()) as usize;
    let begin = topic.end_offset()?;
    let leader = topic.leader(0)?;
    let (mut producer, acks) = Connection::open(leader)?.split()?;
    let consumer = Connection::open(leader)?;
    let stop = AtomicBool::new(false);
    let cpu = target.processes.cpu()?;
    let (to_acks, of_acks) = sync_channel(count);
    let (to_consumer, of_consumer) = sync_channel(count);
    let (sent, to_ack_us, to_consumer_us) = std::thread::scope(|scope| {
        let acks = scope.spawn(|| take_acks(acks, of_acks, count));
        let consumer = scope.spawn(|| take_records(consumer, topic, begin, of_consumer, count, &stop));
        let sent = send_at_rate(&mut producer, topic, load, count, &[to_acks, to_consumer]);
        stop.store(sent.is_err(), Ordering::Relaxed);
        (sent, acks.join(), consumer.join())
    });
    let took = sent?;
    let server_cpu = target.processes.cpu()?.since(cpu);
    Ok(Latencies {
        sent_per_second: count as f64 / took.as_secs_f64(),
        to_ack_us: to_ack_us.map_err(|_| anyhow!("the reader of answers panicked"))??,
        to_consumer_us: to_consumer_us.map_err(|_| anyhow!("the consumer panicked"))??,
        server_cpu_us_per_record: server_cpu.as_secs_f64() * 1e6 / count as f64,
    })
}

/// Tells each of `readers` when each record was sent; how long all took.
fn send_at_rate(
    producer: &mut Connection,
    topic: &Topic,
    load: &LatencyLoad,
    count: usize,
    readers: &[SyncSender<Instant>; 2],
) -> Result<Duration> {
    // Without it a sleep takes 50 µs longer than asked. It is of this thread; a failure costs accuracy alone.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    let data = PartitionProduceData { index: 0, records: Some(load.batch.bytes.clone()) };
    let data = TopicProduceData {
        name: topic.name.as_str().into(),
        partition_data: vec![data],
        ..TopicProduceData::default()
    };
    let request =
        ProduceRequest { acks: load.acks, timeout_ms: 30_000, topic_data: vec![data], ..ProduceRequest::default() };
    let mut frame = Frame::encode(&request, PRODUCE_VERSION)?;
    let began = Instant::now();
    for index in 0..count {
        let due = began + Duration::from_secs_f64(index as f64 / load.per_second);
        if let Some(early) = due.checked_duration_since(Instant::now()) {
            std::thread::sleep(early);
        }
        let sent_at = Instant::now();
        for reader in readers {
            reader.send(sent_at)?;
        }
        producer.send(&mut frame)?;
    }
    Ok(began.elapsed())
}

fn take_acks(mut acks: Connection, sent: Receiver<Instant>, count: usize) -> Result<Vec<f64>> {
    let mut micros = Vec::with_capacity(count);
    for (correlation_id, sent_at) in (0..).zip(sent) {
        let answer = acks.answer::<ProduceRequest>(correlation_id, PRODUCE_VERSION)?;
        micros.push(sent_at.elapsed().as_secs_f64() * 1e6);
        let answer = ProduceResponse::decode_body(&answer, PRODUCE_VERSION)?;
        let partition = answer.responses.first().and_then(|topic| topic.partition_responses.first());
        let error_code = partition.context("an empty answer to a Produce")?.error_code;
        ensure!(error_code == 0, "Produce failed with error {error_code}");
    }
    Ok(micros)
}

fn take_records(
    mut consumer: Connection,
    topic: &Topic,
    mut offset: i64,
    sent: Receiver<Instant>,
    count: usize,
    stop: &AtomicBool,
) -> Result<Vec<f64>> {
    let mut micros = Vec::with_capacity(count);
    while micros.len() < count && !stop.load(Ordering::Relaxed) {
        let correlation_id = consumer.send(&mut Frame::encode(&fetch(topic, offset), FETCH_VERSION)?)?;
        let answer = consumer.answer::<FetchRequest>(correlation_id, FETCH_VERSION)?;
        let answer = FetchResponse::decode_body(&answer, FETCH_VERSION)?;
        let arrived = Instant::now();
        let partition = answer.responses.first().and_then(|topic| topic.partitions.first());
        let partition = partition.context("an empty answer to a Fetch")?;
        ensure!(partition.error_code == 0, "Fetch failed with error {}", partition.error_code);
        for batch in Batches::new(partition.records.as_ref().unwrap_or(&bytes::Bytes::new())) {
            let (header, _) = batch?;
            ensure!(header.base_offset.0 == offset, "offset {} where {offset} is next", header.base_offset.0);
            offset = header.next_offset().0;
            micros.push((arrived - sent.recv()?).as_secs_f64() * 1e6);
        }
    }
    Ok(micros)
}

fn fetch(topic: &Topic, offset: i64) -> FetchRequest {
    let partition =
        FetchPartition { fetch_offset: offset, partition_max_bytes: FETCH_BYTES, ..FetchPartition::default() };
    let topic = FetchTopic { topic: topic.name.as_str().into(), partitions: vec![partition], ..FetchTopic::default() };
    FetchRequest {
        max_wait_ms: 500,
        min_bytes: 1,
        max_bytes: FETCH_BYTES,
        topics: vec![topic],
        ..FetchRequest::default()
    }
}

const FETCH_BYTES: i32 = 1 << 20;
const PRODUCE_VERSION: i16 = 9;
const FETCH_VERSION: i16 = 12;
