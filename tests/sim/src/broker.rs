//! A broker's life: it starts, registers, follows the feed, keeps its lease, and ends one way or another.

use std::collections::BTreeMap;

use thalweg_broker::machine::image::{Image, ImageBuilder};
use thalweg_broker::machine::lease::{HeartbeatAnswer, Lease};
use thalweg_model::{BrokerEpoch, ErrorCode, MonoTime, NodeId, Offset, TopicName};
use thalweg_proto::v1;

use crate::hosting::{Hosted, Parked, Waiting};
use crate::log::SimLog;
use crate::message::{Body, Event, Life, Message, Node, Timer};
use crate::plan::MS;
use crate::rng::Rng;
use crate::world::World;

/// A machine with a disk, and the process on it if one runs.
pub struct Broker {
    pub id: NodeId,
    pub disk: Disk,
    pub process: Option<Process>,
    pub paused_until: u64,
    pub clock: LocalClock,
    /// Lives below this number may have lost records that a later one has not told the coordinator of yet.
    pub doubt: Option<Doubt>,
    next_life: u64,
}

/// What outlives a process; of the logs, what is not flushed outlives no power cut.
pub struct Disk {
    pub incarnation: u64,
    pub dir_id: [u8; 16],
    boot: u64,
    /// The broker epoch of a clean stop.
    clean: Option<i64>,
    io_error: bool,
    /// The last registration, durably (B2).
    registered: Option<i64>,
    pub logs: Vec<SimLog>,
    /// The next sync fails.
    pub is_failing: bool,
    /// Syncs take this much longer.
    pub slowness: u64,
}

/// Records may be gone; the coordinator does not know yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// The first incarnation whose registration says so.
    pub incarnation: u64,
    /// The first one that says that the disk is another, and what was flushed is gone, too. A loss of power after it is told of
    /// later, and takes only what was not flushed.
    pub wiped: Option<u64>,
}

/// A running process and what it keeps in memory.
pub struct Process {
    pub life: Life,
    pub image: Image,
    pub lease: Lease,
    pub hosted: Vec<Option<Hosted>>,
    pub is_stopping: bool,
    /// A sync has failed: nothing is served any more.
    pub has_failed: bool,
    builder: ImageBuilder,
    request: v1::RegisterBrokerRequest,
    /// The registration is in the feed up to here.
    registered_index: Option<u64>,
    /// The image has been that far: registrations of partitions count.
    is_caught_up: bool,
    /// A whole image has come: logs that nobody claims are gone.
    has_image: bool,
}

/// A monotonic clock that started at some time and runs a little fast or slow.
#[derive(Clone, Copy, Debug)]
pub struct LocalClock {
    offset: u64,
    /// 1,000 is right.
    rate_per_mille: u64,
}

impl LocalClock {
    pub fn read(&self, now: u64) -> MonoTime {
        MonoTime(self.offset + now / 1_000 * self.rate_per_mille)
    }

    pub fn to_world(self, delay: u64) -> u64 {
        delay * 1_000 / self.rate_per_mille
    }
}

impl Broker {
    pub fn new(id: usize, rng: &mut Rng) -> Broker {
        let disk = Disk {
            incarnation: 0,
            dir_id: dir_id(rng),
            boot: rng.next_u64(),
            clean: None,
            io_error: false,
            registered: None,
            logs: Vec::new(),
            is_failing: false,
            slowness: 0,
        };
        let clock = LocalClock { offset: rng.between(1, 1_000_000) * MS, rate_per_mille: rng.between(980, 1_020) };
        Broker { id: NodeId(id as i32), disk, process: None, paused_until: 0, clock, doubt: None, next_life: 0 }
    }

    /// A disk event has hit it, or is about to, and the coordinator has not heard of it.
    pub fn is_in_trouble(&self) -> bool {
        self.doubt.is_some() || self.disk.is_failing
    }

    pub fn is_up(&self) -> bool {
        self.process.is_some()
    }

    /// The power fails. `kept`: how many records of each log's unflushed end stay.
    pub fn power_cut(&mut self, rng: &mut Rng) {
        self.process = None;
        self.disk.boot = rng.next_u64();
        if self.disk.clean.is_some() {
            // It had stopped cleanly, with everything synced.
            return;
        }
        for log in &mut self.disk.logs {
            log.power_cut(rng.below(log.unflushed_count() + 1));
        }
        self.raise_doubt(false);
    }

