//! A cluster of processes of our binary: coordinators and brokers around them, on loopback.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use kafka_protocol::messages::MetadataResponse;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::calls::metadata;
use crate::cli::Cli;
use crate::node::{binary, free_addr};
use crate::{Conn, ErrorCode};

/// Dropped: every process is killed, and the directory removed unless the test failed.
pub struct Cluster {
    coordinators: Vec<Process>,
    brokers: Vec<Process>,
    dir: Option<TempDir>,
}

/// One node.
struct Process {
    child: Child,
    config: PathBuf,
    addr: String,
}

impl Cluster {
    /// One coordinator. `properties` of every node, as `key = value` lines of TOML.
    pub fn start(brokers: usize, properties: &[&str]) -> Cluster {
        Cluster::start_with(1, brokers, properties)
    }

    /// Broker at position `n` has the id `n + 1`.
    pub fn start_with(coordinators: usize, brokers: usize, properties: &[&str]) -> Cluster {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let properties = format!("[properties]\n{}\n", properties.join("\n"));
        let rpcs: Vec<String> = (0..coordinators).map(|_| free_addr()).collect();
        let peers: Vec<String> = (1..).zip(&rpcs).map(|(id, rpc)| format!("'{id}@{rpc}'")).collect();
        let peers = if coordinators == 1 { String::new() } else { format!("peers = [{}]\n", peers.join(", ")) };
        let coordinator = |(id, rpc): (usize, &String)| {
            let config = format!("roles = ['coordinator']\n[coordinator]\nid = {id}\nlisten = '{rpc}'\n{peers}");
            Process::begin(dir.path(), &format!("coordinator-{id}"), rpc, &(config + &properties))
        };
        // Several wait for each other.
        let coordinators: Vec<_> = (1..).zip(&rpcs).map(coordinator).collect();
        let coordinators = coordinators.into_iter().map(Starting::until_ready).collect();
        let rpcs: Vec<String> = rpcs.iter().map(|rpc| format!("'{rpc}'")).collect();
        let rpcs = rpcs.join(", ");
        let brokers = (0..brokers).map(|number| {
            let addr = free_addr();
            let id = number + 1;
            let config =
                format!("roles = ['broker']\n[broker]\nid = {id}\nlisten = ['{addr}']\ncoordinators = [{rpcs}]\n");
            Process::begin(dir.path(), &format!("broker-{number}"), &addr, &(config + &properties)).until_ready()
        });
        Cluster { brokers: brokers.collect(), coordinators, dir: Some(dir) }
    }

    /// As clients are given it.
    pub fn addrs(&self) -> String {
        self.brokers.iter().map(|broker| broker.addr.as_str()).collect::<Vec<_>>().join(",")
    }

    /// To any broker that answers.
    pub fn conn(&self) -> Conn {
        let alive = self.brokers.iter().find(|broker| std::net::TcpStream::connect(&broker.addr).is_ok());
        Conn::open(&alive.expect("a broker answers").addr)
    }

    /// The position of the broker with this address among [`Cluster::addrs`].
    fn position(&self, addr: &str) -> Option<usize> {
        self.brokers.iter().position(|broker| broker.addr == addr)
    }

    fn metadata(&self, topic: &str) -> MetadataResponse {
        metadata(&mut self.conn(), 9, Some(&[topic]), false)
    }

    /// Who leads partition 0 of `topic`.
    pub fn leader(&self, topic: &str) -> Option<usize> {
        let answer = self.metadata(topic);
        let leader = answer.topics.first()?.partitions.first()?.leader_id;
        let broker = answer.brokers.iter().find(|broker| broker.node_id == leader)?;
        self.position(&format!("{}:{}", broker.host, broker.port))
    }

