//! A log from the outside: append, read, roll, truncate, delete, reopen.

mod support;

use std::path::Path;
use std::sync::Arc;

use support::*;
use thalweg_model::{LeaderEpoch, NodeId, Offset, ProducerId, Timestamp, TopicId};
use thalweg_storage::retention::{DeleteReason, KeepReason};
use thalweg_storage::{
    AppendError, AppendOrigin, LogConfig, LogDir, LogDirConfig, LogDirError, OpenError, PartitionLog, ReadError,
};
use thalweg_world::disk::{Disk, Fault, OpenMode, Operation, SimDisk, Survival};

#[test]
fn what_is_appended_is_read_across_segments() {
    let (_disk, _dir, mut log) = new_log(small_config());
    let mut expected = Vec::new();
    for i in 0..40 {
        let mut bytes = batch(i, 1 + i % 4);
        let info = log.append(&mut bytes, Timestamp(5), LeaderEpoch(0), AppendOrigin::Client).unwrap();
        assert_eq!(info.last_offset, Offset(log.log_end_offset().0 - 1));
        expected.extend_from_slice(&bytes);
    }
    let view = log.view();
    assert!(view.segment_count() >= 3, "{}", view.segment_count());
    assert_eq!(contents(&view), expected);
    assert_eq!(view.size_bytes(), expected.len() as u64);
}

#[test]
fn a_drain_of_many_is_answered_one_by_one() {
    let (_disk, _dir, mut log) = new_log(small_config());
    let mut batches = [idempotent(1, 0, 0, 2), idempotent(1, 0, 5, 1), idempotent(1, 0, 0, 2), idempotent(1, 0, 2, 1)];
    let mut slices: Vec<&mut [u8]> = batches.iter_mut().map(Vec::as_mut_slice).collect();
    let results = log.append_many(&mut slices, Timestamp(5), LeaderEpoch(0), AppendOrigin::Client);
    assert_eq!(results[0].as_ref().unwrap().base_offset, Offset(0));
    assert!(matches!(results[1], Err(AppendError::Producer(_))));
    let repeat = results[2].as_ref().unwrap();
    assert!(repeat.duplicate && repeat.base_offset == Offset(0));
    assert_eq!(results[3].as_ref().unwrap().base_offset, Offset(2));
    assert_eq!(log.log_end_offset(), Offset(3));
}

#[test]
fn a_slice_ends_on_a_batch_within_every_bound() {
    let (_disk, _dir, mut log) = new_log(LogConfig { segment_bytes: 1 << 20, ..small_config() });
    let mut ends = vec![(Offset(0), 0u64)];
    for i in 0..60 {
        let bytes = batch(i, 1 + i % 3);
        let len = bytes.len() as u64;
        append(&mut log, bytes).unwrap();
        ends.push((log.log_end_offset(), ends.last().unwrap().1 + len));
    }
    let view = log.view();
    for from in 0..log.log_end_offset().0 {
        let first = ends.partition_point(|(offset, _)| offset.0 <= from) - 1;
        for bound in [from, from + 1, from + 7, from + 30, i64::MAX] {
            for max_bytes in [0, 1, 150, 1000, 5000, usize::MAX / 2] {
                for at_least_one in [true, false] {
                    let slice = view.read(Offset(from), Offset(bound), max_bytes, at_least_one).unwrap();
                    let fits = |end: &&(Offset, u64)| end.0.0 <= bound && end.1 - ends[first].1 <= max_bytes as u64;
                    let mut last = ends
                        .iter()
                        .rev()
                        .find(fits)
                        .map_or(first, |end| ends.iter().position(|e| e == end).unwrap().max(first));
                    if last == first && at_least_one && ends[first + 1].0.0 <= bound {
                        last += 1;
                    }
                    let context = format!("{from} {bound} {max_bytes} {at_least_one}");
                    assert_eq!(slice.len as u64, ends[last].1 - ends[first].1, "{context}");
                    if last > first {
                        assert_eq!((slice.first_offset, slice.next_offset), (ends[first].0, ends[last].0), "{context}");
                        assert_eq!(slice.position, ends[first].1);
                        assert_eq!(slice.to_segment_end, last == ends.len() - 1, "{context}");
                    }
                }
            }
        }
    }
}

