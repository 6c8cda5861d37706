//! A log against a model: random appends, rolls, cuts, deletions, flushes, checkpoints and restarts.

mod support;

use std::collections::BTreeMap;

use proptest::prelude::*;
use support::*;
use thalweg_model::{LeaderEpoch, Offset, Timestamp};
use thalweg_storage::{AppendOrigin, LogConfig, LogDir, PartitionLog};
use thalweg_world::disk::SimDisk;

#[derive(Clone, Debug)]
enum Step {
    /// Records per batch, all in one drain.
    Append(Vec<u8>),
    /// Of producer 1 or 2, the next sequence.
    Idempotent {
        producer: bool,
        count: u8,
    },
    /// The last idempotent batch of that producer once more.
    Repeat {
        producer: bool,
    },
    NewEpoch,
    RollByTime,
    Flush,
    Checkpoint,
    /// Parts of the log, in 256ths.
    Truncate {
        to: u8,
    },
    DeleteRecords {
        to: u8,
    },
    Retain,
    StartAnew {
        ahead: u8,
    },
    Restart {
        clean: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => prop::collection::vec(1u8..12, 1..5).prop_map(Step::Append),
        4 => (any::<bool>(), 1u8..5).prop_map(|(producer, count)| Step::Idempotent { producer, count }),
        2 => any::<bool>().prop_map(|producer| Step::Repeat { producer }),
        1 => Just(Step::NewEpoch),
        1 => Just(Step::RollByTime),
        2 => Just(Step::Flush),
        2 => Just(Step::Checkpoint),
        1 => any::<u8>().prop_map(|to| Step::Truncate { to }),
        1 => any::<u8>().prop_map(|to| Step::DeleteRecords { to }),
        1 => Just(Step::Retain),
        1 => any::<u8>().prop_map(|ahead| Step::StartAnew { ahead }),
        2 => any::<bool>().prop_map(|clean| Step::Restart { clean }),
    ]
}

/// What the log should be.
#[derive(Default)]
struct Model {
    /// Batches by base offset, with their end.
    batches: BTreeMap<i64, (i64, Vec<u8>)>,
    start: i64,
    end: i64,
    epoch: i32,
    now: i64,
    /// By producer: base offset, first sequence, records of each batch.
    produced: [Vec<(i64, i32, i64)>; 2],
}

impl Model {
    fn next_sequence(&self, producer: bool) -> i32 {
        self.produced[usize::from(producer)].last().map_or(0, |(_, sequence, count)| sequence + *count as i32)
    }

    fn cut(&mut self, to: i64) -> i64 {
        let gone = self.batches.iter().find(|(_, (end, _))| *end > to).map_or(self.end, |(base, _)| *base);
        self.batches.retain(|base, _| *base < gone);
        // A cut in the batch that the log's start lies in leaves nothing: the log begins anew at its start.
        let end = gone.max(self.start);
        if gone < self.start {
            self.produced = Default::default();
        }
        self.end = end;
        for produced in &mut self.produced {
            produced.retain(|(base, ..)| *base < end);
        }
        end
    }

    /// The bytes of every batch that holds a readable record.
    fn bytes(&self) -> Vec<u8> {
        self.batches.values().filter(|(end, _)| *end > self.start).flat_map(|(_, bytes)| bytes.clone()).collect()
    }
}

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 900,
        index_interval_bytes: 150,
        segment_ms: 10_000,
        retention_ms: -1,
        retention_bytes: 2000,
        ..LogConfig::default()
    }
}

struct Run {
    disk: SimDisk,
    dir: Option<LogDir>,
    log: Option<PartitionLog>,
    model: Model,
}

impl Run {
    fn log(&mut self) -> &mut PartitionLog {
        self.log.as_mut().unwrap()
    }

    fn append(&mut self, batches: Vec<Vec<u8>>) {
        let (now, epoch) = (Timestamp(self.model.now), LeaderEpoch(self.model.epoch));
        let mut batches = batches;
        let mut slices: Vec<&mut [u8]> = batches.iter_mut().map(Vec::as_mut_slice).collect();
        let results = self.log().append_many(&mut slices, now, epoch, AppendOrigin::Client);
        for (result, bytes) in results.into_iter().zip(batches) {
            let info = result.unwrap();
            assert!(!info.duplicate && info.base_offset.0 == self.model.end);
            self.model.end = info.last_offset.0 + 1;
            self.model.batches.insert(info.base_offset.0, (self.model.end, bytes));
        }
    }

