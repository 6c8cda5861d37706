//! gRPC contracts between brokers and coordinators, and the stored form of what coordinators keep.

use std::fmt;
use std::ops::RangeInclusive;

/// Generated from `proto/thalweg/v1`.
pub mod v1 {
    tonic::include_proto!("thalweg.v1");
}

/// The levels of the feature `thalweg.version` that this program can work at (REPLICATION R4). A new one comes with whatever is
/// added to commands or records; none was given up yet.
pub const LEVELS: RangeInclusive<u32> = 1..=5;

impl v1::Levels {
    /// Those of this program.
    pub fn ours() -> v1::Levels {
        v1::Levels { min: *LEVELS.start(), max: *LEVELS.end() }
    }

    pub fn contains(&self, level: u32) -> bool {
        (self.min..=self.max).contains(&level)
    }
}

impl fmt::Display for v1::Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.min, self.max)
    }
}
