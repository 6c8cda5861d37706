//! Machines become nodes of a cluster with a token, and the cluster outlives its first node.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use thalweg_tests::cli::{Ran, Running};
use thalweg_tests::node::free_addr;
use thalweg_tests::{Cli, Numbers};

/// One node, started as a person would.
struct Machine {
    /// `None` while it does not run.
    running: Option<Running>,
    data_dir: PathBuf,
    kafka: String,
    coordinator: String,
    http: String,
}

impl Machine {
    fn new(folder: &Path, name: &str) -> Machine {
        let (kafka, coordinator, http) = (free_addr(), free_addr(), free_addr());
        Machine { running: None, data_dir: folder.join(name), kafka, coordinator, http }
    }

    /// `more`: further words of the command line.
    fn start(&mut self, more: &str) {
        self.begin(more);
        self.until_ready();
    }

    fn begin(&mut self, more: &str) {
        self.running = Some(Cli::nowhere().start(&self.line(more)));
    }

    fn until_ready(&mut self) {
        let mut running = self.running.take().expect("it was started");
        let first = running.line();
        if !first.contains("ready") {
            panic!("it is not ready: {:?}", running.end());
        }
        self.running = Some(running);
    }

    /// Why it does not start.
    fn refused(&self, more: &str) -> String {
        let Ran { code, err, .. } = Cli::nowhere().run(&self.line(more));
        assert_eq!(code, 1, "{err}");
        err
    }

    fn line(&self, more: &str) -> String {
        let Machine { kafka, coordinator, http, .. } = self;
        let data_dir = self.data_dir.display();
        let listens = format!("--listen {kafka} --coordinator-listen {coordinator} --http {http}");
        let settings = "--set broker.session.timeout.ms=3000 --set broker.heartbeat.interval.ms=300";
        // What it logs is not read while it runs.
        format!("start --data-dir {data_dir} {listens} --log-level warn {settings} {more}").trim_end().to_owned()
    }

