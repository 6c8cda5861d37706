//! Writes each line of standard input as a record, keyed by its first word, and says where the records went.
//!
//! ```text
//! seq 1000 | cargo run -p thalweg-client --example write_lines -- 127.0.0.1:9092 numbers
//! ```

#![expect(clippy::print_stdout, reason = "a program's output")]

use std::collections::BTreeMap;
use std::error::Error;

use thalweg_client::{Client, ClientConfig, Compression, Producer, ProducerConfig, ProducerRecord};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(brokers), Some(topic)) = (arguments.next(), arguments.next()) else {
        return Err("write_lines BROKERS TOPIC".into());
    };
    let client = Client::connect(ClientConfig::new(&brokers).client_id("write-lines")).await?;
    let producer =
        Producer::new(&client, ProducerConfig { compression: Compression::Lz4, ..ProducerConfig::default() })?;
    let mut deliveries = Vec::new();
    // Blocking is well here: the producer sends on other threads of the runtime.
    for line in std::io::stdin().lines() {
        let line = line?;
        let key = line.split_whitespace().next().unwrap_or_default().to_owned();
        // Waits only while the buffer of the producer is full, so nothing here can run away from the broker.
        deliveries.push(producer.send(ProducerRecord::new(&topic).key(key).value(line)).await?);
    }
    let mut written: BTreeMap<i32, u64> = BTreeMap::new();
    for delivery in deliveries {
        // An error says of this one record why it was not written; retries are over by then.
        *written.entry(delivery.wait().await?.partition).or_default() += 1;
    }
    producer.close().await;
    for (partition, records) in written {
        println!("partition {partition}: {records} records");
    }
    Ok(())
}