#[test]
fn only_positions_outside_the_log_are_out_of_range() {
    let (_disk, _dir, mut log) = new_log(small_config());
    for i in 0..10 {
        append(&mut log, batch(i, 2)).unwrap();
    }
    log.advance_log_start(Offset(5)).unwrap();
    let view = log.view();
    assert!(matches!(view.read(Offset(4), Offset::MAX, 100, true), Err(ReadError::OutOfRange { .. })));
    assert_eq!(view.read(Offset(5), Offset::MAX, 1, true).unwrap().first_offset, Offset(4));
    assert!(view.read(Offset(20), Offset::MAX, 100, true).unwrap().is_empty());
    assert!(matches!(view.read(Offset(21), Offset::MAX, 100, true), Err(ReadError::OutOfRange { .. })));
}

#[test]
fn a_reopened_log_is_the_same() {
    let (disk, dir, mut log) = new_log(small_config());
    for i in 0..30 {
        append(&mut log, idempotent(i % 3, 0, (i / 3) as i32, 1)).unwrap();
    }
    let before = (contents(&log.view()), log.producer_state(), log.log_end_offset());
    drop((log, dir));
    let dir = open_dir(&disk).unwrap();
    let log = open_log(&dir, small_config()).unwrap();
    assert_eq!((contents(&log.view()), log.producer_state(), log.log_end_offset()), before);
    assert_eq!(log.flushed_offset(), log.log_end_offset());
}

#[test]
fn after_a_clean_close_nothing_is_scanned() {
    let (disk, dir, mut log) = new_log(LogConfig { segment_bytes: 1 << 20, ..small_config() });
    for i in 0..200 {
        append(&mut log, batch(i, 1)).unwrap();
    }
    log.close().unwrap();
    dir.write_checkpoints().unwrap();
    dir.mark_clean(Some(17)).unwrap();
    drop(dir);
    let dir = open_dir(&disk).unwrap();
    assert_eq!(dir.clean_stop().unwrap().broker_epoch, Some(17));
    let log = open_log(&dir, LogConfig { segment_bytes: 1 << 20, ..small_config() }).unwrap();
    assert!(log.recovery_report().scanned_bytes <= 600, "{:?}", log.recovery_report());
    drop((log, dir));
    assert_eq!(open_dir(&disk).unwrap().clean_stop(), None, "the mark is for one start only");
}

#[test]
fn a_flush_makes_exactly_what_came_before_it_durable() {
    let (_disk, _dir, mut log) = new_log(small_config());
    append(&mut log, batch(1, 3)).unwrap();
    let ticket = log.flush_ticket().unwrap();
    append(&mut log, batch(2, 2)).unwrap();
    assert!(log.flush_ticket().is_none(), "one at a time");
    assert_eq!(log.flushed_offset(), Offset(0));
    let outcome = ticket.sync();
    assert_eq!(log.flushed(outcome).unwrap(), Offset(3));
    flush(&mut log);
    assert_eq!(log.view().flushed_offset(), Offset(5));
    assert!(log.flush_ticket().is_none(), "nothing to do");
}

#[test]
fn a_ticket_from_before_a_truncation_says_nothing_about_what_came_after() {
    let (_disk, _dir, mut log) = new_log(small_config());
    append(&mut log, batch(1, 5)).unwrap();
    append(&mut log, batch(2, 5)).unwrap();
    let ticket = log.flush_ticket().unwrap();
    log.truncate_to(Offset(5)).unwrap();
    append(&mut log, batch(3, 5)).unwrap();
    let outcome = ticket.sync();
    assert_eq!(log.flushed(outcome).unwrap(), Offset(5));
}

#[test]
fn a_failed_sync_or_write_stops_everything_for_good() {
    for operation in [Operation::SyncData, Operation::Write] {
        let (disk, dir, mut log) = new_log(small_config());
        append(&mut log, batch(1, 1)).unwrap();
        disk.inject(Fault { operation, skip: 0, error: std::io::ErrorKind::Other, short: 10 });
        if operation == Operation::Write {
            assert!(matches!(append(&mut log, batch(2, 1)), Err(AppendError::LogDirOffline)));
        } else {
            let outcome = log.flush_ticket().unwrap().sync();
            assert!(log.flushed(outcome).is_err());
        }
        assert!(dir.is_offline());
        assert!(matches!(append(&mut log, batch(3, 1)), Err(AppendError::LogDirOffline)));
        assert!(log.flush_ticket().is_none());
        assert!(log.truncate_to(Offset(0)).is_err());
        assert_eq!((log.flushed_offset(), log.view().log_end_offset()), (Offset(0), Offset(1)));
        assert!(!log.view().read(Offset(0), Offset(1), 1000, true).unwrap().is_empty(), "reads go on");
    }
}

