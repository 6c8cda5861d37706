//! Where records lie in the store: one key a record, in an order that keeps a topic's partitions together.

use prost::Message;
use thalweg_proto::v1::Record;
use thalweg_proto::v1::record::Kind;

use super::state::ReplayError;

/// A change of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Put {
        key: Vec<u8>,
        value: Vec<u8>,
    },
    Delete {
        key: Vec<u8>,
    },
    /// `from` inclusive, `to` exclusive.
    DeleteRange {
        from: Vec<u8>,
        to: Vec<u8>,
    },
}

/// What a record does to the store.
///
/// # Errors
/// A record of no known kind.
pub fn ops(record: &Record) -> Result<Vec<Op>, ReplayError> {
    let put = |key| Op::Put { key, value: record.encode_to_vec() };
    Ok(match record.kind.as_ref().ok_or(ReplayError::UnknownKind)? {
        Kind::Cluster(_) => vec![put(vec![CLUSTER])],
        Kind::Feature(feature) => vec![put(Key::new(FEATURE).rest(&feature.name))],
        Kind::Broker(broker) => vec![put(Key::new(BROKER).int(broker.id).end())],
        Kind::BrokerRemoved(removed) => vec![Op::Delete { key: Key::new(BROKER).int(removed.id).end() }],
        Kind::Topic(topic) => vec![put(Key::new(TOPIC).raw(&topic.topic_id).end())],
        Kind::TopicRemoved(removed) => vec![
            Op::Delete { key: Key::new(TOPIC).raw(&removed.topic_id).end() },
            Op::DeleteRange {
                from: Key::new(PARTITION).raw(&removed.topic_id).int(0).end(),
                to: Key::new(PARTITION).raw(&removed.topic_id).int(-1).end(),
            },
        ],
        Kind::Partition(partition) => {
            vec![put(Key::new(PARTITION).raw(&partition.topic_id).int(partition.partition).end())]
        }
        Kind::Config(config) => {
            let key = Key::new(CONFIG).int(config.resource).text(&config.name).rest(&config.key);
            vec![if config.value.is_some() { put(key) } else { Op::Delete { key } }]
        }
        Kind::ProducerIds(_) => vec![put(vec![PRODUCER_IDS])],
        Kind::Group(group) => vec![put(Key::new(GROUP).rest(&group.group_id))],
        Kind::GroupRemoved(removed) => vec![Op::Delete { key: Key::new(GROUP).rest(&removed.group_id) }],
        Kind::Coordinator(node) => vec![put(Key::new(COORDINATOR).raw(&node.id.to_be_bytes()).end())],
        Kind::Plan(_) => vec![put(vec![PLAN])],
        Kind::PlanRemoved(_) => vec![Op::Delete { key: vec![PLAN] }],
        Kind::Token(token) => vec![put(Key::new(TOKEN).rest(&token.id))],
        Kind::TokenRemoved(removed) => vec![Op::Delete { key: Key::new(TOKEN).rest(&removed.id) }],
        Kind::NodeIds(_) => vec![put(vec![NODE_IDS])],
        Kind::Offset(offset) => vec![put(offset_key(&offset.group_id, &offset.topic, offset.partition))],
        Kind::OffsetRemoved(removed) => {
            vec![Op::Delete { key: offset_key(&removed.group_id, &removed.topic, removed.partition) }]
        }
    })
}

fn offset_key(group: &str, topic: &str, partition: i32) -> Vec<u8> {
    Key::new(OFFSET).text(group).text(topic).int(partition).end()
}

struct Key(Vec<u8>);

impl Key {
    fn new(kind: u8) -> Key {
        Key(vec![kind])
    }

    /// Big-endian and unsigned, so that -1 stands after every partition.
    fn int(mut self, number: i32) -> Key {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    fn raw(mut self, bytes: &[u8]) -> Key {
        self.0.extend_from_slice(bytes);
        self
    }

    /// With its length, so that what follows cannot run into it.
    fn text(mut self, text: &str) -> Key {
        self.0.extend_from_slice(&(text.len() as u32).to_be_bytes());
        self.raw(text.as_bytes())
    }

    fn rest(self, text: &str) -> Vec<u8> {
        self.raw(text.as_bytes()).0
    }

    fn end(self) -> Vec<u8> {
        self.0
    }
}

const CLUSTER: u8 = 1;
const FEATURE: u8 = 2;
const BROKER: u8 = 3;
const TOPIC: u8 = 5;
const PARTITION: u8 = 7;
const CONFIG: u8 = 8;
const PRODUCER_IDS: u8 = 9;
const GROUP: u8 = 10;
const OFFSET: u8 = 12;
const COORDINATOR: u8 = 14;
const PLAN: u8 = 15;
const TOKEN: u8 = 17;
const NODE_IDS: u8 = 19;
