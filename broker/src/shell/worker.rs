//! Worker threads: each owns the logs of the partitions that hash to it and is the only one to write them.
//!
//! One drain of the mailbox is one write per log, so that load makes batches by itself. Nothing here waits for a disk's sync.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use arc_swap::ArcSwap;
use thalweg_model::{MonoTime, PartitionIndex, TopicId};
use thalweg_storage::{FlushOutcome, FlushTicket};
use thalweg_world::Clock;
use tokio::sync::oneshot;
use tracing::error;

use super::flusher::Flushers;
use super::isr::ProposalSender;
use super::mailbox::Mailbox;
use super::owner::{Moment, Owner};
use super::partitions::Partition;
use crate::machine::image::Image;
use crate::metrics::Metrics;

pub use super::owner::{Append, RequiredAcks};

/// Every worker thread of a broker.
pub struct Workers {
    mailboxes: Vec<Arc<Mailbox<Message>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What workers share.
#[derive(Clone)]
pub struct WorkerEnv {
    pub clock: Clock,
    pub flushers: Arc<Flushers>,
    pub metrics: Arc<Metrics>,
    pub lease: Arc<LeaseCell>,
    pub image: Arc<ArcSwap<Image>>,
    pub proposals: ProposalSender,
}

/// Until when the broker may lead, for threads that only need to know that.
#[derive(Debug, Default)]
pub struct LeaseCell(AtomicU64);

/// The worker has stopped, or does not own the partition any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

type Question = Box<dyn FnOnce(&mut Owner) + Send>;
type Visit = Box<dyn FnOnce(&mut HashMap<u64, Owner>) + Send>;

enum Message {
    Append(Append),
    Flushed(Arc<Partition>, FlushOutcome),
    Take(Box<Owner>),
    Ask(Arc<Partition>, Question),
    /// Looks at any of a worker's logs; does not write to them.
    Visit(Visit),
    Release(Arc<Partition>, oneshot::Sender<Owner>),
    Stop,
}

impl LeaseCell {
    pub fn set(&self, until: MonoTime) {
        self.0.store(until.0, Ordering::Release);
    }

    pub fn may_lead(&self, now: MonoTime) -> bool {
        now.0 < self.0.load(Ordering::Acquire)
    }
}

impl Workers {
    /// `mailbox_bound`: appends that may wait for one worker.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(count: usize, mailbox_bound: usize, env: &WorkerEnv) -> io::Result<Workers> {
        let mailboxes: Vec<Arc<Mailbox<Message>>> =
            (0..count.max(1)).map(|_| Arc::new(Mailbox::new(mailbox_bound))).collect();
        let mut threads = Vec::with_capacity(mailboxes.len());
        for (number, mailbox) in mailboxes.iter().enumerate() {
            let worker = Worker {
                mailbox: Arc::clone(mailbox),
                env: env.clone(),
                owners: HashMap::new(),
                touched: Vec::new(),
                due: BTreeSet::new(),
            };
            threads.push(std::thread::Builder::new().name(format!("worker-{number}")).spawn(move || worker.run())?);
        }
        Ok(Workers { mailboxes, threads: Mutex::new(threads) })
    }

    /// Which worker owns a partition.
    pub fn owner_of(&self, topic: TopicId, partition: PartitionIndex) -> usize {
        let low = u64::from_le_bytes(topic.0[8..].try_into().expect("eight of sixteen bytes"));
        let spread = low.wrapping_add(u64::from(partition.0.unsigned_abs())).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        // Neighbouring partitions of one topic go to different workers.
        ((spread >> 32) as usize).wrapping_add(partition.0.unsigned_abs() as usize) % self.mailboxes.len()
    }

    /// Hands a batch to the owner of its log; waits while too many wait there already.
    pub async fn append(&self, append: Append) {
        let worker = append.partition.worker;
        self.mailboxes[worker].send_bounded(Message::Append(append)).await;
    }

