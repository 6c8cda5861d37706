//! `thalweg completion`: what a shell needs to complete the words of a command line.

use std::io::Write;

use clap::Args;
use clap_complete::Shell;

use super::failure::Failure;

/// For bash: `source <(thalweg completion bash)`; for zsh and fish see their folders for completions.
#[derive(Debug, Args)]
pub struct Completion {
    #[arg(value_enum)]
    shell: Shell,
}

impl Completion {
    pub fn run(self, mut command: clap::Command) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "thalweg", &mut script);
        Ok(std::io::stdout().lock().write_all(&script)?)
    }
}