/// Goal: a restart does not forget that the disk failed, nor promise records that the kernel has given up writing (REPLICATION
/// B2, G5). Method: a sync fails and the process ends; the next life takes what it reads for durable, then the power fails.
#[test]
fn what_a_failed_sync_left_is_written_anew_by_the_next_life() {
    let (disk, dir, mut log) = new_log(small_config());
    append(&mut log, batch(1, 5)).unwrap();
    flush(&mut log);
    append(&mut log, batch(2, 5)).unwrap();
    disk.inject(Fault { operation: Operation::SyncData, skip: 0, error: std::io::ErrorKind::Other, short: 0 });
    let outcome = log.flush_ticket().unwrap().sync();
    assert!(log.flushed(outcome).is_err());
    assert!(!dir.is_doubtful() && dir.notes_its_failure());
    drop((log, dir));

    let dir = open_dir(&disk).unwrap();
    assert!(dir.is_doubtful() && !dir.is_offline());
    let log = open_log(&dir, small_config()).unwrap();
    assert_eq!(log.flushed_offset(), Offset(10));
    dir.forget_failures().unwrap();
    assert!(!dir.is_doubtful());
    drop((log, dir));

    let after = disk.crash(&mut |_| Survival::Lost);
    let dir = open_dir(&after).unwrap();
    assert!(!dir.is_doubtful(), "it was forgotten durably");
    assert_eq!(open_log(&dir, small_config()).unwrap().log_end_offset(), Offset(10));
}

/// Goal: a dir that cannot even be marked is remembered by another one of the broker, and is marked as soon as that is possible.
#[test]
fn a_dir_that_cannot_be_written_to_is_named_in_another() {
    let (disk, dir, mut log) = new_log(small_config());
    append(&mut log, batch(1, 5)).unwrap();
    let fail = |operation| {
        disk.inject(Fault { operation, skip: 0, error: std::io::ErrorKind::Other, short: 0 });
    };
    fail(Operation::SyncData);
    fail(Operation::Create);
    let outcome = log.flush_ticket().unwrap().sync();
    assert!(log.flushed(outcome).is_err());
    let other_path = Path::new("/other");
    let open_other = || LogDir::open(Arc::new(disk.clone()), other_path, &identity(), LogDirConfig::default()).unwrap();
    let other = open_other();
    other.note_failure_of(dir.directory_id()).unwrap();
    drop(other);
    let other = open_other();
    assert_eq!((other.failed_others(), other.is_doubtful()), (&[dir.directory_id()][..], false));
    other.forget_failures().unwrap();
    drop(other);
    assert_eq!(open_other().failed_others(), []);

    assert!(dir.notes_its_failure(), "it is tried again");
    drop((log, dir));
    assert!(open_dir(&disk).unwrap().is_doubtful());
}

/// Goal: a sync that failed is not tried again by the next opening, which would hear "fine" (REPLICATION G2).
#[test]
fn a_log_whose_recovery_cannot_be_synced_takes_its_dir_offline() {
    let (disk, dir, mut log) = new_log(small_config());
    append(&mut log, batch(1, 5)).unwrap();
    drop((log, dir));
    let dir = open_dir(&disk).unwrap();
    disk.inject(Fault { operation: Operation::SyncData, skip: 0, error: std::io::ErrorKind::Other, short: 0 });
    for _ in 0..2 {
        assert!(matches!(open_log(&dir, small_config()), Err(OpenError::LogDirOffline)));
    }
    drop(dir);
    assert!(open_dir(&disk).unwrap().is_doubtful());
}

#[test]
fn a_full_disk_refuses_appends_and_heals() {
    let (disk, dir, mut log) = new_log(small_config());
    append(&mut log, batch(1, 1)).unwrap();
    let reserve = LogDirConfig::default().reserve_bytes;
    drop((log, dir));
    disk.set_free_bytes(reserve);
    let dir = open_dir(&disk).unwrap();
    let mut log = open_log(&dir, small_config()).unwrap();
    match append(&mut log, batch(2, 1)) {
        Err(AppendError::DiskFull { free_bytes, .. }) => assert!(free_bytes <= reserve),
        other => panic!("{other:?}"),
    }
    assert!(!dir.is_offline());
    assert!(!log.view().read(Offset(0), Offset(1), 1000, true).unwrap().is_empty());
    disk.set_free_bytes(reserve + 100_000);
    append(&mut log, batch(2, 1)).unwrap();
    let refused = (0..2000).position(|i| append(&mut log, batch(i, 1)).is_err());
    assert!(refused.is_some(), "the reserve is kept");
    assert!(disk.free_bytes(Path::new("/")).unwrap() >= reserve - 60_000);
}

