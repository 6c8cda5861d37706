//! A broker with a coordinator in memory, and a client that says exactly what a test wants.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use thalweg_broker::config::Properties;
use thalweg_broker::{Broker, BrokerConfig, ListenerConfig, Readiness};
use thalweg_coordinator::{Coordinator, CoordinatorConfig, CoordinatorSettings, MemStore};
use thalweg_model::{ErrorCode, Timestamp, TopicId};
use thalweg_wire::compression::Compression;
use thalweg_wire::messages::fetch::{FetchPartition, FetchTopic};
use thalweg_wire::messages::list_offsets::{ListOffsetsPartition, ListOffsetsTopic};
use thalweg_wire::messages::metadata::MetadataRequestTopic;
use thalweg_wire::messages::produce::{PartitionProduceData, TopicProduceData};
use thalweg_wire::messages::{
    FetchRequest, FetchResponse, ListOffsetsRequest, MetadataRequest, MetadataResponse, ProduceRequest, ProduceResponse,
};
use thalweg_wire::records::RecordBatchBuilder;
use thalweg_wire::{Message, Request, header};
use thalweg_world::Clock;
use thalweg_world::disk::Disk;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The coordinator outlives brokers, as its data would.
pub struct Cluster {
    pub coordinator: Coordinator,
}

impl Cluster {
    pub async fn start() -> Cluster {
        Cluster::start_with(CoordinatorSettings::default()).await
    }

    pub async fn start_with(settings: CoordinatorSettings) -> Cluster {
        let settings = CoordinatorSettings { group_initial_rebalance_delay_ms: 0, ..settings };
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let config = CoordinatorConfig { listen, settings, ..Default::default() };
        let coordinator = Coordinator::start(config, Arc::new(MemStore::new()), Clock::real()).await.unwrap();
        Cluster { coordinator }
    }

    /// A broker on `disk`, once it serves.
    pub async fn broker(&self, disk: Arc<dyn Disk>, properties: &[(&str, &str)]) -> Broker {
        self.broker_by(Clock::real(), disk, properties).await
    }

    /// As [`Cluster::broker`], with a clock of the test's own.
    pub async fn broker_by(&self, clock: Clock, disk: Arc<dyn Disk>, properties: &[(&str, &str)]) -> Broker {
        self.broker_in(None, clock, disk, properties).await
    }

    /// As [`Cluster::broker_by`], in a rack.
    pub async fn broker_in(
        &self,
        rack: Option<&str>,
        clock: Clock,
        disk: Arc<dyn Disk>,
        properties: &[(&str, &str)],
    ) -> Broker {
        let dirs = vec![PathBuf::from("/data")];
        let broker = self.broker_of(rack, dirs, clock, disk, properties);
        let readiness = broker
            .ready()
            .wait_for(|now| matches!(now, Readiness::Ready | Readiness::Failed(_)))
            .await
            .unwrap()
            .clone();
        assert_eq!(readiness, Readiness::Ready);
        broker
    }

    /// A broker with any log directories, as soon as it has started.
    pub fn broker_of(
        &self,
        rack: Option<&str>,
        log_dirs: Vec<PathBuf>,
        clock: Clock,
        disk: Arc<dyn Disk>,
        properties: &[(&str, &str)],
    ) -> Broker {
        let listener = ListenerConfig {
            name: "PLAINTEXT".to_owned(),
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            advertised: None,
            advertised_to: Vec::new(),
        };
        let config = BrokerConfig {
            broker_id: None,
            rack: rack.map(str::to_owned),
            coordinators: vec![self.coordinator.local_addr().to_string()],
            log_dirs,
            listeners: vec![listener],
            properties: Properties::parse(properties.iter().copied()).unwrap(),
        };
        Broker::start(config, disk, clock).unwrap()
    }
}

/// A connection.
pub struct Client {
    pub stream: TcpStream,
    next_id: i32,
}