    /// Waits until `count` replicas of partition 0 are in sync and one leads.
    pub fn until_in_sync(&self, topic: &str, count: usize) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let answer = self.metadata(topic);
            let partition = answer.topics.first().and_then(|topic| topic.partitions.first());
            let in_sync = partition.is_some_and(|partition| {
                partition.error_code == ErrorCode::None.code() && partition.isr_nodes.len() == count
            });
            if in_sync {
                return;
            }
            assert!(Instant::now() < deadline, "{count} replicas do not come in sync: {partition:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// SIGKILL.
    pub fn kill(&mut self, broker: usize) {
        self.brokers[broker].kill();
    }

    /// SIGSTOP: it answers nothing, and others notice only in time. Ended by [`Cluster::kill`].
    pub fn pause(&self, broker: usize) {
        let pid = Pid::from_raw(self.brokers[broker].child.id() as i32).expect("a process id is not zero");
        kill_process(pid, Signal::STOP).expect("the node is ours to pause");
    }

    /// SIGTERM; the exit code.
    pub fn stop(&mut self, broker: usize) -> Option<i32> {
        self.brokers[broker].stop()
    }

    /// SIGKILL to whichever coordinator leads, by `thalweg coordinator list`; its position.
    pub fn kill_leading_coordinator(&mut self) -> usize {
        let rpcs: Vec<&str> = self.coordinators.iter().map(|process| process.addr.as_str()).collect();
        let listed = Cli::nowhere().json(&format!("coordinator list --coordinators {}", rpcs.join(",")));
        let nodes = listed["coordinators"].as_array().expect("a list");
        let leader = nodes.iter().find(|node| node["leader"] == true).expect("one leads");
        let position = rpcs.iter().position(|rpc| leader["address"] == *rpc).expect("it is one of ours");
        self.coordinators[position].kill();
        position
    }

    pub fn restart_coordinator(&mut self, position: usize) {
        self.coordinators[position].restart();
    }

    /// Whether the broker's disk holds partition 0 of `topic`.
    pub fn has_log(&self, broker: usize, topic: &str) -> bool {
        self.brokers[broker].config.with_extension("").join(format!("logs/{topic}-0")).exists()
    }

    /// After [`Cluster::kill`] or [`Cluster::stop`]: another disk, an empty one.
    pub fn replace_disk(&self, broker: usize) {
        fs::remove_dir_all(self.brokers[broker].config.with_extension("")).expect("the directory is ours to remove");
    }

    /// After [`Cluster::kill`] or [`Cluster::stop`]: again, over the same directory, until it serves.
    pub fn restart(&mut self, broker: usize) {
        self.brokers[broker].restart();
    }

    /// The bytes of partition 0's only segment on one broker's disk.
    pub fn segment(&self, broker: usize, topic: &str) -> Vec<u8> {
        let dir = self.brokers[broker].config.with_extension("");
        let path = dir.join(format!("logs/{topic}-0/00000000000000000000.log"));
        fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }
}

/// A node that has not said `ready` yet.
struct Starting {
    child: Child,
    config: PathBuf,
    addr: String,
}

impl Starting {
    fn until_ready(self) -> Process {
        Process { child: until_ready(self.child, &self.config), config: self.config, addr: self.addr }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for process in self.brokers.iter_mut().chain(&mut self.coordinators) {
            process.kill();
        }
        if thread::panicking()
            && let Some(dir) = self.dir.take()
        {
            eprintln!("the cluster's directory is kept: {}", dir.keep().display());
        }
    }
}

impl Process {
    fn begin(dir: &Path, name: &str, addr: &str, config: &str) -> Starting {
        let path = dir.join(format!("{name}.toml"));
        let data_dir = path.with_extension("");
        let whole = format!("data_dir = '{}'\n{config}[http]\nlisten = '{}'\n", data_dir.display(), free_addr());
        fs::write(&path, whole).expect("a configuration file");
        Starting { child: spawn(&path), config: path, addr: addr.to_owned() }
    }

    fn kill(&mut self) {
        // Gone already is as good as killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn stop(&mut self) -> Option<i32> {
        let pid = Pid::from_raw(self.child.id() as i32).expect("a process id is not zero");
        kill_process(pid, Signal::TERM).expect("the node is ours to stop");
        self.child.wait().expect("the node was started here").code()
    }

    fn restart(&mut self) {
        self.child = until_ready(spawn(&self.config), &self.config);
    }
}

/// kcat with these arguments; `None`, with a printed line, where there is none.
pub fn kcat(args: &[&str]) -> Option<Command> {
    if let Err(error) = Command::new("kcat").arg("-V").output() {
        println!("not run: kcat does not start: {error}");
        return None;
    }
    let mut kcat = Command::new("kcat");
    kcat.args(args).stderr(Stdio::null());
    Some(kcat)
}

fn spawn(config: &Path) -> Child {
    let log = config.with_extension("log");
    let log_file = File::options().create(true).append(true).open(&log).expect("a log file");
    Command::new(binary())
        .args(["start", "--config"])
        .arg(config)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log_file)
        .spawn()
        .expect("the binary starts")
}

/// Returns once the node said `ready`.
fn until_ready(mut child: Child, config: &Path) -> Child {
    let lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
    let (ready, wait) = mpsc::channel();
    // Reads on after `ready`: a full pipe would stop the node.
    thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            if line.contains("ready") {
                let _ = ready.send(());
            }
        }
    });
    if wait.recv_timeout(DEADLINE).is_err() {
        let _ = child.kill();
        let _ = child.wait();
        panic!("a node is not ready:\n{}", fs::read_to_string(config.with_extension("log")).unwrap_or_default());
    }
    child
}

/// After this a test fails; nothing waits this long when it works.
const DEADLINE: Duration = Duration::from_secs(60);
