//! Raft's log and vote in a [`KvStore`] (REPLICATION R1).
//!
//! A batch is readable as soon as it is written. One thread syncs: it takes everything that waits, syncs once, and reports
//! all of it, so that one sync serves many entries.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::{LogState, OptionalSend, RaftLogReader};
use prost::Message;
use thalweg_proto::v1;
use tokio::sync::oneshot;

use super::codec;
use super::types::{Entry, LogId, TypeConfig, Vote};
use crate::store::{Batch, KvStore, Space};

/// Cheap to clone; clones share the log.
#[derive(Clone)]
pub struct LogStore {
    store: Arc<dyn KvStore>,
    syncer: Arc<Syncer>,
}

impl LogStore {
    /// # Errors
    /// The sync thread cannot be started.
    pub fn open(store: Arc<dyn KvStore>) -> io::Result<LogStore> {
        let syncer = Arc::new(Syncer::start(Arc::clone(&store))?);
        Ok(LogStore { store, syncer })
    }

    fn read<M: Message + Default>(&self, key: &[u8], what: &str) -> io::Result<Option<M>> {
        self.store.value(Space::Meta, key)?.map(|bytes| codec::decode(&bytes, what)).transpose()
    }

    fn last_purged(&self) -> io::Result<Option<LogId>> {
        Ok(self.read::<v1::LogId>(PURGED, "the mark of the purged log")?.as_ref().map(codec::log_id_from))
    }

    fn entries(&self, from: u64, to: Bound<u64>, bytes_max: usize) -> io::Result<Vec<Entry>> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut bytes = 0;
        // Deleted entries at the head make a scan from 0 slow, so it starts behind them.
        let from = from.max(self.last_purged()?.map_or(0, |id| id.index + 1));
        self.store.scan(Space::Log, &from.to_be_bytes(), &mut |key, value| {
            let index = index_of(key)?;
            let within = match to {
                Bound::Included(last) => index <= last,
                Bound::Excluded(end) => index < end,
                Bound::Unbounded => true,
            };
            if !within || (bytes > 0 && bytes + value.len() > bytes_max) {
                return Ok(false);
            }
            let expected = entries.last().map_or(index, |last| last.log_id.index + 1);
            if index != expected {
                return Err(codec::invalid(format!("the log has a hole: entry {index} follows {}", expected - 1)));
            }
            bytes += value.len();
            entries.push(codec::entry_from(codec::decode(value, "a log entry")?)?);
            Ok(true)
        })?;
        Ok(entries)
    }
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, io::Error> {
        let from = match range.start_bound() {
            Bound::Included(first) => *first,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        self.entries(from, range.end_bound().cloned(), usize::MAX)
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.read::<v1::Vote>(VOTE, "the vote")?.as_ref().map(codec::vote_from))
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<Entry>, io::Error> {
        self.entries(start, Bound::Excluded(end), READ_BYTES_MAX)
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = LogStore;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        let last_purged_log_id = self.last_purged()?;
        let last_log_id = match self.store.last(Space::Log)? {
            Some((_, value)) => Some(codec::entry_from(codec::decode(&value, "the last log entry")?)?.log_id),
            None => last_purged_log_id,
        };
        Ok(LogState { last_purged_log_id, last_log_id })
    }

    async fn get_log_reader(&mut self) -> LogStore {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let mut batch = Batch::default();
        batch.put(Space::Meta, VOTE, codec::vote_to(vote).encode_to_vec());
        self.store.write(batch)?;
        let (done, synced) = oneshot::channel();
        self.syncer.submit(Waiting::Vote(done))?;
        synced.await.map_err(|_| stopped())?
    }

    /// Not synced: after a crash a smaller one, or none, is safe.
    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        let mut batch = Batch::default();
        match committed {
            Some(id) => batch.put(Space::Meta, COMMITTED, codec::log_id_to(&id).encode_to_vec()),
            None => batch.delete(Space::Meta, COMMITTED),
        }
        self.store.write(batch)
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        Ok(self.read::<v1::LogId>(COMMITTED, "the mark of the committed log")?.as_ref().map(codec::log_id_from))
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut batch = Batch::default();
        for entry in entries {
            let key = entry.log_id.index.to_be_bytes();
            batch.put(Space::Log, key, codec::entry_to(&entry).encode_to_vec());
        }
        self.store.write(batch)?;
        self.syncer.submit(Waiting::Append(callback))
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> Result<(), io::Error> {
        let first = last_log_id.map_or(0, |id| id.index + 1);
        let mut batch = Batch::default();
        batch.delete_range(Space::Log, first.to_be_bytes(), END);
        self.store.write(batch)
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), io::Error> {
        let first = self.last_purged()?.map_or(0, |id| id.index + 1);
        let mut batch = Batch::default();
        batch.delete_range(Space::Log, first.to_be_bytes(), (log_id.index + 1).to_be_bytes());
        batch.put(Space::Meta, PURGED, codec::log_id_to(&log_id).encode_to_vec());
        self.store.write(batch)
    }
}

/// The thread that syncs. Ends when the last log store is dropped, after reporting what waits.
struct Syncer {
    queue: Mutex<Option<Sender<Waiting>>>,
    thread: Option<JoinHandle<()>>,
}

enum Waiting {
    Append(IOFlushed<TypeConfig>),
    Vote(oneshot::Sender<io::Result<()>>),
}

impl Syncer {
    fn start(store: Arc<dyn KvStore>) -> io::Result<Syncer> {
        let (sender, receiver) = channel();
        let thread =
            std::thread::Builder::new().name("raft-sync".to_owned()).spawn(move || sync_all(&*store, &receiver))?;
        Ok(Syncer { queue: Mutex::new(Some(sender)), thread: Some(thread) })
    }

    fn submit(&self, waiting: Waiting) -> io::Result<()> {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.as_ref().ok_or_else(stopped)?.send(waiting).map_err(|_| stopped())
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(thread) = self.thread.take() {
            // The thread holds no lock and its panic has nothing to tell that its callbacks have not told.
            drop(thread.join());
        }
    }
}

fn sync_all(store: &dyn KvStore, queue: &Receiver<Waiting>) {
    let mut waiting = Vec::new();
    while let Ok(first) = queue.recv() {
        waiting.push(first);
        waiting.extend(queue.try_iter());
        let result = store.sync();
        for waiter in waiting.drain(..) {
            let result = match &result {
                Ok(()) => Ok(()),
                Err(cause) => Err(io::Error::new(cause.kind(), cause.to_string())),
            };
            match waiter {
                Waiting::Append(callback) => callback.io_completed(result),
                // Whoever asked may be gone.
                Waiting::Vote(done) => drop(done.send(result)),
            }
        }
    }
}

fn index_of(key: &[u8]) -> io::Result<u64> {
    let bytes = key.try_into().map_err(|_| codec::invalid("a log entry's key has a wrong length"))?;
    Ok(u64::from_be_bytes(bytes))
}

fn stopped() -> io::Error {
    io::Error::other("the log's sync thread has stopped")
}

const VOTE: &[u8] = b"vote";
const PURGED: &[u8] = b"purged";
const COMMITTED: &[u8] = b"committed";
/// Behind every index.
const END: [u8; 9] = [0xFF; 9];
/// A read for replication stops at about this size.
const READ_BYTES_MAX: usize = 1 << 20;
