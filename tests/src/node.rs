//! One process of our binary with a data directory of its own.

use std::env;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::Conn;
use crate::target::external;

/// A running node. Dropped: killed, and its directory removed unless the test failed.
pub struct Node {
    child: Child,
    dir: Option<TempDir>,
    data_dir: PathBuf,
    addr: String,
    http: String,
    settings: Vec<String>,
}

impl Node {
    /// Starts a node in an empty directory and waits until it serves.
    ///
    /// `settings` are `key=value` in Kafka's broker property names.
    pub fn start(settings: &[&str]) -> Node {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let data_dir = dir.path().join("data");
        let mut node = Node::try_start_in(&data_dir, settings).unwrap_or_else(|why| panic!("{why}"));
        node.dir = Some(dir);
        node
    }

    /// [`Node::start`], or `None` with a printed line where the tests run against a foreign broker.
    pub fn own(settings: &[&str]) -> Option<Node> {
        if external().is_some() {
            println!("not run: this test starts, kills or configures its node, and BROKERS names a foreign one");
            return None;
        }
        Some(Node::start(settings))
    }

    /// Starts a node over `data_dir`, which stays when the node goes.
    ///
    /// # Errors
    /// What the process printed, when it ends before it serves.
    pub fn try_start_in(data_dir: &Path, settings: &[&str]) -> Result<Node, String> {
        let (addr, http) = (free_addr(), free_addr());
        let settings: Vec<String> = settings.iter().map(|s| (*s).to_owned()).collect();
        let child = spawn(data_dir, &addr, &http, &settings)?;
        Ok(Node { child, dir: None, data_dir: data_dir.to_owned(), addr, http, settings })
    }

    pub fn addr(&self) -> &str {
        &self.addr
    }

    pub fn conn(&self) -> Conn {
        Conn::open(&self.addr)
    }

    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, and waits until the process is gone.
    pub fn kill(&mut self) {
        // Gone already is as good as killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGTERM, and the exit code of the clean stop.
    pub fn stop(&mut self) -> Option<i32> {
        let pid = Pid::from_raw(self.child.id() as i32).expect("a process id is not zero");
        kill_process(pid, Signal::TERM).expect("the node is ours to stop");
        self.child.wait().expect("the node was started here").code()
    }

    /// Starts it again after [`Node::kill`] or [`Node::stop`], on the same address; gives the time until it served.
    pub fn restart(&mut self) -> Duration {
        let started = Instant::now();
        self.child =
            spawn(&self.data_dir, &self.addr, &self.http, &self.settings).unwrap_or_else(|why| panic!("{why}"));
        started.elapsed()
    }

    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Everything the node logged, over all its lives.
    pub fn log(&self) -> String {
        fs::read_to_string(log_file(&self.data_dir)).unwrap_or_default()
    }

    /// The body of a GET on the node's HTTP port.
    pub fn http_get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.http).expect("the node serves HTTP");
        stream.set_read_timeout(Some(DEADLINE)).expect("a socket takes a timeout");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.http).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            eprintln!("the node's last log lines:\n{}", tail(&self.log(), 40));
            if let Some(dir) = self.dir.take() {
                eprintln!("its directory is kept: {}", dir.keep().display());
            }
        }
    }
}

/// The node's binary: `THALWEG_BIN`, or the one that cargo built beside this test.
pub fn binary() -> PathBuf {
    if let Some(named) = env::var_os("THALWEG_BIN") {
        return PathBuf::from(named);
    }
    let test = env::current_exe().expect("a test has a path");
    let profile = test.parent().and_then(Path::parent).expect("tests lie in target/<profile>/deps");
    let target = profile.parent().expect("a profile lies in the target directory");
    [profile.join("thalweg"), target.join("release/thalweg"), target.join("debug/thalweg")]
        .into_iter()
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("no binary in {}: run `cargo build -p thalweg` or set THALWEG_BIN", target.display()))
}

/// Runs `thalweg dev` over `data_dir` and gives the process once it said `ready`, or what it said instead.
fn spawn(data_dir: &Path, addr: &str, http: &str, settings: &[String]) -> Result<Child, String> {
    let log = File::options().create(true).append(true).open(log_file(data_dir)).map_err(|e| e.to_string())?;
    let mut command = Command::new(binary());
    command.arg("dev").arg("--data-dir").arg(data_dir).args(["--listen", addr, "--http", http]);
    for setting in settings {
        command.args(["--set", setting]);
    }
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(|e| format!("{} does not start: {e}", binary().display()))?;
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
    if wait.recv_timeout(DEADLINE).is_ok() {
        return Ok(child);
    }
    let _ = child.kill();
    let status = child.wait().map_err(|e| e.to_string())?;
    let said = fs::read_to_string(log_file(data_dir)).unwrap_or_default();
    Err(format!("the node ended with {status} before it was ready:\n{}", tail(&said, 60)))
}

/// Beside the data directory, so that it is not part of what the node recovers.
fn log_file(data_dir: &Path) -> PathBuf {
    data_dir.with_extension("log")
}

/// An address that was free a moment ago.
pub fn free_addr() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    listener.local_addr().expect("a bound socket has an address").to_string()
}

fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// After this a test fails; nothing waits this long when it works.
const DEADLINE: Duration = Duration::from_secs(60);
