//! Rules that hold always, checked in release builds too.
//!
//! Statement and source of each stand in docs/INVARIANTS.md under the same id.

use std::fmt;

/// Names one row of docs/INVARIANTS.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InvariantId {
    /// The high watermark never falls within one leader epoch.
    Hw1,
    /// `log_start_offset <= high_watermark <= log_end_offset`.
    Log1,
    /// Offsets in a log are dense and unique: a batch starts where the last one ended.
    Log2,
    /// What is known synced lies within the log: `flushed <= log_end_offset`.
    Log3,
    /// `last_stable_offset <= high_watermark`.
    Log4,
    /// Leader epochs and their start offsets grow together.
    Epoch1,
    /// A group's generation never falls and is never reused.
    Group1,
    /// Commands are applied in index order, each once.
    Raft1,
}

impl fmt::Display for InvariantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Stops the process's current task if a rule is broken: going on would spread the damage.
///
/// For our own state only; bytes from a peer or a disk get an error instead.
#[macro_export]
macro_rules! check {
    ($id:expr, $holds:expr) => {
        if !$holds {
            $crate::invariant::broken($id, stringify!($holds));
        }
    };
    ($id:expr, $holds:expr, $($detail:tt)+) => {
        if !$holds {
            $crate::invariant::broken($id, &format!($($detail)+));
        }
    };
}

/// The cold end of [`check!`].
///
/// # Panics
/// Always; that is its purpose.
#[cold]
#[inline(never)]
pub fn broken(id: InvariantId, detail: &str) -> ! {
    panic!("invariant {id} is broken: {detail}")
}
