//! The verbs against a node: what each does, and what it says to a wrong use.

use std::time::{Duration, Instant};

use serde_json::json;
use thalweg_tests::{Cli, Node};

fn node_with(lines: u32) -> Option<(Node, Cli)> {
    let node = Node::own(&[])?;
    let cli = Cli::at(node.addr());
    cli.ok("topic create t -p 2");
    let text: String = (0..lines).map(|i| format!("{i}\n")).collect();
    cli.ok_with("topic produce t -p 0", text.as_bytes());
    Some((node, cli))
}

#[test]
fn topic_alter_sets_unsets_and_refuses_what_the_broker_does_not_know() {
    let Some((_node, cli)) = node_with(0) else { return };
    let value = |key: &str| {
        let described = cli.json("topic describe t");
        let configs = described[0]["configs"].as_array().unwrap().clone();
        configs.into_iter().find(|config| config["name"] == key).unwrap()
    };
    cli.ok("topic alter t --set retention.ms=5000 --append cleanup.policy=compact");
    assert_eq!((&value("retention.ms")["value"], &value("retention.ms")["source"]), (&json!("5000"), &json!("topic")));
    assert_eq!(value("cleanup.policy")["value"], "delete,compact");
    cli.ok("topic alter t --unset retention.ms --subtract cleanup.policy=compact --dry-run");
    assert_eq!(value("retention.ms")["value"], "5000", "a dry run changes nothing");
    cli.ok("topic alter t --unset retention.ms");
    assert_eq!(value("retention.ms")["source"], "default");
    let ran = cli.run("topic alter t --set retention.mss=1");
    assert!(ran.code == 1 && ran.err.contains("retention.ms"), "{}", ran.err);
    assert_eq!(cli.run("topic alter gone --set retention.ms=1").code, 3);
}

#[test]
fn topics_grow_but_never_shrink() {
    let Some((_node, cli)) = node_with(0) else { return };
    let count = || cli.json("topic list t")[0]["partitions"].as_i64().unwrap();
    cli.ok("topic add-partitions t --by 2");
    assert_eq!(count(), 4);
    cli.ok("topic add-partitions t --to 6");
    assert_eq!(count(), 6);
    for line in ["topic add-partitions t --to 6", "topic add-partitions t --to 1"] {
        let ran = cli.run(line);
        assert!(ran.code == 1 && ran.err.contains("only grow"), "{line}: {}", ran.err);
    }
    assert_eq!(cli.run("topic add-partitions gone --by 1").code, 3);
    assert_eq!(count(), 6);
}

/// Goal: who writes and reads much can be seen without measuring it first. Method: writes and reads until the brokers tell.
#[test]
fn traffic_is_shown_by_partition_and_by_broker() {
    let Some((_node, cli)) = node_with(0) else { return };
    let rows = |line: &str| -> Vec<Vec<String>> {
        let cells =
            |row: &str| row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect();
        cli.ok(line).out.lines().skip(1).map(cells).collect()
    };
    let is_quiet = |row: &[String]| row.iter().filter(|cell| *cell == "0 B/s").count() == 2;
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        cli.ok_with("topic produce t -p 1", "x".repeat(100_000).as_bytes());
        cli.ok("topic consume t -e");
        let listed = rows("partition list t --format wide");
        assert!(is_quiet(&listed[0]), "{listed:?}");
        if !listed[1].iter().any(|cell| cell == "0 B/s") {
            break;
        }
        assert!(Instant::now() < deadline, "{listed:?}");
    }
    let brokers = rows("broker list --format wide");
    assert!(brokers[0].iter().all(|cell| cell != "0 B/s"), "{brokers:?}");
    assert!(cli.ok("rebalance plan --goals traffic --out /dev/null").err.contains("nothing is to be moved"));
}