#[test]
fn the_active_segment_rolls_by_time_and_retention_empties_a_silent_log() {
    let config = LogConfig { segment_ms: 1000, retention_ms: 5000, ..LogConfig::default() };
    let (_disk, _dir, mut log) = new_log(config);
    append(&mut log, batch(0, 3)).unwrap();
    assert!(!log.roll_if_due(Timestamp(1999)).unwrap());
    assert!(log.roll_if_due(Timestamp(2000)).unwrap());
    assert!(!log.roll_if_due(Timestamp(9000)).unwrap(), "an empty segment stays");
    append(&mut log, batch(1, 3)).unwrap();
    let kept = log.why_kept(Timestamp(6000), Offset(6)).unwrap();
    assert!(matches!(kept, Some(KeepReason::WithinLimits { age_ms: Some(5000), .. })), "{kept:?}");
    assert!(log.apply_retention(Timestamp(9000), Offset(2)).unwrap().is_empty(), "not above the high watermark");
    let deleted = log.apply_retention(Timestamp(9000), Offset(6)).unwrap();
    assert_eq!(deleted.len(), 2);
    assert!(matches!(deleted[0].reason, DeleteReason::RetentionMs { age_ms: 8000, limit_ms: 5000 }));
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (Offset(6), Offset(6)));
    assert_eq!(append(&mut log, batch(2, 1)).unwrap().base_offset, Offset(6));
}

#[test]
fn a_reader_keeps_a_slice_whose_segment_is_deleted() {
    let (_disk, _dir, mut log) = new_log(LogConfig { retention_bytes: 0, ..small_config() });
    for i in 0..30 {
        append(&mut log, batch(i, 1)).unwrap();
    }
    let slice = log.view().read(Offset(0), Offset::MAX, 300, true).unwrap();
    let before = slice.read().unwrap();
    assert!(!log.apply_retention(Timestamp(0), Offset(30)).unwrap().is_empty());
    assert_eq!(slice.read().unwrap(), before);
    assert!(matches!(log.view().read(Offset(0), Offset::MAX, 300, true), Err(ReadError::OutOfRange { .. })));
}

#[test]
fn truncation_takes_all_that_follows_along() {
    let (disk, dir, mut log) = new_log(small_config());
    for i in 0..40 {
        if i == 25 {
            log.begin_epoch(LeaderEpoch(3)).unwrap();
        }
        append(&mut log, idempotent(1, 0, i, 1)).unwrap();
    }
    flush(&mut log);
    dir.write_checkpoints().unwrap();
    assert_eq!(log.view().epoch_end_offset(LeaderEpoch(0)), Some((LeaderEpoch(0), Offset(25))));
    assert_eq!(log.truncate_to(Offset(17)).unwrap(), Offset(17));
    let view = log.view();
    assert_eq!((view.log_end_offset(), view.flushed_offset()), (Offset(17), Offset(17)));
    assert_eq!(view.latest_epoch(), Some(LeaderEpoch(0)));
    assert_eq!(log.producer_state()[0].last_sequence, 16);
    let repeat = append(&mut log, idempotent(1, 0, 16, 1)).unwrap();
    assert!(repeat.duplicate);
    assert_eq!(append(&mut log, idempotent(1, 0, 17, 1)).unwrap().base_offset, Offset(17));
    let before = (contents(&log.view()), log.producer_state());
    drop((log, dir));
    let dir = open_dir(&disk).unwrap();
    let log = open_log(&dir, small_config()).unwrap();
    assert_eq!((contents(&log.view()), log.producer_state()), before);
}

#[test]
fn a_truncation_inside_a_batch_removes_the_whole_batch() {
    let (_disk, _dir, mut log) = new_log(small_config());
    append(&mut log, batch(1, 5)).unwrap();
    append(&mut log, batch(2, 5)).unwrap();
    assert_eq!(log.truncate_to(Offset(7)).unwrap(), Offset(5));
    assert_eq!(log.truncate_to(Offset(9)).unwrap(), Offset(5));
}

