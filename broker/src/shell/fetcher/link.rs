//! What owners of logs and a fetcher say to each other.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::machine::follower::{FetchId, FetchPosition};
use crate::shell::partitions::Partition;

/// The way from owners of logs to a fetcher.
#[derive(Clone, Debug)]
pub struct FetchLink(pub(super) mpsc::UnboundedSender<Event>);

/// What is asked after an answer was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Ask(FetchId, FetchPosition),
    /// What is asked already.
    Stands,
    /// Nothing for a while.
    Later,
    /// Nothing any more.
    Gone,
}

/// The duty to say what is asked next. Dropped without a word: nothing.
#[derive(Debug)]
pub struct AnswerDuty {
    pub(super) link: FetchLink,
    pub(super) number: u64,
    pub(super) id: FetchId,
    pub(super) is_done: bool,
}

/// At most a few per partition, which bounds the queue.
#[derive(Debug)]
pub(super) enum Event {
    Ask(Arc<Partition>, FetchId, FetchPosition),
    Forget(u64),
    Done(u64, Next),
}

impl FetchLink {
    /// The partition is to be fetched from this position; the same id again: it reports more.
    pub fn ask(&self, partition: &Arc<Partition>, id: FetchId, position: FetchPosition) {
        self.send(Event::Ask(Arc::clone(partition), id, position));
    }

    pub fn forget(&self, partition: &Partition) {
        self.send(Event::Forget(partition.number));
    }

    fn send(&self, event: Event) {
        // Fails only when the broker goes down.
        let _ = self.0.send(event);
    }
}

impl AnswerDuty {
    /// The fetch that is answered.
    pub fn id(&self) -> FetchId {
        self.id
    }

    pub fn done(mut self, next: Next) {
        self.is_done = true;
        self.link.send(Event::Done(self.number, next));
    }
}

impl Drop for AnswerDuty {
    fn drop(&mut self) {
        if !self.is_done {
            self.link.send(Event::Done(self.number, Next::Gone));
        }
    }
}
