//! Writes a Fetch response as bytes with holes, so that records go from file to socket by sendfile.
//!
//! The same bytes as [`FetchResponse`](crate::messages::FetchResponse) writes, but for each partition's records
//! there is a [`Part::Records`] that stands for as many bytes as it says.

use bytes::{BufMut, Bytes, BytesMut};
use thalweg_model::TopicId;

use crate::api::ApiKey;
use crate::codec::{Context, EncodeError, Field, Message, Structure, array_count, put_uvarint};
use crate::header::encode_response_header;
use crate::messages::FetchResponse as FetchResponseBody;
use crate::messages::fetch::{NodeEndpoint, PartitionData};

/// A response whose records are slices of type `T`, such as a range of a file.
#[derive(Clone, Debug)]
pub struct FetchAnswer<T> {
    pub throttle_time_ms: i32,
    pub error_code: i16,
    pub session_id: i32,
    pub topics: Vec<FetchAnswerTopic<T>>,
    /// Written from version 16 on.
    pub node_endpoints: Vec<NodeEndpoint>,
}

/// A topic of a [`FetchAnswer`]: the version decides whether name or id is written.
#[derive(Clone, Debug)]
pub struct FetchAnswerTopic<T> {
    pub topic: String,
    pub topic_id: TopicId,
    pub partitions: Vec<FetchAnswerPartition<T>>,
}

/// A partition of a [`FetchAnswer`].
#[derive(Clone, Debug)]
pub struct FetchAnswerPartition<T> {
    /// All but the records: `data.records` is not looked at.
    pub data: PartitionData,
    /// One after another, each with its length in bytes; none is an empty record set.
    pub records: Vec<RecordSlice<T>>,
}

/// Records that are somewhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordSlice<T> {
    pub source: T,
    /// Exactly as many bytes as the hole takes on the wire.
    pub bytes: u32,
}

/// A piece of a frame, in wire order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part<T> {
    Bytes(Bytes),
    Records(RecordSlice<T>),
}

/// Writes a whole frame: size, header, body. The size counts the holes.
///
/// # Errors
/// Our fault: `version` is not known, or something does not fit its length field.
pub fn encode_fetch_response<T>(
    answer: FetchAnswer<T>,
    version: i16,
    correlation_id: i32,
) -> Result<Vec<Part<T>>, EncodeError> {
    if !FetchResponseBody::VERSIONS.contains(&version) {
        return Err(EncodeError::UnsupportedVersion { api: ApiKey::Fetch, version });
    }
    let mut writer = Writer { cx: FetchResponseBody::context(version), done: Vec::new(), bytes: BytesMut::new() };
    writer.bytes.put_i32(0); // the frame's size, known at the end
    encode_response_header(&mut writer.bytes, ApiKey::Fetch, version, correlation_id);
    writer.answer(answer)?;
    writer.finish()
}

struct Writer<T> {
    cx: Context,
    done: Vec<Part<T>>,
    /// Since the last hole.
    bytes: BytesMut,
}

impl<T> Writer<T> {
    fn answer(&mut self, answer: FetchAnswer<T>) -> Result<(), EncodeError> {
        let cx = self.cx;
        self.bytes.put_i32(answer.throttle_time_ms);
        if cx.version >= 7 {
            self.bytes.put_i16(answer.error_code);
            self.bytes.put_i32(answer.session_id);
        }
        array_count(&mut self.bytes, Some(answer.topics.len()), cx.flexible)?;
        for topic in answer.topics {
            self.topic(topic)?;
        }
        // The body's own tag writer knows which version has the endpoints.
        let tags = FetchResponseBody { node_endpoints: answer.node_endpoints, ..FetchResponseBody::default() };
        tags.write_tags(&mut self.bytes, cx)
    }

    fn topic(&mut self, topic: FetchAnswerTopic<T>) -> Result<(), EncodeError> {
        let cx = self.cx;
        if cx.version >= 13 {
            topic.topic_id.write(&mut self.bytes, cx, false)?;
        } else {
            topic.topic.write(&mut self.bytes, cx, false)?;
        }
        array_count(&mut self.bytes, Some(topic.partitions.len()), cx.flexible)?;
        for partition in topic.partitions {
            self.partition(partition)?;
        }
        self.no_tags();
        Ok(())
    }

    fn partition(&mut self, partition: FetchAnswerPartition<T>) -> Result<(), EncodeError> {
        let (cx, data) = (self.cx, partition.data);
        self.bytes.put_i32(data.partition_index);
        self.bytes.put_i16(data.error_code);
        self.bytes.put_i64(data.high_watermark);
        self.bytes.put_i64(data.last_stable_offset);
        if cx.version >= 5 {
            self.bytes.put_i64(data.log_start_offset);
        }
        data.aborted_transactions.write(&mut self.bytes, cx, true)?;
        if cx.version >= 11 {
            self.bytes.put_i32(data.preferred_read_replica);
        }
        let length = partition.records.iter().map(|slice| slice.bytes as usize).sum();
        array_count(&mut self.bytes, Some(length), cx.flexible)?;
        for slice in partition.records {
            self.hole(slice);
        }
        data.write_tags(&mut self.bytes, cx)
    }

    fn hole(&mut self, slice: RecordSlice<T>) {
        if slice.bytes == 0 {
            return;
        }
        if !self.bytes.is_empty() {
            self.done.push(Part::Bytes(self.bytes.split().freeze()));
        }
        self.done.push(Part::Records(slice));
    }

    /// Ends a struct that has no tagged fields of its own.
    fn no_tags(&mut self) {
        if self.cx.flexible {
            put_uvarint(&mut self.bytes, 0);
        }
    }

