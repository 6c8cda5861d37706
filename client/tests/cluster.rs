//! The client against a real cluster, Thalweg's or Apache Kafka's: `THALWEG_TEST_ADDR=host:port`.
//!
//! Without an address every test here says so and passes.

use std::collections::BTreeMap;
use std::time::Duration;

use thalweg_client::consumer::topic_partition;
use thalweg_client::{
    Client, ClientConfig, ClientError, Compression, Consumer, ConsumerConfig, Delivery, Header, OffsetReset,
    OffsetSpec, Producer, ProducerConfig, ProducerRecord, StartAt,
};
use thalweg_model::{Offset, Timestamp, TopicPartition};
use tokio::sync::mpsc::UnboundedReceiver;

/// `None`, with a line for the reader, if there is no cluster to test against.
async fn cluster() -> Option<Client> {
    let Ok(address) = std::env::var("THALWEG_TEST_ADDR") else {
        println!("skipped: THALWEG_TEST_ADDR is not set");
        return None;
    };
    Some(Client::connect(ClientConfig::new(&address)).await.expect("the cluster at THALWEG_TEST_ADDR answers"))
}

fn unique(name: &str) -> String {
    format!("client-{name}-{:08x}", rand::random::<u32>())
}

/// Reads until `count` records came; a missing one fails the test.
async fn read(consumer: &mut Consumer, count: usize) -> Vec<(TopicPartition, thalweg_wire::records::Record)> {
    let mut records = Vec::new();
    while records.len() < count {
        let set = consumer.poll(Duration::from_secs(20)).await.expect("poll works");
        let set = set.unwrap_or_else(|| panic!("{} of {count} records came", records.len()));
        let tp = set.tp.clone();
        records.extend(set.map(|record| (tp.clone(), record.expect("the record reads"))));
    }
    records
}

/// Counts values until `expected` different ones came.
async fn gather(values: &mut UnboundedReceiver<String>, seen: &mut BTreeMap<String, u32>, expected: usize) {
    while seen.len() < expected {
        let value = tokio::time::timeout(Duration::from_secs(60), values.recv()).await;
        *seen.entry(value.expect("records go on coming").expect("members read")).or_default() += 1;
    }
}

/// Goal: what goes in comes out, with each codec. Method: keys, nulls, headers and times, read from the beginning.
#[tokio::test(flavor = "multi_thread")]
async fn records_come_back_as_they_were_sent_with_every_codec() {
    let Some(client) = cluster().await else { return };
    for compression in Compression::ALL {
        let topic = unique(compression.name());
        let config = ProducerConfig { compression, ..ProducerConfig::default() };
        let producer = Producer::new(&client, config).unwrap();
        let mut sent = vec![
            ProducerRecord::new(&topic).value("plain"),
            ProducerRecord::new(&topic).key("k").value("").header("h", "1").header("h", "2"),
            ProducerRecord::new(&topic).key("tombstone").timestamp(Timestamp(1_700_000_000_000)),
            ProducerRecord::new(&topic).value(vec![0u8, 13, 10, 255]).timestamp(Timestamp(0)),
        ];
        sent[0].headers.push(Header { key: "null".into(), value: None });
        let mut deliveries = Vec::new();
        for record in &sent {
            deliveries.push(producer.send(ProducerRecord { partition: Some(0), ..record.clone() }).await.unwrap());
        }
        producer.close().await;
        for (delivery, expected) in deliveries.into_iter().zip(0..) {
            assert_eq!(delivery.wait().await.unwrap().offset, Offset(expected));
        }
        let mut consumer = Consumer::new(&client, ConsumerConfig::default()).unwrap();
        let tp = topic_partition(&topic, 0).unwrap();
        consumer.assign([(tp.clone(), StartAt::Spec(OffsetSpec::Earliest))]).unwrap();
        let got = read(&mut consumer, sent.len()).await;
        for ((_, record), sent) in got.iter().zip(&sent) {
            assert_eq!((&record.key, &record.value), (&sent.key, &sent.value), "{compression:?}");
            let headers: Vec<Header> =
                record.headers.iter().map(|h| Header { key: h.key_text().into_owned(), value: h.value }).collect();
            assert_eq!(headers, sent.headers);
            assert!(sent.timestamp.is_none_or(|timestamp| timestamp == record.timestamp));
        }
        assert_eq!(consumer.position(&tp), Some(Offset(4)));
    }
}

