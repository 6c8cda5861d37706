//! A store in memory: for tests and for the simulator.

use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::sync::{PoisonError, RwLock};

use super::{Batch, KvStore, Op, Snapshots, Space, View, Visit};

/// Forgets everything with the process. [`MemStore::power_cut`] gives what a disk would have kept.
pub struct MemStore {
    inner: RwLock<Inner>,
    snapshots: Snapshots,
}

#[derive(Clone, Default)]
struct Inner {
    now: Spaces,
    /// As of the last sync.
    durable: Spaces,
    /// Written since.
    unsynced: Vec<Batch>,
    sync_count: u64,
}

#[derive(Clone, Default)]
struct Spaces(BTreeMap<Space, BTreeMap<Vec<u8>, Vec<u8>>>);

impl MemStore {
    pub fn new() -> MemStore {
        MemStore { inner: RwLock::default(), snapshots: Snapshots::memory() }
    }

    /// A store with what was synced, and only that.
    #[must_use]
    pub fn power_cut(&self) -> MemStore {
        let durable = self.inner.read().unwrap_or_else(PoisonError::into_inner).durable.clone();
        let inner = Inner { now: durable.clone(), durable, ..Inner::default() };
        MemStore { inner: RwLock::new(inner), snapshots: self.snapshots.copy_memory() }
    }

    /// How often [`KvStore::sync`] was called.
    pub fn sync_count(&self) -> u64 {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).sync_count
    }
}

impl Default for MemStore {
    fn default() -> MemStore {
        MemStore::new()
    }
}

impl View for MemStore {
    fn value(&self, space: Space, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).now.value(space, key)
    }

    fn scan(&self, space: Space, from: &[u8], visit: Visit<'_>) -> io::Result<()> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).now.scan(space, from, visit)
    }

    fn last(&self, space: Space) -> io::Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).now.last(space)
    }
}

impl KvStore for MemStore {
    fn write(&self, batch: Batch) -> io::Result<()> {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        inner.now.apply(&batch);
        inner.unsynced.push(batch);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        let inner = &mut *inner;
        for batch in inner.unsynced.drain(..) {
            inner.durable.apply(&batch);
        }
        inner.sync_count += 1;
        Ok(())
    }

    fn view(&self) -> io::Result<Box<dyn View + '_>> {
        Ok(Box::new(self.inner.read().unwrap_or_else(PoisonError::into_inner).now.clone()))
    }

    fn snapshots(&self) -> &Snapshots {
        &self.snapshots
    }
}

impl Spaces {
    fn apply(&mut self, batch: &Batch) {
        for (space, op) in &batch.ops {
            let map = self.0.entry(*space).or_default();
            match op {
                Op::Put { key, value } => {
                    map.insert(key.clone(), value.clone());
                }
                Op::Delete { key } => {
                    map.remove(key);
                }
                Op::DeleteRange { from, to } if from < to => {
                    let gone: Vec<Vec<u8>> = map.range(from.clone()..to.clone()).map(|(key, _)| key.clone()).collect();
                    for key in gone {
                        map.remove(&key);
                    }
                }
                Op::DeleteRange { .. } => {}
            }
        }
    }
}

impl View for Spaces {
    fn value(&self, space: Space, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        Ok(self.0.get(&space).and_then(|map| map.get(key)).cloned())
    }

    fn scan(&self, space: Space, from: &[u8], visit: Visit<'_>) -> io::Result<()> {
        let Some(map) = self.0.get(&space) else { return Ok(()) };
        for (key, value) in map.range::<[u8], _>((Bound::Included(from), Bound::Unbounded)) {
            if !visit(key, value)? {
                break;
            }
        }
        Ok(())
    }

    fn last(&self, space: Space) -> io::Result<Option<(Vec<u8>, Vec<u8>)>> {
        let last = self.0.get(&space).and_then(BTreeMap::last_key_value);
        Ok(last.map(|(key, value)| (key.clone(), value.clone())))
    }
}
