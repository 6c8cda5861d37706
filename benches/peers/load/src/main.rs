//! One producer, then one consumer, of small messages: the Kafka paper's experiment for RabbitMQ and NATS JetStream.
//!
//! `thalweg-peer-load SYSTEM produce|consume ADDRESS MESSAGES VALUE_BYTES PREFETCH` prints
//! `messages=N seconds=S cpu_seconds=C` for what lay between its first message and the last one that the system has.

mod amqp;
mod nats;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rustix::time::{ClockId, clock_gettime};

/// What both systems are asked for.
#[derive(Clone, Debug)]
pub struct Load {
    /// HOST:PORT
    pub address: String,
    pub message_count: u64,
    pub value_bytes: usize,
    /// Messages that may be on their way to the consumer, or unacknowledged by the server, at a time.
    pub window: usize,
}

/// What was measured: wall and processor time of this process.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    began: Instant,
    cpu: Duration,
}

impl Clock {
    pub fn start() -> Clock {
        Clock { began: Instant::now(), cpu: process_cpu() }
    }

    fn report(self, message_count: u64) {
        let (elapsed, cpu) = (self.began.elapsed(), process_cpu() - self.cpu);
        println!("messages={message_count} seconds={:.6} cpu_seconds={:.6}", elapsed.as_secs_f64(), cpu.as_secs_f64());
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [system, way, address, message_count, value_bytes, window] = arguments.as_slice() else {
        bail!("wanted: SYSTEM produce|consume ADDRESS MESSAGES VALUE_BYTES PREFETCH");
    };
    let load = Load {
        address: address.clone(),
        message_count: message_count.parse()?,
        value_bytes: value_bytes.parse()?,
        window: window.parse()?,
    };
    let clock = match (system.as_str(), way.as_str()) {
        ("rabbitmq", "produce") => amqp::produce(&load).await?,
        ("rabbitmq", "consume") => amqp::consume(&load).await?,
        ("nats", "produce") => nats::produce(&load).await?,
        ("nats", "consume") => nats::consume(&load).await?,
        _ => bail!("no load {way} for {system}"),
    };
    clock.report(load.message_count);
    Ok(())
}

/// User and system time of all threads.
fn process_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
