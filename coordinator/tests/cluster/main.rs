//! Several coordinators as one: over loopback, each on a runtime of its own that can be killed.

mod failover;
mod groups;
mod levels;
mod membership;
mod nodes;
mod staffing;
