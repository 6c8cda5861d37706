//! Followers that want to hear of a partition: who is told when it grows, its watermark moves or its leader goes.
//!
//! Unlike a consumer's wait, an interest stands for as long as its follower's session has the partition; it is told once and
//! then again only after it has been looked at.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex};

use super::fetch_wait::FetchWait;
use crate::machine::follower_session::Slot;

/// One session's interest in one partition. Dropping it ends it.
#[derive(Debug)]
pub struct Interest(Arc<Shared>);

/// The interests in one partition.
#[derive(Debug, Default)]
pub struct Interests {
    /// So that a partition without followers costs its writer one load.
    count: AtomicUsize,
    all: Mutex<Vec<Arc<Shared>>>,
}

#[derive(Debug)]
struct Shared {
    slot: Slot,
    wait: Arc<FetchWait>,
    is_told: AtomicBool,
    is_over: AtomicBool,
}

impl Interests {
    /// From here on `wait` is told of the partition as `slot`. Look at the partition afterwards: it may have moved just before.
    pub fn add(&self, slot: Slot, wait: &Arc<FetchWait>) -> Interest {
        let (is_told, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
        let shared = Arc::new(Shared { slot, wait: Arc::clone(wait), is_told, is_over });
        let mut all = self.all.lock().expect("no code panics while it holds this lock");
        all.retain(|shared| !shared.is_over.load(Ordering::Acquire));
        all.push(Arc::clone(&shared));
        self.count.store(all.len(), Ordering::SeqCst);
        fence(Ordering::SeqCst);
        Interest(shared)
    }

    pub fn tell(&self) {
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut all = self.all.lock().expect("no code panics while it holds this lock");
        all.retain(|shared| !shared.is_over.load(Ordering::Acquire));
        self.count.store(all.len(), Ordering::SeqCst);
        for shared in all.iter().filter(|shared| !shared.is_told.swap(true, Ordering::SeqCst)) {
            shared.wait.tell(shared.slot.0);
        }
    }
}

impl Interest {
    /// The session is about to look: what moves from here on is told again.
    pub fn looking(&self) {
        self.0.is_told.store(false, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::super::fetch_wait::Parked;
    use super::*;

    #[test]
    fn an_interest_is_told_once_until_it_looks() {
        let (interests, parked) = (Interests::default(), Parked::new());
        let interest = interests.add(Slot(7), parked.wait());
        interests.tell();
        interests.tell();
        assert_eq!(parked.told().now_or_never(), Some(vec![7]));
        interests.tell();
        assert_eq!(parked.told().now_or_never(), None);
        interest.looking();
        interests.tell();
        assert_eq!(parked.told().now_or_never(), Some(vec![7]));
    }

    #[test]
    fn an_ended_interest_is_not_told_and_not_kept() {
        let (interests, parked) = (Interests::default(), Parked::new());
        drop(interests.add(Slot(1), parked.wait()));
        interests.tell();
        assert_eq!(parked.told().now_or_never(), None);
        assert_eq!(interests.all.lock().unwrap().len(), 0);
    }
}
