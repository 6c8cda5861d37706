//! The client library against a real broker: a node of ours, or with `BROKERS=host:port` Apache Kafka.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use thalweg_client::admin::{ConfigChange, ConfigResource, ConfigSource};
use thalweg_client::consumer::{Assignor, Rebalance, RebalanceListener, topic_partition};
use thalweg_client::{
    Client, ClientConfig, ClientError, Compression, Consumer, ConsumerConfig, Delivery, Header, Isolation, NewTopic,
    OffsetReset, OffsetSpec, Producer, ProducerConfig, ProducerRecord, StartAt,
};
use thalweg_model::{ErrorCode, Offset, Timestamp, TopicPartition};
use thalweg_tests::{Target, target, unique};
use tokio::sync::mpsc::UnboundedReceiver;

/// A client of the broker that these tests share, which stays as long as the first of the pair is held.
async fn cluster() -> (Arc<Target>, Client) {
    connect(|config| config).await
}

async fn connect(with: impl FnOnce(ClientConfig) -> ClientConfig) -> (Arc<Target>, Client) {
    let target = target();
    let client = Client::connect(with(ClientConfig::new(target.addr()))).await.expect("the broker answers");
    (target, client)
}

/// Reads until `count` records came; a missing one fails the test.
async fn read(consumer: &mut Consumer, count: usize) -> Vec<(TopicPartition, thalweg_client::Record)> {
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
    let (_target, client) = cluster().await;
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
    let (_target, client) = cluster().await;
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
    let (_target, client) = cluster().await;
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
    let (_target, client) = cluster().await;
    let topic = new_topic(&client, "group", 6).await;
    let group_id = unique("g");
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

async fn new_topic(client: &Client, name: &str, partitions: i32) -> String {
    let topic = unique(name);
    client.admin().create_topic(&NewTopic::new(&topic).partitions(partitions)).await.unwrap();
    topic
}

async fn fill(client: &Client, topic: &str, records: impl IntoIterator<Item = ProducerRecord>) {
    let producer = Producer::new(client, ProducerConfig::default()).unwrap();
    let mut deliveries = Vec::new();
    for record in records {
        deliveries.push(producer.send(ProducerRecord { topic: topic.to_owned(), ..record }).await.unwrap());
    }
    producer.close().await;
    for delivery in deliveries {
        delivery.wait().await.unwrap();
    }
}

fn numbered(range: std::ops::Range<i64>) -> impl Iterator<Item = ProducerRecord> {
    range.map(|i| ProducerRecord::new("").partition(0).value(i.to_string()).timestamp(Timestamp(1_000 + 10 * i)))
}

/// Polls until every one of `count` partitions is assigned.
async fn join(consumer: &mut Consumer, count: usize) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while consumer.assignment().len() != count {
        assert!(tokio::time::Instant::now() < deadline, "assigned: {:?}", consumer.assignment());
        consumer.poll(Duration::from_millis(50)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_goes_on_where_it_committed() {
    let (_target, client) = cluster().await;
    let topic = new_topic(&client, "resume", 1).await;
    fill(&client, &topic, numbered(0..10)).await;
    let tp = topic_partition(&topic, 0).unwrap();
    let mut config = ConsumerConfig::group(unique("g")).offset_reset(OffsetReset::Earliest);
    config.auto_commit = None;
    let mut first = Consumer::new(&client, config.clone()).unwrap();
    first.subscribe([&topic]).unwrap();
    read(&mut first, 10).await;
    first.commit_offsets(&[(tp.clone(), Offset(4))].into()).await.unwrap();
    let committed = first.committed(std::slice::from_ref(&tp)).await.unwrap();
    assert_eq!(committed[&tp].offset, Offset(4));
    first.close().await.unwrap();
    let mut second = Consumer::new(&client, config).unwrap();
    second.subscribe([&topic]).unwrap();
    let got = read(&mut second, 6).await;
    assert_eq!(got[0].1.offset, Offset(4));
    second.commit_in_background().unwrap().await.unwrap().unwrap();
    assert_eq!(second.committed(std::slice::from_ref(&tp)).await.unwrap()[&tp].offset, Offset(10));
    second.close().await.unwrap();
}

/// Goal: a static member that restarts keeps its partitions without a rebalance (KIP-345). Method: the other member
/// counts its rebalances while the static one closes and comes back.
#[tokio::test(flavor = "multi_thread")]
async fn a_static_member_comes_back_without_a_rebalance_and_fences_its_double() {
    let (_target, client) = cluster().await;
    let topic = new_topic(&client, "static", 2).await;
    let group = unique("g");
    let rebalance_count = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&rebalance_count);
    let mut other_config = ConsumerConfig::group(&group);
    other_config.on_rebalance = Some(RebalanceListener(Arc::new(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
    })));
    let mut other = Consumer::new(&client, other_config).unwrap();
    other.subscribe([&topic]).unwrap();
    join(&mut other, 2).await;
    let mut config = ConsumerConfig::group(&group);
    config.group_instance_id = Some("i-1".into());
    let mut fixed = Consumer::new(&client, config.clone()).unwrap();
    fixed.subscribe([&topic]).unwrap();
    while other.assignment().len() != 1 || fixed.assignment().len() != 1 {
        other.poll(Duration::from_millis(20)).await.unwrap();
        fixed.poll(Duration::from_millis(20)).await.unwrap();
    }
    let assigned = fixed.assignment();
    let before = rebalance_count.load(Ordering::SeqCst);
    fixed.close().await.unwrap();
    let mut again = Consumer::new(&client, config.clone()).unwrap();
    again.subscribe([&topic]).unwrap();
    join(&mut again, 1).await;
    other.poll(Duration::from_millis(200)).await.unwrap();
    assert_eq!((again.assignment(), rebalance_count.load(Ordering::SeqCst)), (assigned, before));
    let mut double = Consumer::new(&client, config).unwrap();
    double.subscribe([&topic]).unwrap();
    join(&mut double, 1).await;
    let error = again.commit_offsets(&[(topic_partition(&topic, 0).unwrap(), Offset(0))].into()).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::FencedInstanceId));
    other.close().await.unwrap();
}