#[test]
fn a_log_can_begin_anew_anywhere() {
    let (disk, dir, mut log) = new_log(small_config());
    for i in 0..40 {
        append(&mut log, idempotent(1, 0, i, 1)).unwrap();
    }
    flush(&mut log);
    dir.write_checkpoints().unwrap();
    log.truncate_fully_and_start_at(Offset(1000)).unwrap();
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (Offset(1000), Offset(1000)));
    assert!(log.producer_state().is_empty() && log.latest_epoch().is_none());
    append(&mut log, batch(1, 2)).unwrap();
    flush(&mut log);
    dir.write_checkpoints().unwrap();
    drop((log, dir));
    let dir = open_dir(&disk).unwrap();
    let log = open_log(&dir, small_config()).unwrap();
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (Offset(1000), Offset(1002)));
}

#[test]
fn a_deleted_prefix_stays_deleted_after_a_restart() {
    let (disk, dir, mut log) = new_log(small_config());
    for i in 0..20 {
        append(&mut log, batch(i, 2)).unwrap();
    }
    flush(&mut log);
    assert_eq!(log.advance_log_start(Offset(31)).unwrap(), Offset(31));
    assert_eq!(log.advance_log_start(Offset(3)).unwrap(), Offset(31), "it never falls");
    assert!(log.advance_log_start(Offset(41)).is_err());
    dir.write_checkpoints().unwrap();
    let deleted = log.apply_retention(Timestamp(0), Offset(40)).unwrap();
    assert!(deleted.iter().all(|d| matches!(d.reason, DeleteReason::LogStart { .. })) && !deleted.is_empty());
    drop((log, dir));
    let dir = open_dir(&disk).unwrap();
    assert_eq!(open_log(&dir, small_config()).unwrap().log_start_offset(), Offset(31));
}

#[test]
fn records_are_found_by_time() {
    let (_disk, _dir, mut log) = new_log(small_config());
    for i in 0..40 {
        append(&mut log, batch(2 * i, 2)).unwrap();
    }
    let view = log.view();
    let at = |timestamp, bound| {
        let found = view.offset_for_timestamp(Timestamp(timestamp), Offset(bound)).unwrap();
        found.map(|hit| (hit.timestamp.0, hit.offset.0, hit.leader_epoch.0))
    };
    assert_eq!(at(0, 80), Some((1000, 0, 0)));
    for i in 1..40 {
        assert_eq!(at(1000 + 2 * i, 80), Some((1000 + 2 * i, 2 * i, 0)));
        assert_eq!(at(1000 + 2 * i - 1, 80), Some((1000 + 2 * i, 2 * i, 0)));
    }
    assert_eq!(at(1079, 80), None);
    assert_eq!(at(1078, 78), None, "never at or above the bound");
    assert_eq!(view.max_timestamp(Offset(80)).unwrap().unwrap().offset, Offset(78));
    assert_eq!(view.max_timestamp(Offset(78)).unwrap().unwrap().offset, Offset(76));
    log.advance_log_start(Offset(33)).unwrap();
    assert_eq!(view.offset_for_timestamp(Timestamp(0), Offset(80)).unwrap().unwrap().offset, Offset(33));
}

#[test]
fn aborted_transactions_are_found_wherever_their_marker_is() {
    let (disk, dir, mut log) = new_log(small_config());
    append(&mut log, transactional(1, 0, 0, 2)).unwrap();
    append(&mut log, transactional(2, 0, 0, 2)).unwrap();
    for i in 0..30 {
        append(&mut log, batch(i, 1)).unwrap();
    }
    assert_eq!(log.last_stable_offset(), Offset(0));
    append(&mut log, marker(2, 0, true)).unwrap();
    append(&mut log, marker(1, 0, false)).unwrap();
    let view = log.view();
    let aborted = view.aborted_transactions(Offset(0), Offset(10)).unwrap();
    assert_eq!(aborted.len(), 1);
    assert_eq!((aborted[0].producer_id, aborted[0].first_offset), (ProducerId(1), Offset(0)));
    assert_eq!(aborted[0].last_offset, Offset(35));
    assert!(view.aborted_transactions(Offset(36), Offset(40)).unwrap().is_empty());
    assert_eq!(log.last_stable_offset(), Offset(0), "the markers are not committed");
    log.advance_high_watermark(Offset(36));
    assert_eq!(log.last_stable_offset(), Offset(36));
    drop((log, dir));
    let dir = open_dir(&disk).unwrap();
    let log = open_log(&dir, small_config()).unwrap();
    assert_eq!(log.view().aborted_transactions(Offset(0), Offset(10)).unwrap(), aborted);
}

