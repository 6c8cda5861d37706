//! The examples of the client library do what they say, as programs, one after the other.

use std::env;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use thalweg_tests::{target, unique};

/// Runs an example against `broker` with `input` as its stdin, and gives what it printed.
fn example(name: &str, broker: &str, arguments: &[&str], input: &str) -> String {
    let test = env::current_exe().expect("a test has a path");
    let program =
        test.parent().and_then(Path::parent).expect("tests lie in target/<profile>/deps").join("examples").join(name);
    let mut child = Command::new(&program)
        .arg(broker)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}; `cargo build -p thalweg-client --examples`", program.display()));
    child.stdin.take().expect("stdin is piped").write_all(input.as_bytes()).expect("the example reads");
    let output = child.wait_with_output().expect("it was started here");
    assert!(output.status.success(), "{name}: {}", output.status);
    String::from_utf8(output.stdout).expect("examples print text")
}

/// Goal: what one example writes, another reads once and its group keeps. Method: numbers and their sum.
#[test]
fn lines_written_by_one_example_are_worked_on_once_by_a_group_of_another() {
    let target = target();
    let (topic, group) = (unique("lines"), unique("workers"));
    let lines: String = (1..=1000).map(|n| format!("{n}\n")).collect();
    let written = example("write_lines", target.addr(), &[&topic], &lines);
    let count: u64 = written
        .lines()
        .map(|line| line.split_whitespace().rev().nth(1).and_then(|word| word.parse::<u64>().ok()).expect("a count"))
        .sum();
    assert_eq!(count, 1000, "{written}");
    let worked = example("work_in_group", target.addr(), &[&topic, &group], "");
    assert!(worked.ends_with("1000 records, sum 500500\n") && worked.contains("Assigned"), "{worked}");
    let again = example("work_in_group", target.addr(), &[&topic, &group], "");
    assert!(again.ends_with("0 records, sum 0\n"), "{again}");
}

#[test]
fn a_topic_is_looked_after_from_its_creation_to_its_end() {
    let target = target();
    let topic = unique("measurements");
    let told = example("look_after_topic", target.addr(), &[&topic], "");
    let expected = format!(
        "created with 2 partitions\nretention.ms is 3600000\nthe first record of minute 7 or later has offset 7\n\
         {topic}-readers goes on at 4\nthe log now starts at 5\ndeleted\n"
    );
    assert_eq!(told, expected);
}
