//! Replays the fuzz corpus on the stable compiler: what fuzzing once found stays mended.

use std::fs;
use std::path::Path;

use thalweg_model::Timestamp;
use thalweg_model::topic_config::TimestampType;
use thalweg_wire::batch::set_max_timestamp;

#[path = "../../fuzz/src/counting_allocator.rs"]
mod counting_allocator;
#[path = "../../fuzz/src/storage_targets.rs"]
mod storage_targets;
#[path = "../../fuzz/src/uncounted_disk.rs"]
mod uncounted_disk;

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
fn segments_of_the_corpus_are_survived() {
    replay("segment_recovery", storage_targets::segment_recovery);
}

#[test]
fn checkpoints_of_the_corpus_are_survived() {
    replay("checkpoint_files", storage_targets::checkpoint_files);
}

/// The same bound for large files as for the small ones that fuzzing likes: batches without records, each of a producer of
/// its own and in an open transaction, are what takes the most memory for their size.
#[test]
fn a_large_log_of_tiny_batches_takes_no_more_for_its_size_than_a_small_one() {
    let mut data = vec![0; 12];
    for number in 0..40_000i64 {
        let mut batch = [0; 61];
        batch[..8].copy_from_slice(&number.to_be_bytes());
        batch[8..12].copy_from_slice(&49u32.to_be_bytes());
        batch[16] = 2;
        batch[22] = 0x10;
        batch[43..51].copy_from_slice(&number.to_be_bytes());
        batch[57..61].copy_from_slice(&1i32.to_be_bytes());
        // Which makes the CRC right.
        set_max_timestamp(&mut batch, TimestampType::CreateTime, Timestamp(number + 1));
        data.extend_from_slice(&batch);
    }
    storage_targets::segment_recovery(&data);
}

#[test]
fn a_large_offset_checkpoint_of_short_lines_takes_no_more_for_its_size_than_a_small_one() {
    let letter = |number: usize| char::from(b'a' + u8::try_from(number % 26).unwrap());
    let lines: String =
        (0..17_000).rev().map(|n| format!("{}{}{} 0 0\n", letter(n / 676), letter(n / 26), letter(n))).collect();
    storage_targets::checkpoint_files(format!("0\n17000\n{lines}").as_bytes());
}
