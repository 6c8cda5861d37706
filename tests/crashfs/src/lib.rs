//! A file system that forgets on command what was not synced, as a machine does whose power is cut.
//!
//! Everything lies in memory, twice: as programs see it, and as it would be found after a power cut. `fsync` and
//! `fdatasync` of a file carry its content and size over, of a directory its entries. Nothing else does: a file that was
//! synced in a directory that was not is gone, as POSIX allows. [`disk::Disk::cut`] makes the second the first.

mod content;
pub mod disk;
pub mod mount;

pub use disk::{Cut, Disk};
