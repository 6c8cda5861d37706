//! Requests and responses of the data path, and fetch sessions.

use std::hint::black_box;

use anyhow::{Result, anyhow};
use bytes::BytesMut;
use thalweg_broker::machine::fetch_session::{Answered, FetchSessions, PartitionKey, SessionRequest, TopicKey, Wanted};
use thalweg_model::{ErrorCode, LeaderEpoch, MonoTime, Offset, PartitionIndex, TopicId};
use thalweg_wire::Message;
use thalweg_wire::fetch_response::{
    FetchAnswer, FetchAnswerPartition, FetchAnswerTopic, RecordSlice, encode_fetch_response,
};
use thalweg_wire::header::{decode_request_header, encode_request, encode_response};
use thalweg_wire::messages::fetch::{FetchPartition, FetchTopic, PartitionData};
use thalweg_wire::messages::produce::{
    PartitionProduceData, PartitionProduceResponse, TopicProduceData, TopicProduceResponse,
};
use thalweg_wire::messages::{FetchRequest, ProduceRequest, ProduceResponse};

use super::{Step, records};

pub fn decode_produce() -> Result<Step> {
    let data = PartitionProduceData { index: 0, records: Some(records::batch(1)?) };
    let topic = TopicProduceData { name: "orders".into(), partition_data: vec![data], ..TopicProduceData::default() };
    decode(&ProduceRequest { acks: -1, timeout_ms: 30_000, topic_data: vec![topic], ..ProduceRequest::default() }, 11)
}

pub fn encode_produce() -> Result<Step> {
    Ok(Box::new(|| {
        let partition = PartitionProduceResponse { base_offset: 7, ..PartitionProduceResponse::default() };
        let topic = TopicProduceResponse {
            name: "orders".into(),
            partition_responses: vec![partition],
            ..TopicProduceResponse::default()
        };
        let response = ProduceResponse { responses: vec![topic], ..ProduceResponse::default() };
        let mut out = BytesMut::new();
        encode_response(&mut out, 11, 1, &response)?;
        black_box(out);
        Ok(())
    }))
}

pub fn decode_fetch() -> Result<Step> {
    let partitions = (0..10).map(|partition| FetchPartition {
        partition,
        fetch_offset: 100,
        partition_max_bytes: 1 << 20,
        ..FetchPartition::default()
    });
    let topic = FetchTopic { topic_id: TOPIC, partitions: partitions.collect(), ..FetchTopic::default() };
    decode(&FetchRequest { max_bytes: 50 << 20, topics: vec![topic], ..FetchRequest::default() }, 17)
}

fn decode<R: Message + 'static>(request: &R, version: i16) -> Result<Step> {
    let mut frame = BytesMut::new();
    encode_request(&mut frame, version, 1, Some("hot"), request)?;
    let frame = frame.freeze().slice(4..);
    Ok(Box::new(move || {
        let (_, body) = decode_request_header(black_box(&frame))?;
        black_box(R::decode_body(&body, version)?);
        Ok(())
    }))
}

pub fn encode_fetch() -> Result<Step> {
    Ok(Box::new(|| {
        let partition = |partition_index| FetchAnswerPartition {
            data: PartitionData { partition_index, high_watermark: 100, ..PartitionData::default() },
            records: vec![RecordSlice { source: 0_u64, bytes: 1 << 20 }],
        };
        let topic =
            FetchAnswerTopic { topic: String::new(), topic_id: TOPIC, partitions: (0..10).map(partition).collect() };
        let answer = FetchAnswer {
            throttle_time_ms: 0,
            error_code: 0,
            session_id: 1,
            topics: vec![topic],
            node_endpoints: Vec::new(),
        };
        black_box(encode_fetch_response(answer, 17, 1)?);
        Ok(())
    }))
}

/// A consumer's next fetch of partitions where nothing has happened.
pub fn fetch_session() -> Result<Step> {
    let wanted = |partition| Wanted {
        key: PartitionKey { topic: TopicKey::Id(TOPIC), partition: PartitionIndex(partition) },
        topic_id: TOPIC,
        current_leader_epoch: LeaderEpoch(0),
        fetch_offset: Offset(100),
        last_fetched_epoch: LeaderEpoch::NONE,
        max_bytes: 1 << 20,
    };
    let request = |session_id, session_epoch, wanted| SessionRequest {
        session_id,
        session_epoch,
        by_topic_id: true,
        wanted,
        forgotten: Vec::new(),
    };
    let idle = Answered {
        error: ErrorCode::None,
        high_watermark: Offset(100),
        log_start_offset: Offset(0),
        records_bytes: 0,
        is_told_more: false,
    };
    let refused = |error: ErrorCode| anyhow!("{error}");
    let mut sessions = FetchSessions::new(1);
    let plan =
        sessions.begin(MonoTime::ZERO, request(0, 0, (0..100).map(wanted).collect()), || SESSION).map_err(refused)?;
    let answers = vec![idle; plan.wanted.len()];
    sessions.finish(&plan, &answers);
    let mut epoch = 0;
    Ok(Box::new(move || {
        epoch += 1;
        let plan = sessions.begin(MonoTime::ZERO, request(SESSION, epoch, Vec::new()), || SESSION).map_err(refused)?;
        black_box(sessions.finish(&plan, &answers));
        Ok(())
    }))
}

const TOPIC: TopicId = TopicId([7; 16]);
const SESSION: i32 = 5;
