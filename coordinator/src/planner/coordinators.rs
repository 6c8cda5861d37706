//! Who should coordinate: which change of the voters, if any, the leader should make next.
//!
//! Pure. From one set of voters to the next in one joint change, which a majority of either set must carry: never through an
//! even number, which survives no more than one less, and where one grows to three, through two, survives nothing.

/// What the leader sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Situation {
    /// `coordinators` of the cluster's configuration; `None`: three, and whatever more were put there by hand.
    pub wanted: Option<usize>,
    /// The leader, one of the voters.
    pub leader: u64,
    /// Sorted by id.
    pub voters: Vec<Voter>,
    /// Who offers itself and answers, without a vote; sorted.
    pub spares: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Voter {
    pub id: u64,
    /// Since it answered last, or since this node leads.
    pub silent_ms: u64,
}

/// From the voters that there are to the next ones, at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Spare ones that become voters; sorted.
    pub add: Vec<u64>,
    /// They keep their numbers and their data, and are spare ones once they answer; sorted.
    pub drop: Vec<u64>,
}

impl Situation {
    /// The next change. `gone_after_ms`: a voter that is silent for so long is gone for good, as far as anybody knows.
    ///
    /// `None` too where a majority of those who vote now, or of those who would afterwards, does not answer.
    pub fn next(&self, gone_after_ms: u64) -> Option<Change> {
        let change = self.wish(gone_after_ms)?;
        let dropped_answering = self.voters.iter().filter(|voter| change.drop.contains(&voter.id) && self.hears(voter));
        let (count, answering) = (self.voters.len(), self.answering());
        let answering_then = answering + change.add.len() - dropped_answering.count();
        let stands = answering > count / 2 && answering_then > (count + change.add.len() - change.drop.len()) / 2;
        stands.then_some(change)
    }

    fn wish(&self, gone_after_ms: u64) -> Option<Change> {
        let (count, target) = (self.voters.len(), self.target());
        let gone = self.voters.iter().filter(|voter| voter.silent_ms >= gone_after_ms && voter.id != self.leader);
        let gone: Vec<u64> = gone.map(|voter| voter.id).collect();
        let kept = count - gone.len();
        let within_reach = odd_below(target.min(kept + self.spares.len()));
        if kept < within_reach {
            let add = self.spares.iter().copied().take(within_reach - kept).collect();
            return Some(Change { add, drop: gone });
        }
        if self.wanted.is_some_and(|wanted| count > wanted) {
            return Some(Change { add: Vec::new(), drop: self.surplus(count - target) });
        }
        // Of an even number one that is gone is worth nothing; of an odd one it may still come back.
        let useless = gone.first().filter(|_| count.is_multiple_of(2))?;
        Some(Change { add: Vec::new(), drop: vec![*useless] })
    }

    /// Whether the question who offers itself matters at all.
    pub fn needs_spares(&self, gone_after_ms: u64) -> bool {
        let everybody = Situation { spares: (1..=MORE_THAN_ENOUGH).map(|id| u64::MAX - id).collect(), ..self.clone() };
        everybody.next(gone_after_ms).is_some_and(|change| !change.add.is_empty())
    }

    fn target(&self) -> usize {
        match self.wanted {
            Some(wanted) => odd_below(wanted),
            None => odd_below(self.voters.len()).max(UNLESS_SAID),
        }
    }

    fn answering(&self) -> usize {
        self.voters.iter().filter(|voter| self.hears(voter)).count()
    }

    fn hears(&self, voter: &Voter) -> bool {
        voter.id == self.leader || voter.answers()
    }

    /// Silent ones first, then the youngest; never the leader.
    fn surplus(&self, count: usize) -> Vec<u64> {
        let mut others: Vec<&Voter> = self.voters.iter().filter(|voter| voter.id != self.leader).collect();
        others.sort_by_key(|voter| (voter.answers(), std::cmp::Reverse(voter.id)));
        let mut ids: Vec<u64> = others.into_iter().take(count).map(|voter| voter.id).collect();
        ids.sort_unstable();
        ids
    }
}

impl Voter {
    fn answers(&self) -> bool {
        self.silent_ms < SILENT_MS
    }
}

/// The largest odd number that is not larger, and 1.
fn odd_below(number: usize) -> usize {
    if number.is_multiple_of(2) { number.saturating_sub(1).max(1) } else { number }
}