    /// Everything is gone, the number of lives with it.
    pub fn wipe(&mut self, rng: &mut Rng) {
        self.process = None;
        self.disk.dir_id = dir_id(rng);
        self.disk.incarnation = 0;
        self.disk.clean = None;
        self.disk.io_error = false;
        self.disk.registered = None;
        self.disk.logs.iter_mut().for_each(|log| *log = SimLog::default());
        self.raise_doubt(true);
    }

    /// The kernel could not write what it held: it goes on showing it, or forgets it, at the latest when the process ends. The
    /// directory is marked (B2).
    pub fn write_back_failed(&mut self) {
        self.disk.io_error = true;
        self.disk.is_failing = false;
        self.disk.logs.iter_mut().for_each(SimLog::give_up);
        self.raise_doubt(false);
    }

    /// The process ends whose disk has failed. `are_evicted`: its pages are read from the disk again.
    pub fn exit(&mut self, are_evicted: bool) {
        self.process = None;
        if are_evicted {
            self.disk.logs.iter_mut().for_each(|log| log.power_cut(0));
        }
    }

    fn raise_doubt(&mut self, is_wiped: bool) {
        let incarnation = self.disk.incarnation + 1;
        let wiped = self.doubt.and_then(|doubt| doubt.wiped);
        self.doubt = Some(Doubt { incarnation, wiped: if is_wiped { Some(incarnation) } else { wiped } });
    }

    fn registration(&self) -> v1::RegisterBrokerRequest {
        v1::RegisterBrokerRequest {
            broker_id: self.id.0,
            incarnation: self.disk.incarnation,
            boot_id: self.disk.boot.to_string(),
            process_id: self.next_life.to_be_bytes().to_vec().into(),
            log_dirs: vec![v1::LogDir {
                dir_id: self.disk.dir_id.to_vec().into(),
                clean: self.disk.clean.is_some(),
                clean_broker_epoch: self.disk.clean.unwrap_or(-1),
                io_error: self.disk.io_error,
                last_broker_epoch: self.disk.registered,
            }],
            endpoints: vec![v1::Endpoint { listener: "L".into(), host: "h".into(), port: 1, ..Default::default() }],
            levels: Some(v1::Levels::ours()),
            ..v1::RegisterBrokerRequest::default()
        }
    }
}

impl World {
    pub fn start(&mut self, broker: usize) {
        if self.brokers[broker].is_up() {
            return;
        }
        let this = &mut self.brokers[broker];
        this.disk.incarnation += 1;
        if this.disk.io_error && !thalweg_model::mutant!("write-anew") {
            this.disk.logs.iter_mut().for_each(SimLog::write_anew);
        }
        this.disk.logs.iter_mut().for_each(SimLog::recover);
        let life = Life(this.next_life);
        this.next_life += 1;
        this.paused_until = 0;
        let process = Process {
            life,
            image: Image::default(),
            lease: Lease::default(),
            hosted: this.disk.logs.iter().map(|_| None).collect(),
            is_stopping: false,
            has_failed: false,
            builder: ImageBuilder::default(),
            request: this.registration(),
            registered_index: None,
            is_caught_up: false,
            has_image: false,
        };
        // Gone before anything is appended (B1).
        this.disk.clean = None;
        this.process = Some(process);
        self.tell(|world| {
            let ends: Vec<i64> = world.brokers[broker].disk.logs.iter().map(|log| log.end().0).collect();
            format!("broker {}: starts, its logs end at {ends:?}", broker + 1)
        });
        self.timer(broker, 0, Timer::Lease);
        self.timer(broker, 0, Timer::Feed);
        self.timer(broker, self.plan.lag_max / 2, Timer::Isr);
        let pause = self.rng.between(50, 1_000) * MS;
        self.timer(broker, pause, Timer::Checkpoint);
    }

    pub fn broker_timer(&mut self, broker: usize, timer: Timer) {
        match timer {
            Timer::Lease => self.keep_lease(broker),
            Timer::Feed => {
                self.open_stream(broker);
                self.timer(broker, 150 * MS, Timer::Feed);
            }
            Timer::Checkpoint => {
                self.write_checkpoints(broker);
                self.timer(broker, 700 * MS, Timer::Checkpoint);
            }
            Timer::Isr => {
                self.settle_all(broker);
                self.timer(broker, self.plan.lag_max / 2, Timer::Isr);
            }
            Timer::IsrTimeout { partition } => self.proposal_unanswered(broker, partition),
            Timer::Flush { partition } => self.flush(broker, partition),
            Timer::Flushed { partition, up_to, generation } => self.flushed(broker, partition, up_to, generation),
            Timer::Fetch { partition } => self.fetch(broker, partition),
            Timer::FetchTimeout { partition, id } => self.fetch_unanswered(broker, partition, id),
            Timer::FetchWait { partition, follower, id } => self.fetch_waited(broker, partition, follower, id),
            Timer::Exit => {
                self.tell(|_| format!("broker {}: ends, its disk has failed", broker + 1));
                let are_evicted = self.rng.chance(300);
                self.brokers[broker].exit(are_evicted);
                self.start_later(broker);
            }
            Timer::StopAnyway => self.stop(broker),
        }
    }

