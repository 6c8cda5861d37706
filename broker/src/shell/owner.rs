//! One log and its replica machine, in the hands of the worker thread that owns them.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use thalweg_model::{Durability, ErrorCode, LeaderEpoch, MonoTime, NodeId, Timestamp, TopicConfig};
use thalweg_storage::{AppendError, AppendInfo, AppendOrigin, FlushOutcome, FlushTicket, LogConfig, PartitionLog};
use tracing::error;

use super::ack::{Ack, AppendOutcome};
use super::fetcher::FetchLink;
use super::partitions::Partition;
use super::worker::WorkerEnv;
use crate::api::error_map;
use crate::machine::follower::Follower;
use crate::machine::image::PartitionImage;
use crate::machine::leader::Leader;
use crate::machine::replica::{Change, LogEnds, Replica, ReplicaSettings};
use crate::machine::waiters::Waiters;

mod following;
mod leading;

pub use following::Copied;

/// A validated batch on its way into a log.
#[derive(Debug)]
pub struct Append {
    pub partition: Arc<Partition>,
    pub batch: BytesMut,
    pub record_count: i32,
    pub required: RequiredAcks,
    pub ack: Ack,
}

/// When a producer wants to hear of its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequiredAcks {
    /// Only of errors.
    None,
    /// When the leader counts them.
    Leader,
    /// When they are below the high watermark.
    All,
}

/// Everything that only one thread may touch of a partition.
pub struct Owner {
    partition: Arc<Partition>,
    log: PartitionLog,
    replica: Replica,
    by_counted: Waiters<(Ack, AppendOutcome)>,
    by_high_watermark: Waiters<(Ack, AppendOutcome)>,
    inbox: Vec<Append>,
    flush_under_way: bool,
    /// Where records may wait for a flush: its latest moment.
    flush_due: Option<MonoTime>,
    /// A follower that lacks something of what its leader's followers have in common.
    is_behind: bool,
    /// While another broker leads: to the task that fetches from it.
    link: Option<FetchLink>,
    env: WorkerEnv,
}

/// What one write of appends was told about the world.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub mono: MonoTime,
    pub wall: Timestamp,
    /// Whether the broker's lease stands.
    pub may_lead: bool,
}

/// What one write added to a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    pub bytes: u64,
    pub records: u64,
}

impl Owner {
    pub fn new(partition: Arc<Partition>, log: PartitionLog, replica: Replica, env: WorkerEnv) -> Owner {
        Owner {
            partition,
            log,
            replica,
            by_counted: Waiters::default(),
            by_high_watermark: Waiters::default(),
            inbox: Vec::new(),
            flush_under_way: false,
            flush_due: None,
            is_behind: false,
            link: None,
            env,
        }
    }

    pub fn partition(&self) -> &Arc<Partition> {
        &self.partition
    }

    pub fn log(&self) -> &PartitionLog {
        &self.log
    }

    pub fn log_mut(&mut self) -> &mut PartitionLog {
        &mut self.log
    }

    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    pub fn flush_due(&self) -> Option<MonoTime> {
        self.flush_due.filter(|_| !self.flush_under_way)
    }

    /// Puts a batch aside for the next [`Owner::write`]; whether it is the first.
    pub fn enqueue(&mut self, append: Append) -> bool {
        self.inbox.push(append);
        self.inbox.len() == 1
    }

    /// Appends everything that was put aside, as one write; returns what is new in the log.
    pub fn write(&mut self, moment: Moment) -> Written {
        let mut written = Written::default();
        let mut appends = std::mem::take(&mut self.inbox);
        let Some(epoch) = self.admit(&mut appends, moment) else { return written };
        if appends.is_empty() {
            return written;
        }
        let mut batches: Vec<&mut [u8]> = appends.iter_mut().map(|append| &mut append.batch[..]).collect();
        let results = self.log.append_many(&mut batches, moment.wall, epoch, AppendOrigin::Client);
        let had_unflushed = self.unflushed() > 0;
        self.replica.appended(moment.mono, self.partition.view().log_end_offset());
        if !had_unflushed && self.unflushed() > 0 {
            self.flush_due = self.due_after(moment.mono);
        }
        for (append, result) in appends.into_iter().zip(results) {
            if result.as_ref().is_ok_and(|info| !info.duplicate) {
                written.bytes += append.batch.len() as u64;
                written.records += u64::from(append.record_count.unsigned_abs());
            }
            self.conclude(append, result);
        }
        self.advance();
        self.partition.followers.tell();
        written
    }