/// Goal: with cooperative members a newcomer takes its share and nobody else stops (KIP-429). Method: the first
/// member's listener must never see more go than the newcomer gets.
#[tokio::test(flavor = "multi_thread")]
async fn cooperative_members_give_up_only_what_moves() {
    let (_target, client) = cluster().await;
    let topic = new_topic(&client, "coop", 4).await;
    let revoked = Arc::new(Mutex::new(0));
    let count = Arc::clone(&revoked);
    let mut config = ConsumerConfig::group(unique("g"));
    config.assignors = vec![Assignor::CooperativeSticky];
    let mut first_config = config.clone();
    first_config.on_rebalance = Some(RebalanceListener(Arc::new(move |rebalance| {
        if let Rebalance::Revoked(gone) | Rebalance::Lost(gone) = rebalance {
            *count.lock().unwrap() += gone.len();
        }
    })));
    let mut first = Consumer::new(&client, first_config).unwrap();
    first.subscribe([&topic]).unwrap();
    join(&mut first, 4).await;
    let mut second = Consumer::new(&client, config).unwrap();
    second.subscribe([&topic]).unwrap();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while first.assignment().len() != 2 || second.assignment().len() != 2 {
        assert!(tokio::time::Instant::now() < deadline);
        first.poll(Duration::from_millis(20)).await.unwrap();
        second.poll(Duration::from_millis(20)).await.unwrap();
    }
    assert_eq!(*revoked.lock().unwrap(), 2);
    assert!(first.assignment().is_disjoint(&second.assignment()));
    second.close().await.unwrap();
    join(&mut first, 4).await;
    assert_eq!(*revoked.lock().unwrap(), 2, "taking over needs no giving up");
    first.close().await.unwrap();
}

