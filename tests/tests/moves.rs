//! Partitions are moved between brokers as processes, while an unmodified client writes and nodes are killed.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use thalweg_tests::calls::create_replicated_topic;
use thalweg_tests::cli::Cli;
use thalweg_tests::{Cluster, Numbers, unique};

/// Partition 0 as `thalweg partition list` shows it.
fn listed(cli: &Cli, topic: &str) -> Value {
    cli.json(&format!("partition list {topic}"))[0].clone()
}

fn ids(value: &Value) -> Vec<i64> {
    value.as_array().expect("a list").iter().map(|id| id.as_i64().expect("a number")).collect()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "{what} does not come about");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Goal: a move ends by itself, and nothing is lost, whoever dies in the middle of it. Method: the broker that the partition
/// goes to is dead when the move begins, so that the coordinator's leader and the partition's leader, which is to lose its
/// replica, are certainly killed in the middle; compare what a client wrote with what is there and with every replica's bytes.
#[test]
fn a_move_ends_by_itself_when_both_leaders_and_the_target_die_in_the_middle() {
    let properties = ["broker.session.timeout.ms = 3000", "broker.heartbeat.interval.ms = 300"];
    let mut cluster = Cluster::start_with(3, 4, &properties);
    let cli = Cli::at(&cluster.addrs());
    let topic = unique("t");
    let created = create_replicated_topic(&mut cluster.conn(), &topic, 1, 3, &[("min.insync.replicas", "2")]);
    assert_eq!(created.error_code, 0, "{:?}", created.error_message);
    cluster.until_in_sync(&topic, 3);
    let Some(mut numbers) = Numbers::start(&cluster.addrs(), &topic) else { return };
    numbers.write_some();

    let origin = ids(&listed(&cli, &topic)["replicas"]);
    let newcomer = (1..=4).find(|id| !origin.contains(id)).expect("one of four holds nothing");
    let (gone, target) = (origin[0], vec![newcomer, origin[1], origin[2]]);
    let position = |id: i64| usize::try_from(id - 1).expect("ids start at 1");
    cluster.kill(position(newcomer));
    let to: Vec<String> = target.iter().map(ToString::to_string).collect();
    cli.ok(&format!("partition move {topic}:0 --to {} --no-wait", to.join(",")));
    numbers.write_some();
    let moving = listed(&cli, &topic);
    assert_eq!((ids(&moving["adding"]), ids(&moving["removing"])), (vec![newcomer], vec![gone]));

    let coordinator = cluster.kill_leading_coordinator();
    cluster.kill(position(gone));
    numbers.write_some();
    cluster.restart(position(newcomer));
    until("the move's end", || {
        let now = listed(&cli, &topic);
        ids(&now["replicas"]) == target && ids(&now["isr"]).len() == 3 && ids(&now["adding"]).is_empty()
    });
    numbers.write_some();
    cluster.restart_coordinator(coordinator);
    assert!(cluster.has_log(position(gone), &topic), "it was dead when its replica was moved away");
    cluster.restart(position(gone));
    until("the end of what was moved away", || !cluster.has_log(position(gone), &topic));

    // Back, with everybody alive: what was deleted is copied anew.
    let to: Vec<String> = origin.iter().map(ToString::to_string).collect();
    cli.ok(&format!("partition move {topic}:0 --to {}", to.join(",")));
    cli.ok(&format!("partition transfer-leader {topic}:0"));
    assert_eq!(listed(&cli, &topic)["leader"], gone);
    until("the end of the newcomer's log", || !cluster.has_log(position(newcomer), &topic));
    numbers.finish();
    for broker in 0..4 {
        assert_eq!(cluster.stop(broker), Some(0));
    }
    let first = cluster.segment(position(origin[0]), &topic);
    assert!(!first.is_empty());
    assert!(origin.iter().all(|id| cluster.segment(position(*id), &topic) == first), "the replicas differ");
}

/// Goal: what cannot be is refused with the reason, and changes nothing.
#[test]
fn impossible_moves_are_refused_with_the_reason() {
    let cluster = Cluster::start(2, &[]);
    let cli = Cli::at(&cluster.addrs());
    cli.ok("topic create t -r 2 -c min.insync.replicas=2");
    cluster.until_in_sync("t", 2);
    let before = listed(&cli, "t");
    for (line, reason) in [
        ("partition move t:0 --to 1,7", "broker 7 is not registered"),
        ("partition move t:0 --to 1,1", "more than once"),
        ("partition move t:0 --to 2", "min.insync.replicas is 2"),
        ("partition move t --cancel", "is being moved"),
        ("partition transfer-leader t:0 --to 9", "not in sync"),
        ("partition move t:4 --to 1,2", "partitions 0 to 0"),
    ] {
        let ran = cli.run(line);
        assert_ne!(ran.code, 0, "{line}");
        assert_eq!(ran.err.matches(reason).count(), 1, "{line}: {}", ran.err);
    }
    assert_eq!(listed(&cli, "t"), before);
}

