//! Puts commands that arrive together into one Raft entry.
//!
//! One entry is under way at a time; what arrives meanwhile goes into the next. So batches grow by themselves when the disk
//! is the bottleneck, and a single command waits for nobody.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use openraft::ReadPolicy;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::{ClientWriteError, LinearizableReadError, RaftError};
use prost::Message;
use rand::RngExt;
use thalweg_proto::v1::{Command, CommandBatch};
use thalweg_world::Clock;
use tokio::sync::{mpsc, oneshot};

use super::state_machine::StateMachine;
use super::types::{Answers, Commands, TypeConfig};
use crate::error::ProposeError;
use crate::metrics::CoordinatorMetrics;
use crate::registry::Outcome;

pub type Raft = openraft::Raft<TypeConfig, StateMachine>;

/// Whether Raft may be asked: when its disk has failed it has ended, and it panics in who asks it then.
pub fn may_be_asked(raft: &Raft) -> bool {
    raft.metrics().borrow_watched().running_state.is_ok()
}

/// Returns once this node has applied all that was committed before the call, and led then (REPLICATION R6).
///
/// # Errors
/// It does not lead.
pub async fn confirm_lead(raft: &Raft) -> Result<(), ProposeError> {
    if !may_be_asked(raft) {
        return Err(ProposeError::NotLeader { leader: None });
    }
    match raft.ensure_linearizable(ReadPolicy::ReadIndex).await {
        Ok(_) => Ok(()),
        Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(forward))) => {
            Err(ProposeError::not_leader(forward))
        }
        Err(_) => Err(ProposeError::NotLeader { leader: None }),
    }
}

/// Cheap to clone; clones feed one queue.
#[derive(Clone)]
pub struct Batcher {
    queue: mpsc::Sender<Waiting>,
}

/// A command's end.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled {
    pub outcome: Outcome,
    /// Brokers that have the feed up to here know of it.
    pub feed_index: u64,
}

struct Waiting {
    command: Command,
    done: oneshot::Sender<Result<Settled, ProposeError>>,
}

impl Batcher {
    /// The batcher and the task that it needs; the task ends when every batcher is gone.
    pub fn new(
        raft: Raft,
        clock: Clock,
        default_min_isr: i32,
        metrics: Arc<CoordinatorMetrics>,
    ) -> (Batcher, impl Future<Output = ()> + Send) {
        let (queue, waiting) = mpsc::channel(QUEUE_MAX);
        (Batcher { queue }, run(raft, clock, default_min_isr, metrics, waiting))
    }

    /// Replicates a command; answers once it is applied here.
    ///
    /// # Errors
    /// See [`ProposeError`].
    pub async fn propose(&self, command: Command) -> Result<Settled, ProposeError> {
        let (done, settled) = oneshot::channel();
        self.queue.send(Waiting { command, done }).await.map_err(|_| ProposeError::Stopped)?;
        settled.await.map_err(|_| ProposeError::Stopped)?
    }
}

async fn run(
    raft: Raft,
    clock: Clock,
    default_min_isr: i32,
    metrics: Arc<CoordinatorMetrics>,
    mut queue: mpsc::Receiver<Waiting>,
) {
    let mut left_over = None;
    loop {
        let first = match left_over.take() {
            Some(waiting) => waiting,
            None => match queue.recv().await {
                Some(waiting) => waiting,
                None => return,
            },
        };
        let mut bytes = first.command.encoded_len();
        let mut batch = vec![first];
        while batch.len() < COMMANDS_MAX {
            let Ok(next) = queue.try_recv() else { break };
            bytes += next.command.encoded_len();
            if bytes > BYTES_MAX {
                left_over = Some(next);
                break;
            }
            batch.push(next);
        }
        let (commands, waiters): (Vec<_>, Vec<_>) = batch.into_iter().map(|one| (one.command, one.done)).unzip();
        metrics.commands.fetch_add(commands.len() as u64, Ordering::Relaxed);
        metrics.entries.fetch_add(1, Ordering::Relaxed);
        let stamped = stamp(commands, &clock, default_min_isr);
        let start = Instant::now();
        let result = write(&raft, stamped).await;
        metrics.commit_latency.record(start.elapsed());
        answer(waiters, result);
    }
}

/// The only places where a command meets a clock and chance (REPLICATION R3).
fn stamp(commands: Vec<Command>, clock: &Clock, default_min_isr: i32) -> CommandBatch {
    let mut rng = rand::rng();
    CommandBatch { time_ms: clock.wall().0, seed_high: rng.random(), seed_low: rng.random(), default_min_isr, commands }
}

async fn write(raft: &Raft, batch: CommandBatch) -> Result<Answers, ProposeError> {
    if !may_be_asked(raft) {
        return Err(ProposeError::NotLeader { leader: None });
    }
    // A leader that is cut off keeps what it has taken for as long as it is cut off; whoever waits must go elsewhere.
    match tokio::time::timeout(WRITE_TIMEOUT, raft.client_write(Commands(batch))).await {
        Ok(Ok(written)) => Ok(written.data),
        Ok(Err(RaftError::APIError(ClientWriteError::ForwardToLeader(forward)))) => {
            Err(ProposeError::not_leader(forward))
        }
        Ok(Err(RaftError::Fatal(_))) => Err(ProposeError::Stopped),
        Ok(Err(RaftError::APIError(_))) | Err(_) => Err(ProposeError::Unknown),
    }
}

fn answer(waiters: Vec<oneshot::Sender<Result<Settled, ProposeError>>>, result: Result<Answers, ProposeError>) {
    match result {
        Ok(answers) => {
            let feed_index = answers.feed_index;
            for (done, outcome) in waiters.into_iter().zip(answers.outcomes) {
                // Whoever asked may have gone away.
                drop(done.send(Ok(Settled { outcome, feed_index })));
            }
        }
        Err(cause) => {
            for done in waiters {
                drop(done.send(Err(cause.clone())));
            }
        }
    }
}

/// Commands that may wait. Beyond it, callers wait to get in.
const QUEUE_MAX: usize = 8_192;
const COMMANDS_MAX: usize = 4_096;
/// Of one entry.
const BYTES_MAX: usize = 1 << 20;
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
