//! RabbitMQ: a durable queue, persistent messages, no confirms, automatic acknowledgement.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures_util::StreamExt;
use lapin::options::{BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};

use crate::{Clock, Load};

pub async fn produce(load: &Load) -> Result<Clock> {
    let channel = channel(load).await?;
    let value = vec![0x5a; load.value_bytes];
    let clock = Clock::start();
    for _ in 0..load.message_count {
        let properties = BasicProperties::default().with_delivery_mode(PERSISTENT);
        channel.basic_publish("".into(), QUEUE.into(), BasicPublishOptions::default(), &value, properties).await?;
    }
    // Publishing has no answer: the count in the queue tells when the server has them all.
    while u64::from(declare(&channel).await?) < load.message_count {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(clock)
}

pub async fn consume(load: &Load) -> Result<Clock> {
    let channel = channel(load).await?;
    channel.basic_qos(u16::try_from(load.window)?, BasicQosOptions::default()).await?;
    let options = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
    let clock = Clock::start();
    let mut messages = channel.basic_consume(QUEUE.into(), "".into(), options, FieldTable::default()).await?;
    for _ in 0..load.message_count {
        let message = messages.next().await.context("the queue ended too early")??;
        ensure!(message.data.len() == load.value_bytes, "a message of {} bytes", message.data.len());
    }
    Ok(clock)
}

async fn channel(load: &Load) -> Result<Channel> {
    let uri = format!("amqp://guest:guest@{}/%2f", load.address);
    let channel = Connection::connect(&uri, ConnectionProperties::default()).await?.create_channel().await?;
    declare(&channel).await?;
    Ok(channel)
}

/// Makes the queue if it is not there; how many messages it holds.
async fn declare(channel: &Channel) -> Result<u32> {
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    Ok(channel.queue_declare(QUEUE.into(), options, FieldTable::default()).await?.message_count())
}

const QUEUE: &str = "paper";
/// AMQP 0-9-1: delivery mode of messages that outlive a restart.
const PERSISTENT: u8 = 2;
