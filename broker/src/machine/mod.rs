//! Decisions without I/O: a value in, time as an argument, effects out.

pub mod delayed;
pub mod fetch_session;
pub mod image;
pub mod isr;
pub mod leader;
pub mod lease;
pub mod replica;
pub mod waiters;
