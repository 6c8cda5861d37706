//! A file system in memory that forgets what was not synced, and breaks on command.
//!
//! Every change is kept twice: as running code sees it, and as a queue of what is not yet durable.
//! [`SimDisk::crash`] turns any choice over that queue into the file system found after a power cut.
//! The order of the queue is kept within a choice; data writes may also be torn by sectors. A
//! sector is what it was at some moment: whoever keeps a write keeps what was in its sectors before.
//! A rename is atomic, as journaling file systems make it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};
use std::iter;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_model::Timestamp;

use super::{DirEntry, Disk, DiskFile, DiskLock, OpenMode};

/// Cheap to clone; clones are the same disk.
#[derive(Clone, Debug)]
pub struct SimDisk(Arc<Mutex<State>>);

impl Default for SimDisk {
    fn default() -> SimDisk {
        SimDisk::new()
    }
}

impl SimDisk {
    /// An empty file system with 1 TiB free.
    pub fn new() -> SimDisk {
        let root = Node::Dir { live: BTreeMap::new(), durable: BTreeMap::new() };
        SimDisk::from_state(State {
            nodes: BTreeMap::from([(ROOT, root)]),
            next_node: ROOT + 1,
            pending: Vec::new(),
            faults: Vec::new(),
            operation_count: 0,
            power_off_at: None,
            free_bytes: TOTAL_BYTES,
            now: None,
            locked: BTreeSet::new(),
        })
    }

    /// A disk of its own with the same contents, the same queue, no faults and no locks.
    pub fn fork(&self) -> SimDisk {
        let state = self.state();
        SimDisk::from_state(State {
            nodes: state.nodes.clone(),
            next_node: state.next_node,
            pending: state.pending.clone(),
            faults: Vec::new(),
            operation_count: 0,
            power_off_at: None,
            free_bytes: state.free_bytes,
            now: state.now,
            locked: BTreeSet::new(),
        })
    }

    /// What is not durable yet, oldest first.
    pub fn pending(&self) -> Vec<PendingOp> {
        let state = self.state();
        state.pending.iter().map(|pending| pending.describe()).collect()
    }

    /// The disk after a power cut: `choose` says what became of each pending operation, by index.
    pub fn crash(&self, choose: &mut dyn FnMut(usize) -> Survival) -> SimDisk {
        let after = self.fork();
        {
            let mut state = after.state();
            let pending = std::mem::take(&mut state.pending);
            let mut choices: Vec<Survival> = (0..pending.len()).map(choose).collect();
            keep_whole_sectors(&pending, &mut choices);
            for (index, (op, survival)) in pending.iter().zip(&choices).enumerate() {
                if let Pending::Write { id, position, bytes } = op {
                    state.settle_sectors(&pending[..index], *id, &survivors(*position, bytes.len(), *survival));
                }
                state.settle(op, *survival);
            }
            for node in state.nodes.values_mut() {
                node.forget_unsynced();
            }
        }
        after
    }

    /// Every operation from the `count`th change on (0: the next one) fails and has no effect.
    pub fn power_off_after(&self, count: u64) {
        let mut state = self.state();
        state.power_off_at = Some(state.operation_count + count);
    }

    /// How many changing operations were asked for so far.
    pub fn operation_count(&self) -> u64 {
        self.state().operation_count
    }