/// Goal: a plan that somebody edited is refused as a whole, with the reason, and so is what would leave no broker. Method: each
/// plan is one that could be carried out but for one field.
#[test]
fn plans_edited_into_nonsense_and_the_last_brokers_end_are_refused_with_the_reason() {
    let cluster = Cluster::start(3, &[]);
    let cli = Cli::at(&cluster.addrs());
    cli.ok("topic create t -r 2 -c min.insync.replicas=2");
    cluster.until_in_sync("t", 2);
    let before = listed(&cli, "t");
    let free = (1..=3).find(|id| !ids(&before["replicas"]).contains(id)).expect("one of three holds nothing");
    let kept = ids(&before["replicas"])[0];
    let planned = cli.json(&format!("rebalance plan --grow-to 3 --out {}", cli.home().join("whole.json").display()));
    let with = |field: &str, value: Value| {
        let mut plan = planned.clone();
        let whole = field != "to" && field != "partition" && field != "topic" && field != "bytes";
        let place = if whole { &mut plan } else { &mut plan["steps"][0] };
        place[field] = value;
        plan
    };
    let step = planned["steps"][0].clone();
    assert_eq!(ids(&step["to"]).len(), 3, "{planned}");
    let file = cli.home().join("edited.json");
    let apply = |plan: &str| {
        std::fs::write(&file, plan).expect("written");
        cli.run(&format!("rebalance apply {}", file.display()))
    };
    for (plan, code, reason) in [
        (with("to", json!([kept, 9])), 1, "broker 9, which it is to go to, is not alive"),
        (with("to", json!([kept, -1])), 1, "broker -1, which it is to go to, is not alive"),
        (with("to", json!([kept, kept])), 1, "more than once"),
        (with("to", json!([])), 1, "at least one replica"),
        (with("to", json!([kept])), 1, "min.insync.replicas is 2"),
        (with("partition", json!(7)), 1, "has no such partition"),
        (with("topic", json!("u")), 1, "make a new plan"),
        (with("bytes", json!(-1)), 2, "is no plan"),
        (with("steps", json!([step, step])), 1, "named more than once"),
        (with("version", json!(9)), 2, "make it anew"),
        (with("cluster_id", json!("other")), 2, "name the other with -b"),
        (with("throttle", json!(1)), 2, "unknown field"),
    ] {
        let ran = apply(&plan.to_string());
        assert!(ran.code == code && ran.err.contains(reason), "{plan}: {ran:?}");
    }
    assert_eq!(apply(&planned.to_string()[1..]).code, 2, "half a file");

    cli.ok(&format!("broker cordon {free}"));
    for line in [format!("partition move t:0 --to {kept},{free}"), format!("rebalance apply {}", file.display())] {
        std::fs::write(&file, planned.to_string()).expect("written");
        let ran = cli.run(&line);
        assert!(ran.code == 1 && ran.err.contains(&format!("`thalweg broker uncordon {free}`")), "{line}: {ran:?}");
    }
    let others: Vec<i64> = (1..=3).filter(|id| *id != free).collect();
    assert_eq!(cli.run(&format!("broker drain {}", others[0])).code, 1, "nobody can take what it has");
    let last = cli.run(&format!("broker drain {}", others[1]));
    assert!(last.code == 1 && last.err.contains("the last that takes replicas"), "{last:?}");
    assert_eq!(listed(&cli, "t"), before, "none of that has changed anything");
}

/// Partitions of these topics with a replica on each broker, by its id.
fn shares(cli: &Cli, topics: &str) -> std::collections::BTreeMap<i64, usize> {
    let listed = cli.json(&format!("partition list {topics}"));
    let mut shares: std::collections::BTreeMap<i64, usize> = (1..=5).map(|id| (id, 0)).collect();
    for partition in listed.as_array().expect("a list") {
        ids(&partition["replicas"]).into_iter().for_each(|id| *shares.entry(id).or_default() += 1);
    }
    shares
}

