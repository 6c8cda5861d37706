//! Equal shares of replicas, bytes and traffic.

use std::collections::BTreeSet;

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
        // Who is not preferred as leader goes first: then fewer leaders move.
        let mut leading = None;
        for index in draft.held(from).iter().copied() {
            if draft.may_shift(index, from, to) {
                if draft.replicas(index).first() != Some(&from) {
                    return Some((index, to));
                }
                leading = leading.or(Some(index));
            }
        }
        if let Some(index) = leading {
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
    let weight_of = |draft: &Draft<'_>, index: usize| weight(draft.partition(index));
    let mut sums: Vec<(u64, usize)> =
        open.iter().map(|at| (draft.held(*at).iter().map(|index| weight_of(draft, *index)).sum(), *at)).collect();
    let total: u64 = sums.iter().map(|(sum, _)| *sum).sum();
    let all_kept: u64 = open.iter().flat_map(|at| draft.held(*at)).map(|index| kept(draft.partition(*index))).sum();
    let kept_slack = all_kept / sums.len() as u64 / SLACK_PART / 4;
    let is_fine = |draft: &Draft<'_>, gives: usize, takes: usize| {
        kept(draft.partition(gives)).abs_diff(kept(draft.partition(takes))) <= kept_slack
    };
    let slack = (total / sums.len() as u64 / SLACK_PART).max(1);
    let mut fixed: BTreeSet<usize> = BTreeSet::new();
    for _ in 0..draft_limit(draft, &open) {
        sums.sort_unstable();
        let Some(high) = (0..sums.len()).rev().find(|at| !fixed.contains(&sums[*at].1)) else { return };
        let (high_sum, from) = sums[high];
        let candidates: Vec<usize> =
            (0..high).filter(|low| high_sum - sums[*low].0 > slack).take(PARTNERS_MAX).collect();
        let found = candidates.into_iter().find_map(|low| {
            let (low_sum, to) = sums[low];
            best_exchange(draft, &weight, &is_fine, from, to, high_sum - low_sum).map(|found| (low, to, found))
        });
        let Some((low, to, (gives, takes))) = found else {
            fixed.insert(from);
            continue;
        };
        let difference = weight_of(draft, gives) - weight_of(draft, takes);
        draft.shift(gives, from, to, reason);
        draft.shift(takes, to, from, reason);
        sums[high].0 -= difference;
        sums[low].0 += difference;
    }
}

/// The pair whose exchange moves nearest to half of `gap` from `from` to `to`; at least a good part of it, so that nothing is
/// copied for little.
fn best_exchange(
    draft: &Draft<'_>,
    weight: &impl Fn(&PartitionPicture) -> u64,
    is_fine: &impl Fn(&Draft<'_>, usize, usize) -> bool,
    from: usize,
    to: usize,
    gap: u64,
) -> Option<(usize, usize)> {
    let of = |at: usize| {
        let mut all: Vec<(u64, usize)> =
            draft.held(at).iter().map(|index| (weight(draft.partition(*index)), *index)).collect();
        all.sort_unstable();
        all
    };
    let (ours, theirs) = (of(from), of(to));
    let mut best: Option<(u64, usize, usize)> = None;
    for (heavy, gives) in ours.into_iter().rev() {
        // The partner that makes the difference nearest to half of the gap.
        let wanted = heavy.saturating_sub(gap / 2);
        let near = theirs.partition_point(|(light, _)| *light < wanted);
        for (light, takes) in theirs[near.saturating_sub(NEIGHBOURS)..].iter().take(2 * NEIGHBOURS) {
            let Some(difference) = heavy.checked_sub(*light).filter(|difference| *difference > 0) else { continue };
            let is_better = difference < gap && best.is_none_or(|(miss, ..)| difference.abs_diff(gap / 2) < miss);
            if is_better
                && gives != *takes
                && is_fine(draft, gives, *takes)
                && draft.may_shift(gives, from, to)
                && draft.may_shift(*takes, to, from)
            {
                best = Some((difference.abs_diff(gap / 2), gives, *takes));
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
    open.iter().map(|at| draft.held(*at).len()).sum::<usize>().min(EXCHANGES_MAX)
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
