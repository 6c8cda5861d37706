//! A worker of a consumer group: does its work, then stores how far it came. Ends after five seconds without a record.
//!
//! Start several: they share the partitions. Kill one: the others take over from what it had committed, so a record may be
//! worked on twice but never not at all (at least once).
//!
//! ```text
//! cargo run -p thalweg-client --example work_in_group -- 127.0.0.1:9092 numbers adders
//! ```

#![expect(clippy::print_stdout, reason = "a program's output")]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use thalweg_client::consumer::{Assignor, Rebalance, RebalanceListener};
use thalweg_client::{Client, ClientConfig, Consumer, ConsumerConfig, OffsetReset};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(brokers), Some(topic), Some(group)) = (arguments.next(), arguments.next(), arguments.next()) else {
        return Err("work_in_group BROKERS TOPIC GROUP".into());
    };
    let client = Client::connect(ClientConfig::new(&brokers).client_id("work-in-group")).await?;
    let (told, mut changes) = tokio::sync::mpsc::unbounded_channel();
    let listener = move |change: &Rebalance| {
        // The worker may be gone already when the last partitions are given up.
        let _ = told.send(format!("{change:?}"));
    };
    let mut consumer = Consumer::new(
        &client,
        ConsumerConfig {
            auto_commit: None,
            assignors: vec![Assignor::CooperativeSticky],
            on_rebalance: Some(RebalanceListener(Arc::new(listener))),
            ..ConsumerConfig::group(group).offset_reset(OffsetReset::Earliest)
        },
    )?;
    consumer.subscribe([topic])?;
    let (mut count, mut sum) = (0u64, 0u64);
    while let Some(records) = consumer.poll(Duration::from_secs(5)).await? {
        for record in records {
            let value = record?.value.unwrap_or_default();
            count += 1;
            sum += std::str::from_utf8(&value)?.trim().parse::<u64>().unwrap_or_default();
        }
        // After the work, not before: a worker that dies in between leaves it to the next one.
        consumer.commit().await?;
        while let Ok(change) = changes.try_recv() {
            println!("{change}");
        }
    }
    consumer.close().await?;
    println!("{count} records, sum {sum}");
    Ok(())
}
