//! Our own client behind the runner's commands.

use std::collections::BTreeMap;
use std::time::Duration;

use thalweg_client::admin::{ConfigChange, ConfigResource};
use thalweg_client::consumer::topic_partition;
use thalweg_client::{
    Client, ClientConfig, Compression, Consumer, ConsumerConfig, Header, Isolation, NewTopic, OffsetReset, OffsetSpec,
    Producer, ProducerConfig, ProducerRecord, RecordSet, StartAt,
};
use thalweg_compat_clients::{Command, Failure, Line, Start, brokers, command, show, show_described, terminated, text};
use thalweg_model::{Offset, Timestamp};

#[tokio::main]
async fn main() {
    if let Err(error) = run().await {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

async fn run() -> Result<(), Failure> {
    let command = command()?;
    let client = Client::connect(ClientConfig::new(&brokers()?)).await?;
    match command {
        Command::Produce { topic, codec, lines } => produce(&client, &topic, &codec, lines).await,
        Command::Consume { topic, start, count } => consume(&client, &topic, start, count).await,
        Command::Group { group, topic } => member(&client, group, &topic).await,
        Command::Create { topic, partitions, configs } => {
            let new = NewTopic::new(topic).partitions(partitions).replication_factor(1);
            let new = configs.into_iter().fold(new, |new, (key, value)| new.config(key, value));
            client.admin().create_topic(&new).await?;
            Ok(())
        }
        Command::Alter { topic, configs } => {
            let changes: Vec<_> = configs.into_iter().map(|(key, value)| ConfigChange::Set(key, value)).collect();
            Ok(client.admin().alter_configs(&ConfigResource::Topic(topic), &changes, false).await?)
        }
        Command::Describe { topic } => describe(&client, topic).await,
        Command::Delete { topic } => Ok(client.admin().delete_topic(&topic).await?),
    }
}

async fn produce(client: &Client, topic: &str, codec: &str, lines: Vec<Line>) -> Result<(), Failure> {
    let compression = match codec {
        "gzip" => Compression::Gzip,
        "snappy" => Compression::Snappy,
        "lz4" => Compression::Lz4,
        "zstd" => Compression::Zstd,
        _ => Compression::None,
    };
    let config = ProducerConfig { compression, create_topics: false, ..ProducerConfig::default() };
    let producer = Producer::new(client, config)?;
    let mut sent = Vec::new();
    for line in lines {
        let headers = line.headers.into_iter().map(|(key, value)| Header { key, value: value.map(Into::into) });
        let record = ProducerRecord {
            partition: Some(line.partition),
            key: line.key.map(Into::into),
            value: line.value.map(Into::into),
            headers: headers.collect(),
            ..ProducerRecord::new(topic)
        };
        sent.push(producer.send(record).await?);
    }
    for delivery in sent {
        delivery.wait().await?;
    }
    producer.close().await;
    Ok(())
}

async fn consume(client: &Client, topic: &str, start: Start, mut count: usize) -> Result<(), Failure> {
    client.topic(topic, false).await?;
    let tp = topic_partition(topic, 0)?;
    let at = match start {
        Start::Beginning => StartAt::Spec(OffsetSpec::Earliest),
        Start::End => StartAt::Spec(OffsetSpec::Latest),
        Start::Offset(offset) => StartAt::Offset(Offset(offset)),
        Start::Timestamp(time) => {
            let spec = OffsetSpec::AtTime(Timestamp(time));
            let found = client.list_offsets(&[(tp.clone(), spec)].into(), Isolation::ReadUncommitted).await?;
            StartAt::Offset(found.get(&tp).ok_or("no offset for the time")?.offset)
        }
    };
    let config = ConsumerConfig { offset_reset: OffsetReset::None, ..ConsumerConfig::default() };
    let mut consumer = Consumer::new(client, config)?;
    consumer.assign([(tp, at)])?;
    while count > 0 {
        if let Some(set) = consumer.poll(Duration::from_secs(1)).await? {
            count = show_all(set, count)?;
        }
    }
    Ok(consumer.close().await?)
}

async fn member(client: &Client, group: String, topic: &str) -> Result<(), Failure> {
    let mut consumer = Consumer::new(
        client,
        ConsumerConfig {
            session_timeout: Duration::from_secs(6),
            heartbeat_interval: Duration::from_millis(500),
            ..ConsumerConfig::group(group).offset_reset(OffsetReset::Earliest)
        },
    )?;
    consumer.subscribe([topic])?;
    let end = terminated();
    tokio::pin!(end);
    loop {
        // Dropping a poll loses nothing.
        tokio::select! {
            done = &mut end => break done?,
            polled = consumer.poll(Duration::from_secs(1)) => if let Some(set) = polled? {
                show_all(set, usize::MAX)?;
            },
        }
    }
    Ok(consumer.close().await?)
}

/// Prints at most `count` records; how many are still wanted.
fn show_all(set: RecordSet, mut count: usize) -> Result<usize, Failure> {
    let partition = set.tp.partition.0;
    for record in set {
        let record = record?;
        if count == 0 {
            break;
        }
        count -= 1;
        let headers = record.headers.iter();
        let headers = headers.map(|h| (text(Some(&h.key)).unwrap_or_default(), text(h.value.as_deref())));
        show(&Line {
            partition,
            offset: record.offset.0,
            timestamp: record.timestamp.0,
            key: text(record.key.as_deref()),
            value: text(record.value.as_deref()),
            headers: headers.collect(),
        })?;
    }
    Ok(count)
}

async fn describe(client: &Client, topic: String) -> Result<(), Failure> {
    let partitions = client.admin().topic(&topic).await?.partitions.len();
    let entries = client.admin().describe_configs(&ConfigResource::Topic(topic)).await?;
    let configs: BTreeMap<_, _> = entries.into_iter().map(|entry| (entry.name, entry.value)).collect();
    show_described(partitions, &configs)
}