    /// Gives a log into the hands of its worker.
    pub fn give(&self, owner: Owner) {
        let worker = owner.partition().worker;
        self.mailboxes[worker].send(Message::Take(Box::new(owner)));
    }

    /// Runs `question` on the thread that owns the partition.
    ///
    /// # Errors
    /// Nobody owns it any more.
    pub async fn ask<T: Send + 'static>(
        &self,
        partition: &Arc<Partition>,
        question: impl FnOnce(&mut Owner) -> T + Send + 'static,
    ) -> Result<T, Gone> {
        let (sender, receiver) = oneshot::channel();
        self.tell(partition, move |owner| {
            // Nobody waits any more: as good as answered.
            let _ = sender.send(question(owner));
        });
        receiver.await.map_err(|_| Gone)
    }

    /// As [`Workers::ask`], without waiting for it.
    pub fn tell(&self, partition: &Arc<Partition>, order: impl FnOnce(&mut Owner) + Send + 'static) {
        self.mailboxes[partition.worker].send(Message::Ask(Arc::clone(partition), Box::new(order)));
    }

    /// Runs `question` for many partitions, with one message per worker; answers in the order of `asked`. For what does not
    /// write to logs.
    pub async fn ask_each<Q: Send + 'static, T: Send + 'static>(
        &self,
        asked: Vec<(Arc<Partition>, Q)>,
        question: impl Fn(&mut Owner, Q) -> T + Send + Sync + Clone + 'static,
    ) -> Vec<Result<T, Gone>> {
        let mut by_worker: Vec<Vec<(usize, u64, Q)>> = self.mailboxes.iter().map(|_| Vec::new()).collect();
        let mut answers: Vec<Result<T, Gone>> = Vec::with_capacity(asked.len());
        for (index, (partition, asked)) in asked.into_iter().enumerate() {
            by_worker[partition.worker].push((index, partition.number, asked));
            answers.push(Err(Gone));
        }
        let mut receivers = Vec::new();
        for (mailbox, share) in self.mailboxes.iter().zip(by_worker).filter(|(_, share)| !share.is_empty()) {
            let (sender, receiver) = oneshot::channel();
            let question = question.clone();
            mailbox.send(Message::Visit(Box::new(move |owners| {
                let answer =
                    |(index, number, asked): (usize, u64, Q)| Some((index, question(owners.get_mut(&number)?, asked)));
                let answers: Vec<(usize, T)> = share.into_iter().filter_map(answer).collect();
                // Nobody waits any more: as good as answered.
                let _ = sender.send(answers);
            })));
            receivers.push(receiver);
        }
        for receiver in receivers {
            for (index, answer) in receiver.await.unwrap_or_default() {
                answers[index] = Ok(answer);
            }
        }
        answers
    }

    /// Runs `order` for every log, without waiting for it. For what does not write to logs.
    pub fn tell_all(&self, order: impl Fn(&mut Owner) + Send + Sync + Clone + 'static) {
        for mailbox in &self.mailboxes {
            let order = order.clone();
            mailbox.send(Message::Visit(Box::new(move |owners| owners.values_mut().for_each(order))));
        }
    }

    /// Takes a log out of the hands of its worker.
    ///
    /// # Errors
    /// Nobody owns it any more.
    pub async fn release(&self, partition: &Arc<Partition>) -> Result<Owner, Gone> {
        let (sender, receiver) = oneshot::channel();
        self.mailboxes[partition.worker].send(Message::Release(Arc::clone(partition), sender));
        receiver.await.map_err(|_| Gone)
    }

    /// Stops every worker after what waits has been done. Logs that were not released are dropped as they are. Blocks.
    pub fn stop(&self) {
        for mailbox in &self.mailboxes {
            mailbox.send(Message::Stop);
        }
        let threads = std::mem::take(&mut *self.threads.lock().expect("no code panics while it holds this lock"));
        for thread in threads {
            if thread.join().is_err() {
                error!("a worker thread ended with a panic");
            }
        }
    }
}

