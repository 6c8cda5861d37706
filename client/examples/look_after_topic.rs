//! The life of a topic through the admin: create, configure, look at, read from a time on, move a group, trim, delete.
//!
//! ```text
//! cargo run -p thalweg-client --example look_after_topic -- 127.0.0.1:9092 measurements
//! ```

#![expect(clippy::print_stdout, reason = "a program's output")]

use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use thalweg_client::admin::{ConfigChange, ConfigResource};
use thalweg_client::consumer::topic_partition;
use thalweg_client::{
    Client, ClientConfig, Consumer, ConsumerConfig, NewTopic, Offset, OffsetSpec, Producer, ProducerConfig,
    ProducerRecord, StartAt, Timestamp,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(brokers), Some(topic)) = (arguments.next(), arguments.next()) else {
        return Err("look_after_topic BROKERS TOPIC".into());
    };
    let client = Client::connect(ClientConfig::new(&brokers)).await?;
    let admin = client.admin();
    let created = admin.create_topic(&NewTopic::new(&topic).partitions(2).config("retention.ms", "86400000")).await?;
    println!("created with {} partitions", created.partition_count.unwrap_or_default());

    let resource = ConfigResource::Topic(topic.clone());
    admin.alter_configs(&resource, &[ConfigChange::Set("retention.ms".into(), "3600000".into())], false).await?;
    let configs = admin.describe_configs(&resource).await?;
    let retention = configs.iter().find(|entry| entry.name == "retention.ms").and_then(|entry| entry.value.clone());
    println!("retention.ms is {}", retention.unwrap_or_default());

    let producer = Producer::new(&client, ProducerConfig::default())?;
    let ago = SystemTime::now().duration_since(UNIX_EPOCH)? - Duration::from_secs(600);
    let minute_of = |minute: i64| i64::try_from(ago.as_millis()).map(|start| Timestamp(start + minute * 60_000));
    for minute in 0..10 {
        let record = ProducerRecord::new(&topic).value(format!("minute {minute}"));
        producer.send(record.partition(0).timestamp(minute_of(minute)?)).await?.wait().await?;
    }
    producer.close().await;

    let first = topic_partition(&topic, 0)?;
    let mut consumer = Consumer::new(&client, ConsumerConfig::default())?;
    consumer.assign([(first.clone(), StartAt::Spec(OffsetSpec::AtTime(minute_of(7)?)))])?;
    if let Some(mut records) = consumer.poll(Duration::from_secs(10)).await?
        && let Some(record) = records.next()
    {
        println!("the first record of minute 7 or later has offset {}", record?.offset);
    }
    consumer.close().await?;

    let group = format!("{topic}-readers");
    admin.commit_group_offsets(&group, &[(first.clone(), Offset(4))].into()).await?;
    let stored = admin.group_offsets(&group).await?;
    println!("{group} goes on at {}", stored[&first].offset);

    let low = admin.delete_records(&[(first.clone(), Offset(5))].into()).await?;
    println!("the log now starts at {}", low[&first]);
    admin.delete_group(&group).await?;
    admin.delete_topic(&topic).await?;
    println!("deleted");
    Ok(())
}
