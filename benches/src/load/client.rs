//! A client that does all the work of one: encodes every record anew, reads and checks every record that comes.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use thalweg_wire::Message;
use thalweg_wire::batch::{BatchHeader, Batches, verify_crc};
use thalweg_wire::compression::Compression;
use thalweg_wire::messages::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use thalweg_wire::messages::produce::{PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData};
use thalweg_wire::records::{RecordBatchBuilder, Records};
use thalweg_world::Clock;

use super::connection::Frame;
use super::{Connection, Topic};
use crate::process::thread_cpu;

/// Messages of one size, to or from partition 0.
#[derive(Clone, Copy, Debug)]
pub struct Messages {
    pub count: u64,
    pub value_bytes: usize,
    /// Records of a batch; each batch is a request.
    pub per_batch: u64,
    /// Records that may be unacknowledged at a time.
    pub window: u64,
    /// Bytes that a fetch asks for.
    pub prefetch_bytes: i32,
}

/// What the client took.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    pub elapsed: Duration,
    pub client_cpu: Duration,
}

/// Sends with `acks=1`; every request must be acknowledged at the next offset.
pub fn send(topic: &Topic, messages: &Messages) -> Result<Took> {
    let mut connection = Connection::open(topic.leader(0)?)?;
    let value = vec![0x5a; messages.value_bytes];
    let in_flight = usize::try_from((messages.window / messages.per_batch).max(1))?;
    let (began, cpu) = (Instant::now(), thread_cpu());
    let mut unanswered: VecDeque<(i32, u64)> = VecDeque::with_capacity(in_flight);
    let mut next_offset = None;
    let mut left = messages.count;
    while left > 0 || !unanswered.is_empty() {
        if left > 0 && unanswered.len() < in_flight {
            let count = left.min(messages.per_batch);
            let mut frame = Frame::encode(&produce_request(topic, &value, count)?, PRODUCE_VERSION)?;
            unanswered.push_back((connection.send(&mut frame)?, count));
            left -= count;
            continue;
        }
        let Some((correlation_id, count)) = unanswered.pop_front() else { break };
        let answer = connection.answer::<ProduceRequest>(correlation_id, PRODUCE_VERSION)?;
        let answer = ProduceResponse::decode_body(&answer, PRODUCE_VERSION)?;
        let partition = answer.responses.first().and_then(|topic| topic.partition_responses.first());
        let partition = partition.context("an empty answer to a Produce")?;
        ensure!(partition.error_code == 0, "Produce failed with error {}", partition.error_code);
        let expected = next_offset.unwrap_or(partition.base_offset);
        ensure!(partition.base_offset == expected, "appended at {}, not {expected}", partition.base_offset);
        next_offset = Some(expected + i64::try_from(count)?);
    }
    Ok(Took { elapsed: began.elapsed(), client_cpu: thread_cpu() - cpu })
}

/// Reads `messages.count` records from `offset`; the next fetch is under way while the last one's records are read.
pub fn receive(topic: &Topic, mut offset: i64, messages: &Messages) -> Result<Took> {
    let mut connection = Connection::open(topic.leader(0)?)?;
    let (began, cpu) = (Instant::now(), thread_cpu());
    let mut read = 0;
    let mut asked = ask(&mut connection, topic, offset, messages)?;
    while read < messages.count {
        let answer = connection.answer::<FetchRequest>(asked, FETCH_VERSION)?;
        let answer = FetchResponse::decode_body(&answer, FETCH_VERSION)?;
        let partition = answer.responses.first().and_then(|topic| topic.partitions.first());
        let partition = partition.context("an empty answer to a Fetch")?;
        ensure!(partition.error_code == 0, "Fetch failed with error {}", partition.error_code);
        let records = partition.records.clone().unwrap_or_default();
        let batches = whole_batches(&records)?;
        let (last, _) = batches.last().with_context(|| format!("no whole batch at {offset}"))?;
        let first_wanted = offset;
        offset = last.next_offset().0;
        if read + u64::try_from(offset - first_wanted)? < messages.count {
            asked = ask(&mut connection, topic, offset, messages)?;
        }
        for (_, batch) in batches {
            verify_crc(&batch)?;
            for record in Records::open(&batch, MESSAGE_BYTES_MAX)? {
                let record = record?;
                let size = record.value.as_ref().map_or(0, Bytes::len);
                ensure!(size == messages.value_bytes, "a value of {size} bytes");
                read += u64::from(record.offset.0 >= first_wanted);
            }
        }
    }
    Ok(Took { elapsed: began.elapsed(), client_cpu: thread_cpu() - cpu })
}

fn produce_request(topic: &Topic, value: &[u8], record_count: u64) -> Result<ProduceRequest> {
    let timestamp = Clock::real().wall();
    let mut batch = RecordBatchBuilder::new(Compression::None);
    for _ in 0..record_count {
        batch.append(timestamp, None, Some(value), &[]);
    }
    let data = PartitionProduceData { index: 0, records: Some(batch.build()?) };
    let data = TopicProduceData {
        name: topic.name.as_str().into(),
        partition_data: vec![data],
        ..TopicProduceData::default()
    };
    Ok(ProduceRequest { acks: 1, timeout_ms: 30_000, topic_data: vec![data], ..ProduceRequest::default() })
}

fn ask(connection: &mut Connection, topic: &Topic, offset: i64, messages: &Messages) -> Result<i32> {
    let max_bytes = messages.prefetch_bytes;
    let partition =
        FetchPartition { fetch_offset: offset, partition_max_bytes: max_bytes, ..FetchPartition::default() };
    let topic = FetchTopic { topic: topic.name.as_str().into(), partitions: vec![partition], ..FetchTopic::default() };
    let request =
        FetchRequest { max_wait_ms: 500, min_bytes: 1, max_bytes, topics: vec![topic], ..FetchRequest::default() };
    connection.send(&mut Frame::encode(&request, FETCH_VERSION)?)
}

/// The batches of an answer, but for one that is cut at its end.
fn whole_batches(records: &Bytes) -> Result<Vec<(BatchHeader, Bytes)>> {
    let mut batches = Vec::new();
    for batch in Batches::new(records) {
        match batch {
            Ok((header, batch)) => batches.push((header, records.slice_ref(batch))),
            Err(_) if !batches.is_empty() => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(batches)
}

/// The first with compact lengths.
const PRODUCE_VERSION: i16 = 9;
const FETCH_VERSION: i16 = 12;
const MESSAGE_BYTES_MAX: usize = 16 << 20;