    pub fn broker_received(&mut self, broker: usize, message: Message) {
        let Some(current) = self.life(broker) else { return };
        match message.body {
            Body::Registered { life, answer } if life == current => self.registered(broker, &answer),
            Body::HeartbeatAnswer { life, sent, broker_epoch, answer } if life == current => {
                self.heartbeat_answered(broker, sent, BrokerEpoch(broker_epoch), &answer);
            }
            Body::AlterIsrAnswer { life, partition, asked, answer } if life == current => {
                self.proposal_answered(broker, partition, &asked, &answer);
            }
            Body::FetchAnswer { life, partition, hosting, id, answer, records, high_watermark }
                if life == current && self.hosting(broker, partition) == Some(hosting) =>
            {
                self.fetch_answered(broker, partition, id, answer, &records, high_watermark);
            }
            Body::Fetch { life, partition, hosting, follower, id, position } => {
                self.follower_fetched(broker, partition, Parked { life, hosting, follower, id, position });
            }
            Body::Produce { request, partition, acks, values, sequence } => {
                let waiting = Waiting { client: message.from, request, base: Offset::NONE, end: Offset::NONE, acks };
                self.produced(broker, partition, waiting, &values, sequence);
            }
            Body::Consume { partition, request, position, leader_epoch, read_epoch } => {
                let result = self.consumed(broker, partition, position, leader_epoch, read_epoch);
                let body = Body::ConsumeAnswer { partition, request, result };
                self.send(Node(broker + 1), message.from, body);
            }
            // Answers to an earlier life, and what only others get.
            Body::Registered { .. }
            | Body::HeartbeatAnswer { .. }
            | Body::AlterIsrAnswer { .. }
            | Body::FetchAnswer { .. }
            | Body::Register { .. }
            | Body::Heartbeat { .. }
            | Body::AlterIsr { .. }
            | Body::ProduceAnswer { .. }
            | Body::ConsumeAnswer { .. }
            | Body::Group { .. }
            | Body::GroupAnswer { .. }
            | Body::GroupWithdrawn { .. } => {}
        }
    }

    /// An item of the feed.
    pub fn feed_item(&mut self, broker: usize, item: &v1::FeedItem) {
        let Some(process) = &mut self.brokers[broker].process else { return };
        let Some(changes) = process.builder.apply(item) else { return };
        process.image = process.builder.image();
        let is_first = !std::mem::replace(&mut process.has_image, true);
        let is_caught_up = process.is_caught_up;
        let of_topic = |(name, index): &(_, _)| Some((process.image.topic(TopicName::as_str(name))?.id, *index));
        let changed: Vec<usize> = changes
            .partitions
            .iter()
            .filter_map(|changed| of_topic(changed).and_then(|(topic, index)| self.parts.number(topic, index)))
            .collect();
        for (_, topic) in &changes.removed {
            self.topic_removed(broker, *topic);
        }
        if is_first {
            self.clear_unclaimed(broker);
        }
        if !is_caught_up {
            return self.catch_up(broker);
        }
        for partition in changed {
            self.partition_registered(broker, partition);
        }
        if changes.brokers {
            self.settle_all(broker);
        }
    }

    /// Before it knows its own registration a broker takes no partition's: it could lead in an epoch whose records a crash
    /// has taken.
    fn catch_up(&mut self, broker: usize) {
        let Some(process) = &mut self.brokers[broker].process else { return };
        let is_known = process.registered_index.is_some_and(|index| process.image.index >= index);
        if !is_known && !thalweg_model::mutant!("own-registration-first") {
            return;
        }
        process.is_caught_up = true;
        for partition in 0..self.parts.count() {
            self.partition_registered(broker, partition);
        }
    }

