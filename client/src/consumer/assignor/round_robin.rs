//! Partition after partition, member after member.

use std::collections::BTreeMap;

use super::{Member, empty_plan, in_order};
use crate::consumer::protocol::TopicPartitions;

/// Goes through all partitions in order of topic and number, and through the members in a circle; a member
/// that does not want the topic is passed over.
pub(super) fn assign(
    members: &BTreeMap<String, Member>,
    partition_counts: &BTreeMap<String, i32>,
) -> BTreeMap<String, TopicPartitions> {
    let mut plan = empty_plan(members);
    let circle = in_order(members);
    let mut next = 0;
    for (topic, count) in partition_counts {
        if !members.values().any(|member| member.wants(topic)) {
            continue;
        }
        for partition in 0..*count {
            while !members[circle[next]].wants(topic) {
                next = (next + 1) % circle.len();
            }
            plan.entry(circle[next].clone()).or_default().entry(topic.clone()).or_default().push(partition);
            next = (next + 1) % circle.len();
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::super::tests::member;
    use super::*;

    #[test]
    fn two_topics_are_dealt_out_as_one_row() {
        let members = ["m1", "m2"].map(|id| (id.to_owned(), member(&["a", "b"]))).into();
        let plan = assign(&members, &[("a".to_owned(), 3), ("b".to_owned(), 3)].into());
        assert_eq!((&plan["m1"]["a"], &plan["m1"]["b"]), (&vec![0, 2], &vec![1]));
        assert_eq!((&plan["m2"]["a"], &plan["m2"]["b"]), (&vec![1], &vec![0, 2]));
    }
}