#[test]
fn trim_deletes_what_it_showed_and_nothing_else() {
    let Some((_node, cli)) = node_with(10) else { return };
    let expected = json!([{"topic": "t", "partition": 0, "from": 0, "to": 4, "deleted": 4}]);
    assert_eq!(cli.json("topic trim t:0 --to 4 --dry-run"), expected);
    assert_eq!(cli.ok("topic consume t -e").out.lines().count(), 10, "a dry run deletes nothing");
    assert_eq!(cli.json("topic trim t:0 --to 4"), expected);
    assert_eq!(cli.ok("topic consume t -e -p 0").out, "4\n5\n6\n7\n8\n9\n");
    cli.ok("topic trim t --to 1d");
    assert_eq!(cli.ok("topic consume t -e").out.lines().count(), 6, "nothing is a day old");
    cli.ok("topic trim t --to latest");
    assert_eq!(cli.ok("topic consume t -e").out, "");
    assert_eq!(cli.run("topic trim t:2 --to 4").code, 3);
    assert_eq!(cli.run("topic trim gone --to 4").code, 3);
}

/// Goal: lag in time is the age of the oldest unread record. Method: its bounds, measured around the produce.
#[test]
fn describe_tells_lag_in_records_and_in_time() {
    let before = Instant::now();
    let Some((_node, cli)) = node_with(10) else { return };
    let written = Instant::now();
    cli.ok("topic consume t -G g -c 4");
    let waited_ms = i64::try_from(written.elapsed().as_millis()).unwrap();
    let group = cli.json("group describe g")[0].clone();
    let bound_ms = i64::try_from(before.elapsed().as_millis()).unwrap();
    assert_eq!(group["total_lag"], 6);
    let lag_ms = group["time_lag_ms"].as_i64().unwrap();
    assert!((waited_ms..=bound_ms).contains(&lag_ms), "{lag_ms} is not within {waited_ms}..={bound_ms}");
    let of = |partition: usize| group["partitions"][partition].clone();
    assert_eq!((&of(0)["committed_offset"], &of(0)["lag"]), (&json!(4), &json!(6)));
    assert_eq!((&of(1)["lag"], &of(1)["time_lag_ms"]), (&json!(0), &json!(0)), "nothing is unread there");
    cli.ok("topic consume t -G g -e");
    let group = cli.json("group describe g")[0].clone();
    assert_eq!((&group["total_lag"], &group["time_lag_ms"]), (&json!(0), &json!(0)));
    assert_eq!(cli.run("group describe gone").code, 3);
}

#[test]
fn seek_moves_an_idle_group_to_any_place() {
    let Some((_node, cli)) = node_with(10) else { return };
    cli.ok("topic consume t -G g -c 4");
    let to = |words: &str| {
        let moves = cli.json(&format!("group seek g {words}"));
        let of = |i: usize| (moves[i]["from"].as_i64().unwrap(), moves[i]["to"].as_i64().unwrap());
        of(0)
    };
    assert_eq!(to("--to latest --dry-run"), (4, 10));
    assert_eq!(to("--to earliest"), (4, 0), "the dry run changed nothing");
    assert_eq!(to("--to +3"), (0, 3));
    assert_eq!(to("--to -1"), (3, 2));
    assert_eq!(to("--to 99"), (2, 10), "the log ends there");
    assert_eq!(to("--to 1h"), (10, 0), "everything is younger");
    assert_eq!(to("--to 2999-01-01"), (0, 10), "everything is older");
    assert_eq!(to("--to 7 -t t:0"), (10, 7));
    assert_eq!(cli.ok("topic consume t -G g -e").out, "7\n8\n9\n");
    assert_eq!(cli.run("group seek g --to 1 -t t:2").code, 3);
    assert_eq!(cli.run("group seek g --to 1 -t gone").code, 3);
    assert_eq!(cli.run("group seek gone --to 1").code, 3);
    let moves = cli.json("group seek new --to 5 -t t:0");
    assert_eq!(moves, json!([{"topic": "t", "partition": 0, "from": null, "to": 5, "delta": null}]));
    assert_eq!(cli.ok("topic consume t -G new -e").out, "5\n6\n7\n8\n9\n");
}

/// Goal: offsets move under a living member, which then goes on from there, and its old commits do not undo it.
#[test]
fn seek_refuses_living_members_unless_told_and_then_they_go_on_from_there() {
    let Some((_node, cli)) = node_with(5) else { return };
    let mut member = cli.start("topic consume t -G g");
    let first: Vec<String> = (0..5).map(|_| member.line()).collect();
    assert_eq!(first, ["0", "1", "2", "3", "4"]);
    let ran = cli.run("group seek g --to earliest -t t");
    assert!(ran.code == 1 && ran.err.contains("--live") && ran.err.contains("1 member"), "{}", ran.err);
    let ran = cli.ok("group seek g --to 2 -t t:0 --live");
    assert!(ran.err.contains("fenced 1 member"), "{}", ran.err);
    let again: Vec<String> = (0..3).map(|_| member.line()).collect();
    assert_eq!(again, ["2", "3", "4"]);
    member.signal(rustix::process::Signal::TERM);
    assert_eq!(member.end().code, 0);
    let group = cli.json("group describe g")[0].clone();
    assert_eq!(group["partitions"][0]["committed_offset"], 5, "the member commits on as before");
}

