//! Fetch requests that read a partition from its start to its end.

use std::io::Read;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use thalweg_wire::messages::fetch::{FetchPartition, FetchRequest, FetchTopic};

use super::connection::Frame;
use super::input::Input;
use super::{Connection, Outcome, Target, Topic};
use crate::process::thread_cpu;

/// Reads partition 0 over and over.
#[derive(Clone, Copy, Debug)]
pub struct ConsumeLoad {
    /// Per request.
    pub max_bytes: i32,
    /// Each reads the whole partition.
    pub connection_count: usize,
    /// Exclusive; reading starts again at the log's start there.
    pub end_offset: i64,
    pub value_bytes_per_record: u64,
    pub duration: Duration,
}

/// Runs the load: one request at a time on each connection, as Kafka's consumers do.
///
/// Every frame's length, every error code and every batch header is looked at; offsets must go up without a hole.
pub fn consume(target: &Target, topic: &Topic, load: &ConsumeLoad) -> Result<Outcome> {
    let barrier = Barrier::new(load.connection_count + 1);
    std::thread::scope(|scope| {
        let consumers: Vec<_> = (0..load.connection_count)
            .map(|_| {
                let barrier = &barrier;
                scope.spawn(move || {
                    let connection = topic.leader(0).and_then(Connection::open);
                    barrier.wait();
                    run(connection?, topic, load)
                })
            })
            .collect();
        let cpu = target.processes.cpu();
        let began = Instant::now();
        barrier.wait();
        let shares: Vec<Result<Share>> =
            consumers.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a consumer panicked"))?).collect();
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
            outcome.record_count += share.record_count;
            outcome.client_cpu += share.cpu;
        }
        outcome.bytes = outcome.record_count * load.value_bytes_per_record;
        Ok(outcome)
    })
}

struct Share {
    request_count: u64,
    record_count: u64,
    cpu: Duration,
}

fn run(mut connection: Connection, topic: &Topic, load: &ConsumeLoad) -> Result<Share> {
    let cpu = thread_cpu();
    let began = Instant::now();
    let mut share = Share { request_count: 0, record_count: 0, cpu: Duration::ZERO };
    let mut offset = 0;
    while began.elapsed() < load.duration {
        let mut frame = Frame::encode(&request(topic, offset, load.max_bytes), VERSION)?;
        let correlation_id = connection.send(&mut frame)?;
        let next = read_answer(&mut connection.input, correlation_id, offset)?;
        ensure!(next > offset, "nothing to read at {offset}, before the end {}", load.end_offset);
        share.request_count += 1;
        share.record_count += u64::try_from(next - offset)?;
        offset = if next >= load.end_offset { 0 } else { next };
    }
    share.cpu = thread_cpu() - cpu;
    Ok(share)
}

fn request(topic: &Topic, offset: i64, max_bytes: i32) -> FetchRequest {
    let partition = FetchPartition {
        partition: 0,
        fetch_offset: offset,
        partition_max_bytes: max_bytes,
        ..FetchPartition::default()
    };
    let topic = FetchTopic { topic: topic.name.as_str().into(), partitions: vec![partition], ..FetchTopic::default() };
    FetchRequest { max_wait_ms: 500, min_bytes: 1, max_bytes, topics: vec![topic], ..FetchRequest::default() }
}

/// Takes one answer of one partition off the socket and returns the offset after its last whole batch.
///
/// Version 12 as Kafka's message schema has it. Records are skipped, not kept, so this does not go through the codec.
fn read_answer<S: Read>(input: &mut Input<S>, correlation_id: i32, offset: i64) -> Result<i64> {
    let mut answer = Answer { left: i64::from(i32::from_be_bytes(input.array()?)), input };
    let answered = answer.i32()?;
    ensure!(answered == correlation_id, "asked {correlation_id}, answered {answered}");
    answer.no_tags()?;
    answer.i32()?; // throttle_time_ms
    let error_code = answer.i16()?;
    ensure!(error_code == 0, "Fetch failed with error {error_code}");
    answer.i32()?; // session_id
    ensure!(answer.uvarint()? == 2, "an answer without its one topic");
    let name_bytes = answer.uvarint()?.saturating_sub(1);
    answer.skip(name_bytes)?;
    ensure!(answer.uvarint()? == 2, "an answer without its one partition");
    answer.i32()?; // partition_index
    let error_code = answer.i16()?;
    ensure!(error_code == 0, "Fetch of the partition failed with error {error_code}");
    answer.skip(24)?; // high_watermark, last_stable_offset, log_start_offset
    ensure!(answer.uvarint()? <= 1, "aborted transactions in a topic that has none");
    answer.i32()?; // preferred_read_replica
    let records_bytes = answer.uvarint()?.saturating_sub(1);
    let next = answer.batches(records_bytes, offset)?;
    for _ in ["partition", "topic", "response"] {
        answer.no_tags()?;
    }
    ensure!(answer.left == 0, "{} bytes after the end of an answer", answer.left);
    Ok(next)
}

