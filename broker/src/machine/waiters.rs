//! Who waits for a partition's offsets to be passed: acknowledgements in order.

use std::collections::VecDeque;

use thalweg_model::Offset;

/// Waiters of one mark of one partition, in the order of their offsets.
#[derive(Debug)]
pub struct Waiters<T> {
    /// Invariant: sorted by offset; equal offsets in the order of arrival.
    queue: VecDeque<(Offset, T)>,
}

impl<T> Default for Waiters<T> {
    fn default() -> Self {
        Waiters { queue: VecDeque::new() }
    }
}

impl<T> Waiters<T> {
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Parks `waiter` until the mark is at least `until` (exclusive end of its records).
    pub fn park(&mut self, until: Offset, waiter: T) {
        // Nearly always at the end: only a repeated batch waits for an offset that lies further back.
        let at = self.queue.partition_point(|(offset, _)| *offset <= until);
        self.queue.insert(at, (until, waiter));
    }

    /// Takes out, in order, whoever waited for no more than `mark`.
    pub fn pass(&mut self, mark: Offset) -> impl Iterator<Item = T> + '_ {
        let passed = self.queue.partition_point(|(offset, _)| *offset <= mark);
        self.queue.drain(..passed).map(|(_, waiter)| waiter)
    }

    /// Takes out everybody.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.queue.drain(..).map(|(_, waiter)| waiter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_leave_in_the_order_of_offsets_once_the_mark_reaches_them() {
        let mut waiters = Waiters::default();
        waiters.park(Offset(5), "b");
        waiters.park(Offset(9), "d");
        waiters.park(Offset(3), "a");
        waiters.park(Offset(5), "c");
        assert_eq!(waiters.pass(Offset(2)).count(), 0);
        assert_eq!(waiters.pass(Offset(5)).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(waiters.drain().collect::<Vec<_>>(), ["d"]);
        assert!(waiters.is_empty());
    }
}
