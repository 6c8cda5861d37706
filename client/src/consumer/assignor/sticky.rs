//! Balanced, with as few moves as possible: at once (KIP-54), or in two steps (KIP-429).

use std::collections::{BTreeMap, BTreeSet};

use super::{Member, empty_plan, in_order};
use crate::consumer::protocol::TopicPartitions;

type Partition = (String, i32);

/// Plans the balanced state: nobody reads now, so whatever moves can move at once.
pub(super) fn assign_at_once(
    members: &BTreeMap<String, Member>,
    partition_counts: &BTreeMap<String, i32>,
) -> BTreeMap<String, TopicPartitions> {
    let mut plan = empty_plan(members);
    for (id, partitions) in balance(members, partition_counts, &owners(members, partition_counts)) {
        for (topic, index) in partitions {
            plan.entry(id.clone()).or_default().entry(topic).or_default().push(index);
        }
    }
    plan
}

/// Plans the balanced state, then leaves out each partition whose owner must give it up first: the owner
/// sees that it lost it, revokes it and joins again, and the next round gives it away.
pub(super) fn assign(
    members: &BTreeMap<String, Member>,
    partition_counts: &BTreeMap<String, i32>,
) -> BTreeMap<String, TopicPartitions> {
    let owners = owners(members, partition_counts);
    let holdings = balance(members, partition_counts, &owners);
    let mut plan = empty_plan(members);
    for (id, partitions) in holdings {
        for partition in partitions {
            let moves = owners.get(&partition).is_some_and(|owner| *owner != id);
            if !moves {
                plan.entry(id.clone()).or_default().entry(partition.0).or_default().push(partition.1);
            }
        }
    }
    plan
}

/// Who holds what now. Of two who claim the same partition the later generation is right; if both are of
/// one generation neither is believed, for one of them was expelled without knowing.
fn owners(members: &BTreeMap<String, Member>, partition_counts: &BTreeMap<String, i32>) -> BTreeMap<Partition, String> {
    let mut claims: BTreeMap<Partition, (i32, Option<&String>)> = BTreeMap::new();
    for (id, member) in members {
        let generation = member.subscription.generation_id;
        for (topic, indexes) in &member.subscription.owned {
            let Some(count) = partition_counts.get(topic) else { continue };
            for index in indexes.iter().filter(|i| (0..*count).contains(*i)) {
                if !member.wants(topic) {
                    continue;
                }
                let claim = claims.entry((topic.clone(), *index)).or_insert((generation, Some(id)));
                if claim.1 != Some(id) {
                    match generation.cmp(&claim.0) {
                        std::cmp::Ordering::Greater => *claim = (generation, Some(id)),
                        std::cmp::Ordering::Equal => claim.1 = None,
                        std::cmp::Ordering::Less => {}
                    }
                }
            }
        }
    }
    claims.into_iter().filter_map(|(partition, (_, id))| Some((partition, id?.clone()))).collect()
}

/// The state to reach: owners keep theirs, free partitions go to the member with least, and while moving one
/// from a member to another that has two fewer evens them out, it moves.
fn balance(
    members: &BTreeMap<String, Member>,
    partition_counts: &BTreeMap<String, i32>,
    owners: &BTreeMap<Partition, String>,
) -> BTreeMap<String, BTreeSet<Partition>> {
    let mut holdings: BTreeMap<String, BTreeSet<Partition>> =
        members.keys().map(|id| (id.clone(), BTreeSet::new())).collect();
    let order = in_order(members);
    let mut free = Vec::new();
    for (topic, count) in partition_counts {
        for index in 0..*count {
            let partition = (topic.clone(), index);
            match owners.get(&partition) {
                Some(owner) => {
                    holdings.entry(owner.clone()).or_default().insert(partition);
                }
                None => free.push(partition),
            }
        }
    }
    for partition in free {
        let least = order.iter().filter(|id| members[**id].wants(&partition.0)).min_by_key(|id| holdings[**id].len());
        if let Some(id) = least {
            holdings.entry((*id).clone()).or_default().insert(partition);
        }
    }
    // Each move lowers the sum of squares of the counts, so this ends.
    while let Some((from, to, partition)) = improving_move(members, &order, &holdings) {
        holdings.entry(from).or_default().remove(&partition);
        holdings.entry(to).or_default().insert(partition);
    }
    holdings
}

