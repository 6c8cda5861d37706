//! Files and directories, as they are seen and as they would survive.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::SystemTime;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::content::Content;

/// Never used again, also not after a cut.
pub type Ino = u64;

pub const ROOT: Ino = 1;

/// How the power is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Nothing unsynced reached the disk.
    Drop,
    /// Any part of it did, as this seed chooses.
    Tear(u64),
}

/// What a cut took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Changes of directories that were not synced.
    pub names: usize,
    /// Files with content or sizes that were not synced.
    pub files: usize,
    /// Their unsynced pages.
    pub pages: usize,
}

/// Why an operation is refused; the mount names it to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    NotFound,
    Exists,
    NotADirectory,
    IsADirectory,
    NotEmpty,
    Invalid,
    TooLarge,
}

#[derive(Debug)]
pub(crate) enum Node {
    File(Content),
    Directory(Directory),
    Symlink(PathBuf),
}

/// Entries by name. Both images are reached from [`ROOT`].
#[derive(Debug, Default)]
pub(crate) struct Directory {
    pub(crate) seen: BTreeMap<OsString, Ino>,
    durable: BTreeMap<OsString, Ino>,
}

#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) node: Node,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) changed: SystemTime,
    pub(crate) links: u32,
    pub(crate) opens: u32,
}

/// One operation on names; all of it survives, or nothing.
#[derive(Debug)]
struct Change(Vec<(Ino, OsString, Option<Ino>)>);

/// The whole file system.
#[derive(Debug)]
pub struct Disk {
    inodes: BTreeMap<Ino, Inode>,
    next: Ino,
    /// Changes of names that are not synced, oldest first.
    pending: Vec<Change>,
    /// Inodes since the last time that unreachable ones were looked for.
    unlinked: usize,
}

impl Default for Disk {
    fn default() -> Disk {
        let root = Inode::new(Node::Directory(Directory::default()), 0o755, (0, 0), SystemTime::UNIX_EPOCH);
        Disk { inodes: BTreeMap::from([(ROOT, root)]), next: ROOT + 1, pending: Vec::new(), unlinked: 0 }
    }
}

impl Disk {
    pub(crate) fn inode(&self, ino: Ino) -> Result<&Inode, Refused> {
        self.inodes.get(&ino).ok_or(Refused::NotFound)
    }

    pub(crate) fn inode_mut(&mut self, ino: Ino) -> Result<&mut Inode, Refused> {
        self.inodes.get_mut(&ino).ok_or(Refused::NotFound)
    }

    pub(crate) fn directory(&self, ino: Ino) -> Result<&Directory, Refused> {
        match &self.inode(ino)?.node {
            Node::Directory(directory) => Ok(directory),
            Node::File(_) | Node::Symlink(_) => Err(Refused::NotADirectory),
        }
    }

    pub(crate) fn file_mut(&mut self, ino: Ino) -> Result<&mut Content, Refused> {
        match &mut self.inode_mut(ino)?.node {
            Node::File(content) => Ok(content),
            Node::Directory(_) => Err(Refused::IsADirectory),
            Node::Symlink(_) => Err(Refused::Invalid),
        }
    }

    pub(crate) fn lookup(&self, parent: Ino, name: &OsStr) -> Result<Ino, Refused> {
        self.directory(parent)?.seen.get(name).copied().ok_or(Refused::NotFound)
    }

    pub(crate) fn create(&mut self, parent: Ino, name: &OsStr, inode: Inode) -> Result<Ino, Refused> {
        if self.directory(parent)?.seen.contains_key(name) {
            return Err(Refused::Exists);
        }
        let ino = self.next;
        self.next += 1;
        self.inodes.insert(ino, inode);
        self.change(vec![(parent, name.to_owned(), Some(ino))]);
        Ok(ino)
    }

    pub(crate) fn link(&mut self, ino: Ino, parent: Ino, name: &OsStr) -> Result<(), Refused> {
        if self.directory(parent)?.seen.contains_key(name) {
            return Err(Refused::Exists);
        }
        self.inode_mut(ino)?.links += 1;
        self.change(vec![(parent, name.to_owned(), Some(ino))]);
        Ok(())
    }

    pub(crate) fn unlink(&mut self, parent: Ino, name: &OsStr) -> Result<(), Refused> {
        let ino = self.lookup(parent, name)?;
        if matches!(self.inode(ino)?.node, Node::Directory(_)) {
            return Err(Refused::IsADirectory);
        }
        self.change(vec![(parent, name.to_owned(), None)]);
        self.drop_link(ino);
        Ok(())
    }