    /// Refuses what must not be appended now; `None` if that is everything.
    fn admit(&mut self, appends: &mut Vec<Append>, moment: Moment) -> Option<LeaderEpoch> {
        let refuse_all = |appends: &mut Vec<Append>, error| {
            appends.drain(..).for_each(|append| append.ack.answer(AppendOutcome::failed(error)));
        };
        if self.partition.is_offline() {
            refuse_all(appends, ErrorCode::KafkaStorageError);
            return None;
        }
        let epoch = match self.replica.admit(moment.may_lead, false) {
            Ok(epoch) => epoch,
            Err(error) => {
                refuse_all(appends, error);
                return None;
            }
        };
        if let Err(error) = self.replica.admit(moment.may_lead, true) {
            let (refused, kept) = appends.drain(..).partition(|append| append.required == RequiredAcks::All);
            *appends = kept;
            let mut refused: Vec<Append> = refused;
            refuse_all(&mut refused, error);
        }
        Some(epoch)
    }

    fn conclude(&mut self, append: Append, result: Result<AppendInfo, AppendError>) {
        let info = match result {
            Ok(info) => info,
            Err(error) => {
                if matches!(error, AppendError::LogDirOffline) {
                    self.fail();
                }
                append.ack.answer(AppendOutcome::failed_because(error_map::append(&error), error.to_string()));
                return;
            }
        };
        let outcome = AppendOutcome {
            error: ErrorCode::None,
            message: None,
            record_indexes: Vec::new(),
            base_offset: info.base_offset,
            log_append_time: info.log_append_time,
            log_start_offset: self.partition.view().log_start_offset(),
        };
        let until = info.last_offset.plus(1);
        match append.required {
            RequiredAcks::None => append.ack.answer(outcome),
            RequiredAcks::Leader => self.by_counted.park(until, (append.ack, outcome)),
            RequiredAcks::All => self.by_high_watermark.park(until, (append.ack, outcome)),
        }
    }

    /// Lets everybody know how far things have come.
    fn advance(&mut self) {
        // First what readers see, then the answers: a producer that reads its own record must not find it missing.
        let moved = self.replica.advance_high_watermark();
        if let Some(high_watermark) = moved {
            self.log.advance_high_watermark(high_watermark);
            self.partition.publish_high_watermark(high_watermark);
        }
        for (ack, outcome) in self.by_counted.pass(self.replica.counted()) {
            ack.answer(outcome);
        }
        // Also without a move: a repeated batch may wait for what was passed long ago.
        for (ack, outcome) in self.by_high_watermark.pass(self.replica.high_watermark()) {
            ack.answer(outcome);
        }
        if moved.is_some() {
            self.publish_leader();
            self.partition.waiters.tell();
            self.partition.followers.tell();
        }
    }

    /// The next flush, if one is wanted now and none is under way.
    pub fn wanted_flush(&mut self, now: MonoTime) -> Option<FlushTicket> {
        if self.flush_under_way || self.unflushed() == 0 || self.partition.is_offline() {
            return None;
        }
        let config = self.partition.config();
        let wanted = match config.durability {
            Durability::Flushed if self.may_flush_late() => self.flush_due.is_some_and(|due| due <= now),
            Durability::Flushed => true,
            Durability::Replicated => {
                self.unflushed() >= config.flush_messages || self.flush_due.is_some_and(|due| due <= now)
            }
        };
        drop(config);
        if wanted { self.start_flush() } else { None }
    }

    /// A flush whatever the topic's policy says.
    pub fn start_flush(&mut self) -> Option<FlushTicket> {
        if self.flush_under_way {
            return None;
        }
        let ticket = self.log.flush_ticket()?;
        self.flush_under_way = true;
        self.flush_due = None;
        Some(ticket)
    }

    pub fn flushed(&mut self, outcome: FlushOutcome, now: MonoTime) {
        self.flush_under_way = false;
        match self.log.flushed(outcome) {
            Ok(flushed_offset) => {
                let counted = self.replica.counted();
                self.replica.flushed(flushed_offset);
                self.report_counted(counted);
                if self.unflushed() > 0 && self.flush_due.is_none() {
                    self.flush_due = self.due_after(now);
                }
                self.advance();
            }
            Err(_) => self.fail(),
        }
    }

    /// Takes what the coordinator says of the partition, and with it perhaps another role.
    ///
    /// `link`: to the fetcher of the leader that it names, if that is another broker.
    pub fn registered(&mut self, registration: &PartitionImage, link: Option<FetchLink>) {
        let now = self.env.clock.mono();
        let node = self.replica.node();
        let is_arriving = registration.adding.contains(&node) && !registration.isr.contains(&node);
        match self.replica.registered(now, registration) {
            Change::Nothing => return,
            Change::News => {}
            Change::Leads { epoch, goes_on } => {
                self.unfollow();
                if !goes_on {
                    self.fail_waiters(ErrorCode::NotLeaderOrFollower);
                }
                if let Err(error) = self.log.begin_epoch(epoch) {
                    error!(tp = %self.partition.tp(), %error, "the leader epoch cannot be stored");
                    self.fail();
                    return;
                }
            }
            Change::Follows { .. } => {
                self.fail_waiters(ErrorCode::NotLeaderOrFollower);
                if let Err(error) = self.log.forget_empty_epochs() {
                    error!(tp = %self.partition.tp(), %error, "the leader epochs cannot be stored");
                    self.fail();
                    return;
                }
                if let Some(link) = link {
                    self.follow(link);
                }
            }
            Change::Idle => {
                self.unfollow();
                self.fail_waiters(ErrorCode::NotLeaderOrFollower);
            }
        }
        let has_arrived = self.partition.is_arriving() && !is_arriving;
        self.partition.publish_arriving(is_arriving);
        if has_arrived {
            // It may be leaving off; from now on it is waited for.
            self.ask_again();
        }
        self.publish_leader();
        if self.replica.leader().is_some_and(|leader| !leader.has_min_isr()) {
            // The records stay and may still commit; who waits is told what is known.
            fail_all(&mut self.by_high_watermark, ErrorCode::NotEnoughReplicasAfterAppend);
        }
        self.advance();
        self.consider_isr(now);
        self.partition.waiters.tell();
        self.partition.followers.tell();
    }

