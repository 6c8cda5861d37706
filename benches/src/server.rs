//! One Thalweg node as a process of its own.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::process::Process;

/// A running node. Dropping it kills the process; [`Server::stop`] ends it cleanly.
#[derive(Debug)]
pub struct Server {
    child: Child,
    pub kafka: SocketAddr,
    pub http: SocketAddr,
    /// From just before the spawn to the line that says it serves.
    pub ready_after: Duration,
}

impl Server {
    /// Starts `binary dev` on free ports and waits for its ready line. `data` may hold an earlier run's data.
    ///
    /// # Errors
    /// The node ended or stayed silent for a minute; the message carries what it wrote to standard error.
    pub fn start(binary: &Path, data: &Path) -> Result<Server> {
        let (kafka, http) = (free_address()?, free_address()?);
        let log = log_path(data);
        let mut command = Command::new(binary);
        command.arg("dev").arg("--data-dir").arg(data);
        command.args(["--listen", &kafka.to_string(), "--http", &http.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&log)?);
        let spawned = Instant::now();
        let child = command.spawn().with_context(|| format!("cannot start {}", binary.display()))?;
        let mut server = Server { child, kafka, http, ready_after: Duration::ZERO };
        if !server.await_ready()? {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let tail = text.lines().rev().take(10).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n");
            bail!("{} did not get ready; the end of its log:\n{tail}", binary.display());
        }
        server.ready_after = spawned.elapsed();
        Ok(server)
    }

    pub fn process(&self) -> Process {
        Process { pid: self.child.id() }
    }

    /// SIGTERM, then waits for the end.
    ///
    /// # Errors
    /// It did not end within half a minute (and was killed), or ended with a failure.
    pub fn stop(mut self) -> Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).context("no process id")?;
        kill_process(pid, Signal::TERM)?;
        let asked = Instant::now();
        while asked.elapsed() < STOP_WITHIN {
            if let Some(status) = self.child.try_wait()? {
                if !status.success() {
                    bail!("the node ended with {status} when asked to stop");
                }
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!("the node did not end within {STOP_WITHIN:?} of SIGTERM");
    }

    /// Whether the ready line came. A thread goes on reading, so that the node never blocks on a full pipe.
    fn await_ready(&mut self) -> Result<bool> {
        let stdout = self.child.stdout.take().context("standard output is piped")?;
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if line.contains("ready") {
                    let _ = sender.send(());
                }
            }
        });
        Ok(receiver.recv_timeout(READY_WITHIN).is_ok())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Beside the data directory, so that the node finds that directory as it left it.
fn log_path(data: &Path) -> PathBuf {
    let mut path = data.as_os_str().to_owned();
    path.push(".log");
    PathBuf::from(path)
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

const READY_WITHIN: Duration = Duration::from_secs(60);
const STOP_WITHIN: Duration = Duration::from_secs(30);
