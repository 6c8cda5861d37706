//! What tests of handlers share.

use thalweg_proto::v1;
use thalweg_proto::v1::record::Kind;

use crate::machine::image::{Image, ImageBuilder};

/// A cluster of broker 0 with these topics, each with its count of partitions.
pub fn image(topics: &[(&str, i32)]) -> Image {
    let mut records = vec![Kind::Broker(v1::BrokerRecord { id: 0, epoch: 1, ..Default::default() })];
    for (id, (name, count)) in (1u8..).zip(topics) {
        let topic_id = vec![id; 16];
        records.push(Kind::Topic(v1::TopicRecord {
            name: (*name).to_owned(),
            topic_id: topic_id.clone().into(),
            ..Default::default()
        }));
        records.extend((0..*count).map(|partition| {
            Kind::Partition(v1::PartitionRecord {
                topic_id: topic_id.clone().into(),
                partition,
                replicas: vec![0],
                isr: vec![0],
                ..Default::default()
            })
        }));
    }
    changed(ImageBuilder::default(), records)
}

/// One more config value on a resource of Kafka's kind 2 or 4.
pub fn set_config(records: &mut Vec<Kind>, resource: v1::config_record::Resource, name: &str, key: &str, value: &str) {
    records.push(Kind::Config(v1::ConfigRecord {
        resource: resource.into(),
        name: name.to_owned(),
        key: key.to_owned(),
        value: Some(value.to_owned()),
    }));
}

pub fn changed(mut builder: ImageBuilder, records: Vec<Kind>) -> Image {
    let records = records.into_iter().map(|kind| v1::Record { kind: Some(kind) }).collect();
    builder.apply(&v1::FeedItem { index: 1, records, ..Default::default() });
    builder.image()
}
