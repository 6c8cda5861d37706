//! The accumulator against a model of a broker and a network that loses things.

use std::collections::VecDeque;

use bytes::Bytes;
use proptest::prelude::*;
use thalweg_model::{PartitionIndex, ProducerId, TopicName};

use super::*;
use crate::producer::record::BATCH_HEADER_BYTES;

/// A partition as a broker keeps it: its log, and what it knows of the producer (KIP-98).
#[derive(Default)]
struct Broker {
    log: Vec<u32>,
    known: Option<(i16, i32)>,
    recent: VecDeque<(Sequence, i64)>,
}

impl Broker {
    /// Writes a batch, or says why not.
    fn produce(&mut self, batch: &Outbound) -> Result<i64, ErrorCode> {
        let sequence = batch.sequence.expect("the producer is idempotent");
        let count = i32::try_from(batch.records.len()).unwrap();
        if let Some((_, base_offset)) = self.recent.iter().find(|(known, _)| *known == sequence) {
            return Ok(*base_offset);
        }
        match self.known {
            // Nothing is known: any sequence is taken as the first.
            None => {}
            Some((epoch, _)) if sequence.identity.epoch.0 < epoch => return Err(ErrorCode::InvalidProducerEpoch),
            Some((epoch, next)) => {
                let due = if sequence.identity.epoch.0 > epoch { 0 } else { next };
                if sequence.base != due {
                    return Err(ErrorCode::OutOfOrderSequenceNumber);
                }
            }
        }
        let base_offset = self.log.len() as i64;
        self.log.extend(batch.records.iter().map(value_of));
        self.known = Some((sequence.identity.epoch.0, sequence.base + count));
        self.recent.push_back((sequence, base_offset));
        if self.recent.len() > IN_FLIGHT_MAX {
            self.recent.pop_front();
        }
        Ok(base_offset)
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Append(u8),
    /// The oldest request is carried out and answered.
    Answer,
    /// The oldest request is answered with an error and not carried out.
    Refuse(ErrorCode),
    /// The connection breaks after so many of the requests under way were carried out.
    Break(u8),
    Pass(u16),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (1u8..6).prop_map(Event::Append),
        4 => Just(Event::Answer),
        1 => prop::sample::select(vec![
            ErrorCode::NotLeaderOrFollower,
            ErrorCode::NotEnoughReplicas,
            ErrorCode::InvalidRecord,
            ErrorCode::MessageTooLarge,
        ]).prop_map(Event::Refuse),
        1 => (0u8..6).prop_map(Event::Break),
        2 => (1u16..300).prop_map(Event::Pass),
        // Long enough to give records up.
        1 => Just(Event::Pass(4_000)),
    ]
}

fn tp() -> TopicPartition {
    TopicPartition::new(TopicName::new("t").unwrap(), PartitionIndex(0))
}

fn value_of(record: &BatchRecord) -> u32 {
    u32::from_be_bytes(record.value.as_deref().unwrap().try_into().unwrap())
}

struct World {
    machine: Accumulator,
    broker: Broker,
    under_way: VecDeque<Outbound>,
    deliveries: Vec<Delivery>,
    now: MonoTime,
}

impl World {
    fn new() -> World {
        let mut machine = Accumulator::new(AccumulatorConfig {
            batch_bytes: BATCH_HEADER_BYTES + 120,
            request_bytes_max: 1 << 20,
            linger: Duration::ZERO,
            delivery_timeout: Duration::from_secs(10),
            retry_backoff: Duration::from_millis(50),
            idempotent: true,
        });
        machine.set_identity(Identity { producer_id: ProducerId(7), epoch: ProducerEpoch(0) });
        World {
            machine,
            broker: Broker::default(),
            under_way: VecDeque::new(),
            deliveries: Vec::new(),
            now: MonoTime::ZERO,
        }
    }

    fn send(&mut self) {
        let plan = self.machine.plan(self.now, |_| Some(NodeId(1)), |_| 5);
        self.under_way.extend(plan.requests.into_iter().flat_map(|(_, batches)| batches));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Append(count) => {
                for _ in 0..count {
                    let value = u32::try_from(self.deliveries.len()).unwrap();
                    let record = BatchRecord {
                        timestamp: Timestamp(0),
                        key: None,
                        value: Some(Bytes::copy_from_slice(&value.to_be_bytes())),
                        headers: Vec::new(),
                    };
                    self.deliveries.push(self.machine.append(&tp(), record, self.now).0);
                }
            }
            Event::Answer => {
                if let Some(batch) = self.under_way.pop_front() {
                    match self.broker.produce(&batch) {
                        Ok(base) => self.machine.on_written(&tp(), batch.id, Offset(base), Timestamp::NONE),
                        Err(code) => self.fail(&batch, code),
                    }
                }
            }
            Event::Refuse(code) => {
                if let Some(batch) = self.under_way.pop_front() {
                    self.fail(&batch, code);
                }
            }
            Event::Break(carried_out) => {
                for (i, batch) in std::mem::take(&mut self.under_way).into_iter().enumerate() {
                    if i < usize::from(carried_out) {
                        let _ = self.broker.produce(&batch);
                    }
                    let error = ClientError::Disconnected { address: "a".into(), cause: "broke".into() };
                    self.machine.on_failed(&tp(), batch.id, error, true, self.now);
                }
            }
            Event::Pass(ms) => self.now = self.now.plus_ms(u64::from(ms)),
        }
        self.send();
    }

    fn fail(&mut self, batch: &Outbound, code: ErrorCode) {
        let error = ClientError::from_code(code as i16, "t-0", None);
        self.machine.on_failed(&tp(), batch.id, error, true, self.now);
    }

    fn fate(&self, record: usize) -> Option<(Fate, usize)> {
        let delivery = &self.deliveries[record];
        let (mut outcome, mut index) = (Arc::clone(&delivery.outcome), delivery.index);
        loop {
            match outcome.get().cloned()? {
                Fate::Split { at, first, .. } if index < at => outcome = first,
                Fate::Split { at, second, .. } => {
                    index -= at;
                    outcome = second;
                }
                fate => return Some((fate, index)),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Goal: under any losses a record is written at most once, order is kept, and what the application is told is
    /// true. Method: a scripted history, then the network heals and every record must get its fate.
    #[test]
    fn records_are_written_once_in_order_and_told_of_truly(events in prop::collection::vec(event(), 0..60)) {
        let mut world = World::new();
        for event in events {
            world.happen(event);
        }
        for _ in 0..2_000 {
            if (0..world.deliveries.len()).all(|record| world.fate(record).is_some()) {
                break;
            }
            world.happen(Event::Answer);
            world.happen(Event::Pass(20));
        }
        prop_assert!(world.broker.log.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", world.broker.log);
        for record in 0..world.deliveries.len() {
            let value = u32::try_from(record).unwrap();
            let is_in_log = world.broker.log.contains(&value);
            match world.fate(record) {
                Some((Fate::Written { base_offset, .. }, index)) => {
                    let at = usize::try_from(base_offset.0).unwrap() + index;
                    prop_assert_eq!(world.broker.log.get(at), Some(&value));
                }
                Some((Fate::Failed(error), _)) if !error.is_outcome_unknown() => {
                    prop_assert!(!is_in_log, "{} is in the log: {}", record, error);
                }
                Some(_) => {}
                None => prop_assert!(false, "{} has no fate", record),
            }
        }
    }
}