/// Goal: members that stop for a rebalance get back what they had (KIP-54). Method: a third member takes the last partition of
/// each of the others, which no assignor without memory would do.
#[tokio::test(flavor = "multi_thread")]
async fn sticky_members_get_back_what_they_had() {
    let (_target, client) = cluster().await;
    let topic = new_topic(&client, "sticky", 6).await;
    let mut config = ConsumerConfig::group(unique("g"));
    config.assignors = vec![Assignor::Sticky];
    let mut members: Vec<Consumer> = Vec::new();
    for expected in
        [vec![vec![0, 1, 2, 3, 4, 5]], vec![vec![0, 1, 2], vec![3, 4, 5]], vec![vec![0, 1], vec![3, 4], vec![2, 5]]]
    {
        let mut member = Consumer::new(&client, config.clone()).unwrap();
        member.subscribe([&topic]).unwrap();
        members.push(member);
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        let held = |members: &[Consumer]| -> Vec<Vec<i32>> {
            members.iter().map(|member| member.assignment().iter().map(|tp| tp.partition.0).collect()).collect()
        };
        while held(&members) != expected {
            assert!(tokio::time::Instant::now() < deadline, "{:?}, not {expected:?}", held(&members));
            for member in &mut members {
                member.poll(Duration::from_millis(20)).await.unwrap();
            }
        }
    }
    for member in members {
        member.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn offsets_are_found_by_time_and_a_seek_goes_there() {
    let (_target, client) = cluster().await;
    let topic = new_topic(&client, "times", 1).await;
    fill(&client, &topic, numbered(0..100)).await;
    let tp = topic_partition(&topic, 0).unwrap();
    for (spec, expected) in [
        (OffsetSpec::Earliest, 0),
        (OffsetSpec::Latest, 100),
        (OffsetSpec::MaxTimestamp, 99),
        (OffsetSpec::AtTime(Timestamp(0)), 0),
        (OffsetSpec::AtTime(Timestamp(1_501)), 51),
        (OffsetSpec::AtTime(Timestamp(9_999_999)), -1),
    ] {
        let found = client.list_offsets(&[(tp.clone(), spec)].into(), Isolation::ReadUncommitted).await.unwrap();
        assert_eq!(found[&tp].offset, Offset(expected), "{spec:?}");
    }
    let mut consumer = Consumer::new(&client, ConsumerConfig::default()).unwrap();
    consumer.assign([(tp.clone(), StartAt::Spec(OffsetSpec::AtTime(Timestamp(1_501))))]).unwrap();
    assert_eq!(read(&mut consumer, 49).await[0].1.offset, Offset(51));
    consumer.seek(&tp, StartAt::Offset(Offset(98))).unwrap();
    assert_eq!(read(&mut consumer, 2).await[0].1.offset, Offset(98));
    consumer.seek(&tp, StartAt::Offset(Offset(0))).unwrap();
    consumer.pause(&tp).unwrap();
    assert!(consumer.poll(Duration::from_millis(300)).await.unwrap().is_none());
    consumer.resume(&tp).unwrap();
    assert_eq!(read(&mut consumer, 100).await.len(), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offset_below_the_log_start_resets_as_the_policy_says() {
    let (_target, client) = cluster().await;
    let topic = new_topic(&client, "reset", 1).await;
    fill(&client, &topic, numbered(0..20)).await;
    let tp = topic_partition(&topic, 0).unwrap();
    let low = client.admin().delete_records(&[(tp.clone(), Offset(12))].into()).await.unwrap();
    assert_eq!(low[&tp], Offset(12));
    for (policy, expected) in [(OffsetReset::Earliest, Some(12)), (OffsetReset::None, None)] {
        let mut consumer = Consumer::new(&client, ConsumerConfig::default().offset_reset(policy)).unwrap();
        consumer.assign([(tp.clone(), StartAt::Offset(Offset(3)))]).unwrap();
        match (consumer.poll(Duration::from_secs(20)).await, expected) {
            (Ok(Some(mut set)), Some(offset)) => assert_eq!(set.next().unwrap().unwrap().offset, Offset(offset)),
            (Err(ClientError::OffsetOutOfRange { .. }), None) => {}
            (other, _) => panic!("{policy:?}: {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_are_created_changed_and_deleted() {
    let (_target, client) = cluster().await;
    let admin = client.admin();
    let name = unique("admin");
    let wanted = NewTopic::new(&name).partitions(2).config("retention.ms", "3600000");
    let created = admin.create_topic(&wanted).await.unwrap();
    assert_eq!(created.partition_count, Some(2));
    let again = admin.create_topic(&wanted).await.unwrap_err();
    assert_eq!(again.code(), Some(ErrorCode::TopicAlreadyExists));
    let topic = admin.topic(&name).await.unwrap();
    assert_eq!((topic.id, topic.partition_count()), (created.id, 2));
    admin.add_partitions(&name, 3).await.unwrap();
    let resource = ConfigResource::Topic(name.clone());
    let change = ConfigChange::Set("max.message.bytes".into(), "2000".into());
    admin.alter_configs(&resource, &[change], false).await.unwrap();
    let back = ConfigChange::Delete("retention.ms".into());
    admin.alter_configs(&resource, &[back], false).await.unwrap();
    let configs = admin.describe_configs(&resource).await.unwrap();
    let config = |key: &str| configs.iter().find(|entry| entry.name == key).unwrap().clone();
    assert_eq!(config("max.message.bytes").value.as_deref(), Some("2000"));
    assert_eq!(config("max.message.bytes").source, ConfigSource::Topic);
    assert_eq!(config("retention.ms").source, ConfigSource::Default);
    let unknown = ConfigChange::Set("no.such.key".into(), "1".into());
    assert!(admin.alter_configs(&resource, &[unknown], false).await.is_err());
    assert!(admin.topics().await.unwrap().contains_key(&name));
    admin.delete_topic(&name).await.unwrap();
    assert!(matches!(admin.delete_topic(&name).await, Err(ClientError::UnknownTopic { .. })));
    let error = admin.create_topic(&NewTopic::new("../x")).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::InvalidTopicException));
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_are_listed_described_and_deleted() {
    let (_target, client) = cluster().await;
    let admin = client.admin();
    let topic = new_topic(&client, "described", 2).await;
    let group = unique("g");
    let mut consumer = Consumer::new(&client, ConsumerConfig::group(&group)).unwrap();
    consumer.subscribe([&topic]).unwrap();
    join(&mut consumer, 2).await;
    consumer.commit_offsets(&[(topic_partition(&topic, 0).unwrap(), Offset(0))].into()).await.unwrap();
    let described = admin.describe_group(&group).await.unwrap();
    assert_eq!((described.state.as_str(), described.members.len()), ("Stable", 1));
    assert_eq!(described.members[0].assignment, Some([(topic.clone(), vec![0, 1])].into()));
    assert!(admin.groups().await.unwrap().iter().any(|listed| listed.group_id == group));
    assert_eq!(admin.delete_group(&group).await.unwrap_err().code(), Some(ErrorCode::NonEmptyGroup));
    consumer.close().await.unwrap();
    assert_eq!(admin.group_offsets(&group).await.unwrap().len(), 2, "closing committed the positions");
    admin.delete_group(&group).await.unwrap();
    assert_eq!(admin.describe_group(&group).await.unwrap_err().code(), Some(ErrorCode::GroupIdNotFound));
}

/// Goal: topics that match are read, also one that is made later; others are not. Method: three topics, one late.
#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_takes_up_topics_that_come_later() {
    let often = |config| ClientConfig { metadata_max_age: Duration::from_millis(200), ..config };
    let (_target, client) = connect(often).await;
    let prefix = unique("pattern");
    let names = ["one", "two", "late", "other"].map(|name| format!("{prefix}.{name}"));
    let producer = Producer::new(&client, ProducerConfig::default()).unwrap();
    let write = async |name: &String| {
        client.admin().create_topic(&NewTopic::new(name).partitions(1).replication_factor(1)).await.unwrap();
        producer.send(ProducerRecord::new(name).value(name.clone())).await.unwrap().wait().await.unwrap();
    };
    for name in [&names[0], &names[1], &names[3]] {
        write(name).await;
    }
    let config = ConsumerConfig::group(unique("pattern")).offset_reset(OffsetReset::Earliest);
    let mut consumer = Consumer::new(&client, config).unwrap();
    assert!(matches!(consumer.subscribe_pattern("(").await, Err(ClientError::InvalidUse { .. })));
    consumer.subscribe_pattern(&format!("{prefix}.(one|two|late)")).await.unwrap();
    let first: std::collections::BTreeSet<String> =
        read(&mut consumer, 2).await.into_iter().map(|(tp, _)| tp.topic.to_string()).collect();
    assert_eq!(first, [names[0].clone(), names[1].clone()].into());
    write(&names[2]).await;
    let later = read(&mut consumer, 1).await;
    assert_eq!(later[0].0.topic.as_str(), names[2]);
    consumer.close().await.unwrap();
}

/// Goal: offsets move from outside, without and under members. Method: an idle group, then one with a member.
#[tokio::test(flavor = "multi_thread")]
async fn a_groups_offsets_are_moved_from_outside_also_under_a_member() {
    let (_target, client) = cluster().await;
    let admin = client.admin();
    let (topic, group) = (unique("moved"), unique("moved"));
    admin.create_topic(&NewTopic::new(&topic).partitions(1).replication_factor(1)).await.unwrap();
    let producer = Producer::new(&client, ProducerConfig::default()).unwrap();
    for i in 0..10 {
        producer.send(ProducerRecord::new(&topic).value(format!("{i}"))).await.unwrap().wait().await.unwrap();
    }
    let tp = topic_partition(&topic, 0).unwrap();
    let at = |offset| [(tp.clone(), Offset(offset))].into();
    admin.commit_group_offsets(&group, &at(7)).await.unwrap();
    let config = ConsumerConfig::group(&group).offset_reset(OffsetReset::None);
    let mut consumer = Consumer::new(&client, config).unwrap();
    consumer.subscribe([&topic]).unwrap();
    assert_eq!(read(&mut consumer, 3).await[0].1.offset, Offset(7));
    let refused = admin.commit_group_offsets(&group, &at(2)).await.unwrap_err();
    assert_eq!(refused.code(), Some(ErrorCode::UnknownMemberId));
    assert_eq!(admin.commit_group_offsets_live(&group, &at(2)).await.unwrap(), 1);
    assert_eq!(read(&mut consumer, 8).await[0].1.offset, Offset(2), "the member is back, from there");
    consumer.close().await.unwrap();
    assert_eq!(admin.group_offsets(&group).await.unwrap()[&tp].offset, Offset(10));
}
