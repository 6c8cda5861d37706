//! How another process asks `thalweg dev -n N` for something: a socket in the data directory, lines of text.
//!
//! `restart N` stops node N in order and starts it again; the answer is `ready MS` or `failed WHY`.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// What was asked, and where the answer goes.
pub struct Asked {
    pub node: u16,
    pub answer: Sender<Result<Duration, String>>,
}

/// Listens until the process ends. `ask` returns whether anybody still attends.
///
/// # Errors
/// The socket cannot be made.
pub fn listen(data_dir: &Path, ask: impl Fn(Asked) -> bool + Send + 'static) -> Result<()> {
    let path = socket(data_dir);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error).context(path.display().to_string()),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(&path).with_context(|| format!("cannot make {}", path.display()))?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // One that goes away has lost its interest in the answer.
            if !answer(&stream, &ask).unwrap_or(true) {
                return;
            }
        }
    });
    Ok(())
}

fn answer(mut stream: &UnixStream, ask: &impl Fn(Asked) -> bool) -> std::io::Result<bool> {
    stream.set_read_timeout(Some(LINE_TIMEOUT))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    let Some(node) = line.trim().strip_prefix("restart ").and_then(|number| number.parse().ok()) else {
        writeln!(stream, "failed '{}' is nothing that can be asked here", line.trim())?;
        return Ok(true);
    };
    let (sender, receiver) = channel();
    if !ask(Asked { node, answer: sender }) {
        return Ok(false);
    }
    match receiver.recv() {
        Ok(Ok(took)) => writeln!(stream, "ready {}", took.as_millis())?,
        Ok(Err(why)) => writeln!(stream, "failed {why}")?,
        Err(_) => writeln!(stream, "failed the cluster is stopping")?,
    }
    Ok(true)
}

/// Restarts a node of the cluster that runs over `data_dir`; how long it was away.
///
/// # Errors
/// No such cluster runs here, or the node did not come back.
pub fn restart(data_dir: &Path, node: u16) -> Result<Duration> {
    let path = socket(data_dir);
    let mut stream = UnixStream::connect(&path).with_context(|| {
        format!(
            "no `thalweg dev -n N` runs over {} (its socket {} does not answer); name its directory with --data-dir",
            data_dir.display(),
            path.display()
        )
    })?;
    writeln!(stream, "restart {node}")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    match line.trim().split_once(' ') {
        Some(("ready", ms)) => Ok(Duration::from_millis(ms.parse().context("an answer without a time")?)),
        Some(("failed", why)) => bail!("node {node}: {why}"),
        _ => bail!("the cluster ended while node {node} was being restarted"),
    }
}

/// The nodes that have data there.
pub fn nodes(data_dir: &Path) -> Vec<u16> {
    (1..=9).filter(|number: &u16| data_dir.join(number.to_string()).is_dir()).collect()
}

fn socket(data_dir: &Path) -> PathBuf {
    data_dir.join("dev.sock")
}

const LINE_TIMEOUT: Duration = Duration::from_secs(5);
