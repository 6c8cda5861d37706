//! Replays the fuzz corpus on the stable compiler: what fuzzing once found stays mended.

use std::fs;
use std::path::Path;

#[path = "../../fuzz/src/counting_allocator.rs"]
mod counting_allocator;
#[path = "../../fuzz/src/storage_targets.rs"]
mod storage_targets;
#[path = "../../fuzz/src/uncounted_disk.rs"]
mod uncounted_disk;

fn replay(target: &str, run: fn(&[u8])) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
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
fn segments_of_the_corpus_are_survived() {
    replay("segment_recovery", storage_targets::segment_recovery);
}

#[test]
fn checkpoints_of_the_corpus_are_survived() {
    replay("checkpoint_files", storage_targets::checkpoint_files);
}
