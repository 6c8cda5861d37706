//! What was measured on: without it a figure means nothing.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use rustix::process::Resource;

use crate::report::{Report, Table};

/// The machine, in a table of its own section.
pub fn describe(report: &mut Report, binary: Option<&Path>, dir: &Path) -> Result<()> {
    report.section("machine", "The machine");
    let mut table = Table::new(&["what", "value"]);
    let mut row = |what: &str, value: String| table.row(vec![what.to_owned(), value]);
    let version = binary.map(|binary| first_line(&binary.to_string_lossy(), &["--version"]));
    row("binary", version.unwrap_or_else(|| "none".to_owned()));
    row("processors", format!("{} x {}", std::thread::available_parallelism()?, proc_value("cpuinfo", "model name")));
    row("memory", proc_value("meminfo", "MemTotal"));
    row("kernel", first_line("uname", &["-sr"]));
    row("file system", first_line("stat", &["-f", "-c", "%T", &dir.to_string_lossy()]));
    row("Java", first_line_of_errors("java", &["-version"]));
    report.table(&table);
    Ok(())
}

/// When and from what a run was made, in one line; the load average is that of its start.
pub struct Occasion {
    text: String,
}

impl Occasion {
    pub fn now() -> Occasion {
        // Where a machine keeps what it builds is of no interest elsewhere.
        let named = |argument: String| match argument.find("/target/") {
            Some(at) if argument.starts_with('/') => argument[at + 1..].to_owned(),
            _ => argument,
        };
        let arguments: Vec<String> = std::env::args().skip(1).map(named).collect();
        let nice = read("self/autogroup").split_once("nice ").map(|(_, nice)| nice.trim().to_owned());
        let nice = match nice.as_deref() {
            None | Some("0") => String::new(),
            Some(nice) => format!(", everything that is measured at autogroup nice {nice}"),
        };
        let date = first_line("date", &["-u", "+%Y-%m-%d %H:%M UTC"]);
        let commit = first_line("git", &["describe", "--always", "--dirty"]);
        let load = load_average();
        let command = arguments.join(" ");
        Occasion {
            text: format!(
                "{date}, commit {commit}, `thalweg-bench {command}`{nice}; load average {load:.1} at its start"
            ),
        }
    }

    /// With the load average at the end, and the systems' versions.
    pub fn describe(&self, versions: &str) -> String {
        format!("{}, {:.1} at its end. {versions}", self.text, load_average())
    }
}

/// Of all disks since the machine's start: what the kernel asked of them as a cache flush.
///
/// Kernel: Documentation/admin-guide/iostats.rst, field 16.
pub fn disk_flushes() -> u64 {
    let of_disk = |line: &str| line.split_ascii_whitespace().nth(18)?.parse::<u64>().ok();
    read("diskstats").lines().filter_map(of_disk).sum()
}

/// As many open files as we may have; children inherit it.
pub fn raise_file_limit() -> Result<()> {
    let mut limit = rustix::process::getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(rustix::process::setrlimit(Resource::Nofile, limit)?)
}

/// The load that others put on the machine; figures taken under it are too low.
pub fn load_average() -> f64 {
    read("loadavg").split_ascii_whitespace().next().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
}

/// Whether files under `dir` never reach a disk, so that syncing them would measure nothing.
pub fn is_memory_only(dir: &Path) -> Result<bool> {
    Ok(rustix::fs::statfs(dir)?.f_type == TMPFS_MAGIC)
}

fn first_line(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let text = output.ok().filter(|output| output.status.success()).map(|output| output.stdout).unwrap_or_default();
    match String::from_utf8_lossy(&text).lines().next() {
        Some(line) if !line.is_empty() => line.to_owned(),
        _ => "unknown".to_owned(),
    }
}

/// Java tells its version there.
fn first_line_of_errors(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let text = output.map(|output| output.stderr).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().next().unwrap_or("none").to_owned()
}

fn proc_value(file: &str, key: &str) -> String {
    let text = read(file);
    let line = text.lines().find(|line| line.starts_with(key)).and_then(|line| line.split_once(':'));
    line.map_or_else(|| "unknown".to_owned(), |(_, value)| value.trim().to_owned())
}

fn read(file: &str) -> String {
    fs::read_to_string(Path::new("/proc").join(file)).unwrap_or_default()
}

const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;
