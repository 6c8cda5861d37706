//! Proof that consumers are served by sendfile: the node's own counter, and the kernel's word by strace.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::consume::Log;
use super::{Bench, Node};
use crate::load::{Batch, ConsumeLoad, consume};
use crate::report::{Report, Table, progress};

pub fn run(bench: &Bench, node: &Node, report: &mut Report) -> Result<()> {
    report.section("sendfile", "Proof of sendfile");
    let target = &node.cluster.target();
    let batch = Batch::of(1024, 16 << 10)?;
    let log = Log::fill(bench, target, &batch)?;
    let load = ConsumeLoad {
        max_bytes: 1 << 20,
        connection_count: 1,
        end_offset: log.end_offset,
        value_bytes_per_record: 1024,
        duration: Duration::from_millis(500),
    };
    progress("consuming beside the node's counters");
    let before = counters(node.http)?;
    let consumed = consume(target, &log.topic, &load)?;
    let after = counters(node.http)?;
    report.paragraph(&format!(
        "A consumer read {} record values of 1 KiB, {} bytes without their framing. The node's own counters rose by:",
        consumed.record_count, consumed.bytes
    ));
    let mut table = Table::new(&["counter", "rose by"]);
    for (name, value) in &after {
        let earlier = before.iter().find(|(earlier, _)| earlier == name).map_or(0.0, |(_, value)| *value);
        table.row(vec![format!("`{name}`"), format!("{:.0}", value - earlier)]);
    }
    if after.is_empty() {
        table.row(vec!["none whose name holds `sendfile`: **no proof**".to_owned(), String::new()]);
    }
    report.table(&table);

    progress("consuming under strace");
    match traced(bench, node, || consume(target, &log.topic, &load))? {
        Err(reason) => report.paragraph(&format!("strace: {reason}.")),
        Ok((outcome, calls)) => {
            report.paragraph(&format!(
                "Under `strace -f -e trace={TRACED}` a consumer read {} bytes of record values, by these calls of the \
                 node:",
                outcome.bytes
            ));
            let mut table = Table::new(&["call", "times", "bytes returned"]);
            for (name, count, bytes) in calls {
                table.row(vec![name, count.to_string(), bytes.to_string()]);
            }
            report.table(&table);
        }
    }
    log.topic.delete(target)
}

/// The counters of `/metrics` whose name says sendfile.
fn counters(http: SocketAddr) -> Result<Vec<(String, f64)>> {
    let mut stream = TcpStream::connect(http)?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let status = text.lines().next().unwrap_or_default();
    ensure!(status.contains(" 200 "), "/metrics answered {status:?}");
    let counter = |line: &str| {
        let (name, value) = line.rsplit_once(' ')?;
        (!line.starts_with('#') && name.contains("sendfile")).then(|| Some((name.to_owned(), value.parse().ok()?)))?
    };
    Ok(text.lines().filter_map(counter).collect())
}

type Calls = Vec<(String, u64, u64)>;

/// Runs `work` while strace watches the node; the reason when strace cannot.
fn traced<T>(bench: &Bench, node: &Node, work: impl FnOnce() -> Result<T>) -> Result<Result<(T, Calls), String>> {
    let log = bench.dir.join("strace");
    let pid = node.cluster.processes().0[0].pid;
    let mut command = Command::new("strace");
    command.args(["-f", "-e", &format!("trace={TRACED}"), "-p", &pid.to_string(), "-o"]).arg(&log);
    let Ok(mut strace) = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn() else {
        return Ok(Err("not installed on this machine".to_owned()));
    };
    if !attached(&mut strace, pid)? {
        let _ = strace.kill();
        let _ = strace.wait();
        return Ok(Err("may not attach to processes on this machine".to_owned()));
    }
    let outcome = work();
    let pid = i32::try_from(strace.id()).ok().and_then(Pid::from_raw).context("no process id")?;
    kill_process(pid, Signal::INT)?;
    strace.wait()?;
    Ok(Ok((outcome?, summarize(&log)?)))
}

/// Waits until every thread of the process has a tracer.
fn attached(strace: &mut Child, pid: u32) -> Result<bool> {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(5) {
        if strace.try_wait()?.is_some() {
            return Ok(false);
        }
        let mut all = true;
        for task in fs::read_dir(format!("/proc/{pid}/task"))? {
            let status = fs::read_to_string(task?.path().join("status")).unwrap_or_default();
            all &= !status.contains("TracerPid:\t0\n");
        }
        if all {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(false)
}

/// Adds up what each call returned.
fn summarize(log: &Path) -> Result<Calls> {
    Ok(add_up(&fs::read_to_string(log).context("strace wrote nothing")?))
}

fn add_up(text: &str) -> Calls {
    let mut calls: Calls = TRACED.split(',').map(|name| (name.to_owned(), 0, 0)).collect();
    for line in text.lines() {
        let Some((call, result)) = line.rsplit_once(" = ") else { continue };
        // Either `PID name(..` or, after another thread's line came between, `PID <... name resumed>..`.
        let name =
            call.split(|c: char| !(c.is_alphanumeric() || c == '_')).find(|word| TRACED.split(',').any(|t| t == *word));
        let bytes = result.split_ascii_whitespace().next().and_then(|word| word.parse::<u64>().ok());
        if let (Some(name), Some(entry)) = (name, name.and_then(|name| calls.iter_mut().find(|call| call.0 == name))) {
            debug_assert_eq!(entry.0, name);
            entry.1 += 1;
            entry.2 += bytes.unwrap_or(0);
        }
    }
    calls
}

const TRACED: &str = "sendfile,pread64,preadv,preadv2,read,mmap";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_calls_returned_is_added_up_even_when_threads_interleave() {
        let text = "\
12 sendfile(9, 8, [0] => [1048576], 1048576) = 1048576
12 sendfile(9, 8, [1048576], 1048576 <unfinished ...>
13 read(4, \"sendfile\", 8) = 8
12 <... sendfile resumed> => [1048600]) = 24
12 sendfile(9, 8, [1048600], 10) = -1 EAGAIN (Resource temporarily unavailable)
12 +++ exited with 0 +++
";
        let calls = add_up(text);
        let of = |name: &str| calls.iter().find(|call| call.0 == name).map(|call| (call.1, call.2));
        assert_eq!(of("sendfile"), Some((3, 1_048_600)));
        assert_eq!(of("read"), Some((1, 8)));
        assert_eq!(of("pread64"), Some((0, 0)));
    }
}
