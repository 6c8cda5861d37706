//! The disk as a file system of the kernel's, by FUSE.
//!
//! The kernel is told to remember nothing about names and attributes, so that a cut shows at once; what it keeps of file
//! contents it forgets when a file is opened.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use crate::content::Content;
use crate::disk::{Cut, Directory, Disk, Ino, Inode, Lost, Node, Refused};

/// A mounted disk. Dropped: unmounted, and all of it gone.
#[derive(Debug)]
pub struct Mounted {
    disk: Arc<Mutex<Disk>>,
    session: BackgroundSession,
}

impl Mounted {
    /// Mounts an empty disk of `bytes`.
    ///
    /// # Errors
    /// There is no /dev/fuse, or we may not mount.
    pub fn new(mountpoint: &Path, bytes: u64) -> io::Result<Mounted> {
        let disk = Arc::new(Mutex::new(Disk::default()));
        let mount =
            Mount { disk: Arc::clone(&disk), bytes, listings: Mutex::default(), next_handle: AtomicU64::new(1) };
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("crashfs".to_owned()), MountOption::DefaultPermissions];
        let session = fuser::spawn_mount(mount, mountpoint, &config)?;
        Ok(Mounted { disk, session })
    }

    /// The power is cut and comes back; whoever had files open must be dead.
    pub fn cut(&self, how: Cut) -> Lost {
        lock(&self.disk).cut(how)
    }

    /// # Errors
    /// Somebody still uses it.
    pub fn unmount(self) -> io::Result<()> {
        self.session.umount_and_join()
    }
}

/// What the kernel calls.
struct Mount {
    disk: Arc<Mutex<Disk>>,
    bytes: u64,
    /// Directories being listed, as they were when that began.
    listings: Mutex<BTreeMap<u64, Listing>>,
    next_handle: AtomicU64,
}

/// What a directory held, in the order in which it is told.
type Listing = Vec<(Ino, FileType, OsString)>;

impl Mount {
    fn disk(&self) -> MutexGuard<'_, Disk> {
        lock(&self.disk)
    }

    fn attr(&self, ino: Ino) -> Result<FileAttr, Refused> {
        let disk = self.disk();
        Ok(attr_of(ino, disk.inode(ino)?))
    }

    fn entry(&self, result: Result<Ino, Refused>, reply: ReplyEntry) {
        match result.and_then(|ino| self.attr(ino)) {
            Ok(attr) => reply.entry(&Duration::ZERO, &attr, Generation(0)),
            Err(refused) => reply.error(errno(refused)),
        }
    }

    fn make(&self, req: &Request, parent: INodeNo, name: &OsStr, node: Node, mode: u32) -> Result<Ino, Refused> {
        let inode = Inode::new(node, mode & 0o7777, (req.uid(), req.gid()), SystemTime::now());
        self.disk().create(parent.0, name, inode)
    }
}

