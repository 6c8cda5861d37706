//! A simulator of a whole cluster: the product's machines under one seeded scheduler.
//!
//! The machines that decide are the production ones: `broker::machine` (replica, leader, follower, ISR, lease, image) and
//! `coordinator` (registries, sessions). Around them stands a world without threads, sockets, disks or clocks: a heap of
//! events ([`world`]), a network ([`net`]), disks that lose what was not synced ([`log`], [`broker`]), and faults
//! ([`nemesis`]). After every step the invariants of docs/INVARIANTS.md are checked on the state itself ([`checker`]).
//! A seed gives the same world and the same history every time; docs/SIMULATION.md says how to use it.

pub mod broker;
pub mod checker;
pub mod client;
pub mod coordinator;
pub mod deposed;
pub mod feed;
pub mod following;
pub mod groups;
pub mod hosting;
pub mod log;
pub mod members;
pub mod message;
pub mod nemesis;
pub mod net;
pub mod parts;
pub mod plan;
pub mod rng;
pub mod run;
pub mod serving;
pub mod well;
pub mod world;
pub mod zoo;

/// Seeds that once broke a rule.
pub fn kept_seeds() -> Vec<u64> {
    let lines = include_str!("../seeds/kept.txt").lines();
    lines.filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect()
}
