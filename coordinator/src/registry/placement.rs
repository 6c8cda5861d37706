//! Which brokers hold a new partition.

use std::collections::BTreeMap;

use thalweg_model::NodeId;

use super::context::Seed;

/// A broker that can take replicas.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub id: NodeId,
    pub rack: Option<String>,
}

/// Replicas of `count` partitions, `factor` each, leaders and followers spread evenly and over racks.
///
/// Brokers stand in a ring in which racks alternate; partition `p` takes `factor` neighbours from a random start plus
/// `p`, so that each broker leads its share and the replicas of a partition lie in as many racks as there are.
///
/// Returns an empty list for each partition if `factor` is not within `1..=candidates.len()`.
pub fn place(candidates: &[Candidate], count: usize, factor: usize, mut seed: Seed) -> Vec<Vec<NodeId>> {
    let ring = ring(candidates);
    if factor == 0 || factor > ring.len() {
        return vec![Vec::new(); count];
    }
    let start = seed.below(ring.len());
    (0..count).map(|p| (0..factor).map(|i| ring[(start + p + i) % ring.len()]).collect()).collect()
}

/// Brokers in an order in which each takes its turn rack by rack.
fn ring(candidates: &[Candidate]) -> Vec<NodeId> {
    let mut racks: BTreeMap<Option<&str>, Vec<NodeId>> = BTreeMap::new();
    for candidate in candidates {
        racks.entry(candidate.rack.as_deref()).or_default().push(candidate.id);
    }
    for ids in racks.values_mut() {
        ids.sort_unstable();
    }
    let longest = racks.values().map(Vec::len).max().unwrap_or(0);
    (0..longest).flat_map(|turn| racks.values().filter_map(move |ids| ids.get(turn).copied())).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn candidates(racks: &[(i32, Option<&str>)]) -> Vec<Candidate> {
        racks.iter().map(|(id, rack)| Candidate { id: NodeId(*id), rack: rack.map(str::to_owned) }).collect()
    }

    #[test]
    fn leaders_are_spread_evenly_and_replicas_differ() {
        let brokers = candidates(&[(1, None), (2, None), (3, None)]);
        let placed = place(&brokers, 6, 2, Seed::new(3, 4));
        for id in 1..=3 {
            assert_eq!(placed.iter().filter(|replicas| replicas[0] == NodeId(id)).count(), 2);
        }
        assert!(placed.iter().all(|replicas| replicas[0] != replicas[1]));
    }

    #[test]
    fn replicas_lie_in_different_racks() {
        let brokers = candidates(&[(1, Some("a")), (2, Some("a")), (3, Some("b")), (4, Some("b"))]);
        for replicas in place(&brokers, 8, 2, Seed::new(1, 1)) {
            let racks: BTreeSet<bool> = replicas.iter().map(|id| id.0 <= 2).collect();
            assert_eq!(racks.len(), 2, "{replicas:?}");
        }
    }

    #[test]
    fn more_replicas_than_brokers_place_nothing() {
        assert_eq!(place(&candidates(&[(1, None)]), 1, 2, Seed::new(0, 0)), [Vec::new()]);
        assert_eq!(place(&[], 1, 1, Seed::new(0, 0)), [Vec::new()]);
    }
}
