//! `thalweg dev`: a node, or a few, without set-up.

mod cluster;
pub mod control;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;

use crate::config::{Advertise, BrokerSection, CoordinatorSection, HttpSection, Listen, LogSection, NodeConfig, Role};
use crate::joining::JoinArguments;
use crate::node::{self, Node, StopWith};
use crate::telemetry;

#[derive(clap::Args)]
pub struct DevArguments {
    /// Nodes to run, each a process of its own with data under DATA_DIR/N; from 2 on replicated topics
    #[arg(short = 'n', long, env = "THALWEG_NODES", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=9))]
    nodes: u16,
    /// Where data is kept; created if missing, kept when the node stops
    #[arg(long, env = "THALWEG_DATA_DIR", default_value = "./thalweg-data")]
    data_dir: PathBuf,
    /// What Kafka clients connect to, [NAME://]ADDRESS:PORT with commas between; with several nodes the first one's address,
    /// the others take the ports that follow
    #[arg(long, env = "THALWEG_LISTEN", value_delimiter = ',', default_value = "127.0.0.1:9092")]
    listen: Vec<Listen>,
    /// What they are told to connect to, [NAME[@NETWORK]://]HOST:PORT; left out: the address that they came in on
    #[arg(long, env = "THALWEG_ADVERTISED", value_delimiter = ',')]
    advertised: Vec<Advertise>,
    /// Metrics and health; with several nodes the first one's address
    #[arg(long, env = "THALWEG_HTTP", default_value = "127.0.0.1:9644")]
    http: SocketAddr,
    /// Set one property under Kafka's name
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// error, warn, info, debug, trace, or a filter
    #[arg(long, env = "THALWEG_LOG", default_value = "warn,openraft=error")]
    log_level: String,
}

/// Runs until a signal stops it.
///
/// # Errors
/// What keeps the node from starting, with the way out.
pub fn run(arguments: &DevArguments) -> Result<()> {
    let started = Instant::now();
    if arguments.nodes > 1 {
        return cluster::run(arguments, started);
    }
    cluster::refuse_data_of_several(&arguments.data_dir)?;
    let mut config = NodeConfig {
        roles: vec![Role::Broker, Role::Coordinator],
        data_dir: arguments.data_dir.clone(),
        broker: BrokerSection {
            listen: arguments.listen.clone(),
            advertised: arguments.advertised.clone(),
            ..BrokerSection::default()
        },
        // Nobody else joins a development node, so its port is the system's choice.
        coordinator: CoordinatorSection {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            ..CoordinatorSection::default()
        },
        http: HttpSection { listen: arguments.http },
        log: LogSection { level: arguments.log_level.clone(), ..LogSection::default() },
        properties: DEV_PROPERTIES.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())).collect(),
        joined: None,
        join: JoinArguments::default(),
    };
    config.set_properties(&arguments.set)?;
    telemetry::start(config.log.format, &config.log.level)?;
    node::run(config, StopWith::Signals, |node| telemetry::say(&banner(node, arguments, started)))
}

/// One person waits for one consumer here; Kafka's three seconds serve fleets that start together.
const DEV_PROPERTIES: &[(&str, &str)] = &[("group.initial.rebalance.delay.ms", "0")];

fn banner(node: &Node, arguments: &DevArguments, started: Instant) -> String {
    let kafka = node.addresses();
    let first = kafka.first().map(ToString::to_string).unwrap_or_default();
    let all: Vec<String> = kafka.iter().map(ToString::to_string).collect();
    // The verbs look at 127.0.0.1:9092 by themselves; elsewhere they must be told.
    let brokers = if first == "127.0.0.1:9092" { String::new() } else { format!(" -b {first}") };
    format!(
        "thalweg {version} ready in {ms} ms

  Kafka clients   {clients}
  metrics, health http://{http}/metrics, /health/ready
  data            {data}

Type next, in another terminal:
  echo hello | thalweg topic produce demo{brokers}
  thalweg topic consume demo -e{brokers}
  kcat -b {first} -L

Ctrl-C stops the node; the data stays.",
        version = env!("CARGO_PKG_VERSION"),
        ms = started.elapsed().as_millis(),
        clients = all.join(", "),
        http = node.http_address(),
        data = arguments.data_dir.display(),
    )
}
