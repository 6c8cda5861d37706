//! The kernel's calls reach the disk as they are meant: what they sync survives a cut, and what they do not is gone.
//!
//! Where there is no /dev/fuse, or we may not mount, the tests say so and end.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use thalweg_crashfs::mount::Mounted;
use thalweg_crashfs::{Cut, disk::Lost};

/// A mounted disk, unmounted before its mountpoint is removed.
struct Machine {
    mounted: Option<Mounted>,
    dir: TempDir,
}

impl Machine {
    fn new() -> Option<Machine> {
        let dir = tempfile::tempdir().unwrap();
        match Mounted::new(dir.path(), 1 << 30) {
            Ok(mounted) => Some(Machine { mounted: Some(mounted), dir }),
            Err(error) => {
                #[expect(clippy::print_stdout, reason = "a test that does not run says so")]
                {
                    println!("not run: cannot mount by FUSE here: {error}");
                }
                None
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn root(&self) -> &Path {
        self.dir.path()
    }

    fn cut(&self) -> Lost {
        self.mounted.as_ref().unwrap().cut(Cut::Drop)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.root()).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(mounted) = self.mounted.take() {
            mounted.unmount().unwrap();
        }
    }
}

fn sync_dir(path: &Path) {
    File::open(path).unwrap().sync_all().unwrap();
}

/// Written, synced as `sync` does, closed; its directory is synced too.
fn write(path: &Path, bytes: &[u8], sync: impl Fn(&File)) {
    let mut file = File::create(path).unwrap();
    file.write_all(bytes).unwrap();
    sync(&file);
    sync_dir(path.parent().unwrap());
}

#[test]
fn fsync_and_fdatasync_keep_content_and_a_close_does_not() {
    let Some(machine) = Machine::new() else { return };
    write(&machine.path("all"), b"fsynced", |file| file.sync_all().unwrap());
    write(&machine.path("data"), b"fdatasynced", |file| file.sync_data().unwrap());
    write(&machine.path("none"), b"only written", |_| ());
    assert_eq!(fs::read(machine.path("none")).unwrap(), b"only written");
    assert_eq!(machine.cut(), Lost { names: 0, files: 1, pages: 1 });
    assert_eq!(fs::read(machine.path("all")).unwrap(), b"fsynced");
    assert_eq!(fs::read(machine.path("data")).unwrap(), b"fdatasynced");
    assert_eq!(fs::read(machine.path("none")).unwrap(), b"");
}

#[test]
fn names_survive_by_a_sync_of_their_directory_alone() {
    let Some(machine) = Machine::new() else { return };
    fs::create_dir(machine.path("dir")).unwrap();
    write(&machine.path("dir/below"), b"x", |file| file.sync_all().unwrap());
    write(&machine.path("kept"), b"x", |file| file.sync_all().unwrap());
    File::create(machine.path("forgotten")).unwrap().sync_all().unwrap();
    fs::remove_file(machine.path("kept")).unwrap();
    fs::hard_link(machine.path("dir/below"), machine.path("linked")).unwrap();
    assert_eq!(machine.names(), ["dir", "forgotten", "linked"]);
    machine.cut();
    assert_eq!(machine.names(), ["dir", "kept"]);
    assert_eq!(fs::read(machine.path("dir/below")).unwrap(), b"x");
}

#[test]
fn a_rename_in_place_of_a_file_needs_its_directory_synced() {
    let Some(machine) = Machine::new() else { return };
    for is_synced in [false, true] {
        write(&machine.path("current"), b"old", |file| file.sync_all().unwrap());
        write(&machine.path("next"), b"new", |file| file.sync_all().unwrap());
        fs::rename(machine.path("next"), machine.path("current")).unwrap();
        if is_synced {
            sync_dir(machine.root());
        }
        assert_eq!(fs::read(machine.path("current")).unwrap(), b"new");
        machine.cut();
        assert_eq!(fs::read(machine.path("current")).unwrap(), if is_synced { b"new" } else { b"old" });
        assert_eq!(machine.path("next").exists(), !is_synced);
    }
}

#[test]
fn an_appended_tail_and_a_truncation_are_as_they_were_synced_last() {
    let Some(machine) = Machine::new() else { return };
    write(&machine.path("log"), &[1; 10_000], |file| file.sync_all().unwrap());
    let mut log = OpenOptions::new().append(true).open(machine.path("log")).unwrap();
    log.write_all(&[2; 10_000]).unwrap();
    log.sync_data().unwrap();
    log.write_all(&[3; 10_000]).unwrap();
    drop(log);
    machine.cut();
    let found = fs::read(machine.path("log")).unwrap();
    assert_eq!(found, [[1; 10_000], [2; 10_000]].concat());

    File::options().write(true).open(machine.path("log")).unwrap().set_len(5_000).unwrap();
    machine.cut();
    assert_eq!(fs::metadata(machine.path("log")).unwrap().len(), 20_000);
    let log = File::options().write(true).open(machine.path("log")).unwrap();
    log.set_len(5_000).unwrap();
    log.sync_data().unwrap();
    drop(log);
    machine.cut();
    assert_eq!(fs::read(machine.path("log")).unwrap(), [1; 5_000]);
}

#[test]
fn space_that_was_reserved_reads_as_zeros_and_survives_as_synced() {
    let Some(machine) = Machine::new() else { return };
    let file = File::create(machine.path("index")).unwrap();
    file.set_len(1 << 20).unwrap();
    file.write_all_at(b"entry", 4096).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::KEEP_SIZE, 0, 8 << 20).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 2 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 2 << 20);
    drop(file);
    sync_dir(machine.root());
    machine.cut();
    let found = fs::read(machine.path("index")).unwrap();
    assert_eq!(found.len(), 1 << 20);
    assert_eq!(&found[4096..4101], b"entry");
    assert!(found[..4096].iter().chain(&found[4101..]).all(|byte| *byte == 0));
}

/// Goal: what was read before a cut is not read again after it out of the kernel's memory.
#[test]
fn the_kernel_does_not_remember_what_a_cut_took() {
    let Some(machine) = Machine::new() else { return };
    write(&machine.path("file"), &[1; 8192], |file| file.sync_all().unwrap());
    let mut file = File::options().read(true).write(true).open(machine.path("file")).unwrap();
    file.write_all_at(&[9; 8192], 0).unwrap();
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, [9; 8192]);
    drop(file);
    machine.cut();
    assert_eq!(fs::read(machine.path("file")).unwrap(), [1; 8192]);
}

#[test]
fn many_names_are_listed_and_a_removed_tree_is_gone_once_synced() {
    let Some(machine) = Machine::new() else { return };
    fs::create_dir(machine.path("tree")).unwrap();
    for number in 0..1000 {
        File::create(machine.path(&format!("tree/a-rather-long-name-{number:04}"))).unwrap();
    }
    assert_eq!(fs::read_dir(machine.path("tree")).unwrap().count(), 1000);
    sync_dir(&machine.path("tree"));
    sync_dir(machine.root());
    fs::remove_dir_all(machine.path("tree")).unwrap();
    assert_eq!(machine.names(), [""; 0]);
    machine.cut();
    assert_eq!(fs::read_dir(machine.path("tree")).unwrap().count(), 1000);
    fs::remove_dir_all(machine.path("tree")).unwrap();
    sync_dir(machine.root());
    machine.cut();
    assert_eq!(machine.names(), [""; 0]);
}
