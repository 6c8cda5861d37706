//! Targets over the storage crate: whatever stands in a log dir's files, opening it never panics and takes bounded memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_model::{NodeId, Offset, PartitionIndex, Timestamp, TopicId, TopicName, TopicPartition};
use thalweg_storage::checkpoint::{self, OffsetCheckpoint, RECOVERY_POINT};
use thalweg_storage::{DirIdentity, LeaderEpochs, LogConfig, LogDir, LogDirConfig, LogDirError, OpenError};
use thalweg_world::disk::{Disk, OpenMode, SimDisk};

use super::counting_allocator::peak_bytes;
use super::uncounted_disk::UncountedDisk;

/// A partition's files: a flushed offset, a flag, the lengths of the derived files, then all their bytes; the log gets the rest.
///
/// With the flag, bytes that look like batches get a right length and CRC, so that recovery comes further.
pub fn segment_recovery(data: &[u8]) {
    let Some((head, mut rest)) = data.split_first_chunk::<12>() else { return };
    let disk = SimDisk::new();
    put(&disk, "/data/topic-0/partition.metadata", format!("version: 0\ntopic_id: {TOPIC_ID}\n").as_bytes());
    for (name, len) in DERIVED.iter().zip(head[2..].chunks_exact(2)) {
        let len = usize::from(u16::from_be_bytes([len[0], len[1]]) % 1024).min(rest.len());
        let (bytes, left) = rest.split_at(len);
        rest = left;
        put(&disk, &format!("/data/topic-0/{name}"), bytes);
    }
    let mut log = rest.to_vec();
    if head[1] & 1 == 1 {
        mend(&mut log);
    }
    // A second segment, whose name may or may not follow from the first.
    let second = if head[1] & 2 == 2 { log.len() / 2 } else { log.len() };
    put(&disk, "/data/topic-0/00000000000000000000.log", &log[..second]);
    if second < log.len() {
        put(&disk, &format!("/data/topic-0/{:020}.log", head[1] >> 2), &log[second..]);
    }
    let points = OffsetCheckpoint::from_iter([(tp(), Offset(i64::from(head[0])))]);
    checkpoint::write_offsets(&disk, &Path::new("/data").join(RECOVERY_POINT), &points).expect("the disk works");
    put(&disk, "/data/meta.properties", b"version=1\ncluster.id=c\nnode.id=1\n");

    let bound = memory_bound(data.len());
    let dir = bounded("the dir", bound, || open_dir(&disk)).expect("the dir itself is sound");
    let opened = bounded("the log", bound, || dir.open_partition(&tp(), TOPIC_ID, LogConfig::default()));
    let log = match opened {
        Ok(log) => log,
        Err(OpenError::Corrupt { .. }) => return,
        Err(error) => panic!("{error}"),
    };
    let view = log.view();
    let (start, end) = (view.log_start_offset(), view.log_end_offset());
    assert!(start <= end && end >= Offset(i64::from(head[0])).min(end));
    let mut from = start;
    while from < end {
        let Ok(slice) = view.read(from, end, 1000, true) else { break };
        if slice.is_empty() {
            break;
        }
        assert_eq!(slice.read().expect("the slice is there").len(), slice.len);
        assert!(slice.next_offset > from, "a reader would never get on");
        from = slice.next_offset;
    }
    for timestamp in [0, 1 << 40, i64::MAX] {
        // A batch whose records do not decode is an error, never a panic.
        let _ = view.offset_for_timestamp(Timestamp(timestamp), end);
    }
    let _ = view.aborted_transactions(start, end);
    let described = (end, log.producer_state());
    drop(log);
    let opened = bounded("the log again", bound, || dir.open_partition(&tp(), TOPIC_ID, LogConfig::default()));
    let log = opened.expect("what was recovered opens");
    assert_eq!((log.log_end_offset(), log.producer_state()), described);
    assert_eq!((log.recovery_report().cut_bytes, log.recovery_report().rebuilt_count), (0, 0), "nothing is left to do");
}