#[test]
fn groups_and_offsets_are_deleted_when_nobody_uses_them() {
    let Some((_node, cli)) = node_with(5) else { return };
    cli.ok("topic consume t -G g -e");
    assert_eq!(cli.run("group offset-delete g -t other").code, 3);
    cli.ok("group offset-delete g -t t:0");
    assert_eq!(cli.ok("topic consume t -G g -e").out.lines().count(), 5, "the group begins anew");
    let mut member = cli.start("topic consume t -G live");
    member.line();
    cli.ok("group seek live --to 3 -t t:0 --live");
    let printed: Vec<String> = (0..5).map(|_| member.line()).collect();
    assert_eq!(printed, ["1", "2", "3", "4", "3"], "it is back");
    let ran = cli.run("group offset-delete live -t t");
    assert!(ran.code == 1 && ran.err.contains("subscribed"), "{}", ran.err);
    assert!(cli.run("group delete live").err.contains("has members"));
    cli.ok("group delete g");
    assert_eq!(cli.run("group describe g").code, 3);
    assert_eq!(cli.run("group delete g").code, 3);
    cli.ok("group delete g --if-exists");
}

#[test]
fn the_cluster_and_its_brokers_describe_themselves() {
    let Some((_node, cli)) = node_with(5) else { return };
    let info = cli.json("cluster info");
    assert_eq!((&info["topics"], &info["partitions"], &info["controller"]), (&json!(1), &json!(2), &json!(1)));
    assert_eq!(cli.json("cluster health")["healthy"], true);
    let broker = cli.json("broker describe 1")[0].clone();
    assert_eq!((&broker["leaders"], &broker["replicas"], &broker["out_of_sync"]), (&json!(2), &json!(2), &json!(0)));
    assert!(broker["log_dirs"][0]["size_bytes"].as_u64().unwrap() > 0);
    let ran = cli.run("broker describe 9");
    assert!(ran.code == 3 && ran.err.contains("there are 1"), "{}", ran.err);
    cli.ok("cluster config set -c log.retention.ms=123456");
    assert_eq!(cli.ok("cluster config get log.retention.ms").out, "123456\n");
    cli.ok("cluster config set --unset log.retention.ms");
    assert_ne!(cli.ok("cluster config get log.retention.ms").out, "123456\n");
    assert_eq!(cli.run("cluster config set -c no.such=1").code, 1);
    assert_eq!(cli.run("cluster config get no.such").code, 3);
    assert_eq!(cli.run("cluster config set -c log.retention.ms=1 --broker 9").code, 3);
}

/// Asks until there is an answer. The bound is not on how often: a fast machine asks oftener.
fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Goal: who comes and who goes is told, with the time it took. Method: a member, a second one, and a kill.
#[test]
fn explain_tells_who_caused_each_rebalance_and_what_moved() {
    let Some(node) = Node::own(&["group.min.session.timeout.ms=100"]) else { return };
    let cli = Cli::at(node.addr());
    cli.ok("topic create t -p 4");
    cli.ok_with("topic produce t -p 0", b"a\nb\n");
    let mut first = cli.start("topic consume t -G g");
    assert_eq!(first.line(), "a");
    let second = cli.start("topic consume t -G g");
    // It has joined when the journal says so.
    let two_members = || {
        let report = cli.json("group explain g");
        let newest = report["rebalances"][0].clone();
        (newest["members"].as_array().unwrap().len() == 2).then_some(newest)
    };
    let newest = until("the second member has joined", two_members);
    let cause = newest["causes"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&newest["moved_count"], &cause["kind"]), (&json!(2), &json!("joined")), "{newest}");
    assert!(newest["barrier_ms"].as_i64().unwrap() >= 0 && newest["assignment_ms"].as_i64().unwrap() >= 0);
    second.signal(rustix::process::Signal::TERM);
    assert_eq!(second.end().code, 0);
    let left = || {
        let newest = cli.json("group explain g -n 1")["rebalances"][0].clone();
        (newest["members"].as_array().unwrap().len() == 1).then_some(newest)
    };
    let newest = until("the second member has left", left);
    assert_eq!(newest["causes"][0]["kind"], "left", "{newest}");
    assert_eq!(newest["causes"][0]["reason"], "the consumer is being closed");
    let text = cli.ok("group explain g --format wide").out;
    assert!(text.contains("because     left: thalweg from ") && text.contains("REBALANCE"), "{text}");
    assert_eq!(cli.run("group explain gone").code, 3);
}

