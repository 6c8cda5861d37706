//! Requests of one connection that were begun and wait for their answers.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use thalweg_wire::ApiKey;
use tokio::time::Instant;

use super::budget::BudgetShare;
use crate::api::produce::PendingProduce;
use crate::api::{CloseReason, Reply};
use crate::services::Services;

/// In the order of arrival, which is that of the answers. All are of one kind at a time: a commit says what became of records,
/// so neither overtakes the other.
#[derive(Default)]
pub struct Pending {
    requests: VecDeque<Request>,
}

struct Request {
    work: Work,
    started: Instant,
    /// The memory of its frame counts until it is answered.
    _share: BudgetShare,
}

enum Work {
    /// Its records have their place in the order; the logs have not said yet what became of them.
    Produce(PendingProduce),
    /// Has its place among the calls to the coordinators, which keep their order.
    Commit(Commit),
}

struct Commit {
    answer: Answer,
    reply: Option<Result<Reply, CloseReason>>,
}

pub type Answer = Pin<Box<dyn Future<Output = Result<Reply, CloseReason>> + Send>>;

impl Pending {
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether one more may be begun before the first is answered.
    pub fn has_room(&self) -> bool {
        self.requests.len() < REQUESTS_MAX
    }

    /// Whether a request of this kind need not run alone and need not wait until what is under way is answered.
    pub fn takes(&self, key: Option<ApiKey>) -> bool {
        match self.requests.front().map(|request| &request.work) {
            None => matches!(key, Some(ApiKey::Produce | ApiKey::OffsetCommit)),
            Some(Work::Produce(_)) => key == Some(ApiKey::Produce),
            Some(Work::Commit(_)) => key == Some(ApiKey::OffsetCommit),
        }
    }

    pub fn push_produce(&mut self, produce: PendingProduce, started: Instant, share: BudgetShare) {
        self.requests.push_back(Request { work: Work::Produce(produce), started, _share: share });
    }

    /// Begins to work on the answer: a commit has its place in the order once this returns.
    pub fn push_commit(&mut self, answer: Answer, started: Instant, share: BudgetShare) {
        let mut commit = Commit { answer, reply: None };
        commit.try_finish();
        self.requests.push_back(Request { work: Work::Commit(commit), started, _share: share });
    }

    /// Resolves when the first request is done; never if there is none.
    pub async fn front_done(&mut self) {
        poll_fn(|context| match self.requests.front_mut() {
            Some(front) => front.work.poll_done(context),
            None => Poll::Pending,
        })
        .await;
    }

    /// The first request's own time limit, if it has one.
    pub fn deadline(&self) -> Option<Instant> {
        match &self.requests.front()?.work {
            Work::Produce(produce) => Some(produce.deadline()),
            Work::Commit(_) => None,
        }
    }

    /// The first request's time is up.
    pub fn expire(&mut self) {
        if let Some(Request { work: Work::Produce(produce), .. }) = self.requests.front_mut() {
            produce.expire();
        }
    }

    /// The answers of all requests at the front that are done, in their order.
    ///
    /// # Errors
    /// The connection must end; see [`CloseReason`].
    pub fn take_done(&mut self, services: &Services) -> Result<Bytes, CloseReason> {
        let mut out = BytesMut::new();
        while let Some(front) = self.requests.front_mut()
            && front.work.is_done()
        {
            let Some(Request { work, started, .. }) = self.requests.pop_front() else { break };
            match work {
                Work::Produce(produce) => {
                    produce.finish(services, &mut out)?;
                    crate::metrics::observe(&services.metrics.produce_seconds, started.elapsed());
                }
                Work::Commit(commit) => commit.finish(&mut out)?,
            }
        }
        Ok(out.freeze())
    }
}

impl Work {
    fn is_done(&mut self) -> bool {
        match self {
            Work::Produce(produce) => produce.is_done(),
            Work::Commit(commit) => commit.try_finish(),
        }
    }

    fn poll_done(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match self {
            Work::Produce(produce) => produce.poll_done(context),
            Work::Commit(commit) => commit.poll_done(context),
        }
    }
}

impl Commit {
    /// Goes on as far as that needs no waiting.
    fn try_finish(&mut self) -> bool {
        if self.reply.is_none() {
            self.reply = self.answer.as_mut().now_or_never();
        }
        self.reply.is_some()
    }

    fn poll_done(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.reply.is_none() {
            let Poll::Ready(reply) = self.answer.as_mut().poll(context) else { return Poll::Pending };
            self.reply = Some(reply);
        }
        Poll::Ready(())
    }

    fn finish(self, out: &mut BytesMut) -> Result<(), CloseReason> {
        if let Some(Reply::Frame(frame)) = self.reply.transpose()? {
            out.extend_from_slice(&frame);
        }
        Ok(())
    }
}

/// Under way at a time; clients keep 5 produce requests.
const REQUESTS_MAX: usize = 64;
