//! The command line as a person or a script uses it: words in, bytes and an exit code out.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::node::binary;

/// A user with a home of its own and no variables set.
pub struct Cli {
    home: TempDir,
    brokers: Option<String>,
}

/// What a command left behind.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// A command that goes on. Dropped: killed.
pub struct Running {
    child: Child,
    /// `None` once it was closed on the command.
    out: Option<BufReader<ChildStdout>>,
    err: ChildStderr,
}

impl Cli {
    /// Every command gets `-b addr`.
    pub fn at(addr: &str) -> Cli {
        Cli { brokers: Some(addr.to_owned()), ..Cli::nowhere() }
    }

    /// No command is told where the cluster is.
    pub fn nowhere() -> Cli {
        Cli { home: tempfile::tempdir().expect("a temporary directory"), brokers: None }
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// `line` is split at spaces.
    pub fn run(&self, line: &str) -> Ran {
        self.run_with(line, b"")
    }

    /// With `input` as its stdin.
    pub fn run_with(&self, line: &str, input: &[u8]) -> Ran {
        let mut child = self.command(line).spawn().expect("the binary starts");
        let mut stdin = child.stdin.take().expect("stdin is piped");
        let input = input.to_vec();
        // In a thread: a command may write before it has read everything.
        let writer = thread::spawn(move || {
            // One that ends without reading breaks the pipe.
            let _ = stdin.write_all(&input);
        });
        let output = child.wait_with_output().expect("it was started here");
        writer.join().expect("writing does not panic");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let code = output.status.code().unwrap_or_else(|| panic!("{line}: ended by a signal"));
        Ran { code, out: text(output.stdout), err: text(output.stderr) }
    }

    /// As [`Cli::run`]; anything but exit code 0 fails the test.
    pub fn ok(&self, line: &str) -> Ran {
        self.ok_with(line, b"")
    }

    pub fn ok_with(&self, line: &str, input: &[u8]) -> Ran {
        let ran = self.run_with(line, input);
        assert_eq!(ran.code, 0, "{line}: {ran:?}");
        ran
    }

    /// The JSON that a command prints.
    pub fn json(&self, line: &str) -> Value {
        let ran = self.ok(&format!("{line} --format json"));
        serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{line}: {error} in {}", ran.out))
    }

    pub fn start(&self, line: &str) -> Running {
        let mut child = self.command(line).spawn().expect("the binary starts");
        let out = child.stdout.take().map(BufReader::new);
        let err = child.stderr.take().expect("stderr is piped");
        Running { child, out, err }
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(binary());
        command.env_clear().env("HOME", self.home.path()).args(line.split(' '));
        if let Some(brokers) = &self.brokers {
            command.args(["-b", brokers]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

impl Running {
    /// The next line of its stdout, without the newline.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        let out = self.out.as_mut().expect("its stdout is open");
        out.read_line(&mut line).expect("stdout is text");
        line.trim_end_matches('\n').to_owned()
    }

    pub fn feed(&mut self, bytes: &[u8]) {
        let stdin = self.child.stdin.as_mut().expect("stdin is piped");
        stdin.write_all(bytes).and_then(|()| stdin.flush()).expect("it reads");
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32).expect("a process id is not zero");
        kill_process(pid, signal).expect("it was started here");
    }

    /// Its end, after its stdout was closed on it.
    pub fn end_unread(mut self) -> Ran {
        self.out = None;
        self.end()
    }

    /// Its end; the rest of what it wrote. Its stdin stays open until then.
    pub fn end(mut self) -> Ran {
        let mut rest = [String::new(), String::new()];
        if let Some(out) = &mut self.out {
            out.read_to_string(&mut rest[0]).expect("stdout is text");
        }
        self.err.read_to_string(&mut rest[1]).expect("stderr is text");
        let code = self.child.wait().expect("it was started here").code().expect("not ended by a signal");
        let [out, err] = rest;
        Ran { code, out, err }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Gone already is as good as killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
