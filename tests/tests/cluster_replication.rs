//! Brokers as processes, killed and stopped while an unmodified client writes.

use std::io::Write;
use std::process::{Child, Stdio};

use thalweg_tests::calls::create_replicated_topic;
use thalweg_tests::cluster::kcat;
use thalweg_tests::{Cluster, unique};

/// kcat with an idempotent producer into partition 0: record for record what stdin says, in order.
fn writer(cluster: &Cluster, topic: &str) -> Option<Child> {
    let args =
        ["-b", &cluster.addrs(), "-P", "-t", topic, "-p", "0", "-X", "acks=all", "-X", "enable.idempotence=true"];
    let mut kcat = kcat(&args)?;
    kcat.args(["-X", "linger.ms=1", "-X", "reconnect.backoff.max.ms=100"]).stdin(Stdio::piped());
    Some(kcat.spawn().expect("kcat starts"))
}

/// Everything in partition 0, by another kcat.
fn read(cluster: &Cluster, topic: &str) -> Vec<u32> {
    let args = ["-b", &cluster.addrs(), "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q"];
    let read = kcat(&args).expect("there is a kcat").output().expect("kcat reads");
    assert!(read.status.success());
    let text = String::from_utf8(read.stdout).expect("what was written");
    text.lines().map(|line| line.parse().expect("a number")).collect()
}

fn topic(cluster: &Cluster) -> String {
    let name = unique("t");
    let created = create_replicated_topic(&mut cluster.conn(), &name, 1, 3, &[("min.insync.replicas", "2")]);
    assert_eq!(created.error_code, 0, "{:?}", created.error_message);
    cluster.until_in_sync(&name, 3);
    name
}

/// Goal: brokers may be killed and restarted one after another under a writer, and every acknowledged record is there once, in
/// order, on every replica. Method: kill a follower and the leader, stop the next leader in order; compare the segments.
#[test]
fn an_unmodified_client_loses_and_doubles_nothing_while_brokers_die_and_stop() {
    let mut cluster = Cluster::start(3, &["broker.session.timeout.ms = 3000", "broker.heartbeat.interval.ms = 300"]);
    let topic = topic(&cluster);
    let Some(mut writer) = writer(&cluster, &topic) else { return };
    let mut stdin = writer.stdin.take().expect("a pipe");
    let mut next = 0u32;
    let mut write_some = || {
        for _ in 0..2_000 {
            writeln!(stdin, "{next}").expect("kcat reads");
            next += 1;
        }
        next
    };
    write_some();
    let leader = cluster.leader(&topic).expect("a leader");
    let follower = (leader + 1) % 3;
    cluster.kill(follower);
    write_some();
    cluster.until_in_sync(&topic, 2);
    cluster.restart(follower);
    cluster.until_in_sync(&topic, 3);
    write_some();

    let leader = cluster.leader(&topic).expect("a leader");
    cluster.kill(leader);
    write_some();
    cluster.until_in_sync(&topic, 2);
    cluster.restart(leader);
    cluster.until_in_sync(&topic, 3);
    write_some();

    let leader = cluster.leader(&topic).expect("a leader");
    assert_eq!(cluster.stop(leader), Some(0));
    assert_ne!(cluster.leader(&topic), Some(leader), "another leads as soon as the stop is over");
    write_some();
    cluster.restart(leader);
    cluster.until_in_sync(&topic, 3);
    let count = write_some();
    drop(stdin);
    assert!(writer.wait().expect("kcat ends").success(), "every record was acknowledged");

    let values = read(&cluster, &topic);
    assert!(values.iter().copied().eq(0..count), "{} of {count} records, or out of order", values.len());
    for broker in 0..3 {
        assert_eq!(cluster.stop(broker), Some(0));
    }
    let first = cluster.segment(0, &topic);
    assert!(!first.is_empty());
    assert!((1..3).all(|broker| cluster.segment(broker, &topic) == first), "the replicas differ");
}
