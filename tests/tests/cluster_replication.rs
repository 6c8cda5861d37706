//! Brokers as processes, killed and stopped while an unmodified client writes.

use thalweg_tests::calls::create_replicated_topic;
use thalweg_tests::{Cluster, Numbers, unique};

fn topic(cluster: &Cluster) -> String {
    let name = unique("t");
    let created = create_replicated_topic(&mut cluster.conn(), &name, 1, 3, &[("min.insync.replicas", "2")]);
    assert_eq!(created.error_code, 0, "{:?}", created.error_message);
    cluster.until_in_sync(&name, 3);
    name
}

/// Goal: brokers may be killed and restarted one after another under a writer, and every acknowledged record is there once, in
/// order, on every replica. Method: kill a follower, which comes back with an empty disk, and the leader, stop the next leader in
/// order; compare the segments.
#[test]
fn an_unmodified_client_loses_and_doubles_nothing_while_brokers_die_and_stop() {
    let mut cluster = Cluster::start(3, &["broker.session.timeout.ms = 3000", "broker.heartbeat.interval.ms = 300"]);
    let topic = topic(&cluster);
    let Some(mut numbers) = Numbers::start(&cluster.addrs(), &topic) else { return };
    numbers.write_some();
    let leader = cluster.leader(&topic).expect("a leader");
    let follower = (leader + 1) % 3;
    cluster.kill(follower);
    numbers.write_some();
    cluster.until_in_sync(&topic, 2);
    cluster.replace_disk(follower);
    cluster.restart(follower);
    cluster.until_in_sync(&topic, 3);
    numbers.write_some();

    let leader = cluster.leader(&topic).expect("a leader");
    cluster.kill(leader);
    numbers.write_some();
    cluster.until_in_sync(&topic, 2);
    cluster.restart(leader);
    cluster.until_in_sync(&topic, 3);
    numbers.write_some();

    let leader = cluster.leader(&topic).expect("a leader");
    assert_eq!(cluster.stop(leader), Some(0));
    assert_ne!(cluster.leader(&topic), Some(leader), "another leads as soon as the stop is over");
    numbers.write_some();
    cluster.restart(leader);
    cluster.until_in_sync(&topic, 3);
    numbers.finish();
    for broker in 0..3 {
        assert_eq!(cluster.stop(broker), Some(0));
    }
    let first = cluster.segment(0, &topic);
    assert!(!first.is_empty());
    assert!((1..3).all(|broker| cluster.segment(broker, &topic) == first), "the replicas differ");
}