/// Longer than the pause between two heartbeats by far, shorter than anybody's patience.
const SILENT_MS: u64 = 2_000;
const UNLESS_SAID: usize = 3;
/// Spares beyond this make no difference to what is wanted at most.
const MORE_THAN_ENOUGH: u64 = 8;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const GONE: u64 = 600_000;

    fn situation(wanted: Option<usize>, voters: &[(u64, u64)], spares: &[u64]) -> Situation {
        let voters = voters.iter().map(|(id, silent_ms)| Voter { id: *id, silent_ms: *silent_ms }).collect();
        Situation { wanted, leader: 1, voters, spares: spares.to_vec() }
    }

    fn next(wanted: Option<usize>, voters: &[(u64, u64)], spares: &[u64]) -> Option<Change> {
        situation(wanted, voters, spares).next(GONE)
    }

    fn change(add: &[u64], drop: &[u64]) -> Option<Change> {
        Some(Change { add: add.to_vec(), drop: drop.to_vec() })
    }

    #[test]
    fn a_first_node_grows_to_three_once_there_are_two_more() {
        for wanted in [None, Some(3)] {
            assert_eq!(next(wanted, &[(1, 0)], &[2]), None, "two are no better than one");
            assert_eq!(next(wanted, &[(1, 0)], &[2, 3]), change(&[2, 3], &[]), "never through two");
            assert_eq!(next(wanted, &[(1, 0), (2, 0)], &[3]), change(&[3], &[]), "two that were put there by hand");
            assert_eq!(next(wanted, &[(1, 0), (2, 0), (3, 0)], &[4, 5]), None);
        }
        assert_eq!(next(Some(1), &[(1, 0)], &[2, 3]), None);
        assert_eq!(next(Some(5), &[(1, 0), (2, 0), (3, 0)], &[4]), None);
        assert_eq!(next(Some(5), &[(1, 0), (2, 0), (3, 0)], &[4, 5]), change(&[4, 5], &[]));
    }

    #[test]
    fn one_that_is_gone_for_good_is_replaced_in_one_change() {
        for wanted in [None, Some(3)] {
            assert_eq!(next(wanted, &[(1, 0), (2, GONE - 1), (3, 0)], &[4]), None, "not for good yet");
            assert_eq!(next(wanted, &[(1, 0), (2, GONE), (3, 0)], &[4]), change(&[4], &[2]));
            assert_eq!(next(wanted, &[(1, 0), (2, GONE), (3, 0), (4, 0)], &[]), change(&[], &[2]), "an even number");
            assert_eq!(
                next(wanted, &[(1, 0), (2, GONE), (3, 0)], &[]),
                None,
                "it may come back, and nobody else is there"
            );
        }
    }

    #[test]
    fn what_was_put_together_by_hand_is_left_alone_until_a_number_is_said() {
        let five = [(1, 0), (2, 0), (3, 0), (4, 0), (5, 0)];
        assert_eq!(next(None, &five, &[6, 7]), None);
        assert_eq!(next(None, &five[..4], &[]), None);
        assert_eq!(next(Some(3), &five, &[]), change(&[], &[4, 5]));
        assert_eq!(next(Some(3), &five[..4], &[5]), change(&[], &[4]));
        assert_eq!(next(Some(1), &five[..2], &[]), change(&[], &[2]));
        assert_eq!(next(Some(3), &[(1, 0), (2, 0), (3, 5_000), (4, 0), (5, 0)], &[]), change(&[], &[3, 5]));
    }

    #[test]
    fn nothing_is_changed_that_a_majority_could_not_carry() {
        let two_silent = [(1, 0), (2, 5_000), (3, 5_000)];
        assert_eq!(next(Some(5), &two_silent, &[4, 5]), None);
        let lame = [(1, 0), (2, 0), (3, GONE), (4, GONE)];
        assert_eq!(next(Some(3), &lame, &[5]), None, "two of four agree on nothing");
    }

    /// Goal: from wherever it starts, whoever comes and goes, a cluster ends at what is wanted and never stands on fewer than a
    /// majority. Method: random voters and spares; the planner's changes are made until it has none.
    fn settle(mut now: Situation) -> Result<Situation, TestCaseError> {
        for _ in 0..40 {
            let Some(change) = now.next(GONE) else { return Ok(now) };
            prop_assert!(change.add.iter().all(|id| now.spares.contains(id)), "{change:?} of {now:?}");
            let is_voter = |id: &u64| *id != now.leader && now.voters.iter().any(|voter| voter.id == *id);
            prop_assert!(change.drop.iter().all(is_voter), "{change:?} of {now:?}");
            let was_odd = !now.voters.len().is_multiple_of(2);
            now.spares.retain(|id| !change.add.contains(id));
            now.voters.extend(change.add.iter().map(|id| Voter { id: *id, silent_ms: 0 }));
            now.voters.retain(|voter| !change.drop.contains(&voter.id));
            now.voters.sort_by_key(|voter| voter.id);
            prop_assert!(!was_odd || !now.voters.len().is_multiple_of(2), "{change:?} gave an even number: {now:?}");
            prop_assert!(now.answering() > now.voters.len() / 2, "{change:?} gave {now:?}");
        }
        Err(TestCaseError::fail(format!("it never ends: {now:?}")))
    }

    proptest! {
        #[test]
        fn every_history_ends_and_stands_on_a_majority_at_each_step(
            wanted in prop::sample::select(vec![None, Some(1), Some(3), Some(5)]),
            silences in prop::collection::vec(prop::sample::select(vec![0, 0, 0, 5_000, GONE]), 0..7),
            spares in prop::collection::btree_set(20..30u64, 0..6),
        ) {
            let mut voters = vec![(1, 0)];
            voters.extend((2..).zip(silences));
            let spares: Vec<u64> = spares.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
            let start = situation(wanted, &voters, &spares);
            prop_assume!(start.answering() > start.voters.len() / 2);
            let all_answer = start.voters.iter().all(|voter| voter.silent_ms == 0);
            let (had, spare_count) = (start.voters.len(), start.spares.len());
            let end = settle(start)?;
            if let Some(wanted) = wanted.filter(|_| all_answer) {
                let reached = if had > wanted { wanted } else { odd_below(wanted.min(had + spare_count)).max(had) };
                prop_assert_eq!(end.voters.len(), reached);
            }
            prop_assert!(!end.needs_spares(GONE) || end.spares.len() < 2 || !all_answer);
        }
    }
}
