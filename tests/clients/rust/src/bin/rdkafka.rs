//! rdkafka (librdkafka in Rust) behind the runner's commands.

use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, StreamConsumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Header, Headers, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord, Producer};
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};
use thalweg_compat_clients::{Command, Failure, Line, Start, brokers, command, show, show_described, terminated, text};

#[tokio::main]
async fn main() {
    if let Err(error) = run().await {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

async fn run() -> Result<(), Failure> {
    match command()? {
        Command::Produce { topic, codec, lines } => produce(&topic, &codec, &lines).await,
        Command::Consume { topic, start, count } => consume(&topic, start, count),
        Command::Group { group, topic } => member(&group, &topic).await,
        Command::Create { topic, partitions, configs } => {
            let new = NewTopic::new(&topic, partitions, TopicReplication::Fixed(1));
            let new = configs.iter().fold(new, |new, (key, value)| new.set(key, value));
            one(admin()?.create_topics([&new], &options()).await?)
        }
        // AlterConfigs is all that it has, without a source of values to keep.
        Command::Alter { .. } => {
            eprintln!("it has no IncrementalAlterConfigs");
            std::process::exit(77);
        }
        Command::Describe { topic } => describe(&topic).await,
        Command::Delete { topic } => one(admin()?.delete_topics(&[&topic], &options()).await?),
    }
}

fn config() -> Result<ClientConfig, Failure> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers()?);
    Ok(config)
}

async fn produce(topic: &str, codec: &str, lines: &[Line]) -> Result<(), Failure> {
    let mut config = config()?;
    config.set("compression.type", codec).set("linger.ms", "20").set("enable.idempotence", "true");
    config.set("message.max.bytes", "10000000");
    let producer: FutureProducer = config.create()?;
    let mut sent = Vec::new();
    for line in lines {
        let headers = line
            .headers
            .iter()
            .fold(OwnedHeaders::new(), |headers, (key, value)| headers.insert(Header { key, value: value.as_ref() }));
        let record = FutureRecord {
            topic,
            partition: Some(line.partition),
            payload: line.value.as_ref(),
            key: line.key.as_ref(),
            timestamp: None,
            headers: Some(headers),
        };
        sent.push(producer.send_result(record).map_err(|(error, _)| error)?);
    }
    for delivery in sent {
        delivery.await?.map_err(|(error, _)| error)?;
    }
    Ok(producer.flush(Duration::from_secs(30))?)
}

fn consume(topic: &str, start: Start, count: usize) -> Result<(), Failure> {
    let mut config = config()?;
    config.set("group.id", "unused").set("enable.auto.commit", "false").set("auto.offset.reset", "error");
    config.set("allow.auto.create.topics", "false");
    let consumer: BaseConsumer = config.create()?;
    let metadata = consumer.fetch_metadata(Some(topic), TIMEOUT)?;
    if let Some(error) = metadata.topics().iter().find_map(|topic| topic.error()) {
        return Err(KafkaError::MetadataFetch(error.into()).into());
    }
    let offset = match start {
        Start::Beginning => Offset::Beginning,
        Start::End => Offset::End,
        Start::Offset(offset) => Offset::Offset(offset),
        Start::Timestamp(time) => {
            let mut wanted = TopicPartitionList::new();
            wanted.add_partition_offset(topic, 0, Offset::Offset(time))?;
            let found = consumer.offsets_for_times(wanted, TIMEOUT)?;
            found.find_partition(topic, 0).ok_or("no offset for the time")?.offset()
        }
    };
    let mut assignment = TopicPartitionList::new();
    assignment.add_partition_offset(topic, 0, offset)?;
    consumer.assign(&assignment)?;
    for message in consumer.iter().take(count) {
        show_message(&message?)?;
    }
    Ok(())
}

async fn member(group: &str, topic: &str) -> Result<(), Failure> {
    let mut config = config()?;
    config.set("group.id", group).set("auto.offset.reset", "earliest");
    config.set("session.timeout.ms", "6000").set("heartbeat.interval.ms", "500");
    let consumer: StreamConsumer = config.create()?;
    consumer.subscribe(&[topic])?;
    let end = terminated();
    tokio::pin!(end);
    loop {
        tokio::select! {
            done = &mut end => break done?,
            message = consumer.recv() => show_message(&message?)?,
        }
    }
    match consumer.commit_consumer_state(CommitMode::Sync) {
        // The background commit had them all.
        Err(KafkaError::ConsumerCommit(rdkafka::types::RDKafkaErrorCode::NoOffset)) => Ok(()),
        other => Ok(other?),
    }
}

fn show_message(message: &BorrowedMessage<'_>) -> Result<(), Failure> {
    let headers = message.headers().into_iter().flat_map(Headers::iter);
    show(&Line {
        partition: message.partition(),
        offset: message.offset(),
        timestamp: message.timestamp().to_millis().unwrap_or(-1),
        key: text(message.key()),
        value: text(message.payload()),
        headers: headers.map(|h| (h.key.to_owned(), text(h.value))).collect(),
    })
}

fn admin() -> Result<AdminClient<DefaultClientContext>, Failure> {
    Ok(config()?.create()?)
}

fn options() -> AdminOptions {
    AdminOptions::new().operation_timeout(Some(TIMEOUT))
}

fn one(results: Vec<Result<String, (String, rdkafka::types::RDKafkaErrorCode)>>) -> Result<(), Failure> {
    for result in results {
        result.map_err(|(topic, code)| format!("{topic}: {code:?}: {code}"))?;
    }
    Ok(())
}

async fn describe(topic: &str) -> Result<(), Failure> {
    let admin = admin()?;
    let metadata = admin.inner().fetch_metadata(Some(topic), TIMEOUT)?;
    let partitions = metadata.topics().first().map_or(0, |topic| topic.partitions().len());
    let mut found = admin.describe_configs(&[ResourceSpecifier::Topic(topic)], &options()).await?;
    let resource = found.pop().ok_or("no answer")?.map_err(|code| format!("{code:?}"))?;
    let configs = resource.entries.into_iter().map(|entry| (entry.name, entry.value)).collect();
    show_described(partitions, &configs)
}

const TIMEOUT: Duration = Duration::from_secs(30);
