//! `thalweg export`: each record of the range in one file, whatever happens to the exporter.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use kafka_protocol::messages::{OffsetCommitRequest, OffsetFetchRequest};
use kafka_protocol::protocol::StrBytes;
use rustix::process::Signal;
use serde_json::Value;
use thalweg_tests::calls::{group_id, text, topic_name};
use thalweg_tests::{Cli, Conn, Node};

/// A node, and a topic of 3 partitions with as many records in each.
fn node_with(each: usize) -> Option<(Node, Cli)> {
    let node = Node::own(&[])?;
    let cli = Cli::at(node.addr());
    cli.ok("topic create t -p 3");
    produce(&cli, 0, each);
    Some((node, cli))
}

fn produce(cli: &Cli, from: usize, each: usize) {
    for partition in 0..3 {
        let lines: String = (from..from + each).map(|i| format!("k{i}:value {i} of {partition}\n")).collect();
        cli.ok_with(&format!("topic produce t -K : -p {partition}"), lines.as_bytes());
    }
}

/// The records in a folder's files, by partition and in the order of their names; the names must follow each other.
fn exported(dir: &Path) -> BTreeMap<i64, Vec<Value>> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let mut records: BTreeMap<i64, Vec<Value>> = BTreeMap::new();
    let mut ends: BTreeMap<i64, i64> = BTreeMap::new();
    for name in names {
        let [_, partition, first, last] = name.trim_end_matches(".ndjson").split('-').collect::<Vec<_>>()[..] else {
            panic!("a file of another kind: {name}");
        };
        let number = |text: &str| text.parse::<i64>().unwrap();
        let end = ends.entry(number(partition)).or_insert(number(first));
        assert_eq!(*end, number(first), "{name} does not follow the one before");
        *end = number(last) + 1;
        let lines = fs::read_to_string(dir.join(&name)).unwrap();
        let read: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let offset = |record: Option<&Value>| record.unwrap()["offset"].as_i64().unwrap();
        assert_eq!((offset(read.first()), offset(read.last())), (number(first), number(last)), "{name}");
        records.entry(number(partition)).or_default().extend(read);
    }
    records
}

fn assert_whole(dir: &Path, each: usize) {
    let records = exported(dir);
    assert_eq!(records.keys().copied().collect::<Vec<_>>(), [0, 1, 2]);
    for (partition, records) in records {
        assert_eq!(records.len(), each, "partition {partition}");
        for (i, record) in records.iter().enumerate() {
            assert_eq!(record["offset"], i, "partition {partition}");
            assert_eq!(record["payload"], format!("value {i} of {partition}"));
            assert_eq!(record["key"], format!("k{i}"));
        }
    }
}

/// Goal: a killed exporter loses and doubles nothing. Method: SIGKILL after some files, whatever it does just then, until a
/// run ends by itself; more records come meanwhile and belong to the next range.
#[test]
fn an_export_that_is_killed_again_and_again_has_each_record_once() {
    let Some((_node, cli)) = node_with(4_000) else { return };
    let dir = cli.home().join("out");
    let line = format!("export t -G load --dir {} --format json --max-file-bytes 20000 --parallel 2", dir.display());
    for files in [1, 2, 3, 5, 8] {
        let mut running = cli.start(&line);
        for _ in 0..files {
            assert!(running.line().ends_with(".ndjson"));
        }
        drop(running);
        produce(&cli, 4_000 + (files - 1) * 10, if files == 1 { 10 } else { 0 });
    }
    let last = cli.ok(&line);
    assert!(last.err.contains("going on with"), "{}", last.err);
    assert_whole(&dir, 4_000);
    let next = cli.ok(&line);
    assert_eq!(next.out.lines().count(), 3, "{next:?}");
    assert_whole(&dir, 4_010);
    let nothing = cli.ok(&line);
    assert!(nothing.out.is_empty() && nothing.err.contains("0 record(s) in 0 file(s)"), "{nothing:?}");
}

/// The group's offset of t-0 and the text beside it.
fn stored(conn: &mut Conn) -> (i64, StrBytes) {
    let topic = OffsetFetchRequestTopics::default().with_name(topic_name("t")).with_partition_indexes(vec![0]);
    let group = OffsetFetchRequestGroup::default().with_group_id(group_id("load")).with_topics(Some(vec![topic]));
    let answer = conn.call(8, &OffsetFetchRequest::default().with_groups(vec![group]));
    let partition = &answer.groups[0].topics[0].partitions[0];
    (partition.committed_offset, partition.metadata.clone().unwrap())
}

