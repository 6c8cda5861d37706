//! The client against a broker of a few lines, which errs on purpose. Always on: nothing here needs a cluster.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use thalweg_client::consumer::topic_partition;
use thalweg_client::{
    Acks, Client, ClientConfig, ClientError, Consumer, ConsumerConfig, OffsetReset, Producer, ProducerConfig,
    ProducerRecord, StartAt,
};
use thalweg_model::{ErrorCode, LeaderEpoch, Offset, Timestamp, TopicId};
use thalweg_wire::api::ApiKey;
use thalweg_wire::batch::BatchHeader;
use thalweg_wire::codec::Message;
use thalweg_wire::compression::Compression;
use thalweg_wire::header::{RequestHeader, decode_request_header, encode_response};
use thalweg_wire::messages::api_versions::ApiVersion;
use thalweg_wire::messages::fetch::{FetchableTopicResponse, PartitionData};
use thalweg_wire::messages::metadata::{MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic};
use thalweg_wire::messages::produce::{PartitionProduceResponse, TopicProduceResponse};
use thalweg_wire::messages::{
    ApiVersionsResponse, FetchRequest, FetchResponse, InitProducerIdResponse, MetadataRequest, MetadataResponse,
    ProduceRequest, ProduceResponse,
};
use thalweg_wire::records::RecordBatchBuilder;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What a fake broker does with a request.
enum Reply {
    Frame(BytesMut),
    Nothing,
    Close,
}

type Handler = dyn Fn(&Fake, &RequestHeader, &Bytes) -> Reply + Send + Sync;

/// A listener that answers ApiVersions, Metadata and InitProducerId by itself and leaves the rest to a handler.
struct Fake {
    address: String,
    port: i32,
    requests: Mutex<Vec<(ApiKey, i16)>>,
    handler: Box<Handler>,
}

impl Fake {
    async fn start(handler: impl Fn(&Fake, &RequestHeader, &Bytes) -> Reply + Send + Sync + 'static) -> Arc<Fake> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let fake = Arc::new(Fake {
            address: address.to_string(),
            port: i32::from(address.port()),
            requests: Mutex::default(),
            handler: Box::new(handler),
        });
        let accepting = Arc::clone(&fake);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(Arc::clone(&accepting), stream));
            }
        });
        fake
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new(&self.address);
        config.backoff = Duration::from_millis(1);
        config
    }

    fn count(&self, key: ApiKey) -> usize {
        self.requests.lock().unwrap().iter().filter(|(found, _)| *found == key).count()
    }

    fn default_reply(&self, header: &RequestHeader, body: &Bytes) -> Reply {
        match header.api_key {
            ApiKey::ApiVersions => reply(header, &versions()),
            ApiKey::Metadata => reply(header, &self.metadata(header, body)),
            ApiKey::InitProducerId => {
                reply(header, &InitProducerIdResponse { producer_id: 9, ..InitProducerIdResponse::default() })
            }
            _ => Reply::Close,
        }
    }

    /// Every topic exists, with one partition, which we lead.
    fn metadata(&self, header: &RequestHeader, body: &Bytes) -> MetadataResponse {
        let asked = MetadataRequest::decode_body(body, header.api_version).unwrap();
        let topic = |name: String| MetadataResponseTopic {
            name: Some(name),
            topic_id: TopicId([7; 16]),
            partitions: vec![MetadataResponsePartition {
                leader_id: 1,
                leader_epoch: 3,
                replica_nodes: vec![1],
                isr_nodes: vec![1],
                ..MetadataResponsePartition::default()
            }],
            ..MetadataResponseTopic::default()
        };
        MetadataResponse {
            brokers: vec![MetadataResponseBroker { node_id: 1, host: "127.0.0.1".into(), port: self.port, rack: None }],
            controller_id: 1,
            topics: asked.topics.into_iter().flatten().filter_map(|asked| asked.name).map(topic).collect(),
            ..MetadataResponse::default()
        }
    }
}

