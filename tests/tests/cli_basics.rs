//! What holds for every verb: where it connects, how it prints, how it ends.

use std::net::TcpListener;

use rustix::process::Signal;
use thalweg_tests::{Cli, Node};

#[test]
fn a_wrong_word_or_flag_names_the_near_one_and_exits_with_2() {
    let cli = Cli::nowhere();
    for (line, near) in [
        ("topik list", "topic"),
        ("topic lst", "list"),
        ("topic list --fromat json", "--format"),
        ("group seek g --too latest", "--to"),
        ("topic list --format jsn", "json"),
    ] {
        let ran = cli.run(line);
        assert_eq!(ran.code, 2, "{line}");
        assert!(ran.err.contains(near) && ran.out.is_empty(), "{line}: {}", ran.err);
    }
}

#[test]
fn an_unreachable_broker_is_told_with_address_time_and_remedy() {
    let cli = Cli::nowhere();
    // Nothing listens where somebody just stopped listening.
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ran = cli.run(&format!("topic list -b {gone}"));
    assert_eq!(ran.code, 4);
    for part in [gone.to_string().as_str(), "tried for ", "nothing listens", "thalweg dev"] {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
    // One that accepts and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let ran = cli.run(&format!("group list --timeout 1 -b {address}"));
    assert_eq!(ran.code, 4);
    assert!(ran.err.contains(&address.to_string()) && ran.err.contains("no answer"), "{}", ran.err);
}

/// Goal: a profile is what verbs use, until something nearer to the hand says otherwise.
#[test]
fn a_profile_is_used_from_its_creation_to_its_end() {
    let Some(node) = Node::own(&[]) else { return };
    let cli = Cli::nowhere();
    cli.ok(&format!("profile create here -b {} --timeout 7", node.addr()));
    cli.ok("topic create by-profile");
    assert!(cli.ok("topic list").out.contains("by-profile"));
    cli.ok("profile create dead -b 127.0.0.1:1");
    let ran = cli.run("topic list");
    assert_eq!(ran.code, 4, "the newest profile is in use: {}", ran.err);
    assert!(ran.err.contains("profile dead"), "{}", ran.err);
    assert!(cli.ok("topic list --profile here").out.contains("by-profile"));
    cli.ok("profile use here");
    let all = cli.json("profile list");
    assert_eq!(all[1]["profile"], "here");
    assert_eq!((&all[0]["current"], &all[1]["current"]), (&false.into(), &true.into()));
    assert_eq!(cli.json("profile show")["timeout_s"], 7);
    cli.ok("profile delete here");
    assert_eq!(cli.run("profile show").code, 3, "none is in use");
    for line in ["profile use here", "profile delete here", "profile show here", "topic list --profile here"] {
        let ran = cli.run(line);
        assert_eq!(ran.code, 3, "{line}");
        assert!(ran.err.contains("there are dead"), "{line}: {}", ran.err);
    }
    assert_eq!(cli.run("profile create dead -b a:1").code, 1, "a name is taken once");
    assert_eq!(cli.run("profile create a/b -b a:1").code, 2);
    let file = cli.home().join(".config/thalweg/profiles.toml");
    std::fs::write(&file, "currant = 'x'").unwrap();
    let ran = cli.run("profile list");
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("currant") && ran.err.contains("profiles.toml"), "{}", ran.err);
}

#[test]
fn every_list_and_description_comes_in_four_formats() {
    let Some(node) = Node::own(&[]) else { return };
    let cli = Cli::at(node.addr());
    cli.ok_with("topic produce t", b"1\n2\n");
    cli.ok("topic consume t -G g -e");
    for line in [
        "topic list",
        "topic describe t",
        "group list",
        "group describe g",
        "broker list",
        "broker describe 1",
        "cluster info",
        "cluster health",
        "cluster config list",
        "group seek g --to earliest --dry-run",
        "topic trim t --to earliest --dry-run",
    ] {
        let value = cli.json(line);
        assert!(value.is_array() || value.is_object(), "{line}: {value}");
        let yaml = cli.ok(&format!("{line} --format yaml")).out;
        assert!(yaml.starts_with("- ") || yaml.contains(": "), "{line}: {yaml}");
        let table = cli.ok(line).out;
        let wide = cli.ok(&format!("{line} --format wide")).out;
        assert!(table.lines().count() > 1 && wide.len() >= table.len(), "{line}: {table}{wide}");
    }
}

#[test]
fn a_reader_that_goes_away_ends_a_verb_quietly() {
    let Some(node) = Node::own(&[]) else { return };
    let cli = Cli::at(node.addr());
    let many: String = (0..200_000).map(|i| format!("{i}\n")).collect();
    cli.ok_with("topic produce t", many.as_bytes());
    let mut consume = cli.start("topic consume t -e");
    assert_eq!(consume.line(), "0");
    // More than a pipe holds is still to come.
    let ran = consume.end_unread();
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
}

/// Goal: Ctrl-C loses nothing that was handed over. Method: three lines, stdin stays open, SIGINT.
#[test]
fn ctrl_c_during_produce_flushes_and_says_how_many_were_acknowledged() {
    let Some(node) = Node::own(&[]) else { return };
    let cli = Cli::at(node.addr());
    cli.ok("topic create t");
    let mut reader = cli.start("topic consume t -o beginning -c 3");
    let mut produce = cli.start("topic produce t");
    produce.feed(b"a\nb\nc\n");
    // Once they are readable they were certainly handed over, and a fourth line is only begun.
    assert_eq!([reader.line(), reader.line(), reader.line()], ["a", "b", "c"]);
    produce.feed(b"d");
    produce.signal(Signal::INT);
    let ran = produce.end();
    assert_eq!(ran.code, 130, "{}", ran.err);
    assert!(ran.err.contains("3 record(s) acknowledged"), "{}", ran.err);
}

#[test]
fn completions_know_every_verb() {
    let cli = Cli::nowhere();
    for shell in ["bash", "zsh", "fish"] {
        let script = cli.ok(&format!("completion {shell}")).out;
        for word in ["topic", "group", "seek", "add-partitions", "bootstrap-server"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    assert_eq!(cli.run("completion tcsh").code, 2);
}
