//! An unmodified client that counts: what it wrote has to be there once, in order.

use std::io::Write;
use std::process::{Child, ChildStdin, Stdio};

use crate::cluster::kcat;

/// kcat with an idempotent producer and acks=all, which writes the numbers from 0 on into partition 0 of a topic.
pub struct Numbers {
    kcat: Child,
    stdin: ChildStdin,
    brokers: String,
    topic: String,
    next: u32,
}

impl Numbers {
    /// `None`, with a printed line, where there is no kcat. Of several brokers some may not run yet.
    pub fn start(brokers: &str, topic: &str) -> Option<Numbers> {
        // -E: brokers that do not run are no reason to end.
        let mut kcat = kcat(&["-E", "-b", brokers, "-P", "-t", topic, "-p", "0", "-X", "acks=all"])?;
        kcat.args(["-X", "enable.idempotence=true", "-X", "linger.ms=1", "-X", "reconnect.backoff.max.ms=100"]);
        let mut kcat = kcat.stdin(Stdio::piped()).spawn().expect("kcat starts");
        let stdin = kcat.stdin.take().expect("a pipe");
        Some(Numbers { kcat, stdin, brokers: brokers.to_owned(), topic: topic.to_owned(), next: 0 })
    }

    /// Some thousand more; they are under way when this returns.
    pub fn write_some(&mut self) {
        for _ in 0..2_000 {
            writeln!(self.stdin, "{}", self.next).expect("kcat reads");
            self.next += 1;
        }
    }

    /// Writes some more, and asserts that every number was acknowledged and that another kcat reads each once, in order.
    pub fn finish(mut self) {
        self.write_some();
        let Numbers { mut kcat, stdin, brokers, topic, next: count } = self;
        drop(stdin);
        assert!(kcat.wait().expect("kcat ends").success(), "every record was acknowledged");
        let values = read(&brokers, &topic);
        assert!(values.iter().copied().eq(0..count), "{} of {count} records, or out of order", values.len());
    }
}

/// Everything in partition 0.
fn read(brokers: &str, topic: &str) -> Vec<u32> {
    let args = ["-b", brokers, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q"];
    let read = kcat(&args).expect("there is a kcat").output().expect("kcat reads");
    assert!(read.status.success());
    let text = String::from_utf8(read.stdout).expect("what was written");
    text.lines().map(|line| line.parse().expect("a number")).collect()
}