async fn serve(fake: Arc<Fake>, mut stream: TcpStream) {
    while let Ok(length) = stream.read_i32().await {
        let mut frame = vec![0; usize::try_from(length).unwrap()];
        if stream.read_exact(&mut frame).await.is_err() {
            return;
        }
        let Ok((header, body)) = decode_request_header(&frame.into()) else { return };
        fake.requests.lock().unwrap().push((header.api_key, header.api_version));
        match (fake.handler)(&fake, &header, &body) {
            Reply::Frame(answer) => stream.write_all(&answer).await.unwrap_or(()),
            Reply::Nothing => {}
            Reply::Close => return,
        }
    }
}

fn versions() -> ApiVersionsResponse {
    let served = ApiKey::ALL.iter().filter_map(|key| Some((*key, key.advertised_versions()?)));
    let api_keys = served
        .map(|(key, range)| ApiVersion { api_key: key.code(), min_version: *range.start(), max_version: *range.end() })
        .collect();
    ApiVersionsResponse { api_keys, ..ApiVersionsResponse::default() }
}

fn reply(header: &RequestHeader, response: &impl Message) -> Reply {
    reply_in(header, header.api_version, response)
}

fn reply_in(header: &RequestHeader, version: i16, response: &impl Message) -> Reply {
    let mut out = BytesMut::new();
    encode_response(&mut out, version, header.correlation_id, response).unwrap();
    Reply::Frame(out)
}

/// The answer to a produce of one partition, whose first record got `base_offset`.
fn produced(header: &RequestHeader, body: &Bytes, code: ErrorCode, base_offset: i64) -> Reply {
    let asked = ProduceRequest::decode_body(body, header.api_version).unwrap();
    let topic = &asked.topic_data[0];
    let partition = PartitionProduceResponse {
        index: topic.partition_data[0].index,
        error_code: code as i16,
        base_offset,
        ..PartitionProduceResponse::default()
    };
    reply(
        header,
        &ProduceResponse {
            responses: vec![TopicProduceResponse {
                name: topic.name.clone(),
                topic_id: topic.topic_id,
                partition_responses: vec![partition],
            }],
            ..ProduceResponse::default()
        },
    )
}

fn batch_of(header: &RequestHeader, body: &Bytes) -> BatchHeader {
    let asked = ProduceRequest::decode_body(body, header.api_version).unwrap();
    BatchHeader::read(asked.topic_data[0].partition_data[0].records.as_ref().unwrap()).unwrap()
}

/// Goal: an older broker is met in its own version. Method: it refuses ours as KIP-511 says and offers up to 2.
#[tokio::test]
async fn a_broker_that_does_not_know_our_api_versions_is_asked_again_in_its_own() {
    let fake = Fake::start(|fake, header, body| {
        if header.api_key == ApiKey::ApiVersions && header.api_version > 2 {
            let offered = ApiVersion { api_key: ApiKey::ApiVersions.code(), min_version: 0, max_version: 2 };
            return reply_in(
                header,
                0,
                &ApiVersionsResponse {
                    error_code: ErrorCode::UnsupportedVersion as i16,
                    api_keys: vec![offered],
                    ..ApiVersionsResponse::default()
                },
            );
        }
        fake.default_reply(header, body)
    })
    .await;
    Client::connect(fake.config()).await.unwrap();
    let asked: Vec<i16> =
        fake.requests.lock().unwrap().iter().filter(|r| r.0 == ApiKey::ApiVersions).map(|r| r.1).collect();
    assert_eq!(asked, [4, 2]);
}

