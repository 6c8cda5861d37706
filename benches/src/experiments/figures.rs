//! The figures that the experiments share.

use std::time::Duration;

use crate::load::Outcome;
use crate::loops::Moved;
use crate::stats::{Series, cpu_s_per_gb, mb_per_s};

/// Throughput and what it cost, over several runs.
#[derive(Clone, Debug, Default)]
pub struct Throughput {
    pub mb_per_s: Series,
    /// Thousands a second; empty for the bare loops, which have no records.
    pub k_records_per_s: Series,
    /// Thousands for each second of the server's processor time; empty for the bare loops.
    pub k_records_per_cpu_s: Series,
    pub server_cpu_s_per_gb: Series,
    pub client_cpu_s_per_gb: Series,
    /// Of one processor, for each of the client's threads.
    pub client_busy: Series,
}

impl Throughput {
    pub fn add_loop(&mut self, moved: &Moved) {
        self.add(moved.bytes, moved.elapsed, moved.server_cpu, moved.client_cpu, 1);
    }

    pub fn add_load(&mut self, outcome: &Outcome, connection_count: usize) {
        self.k_records_per_s.push(outcome.record_count as f64 / 1e3 / outcome.elapsed.as_secs_f64());
        self.k_records_per_cpu_s.push(outcome.record_count as f64 / 1e3 / outcome.server_cpu.as_secs_f64());
        self.add(outcome.bytes, outcome.elapsed, outcome.server_cpu, outcome.client_cpu, connection_count);
    }

    fn add(&mut self, bytes: u64, elapsed: Duration, server: Duration, client: Duration, client_threads: usize) {
        self.mb_per_s.push(mb_per_s(bytes, elapsed.as_secs_f64()));
        self.server_cpu_s_per_gb.push(cpu_s_per_gb(server.as_secs_f64(), bytes));
        self.client_cpu_s_per_gb.push(cpu_s_per_gb(client.as_secs_f64(), bytes));
        self.client_busy.push(client.as_secs_f64() / elapsed.as_secs_f64() / client_threads as f64);
    }
}
