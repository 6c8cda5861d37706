//! Histories of what clients did to a cluster, and a checker that finds in them what must never happen.
//!
//! Clients write a [`history`] each while a cluster is killed, cut and paused; [`check`] reads all of them together.

pub mod check;
pub mod history;
pub mod made;
