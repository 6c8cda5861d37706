use bytes::Bytes;
use thalweg_model::{PartitionIndex, ProducerId, TopicName};

use super::*;
use crate::producer::record::BATCH_HEADER_BYTES;

/// A machine whose batches hold `per_batch` records of the kind that [`Bench::append`] makes.
struct Bench {
    machine: Accumulator,
    now: MonoTime,
    deliveries: Vec<Delivery>,
}

const LEADER: NodeId = NodeId(1);

fn tp(partition: i32) -> TopicPartition {
    TopicPartition::new(TopicName::new("t").unwrap(), PartitionIndex(partition))
}

fn record(i: usize) -> BatchRecord {
    BatchRecord { timestamp: Timestamp(0), key: None, value: Some(Bytes::from(format!("{i:04}"))), headers: Vec::new() }
}

impl Bench {
    fn new(per_batch: usize, idempotent: bool) -> Bench {
        let config = AccumulatorConfig {
            batch_bytes: BATCH_HEADER_BYTES + per_batch * record(0).bytes_max(),
            request_bytes_max: 1 << 20,
            linger: Duration::from_millis(5),
            delivery_timeout: Duration::from_secs(10),
            retry_backoff: Duration::from_millis(100),
            idempotent,
        };
        let mut machine = Accumulator::new(config);
        machine.set_identity(Identity { producer_id: ProducerId(7), epoch: ProducerEpoch(0) });
        Bench { machine, now: MonoTime::ZERO, deliveries: Vec::new() }
    }

    fn append(&mut self, count: usize) {
        for _ in 0..count {
            let (delivery, _) = self.machine.append(&tp(0), record(self.deliveries.len()), self.now);
            self.deliveries.push(delivery);
        }
    }

    fn pass_ms(&mut self, ms: u64) {
        self.now = self.now.plus_ms(ms);
    }

    /// Has one record written, so that the broker knows the producer; the next sequence is 1.
    fn establish(&mut self) {
        self.append(1);
        self.machine.flush();
        let sent = self.sent();
        self.write(&sent[0], 0);
    }

    /// What leaves now.
    fn sent(&mut self) -> Vec<Outbound> {
        let plan = self.machine.plan(self.now, |_| Some(LEADER), |_| 5);
        plan.requests.into_iter().flat_map(|(_, batches)| batches).collect()
    }

    fn fail(&mut self, batch: &Outbound, code: ErrorCode) {
        let error = ClientError::from_code(code as i16, "t-0", None);
        self.machine.on_failed(&batch.tp, batch.id, error, true, self.now);
    }

    fn lose(&mut self, batch: &Outbound) {
        let error = ClientError::Disconnected { address: "a".into(), cause: "gone".into() };
        self.machine.on_failed(&batch.tp, batch.id, error, true, self.now);
    }

    fn write(&mut self, batch: &Outbound, base_offset: i64) {
        self.machine.on_written(&batch.tp, batch.id, Offset(base_offset), Timestamp::NONE);
    }

    fn fate(&self, record: usize) -> Option<Fate> {
        let (mut outcome, mut index) = (Arc::clone(&self.deliveries[record].outcome), self.deliveries[record].index);
        loop {
            match outcome.get().cloned() {
                Some(Fate::Split { at, first, .. }) if index < at => outcome = first,
                Some(Fate::Split { at, second, .. }) => {
                    index -= at;
                    outcome = second;
                }
                fate => return fate,
            }
        }
    }

    fn is_written(&self, record: usize) -> bool {
        matches!(self.fate(record), Some(Fate::Written { .. }))
    }
}

fn bases(batches: &[Outbound]) -> Vec<i32> {
    batches.iter().map(|batch| batch.sequence.unwrap().base).collect()
}

fn epochs(batches: &[Outbound]) -> Vec<i16> {
    batches.iter().map(|batch| batch.sequence.unwrap().identity.epoch.0).collect()
}

#[test]
fn a_full_batch_leaves_at_once_and_another_after_its_linger() {
    let mut bench = Bench::new(2, true);
    bench.establish();
    bench.append(3);
    assert_eq!(bench.sent().iter().map(|batch| batch.records.len()).collect::<Vec<_>>(), [2]);
    let plan = bench.machine.plan(bench.now, |_| Some(LEADER), |_| 5);
    assert_eq!(plan.next_at, Some(MonoTime::ZERO.plus_ms(5)));
    bench.pass_ms(5);
    assert_eq!(bench.sent().len(), 1);
}

#[test]
fn five_batches_are_under_way_at_most_with_consecutive_sequences() {
    let mut bench = Bench::new(2, true);
    bench.establish();
    bench.append(14);
    let sent = bench.sent();
    assert_eq!(bases(&sent), [1, 3, 5, 7, 9]);
    assert!(bench.sent().is_empty());
    bench.write(&sent[0], 1);
    assert_eq!(bases(&bench.sent()), [11]);
}

