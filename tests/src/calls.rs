//! The requests most tests need, in one line each.

use bytes::Bytes;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::create_topics_response::CreatableTopicResult;
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{
    BrokerId, CreateTopicsRequest, DeleteTopicsRequest, FetchRequest, FetchResponse, GroupId, InitProducerIdRequest,
    ListOffsetsRequest, MetadataRequest, MetadataResponse, ProduceRequest, ProducerId, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use thalweg_model::ErrorCode;
use uuid::Uuid;

use crate::{Conn, Target, unique};

pub fn text(s: &str) -> StrBytes {
    StrBytes::from_string(s.to_owned())
}

pub fn topic_name(s: &str) -> TopicName {
    TopicName(text(s))
}

pub fn group_id(s: &str) -> GroupId {
    GroupId(text(s))
}

impl Target {
    /// A new topic of one partition with the default configuration.
    pub fn topic(&self, conn: &mut Conn) -> String {
        self.topic_with(conn, 1, &[])
    }

    pub fn topic_with(&self, conn: &mut Conn, partitions: i32, configs: &[(&str, &str)]) -> String {
        let name = unique("t");
        let created = create_topic(conn, &name, partitions, configs);
        assert_eq!(created.error_code, 0, "{:?}", created.error_message);
        if self.is_kafka() {
            // Kafka names a leader that still answers NOT_LEADER_OR_FOLLOWER for a moment; we must not.
            while (0..partitions).any(|p| list_offset(conn, &name, p, -1).0 != 0) {
                std::thread::yield_now();
            }
        }
        name
    }
}

pub fn create_topic(conn: &mut Conn, name: &str, partitions: i32, configs: &[(&str, &str)]) -> CreatableTopicResult {
    create_replicated_topic(conn, name, partitions, 1, configs)
}

pub fn create_replicated_topic(
    conn: &mut Conn,
    name: &str,
    partitions: i32,
    replication_factor: i16,
    configs: &[(&str, &str)],
) -> CreatableTopicResult {
    let configs = configs
        .iter()
        .map(|(k, v)| CreatableTopicConfig::default().with_name(text(k)).with_value(Some(text(v))))
        .collect();
    let topic = CreatableTopic::default()
        .with_name(topic_name(name))
        .with_num_partitions(partitions)
        .with_replication_factor(replication_factor)
        .with_configs(configs);
    let request = CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(30_000);
    conn.call(7, &request).topics.remove(0)
}

/// Deletes by name; gives the error code.
pub fn delete_topic(conn: &mut Conn, name: &str) -> i16 {
    let topic = DeleteTopicState::default().with_name(Some(topic_name(name)));
    let request = DeleteTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(30_000);
    conn.call(6, &request).responses[0].error_code
}

/// Asks for `topics`, or for all.
pub fn metadata(conn: &mut Conn, version: i16, topics: Option<&[&str]>, auto_create: bool) -> MetadataResponse {
    let topics = topics.map(|names| {
        names.iter().map(|name| MetadataRequestTopic::default().with_name(Some(topic_name(name)))).collect()
    });
    let request = MetadataRequest::default().with_topics(topics);
    // Before v4 it is implied.
    let request = if version < 4 { request } else { request.with_allow_auto_topic_creation(auto_create) };
    conn.call(version, &request)
}

pub fn topic_id(conn: &mut Conn, name: &str) -> Uuid {
    metadata(conn, 12, Some(&[name]), false).topics[0].topic_id
}

pub fn produce_request(acks: i16, topic: &str, partitions: &[(i32, Option<Bytes>)]) -> ProduceRequest {
    let partitions = partitions
        .iter()
        .map(|(index, records)| PartitionProduceData::default().with_index(*index).with_records(records.clone()))
        .collect();
    let topic = TopicProduceData::default().with_name(topic_name(topic)).with_partition_data(partitions);
    ProduceRequest::default().with_acks(acks).with_timeout_ms(30_000).with_topic_data(vec![topic])
}

/// Sends `records` to partition 0 with acks=all.
pub fn produce(conn: &mut Conn, topic: &str, records: Bytes) -> PartitionProduceResponse {
    produce_at(conn, 9, topic, records)
}

pub fn produce_at(conn: &mut Conn, version: i16, topic: &str, records: Bytes) -> PartitionProduceResponse {
    let mut answer = conn.call(version, &produce_request(-1, topic, &[(0, Some(records))]));
    answer.responses.remove(0).partition_responses.remove(0)
}

/// [`produce`] that must succeed; gives the base offset.
pub fn append(conn: &mut Conn, topic: &str, records: Bytes) -> i64 {
    let answer = produce(conn, topic, records);
    assert_eq!(answer.error_code, 0, "{:?}", answer.error_message);
    answer.base_offset
}

/// How to fetch; the default asks for what is there, without waiting.
#[derive(Clone, Debug)]
pub struct Fetch {
    pub version: i16,
    pub max_wait_ms: i32,
    pub min_bytes: i32,
    pub max_bytes: i32,
    pub partition_max_bytes: i32,
    pub isolation_level: i8,
    pub current_leader_epoch: i32,
    pub session_id: i32,
    pub session_epoch: i32,
    pub rack_id: String,
}

impl Default for Fetch {
    fn default() -> Fetch {
        Fetch {
            version: 12,
            max_wait_ms: 0,
            min_bytes: 1,
            max_bytes: 50 << 20,
            partition_max_bytes: 1 << 20,
            isolation_level: 0,
            current_leader_epoch: -1,
            session_id: 0,
            session_epoch: -1,
            rack_id: String::new(),
        }
    }
}

impl Fetch {
    /// A request for `(partition, offset)` pairs of one topic, named by `topic` below v13 and by `id` from there.
    pub fn request(&self, topic: &str, id: Uuid, partitions: &[(i32, i64)]) -> FetchRequest {
        let partitions = partitions
            .iter()
            .map(|(partition, offset)| {
                FetchPartition::default()
                    .with_partition(*partition)
                    .with_current_leader_epoch(self.current_leader_epoch)
                    .with_fetch_offset(*offset)
                    .with_partition_max_bytes(self.partition_max_bytes)
            })
            .collect();
        let topic = if self.version < 13 {
            FetchTopic::default().with_topic(topic_name(topic))
        } else {
            FetchTopic::default().with_topic_id(id)
        };
        let topics = vec![topic.with_partitions(partitions)];
        let request = FetchRequest::default()
            .with_max_wait_ms(self.max_wait_ms)
            .with_min_bytes(self.min_bytes)
            .with_max_bytes(self.max_bytes)
            .with_isolation_level(self.isolation_level)
            .with_session_id(self.session_id)
            .with_session_epoch(self.session_epoch)
            .with_rack_id(text(&self.rack_id))
            .with_topics(topics);
        if self.version < 15 { request.with_replica_id(BrokerId(-1)) } else { request }
    }

    pub fn call(&self, conn: &mut Conn, topic: &str, partitions: &[(i32, i64)]) -> FetchResponse {
        let id = if self.version < 13 { Uuid::nil() } else { topic_id(conn, topic) };
        conn.call(self.version, &self.request(topic, id, partitions))
    }

    /// Fetches partition 0 from `offset`.
    pub fn one(&self, conn: &mut Conn, topic: &str, offset: i64) -> PartitionData {
        let mut answer = self.call(conn, topic, &[(0, offset)]);
        assert_eq!(answer.error_code, 0, "fetch: {:?}", ErrorCode::from_code(answer.error_code));
        answer.responses.remove(0).partitions.remove(0)
    }
}

/// The values of partition 0 from `offset` to the high watermark.
pub fn read_from(conn: &mut Conn, topic: &str, mut offset: i64) -> Vec<String> {
    let mut values = Vec::new();
    loop {
        let answer = Fetch::default().one(conn, topic, offset);
        assert_eq!(answer.error_code, 0, "fetch at {offset}");
        let batches = crate::batch::read_batches(answer.records.as_deref().unwrap_or_default());
        let Some(last) = batches.last() else { return values };
        let first = offset;
        offset = last.last_offset + 1;
        for record in batches.into_iter().flat_map(|b| b.records).filter(|r| r.offset >= first) {
            values.push(String::from_utf8(record.value.expect("a value").to_vec()).expect("text"));
        }
    }
}

/// `(error_code, offset, timestamp, leader_epoch)` of partition `partition` at `timestamp`.
pub fn list_offset(conn: &mut Conn, topic: &str, partition: i32, timestamp: i64) -> (i16, i64, i64, i32) {
    list_offset_at(conn, 7, topic, partition, timestamp)
}

pub fn list_offset_at(
    conn: &mut Conn,
    version: i16,
    topic: &str,
    partition: i32,
    timestamp: i64,
) -> (i16, i64, i64, i32) {
    let asked = ListOffsetsPartition::default().with_partition_index(partition).with_timestamp(timestamp);
    let asked = if version >= 4 { asked.with_current_leader_epoch(-1) } else { asked };
    let topic = ListOffsetsTopic::default().with_name(topic_name(topic)).with_partitions(vec![asked]);
    let request = ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic]);
    let answer = conn.call(version, &request);
    let p = &answer.topics[0].partitions[0];
    (p.error_code, p.offset, p.timestamp, p.leader_epoch)
}

/// A new producer id with its epoch.
pub fn init_producer_id(conn: &mut Conn) -> (i64, i16) {
    let request = InitProducerIdRequest::default()
        .with_transactional_id(None)
        .with_transaction_timeout_ms(i32::MAX)
        .with_producer_id(ProducerId(-1))
        .with_producer_epoch(-1);
    loop {
        let answer = conn.call(4, &request);
        // Kafka fetches a block of ids at first and asks to come again.
        if answer.error_code != ErrorCode::CoordinatorLoadInProgress.code() {
            assert_eq!(answer.error_code, 0);
            return (answer.producer_id.0, answer.producer_epoch);
        }
    }
}