/// Goal: 3 brokers to 5 and back to 3 while a client writes, by `rebalance` and `drain` alone, and a plan ends by itself when the
/// coordinators' leader and a broker die in the middle of it. Method: brokers 4 and 5 are cordoned until the topics are there; 5 is
/// paused when the plan begins and then killed, so that both certainly die before its end.
#[test]
fn a_cluster_grows_and_shrinks_by_plans_that_end_by_themselves() {
    let properties = ["broker.session.timeout.ms = 3000", "broker.heartbeat.interval.ms = 300"];
    let mut cluster = Cluster::start_with(3, 5, &properties);
    let cli = Cli::at(&cluster.addrs());
    cli.ok("broker cordon 4");
    cli.ok("broker cordon 5");
    let (topic, other) = (unique("t"), unique("u"));
    for name in [&topic, &other] {
        cli.ok(&format!("topic create {name} -p 5 -r 3 -c min.insync.replicas=2"));
    }
    cluster.until_in_sync(&topic, 3);
    let topics = format!("{topic} {other}");
    assert_eq!(shares(&cli, &topics), (1..=5).map(|id| (id, if id <= 3 { 10 } else { 0 })).collect());
    let Some(mut numbers) = Numbers::start(&cluster.addrs(), &topic) else { return };
    numbers.write_some();

    let file = cli.home().join("plan.json");
    let file = file.to_str().expect("a path");
    cli.ok("broker uncordon 4");
    cli.ok("broker uncordon 5");
    let planned = cli.ok(&format!("rebalance plan --out {file}"));
    for said in ["brokers hold unequally many replicas", "10 -> 6", "min-ISR risk: none", "rebalance apply"] {
        assert!(planned.out.contains(said), "{said}: {}", planned.out);
    }
    // The world changes under it.
    let text = std::fs::read_to_string(file).expect("the plan");
    let plan: Value = serde_json::from_str(&text).expect("JSON");
    let step = &plan["steps"][0];
    let turned: Vec<String> = ids(&step["from"]).iter().rev().map(ToString::to_string).collect();
    let named = format!("{}:{}", step["topic"].as_str().expect("a name"), step["partition"]);
    cli.ok(&format!("partition move {named} --to {}", turned.join(",")));
    let changed = cli.run(&format!("rebalance apply {file}"));
    assert!(changed.code == 1 && changed.err.contains("make a new plan"), "{changed:?}");
    std::fs::write(file, "{\"version\": 1, \"steps\": 7}").expect("written");
    assert_eq!(cli.run(&format!("rebalance apply {file}")).code, 2, "edited into nonsense");

    cli.ok(&format!("rebalance plan --out {file}"));
    cluster.pause(4);
    cli.ok(&format!("rebalance apply {file} --no-wait"));
    cluster.kill(4);
    let twice = cli.run(&format!("rebalance apply {file}"));
    assert!(twice.code == 1 && twice.err.contains("is under way"), "two plans at once: {twice:?}");
    let coordinator = cluster.kill_leading_coordinator();
    numbers.write_some();
    assert_ne!(cli.json("rebalance status")["plan"], Value::Null, "5 is dead, so it cannot have ended");
    cluster.restart(4);
    until("the plan's end", || cli.json("rebalance status")["plan"] == Value::Null);
    cluster.restart_coordinator(coordinator);
    assert_eq!(shares(&cli, &topics), (1..=5).map(|id| (id, 6)).collect(), "as planned");
    let again = cli.ok(&format!("rebalance plan --out {file} --goals racks,replicas,leaders"));
    assert!(again.err.contains("nothing is to be moved"), "{again:?}");
    numbers.write_some();

    for id in [4, 5] {
        let drained = cli.ok(&format!("broker drain {id}"));
        assert!(drained.err.contains("holds nothing"), "{drained:?}");
    }
    assert_eq!(shares(&cli, &topics), (1..=5).map(|id| (id, if id <= 3 { 10 } else { 0 })).collect());
    let stuck = cli.run("broker drain 3");
    assert!(
        stuck.code == 1 && stuck.err.contains("cannot leave broker 3") && stuck.err.contains("is not empty"),
        "{stuck:?}"
    );
    cli.ok("broker undrain 3");
    assert!(cli.run("broker remove 5").err.contains("stop it first"));
    assert_eq!(cluster.stop(4), Some(0));
    cli.ok("broker remove 5");
    assert_eq!(cli.run("broker drain 5").code, 3, "it is forgotten");
    numbers.finish();
}
