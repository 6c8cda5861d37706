//! Many small calls as few larger ones, without a timer: what arrives while a call is under way makes up the next.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::coordinators::CoordinatorError;

/// Collects items of any number of tasks. A lone item leaves at once; no item waits for more than the call before it.
///
/// Items leave in the order of arrival. An item whose submitter went away is sent all the same: it was received.
/// Dropping the batcher cancels the call under way and fails what waits.
pub struct Batcher<T, R> {
    shared: Arc<Shared<T, R>>,
}

/// The results of one call, as many and in the same order as its items.
pub type BatchCall<R> = Pin<Box<dyn Future<Output = Result<Vec<R>, CoordinatorError>> + Send>>;

struct Shared<T, R> {
    /// The most items of a call.
    items_max: usize,
    /// The most bytes of a call, unless its first item alone is larger.
    bytes_max: usize,
    size_bytes: fn(&T) -> usize,
    send: Box<dyn Fn(Vec<T>) -> BatchCall<R> + Send + Sync>,
    state: Mutex<State<T, R>>,
}

struct State<T, R> {
    waiting: VecDeque<Waiting<T, R>>,
    /// The task that makes the calls. It ends when nothing waits.
    driver: Option<AbortHandle>,
}

struct Waiting<T, R> {
    item: T,
    answer: oneshot::Sender<Result<R, CoordinatorError>>,
}

impl<T: Send + 'static, R: Send + 'static> Batcher<T, R> {
    /// `size_bytes` gives about the encoded size of an item; `send` makes one call.
    pub fn new(
        items_max: usize,
        bytes_max: usize,
        size_bytes: fn(&T) -> usize,
        send: impl Fn(Vec<T>) -> BatchCall<R> + Send + Sync + 'static,
    ) -> Batcher<T, R> {
        let state = Mutex::new(State { waiting: VecDeque::new(), driver: None });
        Batcher { shared: Arc::new(Shared { items_max, bytes_max, size_bytes, send: Box::new(send), state }) }
    }

    /// Sends one item with the next call; must run within a tokio runtime.
    ///
    /// # Errors
    /// That of the call, the same for every item of it.
    pub async fn submit(&self, item: T) -> Result<R, CoordinatorError> {
        let (answer, answered) = oneshot::channel();
        {
            let mut state = self.shared.state();
            state.waiting.push_back(Waiting { item, answer });
            if state.driver.is_none() {
                let drive = drive(Arc::clone(&self.shared));
                state.driver = Some(tokio::spawn(drive).abort_handle());
            }
        }
        let lost = || CoordinatorError::Unknown { reason: "the broker is stopping".to_owned() };
        answered.await.unwrap_or_else(|_| Err(lost()))
    }
}

impl<T, R> Drop for Batcher<T, R> {
    fn drop(&mut self) {
        if let Some(driver) = self.shared.state().driver.take() {
            driver.abort();
        }
    }
}

impl<T, R> Shared<T, R> {
    fn state(&self) -> MutexGuard<'_, State<T, R>> {
        self.state.lock().expect("no code panics while it holds this lock")
    }

    /// What the next call carries; empty only if nothing waits, and then the driver counts as gone.
    fn next_batch(&self) -> Vec<Waiting<T, R>> {
        let mut state = self.state();
        let mut batch = Vec::new();
        let mut bytes = 0;
        while let Some(next) = state.waiting.front()
            && batch.len() < self.items_max
        {
            bytes += (self.size_bytes)(&next.item);
            if !batch.is_empty() && bytes > self.bytes_max {
                break;
            }
            batch.extend(state.waiting.pop_front());
        }
        if batch.is_empty() {
            state.driver = None;
        }
        batch
    }
}

async fn drive<T, R>(shared: Arc<Shared<T, R>>) {
    let mut abandoned = FailWaiting { shared, armed: true };
    loop {
        let batch = abandoned.shared.next_batch();
        if batch.is_empty() {
            abandoned.armed = false;
            return;
        }
        let (items, answers): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|waiting| (waiting.item, waiting.answer)).unzip();
        let results = match (abandoned.shared.send)(items).await {
            Ok(results) if results.len() != answers.len() => Err(CoordinatorError::Refused {
                reason: format!("{} answers to {} items", results.len(), answers.len()),
            }),
            results => results,
        };
        // Whoever does not wait any more does not mind.
        match results {
            Ok(results) => answers.into_iter().zip(results).for_each(|(answer, result)| drop(answer.send(Ok(result)))),
            Err(error) => answers.into_iter().for_each(|answer| drop(answer.send(Err(error.clone())))),
        }
    }
}

/// Should a call panic or be cancelled, nobody waits for ever and the next item starts a new driver.
struct FailWaiting<T, R> {
    shared: Arc<Shared<T, R>>,
    armed: bool,
}

