//! What a seed's world looks like: every seed draws its own sizes, timings and subset of faults (TESTING, "swarm").

use std::collections::BTreeSet;

use thalweg_model::Durability;

use crate::nemesis::Fault;
use crate::rng::Rng;

/// One seed's configuration. Times in nanoseconds unless the name says otherwise.
#[derive(Clone, Debug)]
pub struct Plan {
    pub broker_count: usize,
    pub replication_factor: usize,
    pub partition_count: usize,
    pub min_isr: usize,
    pub durability: Durability,
    pub lease_ms: u32,
    pub heartbeat: u64,
    /// How often preferred leaders get the lead back.
    pub preferred_leader_interval_ms: u32,
    pub lag_max: u64,
    /// From an append to the start of its flush.
    pub flush_wait: u64,
    /// The longest that a healthy disk takes to sync.
    pub sync_max: u64,
    pub network: Network,
    /// How long a follower waits for an answer to its fetch.
    pub fetch_timeout: u64,
    /// How long a leader keeps a fetch that it has nothing for.
    pub fetch_wait: u64,
    /// Feed items kept for brokers that come back; who comes from further back gets a whole image.
    pub feed_kept: usize,
    pub producers: Vec<Acks>,
    /// Whether producers with acks=all are idempotent.
    pub is_idempotent: bool,
    pub consumer_count: usize,
    /// Whether consumers also read from followers.
    pub reads_followers: bool,
    pub groups: Groups,
    /// The longest pause between two batches of a producer.
    pub produce_pause: u64,
    /// Whether followers tell of a flush at once or with their next fetch.
    pub eager_reports: bool,
    pub faults: BTreeSet<Fault>,
    /// Mean time between faults.
    pub fault_pause: u64,
    /// How long faults happen.
    pub fault_time: u64,
}

/// Consumer groups.
#[derive(Clone, Debug)]
pub struct Groups {
    /// Members of each.
    pub sizes: Vec<usize>,
    pub session_timeout_ms: u32,
    pub rebalance_timeout_ms: u32,
    pub initial_delay_ms: u32,
    /// The longest that a member does nothing, in milliseconds.
    pub pause_max: u64,
    pub retention_ms: i64,
    pub expiry_interval_ms: u32,
}

/// What the network does to each message.
#[derive(Clone, Copy, Debug)]
pub struct Network {
    pub delay_min: u64,
    pub delay_max: u64,
    pub loss_per_mille: u32,
    pub duplicate_per_mille: u32,
    pub slow_per_mille: u32,
}

/// When a producer wants to hear of its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Acks {
    None,
    Leader,
    All,
}

impl Plan {
    pub fn draw(rng: &mut Rng) -> Plan {
        let broker_count = rng.between(3, 5) as usize;
        let faults = Fault::draw_subset(rng);
        let replication_factor = if rng.chance(800) { 3 } else { rng.between(1, broker_count as u64) as usize };
        let min_isr = if rng.chance(700) { 2 } else { rng.between(1, replication_factor as u64) as usize };
        let durability = if rng.chance(600) { Durability::Flushed } else { Durability::Replicated };
        let lease_ms = rng.between(600, 3_000) as u32;
        Plan {
            broker_count,
            replication_factor,
            partition_count: if rng.chance(600) { 1 } else { rng.between(1, 4) as usize },
            min_isr: min_isr.min(replication_factor),
            durability,
            lease_ms,
            heartbeat: u64::from(lease_ms) * MS / rng.between(3, 6),
            preferred_leader_interval_ms: rng.between(500, 15_000) as u32,
            lag_max: rng.between(300, 2_500) * MS,
            flush_wait: match durability {
                Durability::Flushed => rng.between(0, 8) * MS,
                Durability::Replicated => rng.between(5, 3_000) * MS,
            },
            sync_max: rng.between(1, 12) * MS,
            network: Network::draw(rng),
            fetch_timeout: rng.between(300, 1_500) * MS,
            fetch_wait: rng.between(50, 500) * MS,
            feed_kept: if rng.chance(500) { 1_000 } else { rng.between(1, 10) as usize },
            producers: (0..rng.between(1, 3)).map(|_| Acks::draw(rng)).collect(),
            consumer_count: rng.between(0, 2) as usize,
            reads_followers: rng.chance(500),
            groups: Groups::draw(rng),
            produce_pause: rng.between(10, 150) * MS,
            eager_reports: rng.chance(500),
            // A producer whose every record was deleted is forgotten, so its repetitions are not known any more.
            is_idempotent: rng.chance(500) && !faults.contains(&Fault::DeleteRecords),
            faults,
            fault_pause: rng.between(120, 900) * MS,
            fault_time: rng.between(8_000, 22_000) * MS,
        }
    }
}

impl Groups {
    fn draw(rng: &mut Rng) -> Groups {
        let count = if rng.chance(500) { 0 } else { rng.between(1, 2) };
        Groups {
            sizes: (0..count).map(|_| rng.between(1, 4) as usize).collect(),
            session_timeout_ms: rng.between(800, 5_000) as u32,
            rebalance_timeout_ms: rng.between(800, 4_000) as u32,
            initial_delay_ms: rng.between(0, 800) as u32,
            pause_max: rng.between(40, 300),
            // Hours: only a wall clock that jumps makes offsets old.
            retention_ms: rng.between(1, 40) as i64 * 3_600_000,
            expiry_interval_ms: rng.between(500, 5_000) as u32,
        }
    }
}

impl Network {
    fn draw(rng: &mut Rng) -> Network {
        let mut rate = |most: u64| if rng.chance(500) { rng.between(0, most) as u32 } else { 0 };
        let (loss_per_mille, duplicate_per_mille, slow_per_mille) = (rate(300), rate(100), rate(30));
        let delay_min = rng.between(20, 500) * US;
        Network {
            delay_min,
            delay_max: delay_min + rng.between(50, 5_000) * US,
            loss_per_mille,
            duplicate_per_mille,
            slow_per_mille,
        }
    }
}

impl Acks {
    fn draw(rng: &mut Rng) -> Acks {
        match rng.below(10) {
            0 => Acks::None,
            1..=2 => Acks::Leader,
            _ => Acks::All,
        }
    }
}

pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;
