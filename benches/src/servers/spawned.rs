//! A server process that a bench started.

use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::process::Process;

/// A child whose output goes to a log file. Dropping it kills it; [`Spawned::stop`] ends it cleanly.
///
/// It leads a process group of its own, whose members all end with this program, however that ends.
#[derive(Debug)]
pub struct Spawned {
    child: Child,
    log: PathBuf,
    began: Instant,
    _guard: Guard,
}

/// A shell that waits for the end of its input, which comes with ours, and then kills a process group.
#[derive(Debug)]
struct Guard(Child);

impl Spawned {
    pub fn start(mut command: Command, log: &Path) -> Result<Spawned> {
        let output = File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).process_group(0);
        let began = Instant::now();
        let mut child = command.spawn().with_context(|| format!("cannot start {:?}", command.get_program()))?;
        match Guard::of_group(child.id()) {
            Ok(guard) => Ok(Spawned { child, log: log.to_owned(), began, _guard: guard }),
            Err(error) => {
                child.kill()?;
                child.wait()?;
                Err(error)
            }
        }
    }

    pub fn process(&self) -> Process {
        Process { pid: self.child.id() }
    }

    /// Asks `is_ready` again and again; how long it took since the process was spawned.
    ///
    /// # Errors
    /// The process ended or was not ready within a minute; the message carries the end of its log.
    pub fn await_ready(&mut self, mut is_ready: impl FnMut() -> bool) -> Result<Duration> {
        loop {
            if is_ready() {
                return Ok(self.began.elapsed());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended with {status} before it was ready; the end of its log:\n{}", self.log_tail());
            }
            if self.began.elapsed() > READY_WITHIN {
                bail!("it was not ready within {READY_WITHIN:?}; the end of its log:\n{}", self.log_tail());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// SIGTERM, then waits for the end.
    ///
    /// # Errors
    /// It did not end within half a minute (and is killed).
    pub fn stop(mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        let asked = Instant::now();
        while asked.elapsed() < STOP_WITHIN {
            if self.child.try_wait()?.is_some() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!("process {} did not end within {STOP_WITHIN:?} of SIGTERM", self.child.id());
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).context("no process id")?;
        Ok(kill_process(pid, signal)?)
    }

    fn log_tail(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        text.lines().rev().take(10).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

impl Guard {
    fn of_group(group: u32) -> Result<Guard> {
        let mut command = Command::new("sh");
        // In a group of its own: a signal from the terminal that ends us must not end it first.
        command.args(["-c", "read -r _; kill -KILL -$0 2>/dev/null", &group.to_string()]).process_group(0);
        let guard = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Ok(Guard(guard.context("cannot start a shell that looks after a server")?))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Closes its input first. Fails only for one that has ended already.
        let _ = self.0.wait();
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        // SIGTERM first: some servers have children of their own that only they can end. All fails only for one that
        // has ended already.
        let _ = self.signal(Signal::TERM);
        let asked = Instant::now();
        while asked.elapsed() < Duration::from_secs(5) && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Free at this moment.
pub fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Several that differ from each other.
pub fn free_addresses(count: usize) -> Result<Vec<SocketAddr>> {
    let listeners = (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<std::io::Result<Vec<_>>>()?;
    listeners.iter().map(|listener| Ok(listener.local_addr()?)).collect()
}

pub fn listens(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
}

const READY_WITHIN: Duration = Duration::from_secs(180);
const STOP_WITHIN: Duration = Duration::from_secs(30);
