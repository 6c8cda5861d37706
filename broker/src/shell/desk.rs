//! The logs of one worker and what is to be done to them: whoever holds the lock on it is the one thread that touches them.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use thalweg_model::{ErrorCode, MonoTime};
use thalweg_storage::{FlushOutcome, FlushTicket};
use tokio::sync::oneshot;

use super::ack::AppendOutcome;
use super::mailbox::Mailbox;
use super::owner::{Append, Moment, Owner};
use super::partitions::Partition;
use super::worker::WorkerEnv;

/// A desk and the inbox of the thread that works there.
///
/// Others may work there for a moment while that thread sleeps (see [`Station::visit`]): a thread that has one small thing to do,
/// and would only wake the worker for it and then wait.
pub(super) struct Station {
    pub mailbox: Mailbox<Message>,
    desk: Mutex<Desk>,
}

pub(super) struct Desk {
    env: WorkerEnv,
    /// By the partition's number. Boxed: a table has up to twice as many places as entries, and an owner is some 1 KiB.
    owners: Owners,
    /// Partitions with batches to be written.
    touched: Vec<u64>,
    /// When partitions whose records may wait for it want to be flushed.
    due: BTreeSet<(MonoTime, u64)>,
}

pub(super) type Question = Box<dyn FnOnce(&mut Owner) + Send>;
pub(super) type Visit = Box<dyn FnOnce(&mut Owners) + Send>;
pub(super) type Owners = HashMap<u64, Box<Owner>>;

pub(super) enum Message {
    Append(Append),
    Flushed(Arc<Partition>, FlushOutcome),
    Take(Box<Owner>),
    Ask(Arc<Partition>, Question),
    /// Looks at any of a worker's logs; does not write to them.
    Visit(Visit),
    Release(Arc<Partition>, oneshot::Sender<Box<Owner>>),
    Stop,
}

impl Station {
    pub fn new(mailbox_bound: usize, env: WorkerEnv) -> Station {
        let desk = Desk { env, owners: HashMap::new(), touched: Vec::new(), due: BTreeSet::new() };
        Station { mailbox: Mailbox::new(mailbox_bound), desk: Mutex::new(desk) }
    }

    /// For the worker itself.
    pub fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().expect("a worker ends when a log of its own has panicked")
    }

    /// As [`Station::desk`], after a panic too.
    pub fn desk_after_panic(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Does `work` here and now if the worker sleeps and nobody else is at its desk. It sleeps only when all that was sent before
    /// is done, so what one thread sends and does stays in its order.
    pub fn visit<T>(self: &Arc<Self>, work: T, act: impl FnOnce(&mut Desk, T)) -> Result<(), T> {
        let mut desk = match self.desk.try_lock() {
            Ok(desk) if self.mailbox.is_asleep() => desk,
            Ok(_) | Err(TryLockError::WouldBlock | TryLockError::Poisoned(_)) => return Err(work),
        };
        let due = desk.due.first().map(|(due, _)| *due);
        act(&mut desk, work);
        desk.settle(self);
        let sooner = desk.due.first().is_some_and(|(now, _)| due.is_none_or(|due| *now < due));
        drop(desk);
        if sooner {
            // It sleeps until a later moment.
            self.mailbox.nudge();
        }
        Ok(())
    }
}

impl Desk {
    pub fn append(&mut self, append: Append) {
        let number = append.partition.number;
        match self.owners.get_mut(&number) {
            Some(owner) => {
                if owner.enqueue(append) {
                    self.touched.push(number);
                }
            }
            // Between losing the partition and hearing of it.
            None => append.ack.answer(AppendOutcome::failed(ErrorCode::NotLeaderOrFollower)),
        }
    }

    /// Writes what was appended, and starts the flushes that this asks for.
    pub fn settle(&mut self, station: &Arc<Station>) {
        if self.touched.is_empty() {
            return;
        }
        let mono = self.env.clock.mono();
        let moment = Moment { mono, wall: self.env.clock.wall(), may_lead: self.env.lease.may_lead(mono) };
        let mut touched = std::mem::take(&mut self.touched);
        for number in touched.drain(..) {
            if let Some(owner) = self.owners.get_mut(&number) {
                let written = owner.write(moment);
                let metrics = &self.env.metrics;
                owner.partition().count_in(written.bytes);
                metrics.write_batches.inc();
                metrics.produced_bytes.inc_by(written.bytes);
                metrics.produced_records.inc_by(written.records);
            }
            self.after(number, mono, station);
        }
        self.touched = touched;
    }

    pub fn flushed(&mut self, number: u64, outcome: FlushOutcome, now: MonoTime, station: &Arc<Station>) {
        if let Some(owner) = self.owners.get_mut(&number) {
            owner.flushed(outcome, now);
        }
        self.after(number, now, station);
    }

    /// Returns whether to stop.
    pub fn control(&mut self, message: Message, station: &Arc<Station>) -> bool {
        match message {
            Message::Take(owner) => {
                self.owners.insert(owner.partition().number, owner);
            }
            Message::Ask(partition, question) => {
                if let Some(owner) = self.owners.get_mut(&partition.number) {
                    question(owner);
                }
                self.after(partition.number, self.env.clock.mono(), station);
            }
            Message::Visit(visit) => visit(&mut self.owners),
            Message::Release(partition, sender) => {
                if let Some(owner) = self.owners.remove(&partition.number) {
                    self.due.retain(|(_, number)| *number != partition.number);
                    // Whoever asked has gone: the log closes here.
                    let _ = sender.send(owner);
                }
            }
            Message::Stop => return true,
            Message::Append(_) | Message::Flushed(..) => {}
        }
        false
    }

    pub fn now(&self) -> MonoTime {
        self.env.clock.mono()
    }

    /// How long nothing has to be flushed; `None`: as things are, never.
    pub fn patience(&self) -> Option<Duration> {
        self.due.first().map(|(due, _)| due.since(self.now()))
    }

    pub fn flush_due(&mut self, now: MonoTime, station: &Arc<Station>) {
        while let Some((due, number)) = self.due.first().copied().filter(|(due, _)| *due <= now) {
            self.due.remove(&(due, number));
            self.after(number, now, station);
        }
    }

    /// A broken invariant: what stands here is not served any more.
    pub fn fail(&mut self) {
        self.owners.values_mut().for_each(|owner| owner.fail());
    }

    /// Drops what is left: nobody works here any more.
    pub fn close(&mut self) {
        self.owners.clear();
    }

    /// Starts the flush that a partition wants now, or notes when it will want one.
    fn after(&mut self, number: u64, now: MonoTime, station: &Arc<Station>) {
        let Some(owner) = self.owners.get_mut(&number) else { return };
        if let Some(ticket) = owner.wanted_flush(now) {
            let partition = Arc::clone(owner.partition());
            self.flush(partition, ticket, station);
        } else if let Some(due) = owner.flush_due() {
            self.due.insert((due, number));
        }
    }

    fn flush(&self, partition: Arc<Partition>, ticket: FlushTicket, station: &Arc<Station>) {
        let station = Arc::clone(station);
        let dir = partition.dir.clone();
        let done = Box::new(move |outcome| {
            let told = station.visit((partition, outcome), |desk, (partition, outcome)| {
                desk.flushed(partition.number, outcome, desk.now(), &station);
            });
            if let Err((partition, outcome)) = told {
                station.mailbox.send(Message::Flushed(partition, outcome));
            }
        });
        self.env.flushers.flush(&dir, ticket, done);
    }
}