#[test]
fn a_follower_takes_the_leaders_bytes_as_they_are() {
    let (_disk, _dir, mut leader) = new_log(small_config());
    for i in 0..20 {
        if i == 10 {
            leader.begin_epoch(LeaderEpoch(4)).unwrap();
        }
        append(&mut leader, idempotent(1, 0, i, 1)).unwrap();
    }
    let bytes = contents(&leader.view());
    let (_disk, _dir, mut follower) = new_log(LogConfig { segment_bytes: 900, ..small_config() });
    for found in thalweg_wire::batch::Batches::new(&bytes) {
        let (header, batch) = found.unwrap();
        let mut batch = batch.to_vec();
        follower.append(&mut batch, Timestamp(1), header.leader_epoch, AppendOrigin::Replica).unwrap();
        let again = follower.append(&mut batch, Timestamp(1), header.leader_epoch, AppendOrigin::Replica);
        assert!(matches!(again, Err(AppendError::OffsetOutOfOrder { .. })));
    }
    assert_eq!(contents(&follower.view()), bytes);
    assert_eq!(follower.producer_state(), leader.producer_state());
    assert_eq!(follower.view().epoch_end_offset(LeaderEpoch(3)), Some((LeaderEpoch(0), Offset(10))));
}

/// Goal: a copy has no holes. Method: the second of three batches is larger than the follower's segments.
#[test]
fn behind_a_batch_that_a_copy_cannot_take_nothing_is_taken() {
    let (_disk, _dir, mut leader) = new_log(LogConfig::default());
    for records in [1, 40, 1] {
        append(&mut leader, batch(0, records)).unwrap();
    }
    let bytes = contents(&leader.view());
    let found = thalweg_wire::batch::Batches::new(&bytes).map(|found| found.unwrap().1.to_vec());
    let mut batches: Vec<Vec<u8>> = found.collect();
    let segment_bytes = u32::try_from(batches[1].len() - 1).unwrap();
    let (_disk, _dir, mut follower) = new_log(LogConfig { segment_bytes, ..LogConfig::default() });
    let mut batches: Vec<&mut [u8]> = batches.iter_mut().map(|batch| &mut batch[..]).collect();
    let results = follower.append_many(&mut batches, Timestamp(1), LeaderEpoch(0), AppendOrigin::Replica);
    assert!(results[0].is_ok());
    assert!(matches!(results[1], Err(AppendError::BatchTooLarge { .. })));
    assert!(matches!(results[2], Err(AppendError::OffsetOutOfOrder { log_end_offset: Offset(1), .. })));
    assert_eq!(follower.log_end_offset(), Offset(1));
}

/// Goal: a replica that led and wrote nothing can copy older records of its next leader. Method: epoch 3 without records, then
/// a batch of epoch 0; forgetting is durable.
#[test]
fn an_epoch_without_records_is_forgotten_durably() {
    let (_disk, _dir, mut leader) = new_log(small_config());
    append(&mut leader, batch(0, 1)).unwrap();
    let bytes = contents(&leader.view());
    let (disk, dir, mut log) = new_log(small_config());
    log.begin_epoch(LeaderEpoch(3)).unwrap();
    let copy = |log: &mut PartitionLog| {
        log.append(&mut bytes.clone(), Timestamp(1), LeaderEpoch(0), AppendOrigin::Replica).map(|info| info.last_offset)
    };
    assert!(matches!(copy(&mut log), Err(AppendError::OffsetOutOfOrder { .. })));
    log.forget_empty_epochs().unwrap();
    let after = disk.crash(&mut |_| Survival::Lost);
    drop((log, dir));
    let dir = open_dir(&after).unwrap();
    let mut log = open_log(&dir, small_config()).unwrap();
    assert_eq!(log.latest_epoch(), None);
    assert_eq!(copy(&mut log).unwrap(), Offset(0));
    log.forget_empty_epochs().unwrap();
    assert_eq!(log.latest_epoch(), Some(LeaderEpoch(0)));
}