struct Worker {
    mailbox: Arc<Mailbox<Message>>,
    env: WorkerEnv,
    /// By the partition's number.
    owners: HashMap<u64, Owner>,
    /// Partitions with batches to be written.
    touched: Vec<u64>,
    /// When `replicated` partitions want to be flushed.
    due: BTreeSet<(MonoTime, u64)>,
}

impl Worker {
    fn run(mut self) {
        let mut messages = Vec::new();
        let mut flushed = Vec::new();
        loop {
            let patience = self.due.first().map(|(due, _)| due.since(self.env.clock.mono()));
            self.mailbox.take(&mut messages, patience);
            let mut appends = 0;
            let mut stop = false;
            for message in messages.drain(..) {
                match message {
                    Message::Append(append) => {
                        appends += 1;
                        self.append(append);
                    }
                    Message::Flushed(partition, outcome) => flushed.push((partition.number, outcome)),
                    other => {
                        // It must find what came before it done.
                        self.write();
                        stop |= self.control(other);
                    }
                }
            }
            self.mailbox.made_room(appends);
            self.write();
            let now = self.env.clock.mono();
            for (number, outcome) in flushed.drain(..) {
                if let Some(owner) = self.owners.get_mut(&number) {
                    owner.flushed(outcome, now);
                }
                self.after(number, now);
            }
            self.flush_due(now);
            if stop {
                return;
            }
        }
    }

    fn append(&mut self, append: Append) {
        let number = append.partition.number;
        match self.owners.get_mut(&number) {
            Some(owner) => {
                if owner.enqueue(append) {
                    self.touched.push(number);
                }
            }
            // Between losing the partition and hearing of it.
            None => append.ack.answer(super::ack::AppendOutcome::failed(thalweg_model::ErrorCode::NotLeaderOrFollower)),
        }
    }

    fn write(&mut self) {
        if self.touched.is_empty() {
            return;
        }
        let mono = self.env.clock.mono();
        let moment = Moment { mono, wall: self.env.clock.wall(), may_lead: self.env.lease.may_lead(mono) };
        for number in std::mem::take(&mut self.touched) {
            if let Some(owner) = self.owners.get_mut(&number) {
                let written = owner.write(moment);
                let metrics = &self.env.metrics;
                metrics.write_batches.inc();
                metrics.produced_bytes.inc_by(written.bytes);
                metrics.produced_records.inc_by(written.records);
            }
            self.after(number, mono);
        }
    }

    /// Returns whether to stop.
    fn control(&mut self, message: Message) -> bool {
        match message {
            Message::Take(owner) => {
                self.owners.insert(owner.partition().number, *owner);
            }
            Message::Ask(partition, question) => {
                if let Some(owner) = self.owners.get_mut(&partition.number) {
                    question(owner);
                }
                self.after(partition.number, self.env.clock.mono());
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

    /// Starts the flush that a partition wants now, or notes when it will want one.
    fn after(&mut self, number: u64, now: MonoTime) {
        let Some(owner) = self.owners.get_mut(&number) else { return };
        if let Some(ticket) = owner.wanted_flush(now) {
            let partition = Arc::clone(owner.partition());
            self.flush(partition, ticket);
        } else if let Some(due) = owner.flush_due() {
            self.due.insert((due, number));
        }
    }

    fn flush(&self, partition: Arc<Partition>, ticket: FlushTicket) {
        let mailbox = Arc::clone(&self.mailbox);
        let dir = partition.dir.clone();
        let done = Box::new(move |outcome| mailbox.send(Message::Flushed(partition, outcome)));
        self.env.flushers.flush(&dir, ticket, done);
    }

    fn flush_due(&mut self, now: MonoTime) {
        while let Some((due, number)) = self.due.first().copied().filter(|(due, _)| *due <= now) {
            self.due.remove(&(due, number));
            self.after(number, now);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.mailbox.close();
        if std::thread::panicking() {
            // A broken invariant: what this thread owns is not served any more; the others go on.
            for owner in self.owners.values_mut() {
                owner.fail();
            }
        }
    }
}
