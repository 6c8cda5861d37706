//! Consecutive partitions, topic by topic.

use std::collections::BTreeMap;

use super::{Member, empty_plan, in_order};
use crate::consumer::protocol::TopicPartitions;

/// Of `n` partitions and `m` subscribers, the first `n % m` get `n / m + 1` and the others `n / m`.
pub(super) fn assign(
    members: &BTreeMap<String, Member>,
    partition_counts: &BTreeMap<String, i32>,
) -> BTreeMap<String, TopicPartitions> {
    let mut plan = empty_plan(members);
    for (topic, count) in partition_counts {
        let subscribers: Vec<&String> = in_order(members).into_iter().filter(|id| members[*id].wants(topic)).collect();
        let member_count = i32::try_from(subscribers.len()).unwrap_or(i32::MAX);
        if member_count == 0 {
            continue;
        }
        let mut next = 0;
        for (i, id) in (0..).zip(subscribers) {
            let share = count / member_count + i32::from(i < count % member_count);
            if share > 0 {
                plan.entry(id.clone()).or_default().insert(topic.clone(), (next..next + share).collect());
            }
            next += share;
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::super::tests::member;
    use super::*;

    #[test]
    fn the_first_members_get_one_more() {
        let members = ["m1", "m2", "m3"].map(|id| (id.to_owned(), member(&["t"]))).into();
        let plan = assign(&members, &[("t".to_owned(), 7)].into());
        let shares: Vec<&Vec<i32>> = plan.values().map(|topics| &topics["t"]).collect();
        assert_eq!(shares, [&vec![0, 1, 2], &vec![3, 4], &vec![5, 6]]);
    }

    #[test]
    fn a_static_member_keeps_its_place_under_a_new_member_id() {
        let mut members: BTreeMap<String, Member> = ["m1", "z"].map(|id| (id.to_owned(), member(&["t"]))).into();
        members.get_mut("z").unwrap().group_instance_id = Some("i".into());
        let plan = assign(&members, &[("t".to_owned(), 2)].into());
        assert_eq!((&plan["z"]["t"], &plan["m1"]["t"]), (&vec![0], &vec![1]));
    }
}