impl<T, R> Drop for FailWaiting<T, R> {
    fn drop(&mut self) {
        if self.armed {
            let mut state = self.shared.state();
            state.driver = None;
            let waiting = std::mem::take(&mut state.waiting);
            drop(state);
            // Dropping an answer's sender tells its submitter.
            drop(waiting);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::{Semaphore, mpsc};

    use super::*;

    /// A batcher whose calls are told to the test and wait for its permits.
    fn gated(
        items_max: usize,
        bytes_max: usize,
    ) -> (Batcher<usize, usize>, mpsc::UnboundedReceiver<Vec<usize>>, Arc<Semaphore>) {
        let (calls, seen) = mpsc::unbounded_channel();
        let gate = Arc::new(Semaphore::new(0));
        let permits = Arc::clone(&gate);
        let batcher = Batcher::new(
            items_max,
            bytes_max,
            |item| *item,
            move |items: Vec<usize>| {
                let permits = Arc::clone(&permits);
                calls.send(items.clone()).unwrap();
                Box::pin(async move {
                    permits.acquire().await.unwrap().forget();
                    match items.contains(&BAD) {
                        true => Err(CoordinatorError::Unavailable { reason: "bad".to_owned() }),
                        false => Ok(items.iter().map(|item| item * 10).collect()),
                    }
                })
            },
        );
        (batcher, seen, gate)
    }

    const BAD: usize = 99;

    /// Goal: no timer and no lone calls under load. Method: submit one, hold its call, submit three, let go.
    #[tokio::test]
    async fn what_arrives_during_a_call_makes_up_the_next() {
        let (batcher, mut seen, gate) = gated(10, 1_000);
        let first = batcher.submit(1);
        tokio::pin!(first);
        let poll = futures_util::poll!(first.as_mut());
        assert!(poll.is_pending());
        assert_eq!(seen.recv().await, Some(vec![1]), "a lone item leaves at once");
        let rest = futures_util::future::join3(batcher.submit(2), batcher.submit(3), batcher.submit(4));
        tokio::pin!(rest);
        assert!(futures_util::poll!(rest.as_mut()).is_pending());
        gate.add_permits(2);
        assert_eq!(first.await.unwrap(), 10);
        let (two, three, four) = rest.await;
        assert_eq!((two.unwrap(), three.unwrap(), four.unwrap()), (20, 30, 40));
        assert_eq!(seen.recv().await, Some(vec![2, 3, 4]));
        gate.add_permits(1);
        assert_eq!(batcher.submit(5).await.unwrap(), 50, "the next item after a pause starts over");
    }

    #[tokio::test]
    async fn a_call_holds_no_more_items_and_bytes_than_allowed_but_always_one() {
        let (batcher, mut seen, gate) = gated(2, 50);
        gate.add_permits(100);
        let sizes = [70, 1, 2, 3, 30, 30];
        let results = futures_util::future::join_all(sizes.map(|size| batcher.submit(size))).await;
        assert!(results.into_iter().zip(sizes).all(|(result, size)| result.unwrap() == size * 10));
        let mut calls = Vec::new();
        while let Ok(call) = seen.try_recv() {
            calls.push(call);
        }
        assert_eq!(calls, [vec![70], vec![1, 2], vec![3, 30], vec![30]]);
    }

    #[tokio::test]
    async fn a_failed_call_fails_its_own_items_only() {
        let (batcher, _seen, gate) = gated(2, 1_000);
        gate.add_permits(100);
        let results = futures_util::future::join_all([1, BAD, 3].map(|item| batcher.submit(item))).await;
        let failed: Vec<bool> = results.iter().map(Result::is_err).collect();
        assert_eq!(failed, [true, true, false]);
    }

    #[tokio::test]
    async fn an_item_is_sent_although_its_submitter_left() {
        let (batcher, mut seen, gate) = gated(10, 1_000);
        {
            let leaving = futures_util::future::join(batcher.submit(1), batcher.submit(2));
            tokio::pin!(leaving);
            assert!(futures_util::poll!(leaving.as_mut()).is_pending());
        }
        gate.add_permits(1);
        assert_eq!(seen.recv().await, Some(vec![1, 2]));
    }

    #[tokio::test]
    async fn a_call_that_panics_or_is_dropped_leaves_nobody_waiting() {
        let batcher: Batcher<usize, usize> = Batcher::new(
            10,
            10,
            |_| 1,
            |items| Box::pin(async move { if items.contains(&BAD) { panic!("planted") } else { Ok(items) } }),
        );
        assert!(batcher.submit(BAD).await.is_err());
        assert_eq!(batcher.submit(7).await.unwrap(), 7, "the next item starts a new driver");
    }
}
