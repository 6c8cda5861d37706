//! Who should coordinate: which change of the voters, if any, the leader should make next.
//!
//! Pure. One change at a time, and none that leaves fewer answering voters than a majority of the voters afterwards. A voter is
//! added before one that is gone is dropped, so that a cluster never has less to stand on than before. Even numbers are passed
//! through, never aimed for: four voters survive no more than three.

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A spare one becomes a voter.
    Add(u64),
    /// It keeps its number and its data, and is a spare one once it answers.
    Drop(u64),
}

impl Situation {
    /// The next change. `gone_after_ms`: a voter that is silent for so long is gone for good, as far as anybody knows.
    pub fn next(&self, gone_after_ms: u64) -> Option<Change> {
        let (count, target) = (self.voters.len(), self.target());
        // A change is agreed on by those who vote before it, too.
        if !self.stands(self.answering(), count) {
            return None;
        }
        let gone = self.voters.iter().filter(|voter| voter.silent_ms >= gone_after_ms && voter.id != self.leader);
        let gone: Vec<u64> = gone.map(|voter| voter.id).collect();
        let kept = count - gone.len();
        let within_reach = odd_below(target.min(kept + self.spares.len()));
        if kept < within_reach {
            let spare = self.spares.first()?;
            return self.stands(self.answering() + 1, count + 1).then_some(Change::Add(*spare));
        }
        // Of an even number one that is gone is worth nothing; of an odd one it may still come back.
        if let Some(id) = gone.first().filter(|_| kept >= target || count.is_multiple_of(2)) {
            return self.stands(self.answering(), count - 1).then_some(Change::Drop(*id));
        }
        let surplus = self.wanted.is_some_and(|wanted| count > wanted);
        let last = surplus.then(|| self.surplus()).flatten()?;
        let left = self.answering() - usize::from(last.answers());
        self.stands(left, count - 1).then_some(Change::Drop(last.id))
    }

    /// Whether the question who offers itself matters at all.
    pub fn needs_spares(&self, gone_after_ms: u64) -> bool {
        let everybody = Situation { spares: (1..=MORE_THAN_ENOUGH).map(|id| u64::MAX - id).collect(), ..self.clone() };
        matches!(everybody.next(gone_after_ms), Some(Change::Add(_)))
    }

    fn target(&self) -> usize {
        match self.wanted {
            Some(wanted) => odd_below(wanted),
            None => odd_below(self.voters.len()).max(UNLESS_SAID),
        }
    }

    fn answering(&self) -> usize {
        self.voters.iter().filter(|voter| voter.id == self.leader || voter.answers()).count()
    }

    /// Silent ones first, then the youngest; never the leader.
    fn surplus(&self) -> Option<&Voter> {
        let others = self.voters.iter().filter(|voter| voter.id != self.leader);
        others.max_by_key(|voter| (!voter.answers(), voter.id))
    }

    fn stands(&self, answering: usize, voters: usize) -> bool {
        voters > 0 && answering > voters / 2
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

    #[test]
    fn a_first_node_grows_to_three_once_there_are_two_more() {
        for wanted in [None, Some(3)] {
            assert_eq!(next(wanted, &[(1, 0)], &[2]), None, "two are no better than one");
            assert_eq!(next(wanted, &[(1, 0)], &[2, 3]), Some(Change::Add(2)));
            assert_eq!(next(wanted, &[(1, 0), (2, 0)], &[3]), Some(Change::Add(3)));
            assert_eq!(next(wanted, &[(1, 0), (2, 0), (3, 0)], &[4, 5]), None);
        }
        assert_eq!(next(Some(1), &[(1, 0)], &[2, 3]), None);
        assert_eq!(next(Some(5), &[(1, 0), (2, 0), (3, 0)], &[4]), None);
        assert_eq!(next(Some(5), &[(1, 0), (2, 0), (3, 0)], &[4, 5]), Some(Change::Add(4)));
    }

    #[test]
    fn one_that_is_gone_for_good_is_replaced_first_added_then_dropped() {
        for wanted in [None, Some(3)] {
            assert_eq!(next(wanted, &[(1, 0), (2, GONE - 1), (3, 0)], &[4]), None, "not for good yet");
            assert_eq!(next(wanted, &[(1, 0), (2, GONE), (3, 0)], &[4]), Some(Change::Add(4)));
            assert_eq!(next(wanted, &[(1, 0), (2, GONE), (3, 0), (4, 0)], &[]), Some(Change::Drop(2)));
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
        assert_eq!(next(Some(3), &five, &[]), Some(Change::Drop(5)));
        assert_eq!(next(Some(3), &five[..4], &[5]), Some(Change::Drop(4)));
        assert_eq!(next(Some(1), &five[..2], &[]), Some(Change::Drop(2)));
        assert_eq!(next(Some(3), &[(1, 0), (2, 0), (3, 5_000), (4, 0), (5, 0)], &[]), Some(Change::Drop(3)));
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
            match change {
                Change::Add(id) => {
                    prop_assert!(now.spares.contains(&id), "{now:?}");
                    now.spares.retain(|spare| *spare != id);
                    now.voters.push(Voter { id, silent_ms: 0 });
                    now.voters.sort_by_key(|voter| voter.id);
                }
                Change::Drop(id) => {
                    prop_assert!(id != now.leader && now.voters.iter().any(|voter| voter.id == id), "{now:?}");
                    now.voters.retain(|voter| voter.id != id);
                }
            }
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