    fn apply(&mut self, step: &Step) {
        let span = self.model.end - self.model.start;
        match step {
            Step::Append(counts) => {
                let tag = self.model.now % 50;
                self.append(counts.iter().map(|count| batch(tag, i64::from(*count))).collect());
            }
            Step::Idempotent { producer, count } => {
                let sequence = self.model.next_sequence(*producer);
                let (base, count) = (self.model.end, i64::from(*count));
                self.append(vec![idempotent(i64::from(*producer), 0, sequence, count)]);
                self.model.produced[usize::from(*producer)].push((base, sequence, count));
            }
            Step::Repeat { producer } => {
                let Some((base, sequence, count)) = self.model.produced[usize::from(*producer)].last().copied() else {
                    return;
                };
                let info = append(self.log(), idempotent(i64::from(*producer), 0, sequence, count)).unwrap();
                assert!(info.duplicate && info.base_offset.0 == base);
            }
            Step::NewEpoch => {
                self.model.epoch += 1;
                let epoch = LeaderEpoch(self.model.epoch);
                self.log().begin_epoch(epoch).unwrap();
            }
            Step::RollByTime => {
                self.model.now += 20_000;
                let now = Timestamp(self.model.now);
                self.log().roll_if_due(now).unwrap();
            }
            Step::Flush => {
                flush(self.log());
                assert_eq!(self.log().flushed_offset(), self.log().log_end_offset());
            }
            Step::Checkpoint => {
                self.log().prepare_checkpoint().unwrap();
                self.dir.as_ref().unwrap().write_checkpoints().unwrap();
            }
            Step::Truncate { to } => {
                let to = self.model.start + span * i64::from(*to) / 256;
                if to < self.model.end {
                    let found = self.log().truncate_to(Offset(to)).unwrap();
                    assert_eq!(found.0, self.model.cut(to));
                }
            }
            Step::DeleteRecords { to } => {
                let to = self.model.start + span * i64::from(*to) / 256;
                self.log().advance_log_start(Offset(to)).unwrap();
                self.dir.as_ref().unwrap().write_checkpoints().unwrap();
                self.model.start = to;
            }
            Step::Retain => {
                let (now, end) = (Timestamp(self.model.now), Offset(self.model.end));
                self.log().apply_retention(now, end).unwrap();
                let start = self.log().log_start_offset().0;
                assert!(start >= self.model.start);
                self.model.start = start;
                let first_base = self.log().view().first_base_offset().0;
                self.model.batches.retain(|base, _| *base >= first_base);
            }
            Step::StartAnew { ahead } => {
                let at = self.model.end + i64::from(*ahead);
                self.log().truncate_fully_and_start_at(Offset(at)).unwrap();
                let epoch = self.model.epoch;
                self.model = Model { start: at, end: at, epoch, now: self.model.now, ..Model::default() };
            }
            Step::Restart { clean } => {
                let log = self.log.take().unwrap();
                let dir = self.dir.take().unwrap();
                if *clean {
                    log.close().unwrap();
                    dir.write_checkpoints().unwrap();
                } else {
                    // A killed process: what the kernel has, stays.
                    drop(log);
                }
                drop(dir);
                let dir = open_dir(&self.disk).unwrap();
                self.log = Some(open_log(&dir, config()).unwrap());
                self.dir = Some(dir);
                // A start that delete-records did not store follows from the segments.
                self.model.start = self.log().log_start_offset().0;
            }
        }
    }

    fn check(&mut self) {
        let view = self.log().view();
        assert_eq!((view.log_start_offset().0, view.log_end_offset().0), (self.model.start, self.model.end));
        assert!(view.flushed_offset() <= view.log_end_offset());
        assert!(contents(&view) == self.model.bytes());
        let producers = self.log().producer_state();
        for (id, produced) in self.model.produced.iter().enumerate() {
            let known = producers.iter().find(|p| p.producer_id.0 == id as i64);
            let last = produced.last().map(|(_, sequence, count)| sequence + *count as i32 - 1);
            assert_eq!(known.map(|p| p.last_sequence), last, "producer {id}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]
    /// Goal: no sequence of changes makes the log differ from a list of batches.
    #[test]
    fn a_log_is_what_its_history_says(steps in prop::collection::vec(step(), 1..60)) {
        let (disk, dir, log) = new_log(config());
        let mut run = Run { disk, dir: Some(dir), log: Some(log), model: Model::default() };
        run.model.now = 1000;
        for step in &steps {
            run.apply(step);
            run.check();
        }
    }
}