    pub(crate) fn rmdir(&mut self, parent: Ino, name: &OsStr) -> Result<(), Refused> {
        let ino = self.lookup(parent, name)?;
        if !self.directory(ino)?.seen.is_empty() {
            return Err(Refused::NotEmpty);
        }
        self.change(vec![(parent, name.to_owned(), None)]);
        self.drop_link(ino);
        Ok(())
    }

    /// `replace`: an existing target gives way.
    pub(crate) fn rename(&mut self, from: (Ino, &OsStr), to: (Ino, &OsStr), replace: bool) -> Result<(), Refused> {
        let ino = self.lookup(from.0, from.1)?;
        let target = self.directory(to.0)?.seen.get(to.1).copied();
        if target == Some(ino) {
            return Ok(());
        }
        if let Some(target) = target {
            if !replace {
                return Err(Refused::Exists);
            }
            if let Node::Directory(directory) = &self.inode(target)?.node
                && !directory.seen.is_empty()
            {
                return Err(Refused::NotEmpty);
            }
        }
        self.change(vec![(from.0, from.1.to_owned(), None), (to.0, to.1.to_owned(), Some(ino))]);
        if let Some(target) = target {
            self.drop_link(target);
        }
        Ok(())
    }

    pub(crate) fn write(&mut self, ino: Ino, offset: u64, bytes: &[u8]) -> Result<(), Refused> {
        if offset.saturating_add(bytes.len() as u64) > FILE_BYTES_MAX {
            return Err(Refused::TooLarge);
        }
        self.file_mut(ino)?.write(offset, bytes);
        Ok(())
    }

    pub(crate) fn resize(&mut self, ino: Ino, size: u64) -> Result<(), Refused> {
        if size > FILE_BYTES_MAX {
            return Err(Refused::TooLarge);
        }
        self.file_mut(ino)?.resize(size);
        Ok(())
    }

    /// fsync or fdatasync. Of a directory: its entries survive, and with a rename also what it did elsewhere.
    pub(crate) fn sync(&mut self, ino: Ino) -> Result<(), Refused> {
        if let Node::File(content) = &mut self.inode_mut(ino)?.node {
            content.sync();
            return Ok(());
        }
        let chosen = self.pending.iter().map(|change| change.0.iter().any(|(dir, _, _)| *dir == ino)).collect();
        self.carry_over(chosen);
        Ok(())
    }

    /// Frees what nothing can reach.
    pub(crate) fn closed(&mut self, ino: Ino) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.opens = inode.opens.saturating_sub(1);
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        let size = |inode: &Inode| if let Node::File(content) = &inode.node { content.size() } else { 0 };
        self.inodes.values().map(size).sum()
    }

    /// The power is cut and comes back. Nobody may have anything open any more.
    pub fn cut(&mut self, how: Cut) -> Lost {
        let mut lost = Lost { names: self.pending.len(), ..Lost::default() };
        let mut rng = None;
        if let Cut::Tear(seed) = how {
            let rng = rng.insert(StdRng::seed_from_u64(seed));
            // Half the time as a journal would have it, a beginning of the changes; else any of them.
            let until = rng.random_range(0..=self.pending.len());
            let in_order = rng.random_bool(0.5);
            let chosen = (0..self.pending.len()).map(|i| if in_order { i < until } else { rng.random_bool(0.5) });
            let chosen = chosen.collect();
            self.carry_over(chosen);
        }
        self.pending.clear();
        for inode in self.inodes.values_mut() {
            inode.opens = 0;
            match &mut inode.node {
                Node::Directory(directory) => directory.seen = directory.durable.clone(),
                Node::File(content) => {
                    lost.files += usize::from(!content.is_synced());
                    lost.pages += content.unsynced_pages();
                    match &mut rng {
                        Some(rng) => content.tear_unsynced(rng),
                        None => content.drop_unsynced(),
                    }
                }
                Node::Symlink(_) => {}
            }
        }
        self.free_unreachable();
        self.count_links();
        lost
    }

    fn change(&mut self, change: Vec<(Ino, OsString, Option<Ino>)>) {
        for (dir, name, ino) in &change {
            if let Some(Inode { node: Node::Directory(directory), changed, .. }) = self.inodes.get_mut(dir) {
                *changed = SystemTime::now();
                set(&mut directory.seen, name, *ino);
            }
        }
        self.pending.push(Change(change));
    }

    /// Makes the chosen changes of names durable, and those before them that concern the same names: a name's changes
    /// happen in order.
    fn carry_over(&mut self, mut chosen: Vec<bool>) {
        let mut names = BTreeSet::new();
        for (change, chosen) in self.pending.iter().zip(&mut chosen).rev() {
            let keys = || change.0.iter().map(|(dir, name, _)| (*dir, name.as_os_str()));
            *chosen |= keys().any(|key| names.contains(&key));
            if *chosen {
                names.extend(keys());
            }
        }
        let mut rest = Vec::new();
        for (change, chosen) in std::mem::take(&mut self.pending).into_iter().zip(chosen) {
            if !chosen {
                rest.push(change);
                continue;
            }
            for (dir, name, ino) in &change.0 {
                if let Some(Inode { node: Node::Directory(directory), .. }) = self.inodes.get_mut(dir) {
                    set(&mut directory.durable, name, *ino);
                }
            }
        }
        self.pending = rest;
    }

    fn drop_link(&mut self, ino: Ino) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.links = inode.links.saturating_sub(1);
        }
        self.unlinked += 1;
        if self.unlinked >= UNLINKED_MAX {
            self.free_unreachable();
        }
    }

    fn free_unreachable(&mut self) {
        self.unlinked = 0;
        let opened = self.inodes.iter().filter(|(_, inode)| inode.opens > 0).map(|(ino, _)| *ino);
        let changing = self.pending.iter().flat_map(|change| &change.0).flat_map(|(dir, _, ino)| [Some(*dir), *ino]);
        let mut ahead: Vec<Ino> = opened.chain(changing.flatten()).chain([ROOT]).collect();
        let mut reached = BTreeSet::new();
        while let Some(ino) = ahead.pop() {
            if reached.insert(ino)
                && let Ok(directory) = self.directory(ino)
            {
                ahead.extend(directory.seen.values().chain(directory.durable.values()));
            }
        }
        self.inodes.retain(|ino, _| reached.contains(ino));
    }

    fn count_links(&mut self) {
        let mut links: BTreeMap<Ino, u32> = BTreeMap::from([(ROOT, 1)]);
        for inode in self.inodes.values() {
            if let Node::Directory(directory) = &inode.node {
                for ino in directory.seen.values() {
                    *links.entry(*ino).or_default() += 1;
                }
            }
        }
        for (ino, inode) in &mut self.inodes {
            inode.links = links.get(ino).copied().unwrap_or(0);
        }
    }
}

