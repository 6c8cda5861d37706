//! The registries under openraft: applied, stored, fed to brokers, snapshotted (REPLICATION R2, R7, R8).

use std::io::{self, Seek, SeekFrom};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use futures_util::{Stream, TryStreamExt};
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use openraft::type_config::alias::SnapshotOf;
use openraft::{EntryPayload, OptionalSend};
use prost::Message;
use thalweg_model::Timestamp;
use thalweg_proto::v1::{Applied, CommandBatch, Record};

use super::feed::{Feed, FeedLimits};
use super::types::{Answers, Entry, LogId, SnapshotMeta, StoredMembership, TypeConfig};
use super::{codec, snapshot};
use crate::registry::context::{Context, Seed};
use crate::registry::hash::StateHash;
use crate::registry::state::State;
use crate::registry::{Machine, Progress, features, keys};
use crate::store::{Batch, KvStore, SnapshotFile, Space, View};

/// What readers share with the state machine.
pub struct Shared {
    machine: RwLock<Machine>,
    pub feed: Feed,
}

impl Shared {
    /// Short reads only: applying waits for them.
    pub fn machine(&self) -> RwLockReadGuard<'_, Machine> {
        self.machine.read().unwrap_or_else(PoisonError::into_inner)
    }
}

pub struct StateMachine {
    store: Arc<dyn KvStore>,
    shared: Arc<Shared>,
    generation: Space,
    applied: Option<LogId>,
    membership: StoredMembership,
    /// Of the feature thalweg.version: the highest that this node can work at.
    level_max: u32,
}

impl StateMachine {
    /// Rebuilds the registries from what is stored.
    ///
    /// # Errors
    /// The store failed, is damaged, or was written by a newer version.
    pub fn open(store: Arc<dyn KvStore>, limits: FeedLimits, level_max: u32) -> io::Result<StateMachine> {
        let (applied, generation) = read_applied(&*store)?;
        let mut state = State::default();
        store.scan(generation, &[], &mut |_, value| {
            let record: Record = codec::decode(value, "a record")?;
            state.replay(&record).map_err(|cause| codec::invalid(cause.to_string()))?;
            Ok(true)
        })?;
        check_level(&state, level_max)?;
        // What an install that did not end has left.
        clear(&*store, other(generation))?;
        let machine = Machine::restored(state, progress_from(&applied));
        let feed = Feed::new(machine.feed_index(), limits);
        Ok(StateMachine {
            shared: Arc::new(Shared { machine: RwLock::new(machine), feed }),
            generation,
            applied: applied.last_applied.as_ref().map(codec::log_id_from),
            membership: codec::stored_membership_from(&applied)?,
            store,
            level_max,
        })
    }

    pub fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    fn apply_entry(&mut self, entry: &Entry) -> io::Result<Answers> {
        let index = entry.log_id.index;
        let mut answers = Answers::default();
        let mut records = Vec::new();
        let mut machine = self.shared.machine.write().unwrap_or_else(PoisonError::into_inner);
        match &entry.payload {
            EntryPayload::Blank => {}
            EntryPayload::Normal(commands) => {
                for (context, command) in contexts(index, &commands.0).zip(&commands.0.commands) {
                    let applied = machine.apply(&context, command);
                    let (outcome, changes) = applied.map_err(|cause| codec::invalid(cause.to_string()))?;
                    answers.outcomes.push(outcome);
                    records.extend(changes);
                    // Before anything of it is stored or told: an earlier version finds its data as it left it.
                    check_level(machine.state(), self.level_max)?;
                }
            }
            EntryPayload::Membership(membership) => {
                self.membership = StoredMembership::new(Some(entry.log_id), membership.clone());
            }
        }
        machine.end_entry(index);
        answers.feed_index = machine.feed_index();
        self.applied = Some(entry.log_id);
        self.store.write(self.batch(&records, machine.progress())?)?;
        // Still under the lock: who subscribes sees an entry in the image or in the stream, never in both or neither.
        self.shared.feed.publish(index, &records);
        Ok(answers)
    }

    fn batch(&self, records: &[Record], progress: Progress) -> io::Result<Batch> {
        let mut batch = Batch::default();
        for record in records {
            let ops = keys::ops(record).map_err(|cause| codec::invalid(cause.to_string()))?;
            batch.ops.extend(ops.into_iter().map(|op| (self.generation, op)));
        }
        let applied = applied_to(self.applied, &self.membership, progress);
        batch.put(Space::Meta, APPLIED, applied.encode_to_vec());
        Ok(batch)
    }
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotData = SnapshotFile;
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        Ok((self.applied, self.membership.clone()))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            let answers = self.apply_entry(&entry)?;
            if let Some(responder) = responder {
                responder.send(answers);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        SnapshotBuilder { store: Arc::clone(&self.store) }
    }

    /// Loads the snapshot beside the present state, then switches over in one batch.
    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: SnapshotFile) -> Result<(), io::Error> {
        let (store, target) = (Arc::clone(&self.store), other(self.generation));
        let load = move || install(&*store, target, snapshot);
        let (applied, state) = tokio::task::spawn_blocking(load).await.map_err(io::Error::other)??;
        check_level(&state, self.level_max)?;
        let last = applied.last_applied.as_ref().map(codec::log_id_from);
        if last != meta.last_log_id {
            return Err(codec::invalid("the snapshot ends elsewhere than its sender said"));
        }
        self.membership = codec::stored_membership_from(&applied)?;
        self.applied = last;
        let mut batch = Batch::default();
        batch.put(Space::Meta, GENERATION, target.name());
        batch.put(Space::Meta, APPLIED, applied.encode_to_vec());
        self.store.write(batch)?;
        let before = std::mem::replace(&mut self.generation, target);
        clear(&*self.store, before)?;
        let mut machine = self.shared.machine.write().unwrap_or_else(PoisonError::into_inner);
        *machine = Machine::restored(state, progress_from(&applied));
        self.shared.feed.cut(Some(machine.feed_index()));
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<SnapshotOf<TypeConfig, SnapshotFile>>, io::Error> {
        let Some(mut file) = self.store.snapshots().open_newest()? else { return Ok(None) };
        let applied = snapshot::peek(&mut file)?;
        Ok(Some(openraft::Snapshot { meta: meta_from(&applied)?, snapshot: file }))
    }
}

