//! Worker threads: each owns the logs of the partitions that hash to it and is the only one to write them.
//!
//! One drain of the mailbox is one write per log, so that load makes batches by itself. Nothing here waits for a disk's sync.

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use arc_swap::ArcSwap;
use thalweg_model::{MonoTime, PartitionIndex, TopicId};
use thalweg_world::Clock;
use tokio::sync::oneshot;
use tracing::error;

use super::desk::{Desk, Message, Station};
use super::flusher::Flushers;
use super::isr::ProposalSender;
use super::owner::Owner;
use super::partitions::Partition;
use crate::machine::image::Image;
use crate::metrics::Metrics;

pub use super::owner::{Append, RequiredAcks};

/// Every worker thread of a broker.
pub struct Workers {
    stations: Vec<Arc<Station>>,
    guests: Guests,
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

/// How many threads of connections may write to logs themselves at a time: one less than there are, so that disks that stand still
/// never take all of them.
struct Guests(AtomicUsize);

impl LeaseCell {
    pub fn set(&self, until: MonoTime) {
        self.0.store(until.0, Ordering::Release);
    }

    pub fn may_lead(&self, now: MonoTime) -> bool {
        now.0 < self.0.load(Ordering::Acquire)
    }
}

impl Guests {
    fn receive<T>(&self, work: T, act: impl FnOnce(T) -> Result<(), T>) -> Result<(), T> {
        if self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |free| free.checked_sub(1)).is_err() {
            return Err(work);
        }
        let result = act(work);
        self.0.fetch_add(1, Ordering::AcqRel);
        result
    }
}

impl Workers {
    /// `mailbox_bound`: appends that may wait for one worker.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(count: usize, mailbox_bound: usize, env: &WorkerEnv) -> io::Result<Workers> {
        let stations: Vec<Arc<Station>> =
            (0..count.max(1)).map(|_| Arc::new(Station::new(mailbox_bound, env.clone()))).collect();
        let mut threads = Vec::with_capacity(stations.len());
        for (number, station) in stations.iter().enumerate() {
            let worker = Worker { station: Arc::clone(station) };
            threads.push(std::thread::Builder::new().name(format!("worker-{number}")).spawn(move || worker.run())?);
        }
        let net_threads = tokio::runtime::Handle::try_current().map_or(1, |net| net.metrics().num_workers());
        Ok(Workers { stations, guests: Guests(AtomicUsize::new(net_threads - 1)), threads: Mutex::new(threads) })
    }

    /// Which worker owns a partition.
    pub fn owner_of(&self, topic: TopicId, partition: PartitionIndex) -> usize {
        let low = u64::from_le_bytes(topic.0[8..].try_into().expect("eight of sixteen bytes"));
        let spread = low.wrapping_add(u64::from(partition.0.unsigned_abs())).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        // Neighbouring partitions of one topic go to different workers.
        ((spread >> 32) as usize).wrapping_add(partition.0.unsigned_abs() as usize) % self.stations.len()
    }

    /// Hands a batch to the owner of its log; waits while too many wait there already.
    ///
    /// `alone`: the connection has nothing else under way. Then a small batch is written here and now if its worker sleeps: waking
    /// it, and being woken by it, would take longer. One that comes with others is better written with them.
    pub async fn append(&self, append: Append, alone: bool) {
        let station = &self.stations[append.partition.worker];
        let append = match alone && append.batch.len() <= WRITTEN_HERE_MAX {
            true => self.guests.receive(append, |append| station.visit(append, Desk::append)),
            false => Err(append),
        };
        if let Err(append) = append {
            station.mailbox.send_bounded(Message::Append(append)).await;
        }
    }

    /// Gives a log into the hands of its worker.
    pub fn give(&self, owner: Owner) {
        let worker = owner.partition().worker;
        self.stations[worker].mailbox.send(Message::Take(Box::new(owner)));
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
        self.stations[partition.worker].mailbox.send(Message::Ask(Arc::clone(partition), Box::new(order)));
    }

    /// Runs `question` for many partitions, with one message per worker; answers in the order of `asked`. For what does not
    /// write to logs.
    pub async fn ask_each<Q: Send + 'static, T: Send + 'static>(
        &self,
        asked: Vec<(Arc<Partition>, Q)>,
        question: impl Fn(&mut Owner, Q) -> T + Send + Sync + Clone + 'static,
    ) -> Vec<Result<T, Gone>> {
        let mut by_worker: Vec<Vec<(usize, u64, Q)>> = self.stations.iter().map(|_| Vec::new()).collect();
        let mut answers: Vec<Result<T, Gone>> = Vec::with_capacity(asked.len());
        for (index, (partition, asked)) in asked.into_iter().enumerate() {
            by_worker[partition.worker].push((index, partition.number, asked));
            answers.push(Err(Gone));
        }
        let mut receivers = Vec::new();
        for (station, share) in self.stations.iter().zip(by_worker).filter(|(_, share)| !share.is_empty()) {
            let (sender, receiver) = oneshot::channel();
            let question = question.clone();
            station.mailbox.send(Message::Visit(Box::new(move |owners| {
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
        for station in &self.stations {
            let order = order.clone();
            station
                .mailbox
                .send(Message::Visit(Box::new(move |owners| owners.values_mut().for_each(|owner| order(owner)))));
        }
    }

    /// Takes a log out of the hands of its worker.
    ///
    /// # Errors
    /// Nobody owns it any more.
    pub async fn release(&self, partition: &Arc<Partition>) -> Result<Box<Owner>, Gone> {
        let (sender, receiver) = oneshot::channel();
        self.stations[partition.worker].mailbox.send(Message::Release(Arc::clone(partition), sender));
        receiver.await.map_err(|_| Gone)
    }

    /// Stops every worker after what waits has been done. Logs that were not released are dropped as they are. Blocks.
    pub fn stop(&self) {
        for station in &self.stations {
            station.mailbox.send(Message::Stop);
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
    station: Arc<Station>,
}

impl Worker {
    fn run(self) {
        let station = &self.station;
        let mut messages = Vec::new();
        let mut flushed = Vec::new();
        loop {
            let patience = station.desk().patience();
            station.mailbox.take(&mut messages, patience);
            let mut desk = station.desk();
            let mut appends = 0;
            let mut stop = false;
            for message in messages.drain(..) {
                match message {
                    Message::Append(append) => {
                        appends += 1;
                        desk.append(append);
                    }
                    Message::Flushed(partition, outcome) => flushed.push((partition.number, outcome)),
                    other => {
                        // It must find what came before it done.
                        desk.settle(station);
                        stop |= desk.control(other, station);
                    }
                }
            }
            station.mailbox.made_room(appends);
            desk.settle(station);
            let now = desk.now();
            for (number, outcome) in flushed.drain(..) {
                desk.flushed(number, outcome, now, station);
            }
            desk.flush_due(now, station);
            if stop {
                return;
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.station.mailbox.close();
        let mut desk = self.station.desk_after_panic();
        if std::thread::panicking() {
            // The other workers go on.
            desk.fail();
        }
        desk.close();
    }
}

/// Larger batches take longer to write than a thread to wake.
const WRITTEN_HERE_MAX: usize = 16 << 10;
