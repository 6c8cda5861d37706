//! Replays the fuzz corpus on the stable compiler: what fuzzing once found stays mended.

use std::fs;
use std::path::Path;

#[path = "../../fuzz/src/counting_allocator.rs"]
mod counting_allocator;
#[path = "../../fuzz/src/wire_targets.rs"]
mod wire_targets;

fn replay(target: &str, run: fn(&[u8])) {
    let dir = Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("../fuzz/corpus").join(target);
    let mut count = 0;
    for entry in fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display())) {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        let survived = std::panic::catch_unwind(|| run(&bytes));
        assert!(survived.is_ok(), "{}", path.display());
        count += 1;
    }
    assert!(count > 0, "no corpus in {}", dir.display());
}

#[test]
fn requests_of_the_corpus_are_survived() {
    replay("frame_header_request", wire_targets::frame_header_request);
}

#[test]
fn responses_of_the_corpus_are_survived() {
    replay("response", wire_targets::response);
}

#[test]
fn batches_of_the_corpus_are_survived() {
    replay("record_batch", wire_targets::record_batch);
}

#[test]
fn names_of_the_corpus_are_survived() {
    replay("topic_name", wire_targets::topic_name);
}
