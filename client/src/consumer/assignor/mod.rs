//! Who reads what: the leader of a classic group divides the partitions.
//!
//! Pure: equal inputs give equal plans, whoever leads.

mod range;
mod round_robin;
mod sticky;

use std::collections::BTreeMap;

use crate::consumer::protocol::{Subscription, TopicPartitions};

/// How partitions are divided. The names are those that other clients' members use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Assignor {
    /// Consecutive partitions of each topic; the same numbers of every topic go to the same member.
    Range,
    /// All partitions of all topics in turn.
    RoundRobin,
    /// Balanced, and each member gets back what it had; all stop while the group rebalances (KIP-54).
    Sticky,
    /// As [`Assignor::Sticky`], and partitions move without the others stopping (KIP-429).
    CooperativeSticky,
}

impl Assignor {
    pub fn name(self) -> &'static str {
        match self {
            Assignor::Range => "range",
            Assignor::RoundRobin => "roundrobin",
            Assignor::Sticky => "sticky",
            Assignor::CooperativeSticky => "cooperative-sticky",
        }
    }

    pub fn from_name(name: &str) -> Option<Assignor> {
        Assignor::ALL.into_iter().find(|a| a.name() == name)
    }

    pub const ALL: [Assignor; 4] =
        [Assignor::Range, Assignor::RoundRobin, Assignor::Sticky, Assignor::CooperativeSticky];

    /// Whether members keep their partitions while the group rebalances.
    pub fn is_cooperative(self) -> bool {
        self == Assignor::CooperativeSticky
    }

    /// Divides `partition_counts` (topics that exist) among `members` by member id.
    ///
    /// Every member gets an entry. Every partition of a topic that somebody subscribed goes to exactly one
    /// subscriber, but for the cooperative assignor, which leaves out those that their owner must give up first.
    pub(crate) fn assign(
        self,
        members: &BTreeMap<String, Member>,
        partition_counts: &BTreeMap<String, i32>,
    ) -> BTreeMap<String, TopicPartitions> {
        match self {
            Assignor::Range => range::assign(members, partition_counts),
            Assignor::RoundRobin => round_robin::assign(members, partition_counts),
            Assignor::Sticky => sticky::assign_at_once(members, partition_counts),
            Assignor::CooperativeSticky => sticky::assign(members, partition_counts),
        }
    }
}

/// A member as the leader sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Member {
    pub(crate) group_instance_id: Option<String>,
    pub(crate) subscription: Subscription,
}

impl Member {
    fn wants(&self, topic: &str) -> bool {
        self.subscription.topics.iter().any(|t| t == topic)
    }
}

/// Member ids in the order of assignment: static members by instance id first, so that a restart changes nothing.
fn in_order(members: &BTreeMap<String, Member>) -> Vec<&String> {
    let mut ids: Vec<&String> = members.keys().collect();
    ids.sort_by_key(|id| {
        let instance = members[*id].group_instance_id.as_deref();
        (instance.is_none(), instance.unwrap_or(id.as_str()))
    });
    ids
}

fn empty_plan(members: &BTreeMap<String, Member>) -> BTreeMap<String, TopicPartitions> {
    members.keys().map(|id| (id.clone(), TopicPartitions::new())).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(super) fn member(topics: &[&str]) -> Member {
        let mut topics: Vec<String> = topics.iter().map(|t| (*t).to_owned()).collect();
        topics.sort();
        Member { group_instance_id: None, subscription: Subscription { topics, ..Subscription::default() } }
    }

    fn everything(plan: &BTreeMap<String, TopicPartitions>) -> Vec<(String, i32)> {
        let mut all: Vec<(String, i32)> = plan
            .values()
            .flat_map(|topics| topics.iter().flat_map(|(t, ps)| ps.iter().map(move |p| (t.clone(), *p))))
            .collect();
        all.sort();
        all
    }

    proptest! {
        /// Goal: nobody reads a partition twice and none is forgotten. Method: any subscriptions, no owners yet.
        #[test]
        fn every_wanted_partition_goes_to_exactly_one_subscriber(
            wants in proptest::collection::vec(proptest::collection::btree_set(0usize..4, 0..4), 1..6),
            counts in proptest::collection::vec(0i32..7, 4),
        ) {
            let names = ["a", "b", "c", "d"];
            let members: BTreeMap<String, Member> = wants.iter().enumerate()
                .map(|(i, set)| (format!("m{i}"), member(&set.iter().map(|t| names[*t]).collect::<Vec<_>>())))
                .collect();
            let partition_counts: BTreeMap<String, i32> =
                names.iter().zip(&counts).map(|(n, c)| ((*n).to_owned(), *c)).collect();
            let expected: Vec<(String, i32)> = partition_counts.iter()
                .filter(|(topic, _)| members.values().any(|m| m.wants(topic)))
                .flat_map(|(topic, count)| (0..*count).map(move |p| (topic.clone(), p)))
                .collect();
            for assignor in Assignor::ALL {
                let plan = assignor.assign(&members, &partition_counts);
                prop_assert_eq!(everything(&plan), expected.clone(), "{:?}", assignor);
                for (id, topics) in &plan {
                    for topic in topics.keys() {
                        prop_assert!(members[id].wants(topic));
                    }
                }
            }
        }
    }
}