pub struct SnapshotBuilder {
    store: Arc<dyn KvStore>,
}

impl RaftSnapshotBuilder<TypeConfig> for SnapshotBuilder {
    type SnapshotData = SnapshotFile;

    async fn build_snapshot(&mut self) -> Result<SnapshotOf<TypeConfig, SnapshotFile>, io::Error> {
        let store = Arc::clone(&self.store);
        let build = move || {
            let (applied, file) = snapshot::write(&*store)?;
            // The log below it may be purged next, so everything that it stands for must be durable first.
            store.sync()?;
            store.snapshots().publish(file)?;
            let missing = || io::Error::other("the snapshot that was just published is gone");
            Ok::<_, io::Error>((applied, store.snapshots().open_newest()?.ok_or_else(missing)?))
        };
        let (applied, file) = tokio::task::spawn_blocking(build).await.map_err(io::Error::other)??;
        Ok(openraft::Snapshot { meta: meta_from(&applied)?, snapshot: file })
    }
}

/// The progress stored last, and the generation that the state is in.
///
/// # Errors
/// The store failed or is damaged.
pub fn read_applied(view: &(impl View + ?Sized)) -> io::Result<(Applied, Space)> {
    let applied = match view.value(Space::Meta, APPLIED)? {
        Some(bytes) => codec::decode(&bytes, "the applied index")?,
        None => applied_to(None, &StoredMembership::default(), Progress::default()),
    };
    let generation = match view.value(Space::Meta, GENERATION)? {
        Some(name) if name == Space::StateB.name().as_bytes() => Space::StateB,
        Some(_) | None => Space::StateA,
    };
    Ok((applied, generation))
}

/// The contexts of a batch's commands, in order.
pub fn contexts(index: u64, batch: &CommandBatch) -> impl Iterator<Item = Context> {
    let (time, default_min_isr) = (Timestamp(batch.time_ms), batch.default_min_isr);
    let seed = Seed::new(batch.seed_high, batch.seed_low);
    (0..).map(move |position| Context { index, time, seed: seed.of_command(position), default_min_isr })
}

/// Checks a snapshot as a whole while copying it and loading its records into `target`; publishes the copy.
fn install(store: &dyn KvStore, target: Space, mut snapshot: SnapshotFile) -> io::Result<(Applied, State)> {
    snapshot.seek(SeekFrom::Start(0))?;
    let mut copy = store.snapshots().create()?;
    io::copy(&mut snapshot, &mut copy)?;
    copy.seek(SeekFrom::Start(0))?;
    let (applied, mut reader) = snapshot::Reader::open(io::BufReader::new(&mut copy))?;
    clear(store, target)?;
    let mut state = State::default();
    let mut batch = Batch::default();
    while let Some(bytes) = reader.next_record()? {
        let record: Record = codec::decode(&bytes, "a record of the snapshot")?;
        state.replay(&record).map_err(|cause| codec::invalid(cause.to_string()))?;
        let ops = keys::ops(&record).map_err(|cause| codec::invalid(cause.to_string()))?;
        batch.ops.extend(ops.into_iter().map(|op| (target, op)));
        if batch.ops.len() >= INSTALL_BATCH {
            store.write(std::mem::take(&mut batch))?;
        }
    }
    store.write(batch)?;
    store.snapshots().publish(copy)?;
    Ok((applied, state))
}

/// Whether this node can go on with a state (REPLICATION R4).
fn check_level(state: &State, level_max: u32) -> io::Result<()> {
    let level = state.feature_level(features::VERSION);
    if level <= level_max {
        return Ok(());
    }
    Err(codec::invalid(format!(
        "the cluster is at level {level} of thalweg.version, this program knows levels up to {level_max}; start the newer \
         version"
    )))
}

fn clear(store: &dyn KvStore, generation: Space) -> io::Result<()> {
    let mut batch = Batch::default();
    batch.delete_range(generation, [], [0xFF]);
    store.write(batch)
}

fn other(generation: Space) -> Space {
    if generation == Space::StateA { Space::StateB } else { Space::StateA }
}

fn meta_from(applied: &Applied) -> io::Result<SnapshotMeta> {
    Ok(SnapshotMeta {
        last_log_id: applied.last_applied.as_ref().map(codec::log_id_from),
        last_membership: codec::stored_membership_from(applied)?,
    })
}

fn progress_from(applied: &Applied) -> Progress {
    Progress {
        next_index: applied.last_applied.as_ref().map_or(0, |id| id.index + 1),
        hash: StateHash(applied.hash),
        checked_index: applied.checked_index,
        checked_hash: StateHash(applied.checked_hash),
    }
}

fn applied_to(last: Option<LogId>, membership: &StoredMembership, progress: Progress) -> Applied {
    Applied {
        last_applied: last.as_ref().map(codec::log_id_to),
        membership_id: membership.log_id().as_ref().map(codec::log_id_to),
        membership: Some(codec::membership_to(membership.membership())),
        hash: progress.hash.0,
        checked_index: progress.checked_index,
        checked_hash: progress.checked_hash.0,
    }
}

const APPLIED: &[u8] = b"applied";
const GENERATION: &[u8] = b"generation";
const INSTALL_BATCH: usize = 1_000;
