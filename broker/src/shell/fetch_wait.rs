//! Fetches that wait for records: who is told when a partition's visible end moves.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

/// One parked fetch. Told by any of its partitions, which it knows by its own numbers.
#[derive(Debug, Default)]
pub struct FetchWait {
    told: Mutex<Vec<usize>>,
    over: AtomicBool,
    waker: AtomicWaker,
}

/// The fetches parked at one partition.
#[derive(Debug, Default)]
pub struct FetchWaiters {
    /// So that a partition at which nobody waits costs its writer one load.
    count: AtomicUsize,
    parked: Mutex<Vec<(usize, Arc<FetchWait>)>>,
}

/// A parked fetch ends: partitions that never told it may forget it.
#[derive(Debug)]
pub struct Parked(Arc<FetchWait>);

impl FetchWaiters {
    /// Registers for the next move, which is told as `index`. Look at the partition again afterwards: it may have moved just
    /// before.
    pub fn park(&self, index: usize, wait: &Arc<FetchWait>) {
        let mut parked = self.parked.lock().expect("no code panics while it holds this lock");
        if parked.len() == parked.capacity() {
            // Fetches that other partitions woke leave their entries here; they go before the list grows.
            parked.retain(|(_, wait)| !wait.over.load(Ordering::Relaxed));
        }
        parked.push((index, Arc::clone(wait)));
        self.count.store(parked.len(), Ordering::SeqCst);
        // Pairs with the one in `tell`: either the writer sees this entry, or the caller sees the move.
        fence(Ordering::SeqCst);
    }

    /// The visible end moved, or the partition stopped being readable here: everybody looks again.
    pub fn tell(&self) {
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let told = {
            let mut parked = self.parked.lock().expect("no code panics while it holds this lock");
            self.count.store(0, Ordering::SeqCst);
            std::mem::take(&mut *parked)
        };
        for (index, wait) in told {
            wait.tell(index);
        }
    }
}

impl FetchWait {
    pub(super) fn tell(&self, index: usize) {
        self.told.lock().expect("no code panics while it holds this lock").push(index);
        self.waker.wake();
    }
}

impl Parked {
    pub fn new() -> Parked {
        Parked(Arc::new(FetchWait::default()))
    }

    pub fn wait(&self) -> &Arc<FetchWait> {
        &self.0
    }

    /// Resolves with the partitions that have told this fetch since the last time, once there are any.
    pub async fn told(&self) -> Vec<usize> {
        std::future::poll_fn(|context: &mut Context<'_>| {
            self.0.waker.register(context.waker());
            let mut told = self.0.told.lock().expect("no code panics while it holds this lock");
            if told.is_empty() { Poll::Pending } else { Poll::Ready(std::mem::take(&mut *told)) }
        })
        .await
    }
}

impl Default for Parked {
    fn default() -> Parked {
        Parked::new()
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_parked_fetch_is_told_once_per_registration() {
        let (waiters, parked) = (FetchWaiters::default(), Parked::new());
        waiters.park(7, parked.wait());
        assert_eq!(parked.told().now_or_never(), None);
        waiters.tell();
        assert_eq!(parked.told().now_or_never(), Some(vec![7]));
        waiters.tell();
        assert_eq!(parked.told().now_or_never(), None);
    }

    #[test]
    fn fetches_that_ended_elsewhere_do_not_pile_up() {
        let waiters = FetchWaiters::default();
        for _ in 0..10_000 {
            waiters.park(0, Parked::new().wait());
        }
        assert!(waiters.parked.lock().unwrap().len() <= 8);
    }
}
