//! NATS JetStream: a stream in files (synced by the server's clock), publish with a window of unconfirmed messages,
//! a consumer that pulls and acknowledges nothing.

use std::collections::VecDeque;

use anyhow::{Context as _, Result, ensure};
use async_nats::jetstream::consumer::AckPolicy;
use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::stream::{Config, StorageType};
use async_nats::jetstream::{self, Context};
use bytes::Bytes;
use futures_util::StreamExt;

use crate::{Clock, Load};

pub async fn produce(load: &Load) -> Result<Clock> {
    let context = context(load).await?;
    // An earlier run's, if there is one.
    let _ = context.delete_stream(STREAM).await;
    let config = Config {
        name: STREAM.to_owned(),
        subjects: vec![SUBJECT.to_owned()],
        storage: StorageType::File,
        ..Config::default()
    };
    context.get_or_create_stream(config).await?;
    let value = Bytes::from(vec![0x5a; load.value_bytes]);
    let mut unconfirmed = VecDeque::with_capacity(load.window);
    let clock = Clock::start();
    for _ in 0..load.message_count {
        if unconfirmed.len() == load.window {
            unconfirmed.pop_front().context("a window of none")?.await?;
        }
        unconfirmed.push_back(context.publish(SUBJECT, value.clone()).await?.into_future());
    }
    for confirmation in unconfirmed {
        confirmation.await?;
    }
    Ok(clock)
}

pub async fn consume(load: &Load) -> Result<Clock> {
    let context = context(load).await?;
    let stream = context.get_stream(STREAM).await?;
    let clock = Clock::start();
    let consumer =
        stream.create_consumer(pull::Config { ack_policy: AckPolicy::None, ..pull::Config::default() }).await?;
    let mut messages = consumer.stream().max_messages_per_batch(load.window).messages().await?;
    for _ in 0..load.message_count {
        let message = messages.next().await.context("the stream ended too early")??;
        ensure!(message.payload.len() == load.value_bytes, "a message of {} bytes", message.payload.len());
    }
    Ok(clock)
}

async fn context(load: &Load) -> Result<Context> {
    let client = async_nats::ConnectOptions::new().connect(&format!("nats://{}", load.address)).await?;
    Ok(jetstream::context::ContextBuilder::new().max_ack_inflight(2 * load.window).build(client))
}

const STREAM: &str = "paper";
const SUBJECT: &str = "paper";
