//! Equal shares of leaders, by the order of replicas alone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::draft::Draft;

/// Makes brokers preferred as leader of equally many partitions, as far as their replicas allow. Only brokers that may be given
/// replicas become leaders.
///
/// From a broker that leads too many, the shortest chain of partitions is looked for along which the lead can be handed on to
/// one that leads too few: as long as there is one, the shares can be made more equal, and only then (augmenting paths).
pub(super) fn balance(draft: &mut Draft<'_>) {
    let open: Vec<usize> = draft.open().map(|(_, at)| at).collect();
    // What could not be handed on before may be able to once others have changed.
    while hand_on(draft, &open) {}
}

/// Relieves each broker as far as can be; whether anything changed.
fn hand_on(draft: &mut Draft<'_>, open: &[usize]) -> bool {
    let mut fixed = BTreeSet::new();
    let mut has_changed = false;
    loop {
        let most = open.iter().copied().filter(|at| !fixed.contains(at)).max_by_key(|at| draft.leads(*at));
        let Some(from) = most else { return has_changed };
        let Some(chain) = chain(draft, from) else {
            fixed.insert(from);
            continue;
        };
        has_changed = true;
        for (index, next) in chain {
            draft.prefer(index, next);
        }
    }
}

/// Partitions with the broker that is to lead each, from `from` to a broker that leads at least two fewer.
fn chain(draft: &Draft<'_>, from: usize) -> Option<Vec<(usize, usize)>> {
    // By which partition a broker was found, and from whom.
    let mut came_by: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    let mut queue = VecDeque::from([from]);
    while let Some(at) = queue.pop_front() {
        for index in draft.led(at).iter().copied().filter(|index| !draft.partition(*index).is_busy) {
            for other in draft.replicas(index).iter().copied() {
                if other == from || !draft.is_open(other) || came_by.contains_key(&other) {
                    continue;
                }
                came_by.insert(other, (index, at));
                if draft.leads(other) + 2 <= draft.leads(from) {
                    return Some(way(&came_by, from, other));
                }
                queue.push_back(other);
            }
        }
    }
    None
}

/// Back from `to`.
fn way(came_by: &BTreeMap<usize, (usize, usize)>, from: usize, to: usize) -> Vec<(usize, usize)> {
    let mut way = Vec::new();
    let mut next = to;
    while next != from {
        let (index, holder) = came_by[&next];
        way.push((index, next));
        next = holder;
    }
    way
}
