//! The one door to nondeterminism: clock, randomness, disk, network.
//!
//! Production code takes these as values, so that tests and the simulator can give it others.

pub mod clock;
pub mod disk;
pub mod send;

pub use clock::Clock;
