//! `thalweg dev -n N`: a cluster of processes on this machine.
//!
//! Each node is this binary with a configuration file of its own, as a cluster on several machines would be started. The
//! nodes stop when this process ends, in whatever way: each holds the other end of a pipe.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};

use super::control::{self, Asked};
use super::{DEV_PROPERTIES, DevArguments};
use crate::config::Listen;
use crate::telemetry;

/// One node's addresses and files.
struct Place {
    number: u16,
    kafka: SocketAddr,
    coordinator: SocketAddr,
    http: SocketAddr,
    data_dir: PathBuf,
}

enum News {
    Ready(u16),
    /// Somebody wants a node restarted.
    Asked(Asked),
    Ended(u16, String),
    /// SIGINT or SIGTERM.
    Stop,
}

/// Runs until a signal stops it, or the last node has ended.
///
/// # Errors
/// What keeps the cluster from starting, with the way out.
pub fn run(arguments: &DevArguments, started: Instant) -> Result<()> {
    let places = places(arguments)?;
    check_free(&places)?;
    for place in &places {
        fs::create_dir_all(&place.data_dir)
            .with_context(|| format!("cannot make the data directory {}", place.data_dir.display()))?;
        let path = place.config_file();
        fs::write(&path, config(place, &places, arguments))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let (news, receiver) = channel();
    watch_signals(news.clone())?;
    let mut nodes = Vec::new();
    for place in &places {
        nodes.push(Node::start(place, &news)?);
    }
    let asking = news.clone();
    control::listen(&arguments.data_dir, move |asked| asking.send(News::Asked(asked)).is_ok())?;
    let outcome = attend(&mut nodes, &news, &receiver, &places, arguments, started);
    nodes.iter_mut().for_each(Node::ask_to_stop);
    nodes.iter_mut().for_each(Node::wait);
    outcome
}

/// A single node over the data of several, or the reverse, would be another cluster in the same place.
///
/// # Errors
/// The directory holds the data of several nodes.
pub fn refuse_data_of_several(data_dir: &Path) -> Result<()> {
    if data_dir.join("1").join(CONFIG_FILE).exists() {
        bail!(
            "{} holds the data of several nodes; give their number again with -n, or choose another --data-dir",
            data_dir.display()
        );
    }
    Ok(())
}

fn attend(
    nodes: &mut [Node],
    sender: &Sender<News>,
    news: &Receiver<News>,
    places: &[Place],
    arguments: &DevArguments,
    started: Instant,
) -> Result<()> {
    let (mut ready, mut ended) = (0, 0);
    let mut restarting: Option<Restart> = None;
    while let Ok(event) = news.recv() {
        match event {
            News::Ready(number) => {
                if let Some(restart) = restarting.take_if(|restart| restart.asked.node == number) {
                    restart.answer(Ok(()));
                    continue;
                }
                ready += 1;
                if ready == nodes.len() {
                    telemetry::say(&banner(places, arguments, started));
                }
            }
            News::Asked(asked) => match restart(nodes, &asked, restarting.is_some(), ready) {
                Ok(()) => restarting = Some(Restart { asked, began: Instant::now(), again: false }),
                // Whoever asked may have gone.
                Err(why) => drop(asked.answer.send(Err(why))),
            },
            News::Ended(number, how) if ready < nodes.len() => {
                bail!("node {number} {how} before the cluster was ready; its last words are above");
            }
            News::Ended(number, how) => {
                if let Some(restart) = restarting.as_mut().filter(|restart| restart.asked.node == number) {
                    if !std::mem::replace(&mut restart.again, true) {
                        start_again(nodes, number, sender, places)?;
                        continue;
                    }
                    let why = format!("it {how} instead of coming back; its last words are with those of the cluster");
                    if let Some(restart) = restarting.take() {
                        restart.answer(Err(why));
                    }
                }
                ended += 1;
                telemetry::say(&format!("node {number} {how}; {} of {} still run", nodes.len() - ended, nodes.len()));
                if ended == nodes.len() {
                    bail!("every node has ended");
                }
            }
            News::Stop => return Ok(()),
        }
    }
    Ok(())
}

/// A node on its way down and up again.
struct Restart {
    asked: Asked,
    began: Instant,
    /// It has ended and was started.
    again: bool,
}

impl Restart {
    fn answer(self, outcome: Result<(), String>) {
        // Whoever asked may have gone.
        drop(self.asked.answer.send(outcome.map(|()| self.began.elapsed())));
    }
}

/// Begins with the node's end, which is heard of as any other's.
fn restart(nodes: &mut [Node], asked: &Asked, is_busy: bool, ready: usize) -> Result<(), String> {
    let count = nodes.len();
    if ready < count {
        return Err("the cluster is not ready yet".to_owned());
    }
    if is_busy {
        return Err("another node is being restarted".to_owned());
    }
    let node = usize::from(asked.node).checked_sub(1).and_then(|at| nodes.get_mut(at));
    let node = node.ok_or_else(|| format!("there is no such node; there are 1 to {count}"))?;
    if !node.runs() {
        return Err("it does not run; stop the cluster and start it again".to_owned());
    }
    node.ask_to_stop();
    Ok(())
}

fn start_again(nodes: &mut [Node], number: u16, news: &Sender<News>, places: &[Place]) -> Result<()> {
    let at = usize::from(number).saturating_sub(1);
    if let (Some(node), Some(place)) = (nodes.get_mut(at), places.get(at)) {
        node.wait();
        *node = Node::start(place, news)?;
    }
    Ok(())
}

/// Ports side by side: the same at every start, since nodes know each other by them.
fn places(arguments: &DevArguments) -> Result<Vec<Place>> {
    let [Listen { name: None, address: kafka }] = arguments.listen[..] else {
        bail!("several nodes take one --listen, without a name: the first one's address");
    };
    if !arguments.advertised.is_empty() {
        bail!("several nodes cannot share one --advertised; leave it out, and clients are told where they came in");
    }
    let data_dir = &arguments.data_dir;
    if data_dir.join("coordinator").exists() {
        bail!("{} holds the data of a single node; choose another --data-dir", data_dir.display());
    }
    let data_dir = std::path::absolute(data_dir)?;
    let beyond = |first: SocketAddr, by: u16| {
        let port = first.port().checked_add(by).filter(|_| first.port() > 0);
        port.map(|port| SocketAddr::new(first.ip(), port)).with_context(|| format!("no ports are left beyond {first}"))
    };
    let place = |number: u16| -> Result<Place> {
        Ok(Place {
            number,
            kafka: beyond(kafka, number - 1)?,
            coordinator: beyond(kafka, COORDINATOR_PORTS + number - 1)?,
            http: beyond(arguments.http, number - 1)?,
            data_dir: data_dir.join(number.to_string()),
        })
    };
    let places: Vec<Place> = (1..=arguments.nodes).map(place).collect::<Result<_>>()?;
    Ok(places)
}

fn check_free(places: &[Place]) -> Result<()> {
    let addresses = || places.iter().flat_map(|place| [place.kafka, place.coordinator, place.http]);
    for (i, address) in addresses().enumerate() {
        if addresses().take(i).any(|other| other == address) {
            bail!("two listeners would share {address}; move --listen or --http");
        }
        TcpListener::bind(address).with_context(|| {
            format!("{address} is in use; stop what listens there, or move the nodes with --listen and --http")
        })?;
    }
    Ok(())
}

impl Place {
    fn config_file(&self) -> PathBuf {
        self.data_dir.join(CONFIG_FILE)
    }
}

fn config(place: &Place, places: &[Place], arguments: &DevArguments) -> String {
    let peers: Vec<String> = places.iter().map(|other| format!("{}@{}", other.number, other.coordinator)).collect();
    let factor = places.len().min(3);
    let mut properties: Vec<(String, String)> =
        DEV_PROPERTIES.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
    properties.push(("default.replication.factor".into(), factor.to_string()));
    properties.push(("min.insync.replicas".into(), factor.div_ceil(2).to_string()));
    let words = arguments.set.iter().filter_map(|word| word.split_once('='));
    properties.extend(words.map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned())));
    let mut text = format!(
        "# Written by `thalweg dev -n {count}` at each start.\n\
         data_dir = {data:?}\n\
         [broker]\nid = {number}\nlisten = [\"{kafka}\"]\n\
         [coordinator]\nid = {number}\nlisten = \"{coordinator}\"\npeers = {peers:?}\n\
         [http]\nlisten = \"{http}\"\n\
         [log]\nlevel = {level:?}\n\
         [properties]\n",
        count = places.len(),
        data = place.data_dir.display().to_string(),
        number = place.number,
        kafka = place.kafka,
        coordinator = place.coordinator,
        http = place.http,
        level = arguments.log_level,
    );
    // The last of two equal keys counts, as it does on the command line.
    let mut seen = std::collections::BTreeMap::new();
    seen.extend(properties);
    for (key, value) in seen {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{key:?} = {value:?}");
    }
    text
}

