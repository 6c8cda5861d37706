//! Where a coordinator keeps its Raft log and state: an ordered key-value store behind a small trait.

mod mem;
mod snapshots;

use std::io;

pub use mem::MemStore;
pub use snapshots::{SnapshotFile, Snapshots};
/// For stores in directories of their own.
pub use thalweg_world::disk::create_dir_durable;

pub use crate::registry::keys::Op;

/// Keyspaces of one store. A batch may touch several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Space {
    /// Raft's log, by index.
    Log,
    /// Vote, markers, progress.
    Meta,
    /// The registries' records. Two generations, so that a snapshot is installed beside what it replaces.
    StateA,
    StateB,
}

impl Space {
    pub const ALL: [Space; 4] = [Space::Log, Space::Meta, Space::StateA, Space::StateB];

    /// A name for stores that name their keyspaces. Stored; never changes.
    pub fn name(self) -> &'static str {
        match self {
            Space::Log => "raft_log",
            Space::Meta => "raft_meta",
            Space::StateA => "state_a",
            Space::StateB => "state_b",
        }
    }
}

/// Changes that happen together or not at all.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub ops: Vec<(Space, Op)>,
}

impl Batch {
    pub fn put(&mut self, space: Space, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) {
        self.ops.push((space, Op::Put { key: key.into(), value: value.into() }));
    }

    pub fn delete(&mut self, space: Space, key: impl Into<Vec<u8>>) {
        self.ops.push((space, Op::Delete { key: key.into() }));
    }

    /// `from` inclusive, `to` exclusive.
    pub fn delete_range(&mut self, space: Space, from: impl Into<Vec<u8>>, to: impl Into<Vec<u8>>) {
        self.ops.push((space, Op::DeleteRange { from: from.into(), to: to.into() }));
    }
}

/// Called with each key and value; `false` ends the scan.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> io::Result<bool>;

/// Reads of one moment.
pub trait View {
    /// # Errors
    /// The disk failed or its contents are damaged.
    fn value(&self, space: Space, key: &[u8]) -> io::Result<Option<Vec<u8>>>;

    /// Visits keys from `from` on in ascending order of bytes.
    ///
    /// # Errors
    /// Those of the disk and those of `visit`.
    fn scan(&self, space: Space, from: &[u8], visit: Visit<'_>) -> io::Result<()>;

    /// The entry with the largest key.
    ///
    /// # Errors
    /// The disk failed or its contents are damaged.
    fn last(&self, space: Space) -> io::Result<Option<(Vec<u8>, Vec<u8>)>>;
}

/// An ordered key-value store, safe to share. Its own methods read the newest state.
pub trait KvStore: View + Send + Sync + 'static {
    /// Makes the changes visible at once, and durable with the next [`KvStore::sync`]. Batches become durable in the order
    /// in which they were written: after a crash, a batch is there only if all before it are.
    ///
    /// # Errors
    /// The disk failed; nothing of the batch counts, and the node must stop.
    fn write(&self, batch: Batch) -> io::Result<()>;

    /// Returns once every batch written before is on stable storage.
    ///
    /// # Errors
    /// The disk failed; what was written before may be lost, and the node must stop.
    fn sync(&self) -> io::Result<()>;

    /// All keyspaces as of now.
    ///
    /// # Errors
    /// The disk failed.
    fn view(&self) -> io::Result<Box<dyn View + '_>>;

    /// Where snapshots lie.
    fn snapshots(&self) -> &Snapshots;
}
