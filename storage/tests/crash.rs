//! Crash enumeration: whatever a power cut or a bad medium leaves, recovery gives back all that was
//! flushed, or says that the log is corrupt and keeps its hands off.
//!
//! `damaged_bytes_*` change the bytes of a finished log in every way of TESTING 4.4 (a);
//! `power_cut_*` stops a life of a log after each of its disk operations and makes the states in
//! which subsets of the unsynced ones reached the medium (4.4 b). Each test prints how many states it saw.

#![expect(clippy::print_stdout, reason = "each test says how many states it saw")]

mod support;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use support::*;
use thalweg_model::{LeaderEpoch, Offset, Timestamp};
use thalweg_storage::checkpoint::OffsetCheckpoint;
use thalweg_storage::{AppendOrigin, LogConfig, LogError, OpenError, PartitionLog};
use thalweg_wire::batch::Batches;
use thalweg_world::disk::{Disk, SimDisk, Survival};

/// A small generator of numbers, the same on each run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

fn config() -> LogConfig {
    LogConfig { segment_bytes: 15_000, index_interval_bytes: 1000, ..LogConfig::default() }
}

/// Every file but the one that counts the lives of the dir.
fn files(disk: &SimDisk) -> BTreeMap<PathBuf, Arc<Vec<u8>>> {
    let mut files = disk.dump();
    files.retain(|path, _| !path.ends_with("thalweg.properties"));
    files
}

/// The files that are in one and not the same in the other.
fn changed(a: &BTreeMap<PathBuf, Arc<Vec<u8>>>, b: &BTreeMap<PathBuf, Arc<Vec<u8>>>) -> Vec<PathBuf> {
    let differs = |path: &&PathBuf| a.get(*path) != b.get(*path);
    a.keys().chain(b.keys()).filter(differs).cloned().collect()
}

fn is_derived(path: &std::path::Path) -> bool {
    let name = path.to_string_lossy();
    [".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint"].iter().any(|s| name.ends_with(s))
}

/// What can be told of an open log.
fn describe(log: &PartitionLog) -> (Offset, Offset, String, String) {
    let view = log.view();
    let aborted = view.aborted_transactions(Offset(0), Offset::MAX).unwrap();
    let epochs: Vec<_> = (0..12).map(|epoch| view.epoch_end_offset(LeaderEpoch(epoch))).collect();
    let derived = format!("{:?} {aborted:?} {epochs:?}", log.producer_state());
    (view.log_start_offset(), view.log_end_offset(), derived, format!("{:?}", log.last_stable_offset()))
}