#[test]
fn why_kept_names_the_rule_of_every_segment() {
    let Some(node) = Node::own(&["log.segment.bytes=1048576"]) else { return };
    let cli = Cli::at(node.addr());
    cli.ok("topic create t -c retention.bytes=100000000 -c retention.ms=604800000");
    let line = format!("{}\n", "x".repeat(999));
    cli.ok_with("topic produce t --linger 0", line.repeat(3_000).as_bytes());
    let segments =
        |topic: &str| cli.json(&format!("topic why-kept {topic}"))[0]["segments"].as_array().unwrap().clone();
    let kept = segments("t");
    assert!(kept.len() >= 3, "{kept:?}");
    for segment in &kept {
        assert_eq!((&segment["rule"], &segment["is_held"]), (&json!("retention.ms"), &json!(true)));
        let newest = segment["newest_ms"].as_i64().unwrap();
        assert_eq!(segment["until_ms"].as_i64().unwrap(), newest + 604_800_000);
    }
    assert_eq!(kept.iter().filter(|segment| segment["is_active"] == true).count(), 1);
    // The largest whole segment less is still too much; nothing else has to go.
    cli.ok("topic alter t --set retention.bytes=1500000");
    let kept = segments("t");
    assert_eq!((&kept[0]["rule"], &kept[0]["is_held"]), (&json!("retention.bytes"), &json!(false)));
    cli.ok("topic alter t --set cleanup.policy=compact");
    assert_eq!(segments("t")[0]["rule"], "cleanup.policy");
    cli.ok("topic create empty");
    assert_eq!(segments("empty")[0]["rule"], "empty");
    assert!(cli.ok("topic why-kept t").out.contains("cleanup.policy does not contain delete"));
    assert_eq!(cli.run("topic why-kept gone").code, 3);
}

/// Goal: the rate of reading comes from commits, that of writing from the log, and they give the time until drained.
///
/// Both rates are of the last minute: a machine that took longer than that for a round shows what it should, and the round
/// is done again.
#[test]
fn describe_estimates_when_a_group_has_caught_up() {
    for _ in 0..5 {
        let started = Instant::now();
        let Some((_node, cli)) = node_with(1_000) else { return };
        cli.ok("group seek g --to 0 -t t:0");
        let quiet = cli.json("group describe g")[0].clone();
        cli.ok("group seek g --to 400 -t t:0");
        let group = cli.json("group describe g")[0].clone();
        let text = cli.ok("group describe g").out;
        if started.elapsed().as_secs() > 50 {
            continue;
        }
        assert_eq!(quiet["drained_in_ms"], json!(null), "nobody reads");
        assert!(group["read_rate"].as_f64().unwrap() > 400.0 / 51.0, "{group}");
        assert!((group["write_rate"].as_f64().unwrap() - 1_000.0 / 60.0).abs() < 0.01, "{group}");
        let is_faster = group["read_rate"].as_f64() > group["write_rate"].as_f64();
        assert_eq!(group["drained_in_ms"].as_i64().is_some_and(|ms| ms > 0), is_faster, "{group}");
        assert!(text.contains("/s against "), "{text}");
        cli.ok("group seek g --to latest -t t:0");
        assert_eq!(cli.json("group describe g")[0]["drained_in_ms"], 0);
        return;
    }
    panic!("no round was over within a minute");
}

