//! Threads that sync logs: blocked most of the time, so there are many, and each log directory has its own.
//!
//! A log has one flush under way at a time; when it ends, the owner starts the next one with everything that was written
//! meanwhile. That is all there is to group commit.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use thalweg_storage::{FlushOutcome, FlushTicket};

use crate::metrics::{Metrics, observe};

/// The flush threads of every log directory.
#[derive(Debug)]
pub struct Flushers {
    pools: HashMap<PathBuf, Arc<Pool>>,
}

/// Where the outcome of a flush goes.
pub type Done = Box<dyn FnOnce(FlushOutcome) + Send>;

#[derive(Debug)]
struct Pool {
    dir: PathBuf,
    metrics: Arc<Metrics>,
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<(FlushTicket, Done)>,
    idle: usize,
    started: usize,
    stopping: bool,
    /// When each flush under way began, by the number of its thread.
    running: HashMap<usize, Instant>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("jobs", &self.jobs.len()).field("started", &self.started).finish()
    }
}

impl Flushers {
    pub fn new(dirs: impl IntoIterator<Item = PathBuf>, metrics: &Arc<Metrics>) -> Flushers {
        let pool = |dir: PathBuf| {
            let (state, work) = (Mutex::default(), Condvar::new());
            (dir.clone(), Arc::new(Pool { dir, metrics: Arc::clone(metrics), state, work }))
        };
        Flushers { pools: dirs.into_iter().map(pool).collect() }
    }

    /// Syncs on a thread of `dir`; `done` is called there.
    pub fn flush(&self, dir: &Path, ticket: FlushTicket, done: Done) {
        match self.pools.get(dir) {
            Some(pool) => pool.push(ticket, done),
            // Not a directory of this broker: an error of the program, but the log must not wait for ever.
            None => done(ticket.sync()),
        }
    }

    /// How long the oldest flush under way has been running, in seconds; 0 if there is none.
    pub fn oldest_seconds(&self) -> f64 {
        let ages = self.pools.values().filter_map(|pool| {
            let state = pool.state.lock().expect("no code panics while it holds this lock");
            state.running.values().map(|started| started.elapsed().as_secs_f64()).reduce(f64::max)
        });
        ages.fold(0.0, f64::max)
    }
}

impl Drop for Flushers {
    fn drop(&mut self) {
        for pool in self.pools.values() {
            pool.state.lock().expect("no code panics while it holds this lock").stopping = true;
            pool.work.notify_all();
        }
    }
}

impl Pool {
    fn push(self: &Arc<Self>, ticket: FlushTicket, done: Done) {
        let mut state = self.state.lock().expect("no code panics while it holds this lock");
        state.jobs.push_back((ticket, done));
        if state.idle >= state.jobs.len() {
            self.work.notify_one();
            return;
        }
        if state.started < THREADS_MAX {
            let number = state.started;
            let pool = Arc::clone(self);
            let spawned = std::thread::Builder::new()
                .name(format!("flush-{number}"))
                .stack_size(STACK_BYTES)
                .spawn(move || pool.run(number));
            match spawned {
                Ok(_) => state.started += 1,
                Err(error) if state.started > 0 => {
                    tracing::warn!(%error, dir = %self.dir.display(), "no more flush threads can be started");
                }
                Err(error) => {
                    tracing::error!(%error, dir = %self.dir.display(), "no flush thread can be started, flushing inline");
                    let jobs = std::mem::take(&mut state.jobs);
                    drop(state);
                    jobs.into_iter().for_each(|(ticket, done)| done(ticket.sync()));
                }
            }
        }
    }

    fn run(&self, number: usize) {
        let mut state = self.state.lock().expect("no code panics while it holds this lock");
        loop {
            if let Some((ticket, done)) = state.jobs.pop_front() {
                let started = Instant::now();
                state.running.insert(number, started);
                drop(state);
                done(ticket.sync());
                observe(&self.metrics.flush_seconds, started.elapsed());
                self.metrics.flushes.inc();
                state = self.state.lock().expect("no code panics while it holds this lock");
                state.running.remove(&number);
            } else if state.stopping {
                return;
            } else {
                state.idle += 1;
                state = self.work.wait(state).expect("no code panics while it holds this lock");
                state.idle -= 1;
            }
        }
    }
}

/// A disk serves many syncs at a time faster than one after another (REPLICATION G1).
const THREADS_MAX: usize = 16;
const STACK_BYTES: usize = 128 << 10;