impl Inode {
    pub(crate) fn new(node: Node, mode: u32, (uid, gid): (u32, u32), changed: SystemTime) -> Inode {
        Inode { node, mode, uid, gid, changed, links: 1, opens: 0 }
    }
}

fn set(entries: &mut BTreeMap<OsString, Ino>, name: &OsStr, ino: Option<Ino>) {
    match ino {
        Some(ino) => entries.insert(name.to_owned(), ino),
        None => entries.remove(name),
    };
}

const FILE_BYTES_MAX: u64 = 1 << 40;
/// Unlinked inodes before memory is looked for.
const UNLINKED_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Inode {
        Inode::new(Node::File(Content::default()), 0o644, (0, 0), SystemTime::UNIX_EPOCH)
    }

    fn directory() -> Inode {
        Inode::new(Node::Directory(Directory::default()), 0o755, (0, 0), SystemTime::UNIX_EPOCH)
    }

    fn names(disk: &Disk, dir: Ino) -> Vec<String> {
        disk.directory(dir).unwrap().seen.keys().map(|name| name.to_str().unwrap().to_owned()).collect()
    }

    fn name(text: &str) -> &OsStr {
        OsStr::new(text)
    }

    /// A disk with `old`, which is on it for good.
    fn with_old() -> Disk {
        let mut disk = Disk::default();
        let old = disk.create(ROOT, name("old"), file()).unwrap();
        disk.write(old, 0, b"old").unwrap();
        disk.sync(old).unwrap();
        disk.sync(ROOT).unwrap();
        disk
    }

    #[test]
    fn a_synced_file_in_a_directory_that_was_not_synced_is_gone() {
        let mut disk = with_old();
        let new = disk.create(ROOT, name("new"), file()).unwrap();
        disk.write(new, 0, b"new").unwrap();
        disk.sync(new).unwrap();
        assert_eq!(disk.cut(Cut::Drop), Lost { names: 1, files: 0, pages: 0 });
        assert_eq!(names(&disk, ROOT), ["old"]);
    }

    #[test]
    fn a_directory_that_was_synced_keeps_names_of_files_that_were_not() {
        let mut disk = with_old();
        let new = disk.create(ROOT, name("new"), file()).unwrap();
        disk.write(new, 0, b"new").unwrap();
        disk.sync(ROOT).unwrap();
        assert_eq!(disk.cut(Cut::Drop), Lost { names: 0, files: 1, pages: 1 });
        assert_eq!(names(&disk, ROOT), ["new", "old"]);
        assert_eq!(disk.file_mut(new).unwrap().size(), 0);
    }

    #[test]
    fn a_rename_over_a_file_is_whole_or_not_at_all() {
        for (synced, seed, cut_count) in [(true, 0, 1), (false, 0, 50)] {
            for seed in seed..seed + cut_count {
                let mut disk = with_old();
                let new = disk.create(ROOT, name("new"), file()).unwrap();
                disk.write(new, 0, b"new!").unwrap();
                disk.sync(new).unwrap();
                disk.sync(ROOT).unwrap();
                disk.rename((ROOT, name("new")), (ROOT, name("old")), true).unwrap();
                if synced {
                    disk.sync(ROOT).unwrap();
                }
                disk.cut(if synced { Cut::Drop } else { Cut::Tear(seed) });
                let old = disk.lookup(ROOT, name("old")).unwrap();
                let bytes = disk.file_mut(old).unwrap().read(0, 10);
                match names(&disk, ROOT).len() {
                    1 => assert_eq!(bytes, b"new!"),
                    _ => assert!(bytes == b"old" && !synced),
                }
            }
        }
    }

    #[test]
    fn a_rename_to_another_directory_is_on_disk_in_both_when_one_is_synced() {
        let mut disk = with_old();
        let sub = disk.create(ROOT, name("sub"), directory()).unwrap();
        disk.sync(ROOT).unwrap();
        disk.rename((ROOT, name("old")), (sub, name("moved")), true).unwrap();
        disk.sync(sub).unwrap();
        disk.cut(Cut::Drop);
        assert_eq!((names(&disk, ROOT), names(&disk, sub)), (vec!["sub".to_owned()], vec!["moved".to_owned()]));
    }

    #[test]
    fn a_removal_that_was_not_synced_comes_back() {
        let mut disk = with_old();
        disk.unlink(ROOT, name("old")).unwrap();
        assert_eq!(names(&disk, ROOT), [""; 0]);
        disk.cut(Cut::Drop);
        let old = disk.lookup(ROOT, name("old")).unwrap();
        assert_eq!(disk.file_mut(old).unwrap().read(0, 10), b"old");
        assert_eq!(disk.inode(old).unwrap().links, 1);
    }

    #[test]
    fn everything_below_a_directory_whose_name_was_not_synced_is_gone() {
        let mut disk = with_old();
        let sub = disk.create(ROOT, name("sub"), directory()).unwrap();
        let below = disk.create(sub, name("below"), file()).unwrap();
        disk.sync(below).unwrap();
        disk.sync(sub).unwrap();
        disk.cut(Cut::Drop);
        assert_eq!(names(&disk, ROOT), ["old"]);
        assert_eq!(disk.inode(below).err(), Some(Refused::NotFound));
    }

    #[test]
    fn changes_of_one_name_survive_in_order() {
        let mut disk = with_old();
        let sub = disk.create(ROOT, name("sub"), directory()).unwrap();
        disk.create(ROOT, name("x"), file()).unwrap();
        disk.rename((ROOT, name("x")), (sub, name("y")), true).unwrap();
        disk.sync(sub).unwrap();
        disk.sync(ROOT).unwrap();
        disk.cut(Cut::Drop);
        assert_eq!((names(&disk, ROOT), names(&disk, sub)), (vec!["old".into(), "sub".into()], vec!["y".into()]));
    }

    #[test]
    fn tears_keep_any_part_of_the_names_and_never_a_synced_one_less() {
        let mut seen = BTreeSet::new();
        for seed in 0..100 {
            let mut disk = with_old();
            for new in ["a", "b", "c"] {
                disk.create(ROOT, name(new), file()).unwrap();
            }
            disk.cut(Cut::Tear(seed));
            let names = names(&disk, ROOT);
            assert!(names.contains(&"old".to_owned()));
            seen.insert(names);
        }
        assert_eq!(seen.len(), 8, "every subset");
    }

    #[test]
    fn what_nobody_can_reach_any_more_is_freed() {
        let mut disk = with_old();
        for _ in 0..3 * UNLINKED_MAX {
            let ino = disk.create(ROOT, name("t"), file()).unwrap();
            disk.write(ino, 0, &[1; 100]).unwrap();
            disk.unlink(ROOT, name("t")).unwrap();
            disk.sync(ROOT).unwrap();
        }
        assert!(disk.inodes.len() < 2 * UNLINKED_MAX, "{}", disk.inodes.len());
    }
}