/// Goal: the figures are of what happened. Method: counts, bytes and times that the command line itself bounds.
#[test]
fn perf_counts_every_record_and_tells_latencies_in_order() {
    let Some((_node, cli)) = node_with(0) else { return };
    let started = Instant::now();
    let ordered = |value: &serde_json::Value| {
        let ms = ["p50", "p90", "p99", "p99.9", "max"].map(|name| value["latency_ms"][name].as_f64().unwrap());
        assert!(ms[0] > 0.0 && ms.is_sorted(), "{value}");
        assert!(ms[4] / 1_000.0 <= started.elapsed().as_secs_f64(), "{value}");
    };
    let produced = cli.json("perf produce p -n 500 -s 100 -z lz4 --keys 7");
    assert_eq!(
        (&produced["records"], &produced["failed"], &produced["bytes"]),
        (&json!(500), &json!(0), &json!(50_000))
    );
    ordered(&produced);
    let consumed = cli.json("perf consume p");
    let keys_bytes = 500 * "key-0".len();
    assert_eq!((&consumed["records"], &consumed["bytes"]), (&json!(500), &json!(50_000 + keys_bytes)));
    let both = cli.json("perf e2e q -n 50 -r 500");
    assert_eq!((&both["records"], &both["failed"]), (&json!(50), &json!(0)));
    assert!(both["seconds"].as_f64().unwrap() >= 49.0 / 500.0, "the rate is kept: {both}");
    ordered(&both);
    let table = cli.ok("perf produce p -n 10").out;
    assert!(table.contains("p99.9") && table.contains("set the pace"), "{table}");
    let ran = cli.run("perf consume t");
    assert!(ran.code == 1 && ran.err.contains("empty"), "{}", ran.err);
    assert_eq!(cli.run("perf consume gone").code, 3);
    assert_eq!(cli.run("perf e2e q -r 0").code, 2);
}

#[test]
fn the_doctor_finds_nothing_wrong_with_a_fresh_node_and_says_what_it_looked_at() {
    let Some((node, cli)) = node_with(1) else { return };
    let found = cli.json("doctor");
    let found = found.as_array().unwrap();
    assert!(found.iter().all(|finding| finding["level"] != "bad"), "{found:?}");
    for part in [node.addr(), "clock agrees", "log directory", "open files", "kind(s) of clients", "has a leader"] {
        assert!(found.iter().any(|finding| finding["what"].as_str().unwrap().contains(part)), "{part}: {found:?}");
    }
    assert_eq!(Cli::nowhere().run("doctor -b 127.0.0.1:1").code, 4);
}

#[test]
fn top_prints_what_is_there_where_nobody_looks_at_a_terminal() {
    let Some((_node, cli)) = node_with(30) else { return };
    cli.ok("topic consume t -G slow -c 10");
    let text = cli.ok("top --interval 1").out;
    let line = |word: &str| text.lines().find(|line| line.contains(word)).unwrap_or_else(|| panic!("{word}: {text}"));
    assert!(line("thalweg").contains("healthy") && line("thalweg").contains("1 broker(s)"));
    assert!(line("slow").contains("Empty") && line("slow").contains("20 "), "{text}");
    assert!(line("│t ").contains("30 "), "{text}");
    assert_eq!(cli.run("top --interval 0").code, 2);
}

#[test]
fn log_dump_gives_json_objects_with_the_records() {
    let Some((mut node, _cli)) = node_with(3) else { return };
    assert_eq!(node.stop(), Some(0));
    let folder = node.data_dir().join("logs/t-0");
    let offline = Cli::nowhere();
    let out = offline.ok(&format!("log dump {} -J -r", folder.display())).out;
    let lines: Vec<serde_json::Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines[0]["file"].as_str().unwrap().ends_with(".log"));
    let batches = &lines[1..];
    let records: Vec<&serde_json::Value> =
        batches.iter().flat_map(|batch| batch["records"].as_array().unwrap()).collect();
    let values: Vec<&str> = records.iter().map(|record| record["value"].as_str().unwrap()).collect();
    assert_eq!(values, ["0", "1", "2"]);
    assert!(batches.iter().all(|batch| batch["valid"] == true));
    assert_eq!(batches.iter().map(|batch| batch["count"].as_i64().unwrap()).sum::<i64>(), 3);
    let epochs = offline.ok(&format!("log dump {} -J", folder.join("leader-epoch-checkpoint").display())).out;
    assert!(epochs.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()), "{epochs}");
    assert_eq!(offline.run("log dump /nowhere.log -J").code, 3);
}