/// The small files of a log dir and of a partition, each holding the given bytes.
pub fn checkpoint_files(data: &[u8]) {
    let disk = SimDisk::new();
    if let Ok(offsets) = bounded("offsets", memory_bound(data.len()), || OffsetCheckpoint::parse(data.to_vec())) {
        checkpoint::write_offsets(&disk, Path::new("/again"), &offsets).expect("the disk works");
        let again = checkpoint::read_offsets(&disk, Path::new("/again")).expect("what was written reads");
        assert_eq!(again, Some(offsets));
    }
    if let Ok(epochs) = bounded("epochs", memory_bound(data.len()), || LeaderEpochs::parse(data)) {
        epochs.write(&disk, Path::new("/epochs")).expect("the disk works");
        let again = LeaderEpochs::read(&disk, Path::new("/epochs")).expect("what was written reads");
        assert_eq!(again, Some(epochs));
    }
    for name in SMALL_FILES {
        let disk = SimDisk::new();
        put(&disk, &format!("/data/{name}"), data);
        let bound = memory_bound(data.len());
        match bounded(name, bound, || open_dir(&disk)) {
            Ok(dir) => {
                let _ = bounded(name, bound, || dir.high_watermarks()).expect("any bytes give an answer");
                let _ = bounded(name, bound, || dir.partitions()).expect("any bytes give an answer");
                let opened = bounded(name, bound, || dir.open_partition(&tp(), TOPIC_ID, LogConfig::default()));
                let expected = [
                    matches!(opened, Ok(_) | Err(OpenError::NotFound { .. })),
                    matches!(opened, Err(OpenError::OtherTopicId { .. } | OpenError::Corrupt { .. })),
                ];
                assert!(expected.contains(&true), "{name}: {opened:?}");
            }
            Err(LogDirError::Io { .. } | LogDirError::InUse { .. }) => panic!("{name}: the disk is sound"),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

fn put(disk: &SimDisk, path: &str, bytes: &[u8]) {
    let path = PathBuf::from(path);
    disk.create_dir_all(path.parent().expect("every file has a directory")).expect("the disk works");
    let file = disk.open(&path, OpenMode::CreateOrWrite).expect("the disk works");
    file.write_at(bytes, 0).expect("the disk works");
}

fn open_dir(disk: &SimDisk) -> Result<LogDir, LogDirError> {
    let identity = DirIdentity {
        cluster_id: "c".into(),
        node_id: NodeId(1),
        boot_id: "b".into(),
        new_directory_id: TopicId([2; 16]),
    };
    LogDir::open(Arc::new(UncountedDisk(disk.clone())), Path::new("/data"), &identity, LogDirConfig::default())
}

fn tp() -> TopicPartition {
    TopicPartition::new(TopicName::new("topic").expect("a valid name"), PartitionIndex(0))
}

/// Gives every 61 bytes or more that can be a batch the length, magic and CRC of one.
fn mend(log: &mut [u8]) {
    let mut at = 0;
    while at + 61 <= log.len() {
        let room = log.len() - at;
        // The length's own low byte says how long, so that the fuzzer can choose.
        let size = (61 + usize::from(log[at + 11])).min(room);
        let batch = &mut log[at..at + size];
        batch[..7].fill(0);
        batch[8..12].copy_from_slice(&(size as u32 - 12).to_be_bytes());
        batch[16] = 2;
        let crc = crc32c(&batch[21..]);
        batch[17..21].copy_from_slice(&crc.to_be_bytes());
        at += size;
    }
}

fn crc32c(bytes: &[u8]) -> u32 {
    // Bitwise, and so independent of the crate that the code under test uses.
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 0 { crc >> 1 } else { crc >> 1 ^ 0x82f6_3b78 })
    })
}

/// Runs `work`, which must not hold more than `bound` bytes at once; the simulated disk's own do not count.
fn bounded<T>(what: &str, bound: usize, work: impl FnOnce() -> T) -> T {
    let (result, peak) = peak_bytes(work);
    assert!(peak <= bound, "{what} took {peak} bytes, not {bound}");
    result
}

fn memory_bound(length: usize) -> usize {
    4 * length + (64 << 10)
}

const TOPIC_ID: TopicId = TopicId([7; 16]);
const DERIVED: [&str; 5] = [
    "00000000000000000000.index",
    "00000000000000000000.timeindex",
    "00000000000000000000.txnindex",
    "00000000000000000003.snapshot",
    "leader-epoch-checkpoint",
];
const SMALL_FILES: [&str; 8] = [
    "meta.properties",
    "thalweg.properties",
    ".kafka_cleanshutdown",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "topic-0/partition.metadata",
    "topic-0/leader-epoch-checkpoint",
];
