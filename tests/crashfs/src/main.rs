//! `thalweg-crashfs MOUNTPOINT`: mounts an empty disk there and cuts its power on command.
//!
//! Commands are lines on standard input, each answered by a line: `drop` loses everything unsynced, `tear SEED` keeps any
//! part of it. The end of the input unmounts.

use std::io::{BufRead, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;
use thalweg_crashfs::Cut;
use thalweg_crashfs::mount::Mounted;

/// A file system in memory that forgets on command what was not synced.
#[derive(Parser)]
struct Options {
    mountpoint: PathBuf,
    /// How large the disk says that it is
    #[arg(long, default_value_t = 8 << 30)]
    bytes: u64,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let mounted = Mounted::new(&options.mountpoint, options.bytes)
        .with_context(|| format!("cannot mount at {}: it takes /dev/fuse and root", options.mountpoint.display()))?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "mounted")?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let answer = match command(&line) {
            Some(cut) => {
                let lost = mounted.cut(cut);
                format!("lost {} names {} files {} pages", lost.names, lost.files, lost.pages)
            }
            None => format!("no command: {line:?}; there are: drop, tear SEED"),
        };
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    mounted.unmount().context("cannot unmount")
}

fn command(line: &str) -> Option<Cut> {
    match line.split_once(' ') {
        None if line == "drop" => Some(Cut::Drop),
        Some(("tear", seed)) => Some(Cut::Tear(seed.parse().ok()?)),
        _ => None,
    }
}