/// Goal: a broker that does not know the producer yet writes the first batch first. Method: nothing else leaves
/// until it is acknowledged, also when it has to be sent again.
#[test]
fn the_first_batch_under_an_identity_goes_alone() {
    let mut bench = Bench::new(1, true);
    bench.append(3);
    let sent = bench.sent();
    assert_eq!(bases(&sent), [0]);
    bench.fail(&sent[0], ErrorCode::NotLeaderOrFollower);
    bench.pass_ms(100);
    let again = bench.sent();
    assert_eq!(bases(&again), [0]);
    bench.write(&again[0], 0);
    assert_eq!(bases(&bench.sent()), [1, 2]);
}

#[test]
fn without_idempotence_one_batch_is_under_way_so_that_order_is_kept() {
    let mut bench = Bench::new(2, false);
    bench.append(6);
    let sent = bench.sent();
    assert_eq!(sent.len(), 1);
    bench.lose(&sent[0]);
    assert!(bench.sent().is_empty(), "the retry waits, and nothing passes it");
    bench.pass_ms(100);
    assert_eq!(bench.sent()[0].id, sent[0].id);
}

/// Goal: order over retries. Method: the first of three is lost, so the broker refuses the others; all come again
/// with their sequences, one after the other until the first is in.
#[test]
fn batches_behind_a_lost_one_are_sent_again_in_order_with_their_sequences() {
    let mut bench = Bench::new(1, true);
    bench.establish();
    bench.append(3);
    let first = bench.sent();
    bench.lose(&first[0]);
    bench.fail(&first[1], ErrorCode::OutOfOrderSequenceNumber);
    bench.fail(&first[2], ErrorCode::OutOfOrderSequenceNumber);
    bench.pass_ms(100);
    let again = bench.sent();
    assert_eq!(bases(&again[..1]), [1]);
    let mut all = again;
    while all.len() < 3 {
        let last = all.last().unwrap().clone();
        bench.write(&last, 0);
        let next = bench.sent();
        assert!(!next.is_empty());
        all.extend(next);
    }
    assert_eq!((bases(&all), epochs(&all)), (vec![1, 2, 3], vec![0, 0, 0]));
}

/// Goal: a batch that fails for good does not take those behind it along. Method: the first of three is refused,
/// the others get 45, and go on from 0 under the next epoch.
#[test]
fn after_a_gap_the_partition_goes_on_under_the_next_epoch() {
    let mut bench = Bench::new(1, true);
    bench.establish();
    bench.append(3);
    let sent = bench.sent();
    bench.fail(&sent[0], ErrorCode::InvalidRecord);
    bench.fail(&sent[1], ErrorCode::OutOfOrderSequenceNumber);
    assert!(bench.sent().is_empty(), "the third is still under way with the old epoch");
    bench.fail(&sent[2], ErrorCode::OutOfOrderSequenceNumber);
    let first = bench.sent();
    bench.write(&first[0], 1);
    let second = bench.sent();
    bench.write(&second[0], 2);
    let again = [first, second].concat();
    assert_eq!((bases(&again), epochs(&again)), (vec![0, 1], vec![1, 1]));
    assert!(matches!(bench.fate(1), Some(Fate::Failed(_))));
    assert!(bench.is_written(2) && bench.is_written(3));
}

/// Goal: no standstill behind a gap. Method: the second of three comes back while the first is still under way and
/// keeps its sequence; then the first fails for good.
#[test]
fn a_batch_that_kept_its_sequence_does_not_block_those_that_lost_theirs() {
    let mut bench = Bench::new(1, true);
    bench.establish();
    bench.append(3);
    let sent = bench.sent();
    bench.fail(&sent[1], ErrorCode::OutOfOrderSequenceNumber);
    bench.lose(&sent[2]);
    bench.fail(&sent[0], ErrorCode::InvalidRecord);
    bench.pass_ms(100);
    let mut epochs_seen = Vec::new();
    for _ in 0..10 {
        for batch in bench.sent() {
            let sequence = batch.sequence.unwrap();
            epochs_seen.push(sequence.identity.epoch.0);
            if sequence.identity.epoch.0 == 0 {
                bench.fail(&batch, ErrorCode::OutOfOrderSequenceNumber);
            } else {
                bench.write(&batch, 1);
            }
        }
        bench.pass_ms(100);
    }
    assert!((1..4).all(|record| bench.fate(record).is_some()), "{epochs_seen:?}");
    assert!(bench.is_written(2));
}

#[test]
fn a_refused_batch_with_nothing_behind_it_leaves_its_sequence_to_the_next() {
    let mut bench = Bench::new(1, true);
    bench.append(1);
    let sent = bench.sent();
    bench.fail(&sent[0], ErrorCode::InvalidRecord);
    bench.append(1);
    let next = bench.sent();
    assert_eq!((bases(&next), epochs(&next)), (vec![0], vec![0]));
}

