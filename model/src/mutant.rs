//! Switches by which a simulator proves that it can see: each deletes one rule of the machines.
//!
//! Without the feature `mutants`, which only the simulator's own build has, [`is_on`] is the constant `false` and nothing of
//! a switch is left in the program.

/// Whether the rule that guards against `$name` is switched off: the constant `false` outside of the simulator's own build.
///
/// Stands where the rule stands. The names, and what each deletes, are listed in docs/SIMULATION.md.
#[macro_export]
macro_rules! mutant {
    ($name:literal) => {
        $crate::mutant::is_on($name)
    };
}

/// See [`mutant!`](crate::mutant!).
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn is_on(_name: &str) -> bool {
    false
}

#[cfg(feature = "mutants")]
pub use switched::{choose, is_on};

#[cfg(feature = "mutants")]
mod switched {
    use std::cell::Cell;

    thread_local! {
        static CHOSEN: Cell<&'static [&'static str]> = const { Cell::new(&[]) };
    }

    /// Deletes the rules `names` for what this thread does from now on.
    pub fn choose(names: &'static [&'static str]) {
        CHOSEN.set(names);
    }

    /// See [`mutant!`](crate::mutant!).
    pub fn is_on(name: &str) -> bool {
        let chosen = CHOSEN.get();
        !chosen.is_empty() && chosen.contains(&name)
    }
}
