//! What applying a command may know besides the state.

use thalweg_model::{Timestamp, TopicId};

/// Where and when a command is applied. Equal on every node, so that every node decides the same (REPLICATION R3).
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// Of the Raft entry that carries the command.
    pub index: u64,
    /// The leader's wall clock when it wrote the entry.
    pub time: Timestamp,
    /// The leader's randomness for this command.
    pub seed: Seed,
    /// `min.insync.replicas` of topics that do not set it.
    pub default_min_isr: i32,
}

/// A fixed sequence of numbers that looks random (splitmix64 over both halves).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed {
    high: u64,
    low: u64,
}

impl Seed {
    pub fn new(high: u64, low: u64) -> Seed {
        Seed { high, low }
    }

    /// The seed of the command at `position` of a batch.
    #[must_use]
    pub fn of_command(self, position: usize) -> Seed {
        let position = position as u64;
        Seed {
            high: mix(self.high ^ mix(position.wrapping_add(GOLDEN))),
            low: mix(self.low ^ mix(position.wrapping_mul(GOLDEN))),
        }
    }

    pub fn next_u64(&mut self) -> u64 {
        self.low = self.low.wrapping_add(GOLDEN);
        mix(mix(self.low) ^ self.high)
    }

    /// Evenly enough in `0..bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { (self.next_u64() % bound as u64) as usize }
    }

    /// A random UUID (RFC 4122, version 4), so never zero.
    pub fn next_topic_id(&mut self) -> TopicId {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.next_u64().to_be_bytes());
        bytes[8..].copy_from_slice(&self.next_u64().to_be_bytes());
        bytes[6] = bytes[6] & 0x0F | 0x40;
        bytes[8] = bytes[8] & 0x3F | 0x80;
        TopicId(bytes)
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_are_version_4_and_differ_between_positions_and_draws() {
        let mut seen = BTreeSet::new();
        for position in 0..100 {
            let mut seed = Seed::new(1, 2).of_command(position);
            for _ in 0..10 {
                let id = seed.next_topic_id();
                assert_eq!((id.0[6] >> 4, id.0[8] >> 6), (4, 2));
                assert!(seen.insert(id));
            }
        }
    }
}
