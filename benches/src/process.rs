//! What the operating system says about a process: CPU time and memory.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};

/// One process on this machine, ours or not.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    pub pid: u32,
}

impl Process {
    /// User and system time of all its threads, living and ended; resolution is one clock tick (10 ms).
    pub fn cpu(self) -> Result<Cpu> {
        let text = self.read("stat")?;
        // The command name, in parentheses, may itself hold spaces and parentheses.
        let after_name = text.rsplit_once(')').map(|(_, rest)| rest).context("no command name in /proc/PID/stat")?;
        let field = |index: usize| -> Result<Duration> {
            let ticks = after_name.split_ascii_whitespace().nth(index).context("short /proc/PID/stat")?;
            let per_second = rustix::param::clock_ticks_per_second().max(1);
            Ok(Duration::from_secs_f64(ticks.parse::<f64>()? / per_second as f64))
        };
        Ok(Cpu { user: field(11)?, system: field(12)? })
    }

    pub fn memory(self) -> Result<Memory> {
        let text = self.read("status")?;
        let bytes = |key: &str| -> Result<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(key)).with_context(|| format!("no {key}"))?;
            let kib = line.split_ascii_whitespace().nth(1).with_context(|| format!("no value of {key}"))?;
            Ok(kib.parse::<u64>()? * 1024)
        };
        Ok(Memory { resident: bytes("VmRSS")?, anonymous: bytes("RssAnon")?, peak: bytes("VmHWM")? })
    }

    fn read(self, file: &str) -> Result<String> {
        let path = format!("/proc/{}/{file}", self.pid);
        fs::read_to_string(&path).with_context(|| format!("cannot read {path}: has the process ended?"))
    }
}

/// The processes of one system.
#[derive(Clone, Debug)]
pub struct Processes(pub Vec<Process>);

impl Processes {
    /// Of all of them.
    pub fn cpu(&self) -> Result<Cpu> {
        self.0.iter().try_fold(Cpu::default(), |sum, process| {
            let cpu = process.cpu()?;
            Ok(Cpu { user: sum.user + cpu.user, system: sum.system + cpu.system })
        })
    }

    /// Of all of them.
    pub fn memory(&self) -> Result<Memory> {
        self.0.iter().try_fold(Memory::default(), |sum, process| {
            let memory = process.memory()?;
            Ok(Memory {
                resident: sum.resident + memory.resident,
                anonymous: sum.anonymous + memory.anonymous,
                peak: sum.peak + memory.peak,
            })
        })
    }
}

/// CPU time used since a process began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu {
    pub user: Duration,
    pub system: Duration,
}

impl Cpu {
    pub fn since(self, earlier: Cpu) -> Duration {
        self.user.saturating_sub(earlier.user) + self.system.saturating_sub(earlier.system)
    }
}

/// In bytes. `anonymous` leaves out the pages of the program file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    pub resident: u64,
    pub anonymous: u64,
    pub peak: u64,
}

/// CPU time of the calling thread.
pub fn thread_cpu() -> Duration {
    cpu_clock(ClockId::ThreadCPUTime)
}

fn cpu_clock(id: ClockId) -> Duration {
    let time = clock_gettime(id);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
