//! A worker thread's inbox: many senders, one thread that takes everything that is there at once.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

use tokio::sync::Semaphore;

/// Messages in the order of arrival. Only what clients cause counts against the bound: everything else has one message
/// under way per partition.
#[derive(Debug)]
pub struct Mailbox<M> {
    inner: Mutex<Inner<M>>,
    arrived: Condvar,
    room: Semaphore,
}

#[derive(Debug)]
struct Inner<M> {
    messages: Vec<M>,
    sleeping: bool,
    /// The worker is to look up, though there is no message.
    nudged: bool,
    closed: bool,
}

impl<M> Mailbox<M> {
    /// `bound`: how many messages of [`Mailbox::send_bounded`] may wait at a time.
    pub fn new(bound: usize) -> Mailbox<M> {
        Mailbox {
            inner: Mutex::new(Inner { messages: Vec::new(), sleeping: false, nudged: false, closed: false }),
            arrived: Condvar::new(),
            room: Semaphore::new(bound.clamp(1, Semaphore::MAX_PERMITS)),
        }
    }

    /// Drops the message if the worker is gone.
    pub fn send(&self, message: M) {
        let mut inner = self.inner.lock().expect("no code panics while it holds this lock");
        if inner.closed {
            return;
        }
        inner.messages.push(message);
        let wake = std::mem::take(&mut inner.sleeping);
        // Outside the lock: whoever wakes needs it at once.
        drop(inner);
        if wake {
            self.arrived.notify_one();
        }
    }

    /// Whether the worker sleeps and has nothing to wake up for.
    pub fn is_asleep(&self) -> bool {
        let inner = self.inner.lock().expect("no code panics while it holds this lock");
        inner.sleeping && inner.messages.is_empty()
    }

    /// Wakes the worker without a message.
    pub fn nudge(&self) {
        let mut inner = self.inner.lock().expect("no code panics while it holds this lock");
        inner.nudged = true;
        let wake = std::mem::take(&mut inner.sleeping);
        drop(inner);
        if wake {
            self.arrived.notify_one();
        }
    }

    /// Waits for room first. Whoever takes the message calls [`Mailbox::made_room`].
    pub async fn send_bounded(&self, message: M) {
        if let Ok(permit) = self.room.acquire().await {
            permit.forget();
            self.send(message);
        }
    }

    pub fn made_room(&self, count: usize) {
        if count > 0 {
            self.room.add_permits(count);
        }
    }

    /// Swaps everything that is there into `taken`, which must be empty. Sleeps until there is something or a nudge, for at
    /// most `patience`.
    pub fn take(&self, taken: &mut Vec<M>, patience: Option<Duration>) {
        let mut inner = self.inner.lock().expect("no code panics while it holds this lock");
        if inner.messages.is_empty() && patience != Some(Duration::ZERO) {
            inner.sleeping = true;
            let nothing = |inner: &mut Inner<M>| inner.messages.is_empty() && !inner.nudged;
            inner = match patience {
                None => self.arrived.wait_while(inner, nothing).expect("no code panics while it holds this lock"),
                Some(patience) => {
                    let waited = self.arrived.wait_timeout_while(inner, patience, nothing);
                    waited.expect("no code panics while it holds this lock").0
                }
            };
            inner.sleeping = false;
        }
        inner.nudged = false;
        std::mem::swap(&mut inner.messages, taken);
    }

    /// The worker is going: what comes from now on is dropped, and so is what still waits.
    pub fn close(&self) {
        let left = {
            let mut inner = self.inner.lock().expect("no code panics while it holds this lock");
            inner.closed = true;
            std::mem::take(&mut inner.messages)
        };
        // Outside the lock: a dropped message may answer somebody.
        drop(left);
        self.room.close();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn one_take_gets_everything_in_order() {
        let mailbox = Mailbox::new(10);
        (0..5).for_each(|i| mailbox.send(i));
        let mut taken = Vec::new();
        mailbox.take(&mut taken, None);
        assert_eq!(taken, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_full_mailbox_makes_its_clients_wait_but_nobody_else() {
        let mailbox = Mailbox::new(1);
        assert!(mailbox.send_bounded(1).now_or_never().is_some());
        assert!(mailbox.send_bounded(2).now_or_never().is_none());
        mailbox.send(3);
        let mut taken = Vec::new();
        mailbox.take(&mut taken, None);
        assert_eq!(taken, [1, 3]);
        mailbox.made_room(1);
        assert!(mailbox.send_bounded(4).now_or_never().is_some());
    }

    #[test]
    fn a_nudge_ends_a_sleep_and_one_that_came_too_early_the_next() {
        let mailbox: Mailbox<i32> = Mailbox::new(1);
        assert!(!mailbox.is_asleep());
        mailbox.nudge();
        let mut taken = Vec::new();
        mailbox.take(&mut taken, None);
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let mut taken = Vec::new();
                mailbox.take(&mut taken, None);
                taken.len()
            });
            while !mailbox.is_asleep() {
                std::thread::yield_now();
            }
            mailbox.nudge();
            assert_eq!(worker.join().unwrap(), 0);
        });
    }

    #[test]
    fn a_closed_mailbox_drops_what_it_gets_and_blocks_nobody() {
        let mailbox = Mailbox::new(1);
        mailbox.send_bounded(1).now_or_never().unwrap();
        mailbox.close();
        mailbox.send(2);
        assert!(mailbox.send_bounded(3).now_or_never().is_some());
        let mut taken = Vec::new();
        mailbox.take(&mut taken, Some(Duration::ZERO));
        assert_eq!(taken, [0; 0]);
    }
}