fn store(conn: &mut Conn, offset: i64, metadata: StrBytes) {
    let partition = OffsetCommitRequestPartition::default()
        .with_partition_index(0)
        .with_committed_offset(offset)
        .with_committed_metadata(Some(metadata));
    let topic = OffsetCommitRequestTopic::default().with_name(topic_name("t")).with_partitions(vec![partition]);
    let request = OffsetCommitRequest::default()
        .with_group_id(group_id("load"))
        .with_generation_id_or_member_epoch(-1)
        .with_member_id(text(""))
        .with_topics(vec![topic]);
    assert_eq!(conn.call(8, &request).topics[0].partitions[0].error_code, 0);
}

/// Goal: a crash between the name and the commit doubles nothing. Method: the group is set back to what it had stored
/// before the last files, and a half-written file is put there.
#[test]
fn files_whose_commit_was_lost_are_recognised_and_half_files_removed() {
    let Some((node, cli)) = node_with(4_000) else { return };
    let dir = cli.home().join("out");
    let line = format!("export t:0 -G load --dir {} --format json --max-file-bytes 20000", dir.display());
    let files = cli.ok(&line).out;
    let paths: Vec<&str> = files.lines().collect();
    let mut conn = node.conn();
    let (end, begun) = stored(&mut conn);
    assert_eq!(end, 4_000);
    let first_of = |path: &str| path.rsplit('-').nth(1).unwrap().parse::<i64>().unwrap();
    fs::remove_file(paths[paths.len() - 1]).unwrap();
    fs::write(dir.join(".t-0.unfinished"), "{\"topic\":").unwrap();
    store(&mut conn, first_of(paths[paths.len() - 4]), begun.clone());
    let again = cli.ok(&line);
    assert_eq!(again.out.lines().collect::<Vec<_>>(), paths[paths.len() - 4..], "three are told of, one is written");
    assert_eq!(exported(&dir)[&0].len(), 4_000);
    assert_eq!(stored(&mut conn), (4_000, begun));
}

#[test]
fn an_export_refuses_what_would_leave_out_or_double_records() {
    let Some((_node, cli)) = node_with(2_000) else { return };
    let (dir, other) = (cli.home().join("out"), cli.home().join("other"));
    let refused = |line: &str, code: i32, why: &str| {
        let ran = cli.run(line);
        assert!(ran.code == code && ran.err.contains(why), "{line}: {ran:?}");
    };
    let line = format!("export t -G load --dir {} --format json --max-file-bytes 20000", dir.display());
    let mut running = cli.start(&line);
    running.line();
    refused(&line, 1, "another thalweg export writes there");
    running.signal(Signal::TERM);
    let stopped = running.end();
    assert!(stopped.code == 130 && stopped.err.contains("the same line goes on"), "{stopped:?}");
    refused(&format!("export t -G load --dir {} --format json", other.display()), 1, "end that first");
    refused(&format!("export t -G load --dir {}", dir.display()), 1, "as json");
    cli.ok(&line);
    refused(&format!("export t -G second --dir {} --format json", dir.display()), 1, "already, by another export");
    refused(&format!("export gone -G load --dir {}", dir.display()), 3, "does not exist");
    refused(&format!("export t:3 -G load --dir {}", dir.display()), 3, "partition");
    produce(&cli, 2_000, 10);
    cli.ok("topic trim t:1 --to 2005");
    refused(&line, 1, "t-1: records 2000 to 2004 were deleted before they were exported");
    let mut member = cli.start("topic consume t -G reading");
    member.line();
    refused(&format!("export t -G reading --dir {}", other.display()), 1, "of its own");
}

/// Goal: a range is what its words say, in every partition.
#[test]
fn a_range_by_offset_and_time_has_exactly_that() {
    let Some((_node, cli)) = node_with(100) else { return };
    let offsets = |group: &str, words: &str| {
        let dir = cli.home().join(group);
        cli.ok(&format!("export t -G {group} --dir {} --format json {words}", dir.display()));
        let of = |record: &Value| record["offset"].as_i64().unwrap();
        exported(&dir).get(&2).map(|records| (of(&records[0]), of(records.last().unwrap()), records.len()))
    };
    assert_eq!(offsets("a", "--from 10 --to 20"), Some((10, 19, 10)));
    assert_eq!(offsets("b", "--from -10"), Some((90, 99, 10)));
    assert_eq!(offsets("c", "--from 95 --to +100"), Some((95, 99, 5)));
    assert_eq!(offsets("d", "--from 1h --to 2999-01-01"), Some((0, 99, 100)));
    assert_eq!(offsets("e", "--from 2999-01-01"), None);
    assert_eq!(offsets("a", "--from 50 --to 30"), Some((10, 29, 20)), "the group goes on where it was");
}