    /// Makes a later operation fail, once.
    pub fn inject(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    /// What [`Disk::free_bytes`] answers from now on, less what is written.
    pub fn set_free_bytes(&self, bytes: u64) {
        self.state().free_bytes = bytes;
    }

    /// The wall clock that files are stamped with.
    pub fn set_now(&self, now: Timestamp) {
        self.state().now = Some(now);
    }

    /// Changes a file behind the back of everything, on the medium itself, as a bit flip does.
    ///
    /// # Errors
    /// `NotFound` if there is no such file.
    pub fn corrupt(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let mut state = self.state();
        let id = state.find(path)?;
        match state.nodes.get_mut(&id) {
            Some(Node::File { live, durable, .. }) => {
                let mut bytes = live.to_vec();
                change(&mut bytes);
                *live = Arc::new(bytes);
                *durable = Arc::clone(live);
                Ok(())
            }
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// A file's bytes as running code sees them.
    ///
    /// # Errors
    /// `NotFound` if there is no such file.
    pub fn contents(&self, path: &Path) -> io::Result<Vec<u8>> {
        let state = self.state();
        let id = state.find(path)?;
        Ok(state.file(id)?.to_vec())
    }

    /// Every file with its bytes, by path: for "nothing changed" checks.
    pub fn dump(&self) -> BTreeMap<PathBuf, Arc<Vec<u8>>> {
        let state = self.state();
        let mut files = BTreeMap::new();
        let mut walk = vec![(PathBuf::from("/"), ROOT)];
        while let Some((path, id)) = walk.pop() {
            match state.nodes.get(&id) {
                Some(Node::Dir { live, .. }) => walk.extend(live.iter().map(|(name, id)| (path.join(name), *id))),
                Some(Node::File { live, .. }) => {
                    files.insert(path, Arc::clone(live));
                }
                None => {}
            }
        }
        files
    }

    fn from_state(state: State) -> SimDisk {
        SimDisk(Arc::new(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state();
        let id = match (state.find(path), mode) {
            (Ok(_), OpenMode::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Ok(id), _) => id,
            (Err(_), OpenMode::CreateNew | OpenMode::CreateOrWrite) => {
                state.begin(Operation::Create)?;
                let (parent, name) = state.parent(path)?;
                let empty = Arc::new(Vec::new());
                let modified = state.now;
                let id = state.add(Node::File { live: Arc::clone(&empty), durable: empty, modified });
                state.link(parent, name, id)?;
                id
            }
            (Err(error), _) => return Err(error),
        };
        state.file(id)?;
        Ok(Arc::new(SimFile { disk: self.clone(), id }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let mut at = ROOT;
        for name in names(path)? {
            at = match state.dir(at)?.get(&name).copied() {
                Some(next) => next,
                None => {
                    state.begin(Operation::Create)?;
                    let next = state.add(Node::Dir { live: BTreeMap::new(), durable: BTreeMap::new() });
                    state.link(at, name, next)?;
                    next
                }
            };
            state.dir(at)?;
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        let id = state.find(from)?;
        let (from_dir, from_name) = state.parent(from)?;
        let (to_dir, to_name) = state.parent(to)?;
        state.begin(Operation::Rename)?;
        state.dir_mut(from_dir)?.remove(&from_name);
        state.dir_mut(to_dir)?.insert(to_name.clone(), id);
        state.pending.push(Pending::Rename { from_dir, from_name, to_dir, to_name, id });
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let id = state.find(path)?;
        state.file(id)?;
        state.begin(Operation::Remove)?;
        let (dir, name) = state.parent(path)?;
        state.unlink(dir, name)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let id = state.find(path)?;
        for name in state.dir(id)?.keys().cloned().collect::<Vec<_>>() {
            state.begin(Operation::Remove)?;
            state.unlink(id, name)?;
        }
        state.begin(Operation::Remove)?;
        let (dir, name) = state.parent(path)?;
        state.unlink(dir, name)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let dir = state.find(path)?;
        state.dir(dir)?;
        state.begin(Operation::SyncDir)?;
        state.settle_where(|pending| pending.touches_dir(dir));
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let state = self.state();
        let dir = state.find(path)?;
        let entry = |(name, id): (&String, &u64)| match state.nodes.get(id) {
            Some(Node::File { live, .. }) => DirEntry { name: name.clone(), is_dir: false, len: live.len() as u64 },
            _ => DirEntry { name: name.clone(), is_dir: true, len: 0 },
        };
        Ok(state.dir(dir)?.iter().map(entry).collect())
    }

    fn free_bytes(&self, _path: &Path) -> io::Result<u64> {
        Ok(self.state().free_bytes)
    }

    fn total_bytes(&self, _path: &Path) -> io::Result<u64> {
        Ok(self.state().free_bytes.max(TOTAL_BYTES))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        self.open(path, OpenMode::CreateOrWrite)?;
        if !self.state().locked.insert(path.to_owned()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(SimLock { disk: self.clone(), path: path.to_owned() }))
    }
}

/// What became of a pending operation in a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    Lost,
    Kept,
    /// For writes: only the first bytes.
    Prefix(usize),
    /// For writes: sector `i` of the write reached the medium if bit `i % 64` is set.
    Sectors(u64),
}

/// An operation that fails, once, after `skip` others of its kind went well.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub operation: Operation,
    pub skip: u32,
    pub error: io::ErrorKind,
    /// For writes: this many bytes are written before the failure.
    pub short: usize,
}

/// The kinds of changing operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Write,
    SetLen,
    SyncData,
    SyncDir,
    Rename,
    Remove,
}

/// One operation that is not durable yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingOp {
    pub operation: Operation,
    /// Bytes of a write.
    pub len: usize,
}

#[derive(Debug)]
struct State {
    nodes: BTreeMap<u64, Node>,
    next_node: u64,
    pending: Vec<Pending>,
    faults: Vec<Fault>,
    operation_count: u64,
    power_off_at: Option<u64>,
    free_bytes: u64,
    now: Option<Timestamp>,
    locked: BTreeSet<PathBuf>,
}

#[derive(Clone, Debug)]
enum Node {
    File { live: Arc<Vec<u8>>, durable: Arc<Vec<u8>>, modified: Option<Timestamp> },
    Dir { live: BTreeMap<String, u64>, durable: BTreeMap<String, u64> },
}

#[derive(Clone, Debug)]
enum Pending {
    Write { id: u64, position: u64, bytes: Arc<Vec<u8>> },
    SetLen { id: u64, len: u64 },
    Link { dir: u64, name: String, id: u64 },
    Unlink { dir: u64, name: String },
    Rename { from_dir: u64, from_name: String, to_dir: u64, to_name: String, id: u64 },
}

impl Node {
    fn forget_unsynced(&mut self) {
        match self {
            Node::File { live, durable, .. } => *live = Arc::clone(durable),
            Node::Dir { live, durable } => live.clone_from(durable),
        }
    }
}

impl Pending {
    fn touches_dir(&self, wanted: u64) -> bool {
        match self {
            Pending::Write { .. } | Pending::SetLen { .. } => false,
            Pending::Link { dir, .. } | Pending::Unlink { dir, .. } => *dir == wanted,
            Pending::Rename { from_dir, to_dir, .. } => *from_dir == wanted || *to_dir == wanted,
        }
    }

    fn touches_file(&self, wanted: u64) -> bool {
        match self {
            Pending::Write { id, .. } | Pending::SetLen { id, .. } => *id == wanted,
            Pending::Link { .. } | Pending::Unlink { .. } | Pending::Rename { .. } => false,
        }
    }

    fn describe(&self) -> PendingOp {
        let operation = match self {
            Pending::Write { .. } => Operation::Write,
            Pending::SetLen { .. } => Operation::SetLen,
            Pending::Link { .. } => Operation::Create,
            Pending::Unlink { .. } => Operation::Remove,
            Pending::Rename { .. } => Operation::Rename,
        };
        let len = if let Pending::Write { bytes, .. } = self { bytes.len() } else { 0 };
        PendingOp { operation, len }
    }
}

impl State {
    /// Counts a change; fails if the power is off or a fault is due. Writes handle `short` themselves.
    fn begin(&mut self, operation: Operation) -> io::Result<()> {
        match self.due_fault(operation)? {
            Some(fault) => Err(fault.error.into()),
            None => Ok(()),
        }
    }

    fn due_fault(&mut self, operation: Operation) -> io::Result<Option<Fault>> {
        self.operation_count += 1;
        if self.power_off_at.is_some_and(|limit| self.operation_count > limit) {
            return Err(io::Error::other("the power is off"));
        }
        let Some(index) = self.faults.iter().position(|fault| fault.operation == operation) else { return Ok(None) };
        if self.faults[index].skip > 0 {
            self.faults[index].skip -= 1;
            return Ok(None);
        }
        Ok(Some(self.faults.remove(index)))
    }

    fn find(&self, path: &Path) -> io::Result<u64> {
        let mut at = ROOT;
        for name in names(path)? {
            at = *self.dir(at)?.get(&name).ok_or(io::ErrorKind::NotFound)?;
        }
        Ok(at)
    }

    fn parent(&self, path: &Path) -> io::Result<(u64, String)> {
        let mut parts = names(path)?;
        let name = parts.pop().ok_or(io::ErrorKind::InvalidInput)?;
        let mut at = ROOT;
        for part in parts {
            at = *self.dir(at)?.get(&part).ok_or(io::ErrorKind::NotFound)?;
        }
        self.dir(at)?;
        Ok((at, name))
    }

    fn dir(&self, id: u64) -> io::Result<&BTreeMap<String, u64>> {
        match self.nodes.get(&id) {
            Some(Node::Dir { live, .. }) => Ok(live),
            Some(Node::File { .. }) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn dir_mut(&mut self, id: u64) -> io::Result<&mut BTreeMap<String, u64>> {
        match self.nodes.get_mut(&id) {
            Some(Node::Dir { live, .. }) => Ok(live),
            _ => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    fn file(&self, id: u64) -> io::Result<&Arc<Vec<u8>>> {
        match self.nodes.get(&id) {
            Some(Node::File { live, .. }) => Ok(live),
            _ => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    fn add(&mut self, node: Node) -> u64 {
        let id = self.next_node;
        self.next_node += 1;
        self.nodes.insert(id, node);
        id
    }

    fn link(&mut self, dir: u64, name: String, id: u64) -> io::Result<()> {
        self.dir_mut(dir)?.insert(name.clone(), id);
        self.pending.push(Pending::Link { dir, name, id });
        Ok(())
    }

    fn unlink(&mut self, dir: u64, name: String) -> io::Result<()> {
        self.dir_mut(dir)?.remove(&name);
        self.pending.push(Pending::Unlink { dir, name });
        Ok(())
    }

    fn write(&mut self, id: u64, bytes: &[u8], position: u64) {
        let now = self.now;
        let Some(Node::File { live, modified, .. }) = self.nodes.get_mut(&id) else { return };
        let grown = put(Arc::make_mut(live), bytes, position);
        *modified = now;
        self.free_bytes = self.free_bytes.saturating_sub(grown);
        self.pending.push(Pending::Write { id, position, bytes: Arc::new(bytes.to_vec()) });
    }

    fn settle_where(&mut self, durable: impl Fn(&Pending) -> bool) {
        let (settled, waiting) = std::mem::take(&mut self.pending).into_iter().partition(durable);
        self.pending = waiting;
        let settled: Vec<Pending> = settled;
        for pending in &settled {
            self.settle(pending, Survival::Kept);
        }
    }

    /// Applies what earlier writes left in sectors of a file that are kept.
    fn settle_sectors(&mut self, earlier: &[Pending], file: u64, kept: &[Range<u64>]) {
        let Some(Node::File { durable, .. }) = self.nodes.get_mut(&file) else { return };
        for op in earlier {
            let Pending::Write { id, position, bytes } = op else { continue };
            for sectors in kept.iter().filter(|_| *id == file) {
                let from = sectors.start / SECTOR * SECTOR;
                let to = sectors.end.next_multiple_of(SECTOR);
                let (begin, end) = (from.max(*position), to.min(position + bytes.len() as u64));
                if begin < end {
                    let part = (begin - position) as usize..(end - position) as usize;
                    put(Arc::make_mut(durable), &bytes[part], begin);
                }
            }
        }
    }

    fn settle(&mut self, pending: &Pending, survival: Survival) {
        if survival == Survival::Lost {
            return;
        }
        match pending {
            Pending::Write { id, position, bytes } => {
                if let Some(Node::File { durable, .. }) = self.nodes.get_mut(id) {
                    settle_write(Arc::make_mut(durable), bytes, *position, survival);
                }
            }
            Pending::SetLen { id, len } => {
                if let Some(Node::File { durable, .. }) = self.nodes.get_mut(id) {
                    Arc::make_mut(durable).resize(usize::try_from(*len).unwrap_or(usize::MAX), 0);
                }
            }
            Pending::Link { dir, name, id } => {
                if let Some(Node::Dir { durable, .. }) = self.nodes.get_mut(dir) {
                    durable.insert(name.clone(), *id);
                }
            }
            Pending::Unlink { dir, name } => {
                if let Some(Node::Dir { durable, .. }) = self.nodes.get_mut(dir) {
                    durable.remove(name);
                }
            }
            Pending::Rename { from_dir, from_name, to_dir, to_name, id } => {
                if let Some(Node::Dir { durable, .. }) = self.nodes.get_mut(from_dir) {
                    durable.remove(from_name);
                }
                if let Some(Node::Dir { durable, .. }) = self.nodes.get_mut(to_dir) {
                    durable.insert(to_name.clone(), *id);
                }
            }
        }
    }
}

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    id: u64,
}

impl DiskFile for SimFile {
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        match state.due_fault(Operation::Write)? {
            None => {
                state.write(self.id, bytes, position);
                Ok(())
            }
            Some(fault) => {
                state.write(self.id, &bytes[..fault.short.min(bytes.len())], position);
                Err(fault.error.into())
            }
        }
    }

    fn write_vectored_at(&self, parts: &[IoSlice<'_>], position: u64) -> io::Result<()> {
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        self.write_at(&bytes, position)
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let state = self.disk.state();
        let bytes = state.file(self.id)?;
        let from = usize::try_from(position).unwrap_or(usize::MAX).min(bytes.len());
        let count = buffer.len().min(bytes.len() - from);
        buffer[..count].copy_from_slice(&bytes[from..from + count]);
        Ok(count)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        match state.due_fault(Operation::SyncData)? {
            None => {
                state.settle_where(|pending| pending.touches_file(self.id));
                Ok(())
            }
            Some(fault) => {
                // The kernel marks the pages clean and forgets them: a second sync would say "fine".
                state.pending.retain(|pending| !pending.touches_file(self.id));
                Err(fault.error.into())
            }
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        state.begin(Operation::SetLen)?;
        if let Some(Node::File { live, .. }) = state.nodes.get_mut(&self.id) {
            Arc::make_mut(live).resize(usize::try_from(len).unwrap_or(usize::MAX), 0);
        }
        state.pending.push(Pending::SetLen { id: self.id, len });
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.state().file(self.id)?.len() as u64)
    }

    fn modified(&self) -> io::Result<Option<Timestamp>> {
        match self.disk.state().nodes.get(&self.id) {
            Some(Node::File { modified, .. }) => Ok(*modified),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[derive(Debug)]
struct SimLock {
    disk: SimDisk,
    path: PathBuf,
}

impl DiskLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.disk.state().locked.remove(&self.path);
    }
}

/// A path's names from the root; relative paths start there too.
fn names(path: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => names.push(name.to_str().ok_or(io::ErrorKind::InvalidInput)?.to_owned()),
            Component::ParentDir | Component::Prefix(_) => return Err(io::ErrorKind::InvalidInput.into()),
        }
    }
    Ok(names)
}

/// Writes into a growing vector; returns by how many bytes it grew.
fn put(file: &mut Vec<u8>, bytes: &[u8], position: u64) -> u64 {
    if bytes.is_empty() {
        return 0;
    }
    let position = usize::try_from(position).unwrap_or(usize::MAX);
    let before = file.len();
    if file.len() < position + bytes.len() {
        file.resize(position + bytes.len(), 0);
    }
    file[position..position + bytes.len()].copy_from_slice(bytes);
    (file.len() - before) as u64
}

fn settle_write(file: &mut Vec<u8>, bytes: &[u8], position: u64, survival: Survival) {
    for range in survivors(position, bytes.len(), survival) {
        let part = (range.start - position) as usize..(range.end - position) as usize;
        put(file, &bytes[part], range.start);
    }
}

/// The positions in a file that a write of `len` bytes reaches if it survives like that.
fn survivors(position: u64, len: usize, survival: Survival) -> Vec<Range<u64>> {
    let end = position + len as u64;
    let kept = match survival {
        Survival::Lost => Vec::new(),
        Survival::Kept => iter::once(position..end).collect(),
        Survival::Prefix(kept) => iter::once(position..end.min(position + kept as u64)).collect(),
        Survival::Sectors(mask) => {
            let first = position / SECTOR;
            let sectors = (first..end.div_ceil(SECTOR)).filter(|sector| mask >> ((sector - first) % 64) & 1 == 1);
            sectors.map(|sector| position.max(sector * SECTOR)..end.min((sector + 1) * SECTOR)).collect()
        }
    };
    kept.into_iter().filter(|range| !range.is_empty()).collect()
}

/// A write may end inside a sector only if nothing of its file was kept after it: sectors are not torn.
fn keep_whole_sectors(pending: &[Pending], choices: &mut [Survival]) {
    for index in 0..pending.len() {
        let (Pending::Write { id, position, .. }, Survival::Prefix(kept)) = (&pending[index], choices[index]) else {
            continue;
        };
        let later = (index + 1..pending.len()).filter(|later| pending[*later].touches_file(*id));
        if later.into_iter().any(|later| choices[later] != Survival::Lost) {
            let end = (position + kept as u64) / SECTOR * SECTOR;
            choices[index] = Survival::Prefix(end.saturating_sub(*position) as usize);
        }
    }
}

const ROOT: u64 = 0;
const SECTOR: u64 = 512;
const TOTAL_BYTES: u64 = 1 << 40;

#[cfg(test)]
mod tests {
    use super::*;

    fn write(disk: &SimDisk, path: &str, bytes: &[u8]) -> Arc<dyn DiskFile> {
        let file = disk.open(Path::new(path), OpenMode::CreateOrWrite).unwrap();
        file.write_at(bytes, 0).unwrap();
        file
    }

    #[test]
    fn a_name_and_its_bytes_become_durable_apart() {
        let disk = SimDisk::new();
        disk.create_dir_all(Path::new("/d")).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        let file = write(&disk, "/d/f", b"abc");

        file.sync_data().unwrap();
        let after = disk.crash(&mut |_| Survival::Lost);
        assert!(after.open(Path::new("/d/f"), OpenMode::Read).is_err(), "the name was not synced");

        disk.sync_dir(Path::new("/d")).unwrap();
        file.write_at(b"def", 3).unwrap();
        let after = disk.crash(&mut |_| Survival::Lost);
        assert_eq!(after.contents(Path::new("/d/f")).unwrap(), b"abc");
        let after = disk.crash(&mut |_| Survival::Prefix(1));
        assert_eq!(after.contents(Path::new("/d/f")).unwrap(), b"abcd");
        assert_eq!(disk.contents(Path::new("/d/f")).unwrap(), b"abcdef");
    }

    #[test]
    fn a_torn_write_leaves_zeros_for_lost_sectors() {
        let disk = SimDisk::new();
        write(&disk, "/f", &[7; 1500]);
        disk.sync_dir(Path::new("/")).unwrap();
        let after = disk.crash(&mut |_| Survival::Sectors(0b101));
        let bytes = after.contents(Path::new("/f")).unwrap();
        assert_eq!((bytes[0], bytes[512], bytes[1024], bytes.len()), (7, 0, 7, 1500));
    }

    #[test]
    fn a_kept_sector_keeps_what_was_written_to_it_before() {
        let disk = SimDisk::new();
        let file = write(&disk, "/f", &[1; 600]);
        disk.sync_dir(Path::new("/")).unwrap();
        file.write_at(&[2; 600], 600).unwrap();
        let after = disk.crash(&mut |index| if index == 0 { Survival::Lost } else { Survival::Kept });
        let bytes = after.contents(Path::new("/f")).unwrap();
        assert_eq!((bytes[511], bytes[512], bytes[599], bytes[600], bytes.len()), (0, 1, 1, 2, 1200));
        let after = disk.crash(&mut |index| if index == 0 { Survival::Prefix(550) } else { Survival::Sectors(0b10) });
        let bytes = after.contents(Path::new("/f")).unwrap();
        assert_eq!((bytes[511], bytes[512], bytes[1023], bytes[1024]), (1, 0, 0, 2));
    }

    #[test]
    fn a_rename_is_all_or_nothing() {
        let disk = SimDisk::new();
        write(&disk, "/old", b"1").sync_data().unwrap();
        write(&disk, "/new", b"2").sync_data().unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        disk.rename(Path::new("/new"), Path::new("/old")).unwrap();
        let lost = disk.crash(&mut |_| Survival::Lost);
        assert_eq!(lost.dump().len(), 2);
        let kept = disk.crash(&mut |_| Survival::Kept);
        assert_eq!((kept.dump().len(), kept.contents(Path::new("/old")).unwrap()), (1, b"2".to_vec()));
    }

    #[test]
    fn a_failed_sync_forgets_what_it_should_have_kept() {
        let disk = SimDisk::new();
        let file = write(&disk, "/f", b"abc");
        disk.sync_dir(Path::new("/")).unwrap();
        disk.inject(Fault { operation: Operation::SyncData, skip: 0, error: io::ErrorKind::Other, short: 0 });
        assert!(file.sync_data().is_err());
        file.sync_data().unwrap();
        assert_eq!(disk.crash(&mut |_| Survival::Kept).contents(Path::new("/f")).unwrap(), b"");
    }

    #[test]
    fn a_short_write_leaves_its_part() {
        let disk = SimDisk::new();
        let file = write(&disk, "/f", b"abc");
        disk.inject(Fault { operation: Operation::Write, skip: 1, error: io::ErrorKind::StorageFull, short: 2 });
        file.write_at(b"def", 3).unwrap();
        assert_eq!(file.write_at(b"ghi", 6).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(disk.contents(Path::new("/f")).unwrap(), b"abcdefgh");
    }

    #[test]
    fn after_the_power_is_off_nothing_changes() {
        let disk = SimDisk::new();
        let file = write(&disk, "/f", b"abc");
        disk.power_off_after(1);
        file.write_at(b"d", 3).unwrap();
        assert!(file.write_at(b"e", 4).is_err());
        assert!(file.sync_data().is_err());
        assert_eq!(disk.pending().len(), 3);
    }

    #[test]
    fn an_unlinked_file_is_readable_through_its_handle() {
        let disk = SimDisk::new();
        let file = write(&disk, "/f", b"abc");
        disk.remove_file(Path::new("/f")).unwrap();
        let mut buffer = [0; 8];
        assert_eq!(file.read_at(&mut buffer, 1).unwrap(), 2);
        assert_eq!(&buffer[..2], b"bc");
    }
}
