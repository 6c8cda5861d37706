//! Our own client under test: writes, reads or is a member of a group, and writes down what it did and was told.
//!
//! Ends in order at SIGTERM: a writer waits for its last answers first.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};
use thalweg_client::consumer::topic_partition;
use thalweg_client::consumer::{Rebalance, RebalanceListener};
use thalweg_client::{
    Client, ClientConfig, ClientError, Consumer, ConsumerConfig, Delivery, OffsetReset, Producer, ProducerConfig,
    ProducerRecord, StartAt,
};
use thalweg_model::Offset;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Writes or reads a topic and writes a history of it.
#[derive(Parser)]
struct Options {
    what: What,
    /// host:port,...
    #[arg(short, long)]
    brokers: String,
    #[arg(long)]
    topic: String,
    #[arg(long)]
    partitions: u32,
    /// The history's file
    #[arg(long)]
    history: PathBuf,
    /// This client's name in the history
    #[arg(long)]
    name: String,
    /// The first value to write
    #[arg(long, default_value_t = 0)]
    values_from: u64,
    /// Records a second to write
    #[arg(long, default_value_t = 1000)]
    rate: u64,
    /// The group to be a member of
    #[arg(long)]
    group: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// Idempotent, acks=all
    Write,
    /// Every partition from its beginning, without a group
    Read,
    /// As a member of a group that commits what it was given
    Member,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let options = Options::parse();
    let term = signal(SignalKind::terminate())?;
    let notes = Notes::create(&options)?;
    let config = ClientConfig { metadata_max_age: Duration::from_secs(5), ..ClientConfig::new(&options.brokers) };
    let client = connect(config).await?;
    match options.what {
        What::Write => write(&client, &options, &notes, term).await?,
        What::Read => read(&client, &options, &notes, term).await?,
        What::Member => be_member(&client, &options, &notes, term).await?,
    }
    notes.flush()
}

