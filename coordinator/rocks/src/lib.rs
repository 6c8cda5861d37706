//! The coordinator's store on RocksDB.
//!
//! One write-ahead log for all keyspaces, so batches become durable in the order in which they were written (R1, R2).

use std::io;
use std::path::Path;

use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType, Direction, IteratorMode,
    Options, ReadOptions, SnapshotWithThreadMode, WriteBatch,
};
use thalweg_coordinator::store::{Batch, KvStore, Op, Snapshots, Space, View, Visit, create_dir_durable};

/// A directory with the database in `db` and snapshots in `snapshots`. One process at a time: RocksDB locks it.
pub struct RocksStore {
    db: DB,
    snapshots: Snapshots,
}

impl RocksStore {
    /// Opens the directory, or makes it.
    ///
    /// # Errors
    /// Another process has it open, it is damaged, or the disk failed; the message says which.
    pub fn open(path: &Path) -> io::Result<RocksStore> {
        let at = |cause: io::Error| io::Error::new(cause.kind(), format!("{}: {cause}", path.display()));
        // RocksDB syncs what is in its directory, not that the directory is there. A coordinator whose directory a loss of
        // power takes back would come up empty, and found another cluster with others like it.
        create_dir_durable(&path.join("db")).map_err(at)?;
        // One small cache for all: each keyspace would otherwise get one of 32 MiB, for registries that live in memory anyway.
        let cache = Cache::new_lru_cache(BLOCK_CACHE_BYTES);
        let spaces = Space::ALL.map(|space| ColumnFamilyDescriptor::new(space.name(), space_options(&cache)));
        let db =
            DB::open_cf_descriptors(&db_options(), path.join("db"), spaces).map_err(|cause| at(io_error(&cause)))?;
        let snapshots = Snapshots::in_dir(&path.join("snapshots")).map_err(at)?;
        Ok(RocksStore { db, snapshots })
    }

    fn space(&self, space: Space) -> io::Result<&ColumnFamily> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, format!("keyspace {} is missing", space.name()));
        self.db.cf_handle(space.name()).ok_or_else(missing)
    }
}

impl View for RocksStore {
    fn value(&self, space: Space, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        self.db.get_cf(self.space(space)?, key).map_err(|cause| io_error(&cause))
    }

    fn scan(&self, space: Space, from: &[u8], visit: Visit<'_>) -> io::Result<()> {
        let start = IteratorMode::From(from, Direction::Forward);
        walk(self.db.iterator_cf_opt(self.space(space)?, ordered(), start), visit)
    }

    fn last(&self, space: Space) -> io::Result<Option<(Vec<u8>, Vec<u8>)>> {
        last(self.db.iterator_cf_opt(self.space(space)?, ordered(), IteratorMode::End))
    }
}

impl KvStore for RocksStore {
    fn write(&self, batch: Batch) -> io::Result<()> {
        let mut ops = WriteBatch::default();
        for (space, op) in &batch.ops {
            let space = self.space(*space)?;
            match op {
                Op::Put { key, value } => ops.put_cf(space, key, value),
                Op::Delete { key } => ops.delete_cf(space, key),
                Op::DeleteRange { from, to } if from < to => ops.delete_range_cf(space, from, to),
                Op::DeleteRange { .. } => {}
            }
        }
        self.db.write(ops).map_err(|cause| io_error(&cause))
    }

    fn sync(&self) -> io::Result<()> {
        self.db.flush_wal(true).map_err(|cause| io_error(&cause))
    }

    fn view(&self) -> io::Result<Box<dyn View + '_>> {
        Ok(Box::new(Frozen { store: self, snapshot: self.db.snapshot() }))
    }

    fn snapshots(&self) -> &Snapshots {
        &self.snapshots
    }
}

/// The store as of one moment.
struct Frozen<'a> {
    store: &'a RocksStore,
    snapshot: SnapshotWithThreadMode<'a, DB>,
}

impl View for Frozen<'_> {
    fn value(&self, space: Space, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        self.snapshot.get_cf(self.store.space(space)?, key).map_err(|cause| io_error(&cause))
    }

    fn scan(&self, space: Space, from: &[u8], visit: Visit<'_>) -> io::Result<()> {
        let start = IteratorMode::From(from, Direction::Forward);
        walk(self.snapshot.iterator_cf_opt(self.store.space(space)?, ordered(), start), visit)
    }

    fn last(&self, space: Space) -> io::Result<Option<(Vec<u8>, Vec<u8>)>> {
        last(self.snapshot.iterator_cf_opt(self.store.space(space)?, ordered(), IteratorMode::End))
    }
}

type Pair = Result<(Box<[u8]>, Box<[u8]>), rocksdb::Error>;

fn walk(pairs: impl Iterator<Item = Pair>, visit: Visit<'_>) -> io::Result<()> {
    for pair in pairs {
        let (key, value) = pair.map_err(|cause| io_error(&cause))?;
        if !visit(&key, &value)? {
            break;
        }
    }
    Ok(())
}

fn last(mut pairs: impl Iterator<Item = Pair>) -> io::Result<Option<(Vec<u8>, Vec<u8>)>> {
    let pair = pairs.next().transpose().map_err(|cause| io_error(&cause))?;
    Ok(pair.map(|(key, value)| (key.into_vec(), value.into_vec())))
}

fn ordered() -> ReadOptions {
    let mut options = ReadOptions::default();
    options.set_total_order_seek(true);
    options
}

fn db_options() -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_max_background_jobs(2);
    options.set_max_total_wal_size(64 << 20);
    options.set_keep_log_file_num(2);
    options.set_max_open_files(256);
    // The write-ahead log must hold whole batches in order up to some point; anything else is damage, not a torn tail.
    options.set_wal_recovery_mode(rocksdb::DBRecoveryMode::PointInTime);
    options
}

fn space_options(cache: &Cache) -> Options {
    let mut options = Options::default();
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(cache);
    options.set_block_based_table_factory(&blocks);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_write_buffer_size(8 << 20);
    options.set_max_write_buffer_number(2);
    options
}

fn io_error(cause: &rocksdb::Error) -> io::Error {
    let kind = match cause.kind() {
        rocksdb::ErrorKind::Corruption => io::ErrorKind::InvalidData,
        rocksdb::ErrorKind::NotFound => io::ErrorKind::NotFound,
        rocksdb::ErrorKind::Busy => io::ErrorKind::ResourceBusy,
        _ => io::ErrorKind::Other,
    };
    let text = cause.to_string();
    if text.contains("LOCK") {
        let message = "another process has the coordinator's store open; stop it, or give this one another directory";
        return io::Error::new(io::ErrorKind::ResourceBusy, message);
    }
    io::Error::new(kind, text)
}

const BLOCK_CACHE_BYTES: usize = 4 << 20;
