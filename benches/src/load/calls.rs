//! Small requests of one kind, again and again, over several connections.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use thalweg_wire::{Message, Request};

use super::connection::Frame;
use super::{Connection, Target};

/// How often and for how long.
#[derive(Clone, Copy, Debug)]
pub struct CallLoad {
    /// Requests of one connection that wait for their answer.
    pub in_flight: usize,
    pub duration: Duration,
    /// Of each connection; what a call leaves behind must not grow without bound.
    pub count_max: u64,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Called {
    pub call_count: u64,
    pub elapsed: Duration,
    pub server_cpu: Duration,
    pub latencies_us: Vec<f64>,
}

/// The caller of each connection: where it goes, its next request and whether an answer is good.
pub struct Caller<R: Request> {
    pub address: SocketAddr,
    pub next: Box<dyn FnMut(u64) -> R + Send>,
    pub check: fn(&R::Response) -> Result<()>,
}

/// Runs the load over a connection for each caller.
pub fn call<R: Request>(target: &Target, version: i16, callers: Vec<Caller<R>>, load: &CallLoad) -> Result<Called> {
    let barrier = Barrier::new(callers.len() + 1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = callers
            .into_iter()
            .map(|caller| {
                let barrier = &barrier;
                scope.spawn(move || {
                    let connection = Connection::open(caller.address);
                    barrier.wait();
                    run(connection?, version, caller, load)
                })
            })
            .collect();
        let cpu = target.processes.cpu();
        let began = Instant::now();
        barrier.wait();
        let latencies: Vec<Result<Vec<f64>>> =
            threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a caller panicked"))?).collect();
        let elapsed = began.elapsed();
        let server_cpu = target.processes.cpu()?.since(cpu?);
        let latencies_us = latencies.into_iter().collect::<Result<Vec<_>>>()?.concat();
        Ok(Called { call_count: latencies_us.len() as u64, elapsed, server_cpu, latencies_us })
    })
}

fn run<R: Request>(
    mut connection: Connection,
    version: i16,
    mut caller: Caller<R>,
    load: &CallLoad,
) -> Result<Vec<f64>> {
    let began = Instant::now();
    let mut sent: VecDeque<(i32, Instant)> = VecDeque::new();
    let mut latencies_us = Vec::new();
    let mut count = 0;
    loop {
        let over = count > 0 && (count >= load.count_max || began.elapsed() >= load.duration);
        if !over && sent.len() < load.in_flight {
            let mut frame = Frame::encode(&(caller.next)(count), version)?;
            count += 1;
            sent.push_back((connection.send(&mut frame)?, Instant::now()));
            continue;
        }
        let Some((correlation_id, sent_at)) = sent.pop_front() else { return Ok(latencies_us) };
        let answer = connection.answer::<R>(correlation_id, version)?;
        (caller.check)(&R::Response::decode_body(&answer, version)?)?;
        latencies_us.push(sent_at.elapsed().as_secs_f64() * 1e6);
    }
}
