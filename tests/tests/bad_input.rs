//! Hostile bytes, a full disk, a second process, data of a later version: one clear sentence each, and the node lives
//! on or refuses to start. Garbage on the socket, foreign protocols and lengths are in `traps_connection`, malformed
//! batches in `traps_produce`.

#![allow(clippy::print_stdout, reason = "says which tests cannot run here")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use thalweg_tests::calls::{append, create_topic, delete_topic, metadata, produce, read_from};
use thalweg_tests::{Batch, Codec, Conn, ErrorCode, Node, target};

/// A topic called `../x`, and others that would leave the data directory, create nothing anywhere.
#[test]
fn a_topic_name_never_leaves_the_data_directory() {
    let Some(node) = Node::own(&[]) else { return };
    let mut conn = node.conn();
    let parent = node.data_dir().parent().expect("the data lies in a directory").to_owned();
    let before = names(&parent);
    for name in ["../x", "..", ".", "/tmp/x", "a/../../x", "a\0b", "x\u{2215}y", ""] {
        assert_eq!(
            create_topic(&mut conn, name, 1, &[]).error_code,
            ErrorCode::InvalidTopicException.code(),
            "{name:?}"
        );
        assert_ne!(metadata(&mut conn, 4, Some(&[name]), true).topics[0].error_code, 0, "{name:?}");
        assert_ne!(produce(&mut conn, name, Batch::values(&["x"]).encode()).error_code, 0, "{name:?}");
    }
    assert_eq!(names(&parent), before);
    assert!(metadata(&mut conn, 12, None, false).topics.is_empty());
}

fn names(dir: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = fs::read_dir(dir).expect("a directory").map(|e| e.expect("an entry").path()).collect();
    all.sort();
    all
}

/// A record batch that unpacks to far more than it is costs one connection its answer and the node nothing: it is read
/// as a stream.
#[test]
fn a_decompression_bomb_does_not_fill_memory() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    // 256 MiB of zeros in some 8 KiB of zstd.
    let mut batch = Batch::values(&["x"]).codec(Codec::Zstd);
    batch.payload = Some(zstd::bulk::compress(&vec![0; 256 << 20], 1).expect("zeros compress"));
    let answer = produce(&mut conn, &topic, batch.encode());
    assert_ne!(answer.error_code, 0);
    assert!(read_from(&mut conn, &topic, 0).is_empty());
    if let thalweg_tests::Target::Ours(node) = &*target {
        let status = fs::read_to_string(format!("/proc/{}/status", node.pid())).expect("the node lives");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak").trim();
        let kib: u64 = peak.trim_end_matches(" kB").parse().expect("a number");
        assert!(kib < 256 << 10, "peak memory {kib} KiB");
    }
}

/// A second process on the data directory refuses to start and says why; the first one does not notice.
#[test]
fn a_second_process_on_the_data_directory_refuses_to_start() {
    let Some(mut node) = Node::own(&[]) else { return };
    let why = Node::try_start_in(node.data_dir(), &[]).err().expect("it must not start");
    assert!(!why.contains("panicked"), "{why}");
    let says = why.to_lowercase();
    assert!(["in use", "lock", "already", "another"].iter().any(|word| says.contains(word)), "{why}");
    assert!(why.contains(&*node.data_dir().to_string_lossy()), "it names the directory: {why}");
    assert!(node.is_alive());
    assert_eq!(create_topic(&mut node.conn(), "t", 1, &[]).error_code, 0);
}

