//! Equal shares of leaders, by the order of replicas alone.

use std::collections::{BTreeMap, VecDeque};

use super::draft::Draft;

/// Makes brokers preferred as leader of equally many partitions, as far as their replicas allow. Only brokers that may be given
/// replicas become leaders.
///
/// From a broker that leads too many, the shortest chain of partitions is looked for along which the lead can be handed on to
/// one that leads too few: as long as there is one, the shares can be made more equal, and only then (augmenting paths).
pub(super) fn balance(draft: &mut Draft<'_>) {
    let open: Vec<usize> = draft.open().map(|(_, at)| at).collect();
    let mut led: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for at in &open {
        let partitions = draft.held(*at).iter().copied();
        let led_here = partitions.filter(|index| is_led_by(draft, *index, *at) && !draft.partition(*index).is_busy);
        led.insert(*at, led_here.collect());
    }
    // What could not be handed on before may be able to once others have changed.
    while hand_on(draft, &open, &mut led) {}
}

/// Relieves each broker as far as can be; whether anything changed.
fn hand_on(draft: &mut Draft<'_>, open: &[usize], led: &mut BTreeMap<usize, Vec<usize>>) -> bool {
    let mut fixed = Vec::new();
    let mut has_changed = false;
    loop {
        let most = open.iter().copied().filter(|at| !fixed.contains(at)).max_by_key(|at| draft.leads(*at));
        let Some(from) = most else { return has_changed };
        let Some(chain) = chain(draft, led, from) else {
            fixed.push(from);
            continue;
        };
        has_changed = true;
        for (index, holder, next) in chain {
            draft.prefer(index, next);
            if let Some(partitions) = led.get_mut(&holder) {
                partitions.retain(|other| *other != index);
            }
            led.entry(next).or_default().push(index);
        }
    }
}

/// Partitions with the broker that leads each and the one that is to, from `from` to a broker that leads at least two fewer.
fn chain(draft: &Draft<'_>, led: &BTreeMap<usize, Vec<usize>>, from: usize) -> Option<Vec<(usize, usize, usize)>> {
    let mut came_by: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    let mut queue = VecDeque::from([from]);
    while let Some(at) = queue.pop_front() {
        if draft.leads(at) + 2 <= draft.leads(from) {
            let mut chain = Vec::new();
            let mut next = at;
            while next != from {
                let (index, holder) = came_by[&next];
                chain.push((index, holder, next));
                next = holder;
            }
            return Some(chain);
        }
        for index in led.get(&at).into_iter().flatten() {
            for other in draft.replicas(*index) {
                if *other != from && draft.is_open(*other) && !came_by.contains_key(other) {
                    came_by.insert(*other, (*index, at));
                    queue.push_back(*other);
                }
            }
        }
    }
    None
}

fn is_led_by(draft: &Draft<'_>, index: usize, at: usize) -> bool {
    draft.replicas(index).first() == Some(&at)
}
