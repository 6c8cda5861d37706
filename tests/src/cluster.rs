//! A cluster of processes of our binary: one coordinator and brokers around it, on loopback.

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
use crate::node::{binary, free_addr};
use crate::{Conn, ErrorCode};

/// Dropped: every process is killed, and the directory removed unless the test failed.
pub struct Cluster {
    coordinator: Process,
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
    /// `properties` of every broker and the coordinator, as `key = value` lines of TOML.
    pub fn start(brokers: usize, properties: &[&str]) -> Cluster {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let rpc = free_addr();
        let properties = format!("[properties]\n{}\n", properties.join("\n"));
        let coordinator = format!("roles = ['coordinator']\n[coordinator]\nlisten = '{rpc}'\n");
        let coordinator = Process::start(dir.path(), "coordinator", &rpc, &(coordinator + &properties));
        let brokers = (0..brokers).map(|number| {
            let addr = free_addr();
            let broker = format!("roles = ['broker']\n[broker]\nlisten = ['{addr}']\ncoordinators = ['{rpc}']\n");
            Process::start(dir.path(), &format!("broker-{number}"), &addr, &(broker + &properties))
        });
        Cluster { brokers: brokers.collect(), coordinator, dir: Some(dir) }
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

    /// SIGTERM; the exit code.
    pub fn stop(&mut self, broker: usize) -> Option<i32> {
        self.brokers[broker].stop()
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

impl Drop for Cluster {
    fn drop(&mut self) {
        for process in self.brokers.iter_mut().chain([&mut self.coordinator]) {
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
    fn start(dir: &Path, name: &str, addr: &str, config: &str) -> Process {
        let path = dir.join(format!("{name}.toml"));
        let data_dir = path.with_extension("");
        let whole = format!("data_dir = '{}'\n{config}[http]\nlisten = '{}'\n", data_dir.display(), free_addr());
        fs::write(&path, whole).expect("a configuration file");
        let child = spawn(&path);
        Process { child, config: path, addr: addr.to_owned() }
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
        self.child = spawn(&self.config);
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

/// Returns once the node said `ready`.
fn spawn(config: &Path) -> Child {
    let log = config.with_extension("log");
    let log_file = File::options().create(true).append(true).open(&log).expect("a log file");
    let mut child = Command::new(binary())
        .args(["start", "--config"])
        .arg(config)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log_file)
        .spawn()
        .expect("the binary starts");
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
        panic!("a node is not ready:\n{}", fs::read_to_string(&log).unwrap_or_default());
    }
    child
}

/// After this a test fails; nothing waits this long when it works.
const DEADLINE: Duration = Duration::from_secs(60);