/// Goal: a log whose start falls back with a crash knows the epochs of what comes back. Method: segments of two epochs, all but
/// the last of which no recovery scans; the start moves into the second epoch, and its checkpoint is not written.
#[test]
fn a_start_that_falls_back_brings_the_epochs_below_it_back() {
    let (disk, dir, mut log) = new_log(small_config());
    for i in 0..60 {
        let epoch = LeaderEpoch(i32::from(i >= 20));
        log.append(&mut batch(i, 1), Timestamp(1), epoch, AppendOrigin::Client).unwrap();
    }
    flush(&mut log);
    log.prepare_checkpoint().unwrap();
    dir.write_checkpoints().unwrap();
    log.advance_log_start(Offset(40)).unwrap();
    assert_eq!(
        log.view().epoch_end_offset(LeaderEpoch(0)),
        Some((LeaderEpoch(0), Offset(40))),
        "what is below is gone"
    );
    let after = disk.crash(&mut |_| Survival::Lost);
    drop((log, dir));
    let dir = open_dir(&after).unwrap();
    let log = open_log(&dir, small_config()).unwrap();
    assert_eq!(log.log_start_offset(), Offset(0));
    assert_eq!(log.view().epoch_end_offset(LeaderEpoch(0)), Some((LeaderEpoch(0), Offset(20))));
    assert_eq!(log.view().epoch_end_offset(LeaderEpoch(1)), Some((LeaderEpoch(1), Offset(60))));
}

#[test]
fn the_broker_stamps_records_where_the_topic_says_so() {
    let timestamp_type = thalweg_model::topic_config::TimestampType::LogAppendTime;
    let (_disk, _dir, mut log) = new_log(LogConfig { timestamp_type, ..small_config() });
    let mut bytes = batch(1, 2);
    let info = log.append(&mut bytes, Timestamp(777), LeaderEpoch(0), AppendOrigin::Client).unwrap();
    assert_eq!(info.log_append_time, Timestamp(777));
    thalweg_wire::batch::verify_crc(&bytes).unwrap();
    let hit = log.view().offset_for_timestamp(Timestamp(700), Offset(9)).unwrap().unwrap();
    assert_eq!((hit.timestamp, hit.offset), (Timestamp(777), Offset(0)));
}

#[test]
fn a_log_dir_is_for_one_process_one_cluster_one_node_and_this_version() {
    let disk = SimDisk::new();
    let dir = open_dir(&disk).unwrap();
    assert_eq!((dir.incarnation(), dir.is_same_boot()), (1, false));
    assert!(matches!(open_dir(&disk), Err(LogDirError::InUse { .. })));
    drop(dir);
    let dir = open_dir(&disk).unwrap();
    assert_eq!((dir.incarnation(), dir.is_same_boot()), (2, true));
    assert_eq!(dir.directory_id(), TopicId([9; 16]));
    drop(dir);
    let open = |identity| {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        LogDir::open(disk, dir_path(), &identity, LogDirConfig::default())
    };
    let mut other = identity();
    other.cluster_id = "another".into();
    let error = open(other).unwrap_err();
    assert_eq!(
        error.to_string(),
        "/data belongs to cluster cluster, not to another; correct log.dirs or the cluster id"
    );
    let mut other = identity();
    other.node_id = NodeId(2);
    assert!(matches!(open(other), Err(LogDirError::OtherNode { found: 1, expected: 2, .. })));
    let meta = dir_path().join("meta.properties");
    disk.corrupt(&meta, |bytes| *bytes = b"version=2\n".to_vec()).unwrap();
    let error = open(identity()).unwrap_err().to_string();
    assert!(error.contains("version 2") && error.contains("newer program"), "{error}");
    disk.remove_file(&meta).unwrap();
    disk.create_dir_all(&dir_path().join("topic-0")).unwrap();
    assert!(matches!(open(identity()), Err(LogDirError::Malformed { .. })), "a lost identity is no new disk");
}