    fn finish(mut self) -> Result<Vec<Part<T>>, EncodeError> {
        if !self.bytes.is_empty() {
            self.done.push(Part::Bytes(self.bytes.freeze()));
        }
        let length = self.done.iter().map(part_bytes).sum::<usize>() - SIZE_BYTES;
        let size = i32::try_from(length).map_err(|_| EncodeError::TooLong { length })?;
        if let Some(Part::Bytes(first)) = self.done.first_mut() {
            let mut bytes = BytesMut::from(std::mem::take(first));
            bytes[..SIZE_BYTES].copy_from_slice(&size.to_be_bytes());
            *first = bytes.freeze();
        }
        Ok(self.done)
    }
}

fn part_bytes<T>(part: &Part<T>) -> usize {
    match part {
        Part::Bytes(bytes) => bytes.len(),
        Part::Records(slice) => slice.bytes as usize,
    }
}

const SIZE_BYTES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::encode_response;
    use crate::messages::fetch::{
        AbortedTransaction, EpochEndOffset, FetchableTopicResponse, LeaderIdAndEpoch, PartitionData,
    };

    fn partition(index: i32, aborted: Option<Vec<AbortedTransaction>>) -> PartitionData {
        PartitionData {
            partition_index: index,
            error_code: 6,
            high_watermark: 100,
            last_stable_offset: 90,
            log_start_offset: 5,
            diverging_epoch: EpochEndOffset { epoch: 3, end_offset: 44 },
            current_leader: LeaderIdAndEpoch { leader_id: 2, leader_epoch: 7 },
            aborted_transactions: aborted,
            preferred_read_replica: -1,
            ..PartitionData::default()
        }
    }

    /// Two topics; records of 0, 1 and 2 slices; every field away from its default.
    fn answer() -> FetchAnswer<&'static [u8]> {
        let slice = |source: &'static [u8]| RecordSlice { source, bytes: source.len() as u32 };
        let aborted = vec![AbortedTransaction { producer_id: 1, first_offset: 2 }];
        let with = |data, records: &[&'static [u8]]| FetchAnswerPartition {
            data,
            records: records.iter().map(|bytes| slice(bytes)).collect(),
        };
        FetchAnswer {
            throttle_time_ms: 11,
            error_code: 70,
            session_id: 12,
            topics: vec![
                FetchAnswerTopic {
                    topic: "one".into(),
                    topic_id: TopicId([1; 16]),
                    partitions: vec![
                        with(partition(0, Some(aborted)), &[b"records of zero", b", continued"]),
                        with(partition(1, None), &[]),
                        with(PartitionData::default(), &[&[7; 200], b""]),
                    ],
                },
                FetchAnswerTopic { topic: "two".into(), topic_id: TopicId([2; 16]), partitions: vec![] },
            ],
            node_endpoints: vec![NodeEndpoint { node_id: 2, host: "h".into(), port: 9092, rack: None }],
        }
    }

    fn body(answer: &FetchAnswer<&'static [u8]>) -> FetchResponseBody {
        let partition = |p: &FetchAnswerPartition<&'static [u8]>| PartitionData {
            records: Some(p.records.iter().flat_map(|slice| slice.source).copied().collect()),
            ..p.data.clone()
        };
        let topic = |t: &FetchAnswerTopic<&'static [u8]>| FetchableTopicResponse {
            topic: t.topic.clone(),
            topic_id: t.topic_id,
            partitions: t.partitions.iter().map(partition).collect(),
        };
        FetchResponseBody {
            throttle_time_ms: answer.throttle_time_ms,
            error_code: answer.error_code,
            session_id: answer.session_id,
            responses: answer.topics.iter().map(topic).collect(),
            node_endpoints: answer.node_endpoints.clone(),
        }
    }

    #[test]
    fn filled_holes_give_the_bytes_of_the_plain_encoder_in_every_version() {
        for version in FetchResponseBody::VERSIONS {
            let mut plain = BytesMut::new();
            encode_response(&mut plain, version, 5, &body(&answer())).unwrap();
            let parts = encode_fetch_response(answer(), version, 5).unwrap();
            assert_eq!(
                parts.iter().filter(|part| matches!(part, Part::Records(_))).count(),
                3,
                "an empty hole is none"
            );
            let mut filled = Vec::new();
            for part in &parts {
                match part {
                    Part::Bytes(bytes) => filled.extend_from_slice(bytes),
                    Part::Records(slice) => filled.extend_from_slice(slice.source),
                }
            }
            assert_eq!(plain, filled, "version {version}");
        }
    }

    /// A client of version 12 cannot read the endpoints of version 16.
    #[test]
    fn node_endpoints_are_absent_below_version_16() {
        let contains_endpoint = |version| {
            let parts = encode_fetch_response(answer(), version, 5).unwrap();
            let Some(Part::Bytes(last)) = parts.last() else { panic!("a frame ends in bytes") };
            last.windows(4).any(|bytes| bytes == 9092i32.to_be_bytes())
        };
        assert!(!contains_endpoint(12) && !contains_endpoint(15) && contains_endpoint(16));
    }

    #[test]
    fn records_that_overflow_the_frame_are_refused() {
        let huge = |bytes| FetchAnswerPartition {
            data: PartitionData::default(),
            records: vec![RecordSlice { source: &b""[..], bytes }],
        };
        let mut answer = answer();
        answer.topics[0].partitions = vec![huge(1 << 30), huge(1 << 30)];
        assert!(matches!(encode_fetch_response(answer, 12, 0), Err(EncodeError::TooLong { .. })));
    }
}