impl Filesystem for Mount {
    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.disk().lookup(parent.0, name);
        self.entry(found, reply);
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(ino.0) {
            Ok(attr) => reply.attr(&Duration::ZERO, &attr),
            Err(refused) => reply.error(errno(refused)),
        }
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut disk = self.disk();
        let changed = size.map_or(Ok(()), |size| disk.resize(ino.0, size)).and_then(|()| {
            let inode = disk.inode_mut(ino.0)?;
            inode.mode = mode.map_or(inode.mode, |mode| mode & 0o7777);
            inode.uid = uid.unwrap_or(inode.uid);
            inode.gid = gid.unwrap_or(inode.gid);
            match mtime {
                Some(TimeOrNow::SpecificTime(time)) => inode.changed = time,
                Some(TimeOrNow::Now) => inode.changed = SystemTime::now(),
                None => {}
            }
            Ok(attr_of(ino.0, inode))
        });
        match changed {
            Ok(attr) => reply.attr(&Duration::ZERO, &attr),
            Err(refused) => reply.error(errno(refused)),
        }
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        match self.disk().inode(ino.0).map(|inode| &inode.node) {
            Ok(Node::Symlink(target)) => reply.data(target.as_os_str().as_encoded_bytes()),
            Ok(Node::File(_) | Node::Directory(_)) => reply.error(Errno::EINVAL),
            Err(refused) => reply.error(errno(refused)),
        }
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        if mode & FORMAT != REGULAR {
            reply.error(Errno::EPERM);
            return;
        }
        let made = self.make(req, parent, name, Node::File(Content::default()), mode & !umask);
        self.entry(made, reply);
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let made = self.make(req, parent, name, Node::Directory(Directory::default()), mode & !umask);
        self.entry(made, reply);
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.disk().unlink(parent.0, name);
        answer(done, reply);
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.disk().rmdir(parent.0, name);
        answer(done, reply);
    }

    fn symlink(&self, req: &Request, parent: INodeNo, link_name: &OsStr, target: &Path, reply: ReplyEntry) {
        let made = self.make(req, parent, link_name, Node::Symlink(target.to_owned()), 0o777);
        self.entry(made, reply);
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if flags.intersects(RenameFlags::RENAME_EXCHANGE | RenameFlags::RENAME_WHITEOUT) {
            reply.error(Errno::EINVAL);
            return;
        }
        let replace = !flags.contains(RenameFlags::RENAME_NOREPLACE);
        let done = self.disk().rename((parent.0, name), (newparent.0, newname), replace);
        answer(done, reply);
    }

    fn link(&self, _req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let done = self.disk().link(ino.0, newparent.0, newname);
        self.entry(done.map(|()| ino.0), reply);
    }

    fn open(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.disk().inode_mut(ino.0) {
            Ok(inode) => {
                inode.opens += 1;
                reply.opened(FileHandle(0), FopenFlags::FOPEN_NOFLUSH);
            }
            Err(refused) => reply.error(errno(refused)),
        }
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let made = self.make(req, parent, name, Node::File(Content::default()), mode & !umask);
        let opened = made.and_then(|ino| {
            let mut disk = self.disk();
            let inode = disk.inode_mut(ino)?;
            inode.opens += 1;
            Ok(attr_of(ino, inode))
        });
        match opened {
            Ok(attr) => reply.created(&Duration::ZERO, &attr, Generation(0), FileHandle(0), FopenFlags::FOPEN_NOFLUSH),
            Err(refused) => reply.error(errno(refused)),
        }
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = self.disk().file_mut(ino.0).map(|content| content.read(offset, size as usize));
        match read {
            Ok(bytes) => reply.data(&bytes),
            Err(refused) => reply.error(errno(refused)),
        }
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut disk = self.disk();
        match disk.write(ino.0, offset, data) {
            Ok(()) => {
                if let Ok(inode) = disk.inode_mut(ino.0) {
                    inode.changed = SystemTime::now();
                }
                reply.written(data.len() as u32);
            }
            Err(refused) => reply.error(errno(refused)),
        }
    }

    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _lock_owner: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.disk().closed(ino.0);
        reply.ok();
    }

    fn fsync(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let done = self.disk().sync(ino.0);
        answer(done, reply);
    }

    fn opendir(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let disk = self.disk();
        let Ok(directory) = disk.directory(ino.0) else {
            reply.error(Errno::ENOTDIR);
            return;
        };
        let own = [(ino.0, FileType::Directory, ".".into()), (ino.0, FileType::Directory, "..".into())];
        let entries = directory.seen.iter().filter_map(|(name, ino)| {
            let inode = disk.inode(*ino).ok()?;
            Some((*ino, attr_of(*ino, inode).kind, name.clone()))
        });
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        lock(&self.listings).insert(handle, own.into_iter().chain(entries).collect());
        reply.opened(FileHandle(handle), FopenFlags::empty());
    }

    fn readdir(&self, _req: &Request, _ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let listings = lock(&self.listings);
        let listing = listings.get(&fh.0).map_or(&[][..], Vec::as_slice);
        for (index, (ino, kind, name)) in listing.iter().enumerate().skip(offset as usize) {
            if reply.add(INodeNo(*ino), index as u64 + 1, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _req: &Request, _ino: INodeNo, fh: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        lock(&self.listings).remove(&fh.0);
        reply.ok();
    }

    fn fsyncdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let done = self.disk().sync(ino.0);
        answer(done, reply);
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let (total, used) = (self.bytes / BLOCK, self.disk().bytes() / BLOCK);
        let free = total.saturating_sub(used);
        reply.statfs(total, free, free, 1 << 20, 1 << 20, BLOCK as u32, 255, BLOCK as u32);
    }

    fn fallocate(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mut disk = self.disk();
        let done = match mode {
            // Space is never missing here, so reserving it without a new size is done.
            KEEP_SIZE => disk.file_mut(ino.0).map(|_| ()),
            0 => {
                let end = offset.saturating_add(length);
                let size = disk.file_mut(ino.0).map(|content| content.size());
                size.and_then(|size| if end > size { disk.resize(ino.0, end) } else { Ok(()) })
            }
            _ => {
                reply.error(Errno::EOPNOTSUPP);
                return;
            }
        };
        answer(done, reply);
    }
}

fn attr_of(ino: Ino, inode: &Inode) -> FileAttr {
    let (kind, size) = match &inode.node {
        Node::File(content) => (FileType::RegularFile, content.size()),
        Node::Directory(_) => (FileType::Directory, 0),
        Node::Symlink(target) => (FileType::Symlink, target.as_os_str().len() as u64),
    };
    FileAttr {
        ino: INodeNo(ino),
        size,
        blocks: size.div_ceil(512),
        atime: inode.changed,
        mtime: inode.changed,
        ctime: inode.changed,
        crtime: inode.changed,
        kind,
        perm: inode.mode as u16,
        nlink: inode.links,
        uid: inode.uid,
        gid: inode.gid,
        rdev: 0,
        blksize: BLOCK as u32,
        flags: 0,
    }
}

fn answer(done: Result<(), Refused>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(refused) => reply.error(errno(refused)),
    }
}

fn errno(refused: Refused) -> Errno {
    match refused {
        Refused::NotFound => Errno::ENOENT,
        Refused::Exists => Errno::EEXIST,
        Refused::NotADirectory => Errno::ENOTDIR,
        Refused::IsADirectory => Errno::EISDIR,
        Refused::NotEmpty => Errno::ENOTEMPTY,
        Refused::Invalid => Errno::EINVAL,
        Refused::TooLarge => Errno::EFBIG,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const BLOCK: u64 = 4096;
/// Of a mode: the bits that say what kind of file, and an ordinary one's.
const FORMAT: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
/// fallocate's FALLOC_FL_KEEP_SIZE.
const KEEP_SIZE: i32 = 1;
