//! What was measured on: without it a figure means nothing.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::report::{Report, Table};

/// Writes the machine, the versions and the time to the report.
pub fn describe(report: &mut Report, binary: Option<&Path>, dir: &Path) -> Result<()> {
    let mut table = Table::new(&["what", "value"]);
    let mut row = |what: &str, value: String| table.row(vec![what.to_owned(), value]);
    row("date", first_line("date", &["-u", "+%Y-%m-%d %H:%M UTC"]));
    let version = binary.map(|binary| first_line(&binary.to_string_lossy(), &["--version"]));
    row("binary", version.unwrap_or_else(|| "none".to_owned()));
    row("commit", first_line("git", &["describe", "--always", "--dirty"]));
    row("processors", format!("{} x {}", std::thread::available_parallelism()?, proc_value("cpuinfo", "model name")));
    row("memory", proc_value("meminfo", "MemTotal"));
    row("kernel", first_line("uname", &["-sr"]));
    row("file system", first_line("stat", &["-f", "-c", "%T", &dir.to_string_lossy()]));
    row("load average at the start", read("loadavg").trim().to_owned());
    report.table(&table);
    Ok(())
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

fn proc_value(file: &str, key: &str) -> String {
    let text = read(file);
    let line = text.lines().find(|line| line.starts_with(key)).and_then(|line| line.split_once(':'));
    line.map_or_else(|| "unknown".to_owned(), |(_, value)| value.trim().to_owned())
}

fn read(file: &str) -> String {
    fs::read_to_string(Path::new("/proc").join(file)).unwrap_or_default()
}

const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;