/// A data directory of a later version is refused with its version named, and nothing in it is changed.
#[test]
fn a_data_directory_of_a_later_version_is_refused() {
    let Some(mut node) = Node::own(&[]) else { return };
    assert_eq!(create_topic(&mut node.conn(), "t", 1, &[]).error_code, 0);
    assert_eq!(node.stop(), Some(0));
    let found = find(node.data_dir(), "meta.properties");
    assert!(!found.is_empty());
    for file in found {
        let text = fs::read_to_string(&file).expect("a text");
        assert!(text.lines().any(|line| line == "version=1"), "{text}");
        let later = text.replace("version=1", "version=9");
        fs::write(&file, &later).expect("written");
        let why = Node::try_start_in(node.data_dir(), &[]).err().expect("it must not start");
        assert!(why.contains('9') && why.contains("version") && !why.contains("panicked"), "{why}");
        assert_eq!(fs::read_to_string(&file).expect("a text"), later);
        fs::write(&file, &text).expect("written");
    }
    node.restart();
    append(&mut node.conn(), "t", Batch::values(&["x"]).encode());
}

fn find(dir: &Path, name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in names(dir) {
        if path.is_dir() {
            found.extend(find(&path, name));
        } else if path.file_name().is_some_and(|n| n == name) {
            found.push(path);
        }
    }
    found
}

/// An unknown property is refused with the nearest one named.
#[test]
fn an_unknown_property_names_the_nearest() {
    if thalweg_tests::target::external().is_some() {
        println!("not run: this test starts its node");
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let why = Node::try_start_in(&dir.path().join("data"), &["num.partition=3"]).err().expect("it must not start");
    assert!(why.contains("num.partition") && why.contains("num.partitions"), "{why}");
}

/// A file system of its own, unmounted when dropped.
struct Mount(tempfile::TempDir);

impl Mount {
    /// `None` with a printed line where this process may not mount.
    fn tmpfs(megabytes: u32) -> Option<Mount> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let size = format!("size={megabytes}m");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(dir.path()).output();
        if mounted.is_ok_and(|done| done.status.success()) {
            return Some(Mount(dir));
        }
        println!("not run: mounting a small file system needs root");
        None
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// On a full disk produces are refused with a clear error before the reserve is gone; reads, deletes and a restart work,
/// and when there is room again produces do too.
#[test]
fn a_full_disk_refuses_produces_and_nothing_else() {
    if thalweg_tests::target::external().is_some() {
        println!("not run: this test starts its node");
        return;
    }
    let Some(mount) = Mount::tmpfs(192) else { return };
    let data_dir = mount.0.path().join("data");
    let settings = ["log.dir.reserve.bytes=33554432"];
    let mut node = Node::try_start_in(&data_dir, &settings).unwrap_or_else(|why| panic!("{why}"));
    let mut conn = node.conn();
    for topic in ["kept", "filler"] {
        assert_eq!(create_topic(&mut conn, topic, 1, &[]).error_code, 0);
    }
    append(&mut conn, "kept", Batch::values(&["precious"]).encode());
    let filling = Batch::values(&[&"x".repeat(1_000_000)]).encode();
    let mut stored = 0;
    let refused = loop {
        let answer = produce(&mut conn, "filler", filling.clone());
        if answer.error_code != 0 {
            break answer;
        }
        stored += 1;
        assert!(stored < 192, "the disk is smaller than what it took");
    };
    assert!(stored > 10, "refused after {stored} MB");
    assert_eq!(ErrorCode::from_code(refused.error_code), Some(ErrorCode::KafkaStorageError));
    assert!(refused.error_message.as_ref().is_some_and(|m| m.contains("reserve")), "{:?}", refused.error_message);

    let works = |conn: &mut Conn| {
        assert_eq!(read_from(conn, "kept", 0), ["precious"]);
        assert_eq!(read_from(conn, "filler", 0).len(), stored);
        assert_ne!(produce(conn, "kept", filling.clone()).error_code, 0);
    };
    works(&mut conn);
    node.kill();
    node.restart();
    let mut conn = node.conn();
    works(&mut conn);
    assert_eq!(delete_topic(&mut conn, "filler"), 0);
    // The space comes back when the files are gone, a moment after the answer.
    let mut last = produce(&mut conn, "kept", filling.clone()).error_code;
    for _ in 0..600 {
        if last == 0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        last = produce(&mut conn, "kept", filling.clone()).error_code;
    }
    assert_eq!(last, 0, "produces work again after a deletion");
    node.kill();
}
