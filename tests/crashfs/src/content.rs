//! A file's bytes, as they are seen and as they would survive.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, RngExt};

type Page = [u8; PAGE];

/// Pages that are missing are zeros. Two images share the pages in which they agree.
#[derive(Clone, Debug, Default)]
struct Image {
    pages: BTreeMap<u64, Arc<Page>>,
    size: u64,
}

/// A regular file.
#[derive(Debug, Default)]
pub(crate) struct Content {
    seen: Image,
    durable: Image,
    /// Pages of `seen` that `durable` lacks, or has although they are gone.
    unsynced: BTreeSet<u64>,
}

impl Content {
    pub(crate) fn size(&self) -> u64 {
        self.seen.size
    }

    /// Whether a power cut may change the file.
    pub(crate) fn is_synced(&self) -> bool {
        self.unsynced.is_empty() && self.seen.size == self.durable.size
    }

    pub(crate) fn unsynced_pages(&self) -> usize {
        self.unsynced.len()
    }

    pub(crate) fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let end = self.seen.size.min(offset.saturating_add(length as u64));
        let mut bytes = Vec::with_capacity(end.saturating_sub(offset) as usize);
        let mut at = offset;
        while at < end {
            let (page, within, until) = span(at, end);
            match self.seen.pages.get(&page) {
                Some(page) => bytes.extend_from_slice(&page[within..until]),
                None => bytes.resize(bytes.len() + until - within, 0),
            }
            at += (until - within) as u64;
        }
        bytes
    }

    pub(crate) fn write(&mut self, offset: u64, mut bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        let mut at = offset;
        while at < end {
            let (number, within, until) = span(at, end);
            let page = Arc::make_mut(self.seen.pages.entry(number).or_insert_with(|| Arc::new([0; PAGE])));
            let (now, rest) = bytes.split_at(until - within);
            page[within..until].copy_from_slice(now);
            self.unsynced.insert(number);
            bytes = rest;
            at += now.len() as u64;
        }
        self.seen.size = self.seen.size.max(end);
    }

    /// Cuts the file, or lets it grow by zeros.
    pub(crate) fn resize(&mut self, size: u64) {
        for (number, _) in self.seen.pages.split_off(&size.div_ceil(PAGE as u64)) {
            self.unsynced.insert(number);
        }
        let within = (size % PAGE as u64) as usize;
        if size < self.seen.size
            && within > 0
            && let Some(page) = self.seen.pages.get_mut(&(size / PAGE as u64))
        {
            // What lay behind a new end must not come back when the file grows again.
            Arc::make_mut(page)[within..].fill(0);
            self.unsynced.insert(size / PAGE as u64);
        }
        self.seen.size = size;
    }

    /// Everything up to now survives.
    pub(crate) fn sync(&mut self) {
        for number in std::mem::take(&mut self.unsynced) {
            match self.seen.pages.get(&number) {
                Some(page) => self.durable.pages.insert(number, Arc::clone(page)),
                None => self.durable.pages.remove(&number),
            };
        }
        self.durable.size = self.seen.size;
    }

    /// The power is cut: nothing unsynced reached the disk.
    pub(crate) fn drop_unsynced(&mut self) {
        self.seen = self.durable.clone();
        self.unsynced.clear();
    }

    /// The power is cut while the disk was writing: any of the unsynced sectors may have reached it, in any order, and
    /// the size may be the old one, the new one, or one between.
    pub(crate) fn tear_unsynced(&mut self, rng: &mut StdRng) {
        let mut torn = self.durable.clone();
        for number in std::mem::take(&mut self.unsynced) {
            match (self.seen.pages.get(&number), rng.random_range(0..3)) {
                (_, 0) => {}
                (Some(page), 1) => {
                    torn.pages.insert(number, Arc::clone(page));
                }
                (Some(page), _) => {
                    let mixed = Arc::make_mut(torn.pages.entry(number).or_insert_with(|| Arc::new([0; PAGE])));
                    for (old, new) in mixed.chunks_mut(SECTOR).zip(page.chunks(SECTOR)) {
                        if rng.random_bool(0.5) {
                            old.copy_from_slice(new);
                        }
                    }
                }
                (None, _) => {
                    torn.pages.remove(&number);
                }
            }
        }
        torn.size = torn_size(self.durable.size, self.seen.size, rng);
        self.durable = torn;
        self.seen = self.durable.clone();
        // Pages behind the end are zeros once the file grows again.
        let size = self.seen.size;
        self.resize(size.saturating_add(1));
        self.resize(size);
        self.sync();
    }
}

fn torn_size(old: u64, new: u64, rng: &mut impl Rng) -> u64 {
    match rng.random_range(0..3) {
        0 => old,
        1 => new,
        _ => rng.random_range(old.min(new)..=old.max(new)),
    }
}

/// Of the bytes from `at` to `end`, those in the page of `at`: the page and where in it they lie.
fn span(at: u64, end: u64) -> (u64, usize, usize) {
    let number = at / PAGE as u64;
    let start = number * PAGE as u64;
    (number, (at - start) as usize, (end - start).min(PAGE as u64) as usize)
}

const PAGE: usize = 4096;
const SECTOR: usize = 512;

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn what_was_synced_survives_and_what_was_not_does_not() {
        let mut file = Content::default();
        file.write(0, &[1; 5000]);
        file.sync();
        file.write(4000, &[2; 3000]);
        assert_eq!((file.size(), file.unsynced_pages()), (7000, 2));
        file.drop_unsynced();
        assert_eq!(file.read(0, 10_000), [1; 5000]);
        assert!(file.is_synced());
    }

    #[test]
    fn bytes_behind_a_cut_end_do_not_come_back() {
        let mut file = Content::default();
        file.write(0, &[7; 10_000]);
        file.sync();
        file.resize(100);
        file.resize(10_000);
        let mut expected = vec![7; 100];
        expected.resize(10_000, 0);
        assert_eq!(file.read(0, 20_000), expected);
        file.sync();
        file.drop_unsynced();
        assert_eq!(file.read(0, 20_000), expected);
    }

    /// Goal: a tear only ever mixes old and new. Method: many seeds over a file whose every byte tells its age.
    #[test]
    fn torn_bytes_are_old_ones_new_ones_or_zeros_and_synced_pages_stay() {
        let (mut kept, mut gone, mut sizes) = (0, 0, BTreeSet::new());
        for seed in 0..200 {
            let mut file = Content::default();
            file.write(0, &[1; 3 * PAGE]);
            file.sync();
            file.write(PAGE as u64, &[2; 4 * PAGE]);
            file.tear_unsynced(&mut StdRng::seed_from_u64(seed));
            let size = file.size() as usize;
            assert!((3 * PAGE..=5 * PAGE).contains(&size), "{size}");
            let bytes = file.read(0, size);
            assert!(bytes[..PAGE].iter().all(|byte| *byte == 1));
            assert!(bytes[PAGE..3 * PAGE].iter().all(|byte| [1, 2].contains(byte)));
            assert!(bytes[3 * PAGE..].iter().all(|byte| [0, 2].contains(byte)));
            kept += bytes.iter().filter(|byte| **byte == 2).count();
            gone += bytes[PAGE..3 * PAGE].iter().filter(|byte| **byte == 1).count();
            sizes.insert(size);
            // What a tear left is on the disk.
            file.drop_unsynced();
            assert_eq!(file.read(0, size), bytes);
        }
        assert!(kept > 0 && gone > 0 && sizes.len() > 20, "{kept} {gone} {}", sizes.len());
    }
}
