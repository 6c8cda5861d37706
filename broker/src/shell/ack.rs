//! How the owners of logs answer a produce request that waits on its connection.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use thalweg_model::{ErrorCode, Offset, Timestamp};

/// What becomes of one partition's batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendOutcome {
    pub error: ErrorCode,
    /// A sentence for people, when there is more to say than the code does.
    pub message: Option<String>,
    /// Positions in the batch of the records that are at fault.
    pub record_indexes: Vec<i32>,
    /// Of the first record; [`Offset::NONE`] on any error.
    pub base_offset: Offset,
    /// [`Timestamp::NONE`] unless the broker stamped the records.
    pub log_append_time: Timestamp,
    pub log_start_offset: Offset,
}

impl AppendOutcome {
    pub fn failed(error: ErrorCode) -> AppendOutcome {
        AppendOutcome {
            error,
            message: None,
            record_indexes: Vec::new(),
            base_offset: Offset::NONE,
            log_append_time: Timestamp::NONE,
            log_start_offset: Offset::NONE,
        }
    }

    pub fn failed_because(error: ErrorCode, message: String) -> AppendOutcome {
        AppendOutcome { message: Some(message), ..AppendOutcome::failed(error) }
    }
}

/// The outcomes of one request's partitions, as they come in.
#[derive(Debug)]
pub struct Acks {
    left: AtomicUsize,
    outcomes: Mutex<Vec<Option<AppendOutcome>>>,
    waker: AtomicWaker,
}

/// The duty to say what became of one partition's batch. Dropped without a word it reports an unknown error.
#[derive(Debug)]
pub struct Ack {
    acks: Arc<Acks>,
    index: usize,
    answered: bool,
}

impl Acks {
    /// For `count` partitions; returns the duties in order.
    pub fn new(count: usize) -> (Arc<Acks>, impl Iterator<Item = Ack>) {
        let acks = Arc::new(Acks {
            left: AtomicUsize::new(count),
            outcomes: Mutex::new(vec![None; count]),
            waker: AtomicWaker::new(),
        });
        let duties = (0..count).map({
            let acks = Arc::clone(&acks);
            move |index| Ack { acks: Arc::clone(&acks), index, answered: false }
        });
        (acks, duties)
    }

    pub fn is_done(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    pub fn poll_done(&self, context: &Context<'_>) -> Poll<()> {
        if self.is_done() {
            return Poll::Ready(());
        }
        self.waker.register(context.waker());
        // Again: the last outcome may have come in before the waker stood.
        if self.is_done() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Takes the outcomes; what is not there yet counts as `missing`.
    pub fn take(&self, missing: ErrorCode) -> Vec<AppendOutcome> {
        let mut outcomes = self.outcomes.lock().expect("no code panics while it holds this lock");
        let taken = std::mem::take(&mut *outcomes).into_iter();
        taken.map(|outcome| outcome.unwrap_or_else(|| AppendOutcome::failed(missing))).collect()
    }

    fn answer(&self, index: usize, outcome: AppendOutcome) {
        {
            let mut outcomes = self.outcomes.lock().expect("no code panics while it holds this lock");
            // Gone if the request ran out of time.
            if let Some(slot) = outcomes.get_mut(index) {
                *slot = Some(outcome);
            }
        }
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.waker.wake();
        }
    }
}

impl Ack {
    pub fn answer(mut self, outcome: AppendOutcome) {
        self.answered = true;
        self.acks.answer(self.index, outcome);
    }
}

impl Drop for Ack {
    fn drop(&mut self) {
        if !self.answered {
            self.acks.answer(self.index, AppendOutcome::failed(ErrorCode::UnknownServerError));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(acks: &Acks) -> Poll<()> {
        acks.poll_done(&Context::from_waker(std::task::Waker::noop()))
    }

    #[test]
    fn a_request_is_done_when_every_partition_has_answered_in_any_order() {
        let (acks, duties) = Acks::new(2);
        let mut duties: Vec<Ack> = duties.collect();
        assert!(poll(&acks).is_pending());
        duties.pop().unwrap().answer(AppendOutcome::failed(ErrorCode::NotLeaderOrFollower));
        assert!(poll(&acks).is_pending());
        duties.pop().unwrap().answer(AppendOutcome::failed(ErrorCode::CorruptMessage));
        assert!(poll(&acks).is_ready());
        let errors: Vec<ErrorCode> =
            acks.take(ErrorCode::RequestTimedOut).iter().map(|outcome| outcome.error).collect();
        assert_eq!(errors, [ErrorCode::CorruptMessage, ErrorCode::NotLeaderOrFollower]);
    }

    #[test]
    fn a_forgotten_duty_and_one_that_comes_too_late_leave_nobody_waiting() {
        let (acks, duties) = Acks::new(2);
        let mut duties: Vec<Ack> = duties.collect();
        drop(duties.pop());
        let outcomes = acks.take(ErrorCode::RequestTimedOut);
        let errors: Vec<ErrorCode> = outcomes.iter().map(|outcome| outcome.error).collect();
        assert_eq!(errors, [ErrorCode::RequestTimedOut, ErrorCode::UnknownServerError]);
        assert_eq!(outcomes[0].base_offset, Offset::NONE);
        duties.pop().unwrap().answer(AppendOutcome::failed(ErrorCode::None));
        assert!(poll(&acks).is_ready());
    }
}
