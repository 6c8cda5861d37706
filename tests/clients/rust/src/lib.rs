//! What the clients in Rust share: the runner's commands, records in and records out.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};

use serde::{Deserialize, Serialize};

/// A line of the runner's. `offset` and `timestamp` (ms) are those of consumed records.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Line {
    pub partition: i32,
    #[serde(default)]
    pub offset: i64,
    #[serde(default)]
    pub timestamp: i64,
    pub key: Option<String>,
    pub value: Option<String>,
    #[serde(default)]
    pub headers: Vec<(String, Option<String>)>,
}

/// A command with its arguments.
#[derive(Debug)]
pub enum Command {
    Produce { topic: String, codec: String, lines: Vec<Line> },
    Consume { topic: String, start: Start, count: usize },
    Group { group: String, topic: String },
    Create { topic: String, partitions: i32, configs: Vec<(String, String)> },
    Alter { topic: String, configs: Vec<(String, String)> },
    Describe { topic: String },
    Delete { topic: String },
}

#[derive(Clone, Copy, Debug)]
pub enum Start {
    Beginning,
    End,
    Offset(i64),
    /// Milliseconds since 1970.
    Timestamp(i64),
}

pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The addresses to start from.
pub fn brokers() -> Result<String, Failure> {
    Ok(std::env::var("BROKERS")?)
}

/// The command that the arguments name.
pub fn command() -> Result<Command, Failure> {
    let mut args = std::env::args().skip(1);
    let name = args.next().ok_or("no command")?;
    let topic_or_group = args.next().ok_or("no topic")?;
    let mut next = || args.next().ok_or("an argument is missing");
    Ok(match name.as_str() {
        "produce" => {
            let codec = next()?;
            let lines = std::io::stdin().lock().lines().map(|line| Ok(serde_json::from_str(&line?)?));
            Command::Produce { topic: topic_or_group, codec, lines: lines.collect::<Result<_, Failure>>()? }
        }
        "consume" => Command::Consume { topic: topic_or_group, start: start(&next()?)?, count: next()?.parse()? },
        "group" => Command::Group { group: topic_or_group, topic: next()? },
        "create" => {
            Command::Create { topic: topic_or_group, partitions: next()?.parse()?, configs: pairs(args.by_ref()) }
        }
        "alter" => Command::Alter { topic: topic_or_group, configs: pairs(args.by_ref()) },
        "describe" => Command::Describe { topic: topic_or_group },
        "delete" => Command::Delete { topic: topic_or_group },
        other => return Err(format!("no {other}").into()),
    })
}

fn start(text: &str) -> Result<Start, Failure> {
    Ok(match text.split_once(':') {
        Some(("offset", offset)) => Start::Offset(offset.parse()?),
        Some(("timestamp", time)) => Start::Timestamp(time.parse()?),
        _ if text == "beginning" => Start::Beginning,
        _ if text == "end" => Start::End,
        _ => return Err(format!("no start {text}").into()),
    })
}

fn pairs(args: impl Iterator<Item = String>) -> Vec<(String, String)> {
    args.filter_map(|arg| arg.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()))).collect()
}

/// Prints a consumed record.
pub fn show(line: &Line) -> Result<(), Failure> {
    print(&serde_json::to_string(line)?)
}

/// Prints the answer to `describe`.
pub fn show_described(partitions: usize, configs: &BTreeMap<String, Option<String>>) -> Result<(), Failure> {
    print(&serde_json::json!({ "partitions": partitions, "configs": configs }).to_string())
}

fn print(line: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes())?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// Bytes that were sent as text.
pub fn text(bytes: Option<&[u8]>) -> Option<String> {
    bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// Ends with SIGTERM.
pub async fn terminated() -> Result<(), Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    signal(SignalKind::terminate())?.recv().await;
    Ok(())
}
