//! Equal shares of replicas, bytes and traffic.

use std::collections::{BTreeMap, BTreeSet};

use super::PartitionPicture;
use super::draft::Draft;
use super::plan::Reason;

/// Moves replicas from brokers with many to brokers with few until no move makes a pair more equal.
pub(super) fn replicas(draft: &mut Draft<'_>) {
    // What could not go before may be able to once others have moved.
    while move_once(draft) {}
}

/// Relieves each broker as far as can be; whether anything moved.
fn move_once(draft: &mut Draft<'_>) -> bool {
    // Brokers from which nothing can go now; they may hold more than others.
    let mut fixed: BTreeSet<usize> = BTreeSet::new();
    let mut has_moved = false;
    loop {
        let fullest = draft.open().rev().find(|(_, at)| !fixed.contains(at));
        let Some((count, from)) = fullest else { return has_moved };
        match relief(draft, from, count) {
            Some((index, to)) => {
                draft.shift(index, from, to, Reason::Replicas);
                has_moved = true;
            }
            None => {
                fixed.insert(from);
            }
        }
    }
}

/// A replica on `from` and a broker with at least two fewer that may take it, the emptiest first.
fn relief(draft: &Draft<'_>, from: usize, count: usize) -> Option<(usize, usize)> {
    for (other, to) in draft.open() {
        if other + 2 > count {
            return None;
        }
        // Who is not preferred as leader comes first: then fewer leaders move.
        if let Some(index) = draft.held(from).find(|index| draft.may_shift(*index, from, to)) {
            return Some((index, to));
        }
    }
    None
}

/// Exchanges replicas between the broker with the largest sum of `weight` and those with small ones, so that each keeps its
/// number of replicas. Ends when the spread is small, or no exchange of the fullest helps.
///
/// `kept` is what earlier stages have made equal: the two that are exchanged hardly differ in it.
pub(super) fn exchange(
    draft: &mut Draft<'_>,
    reason: Reason,
    weight: impl Fn(&PartitionPicture) -> u64,
    kept: impl Fn(&PartitionPicture) -> u64,
) {
    let open: Vec<usize> = draft.open().map(|(_, at)| at).collect();
    if open.len() < 2 {
        return;
    }
    let item = |index: usize| {
        let partition = draft.partition(index);
        Item { weight: weight(partition), index, kept: kept(partition) }
    };
    // By broker, lightest first.
    let mut items: BTreeMap<usize, Vec<Item>> = BTreeMap::new();
    for at in &open {
        let mut held: Vec<Item> = draft.held(*at).map(item).collect();
        held.sort_unstable();
        items.insert(*at, held);
    }
    let mut sums: Vec<(u64, usize)> =
        items.iter().map(|(at, held)| (held.iter().map(|item| item.weight).sum(), *at)).collect();
    let total: u64 = sums.iter().map(|(sum, _)| *sum).sum();
    let all_kept: u64 = items.values().flatten().map(|item| item.kept).sum();
    let kept_slack = all_kept / sums.len() as u64 / SLACK_PART / 4;
    let slack = (total / sums.len() as u64 / SLACK_PART).max(1);
    let mut fixed: BTreeSet<usize> = BTreeSet::new();
    for _ in 0..draft_limit(draft, &open) {
        sums.sort_unstable();
        let Some(high) = (0..sums.len()).rev().find(|at| !fixed.contains(&sums[*at].1)) else { return };
        let (high_sum, from) = sums[high];
        let candidates = (0..high).filter(|low| high_sum - sums[*low].0 > slack).take(PARTNERS_MAX);
        let found = candidates.into_iter().find_map(|low| {
            let (low_sum, to) = sums[low];
            let (ours, theirs) = (Side { at: from, items: &items[&from] }, Side { at: to, items: &items[&to] });
            best_exchange(draft, ours, theirs, high_sum - low_sum, kept_slack).map(|found| (low, to, found))
        });
        let Some((low, to, (gives, takes))) = found else {
            fixed.insert(from);
            continue;
        };
        draft.shift(gives.index, from, to, reason);
        draft.shift(takes.index, to, from, reason);
        for (at, goes, comes) in [(from, gives, takes), (to, takes, gives)] {
            let held = items.entry(at).or_default();
            held.retain(|item| *item != goes);
            held.insert(held.partition_point(|item| *item < comes), comes);
        }
        let difference = gives.weight - takes.weight;
        sums[high].0 -= difference;
        sums[low].0 += difference;
    }
}

/// A partition as an exchange sees it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Item {
    weight: u64,
    index: usize,
    kept: u64,
}

/// A broker and what it holds, lightest first.
#[derive(Clone, Copy)]
struct Side<'a> {
    at: usize,
    items: &'a [Item],
}

/// The pair whose exchange moves nearest to half of `gap` from `ours` to `theirs`; at least a good part of it, so that nothing
/// is copied for little. They differ in what is kept by `kept_slack` at most.
fn best_exchange(
    draft: &Draft<'_>,
    ours: Side<'_>,
    theirs: Side<'_>,
    gap: u64,
    kept_slack: u64,
) -> Option<(Item, Item)> {
    let mut best: Option<(u64, Item, Item)> = None;
    for gives in ours.items.iter().rev() {
        // The partner that makes the difference nearest to half of the gap.
        let wanted = gives.weight.saturating_sub(gap / 2);
        let near = theirs.items.partition_point(|item| item.weight < wanted);
        for takes in theirs.items[near.saturating_sub(NEIGHBOURS)..].iter().take(2 * NEIGHBOURS) {
            let difference = gives.weight.checked_sub(takes.weight).filter(|difference| *difference > 0);
            let Some(difference) = difference else { continue };
            let is_better = difference < gap && best.is_none_or(|(miss, ..)| difference.abs_diff(gap / 2) < miss);
            if is_better
                && gives.index != takes.index
                && gives.kept.abs_diff(takes.kept) <= kept_slack
                && draft.may_shift(gives.index, ours.at, theirs.at)
                && draft.may_shift(takes.index, theirs.at, ours.at)
            {
                best = Some((difference.abs_diff(gap / 2), *gives, *takes));
            }
        }
        // Near enough: the rest of the gap is within what is not worth copying for.
        if best.is_some_and(|(miss, ..)| miss <= gap / NEAR_PART) {
            break;
        }
    }
    best.filter(|(miss, ..)| *miss <= gap / 2 - gap / USEFUL_PART).map(|(_, gives, takes)| (gives, takes))
}

/// More exchanges than a sensible plan has.
fn draft_limit(draft: &Draft<'_>, open: &[usize]) -> usize {
    open.iter().map(|at| draft.held_count(*at)).sum::<usize>().min(EXCHANGES_MAX)
}

/// Of the mean: a smaller spread is not worth copying for.
const SLACK_PART: u64 = 50;
/// Of the gap between two brokers, at least this part is closed by an exchange.
const USEFUL_PART: u64 = 8;
/// Of the gap: an exchange that misses its half by less is taken without looking for a better one.
const NEAR_PART: u64 = 32;
const PARTNERS_MAX: usize = 8;
const NEIGHBOURS: usize = 4;
const EXCHANGES_MAX: usize = 2_000;