    fn registered(&mut self, broker: usize, answer: &v1::RegisterBrokerResponse) {
        let this = &mut self.brokers[broker];
        let Some(process) = &mut this.process else { return };
        let told = code(answer.error.as_ref());
        if told == ErrorCode::StaleBrokerEpoch {
            // A new disk learns whose place it takes.
            process.request.metadata_index = process.request.metadata_index.max(answer.index);
        }
        if process.lease.epoch().is_some() || told != ErrorCode::None {
            return;
        }
        process.lease.registered(BrokerEpoch(answer.broker_epoch));
        process.registered_index = Some(answer.index);
        this.disk.io_error &= process.has_failed;
        this.disk.registered = Some(answer.broker_epoch);
        if !process.is_caught_up {
            self.catch_up(broker);
        }
    }

    fn keep_lease(&mut self, broker: usize) {
        let sent = self.local(broker);
        let Some(process) = &self.brokers[broker].process else { return };
        let life = process.life;
        let mut pause = self.plan.heartbeat;
        let body = match process.lease.epoch() {
            None => {
                pause = pause.min(300 * MS);
                Some(Body::Register { life, request: process.request.clone() })
            }
            Some(epoch) if process.is_caught_up => {
                if !process.lease.may_lead(sent) || process.is_stopping {
                    pause = pause.min(100 * MS);
                }
                let request = v1::BrokerHeartbeatRequest {
                    broker_id: self.brokers[broker].id.0,
                    broker_epoch: epoch.0,
                    metadata_index: process.image.index,
                    want_shutdown: process.is_stopping,
                    offline_log_dirs: process
                        .has_failed
                        .then(|| self.brokers[broker].disk.dir_id.to_vec().into())
                        .into_iter()
                        .collect(),
                    ..v1::BrokerHeartbeatRequest::default()
                };
                Some(Body::Heartbeat { life, sent, request })
            }
            Some(_) => {
                pause = 20 * MS;
                None
            }
        };
        if let Some(body) = body {
            self.send(Node(broker + 1), Node::COORDINATOR, body);
        }
        self.timer(broker, pause, Timer::Lease);
    }

    fn heartbeat_answered(
        &mut self,
        broker: usize,
        sent: MonoTime,
        of_epoch: BrokerEpoch,
        answer: &v1::BrokerHeartbeatResponse,
    ) {
        let verdict = match code(answer.error.as_ref()) {
            ErrorCode::None if answer.fenced => HeartbeatAnswer::Fenced,
            ErrorCode::None => HeartbeatAnswer::Granted { lease_ms: answer.lease_ms },
            ErrorCode::StaleBrokerEpoch => HeartbeatAnswer::StaleBrokerEpoch,
            _ => HeartbeatAnswer::Fenced,
        };
        let Some(process) = &mut self.brokers[broker].process else { return };
        process.lease.answered(sent, of_epoch, verdict);
        if answer.may_shut_down && process.is_stopping {
            return self.stop(broker);
        }
        self.settle_all(broker);
    }

    /// Asks to be let go.
    pub fn begin_stop(&mut self, broker: usize) {
        if let Some(process) = &mut self.brokers[broker].process {
            process.is_stopping = true;
            self.timer(broker, 2_000 * MS, Timer::StopAnyway);
        }
    }

    /// Ends cleanly: logs synced, then the mark.
    fn stop(&mut self, broker: usize) {
        self.tell(|_| format!("broker {}: stops cleanly", broker + 1));
        self.write_checkpoints(broker);
        let this = &mut self.brokers[broker];
        for log in &mut this.disk.logs {
            log.synced(log.end());
        }
        if let Some(process) = this.process.take() {
            let epoch = process.lease.epoch();
            this.disk.clean = epoch.map(|epoch| epoch.0);
            self.close_connections(broker, epoch);
        }
        self.start_later(broker);
    }

    pub fn start_later(&mut self, broker: usize) {
        let downtime = self.rng.between(20, 4_000) * MS;
        self.after(downtime, Event::Start { broker });
    }
}

/// The code of an answer.
pub fn code(error: Option<&v1::KafkaError>) -> ErrorCode {
    let number = error.map_or(0, |error| error.code);
    i16::try_from(number).ok().and_then(ErrorCode::from_code).unwrap_or(ErrorCode::UnknownServerError)
}

fn dir_id(rng: &mut Rng) -> [u8; 16] {
    let mut id = [1; 16];
    id[..8].copy_from_slice(&rng.next_u64().to_be_bytes());
    id
}

/// Topic configuration that a broker lays under a topic's own.
pub fn no_defaults() -> BTreeMap<String, String> {
    BTreeMap::new()
}