#[test]
fn a_deleted_partition_leaves_room_for_its_next_life() {
    let (disk, dir, mut log) = new_log(small_config());
    append(&mut log, batch(1, 1)).unwrap();
    assert!(matches!(dir.open_partition(&tp(), TOPIC_ID, small_config()), Err(OpenError::AlreadyOpen { .. })));
    drop(log);
    let other = TopicId([8; 16]);
    assert!(matches!(dir.open_partition(&tp(), other, small_config()), Err(OpenError::OtherTopicId { .. })));
    dir.delete_partition(&tp()).unwrap();
    assert!(dir.partitions().unwrap().is_empty());
    assert!(matches!(dir.delete_partition(&tp()), Err(OpenError::NotFound { .. })));
    let log = dir.create_partition(&tp(), other, small_config()).unwrap();
    assert_eq!(log.log_end_offset(), Offset(0));
    assert_eq!(dir.partitions().unwrap()[0].topic_id, Some(other));
    assert_eq!(dir.remove_deleted().unwrap(), 1);
    assert_eq!(dir.remove_deleted().unwrap(), 0);
    let names: Vec<String> = disk.list(dir_path()).unwrap().into_iter().map(|entry| entry.name).collect();
    assert!(!names.iter().any(|name| name.ends_with("-delete")), "{names:?}");
}

#[test]
fn a_wrong_index_is_noticed_and_does_no_harm() {
    let (disk, dir, mut log) = new_log(small_config());
    for i in 0..40 {
        append(&mut log, batch(i, 1)).unwrap();
    }
    log.close().unwrap();
    dir.write_checkpoints().unwrap();
    drop(dir);
    for (name, entry) in disk.dump() {
        let name_text = name.to_string_lossy().into_owned();
        if name_text.ends_with("index") && !entry.is_empty() {
            disk.corrupt(&name, |bytes| bytes.iter_mut().step_by(3).for_each(|byte| *byte ^= 0x15)).unwrap();
        }
    }
    let dir = open_dir(&disk).unwrap();
    let log = open_log(&dir, small_config()).unwrap();
    assert_eq!(log.log_end_offset(), Offset(40));
    for from in 0..40 {
        assert_eq!(log.view().read(Offset(from), Offset::MAX, 1, true).unwrap().first_offset, Offset(from));
    }
    disk.open(&partition_path("00000000000000000000.log"), OpenMode::Read).unwrap();
}

#[test]
fn a_flush_that_outlasts_its_deleted_partition_does_no_harm_but_a_name_that_vanishes_does() {
    // A new segment's name is to be synced with it.
    let roll = |log: &mut thalweg_storage::PartitionLog| {
        let segments = log.view().segment_count();
        while log.view().segment_count() == segments {
            append(log, batch(1, 1)).unwrap();
        }
    };
    let (disk, dir, mut log) = new_log(small_config());
    roll(&mut log);
    let ticket = log.flush_ticket().unwrap();
    drop(log);
    dir.delete_partition(&tp()).unwrap();
    assert_eq!(dir.remove_deleted().unwrap(), 1);
    let _ = ticket.sync();
    assert!(!dir.is_offline());

    let mut log = open_log(&dir, small_config()).unwrap();
    roll(&mut log);
    let ticket = log.flush_ticket().unwrap();
    disk.rename(&dir_path().join("topic-0"), &dir_path().join("elsewhere")).unwrap();
    let outcome = ticket.sync();
    assert!(log.flushed(outcome).is_err() && dir.is_offline());
}

/// Goal: a directory that was made stays made. Method: several levels of it are new, and the power is cut at once; then again
/// after a life that made it but died before it synced its name.
#[test]
fn a_new_log_directory_survives_with_all_that_is_above_it() {
    let path = std::path::Path::new("/srv/disk-1/thalweg/logs");
    let open = |disk: &SimDisk| LogDir::open(Arc::new(disk.clone()), path, &identity(), LogDirConfig::default());
    let disk = SimDisk::new();
    let first = open(&disk).unwrap().directory_id();
    let after = disk.crash(&mut |_| Survival::Lost);
    assert!(after.list(path).unwrap().iter().any(|entry| entry.name == "meta.properties"), "{:?}", after.list(path));
    assert_eq!(open(&after).unwrap().directory_id(), first);

    let disk = SimDisk::new();
    disk.create_dir_all(path.parent().unwrap()).unwrap();
    disk.sync_dir(std::path::Path::new("/srv/disk-1")).unwrap();
    disk.sync_dir(std::path::Path::new("/srv")).unwrap();
    disk.sync_dir(std::path::Path::new("/")).unwrap();
    disk.create_dir_all(path).unwrap();
    open(&disk).unwrap();
    assert!(disk.crash(&mut |_| Survival::Lost).list(path).is_ok());
}
