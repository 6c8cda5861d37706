//! Decisions without I/O: a value in, time as an argument, effects out.
//!
//! # Driving a replica
//!
//! [`replica::Replica`] decides for one replica of one partition; [`lease::Lease`] for the broker's right to lead. The driver,
//! which is the shell or a simulator, owns the log and the network, and does what the answers say before it gives the next
//! input.
//!
//! - **Start**: [`replica::Replica::new`] with the log as recovery left it. Feed items go through [`image::ImageBuilder`]; each
//!   registration of the partition goes to [`replica::Replica::registered`], whose [`replica::Change`] says what happens to
//!   the log's epochs. A broker that has just started gives no registration from before its own: it could lead in an epoch
//!   whose records a crash has taken.
//! - **Leading**: [`replica::Replica::admit`], append, [`replica::Replica::appended`], and
//!   [`replica::Replica::flushed`] when a sync has ended; after each, and after a follower's fetch,
//!   [`replica::Replica::advance_high_watermark`]. A follower's fetch goes to [`replica::Replica::follower_fetched`]; if it is
//!   accepted, it is answered from its position up to our log's end, with our high watermark. acks=all is answered when the
//!   watermark passes, acks=1 when [`replica::Replica::counted`] does.
//! - **In-sync replicas**: while the lease stands, ask for [`replica::Replica::proposal`] after fetches, registrations, and from
//!   time to time; send what it gives; [`replica::Replica::proposal_answered`] takes what became of it.
//! - **Following**: [`replica::Replica::next_fetch`] says what to ask the leader; [`replica::Replica::fetch_answered`] turns
//!   the answer into a [`follower::FollowerAction`]; [`replica::Replica::copied`] and [`replica::Replica::truncated`] report that it
//!   was done. Then the next fetch. A fetch without an answer is simply asked anew.
//! - **Disk failure**: [`replica::Replica::failed`].

pub mod addresses;
pub mod clients;
pub mod delayed;
pub mod fetch_session;
pub mod follower;
pub mod follower_session;
pub mod image;
pub mod isr;
pub mod leader;
pub mod lease;
pub mod move_pace;
pub mod replica;
pub mod suspects;
pub mod traffic;
pub mod waiters;
