//! Positions in a partition's log.

use std::fmt;

/// A logical record position. Whether a bound is inclusive stands in its name's rule (CONVENTIONS.md).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub i64);

impl Offset {
    pub const ZERO: Offset = Offset(0);
    /// What Kafka answers where there is no offset, and on every error (FAILURES row 49).
    pub const NONE: Offset = Offset(-1);
    pub const MAX: Offset = Offset(i64::MAX);

    /// The offset `count` records further on; stays at the end of the range instead of wrapping.
    #[must_use]
    pub fn plus(self, count: i64) -> Offset {
        Offset(self.0.saturating_add(count))
    }

    /// How many records lie from `earlier` up to here; negative if `earlier` is later.
    pub fn since(self, earlier: Offset) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