impl Client {
    pub async fn connect(broker: &Broker) -> Client {
        let stream = TcpStream::connect(broker.local_addrs()[0]).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, next_id: 1 }
    }

    /// Sends without waiting; returns the correlation id.
    pub async fn send<Q: Request>(&mut self, version: i16, request: &Q) -> i32 {
        let id = self.next_id;
        self.next_id += 1;
        let mut out = BytesMut::new();
        header::encode_request(&mut out, version, id, Some("test"), request).unwrap();
        self.stream.write_all(&out).await.unwrap();
        id
    }

    /// The next frame, without its size; `None` at the end.
    pub async fn frame(&mut self) -> Option<Bytes> {
        let size = match self.stream.read_u32().await {
            Ok(size) => size,
            Err(_) => return None,
        };
        let mut frame = vec![0; size as usize];
        self.stream.read_exact(&mut frame).await.unwrap();
        Some(frame.into())
    }

    /// The next answer with its correlation id.
    pub async fn receive<R: Message>(&mut self, version: i16) -> (i32, R) {
        let frame = self.frame().await.expect("an answer");
        let (id, body) = header::decode_response_header(&frame, R::KEY, version).unwrap();
        (id, R::decode_body(&body, version).unwrap())
    }

    pub async fn call<Q: Request>(&mut self, version: i16, request: &Q) -> Q::Response {
        let sent = self.send(version, request).await;
        let (id, response) = self.receive(version).await;
        assert_eq!(id, sent);
        response
    }

    /// Creates the topic on demand and waits until it serves.
    pub async fn topic(&mut self, name: &str) -> TopicId {
        let topics = vec![MetadataRequestTopic { name: Some(name.to_owned()), ..Default::default() }];
        let request = MetadataRequest { topics: Some(topics), ..Default::default() };
        let response: MetadataResponse = self.call(12, &request).await;
        assert_eq!(response.topics[0].error_code, 0, "{name}");
        response.topics[0].topic_id
    }

    pub async fn produce(&mut self, request: &ProduceRequest) -> (ErrorCode, i64) {
        let response: ProduceResponse = self.call(9, request).await;
        outcome(&response)
    }

    pub async fn fetch(&mut self, request: &FetchRequest) -> (ErrorCode, i64, Bytes) {
        let response: FetchResponse = self.call(11, request).await;
        let partition = &response.responses[0].partitions[0];
        let error = ErrorCode::from_code(partition.error_code).unwrap();
        (error, partition.high_watermark, partition.records.clone().unwrap_or_default())
    }

    /// The log's end as consumers see it.
    pub async fn latest(&mut self, topic: &str) -> i64 {
        let partitions = vec![ListOffsetsPartition { timestamp: -1, ..Default::default() }];
        let topics = vec![ListOffsetsTopic { name: topic.to_owned(), partitions }];
        let request = ListOffsetsRequest { replica_id: -1, topics, ..Default::default() };
        let response = self.call(5, &request).await;
        assert_eq!(response.topics[0].partitions[0].error_code, 0);
        response.topics[0].partitions[0].offset
    }
}

pub fn outcome(response: &ProduceResponse) -> (ErrorCode, i64) {
    let partition = &response.responses[0].partition_responses[0];
    (ErrorCode::from_code(partition.error_code).unwrap(), partition.base_offset)
}

/// One batch with these values.
pub fn batch(values: &[&str]) -> Bytes {
    let mut builder = RecordBatchBuilder::new(Compression::None);
    for value in values {
        builder.append(Timestamp(1_000), None, Some(value.as_bytes()), &[]);
    }
    builder.build().unwrap()
}

pub fn produce(topic: &str, acks: i16, records: Bytes) -> ProduceRequest {
    let partition_data = vec![PartitionProduceData { index: 0, records: Some(records) }];
    let topic_data = vec![TopicProduceData { name: topic.to_owned(), partition_data, ..Default::default() }];
    ProduceRequest { acks, timeout_ms: 30_000, topic_data, ..Default::default() }
}

pub fn fetch(topic: &str, fetch_offset: i64, max_wait_ms: i32) -> FetchRequest {
    let partition = FetchPartition { fetch_offset, partition_max_bytes: 1 << 20, ..Default::default() };
    let topics = vec![FetchTopic { topic: topic.to_owned(), partitions: vec![partition], ..Default::default() }];
    FetchRequest { max_wait_ms, min_bytes: 1, topics, ..Default::default() }
}
