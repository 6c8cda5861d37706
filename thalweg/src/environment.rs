//! Variables that are set to nothing count as not set: orchestrators pass on what nobody has filled in.

use clap::builder::{OsStr, Resettable};
use clap::{Arg, Command};

/// The grammar without the variables that are set to nothing, also those of its verbs.
pub fn without_empty(command: Command) -> Command {
    forget(command, &|name| std::env::var_os(name).is_some_and(|value| value.to_string_lossy().trim().is_empty()))
}

fn forget(command: Command, is_empty: &impl Fn(&std::ffi::OsStr) -> bool) -> Command {
    let kept = |arg: Arg| match arg.get_env() {
        Some(name) if is_empty(name) => arg.env(Resettable::<OsStr>::Reset),
        Some(_) | None => arg,
    };
    command.mut_args(kept).mut_subcommands(|verb| forget(verb, is_empty))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is set to nothing is neither a value nor an error, at any depth of the grammar. Method: a variable that every
    /// test has, once taken as it is and once as if it were set to nothing.
    #[test]
    fn a_variable_set_to_nothing_is_not_set() {
        let given = |is_empty: bool| {
            let verb = Command::new("verb").arg(Arg::new("number").long("number").env("PATH"));
            let grammar = forget(Command::new("x").subcommand(verb), &|name| is_empty && name == "PATH");
            let matches = grammar.try_get_matches_from(["x", "verb"]).unwrap();
            matches.subcommand().unwrap().1.contains_id("number")
        };
        assert!(given(false) && !given(true));
    }
}
