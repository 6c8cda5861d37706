//! What a coordinator was promised by its store survives a cut right after it came into being.

use std::path::Path;

use thalweg_coordinator::store::{Batch, KvStore, Space, View};
use thalweg_coordinator_rocks::RocksStore;
use thalweg_crashfs::Cut;
use thalweg_crashfs::mount::Mounted;
use thalweg_world::disk::create_dir_durable;

/// On a mounted disk; nothing, said aloud, where none can be mounted.
fn on_a_disk(test: impl FnOnce(&Path, &Mounted)) {
    let dir = tempfile::tempdir().unwrap();
    match Mounted::new(dir.path(), 1 << 30) {
        Ok(mounted) => {
            test(dir.path(), &mounted);
            mounted.unmount().unwrap();
        }
        Err(error) => {
            #[expect(clippy::print_stdout, reason = "a test that does not run says so")]
            {
                println!("not run: cannot mount by FUSE here: {error}");
            }
        }
    }
}

/// Goal: no vote, no log and no membership is forgotten. Method: RocksDB in directories that are all new, a synced write,
/// and the power is cut in either way, again and again.
#[test]
fn a_new_coordinators_synced_writes_survive_the_first_cut_and_the_next() {
    on_a_disk(|root, disk| {
        let path = root.join("data/coordinator");
        for round in 0..6_u64 {
            let store = RocksStore::open(&path).unwrap();
            for before in 0..round {
                let found = store.value(Space::Meta, &before.to_be_bytes()).unwrap();
                assert_eq!(found.as_deref(), Some(&b"promised"[..]), "round {round}: {before}");
            }
            let mut batch = Batch::default();
            batch.put(Space::Meta, round.to_be_bytes(), b"promised");
            store.write(batch).unwrap();
            store.sync().unwrap();
            let mut unsynced = Batch::default();
            unsynced.put(Space::Log, round.to_be_bytes(), vec![7; 10_000]);
            store.write(unsynced).unwrap();
            drop(store);
            disk.cut(if round % 2 == 0 { Cut::Drop } else { Cut::Tear(round) });
        }
    });
}

#[test]
fn a_directory_made_durably_is_there_after_a_cut_and_one_made_plainly_is_not() {
    on_a_disk(|root, disk| {
        create_dir_durable(&root.join("a/b/c")).unwrap();
        // Made by somebody who died before the name was synced.
        std::fs::create_dir(root.join("a/d")).unwrap();
        create_dir_durable(&root.join("a/d")).unwrap();
        std::fs::create_dir_all(root.join("a/b/plain")).unwrap();
        disk.cut(Cut::Drop);
        assert!(root.join("a/b/c").is_dir() && root.join("a/d").is_dir());
        assert!(!root.join("a/b/plain").exists());
    });
}