#[tokio::test]
async fn an_api_that_the_broker_lacks_is_named_with_both_ranges() {
    let fake = Fake::start(|fake, header, body| match header.api_key {
        ApiKey::ApiVersions => {
            let mut offered = versions();
            offered.api_keys.retain(|api| api.api_key != ApiKey::ListGroups.code());
            reply(header, &offered)
        }
        _ => fake.default_reply(header, body),
    })
    .await;
    let client = Client::connect(fake.config()).await.unwrap();
    match client.admin().groups().await {
        Err(ClientError::UnsupportedApi { api, theirs, .. }) => {
            assert_eq!((api, theirs.as_str()), ("ListGroups", "none"));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn whatever_answers_garbage_is_an_error_and_no_panic() {
    let long = b"\x7f\xff\xff\xffgarbage".to_vec();
    let http = b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec();
    let other_correlation = b"\0\0\0\x08\0\0\x03\xe8\0\0\0\0".to_vec();
    let cut = b"\0\0\0\x06\0\0\0\0\0\0".to_vec();
    for bytes in [long, http, other_correlation, cut] {
        let fake = Fake::start(move |_, _, _| Reply::Frame(BytesMut::from(&bytes[..]))).await;
        match Client::connect(fake.config()).await {
            Err(ClientError::Unreachable { cause, .. }) => assert!(cause.contains("malformed"), "{cause}"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn an_address_where_nothing_listens_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    match Client::connect(ClientConfig::new(&address)).await {
        Err(ClientError::Unreachable { addresses, cause }) => {
            assert_eq!(addresses, address);
            assert!(cause.contains("nothing listens"), "{cause}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_second_bootstrap_address_is_tried_when_the_first_is_dead() {
    let fake = Fake::start(|fake, header, body| fake.default_reply(header, body)).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dead = listener.local_addr().unwrap().to_string();
    drop(listener);
    let mut config = fake.config();
    config.bootstrap.insert(0, dead);
    assert!(Client::connect(config).await.is_ok());
}

#[tokio::test]
async fn a_broker_that_never_answers_is_given_up_after_the_request_timeout() {
    let fake = Fake::start(|fake, header, body| match header.api_key {
        ApiKey::ListGroups => Reply::Nothing,
        _ => fake.default_reply(header, body),
    })
    .await;
    let client = Client::connect(fake.config().request_timeout(Duration::from_secs(2))).await.unwrap();
    match client.admin().groups().await {
        Err(ClientError::TimedOut { what, .. }) => assert_eq!(what, "ListGroups"),
        other => panic!("{other:?}"),
    }
    assert!(client.fetch_all_metadata().await.is_ok(), "the next call gets a new connection");
}

/// Goal: nothing is written twice or out of order when connections break. Method: the broker writes every other
/// batch but closes instead of answering; it knows repeats by their sequences, as brokers do.
#[tokio::test]
async fn answers_that_are_lost_do_not_double_or_swap_records() {
    #[derive(Default)]
    struct Log {
        next_sequence: i32,
        written: Vec<i32>,
        seen: BTreeMap<i32, i64>,
        request_count: usize,
    }
    let log = Arc::new(Mutex::new(Log::default()));
    let broker_log = Arc::clone(&log);
    let fake = Fake::start(move |fake, header, body| {
        if header.api_key != ApiKey::Produce {
            return fake.default_reply(header, body);
        }
        let batch = batch_of(header, body);
        let mut log = broker_log.lock().unwrap();
        log.request_count += 1;
        if let Some(base_offset) = log.seen.get(&batch.base_sequence) {
            return produced(header, body, ErrorCode::None, *base_offset);
        }
        if batch.base_sequence != log.next_sequence {
            return produced(header, body, ErrorCode::OutOfOrderSequenceNumber, -1);
        }
        let base_offset = log.written.len() as i64;
        log.next_sequence += batch.record_count;
        log.seen.insert(batch.base_sequence, base_offset);
        let sequences = batch.base_sequence..batch.base_sequence + batch.record_count;
        log.written.extend(sequences);
        match log.request_count % 2 {
            0 => Reply::Close,
            _ => produced(header, body, ErrorCode::None, base_offset),
        }
    })
    .await;
    let client = Client::connect(fake.config()).await.unwrap();
    let config = ProducerConfig { batch_bytes: 200, linger: Duration::ZERO, ..ProducerConfig::default() };
    let producer = Producer::new(&client, config).unwrap();
    let mut deliveries = Vec::new();
    for i in 0..60 {
        deliveries.push(producer.send(ProducerRecord::new("t").value(format!("{i}"))).await.unwrap());
    }
    producer.close().await;
    for (delivery, expected) in deliveries.into_iter().zip(0..) {
        assert_eq!(delivery.wait().await.unwrap().offset, Offset(expected));
    }
    assert_eq!(log.lock().unwrap().written, (0..60).collect::<Vec<i32>>());
}

#[tokio::test]
async fn a_moved_leader_is_looked_for_and_the_record_sent_again() {
    let refused = Mutex::new(false);
    let fake = Fake::start(move |fake, header, body| match header.api_key {
        ApiKey::Produce if !std::mem::replace(&mut *refused.lock().unwrap(), true) => {
            produced(header, body, ErrorCode::NotLeaderOrFollower, -1)
        }
        ApiKey::Produce => produced(header, body, ErrorCode::None, 5),
        _ => fake.default_reply(header, body),
    })
    .await;
    let client = Client::connect(fake.config()).await.unwrap();
    let producer = Producer::new(&client, ProducerConfig::default()).unwrap();
    producer.send(ProducerRecord::new("t").value("v")).await.unwrap().wait().await.unwrap();
    let before = fake.count(ApiKey::Metadata);
    assert!(before >= 3, "connect, topic, and again after the error; {before}");
}

#[tokio::test]
async fn without_acks_nothing_is_waited_for() {
    let fake = Fake::start(|fake, header, body| match header.api_key {
        ApiKey::Produce => Reply::Nothing,
        _ => fake.default_reply(header, body),
    })
    .await;
    let client = Client::connect(fake.config()).await.unwrap();
    let config = ProducerConfig { acks: Acks::None, idempotent: false, ..ProducerConfig::default() };
    let producer = Producer::new(&client, config).unwrap();
    let delivered = producer.send(ProducerRecord::new("t").value("v")).await.unwrap().wait().await.unwrap();
    assert_eq!(delivered.offset, Offset::NONE);
}

/// Goal: a full buffer holds the sender back and then says why. Method: the broker never answers a produce.
#[tokio::test]
async fn a_full_buffer_is_an_error_that_names_the_limit() {
    let fake = Fake::start(|fake, header, body| match header.api_key {
        ApiKey::Produce => Reply::Nothing,
        _ => fake.default_reply(header, body),
    })
    .await;
    let client = Client::connect(fake.config()).await.unwrap();
    let config =
        ProducerConfig { buffer_bytes: 1_000, block_timeout: Duration::from_secs(2), ..ProducerConfig::default() };
    let producer = Producer::new(&client, config).unwrap();
    let send = || producer.send(ProducerRecord::new("t").value(vec![0; 800]));
    send().await.unwrap();
    let error = send().await.unwrap_err();
    assert!(matches!(error, ClientError::BufferFull { limit: 1_000, .. }), "{error}");
    assert!(error.to_string().contains("buffer_bytes=1000"), "{error}");
}

fn fetched(header: &RequestHeader, body: &Bytes, answer: impl Fn(i64) -> PartitionData) -> Reply {
    let asked = FetchRequest::decode_body(body, header.api_version).unwrap();
    let topic = &asked.topics[0];
    reply(
        header,
        &FetchResponse {
            responses: vec![FetchableTopicResponse {
                topic: topic.topic.clone(),
                topic_id: topic.topic_id,
                partitions: vec![answer(topic.partitions[0].fetch_offset)],
            }],
            ..FetchResponse::default()
        },
    )
}

fn batch_at(offset: i64) -> Bytes {
    let mut builder = RecordBatchBuilder::new(Compression::None).at(Offset(offset), LeaderEpoch(3));
    builder.append(Timestamp(1), None, Some(offset.to_string().as_bytes()), &[]);
    builder.build().unwrap()
}

/// Goal: errors that fresh metadata heals never reach the application. Method: each comes once before the record.
#[tokio::test]
async fn a_consumer_rides_over_leader_changes() {
    let errors = Mutex::new(vec![
        ErrorCode::UnknownTopicId,
        ErrorCode::FencedLeaderEpoch,
        ErrorCode::NotLeaderOrFollower,
        ErrorCode::OffsetNotAvailable,
    ]);
    let fake = Fake::start(move |fake, header, body| match header.api_key {
        ApiKey::Fetch => {
            let code = errors.lock().unwrap().pop().unwrap_or(ErrorCode::None);
            fetched(header, body, |offset| PartitionData {
                error_code: code as i16,
                high_watermark: 100,
                records: (code == ErrorCode::None).then(|| batch_at(offset)),
                ..PartitionData::default()
            })
        }
        _ => fake.default_reply(header, body),
    })
    .await;
    let client = Client::connect(fake.config()).await.unwrap();
    let mut consumer = Consumer::new(&client, ConsumerConfig::default()).unwrap();
    consumer.assign([(topic_partition("t", 0).unwrap(), StartAt::Offset(Offset(7)))]).unwrap();
    let set = consumer.poll(Duration::from_secs(30)).await.unwrap().unwrap();
    let offsets: Vec<Offset> = set.map(|record| record.unwrap().offset).collect();
    assert_eq!(offsets, [Offset(7)]);
}

#[tokio::test]
async fn an_offset_outside_the_log_is_an_error_if_the_policy_is_none() {
    let fake = Fake::start(|fake, header, body| match header.api_key {
        ApiKey::Fetch => fetched(header, body, |_| PartitionData {
            error_code: ErrorCode::OffsetOutOfRange as i16,
            ..PartitionData::default()
        }),
        _ => fake.default_reply(header, body),
    })
    .await;
    let client = Client::connect(fake.config()).await.unwrap();
    let config = ConsumerConfig { offset_reset: OffsetReset::None, ..ConsumerConfig::default() };
    let mut consumer = Consumer::new(&client, config).unwrap();
    consumer.assign([(topic_partition("t", 0).unwrap(), StartAt::Offset(Offset(7)))]).unwrap();
    match consumer.poll(Duration::from_secs(30)).await {
        Err(ClientError::OffsetOutOfRange { offset, .. }) => assert_eq!(offset, Offset(7)),
        other => panic!("{other:?}"),
    }
}

/// Goal: bits that flipped on the way are not handed to the application as records.
#[tokio::test]
async fn a_batch_with_a_wrong_checksum_is_an_error_that_names_its_offset() {
    let fake = Fake::start(|fake, header, body| match header.api_key {
        ApiKey::Fetch => fetched(header, body, |offset| {
            let mut batch = batch_at(offset).to_vec();
            *batch.last_mut().unwrap() ^= 1;
            PartitionData { high_watermark: 100, records: Some(batch.into()), ..PartitionData::default() }
        }),
        _ => fake.default_reply(header, body),
    })
    .await;
    let client = Client::connect(fake.config()).await.unwrap();
    let mut consumer = Consumer::new(&client, ConsumerConfig::default()).unwrap();
    consumer.assign([(topic_partition("t", 0).unwrap(), StartAt::Offset(Offset(7)))]).unwrap();
    let mut set = consumer.poll(Duration::from_secs(30)).await.unwrap().unwrap();
    match set.next() {
        Some(Err(ClientError::CorruptBatch { offset, .. })) => assert_eq!(offset, Offset(7)),
        other => panic!("{other:?}"),
    }
}