/// Goal: no record is written twice. Method: a batch whose fate is unknown must not get a new sequence, whatever
/// the broker says of it next.
#[test]
fn a_batch_that_may_be_written_never_gets_another_sequence() {
    for code in [ErrorCode::OutOfOrderSequenceNumber, ErrorCode::InvalidProducerEpoch] {
        let mut bench = Bench::new(1, true);
        bench.append(1);
        let sent = bench.sent();
        bench.lose(&sent[0]);
        bench.pass_ms(100);
        let again = bench.sent();
        assert_eq!(again[0].sequence, sent[0].sequence);
        bench.fail(&again[0], code);
        assert!(matches!(bench.fate(0), Some(Fate::Failed(_))), "{code:?}");
        bench.pass_ms(1_000);
        bench.append(1);
        let next = bench.sent();
        assert_eq!((bases(&next), epochs(&next)), (vec![0], vec![1]), "{code:?}");
    }
}

#[test]
fn a_batch_that_was_written_by_an_earlier_try_counts_as_written() {
    let mut bench = Bench::new(1, true);
    bench.append(1);
    let sent = bench.sent();
    bench.fail(&sent[0], ErrorCode::DuplicateSequenceNumber);
    assert!(bench.is_written(0));
}

#[test]
fn a_batch_too_large_is_halved_until_the_one_record_at_fault_remains() {
    let mut bench = Bench::new(4, true);
    bench.append(4);
    let mut rounds = 0;
    loop {
        let sent = bench.sent();
        if sent.is_empty() {
            break;
        }
        rounds += 1;
        assert!(rounds < 20);
        for batch in sent {
            if batch.records.iter().any(|record| record.value.as_deref() == Some(b"0002")) {
                bench.fail(&batch, ErrorCode::MessageTooLarge);
            } else {
                bench.write(&batch, 0);
            }
        }
    }
    assert!(bench.is_written(0) && bench.is_written(1) && bench.is_written(3));
    assert!(matches!(bench.fate(2), Some(Fate::Failed(_))));
}

#[test]
fn a_record_that_waits_too_long_fails_and_says_whether_it_may_be_written() {
    let mut bench = Bench::new(1, true);
    bench.establish();
    bench.append(2);
    let sent = bench.sent();
    bench.lose(&sent[0]);
    bench.fail(&sent[1], ErrorCode::NotLeaderOrFollower);
    bench.pass_ms(10_000);
    assert!(bench.sent().is_empty());
    for (record, expected) in [(1, true), (2, false)] {
        match bench.fate(record) {
            Some(Fate::Failed(ClientError::DeliveryTimedOut { unknown, last, .. })) => {
                assert_eq!(unknown, expected);
                assert!(last.is_some());
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn every_byte_that_was_taken_is_given_back() {
    let mut bench = Bench::new(3, true);
    bench.establish();
    assert_eq!(bench.machine.take_freed_bytes(), record(0).bytes_max());
    bench.append(8);
    bench.machine.flush();
    let sent = bench.sent();
    assert_eq!(bench.machine.take_freed_bytes(), 0);
    bench.write(&sent[0], 0);
    bench.fail(&sent[1], ErrorCode::InvalidRecord);
    bench.machine.fail_all(&ClientError::Closed);
    assert_eq!(bench.machine.take_freed_bytes(), 8 * record(0).bytes_max());
    assert!((0..9).all(|i| bench.fate(i).is_some()));
}

#[test]
fn sequences_start_again_at_0_after_the_largest() {
    assert_eq!(sequence_after(i32::MAX, 1), 0);
    assert_eq!(sequence_after(i32::MAX - 1, 5), 3);
    assert_eq!(sequence_after(0, 5), 5);
}

#[test]
fn without_a_producer_id_nothing_leaves_and_one_is_asked_for() {
    let mut bench = Bench::new(1, true);
    bench.machine.identity = None;
    bench.append(1);
    let plan = bench.machine.plan(bench.now, |_| Some(LEADER), |_| 5);
    assert!(plan.identity_wanted && plan.requests.is_empty());
}

#[test]
fn a_request_stays_below_its_limit_and_holds_a_partition_once() {
    let mut bench = Bench::new(1, true);
    let size = BATCH_HEADER_BYTES + record(0).bytes_max();
    bench.machine.config.request_bytes_max = 2 * size;
    for partition in 0..3 {
        for _ in 0..2 {
            bench.machine.append(&tp(partition), record(0), bench.now);
        }
    }
    let plan = bench.machine.plan(bench.now, |_| Some(LEADER), |_| 5);
    let mut last_ids: BTreeMap<TopicPartition, BatchId> = BTreeMap::new();
    for (_, batches) in &plan.requests {
        assert!(batches.len() <= 2);
        for batch in batches {
            let before = last_ids.insert(batch.tp.clone(), batch.id);
            assert!(before.is_none_or(|before| before < batch.id), "in order over requests");
        }
        let partitions: std::collections::BTreeSet<_> = batches.iter().map(|batch| &batch.tp).collect();
        assert_eq!(partitions.len(), batches.len());
    }
}