/// A cluster that is being killed may not answer the first time.
async fn connect(config: ClientConfig) -> Result<Client> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match Client::connect(config.clone()).await {
            Ok(client) => return Ok(client),
            Err(error) if Instant::now() > deadline => bail!(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn write(client: &Client, options: &Options, notes: &Notes, mut term: Signal) -> Result<()> {
    let config = ProducerConfig {
        linger: Duration::from_millis(2),
        delivery_timeout: Duration::from_secs(600),
        block_timeout: Duration::from_secs(600),
        create_topics: false,
        ..ProducerConfig::default()
    };
    let producer = Producer::new(client, config)?;
    let mut answers: Vec<_> = (0..options.partitions).map(|_| note_answers(notes.clone())).collect();
    let mut tick = tokio::time::interval(TICK);
    let (mut value, mut owed) = (options.values_from, 0.0);
    loop {
        // The branches commute: a tick that loses against the end is not missed.
        tokio::select! {
            _ = term.recv() => break,
            _ = tick.tick() => {}
        }
        owed += options.rate as f64 * TICK.as_secs_f64();
        while owed >= 1.0 {
            owed -= 1.0;
            let partition = (value % u64::from(options.partitions)) as u32;
            notes.line(|now| format!("send {now} {value} {partition}"));
            let record = ProducerRecord::new(&options.topic).partition(partition as i32).value(value.to_string());
            match producer.send(record).await {
                Ok(delivery) => {
                    let (sender, _) = &answers[partition as usize];
                    sender.send((value, delivery)).ok().context("a collector ended")?;
                }
                Err(error) => notes.no_answer(value, &error),
            }
            value += 1;
        }
    }
    for (sender, collector) in answers.drain(..) {
        drop(sender);
        tokio::time::timeout(PATIENCE, collector).await.context("records are never answered")??;
    }
    producer.close().await;
    Ok(())
}

/// Notes the answers of one partition's records, which come in the order of sending.
fn note_answers(notes: Notes) -> (mpsc::UnboundedSender<(u64, Delivery)>, JoinHandle<()>) {
    let (sender, mut deliveries) = mpsc::unbounded_channel::<(u64, Delivery)>();
    let collector = tokio::spawn(async move {
        while let Some((value, delivery)) = deliveries.recv().await {
            match delivery.wait().await {
                Ok(done) if done.offset == Offset::NONE => {
                    notes.line(|now| format!("ok {now} {value} {} -", done.partition));
                }
                Ok(done) => notes.line(|now| format!("ok {now} {value} {} {}", done.partition, done.offset.0)),
                Err(error) => notes.no_answer(value, &error),
            }
        }
    });
    (sender, collector)
}

async fn read(client: &Client, options: &Options, notes: &Notes, mut term: Signal) -> Result<()> {
    let config = ConsumerConfig { offset_reset: OffsetReset::None, auto_commit: None, ..ConsumerConfig::default() };
    let mut consumer = Consumer::new(client, config)?;
    let mut partitions = Vec::new();
    for partition in 0..options.partitions {
        notes.line(|_| format!("from {partition} 0"));
        partitions.push((topic_partition(&options.topic, partition as i32)?, StartAt::Offset(Offset(0))));
    }
    consumer.assign(partitions)?;
    while !is_over(&mut term) {
        poll(&mut consumer, notes).await?;
    }
    consumer.close().await?;
    Ok(())
}

async fn be_member(client: &Client, options: &Options, notes: &Notes, mut term: Signal) -> Result<()> {
    let group = options.group.as_ref().context("a member needs --group")?;
    let listener = notes.clone();
    let config = ConsumerConfig {
        auto_commit: None,
        offset_reset: OffsetReset::None,
        session_timeout: Duration::from_secs(10),
        heartbeat_interval: Duration::from_secs(1),
        on_rebalance: Some(RebalanceListener(Arc::new(move |change| {
            if let Rebalance::Assigned(partitions) = change {
                for tp in partitions {
                    listener.line(|_| format!("from {} -", tp.partition));
                }
            }
        }))),
        ..ConsumerConfig::group(group)
    };
    let mut consumer = Consumer::new(client, config)?;
    consumer.subscribe([&options.topic])?;
    let (mut generation, mut due, mut rounds) = (None, Instant::now() + COMMIT_EVERY, 0_u32);
    while !is_over(&mut term) {
        poll(&mut consumer, notes).await?;
        let now = consumer.generation_id();
        if now.is_some() && now != generation {
            let partitions: Vec<String> = consumer.assignment().iter().map(|tp| tp.partition.to_string()).collect();
            let list = if partitions.is_empty() { "-".to_owned() } else { partitions.join(",") };
            notes.line(|at| format!("join {at} {} {list}", now.unwrap_or_default()));
            generation = now;
        }
        if Instant::now() >= due {
            commit(&mut consumer, notes).await;
            rounds += 1;
            if rounds % ASK_EVERY == 0 {
                ask(&consumer, options, notes).await?;
            }
            due = Instant::now() + COMMIT_EVERY;
        }
    }
    // A group that is over is left; what it says about that is nobody's loss.
    if let Err(error) = consumer.close().await {
        notes.say(&error);
    }
    Ok(())
}

/// One poll and its records.
async fn poll(consumer: &mut Consumer, notes: &Notes) -> Result<()> {
    match consumer.poll(Duration::from_millis(200)).await {
        Ok(None) => {}
        Ok(Some(set)) => {
            let partition = set.tp.partition;
            let mut lines = String::new();
            for record in set {
                let record = record?;
                let value =
                    record.value.as_deref().and_then(|value| std::str::from_utf8(value).ok()?.parse::<u64>().ok());
                let value = value.map_or("?".to_owned(), |value| value.to_string());
                lines += &format!("\ngot {partition} {} {value}", record.offset.0);
            }
            notes.line(|now| format!("poll {now}{lines}"));
        }
        Err(ClientError::OffsetOutOfRange { partition, .. } | ClientError::NoOffset { partition, .. }) => {
            notes.line(|now| format!("reset {now} {partition}"));
            bail!("partition {partition}: the position does not exist");
        }
        // The cluster is being killed: the next poll tries again.
        Err(error) => {
            notes.say(&error);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    Ok(())
}

/// Commits the positions, all in one request.
async fn commit(consumer: &mut Consumer, notes: &Notes) {
    let assignment = consumer.assignment();
    let positions: BTreeMap<_, _> =
        assignment.into_iter().filter_map(|tp| consumer.position(&tp).map(|offset| (tp, offset))).collect();
    if positions.is_empty() {
        return;
    }
    let generation = consumer.generation_id().map(|generation| format!(" {generation}")).unwrap_or_default();
    for (tp, offset) in &positions {
        notes.line(|now| format!("commit {now} {} {}{generation}", tp.partition, offset.0));
    }
    let answer = consumer.commit_offsets(&positions).await;
    let word = if answer.is_ok() { "committed" } else { "uncommitted" };
    for (tp, offset) in &positions {
        notes.line(|now| format!("{word} {now} {} {}", tp.partition, offset.0));
    }
}

/// What the group has committed.
async fn ask(consumer: &Consumer, options: &Options, notes: &Notes) -> Result<()> {
    let partitions: Vec<_> =
        (0..options.partitions).map(|p| topic_partition(&options.topic, p as i32)).collect::<Result<_, _>>()?;
    let asked = micros();
    match consumer.committed(&partitions).await {
        Ok(found) => {
            for tp in &partitions {
                let offset = found.get(tp).map_or("-".to_owned(), |committed| committed.offset.0.to_string());
                notes.line(|now| format!("found {asked} {now} {} {offset}", tp.partition));
            }
        }
        Err(error) => notes.say(&error),
    }
    Ok(())
}

fn is_over(term: &mut Signal) -> bool {
    use std::task::{Context, Poll, Waker};
    matches!(term.poll_recv(&mut Context::from_waker(Waker::noop())), Poll::Ready(_))
}

/// The history under way.
#[derive(Clone)]
struct Notes(Arc<Mutex<BufWriter<File>>>);

impl Notes {
    fn create(options: &Options) -> Result<Notes> {
        let file = File::create(&options.history).with_context(|| options.history.display().to_string())?;
        let notes = Notes(Arc::new(Mutex::new(BufWriter::new(file))));
        let group = options.group.as_ref().map(|group| format!(" {group}")).unwrap_or_default();
        notes.line(|_| format!("client {}{group}", options.name));
        Ok(notes)
    }

    /// One or more whole lines, told the time.
    fn line(&self, of: impl FnOnce(u64) -> String) {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A full disk under the history would make the run worthless: better to stop than to leave lines out.
        writeln!(file, "{}", of(micros())).expect("the history is written");
    }

    fn no_answer(&self, value: u64, error: &ClientError) {
        let word = if error.is_outcome_unknown() { "info" } else { "fail" };
        self.line(|now| format!("{word} {now} {value}"));
        self.say(error);
    }

    fn say(&self, error: &ClientError) {
        #[expect(clippy::print_stderr, reason = "a command's word to who reads its log")]
        {
            eprintln!("{} {error}", micros());
        }
    }

    fn flush(&self) -> Result<()> {
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).flush()?)
    }
}

fn micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// A cluster that was healed answers within this.
const PATIENCE: Duration = Duration::from_secs(90);
const TICK: Duration = Duration::from_millis(10);
const COMMIT_EVERY: Duration = Duration::from_millis(500);
/// A question for committed offsets after this many commits.
const ASK_EVERY: u32 = 4;