/// A running process.
struct Node {
    child: Child,
}

impl Node {
    fn start(place: &Place, news: &Sender<News>) -> Result<Node> {
        let binary = std::env::current_exe().context("cannot tell where this program is")?;
        // Its file says everything; what the environment says of this process is not meant for each node.
        let variables = std::env::vars_os()
            .map(|(name, _)| name)
            .filter(|name| name.to_str().is_some_and(|name| name.starts_with("THALWEG_")));
        let mut command = Command::new(&binary);
        for name in variables {
            command.env_remove(name);
        }
        let mut child = command
            .arg("start")
            .arg("--config")
            .arg(place.config_file())
            .arg("--stop-with-parent")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let number = place.number;
        if let Some(said) = child.stderr.take() {
            // What it says goes on with the number of who says it.
            thread::spawn(move || {
                for line in BufReader::new(said).lines().map_while(Result::ok) {
                    telemetry::pass_on(&format!("{number} | {line}"));
                }
            });
        }
        if let Some(said) = child.stdout.take() {
            let (news, pid) = (news.clone(), child.id());
            thread::spawn(move || {
                let mut is_ready = false;
                for line in BufReader::new(said).lines().map_while(Result::ok) {
                    if !is_ready && line.contains(" ready") {
                        is_ready = true;
                        // Nobody listens any more: the cluster stops.
                        drop(news.send(News::Ready(number)));
                    }
                }
                // Its end of the pipe is closed with the process.
                drop(news.send(News::Ended(number, format!("(process {pid}) has ended"))));
            });
        }
        Ok(Node { child })
    }

    fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    fn ask_to_stop(&mut self) {
        if let Ok(None) = self.child.try_wait()
            && let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
        {
            // It may have ended just now.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    fn wait(&mut self) {
        drop(self.child.wait());
    }
}

/// Also keeps a Ctrl-C, which every process of a terminal gets, from ending this one before its nodes.
fn watch_signals(news: Sender<News>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate) = {
        let _entered = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    thread::spawn(move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    biased;
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if news.send(News::Stop).is_err() {
                    return;
                }
            }
        });
    });
    Ok(())
}

fn banner(places: &[Place], arguments: &DevArguments, started: Instant) -> String {
    let kafka: Vec<String> = places.iter().map(|place| place.kafka.to_string()).collect();
    let first = &kafka[0];
    let brokers = if first == "127.0.0.1:9092" { String::new() } else { format!(" -b {first}") };
    let http: Vec<String> = places.iter().map(|place| place.http.port().to_string()).collect();
    format!(
        "thalweg {version}: {count} nodes ready in {ms} ms

  Kafka clients   {clients}
  metrics, health http://{host}, ports {http}
  data            {data}/1 to {count}, each with its configuration in {CONFIG_FILE}

Type next, in another terminal:
  echo hello | thalweg topic produce demo{brokers}
  thalweg topic consume demo -e{brokers}
  kill -9 one of the nodes, or: thalweg cluster restart --rolling --data-dir {data}{brokers}

Ctrl-C stops all nodes; the data stays.",
        version = env!("CARGO_PKG_VERSION"),
        count = places.len(),
        ms = started.elapsed().as_millis(),
        clients = kafka.join(","),
        host = arguments.http.ip(),
        http = http.join(", "),
        data = arguments.data_dir.display(),
    )
}

const CONFIG_FILE: &str = "thalweg.toml";
/// How far the coordinators' ports lie from those of Kafka clients.
const COORDINATOR_PORTS: u16 = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{NodeConfig, Overrides};

    #[test]
    fn each_nodes_file_is_read_back_with_its_own_addresses_and_everybodys_peers() {
        let dir = tempfile::tempdir().unwrap();
        let arguments = DevArguments {
            nodes: 3,
            data_dir: dir.path().to_owned(),
            listen: vec!["127.0.0.1:21900".parse().unwrap()],
            advertised: Vec::new(),
            http: "127.0.0.1:21950".parse().unwrap(),
            set: vec!["num.partitions=4".into(), "min.insync.replicas = 1".into()],
            log_level: "warn".into(),
        };
        let places = places(&arguments).unwrap();
        let path = dir.path().join("file.toml");
        fs::write(&path, config(&places[1], &places, &arguments)).unwrap();
        let read = NodeConfig::read(Some(&path), Overrides::default()).unwrap();
        assert_eq!(
            (read.broker.id, read.coordinator.number(), read.broker.listen[0].address.port()),
            (Some(2), 2, 21901)
        );
        assert_eq!(read.coordinator.peers[2], "3@127.0.0.1:22002");
        let texts = read.property_texts().unwrap();
        assert_eq!((texts["default.replication.factor"].as_str(), texts["num.partitions"].as_str()), ("3", "4"));
        assert_eq!(texts["min.insync.replicas"], "1");
    }

    #[test]
    fn the_data_of_one_node_and_of_several_are_not_mixed() {
        let dir = tempfile::tempdir().unwrap();
        refuse_data_of_several(dir.path()).unwrap();
        fs::create_dir(dir.path().join("1")).unwrap();
        fs::write(dir.path().join("1").join(CONFIG_FILE), "").unwrap();
        assert!(refuse_data_of_several(dir.path()).unwrap_err().to_string().contains("several nodes"));
    }
}
