//! Clients are told addresses that they reach: by listener, by the network that they came in on, by where they come from.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use thalweg_tests::Cli;
use thalweg_tests::cluster::kcat;
use thalweg_tests::netns::Lab;
use thalweg_tests::node::{binary, free_addr};

/// A node that runs. Dropped: killed.
struct Running(Child);

impl Running {
    /// Returns once it is ready.
    fn start(mut command: Command, data: &Path, flags: &str) -> Running {
        command.args(["start", "--log-level", "warn", "--data-dir"]).arg(data).args(flags.split(' '));
        let log = std::fs::File::create(data.with_extension("log")).expect("a log file");
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().expect("the binary starts");
        let mut out = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let mut line = String::new();
        let ready = out.read_line(&mut line).is_ok() && line.contains("ready");
        let said = || std::fs::read_to_string(data.with_extension("log")).unwrap_or_default();
        assert!(ready, "a node with {flags} is not ready:\n{}", said());
        // It says nothing more, but a closed pipe would be another world.
        std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
        Running(child)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Gone already is as good as killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn brokers(mut metadata: Command) -> BTreeSet<String> {
    let output = metadata.stderr(Stdio::null()).output().expect("kcat runs");
    let value: Value = serde_json::from_slice(&output.stdout).expect("kcat writes JSON");
    let names = value["brokers"].as_array().expect("brokers").iter();
    names.map(|broker| broker["name"].as_str().expect("a name").to_owned()).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Goal: each listener tells its own addresses, of all brokers. Method: two brokers with two listeners each, one of which is
/// advertised under a name; kcat and the doctor through both; then a third that tells another's address.
#[test]
fn each_listener_tells_the_addresses_of_its_own_of_every_broker() {
    let dir = TempDir::new().expect("a directory");
    let [rpc, in1, in2, in3, out1, out2, h1, h2, h3] = std::array::from_fn(|_| free_addr());
    let named = |addr: &str| addr.replace("127.0.0.1", "localhost");
    let flags = |inner: &str, outer: &str, http: &str| {
        let told = named(outer);
        format!("--listen internal://{inner},host://{outer} --advertised host://{told} --http {http}")
    };
    let first = format!("{} --coordinator-listen {rpc} --broker-id 1", flags(&in1, &out1, &h1));
    let _one = Running::start(Command::new(binary()), &dir.path().join("1"), &first);
    let second = format!("{} --roles broker --coordinators {rpc} --broker-id 2", flags(&in2, &out2, &h2));
    let _two = Running::start(Command::new(binary()), &dir.path().join("2"), &second);

    for (through, told) in [(&in2, [in1.clone(), in2.clone()]), (&named(&out1), [named(&out1), named(&out2)])] {
        let Some(list) = kcat(&["-L", "-J", "-b", through]) else { return };
        assert_eq!(brokers(list), told.into_iter().collect(), "through {through}");
    }
    let report = Cli::at(&out2).json("doctor listeners");
    assert_eq!(report["you"]["listener"], "host");
    let endpoints = report["endpoints"].as_array().expect("endpoints");
    assert_eq!(endpoints.len(), 4);
    assert!(endpoints.iter().all(|endpoint| endpoint["works"] == true), "{report}");

    let third = format!(
        "--listen internal://{in3} --advertised internal://{in1} --http {h3} --roles broker --coordinators {rpc} --broker-id 3"
    );
    let _three = Running::start(Command::new(binary()), &dir.path().join("3"), &third);
    for (through, part) in [(&in1, "broker 1 answers there"), (&out1, "broker 3 has no listener host")] {
        let ran = Cli::at(through).run("doctor listeners");
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.err.contains(part), "{ran:?}");
    }
}

/// Goal: without any setting a client hears addresses of the network that it came in on, and rules go before that. Method:
/// two brokers in two networks, bound to everything; a client in each network, and one that a rule is for.
#[test]
fn a_client_hears_of_every_broker_in_its_own_network() {
    let Some(mut lab) = Lab::new(&["10.231.1", "10.231.2"]) else { return };
    lab.machine("b1", &[(0, "10.231.1.1"), (1, "10.231.2.1")]);
    lab.machine("b2", &[(0, "10.231.1.2"), (1, "10.231.2.2")]);
    lab.machine("c1", &[(0, "10.231.1.8")]);
    lab.machine("c2", &[(1, "10.231.2.8")]);
    lab.machine("c3", &[(1, "10.231.2.9")]);
    let dir = TempDir::new().expect("a directory");
    let rule = |last| format!("--listen 0.0.0.0:9092 --advertised PLAINTEXT@10.231.2.9/32://10.231.2.{last}:9092");
    let first = format!("{} --coordinator-listen 0.0.0.0:9093 --broker-id 1", rule(1));
    let _one = Running::start(lab.on("b1", binary()), &dir.path().join("1"), &first);
    let second = "--listen 0.0.0.0:9092 --advertised PLAINTEXT@10.231.2.9/32://ruled.example:1 --roles broker \
                  --coordinators 10.231.1.1:9093 --broker-id 2";
    let _two = Running::start(lab.on("b2", binary()), &dir.path().join("2"), second);

    if kcat(&["-V"]).is_none() {
        return;
    }
    let list = |machine: &str, broker: &str| {
        let mut command = lab.on(machine, "kcat");
        command.args(["-L", "-J", "-b", broker]);
        brokers(command)
    };
    assert_eq!(list("c1", "10.231.1.2:9092"), set(&["10.231.1.1:9092", "10.231.1.2:9092"]));
    assert_eq!(list("c2", "10.231.2.1:9092"), set(&["10.231.2.1:9092", "10.231.2.2:9092"]));
    assert_eq!(list("c3", "10.231.2.1:9092"), set(&["10.231.2.1:9092", "ruled.example:1"]), "told by the other broker");
    assert_eq!(list("c3", "10.231.2.2:9092"), set(&["10.231.2.1:9092", "ruled.example:1"]), "told by itself");
    assert_eq!(list("b1", "127.0.0.1:9092"), set(&["127.0.0.1:9092", "10.231.1.2:9092"]), "on the machine itself");

    // Followers reach their leader whatever clients are told, so a topic on both is written from either network.
    let mut write = lab.on("c2", binary());
    write.args(["topic", "create", "t", "-p", "4", "-r", "2", "-b", "10.231.2.1:9092"]);
    assert!(write.output().expect("it runs").status.success());
    let mut write = lab.on("c1", "sh");
    let command = "seq 1000 | kcat -P -t t -b 10.231.1.1:9092 -X acks=all";
    assert!(write.args(["-c", command]).stderr(Stdio::null()).status().expect("sh runs").success());
    let mut read = lab.on("c2", "kcat");
    let read = read.args(["-C", "-t", "t", "-o", "beginning", "-e", "-q", "-b", "10.231.2.2:9092"]);
    assert_eq!(read.output().expect("kcat runs").stdout.split(|byte| *byte == b'\n').count(), 1001);
}