/// The move from the fullest member that helps most; `None` if the plan is balanced.
fn improving_move(
    members: &BTreeMap<String, Member>,
    order: &[&String],
    holdings: &BTreeMap<String, BTreeSet<Partition>>,
) -> Option<(String, String, Partition)> {
    let mut by_count: Vec<&String> = order.to_vec();
    by_count.sort_by_key(|id| std::cmp::Reverse(holdings[*id].len()));
    let least_count = by_count.last().map_or(0, |id| holdings[*id].len());
    for from in &by_count {
        let from_count = holdings[*from].len();
        if from_count < least_count + 2 {
            return None;
        }
        // The last partition moves first, so that the numbers that stay are the low ones.
        for partition in holdings[*from].iter().rev() {
            let to = by_count
                .iter()
                .rev()
                .find(|to| holdings[**to].len() + 2 <= from_count && members[**to].wants(&partition.0));
            if let Some(to) = to {
                return Some(((*from).clone(), (*to).clone(), partition.clone()));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::tests::member;
    use super::*;

    fn holding(topics: &[&str], owned: &[(&str, &[i32])], generation_id: i32) -> Member {
        let mut member = member(topics);
        member.subscription.owned = owned.iter().map(|(t, ps)| ((*t).to_owned(), ps.to_vec())).collect();
        member.subscription.generation_id = generation_id;
        member
    }

    /// Goal: a newcomer's share is first revoked and only then given. Method: both rounds.
    #[test]
    fn a_partition_moves_in_two_rounds() {
        let counts = [("t".to_owned(), 4)].into();
        let mut members: BTreeMap<String, Member> =
            [("a".to_owned(), holding(&["t"], &[("t", &[0, 1, 2, 3])], 1)), ("b".to_owned(), member(&["t"]))].into();
        let first = assign(&members, &counts);
        assert_eq!(first["a"]["t"], [0, 1]);
        assert!(first["b"].is_empty());
        members.insert("a".into(), holding(&["t"], &[("t", &[0, 1])], 2));
        let second = assign(&members, &counts);
        assert_eq!((&second["a"]["t"], &second["b"]["t"]), (&vec![0, 1], &vec![2, 3]));
    }

    #[test]
    fn at_once_a_newcomer_gets_its_share_and_the_rest_stays() {
        let members: BTreeMap<String, Member> = [
            ("a".to_owned(), holding(&["t"], &[("t", &[0, 2, 4])], 1)),
            ("b".to_owned(), holding(&["t"], &[("t", &[1, 3, 5])], 1)),
            ("c".to_owned(), member(&["t"])),
        ]
        .into();
        let plan = assign_at_once(&members, &[("t".to_owned(), 6)].into());
        assert_eq!((&plan["a"]["t"], &plan["b"]["t"], &plan["c"]["t"]), (&vec![0, 2], &vec![1, 3], &vec![4, 5]));
    }

    #[test]
    fn a_leavers_partitions_spread_and_nothing_else_moves() {
        let members = [
            ("a".to_owned(), holding(&["t"], &[("t", &[0, 1])], 3)),
            ("b".to_owned(), holding(&["t"], &[("t", &[2, 3])], 3)),
        ]
        .into();
        let plan = assign(&members, &[("t".to_owned(), 6)].into());
        assert_eq!((&plan["a"]["t"], &plan["b"]["t"]), (&vec![0, 1, 4], &vec![2, 3, 5]));
    }

    #[test]
    fn an_expelled_members_old_claim_loses_and_a_tie_is_nobodys() {
        let members: BTreeMap<String, Member> = [
            ("a".to_owned(), holding(&["t"], &[("t", &[0, 1])], 5)),
            ("b".to_owned(), holding(&["t"], &[("t", &[0])], 4)),
            ("c".to_owned(), holding(&["t"], &[("t", &[1])], 5)),
        ]
        .into();
        let owners = owners(&members, &[("t".to_owned(), 2)].into());
        assert_eq!(owners, [(("t".to_owned(), 0), "a".to_owned())].into());
    }
}