    fn signal(&mut self, signal: Signal) -> Option<Ran> {
        let running = self.running.take().expect("it runs");
        running.signal(signal);
        // Ended by a signal it has no code to tell.
        if signal == Signal::KILL { None } else { Some(running.end()) }
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(90);
    while !holds() {
        assert!(Instant::now() < deadline, "{what} does not come about");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn voters(cli: &Cli) -> usize {
    let listed = cli.json("coordinator list");
    let nodes = listed["coordinators"].as_array().expect("a list");
    nodes.iter().filter(|node| node["voter"] == true).count()
}

fn in_sync(cli: &Cli, topic: &str) -> usize {
    let listed: Value = cli.json(&format!("partition list {topic}"));
    listed[0]["isr"].as_array().map_or(0, Vec::len)
}

/// Goal: a person starts one node, makes a token, starts two more with it, and may then lose any node. Method: an unmodified
/// client writes from the first moment; the topic gets its replicas as brokers come; the first node is killed when three
/// coordinators vote; compare what was acknowledged with what is there. A restart needs no token.
#[test]
fn a_cluster_grows_from_one_node_by_tokens_and_outlives_that_node() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let [mut first, mut second, mut third] = ["1", "2", "3"].map(|name| Machine::new(folder.path(), name));
    let brokers = [&first, &second, &third].map(|node| node.kafka.clone()).join(",");
    first.start("");
    let cli = Cli::at(&brokers);
    cli.ok("topic create t --partitions 1");
    assert_eq!(in_sync(&cli, "t"), 1, "there is one broker");
    let Some(mut numbers) = Numbers::start(&brokers, "t") else { return };
    numbers.write_some();

    let nowhere = Cli::nowhere();
    let token = nowhere.ok(&format!("cluster token create --coordinators {}", first.coordinator)).out;
    let join = format!("--join {}", first.coordinator);
    second.start(&format!("{join} --token {}", token.trim()));
    let seen = Cli::at(&second.kafka).json("cluster info");
    assert_eq!(seen["brokers"].as_array().map(Vec::len), Some(2), "a client of the second sees both at once: {seen}");
    // It waits for its token, which somebody else puts there.
    let file = folder.path().join("token");
    third.begin(&format!("{join} --token-file {}", file.display()));
    Cli::at(&second.kafka).ok(&format!("cluster token create --out {}", file.display()));
    third.until_ready();
    // Any broker says who coordinates, and whichever coordinator is asked who leads.
    let through = Cli::at(&third.kafka);
    let tokens = through.json("cluster token list");
    let joined: Vec<_> = tokens.as_array().expect("a list").iter().map(|token| &token["joined"]).collect();
    assert_eq!(joined, [1, 1]);
    until("three voters", || voters(&through) == 3);
    let of_a_follower = nowhere.json(&format!("coordinator list --coordinators {}", third.coordinator));
    assert_eq!(of_a_follower, through.json("coordinator list"));
    numbers.write_some();
    until("three replicas", || in_sync(&cli, "t") == 3);
    numbers.write_some();

    first.signal(Signal::KILL);
    numbers.write_some();
    until("the two that are left", || in_sync(&cli, "t") == 2);
    assert_eq!(third.signal(Signal::TERM).map(|ran| ran.code), Some(0));
    third.start("");
    until("the third's return", || in_sync(&cli, "t") == 2);
    numbers.finish();
    let upgrade = Cli::at(&second.kafka).json("cluster upgrade status");
    assert!(upgrade["nodes"].as_array().is_some_and(|nodes| nodes.len() == 6), "{upgrade}");
}

/// Each with its reason and the way out, and none of them is part of anything afterwards.
#[test]
fn a_machine_that_may_not_join_is_told_why_and_what_to_do() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let [mut first, mut other, newcomer] = ["first", "other", "new"].map(|name| Machine::new(folder.path(), name));
    first.start("");
    other.start("");
    let nowhere = Cli::nowhere();
    let make = |node: &Machine| {
        let ran = nowhere.ok(&format!("cluster token create --expires 30m --coordinators {}", node.coordinator));
        ran.out.trim().to_owned()
    };
    let (token, foreign, revoked) = (make(&first), make(&other), make(&first));
    let id = revoked.split('.').nth(2).expect("a token has five parts");
    nowhere.ok(&format!("cluster token revoke {id} --coordinators {}", first.coordinator));
    let to_first = format!("--join {}", first.coordinator);
    for (words, reason) in [
        (to_first.clone(), "thalweg cluster token create"),
        (format!("{to_first} --token {}", &token[..token.len() - 2]), "garbled"),
        (format!("{to_first} --token {foreign}"), "name a node of that cluster with --join"),
        (format!("{to_first} --token {revoked}"), "was revoked"),
        (format!("{to_first} --token {token} --broker-id 7"), "given its numbers"),
        (format!("--token {token}"), "--join HOST"),
    ] {
        let said = newcomer.refused(&words);
        assert!(said.contains(reason), "{words}: {said}");
    }
    // A node of another cluster is not made one of this.
    other.signal(Signal::TERM);
    let said = other.refused(&format!("{to_first} --token {token}"));
    assert!(said.contains("data of a node already") && said.contains("an empty directory"), "{said}");
    other.start("");

    let refused = nowhere.run(&format!("cluster token create --expires 90d --coordinators {}", first.coordinator));
    assert!(refused.code == 1 && refused.err.contains("30 days"), "{refused:?}");
    let refused = nowhere.run(&format!("cluster token revoke {id} --coordinators {}", first.coordinator));
    assert!(refused.code == 1 && refused.err.contains("no token"), "{refused:?}");
    let cli = Cli::at(&first.kafka);
    for (line, reason) in [
        ("cluster config set coordinators 4", "1 or 3 or 5"),
        ("cluster config set coordinators 3 --broker 1", "the cluster's"),
    ] {
        let refused = cli.run(line);
        assert!(refused.code != 0 && refused.err.contains(reason), "{line}: {refused:?}");
    }
    let info = cli.json("cluster info");
    assert_eq!(info["brokers"].as_array().map(Vec::len), Some(1), "{info}");

    // Whoever asks in vain hears whom it asked, and what to do.
    let nobody = free_addr();
    let in_vain = cli.run(&format!("coordinator list --coordinators {nobody}"));
    assert!(in_vain.code == 4 && in_vain.err.contains(&nobody) && in_vain.err.contains("(-b)"), "{in_vain:?}");
    let kafka = Cli::at(&nobody).run("cluster token list");
    assert!(kafka.code == 4 && kafka.err.contains(&nobody) && kafka.err.contains("with -b"), "{kafka:?}");
}