/// The rest of one frame.
struct Answer<'a, S> {
    input: &'a mut Input<S>,
    left: i64,
}

impl<S: Read> Answer<'_, S> {
    /// Hops from batch header to batch header (record batch v2); the next offset after the last whole batch.
    fn batches(&mut self, mut left: usize, mut offset: i64) -> Result<i64> {
        while left >= BATCH_HEAD_BYTES {
            let base_offset = i64::from_be_bytes(self.array()?);
            let length = usize::try_from(self.i32()?)?;
            self.skip(11)?; // partition_leader_epoch, magic, crc, attributes
            let last_offset_delta = self.i32()?;
            let rest = (length + 12).checked_sub(BATCH_HEAD_BYTES).context("a batch shorter than its header")?;
            left -= BATCH_HEAD_BYTES;
            if rest > left {
                break;
            }
            ensure!(base_offset == offset, "a batch at {base_offset} where {offset} was next");
            offset += i64::from(last_offset_delta) + 1;
            self.skip(rest)?;
            left -= rest;
        }
        self.skip(left)?;
        Ok(offset)
    }

    fn no_tags(&mut self) -> Result<()> {
        ensure!(self.uvarint()? == 0, "a tagged field that this version should not have");
        Ok(())
    }

    fn uvarint(&mut self) -> Result<usize> {
        let mut value = 0;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array()?;
            value |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        bail!("a variable-length integer that does not end");
    }

    fn i16(&mut self) -> Result<i16> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    fn i32(&mut self) -> Result<i32> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.take(N)?;
        self.input.array()
    }

    fn skip(&mut self, count: usize) -> Result<()> {
        self.take(count)?;
        self.input.skip(count)
    }

    fn take(&mut self, count: usize) -> Result<()> {
        self.left -= i64::try_from(count)?;
        ensure!(self.left >= 0, "a field reaches over the end of its frame");
        Ok(())
    }
}

const VERSION: i16 = 12;
/// Up to and with `last_offset_delta`.
const BATCH_HEAD_BYTES: usize = 27;

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use thalweg_wire::header::encode_response;
    use thalweg_wire::messages::fetch::{FetchResponse, FetchableTopicResponse, PartitionData};

    use super::super::Batch;
    use super::*;

    fn answer(records: Vec<u8>, error_code: i16) -> BytesMut {
        let partition = PartitionData {
            error_code,
            aborted_transactions: None,
            records: Some(records.into()),
            ..PartitionData::default()
        };
        let topic = FetchableTopicResponse {
            topic: "t".into(),
            partitions: vec![partition],
            ..FetchableTopicResponse::default()
        };
        let mut out = BytesMut::new();
        let response = FetchResponse { responses: vec![topic], ..FetchResponse::default() };
        encode_response(&mut out, VERSION, 7, &response).expect("an answer that fits");
        out
    }

    /// Batches of 3 records at the given base offsets.
    fn batches(base_offsets: &[i64]) -> Vec<u8> {
        let batch = Batch::of(100, 61 + 3 * 124).expect("a batch");
        assert_eq!(batch.record_count, 3);
        let at = |base_offset: &i64| [&base_offset.to_be_bytes(), &batch.bytes[8..]].concat();
        base_offsets.iter().flat_map(at).collect()
    }

    fn next_offset(answer: &[u8]) -> Result<i64> {
        let mut input = Input::new(answer);
        let next = read_answer(&mut input, 7, 10)?;
        ensure!(input.array::<1>().is_err(), "bytes left in the socket");
        Ok(next)
    }

    #[test]
    fn hopping_over_an_answer_ends_where_its_last_whole_batch_ends() {
        assert_eq!(next_offset(&answer(batches(&[10, 13]), 0)).expect("two batches"), 16);
        let mut cut = batches(&[10, 13]);
        cut.truncate(cut.len() - 1);
        assert_eq!(next_offset(&answer(cut, 0)).expect("one batch and a part"), 13);
        assert_eq!(next_offset(&answer(Vec::new(), 0)).expect("nothing"), 10);
    }

    #[test]
    fn a_hole_an_error_and_a_strange_correlation_id_are_noticed() {
        assert!(next_offset(&answer(batches(&[10, 14]), 0)).is_err());
        assert!(next_offset(&answer(Vec::new(), 6)).is_err());
        assert!(read_answer(&mut Input::new(&answer(Vec::new(), 0)[..]), 8, 10).is_err());
    }
}
