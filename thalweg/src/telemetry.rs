//! What the process says: logs to standard error, answers to standard output.

use std::io::{self, IsTerminal, Write};

use anyhow::{Context, Result};
use tracing_subscriber::EnvFilter;

use crate::config::LogFormat;

/// Sends logs to standard error. `level` is a level or a filter such as `info,thalweg_broker=debug`.
///
/// # Errors
/// A filter that cannot be read; the configuration's fault.
pub fn start(format: LogFormat, level: &str) -> Result<()> {
    let filter = EnvFilter::try_new(level).with_context(|| format!("log.level '{level}' is no level and no filter"))?;
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    match format {
        LogFormat::Text => logs.with_ansi(io::stderr().is_terminal()).init(),
        LogFormat::Json => logs.json().flatten_event(true).init(),
    }
    Ok(())
}

/// One message to standard output, flushed, so that whoever started the process sees it at once.
pub fn say(text: &str) {
    let mut out = io::stdout().lock();
    // A reader that has gone away is no reason to stop serving.
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// A line of another process's log.
pub fn pass_on(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// The reason why the process ends, as one line with its causes.
pub fn complain(error: &anyhow::Error) {
    let _ = writeln!(io::stderr(), "thalweg: {}", one_line(error));
}

/// Many errors quote their cause themselves; it is not said twice.
fn one_line(error: &anyhow::Error) -> String {
    let mut line = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let cause = io::Error::other("the disk is full");
        let error = anyhow::Error::new(cause).context("writing a: the disk is full").context("cannot start");
        assert_eq!(one_line(&error), "cannot start: writing a: the disk is full");
    }
}