/// Goal: order and completeness under batching and pipelining. Method: 20,000 records to one partition.
#[tokio::test(flavor = "multi_thread")]
async fn many_records_arrive_once_and_in_order() {
    let Some(client) = cluster().await else { return };
    let topic = unique("many");
    let config = ProducerConfig { batch_bytes: 4 << 10, ..ProducerConfig::default() };
    let producer = Producer::new(&client, config).unwrap();
    let mut deliveries: Vec<Delivery> = Vec::new();
    for i in 0..20_000 {
        deliveries.push(producer.send(ProducerRecord::new(&topic).partition(0).value(format!("{i}"))).await.unwrap());
    }
    producer.flush().await;
    for (delivery, expected) in deliveries.into_iter().zip(0..) {
        assert_eq!(delivery.wait().await.unwrap().offset, Offset(expected));
    }
    let mut consumer = Consumer::new(&client, ConsumerConfig::default()).unwrap();
    consumer.assign([(topic_partition(&topic, 0).unwrap(), StartAt::Offset(Offset(5_000)))]).unwrap();
    let got = read(&mut consumer, 15_000).await;
    for ((_, record), i) in got.iter().zip(5_000..) {
        assert_eq!((record.offset, record.value.as_deref()), (Offset(i), Some(format!("{i}").as_bytes())));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_over_the_topics_limit_fails_alone() {
    let Some(client) = cluster().await else { return };
    let topic = unique("large");
    let config = ProducerConfig { request_bytes_max: 8 << 20, batch_bytes: 4 << 20, ..ProducerConfig::default() };
    let producer = Producer::new(&client, config).unwrap();
    let send = |bytes: usize| producer.send(ProducerRecord::new(&topic).partition(0).value(vec![7; bytes]));
    let before = send(10).await.unwrap();
    let large = send(3 << 20).await.unwrap();
    let after = send(20).await.unwrap();
    producer.flush().await;
    assert_eq!(before.wait().await.unwrap().offset, Offset(0));
    let error = large.wait().await.unwrap_err();
    assert!(error.to_string().contains("max.message.bytes"), "{error}");
    assert_eq!(after.wait().await.unwrap().offset, Offset(1));
    let error = producer.send(ProducerRecord::new(&topic).value(vec![7; 9 << 20])).await.unwrap_err();
    assert!(matches!(error, ClientError::RecordTooLarge { .. }), "{error}");
}

/// Goal: three members share a topic, one goes, nobody reads twice what was committed.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_shares_partitions_and_takes_over_from_a_member_that_leaves() {
    let Some(client) = cluster().await else { return };
    let topic = unique("group");
    let group_id = unique("g");
    let admin = client.admin();
    admin.create_topic(&thalweg_client::NewTopic::new(&topic).partitions(6)).await.unwrap();
    let producer = Producer::new(&client, ProducerConfig::default()).unwrap();
    for i in 0..600 {
        producer.send(ProducerRecord::new(&topic).partition(i % 6).value(format!("{i}"))).await.unwrap();
    }
    producer.flush().await;
    let config = ConsumerConfig::group(&group_id).offset_reset(OffsetReset::Earliest);
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let stop = tokio_util::sync::CancellationToken::new();
    let leave = tokio_util::sync::CancellationToken::new();
    let mut members = Vec::new();
    for token in [leave.clone(), stop.clone(), stop.clone()] {
        let mut consumer = Consumer::new(&client, config.clone()).unwrap();
        consumer.subscribe([&topic]).unwrap();
        let sender = sender.clone();
        members.push(tokio::spawn(async move {
            while !token.is_cancelled() {
                if let Some(set) = consumer.poll(Duration::from_millis(100)).await.unwrap() {
                    for record in set {
                        let value = record.unwrap().value.unwrap();
                        sender.send(String::from_utf8(value.to_vec()).unwrap()).unwrap();
                    }
                }
            }
            let assigned = consumer.assignment().len();
            consumer.close().await.unwrap();
            assigned
        }));
    }
    gather(&mut receiver, &mut seen, 600).await;
    leave.cancel();
    members.remove(0).await.unwrap();
    for i in 600..1_200 {
        producer.send(ProducerRecord::new(&topic).partition(i % 6).value(format!("{i}"))).await.unwrap();
    }
    producer.flush().await;
    gather(&mut receiver, &mut seen, 1_200).await;
    stop.cancel();
    let mut assigned = 0;
    for member in members {
        assigned += member.await.unwrap();
    }
    assert_eq!(assigned, 6);
    // Everybody left in order and committed, so a newcomer finds nothing.
    let mut consumer = Consumer::new(&client, config).unwrap();
    consumer.subscribe([&topic]).unwrap();
    while consumer.assignment().len() < 6 {
        consumer.poll(Duration::from_millis(100)).await.unwrap();
    }
    assert!(consumer.poll(Duration::from_millis(1_000)).await.unwrap().is_none());
    assert!(seen.values().all(|count| *count == 1), "records came twice: {seen:?}");
    consumer.close().await.unwrap();
}