    /// Whoever waits here for records to be counted waits in vain.
    fn fail_waiters(&mut self, error: ErrorCode) {
        fail_all(&mut self.by_high_watermark, error);
        fail_all(&mut self.by_counted, error);
    }

    pub fn configure(&mut self, config: TopicConfig, settings: ReplicaSettings, log_config: LogConfig) {
        self.replica.configure(settings);
        self.log.set_config(log_config);
        self.partition.set_config(config);
        self.publish_leader();
        self.advance();
    }

    /// After the log's start has moved.
    pub fn log_started(&mut self) {
        self.replica.log_started(self.partition.view().log_start_offset());
        self.partition.publish_high_watermark(self.replica.high_watermark());
        self.partition.followers.tell();
    }

    /// The disk failed: nothing is served from here until the broker starts again.
    pub fn fail(&mut self) {
        if !self.partition.is_offline() {
            error!(tp = %self.partition.tp(), dir = %self.partition.dir.display(), "partition is offline: its disk failed");
            self.partition.publish_offline();
        }
        self.replica.failed();
        self.unfollow();
        self.publish_leader();
        self.fail_waiters(ErrorCode::KafkaStorageError);
        self.partition.waiters.tell();
        self.partition.followers.tell();
    }

    /// Gives the log back, with nobody waiting any more.
    pub fn into_log(mut self, error: ErrorCode) -> PartitionLog {
        for append in self.inbox.drain(..) {
            append.ack.answer(AppendOutcome::failed(error));
        }
        self.unfollow();
        self.fail_waiters(error);
        self.partition.publish_follower(None);
        self.partition.publish_leader(None, false, false);
        self.partition.waiters.tell();
        self.partition.followers.tell();
        self.log
    }

    /// Records above the high watermark.
    pub fn lag(&self) -> i64 {
        self.replica.log_end_offset().since(self.replica.high_watermark())
    }

    fn publish_leader(&self) {
        let leader = self.replica.leader();
        let has_min_isr = leader.is_some_and(Leader::has_min_isr);
        self.partition.publish_follower(self.replica.follower().map(Follower::epoch));
        self.partition.publish_leader(leader.map(Leader::epoch), has_min_isr, self.replica.knows_latest());
    }

    /// Nobody waits for what a replica on its way in has on disk before it has caught up: it leaves the disk to those that are
    /// waited for, and syncs more at a time.
    fn may_flush_late(&self) -> bool {
        self.is_behind && self.partition.is_arriving()
    }

    /// Records that a power cut would take.
    fn unflushed(&self) -> i64 {
        self.replica.log_end_offset().since(self.replica.flushed_offset())
    }

    fn due_after(&self, now: MonoTime) -> Option<MonoTime> {
        let config = self.partition.config();
        match config.durability {
            Durability::Flushed => self.may_flush_late().then(|| now.plus(LATE_FLUSH)),
            Durability::Replicated => {
                let flush_ms = u64::try_from(config.flush_ms).unwrap_or(0);
                Some(now.plus(Duration::from_millis(flush_ms)))
            }
        }
    }
}

/// How a log that was just opened becomes a replica.
pub fn replica_of(node: NodeId, settings: ReplicaSettings, partition: &Partition) -> Replica {
    Replica::new(node, settings, ends_of(partition), partition.high_watermark())
}

fn ends_of(partition: &Partition) -> LogEnds {
    let view = partition.view();
    LogEnds {
        log_start_offset: view.log_start_offset(),
        log_end_offset: view.log_end_offset(),
        flushed_offset: view.flushed_offset(),
    }
}

fn fail_all(waiters: &mut Waiters<(Ack, AppendOutcome)>, error: ErrorCode) {
    for (ack, _) in waiters.drain() {
        ack.answer(AppendOutcome::failed(error));
    }
}

impl std::fmt::Debug for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Owner").field("tp", &self.partition.tp()).field("replica", &self.replica).finish()
    }
}

/// How long records of a replica on its way in may wait for a flush: short enough that a sync never has much to write.
const LATE_FLUSH: Duration = Duration::from_millis(250);