/// Recovers a disk twice; returns the bytes of the log from `from` on and its end, or `None` if it is corrupt.
fn recover(disk: &SimDisk, config: &LogConfig, from: Offset, rederive: bool) -> Option<(Vec<u8>, Offset)> {
    let before = files(disk);
    let dir = open_dir(disk).unwrap();
    let log = match dir.open_partition(&tp(), TOPIC_ID, config.clone()) {
        Ok(log) => log,
        Err(OpenError::Corrupt { .. }) => {
            let logs = |files: BTreeMap<PathBuf, Arc<Vec<u8>>>| -> Vec<_> {
                files.into_iter().filter(|(path, _)| path.to_string_lossy().ends_with(".log")).collect()
            };
            assert_eq!(logs(files(disk)), logs(before), "a corrupt log is not touched");
            assert!(matches!(dir.open_partition(&tp(), TOPIC_ID, config.clone()), Err(OpenError::Corrupt { .. })));
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let read = |log: &PartitionLog| {
        let view = log.view();
        contents_from(&view, from.max(view.log_start_offset()).min(view.log_end_offset()), 1 << 20)
    };
    let bytes = read(&log);
    let found = describe(&log);
    let end = log.log_end_offset();
    drop((log, dir));

    // What recovery advertises survives a second power cut, and there is nothing left to do.
    let settled = files(disk);
    let again = disk.crash(&mut |_| Survival::Lost);
    for (name, disk) in [("restart", disk), ("second power cut", &again)] {
        let dir = open_dir(disk).unwrap();
        let log = dir.open_partition(&tp(), TOPIC_ID, config.clone()).unwrap();
        assert_eq!(describe(&log), found, "after a {name}");
        if rederive {
            assert!(read(&log) == bytes, "after a {name}");
        }
        drop((log, dir));
        if name == "restart" {
            assert_eq!(changed(&files(disk), &settled), Vec::<PathBuf>::new(), "a second recovery changes nothing");
        }
    }
    // Once the first segments are deleted, the snapshot is all that knows who wrote them.
    if rederive && settled.contains_key(&partition_path("00000000000000000000.log")) {
        let bare = disk.fork();
        for path in settled.keys().filter(|path| is_derived(path)) {
            bare.remove_file(path).unwrap();
        }
        let dir = open_dir(&bare).unwrap();
        let log = dir.open_partition(&tp(), TOPIC_ID, config.clone()).unwrap();
        assert_eq!(describe(&log), found, "derived state equals what the log alone tells");
        let indexes = |files: BTreeMap<PathBuf, Arc<Vec<u8>>>| -> BTreeMap<PathBuf, Arc<Vec<u8>>> {
            // A transaction index that was emptied is as good as none.
            let is_index = |path: &PathBuf| path.to_string_lossy().ends_with("index");
            let is_used = |path: &PathBuf, len| len > 0 || !path.to_string_lossy().ends_with(".txnindex");
            files.into_iter().filter(|(path, bytes)| is_index(path) && is_used(path, bytes.len())).collect()
        };
        assert_eq!(changed(&indexes(files(&bare)), &indexes(settled)), Vec::<PathBuf>::new(), "indexes are as derived");
    }
    Some((bytes, end))
}

/// 200 batches in three segments; flushed and checkpointed up to two thirds.
struct Finished {
    disk: SimDisk,
    bytes: Vec<u8>,
    /// The checkpointed flushed offset, and how many bytes lie below it.
    flushed: Offset,
    flushed_bytes: usize,
    segments: Vec<(PathBuf, usize)>,
}

fn finished() -> Finished {
    let (disk, dir, mut log) = new_log(config());
    let mut bytes = Vec::new();
    let (mut flushed, mut flushed_bytes) = (Offset(0), 0);
    for i in 0..200 {
        if i % 60 == 59 {
            log.begin_epoch(LeaderEpoch(i as i32 / 60 + 1)).unwrap();
        }
        let mut batch = match i % 5 {
            0 => idempotent(1, 0, (i / 5) as i32 * 4, 4),
            1 => transactional(2, 0, (i / 5) as i32 * 3, 3),
            2 if i % 4 == 0 => marker(2, 0, i % 8 == 0),
            _ => batch(i, 1 + i % 9),
        };
        let epoch = log.latest_epoch().unwrap();
        log.append(&mut batch, Timestamp(1000), epoch, AppendOrigin::Client).unwrap();
        bytes.extend_from_slice(&batch);
        if i == 130 {
            flush(&mut log);
            dir.write_checkpoints().unwrap();
            (flushed, flushed_bytes) = (log.flushed_offset(), bytes.len());
        }
    }
    flush(&mut log);
    drop((log, dir));
    let segments: Vec<(PathBuf, usize)> = files(&disk)
        .into_iter()
        .filter(|(path, _)| path.to_string_lossy().ends_with(".log"))
        .map(|(path, bytes)| (path, bytes.len()))
        .collect();
    assert!(segments.len() >= 3, "{segments:?}");
    Finished { disk: disk.fork(), bytes, flushed, flushed_bytes, segments }
}

impl Finished {
    /// The file and the position in it of a byte of the log.
    fn locate(&self, at: usize) -> (&PathBuf, usize) {
        let mut left = at;
        for (path, len) in &self.segments {
            if left < *len {
                return (path, left);
            }
            left -= len;
        }
        panic!("beyond the log");
    }

    fn check(&self, at: usize, rederive: bool, change: impl FnOnce(&mut Vec<u8>, usize)) -> bool {
        let (path, position) = self.locate(at);
        let disk = self.disk.fork();
        disk.corrupt(path, |bytes| change(bytes, position)).unwrap();
        // Bytes below the recovery point are not looked at when a log is opened: a reader's CRC and the
        // scrub find damage there (G7), so this does not read there. From it on all is as it was, or cut.
        let is_scanned = at >= self.flushed_bytes;
        let from = if is_scanned { self.flushed } else { Offset::MAX };
        let Some((bytes, end)) = recover(&disk, &config(), from, rederive && is_scanned) else { return false };
        assert!(end >= self.flushed, "lost flushed records, damage at {at}");
        let expected = &self.bytes[self.flushed_bytes..];
        // Neither Kafka's checksum nor anything else covers a batch's leader epoch.
        let found = without_epochs(&bytes);
        let same = without_epochs(expected).iter().zip(&found).take_while(|(a, b)| a == b).count();
        assert!(same == found.len(), "damage at {at}: {same} of {} bytes are right", found.len());
        true
    }
}

#[test]
fn damaged_bytes_are_cut_if_torn_and_reported_if_not() {
    let finished = finished();
    let stale = finished.bytes[..9000].to_vec();
    let mut numbers = Numbers(0x5eed);
    let (mut states, mut corrupt) = (0u32, 0u32);
    let tail = finished.bytes.len().saturating_sub(64 << 10)..finished.bytes.len();
    for at in tail.step_by(9) {
        let rederive = at % 31 == 0;
        let mut saw = |recovered: bool| {
            states += 1;
            corrupt += u32::from(!recovered);
        };
        saw(finished.check(at, rederive, |bytes, position| bytes.truncate(position)));
        saw(finished.check(at, rederive, |bytes, position| bytes[position..].fill(0)));
        let bit = numbers.below(8);
        saw(finished.check(at, rederive, |bytes, position| bytes[position] ^= 1 << bit));
        if at % 5 == 0 {
            let other = numbers.below(6);
            saw(finished.check(at, rederive, |bytes, position| swap_pages(bytes, position, other)));
            let from = numbers.below(stale.len() - 4096);
            saw(finished.check(at, rederive, |bytes, position| {
                let end = (position + 4096).min(bytes.len());
                bytes[position..end].copy_from_slice(&stale[from..from + end - position]);
            }));
        }
    }
    println!("damaged bytes: {states} states, {corrupt} reported as corrupt");
    assert!(corrupt > 0 && corrupt < states);
}

fn without_epochs(batches: &[u8]) -> Vec<u8> {
    let mut bytes = batches.to_vec();
    let mut at = 0;
    for found in Batches::new(batches) {
        bytes[at + 12..at + 16].fill(0);
        at += found.unwrap().1.len();
    }
    bytes
}

fn swap_pages(bytes: &mut [u8], position: usize, other: usize) {
    let page = |number: usize| number * 4096..(number + 1) * 4096;
    let (a, b) = (page(position / 4096), page(other));
    if a.end <= bytes.len() && b.end <= bytes.len() && a != b {
        let kept = bytes[a.clone()].to_vec();
        bytes.copy_within(b.clone(), a.start);
        bytes[b].copy_from_slice(&kept);
    }
}

#[test]
fn derived_files_may_be_anything() {
    let finished = finished();
    let expected = recover(&finished.disk.fork(), &config(), Offset(0), true).unwrap();
    let mut numbers = Numbers(7);
    let mut states = 0;
    for (path, bytes) in files(&finished.disk).into_iter().filter(|(path, _)| is_derived(path)) {
        for round in 0..60 {
            let disk = finished.disk.fork();
            let at = numbers.below(bytes.len().max(1));
            match round % 4 {
                0 => disk.corrupt(&path, |bytes| bytes.truncate(at)).unwrap(),
                1 => disk.corrupt(&path, |bytes| bytes.iter_mut().skip(at).take(9).for_each(|b| *b ^= 0x41)).unwrap(),
                2 => disk.corrupt(&path, |bytes| bytes.resize(bytes.len() + 1000, 0)).unwrap(),
                _ => disk.remove_file(&path).unwrap(),
            }
            let (found, _) = recover(&disk, &config(), Offset(0), false).unwrap_or_else(|| panic!("{path:?} {round}"));
            assert!(found == expected.0, "{path:?} {round}");
            states += 1;
        }
    }
    println!("derived files: {states} states");
}

/// What may and what must be in a log after a power cut.
#[derive(Default)]
struct Promise {
    /// Batches by base offset: those in the log, and those that an operation under way adds or removes.
    batches: BTreeMap<i64, Vec<u8>>,
    maybe: BTreeMap<i64, Vec<u8>>,
    /// Everything below was acknowledged as flushed.
    flushed: i64,
    log_start: i64,
    high_watermark: i64,
    created: bool,
}

/// One life of a log, up to the point where the power goes.
struct Life {
    disk: SimDisk,
    promise: Promise,
}

type Stop = Result<(), ()>;

impl Life {
    fn run(power_off_after: u64) -> (Life, bool) {
        let disk = SimDisk::new();
        let dir = open_dir(&disk).unwrap();
        let start = disk.operation_count();
        disk.power_off_after(power_off_after);
        let mut life = Life { disk, promise: Promise::default() };
        let finished = life.live(&dir).is_ok();
        if finished {
            println!("{} operations", life.disk.operation_count() - start);
        }
        (life, finished)
    }

    fn live(&mut self, dir: &thalweg_storage::LogDir) -> Stop {
        let config = life_config();
        let mut log = dir.create_partition(&tp(), TOPIC_ID, config.clone()).map_err(drop)?;
        self.promise.created = true;
        log.begin_epoch(LeaderEpoch(1)).map_err(drop)?;
        self.append(&mut log, &[batch(1, 3), idempotent(1, 0, 0, 2)])?;
        self.flush(&mut log)?;
        self.append(&mut log, &[transactional(2, 0, 0, 2), batch(12, 40)])?;
        self.append(&mut log, &[batch(3, 1), batch(4, 2), batch(5, 9)])?;
        self.checkpoint(dir, &mut log)?;
        self.flush(&mut log)?;
        for i in 0..4 {
            self.append(&mut log, &[batch(i, 4), idempotent(1, 0, 2 + i as i32, 1)])?;
        }
        self.flush(&mut log)?;
        self.high_watermark(dir, 20)?;
        self.checkpoint(dir, &mut log)?;
        self.append(&mut log, &[marker(2, 0, false), batch(6, 2)])?;
        self.truncate(&mut log, 30)?;
        log.begin_epoch(LeaderEpoch(2)).map_err(drop)?;
        self.append(&mut log, &[batch(7, 5), batch(8, 20)])?;
        self.flush(&mut log)?;
        self.truncate(&mut log, 40)?;
        log.begin_epoch(LeaderEpoch(4)).map_err(drop)?;
        for i in 0..6 {
            self.append(&mut log, &[batch(20 + i, 7)])?;
        }
        self.flush(&mut log)?;
        log.advance_log_start(Offset(33)).map_err(drop)?;
        self.checkpoint(dir, &mut log)?;
        self.promise.log_start = 33;
        let end = log.log_end_offset();
        let deleted = log.apply_retention(Timestamp(1_000_000), end).map_err(drop)?;
        assert!(!deleted.is_empty());
        self.high_watermark(dir, end.0)?;
        self.append(&mut log, &[batch(9, 3)])?;
        self.checkpoint(dir, &mut log)?;
        log.close().map_err(drop)?;
        self.promise.flushed = end.0 + 3;
        dir.write_checkpoints().map_err(drop)?;
        dir.mark_clean(Some(5)).map_err(drop)
    }

    fn append(&mut self, log: &mut PartitionLog, batches: &[Vec<u8>]) -> Stop {
        let mut batches = batches.to_vec();
        let epoch = log.latest_epoch().unwrap();
        let mut slices: Vec<&mut [u8]> = batches.iter_mut().map(Vec::as_mut_slice).collect();
        let results = log.append_many(&mut slices, Timestamp(1000), epoch, AppendOrigin::Client);
        // Stamped or not, each may have reached the disk.
        let stamped = Batches::new(&batches.concat())
            .map(|b| b.unwrap())
            .map(|(h, b)| (h.base_offset.0, b.to_vec()))
            .collect::<Vec<_>>();
        self.promise.maybe.extend(stamped.iter().cloned());
        for (result, batch) in results.into_iter().zip(stamped) {
            result.map_err(drop)?;
            self.promise.batches.insert(batch.0, batch.1);
        }
        self.promise.maybe.clear();
        Ok(())
    }

    fn flush(&mut self, log: &mut PartitionLog) -> Stop {
        let Some(ticket) = log.flush_ticket() else { return Ok(()) };
        let outcome = ticket.sync();
        self.promise.flushed = log.flushed(outcome).map_err(drop)?.0;
        Ok(())
    }

    fn truncate(&mut self, log: &mut PartitionLog, to: i64) -> Stop {
        let removed: Vec<i64> = self
            .promise
            .batches
            .iter()
            .filter(|(base, bytes)| **base + count(bytes) > to)
            .map(|(base, _)| *base)
            .collect();
        for base in removed {
            let bytes = self.promise.batches.remove(&base).unwrap();
            self.promise.maybe.insert(base, bytes);
        }
        let end = self.promise.batches.last_key_value().map_or(0, |(base, bytes)| base + count(bytes));
        self.promise.flushed = self.promise.flushed.min(end);
        assert_eq!(log.truncate_to(Offset(to)).map_err(|_: LogError| ())?, Offset(end));
        self.promise.maybe.clear();
        self.promise.flushed = end;
        Ok(())
    }

    fn checkpoint(&mut self, dir: &thalweg_storage::LogDir, log: &mut PartitionLog) -> Stop {
        log.prepare_checkpoint().map_err(drop)?;
        dir.write_checkpoints().map_err(drop)
    }

    fn high_watermark(&mut self, dir: &thalweg_storage::LogDir, offset: i64) -> Stop {
        dir.write_high_watermarks(&OffsetCheckpoint::from_iter([(tp(), Offset(offset))])).map_err(drop)?;
        self.promise.high_watermark = offset;
        Ok(())
    }

    fn check(&self, disk: &SimDisk, rederive: bool) {
        let promise = &self.promise;
        {
            let dir = open_dir(disk).unwrap();
            let stored = dir.high_watermarks().unwrap().get(&tp()).map_or(0, |offset| offset.0);
            assert!(stored >= promise.high_watermark);
            match dir.open_partition(&tp(), TOPIC_ID, life_config()) {
                Ok(log) => assert!(log.log_start_offset().0 >= promise.log_start, "the log's start fell"),
                Err(error) => {
                    assert!(matches!(error, OpenError::NotFound { .. }) && !promise.created, "{error}");
                    return;
                }
            }
        }
        let (bytes, end) = recover(disk, &life_config(), Offset(0), rederive).expect("a power cut is not corruption");
        let mut next = None;
        for found in Batches::new(&bytes) {
            let (header, batch) = found.unwrap();
            let base = header.base_offset.0;
            assert!(next.is_none_or(|next| next == base), "offsets have a hole at {base}");
            let known = [promise.batches.get(&base), promise.maybe.get(&base)];
            assert!(known.into_iter().flatten().any(|known| known == batch), "nobody wrote what stands at {base}");
            next = Some(header.next_offset().0);
        }
        assert!(next.is_none_or(|next| next == end.0));
        assert!(end.0 >= promise.flushed, "flushed up to {}, recovered up to {end}", promise.flushed);
    }
}

fn life_config() -> LogConfig {
    LogConfig {
        segment_bytes: 2500,
        index_interval_bytes: 200,
        retention_bytes: 300,
        retention_ms: -1,
        ..LogConfig::default()
    }
}

fn count(batch: &[u8]) -> i64 {
    let header = thalweg_wire::batch::BatchHeader::read(batch).unwrap();
    header.next_offset().since(header.base_offset)
}

#[test]
fn power_cut_after_any_operation_loses_nothing_flushed() {
    let mut numbers = Numbers(0xc4a5);
    let mut states = 0u64;
    for stop in 0.. {
        let (life, finished) = Life::run(stop);
        let pending = life.disk.pending();
        let exhaustive = pending.len() <= 6;
        let subsets = if exhaustive { 1u64 << pending.len() } else { 48 };
        for number in 0..subsets {
            let kept = match number {
                _ if exhaustive => number,
                0 => 0,
                1 => u64::MAX,
                _ => numbers.next(),
            };
            let choose =
                &mut |index: usize| if kept >> (index % 64) & 1 == 1 { Survival::Kept } else { Survival::Lost };
            life.check(&life.disk.crash(choose), number % 16 == 3);
            states += 1;
        }
        // Writes may be torn as well.
        for _ in 0..if pending.is_empty() { 0 } else { 16 } {
            let choose = &mut |index: usize| match numbers.below(4) {
                0 => Survival::Lost,
                1 => Survival::Prefix(numbers.below(pending[index].len + 1)),
                2 => Survival::Sectors(numbers.next()),
                _ => Survival::Kept,
            };
            life.check(&life.disk.crash(choose), false);
            states += 1;
        }
        if finished {
            break;
        }
    }
    println!("power cuts: {states} states");
    assert!(states >= 10_000, "{states}");
}
