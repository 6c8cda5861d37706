//! What every plan must be, whatever the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use proptest::prelude::*;
use thalweg_coordinator::planner::{BrokerPicture, Goals, PartitionPicture, Picture, Plan, Reason, plan};
use thalweg_model::NodeId;

/// A cluster of up to these many brokers and partitions: as many of up to 10 partitions as of 100 to 1,000.
fn picture_of_any_size(brokers: usize, partitions: usize) -> impl Strategy<Value = Picture> {
    let size = move |share: f64| (partitions as f64).powf(share) as usize;
    (0.0..1.0f64).prop_flat_map(move |share| picture(brokers, size(share)))
}

/// A cluster of up to these many brokers and partitions, evenly filled or not, with or without racks, some brokers closed or
/// leaving.
fn picture(brokers: usize, partitions: usize) -> impl Strategy<Value = Picture> {
    let broker = (0..4usize, 0..20u8);
    let partition = (any::<u64>(), 1..5usize, 0..3usize, 0..24u32, 0..40u8);
    (prop::collection::vec(broker, 1..=brokers), prop::collection::vec(partition, 0..=partitions), 0..3u8, 1..=brokers)
        .prop_map(|(brokers, partitions, rack_kind, filled)| {
            let brokers: Vec<BrokerPicture> = (1..)
                .zip(brokers)
                .map(|(id, (rack, fate))| BrokerPicture {
                    id: NodeId(id),
                    rack: (rack_kind > 0).then(|| format!("rack-{rack}")),
                    is_open: fate > 2,
                    is_leaving: fate == 0,
                })
                .collect();
            let filled = filled.min(brokers.len());
            let partitions = partitions.into_iter().map(|(seed, factor, missing, size, fate)| {
                let count = factor.min(filled);
                let start = seed as usize % filled;
                // A stride that is not always 1, and brokers that are each taken once.
                let mut ids: Vec<NodeId> =
                    (0..filled).map(|i| brokers[(start + i * (1 + seed as usize % 3)) % filled].id).collect();
                let mut seen = BTreeSet::new();
                ids.retain(|id| seen.insert(*id));
                ids.truncate(count);
                PartitionPicture {
                    factor: ids.len() + missing / 2,
                    replicas: ids,
                    bytes: 1u64 << size,
                    bytes_per_second: seed % 1_000_000,
                    is_busy: fate == 0,
                }
            });
            Picture { partitions: partitions.collect(), brokers }
        })
}

fn goals() -> impl Strategy<Value = Goals> {
    (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>())
        .prop_map(|(racks, replicas, bytes, traffic, leaders)| Goals { racks, replicas, bytes, traffic, leaders })
}

/// The cluster once the plan is carried out.
fn after(picture: &Picture, plan: &Plan) -> Picture {
    let mut after = picture.clone();
    plan.moves.iter().for_each(|one| after.partitions[one.partition].replicas.clone_from(&one.to));
    after
}

struct Brokers<'a>(BTreeMap<NodeId, &'a BrokerPicture>);

impl Brokers<'_> {
    fn of(picture: &Picture) -> Brokers<'_> {
        Brokers(picture.brokers.iter().map(|broker| (broker.id, broker)).collect())
    }

    fn is_open(&self, id: NodeId) -> bool {
        self.0[&id].is_open && !self.0[&id].is_leaving
    }

    fn racks<'b>(&self, ids: impl IntoIterator<Item = &'b NodeId>) -> BTreeSet<Option<&str>> {
        ids.into_iter().map(|id| self.0[id].rack.as_deref()).collect()
    }

    fn open(&self) -> Vec<NodeId> {
        self.0.keys().copied().filter(|id| self.is_open(*id)).collect()
    }
}

fn counts(picture: &Picture, of: impl Fn(&PartitionPicture) -> Vec<NodeId>) -> BTreeMap<NodeId, usize> {
    let mut counts: BTreeMap<NodeId, usize> = picture.brokers.iter().map(|broker| (broker.id, 0)).collect();
    picture.partitions.iter().flat_map(of).for_each(|id| *counts.entry(id).or_default() += 1);
    counts
}

fn spread(counts: &BTreeMap<NodeId, usize>, of: &[NodeId]) -> usize {
    let of = || of.iter().map(|id| counts[id]);
    of().max().unwrap_or(0) - of().min().unwrap_or(0)
}

/// Goal: no plan loses replicas or racks, names a wrong broker, leaves a leaving broker something without saying so, or goes on
/// for ever changing its mind.
fn check(picture: &Picture, goals: Goals) -> Result<(), TestCaseError> {
    let brokers = Brokers::of(picture);
    let made = plan(picture, goals);
    prop_assert_eq!(&made, &plan(picture, goals), "equal pictures give equal plans");
    let after = after(picture, &made);
    let stuck: BTreeMap<usize, Option<NodeId>> = made.stuck.iter().map(|one| (one.partition, one.broker)).collect();
    prop_assert!(made.moves.windows(2).all(|pair| pair[0].partition < pair[1].partition));
    for one in &made.moves {
        let before = &picture.partitions[one.partition];
        prop_assert!(!before.is_busy && one.from == before.replicas && one.to != one.from);
        prop_assert!(one.newcomers().all(|id| brokers.is_open(id)), "{one:?}");
        if !goals.racks && !goals.replicas && !goals.bytes && !goals.traffic && !goals.leaders {
            prop_assert!(matches!(one.reason, Reason::Drain | Reason::Factor));
        }
    }
    let open = brokers.open();
    for (index, (before, now)) in picture.partitions.iter().zip(&after.partitions).enumerate() {
        let distinct: BTreeSet<NodeId> = now.replicas.iter().copied().collect();
        prop_assert_eq!(distinct.len(), now.replicas.len(), "each broker once");
        prop_assert!(now.replicas.len() >= before.replicas.len(), "never fewer, so never below min ISR");
        prop_assert!(now.replicas.len() <= before.replicas.len().max(before.factor));
        if before.is_busy {
            continue;
        }
        if !stuck.contains_key(&index) {
            prop_assert_eq!(now.replicas.len(), before.replicas.len().max(before.factor));
            prop_assert!(now.replicas.iter().all(|id| !brokers.0[id].is_leaving));
        }
        // As many racks as before, where those who had to go leave a choice.
        let staying = now.replicas.iter().filter(|id| before.replicas.contains(id));
        let possible = brokers.racks(open.iter().chain(staying)).len();
        prop_assert!(
            brokers.racks(&now.replicas).len() >= brokers.racks(&before.replicas).len().min(possible),
            "{before:?} {now:?}"
        );
        let free: Vec<NodeId> = open.iter().copied().filter(|id| !now.replicas.contains(id)).collect();
        if goals.racks && brokers.racks(&now.replicas).len() < now.replicas.len() {
            let fresh = brokers.racks(&free);
            prop_assert!(fresh.is_subset(&brokers.racks(&now.replicas)), "{now:?} could be in one more rack");
        }
    }
    let has_racks = brokers.racks(&open).len() > 1;
    let is_free = picture.partitions.iter().all(|partition| !partition.is_busy);
    if goals.replicas && !has_racks && is_free {
        let held = counts(&after, |partition| partition.replicas.clone());
        let outside = open.iter().any(|id| {
            after.partitions.iter().any(|p| p.replicas.iter().any(|other| other != id && !brokers.is_open(*other)))
        });
        prop_assert!(outside || spread(&held, &open) <= 1, "{held:?}");
    }
    // What was reached needs nothing more: each stage by itself, for a later one may leave an earlier one a little to do.
    let copies = |plan: &Plan| plan.moves.iter().map(|one| one.newcomers().count()).sum::<usize>();
    let single = Goals { bytes: false, traffic: false, ..goals };
    let settled = self::after(picture, &plan(picture, single));
    prop_assert_eq!(copies(&plan(&settled, single)), 0, "nothing moves that lies well");
    Ok(())
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, max_shrink_iters: 2_000, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn a_plan_loses_nothing_and_moves_nothing_needlessly(picture in picture(12, 120), goals in goals()) {
        check(&picture, goals)?;
    }
}

proptest! {
    #![proptest_config(cases(40))]

    #[test]
    fn so_does_a_plan_of_a_larger_cluster(picture in picture_of_any_size(100, 2_000), goals in goals()) {
        check(&picture, goals)?;
    }
}

proptest! {
    #![proptest_config(cases(10_000))]

    /// For nightly runs, in release.
    #[test]
    #[ignore = "eight minutes; run with --profile sim -- --ignored"]
    fn ten_thousand_clusters(picture in picture_of_any_size(100, 20_000), goals in goals()) {
        check(&picture, goals)?;
    }
}

/// A cluster of `brokers` in 4 racks, of which the first `filled` hold everything.
fn large(brokers: i32, filled: i32, partitions: u64) -> Picture {
    let broker =
        |id| BrokerPicture { id: NodeId(id), rack: Some(format!("r{}", id % 4)), is_open: true, is_leaving: false };
    let partition = |index: u64| {
        let hash = index.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let first = (hash >> 33) as i32 % filled;
        PartitionPicture {
            replicas: (0..3).map(|i| NodeId(1 + (first + i * 7) % filled)).collect(),
            factor: 3,
            bytes: (hash >> 40) * (1 + hash % 1_000),
            bytes_per_second: hash >> 50,
            is_busy: false,
        }
    };
    Picture { brokers: (1..=brokers).map(broker).collect(), partitions: (0..partitions).map(partition).collect() }
}

/// Goal: brokers that join get their share, of everything. Method: 3 of 5 brokers hold all; the sums after the plan.
#[test]
fn brokers_that_join_get_an_equal_share_of_replicas_bytes_and_leaders() {
    let mut picture = large(5, 5, 0);
    picture.brokers.iter_mut().for_each(|broker| broker.rack = None);
    let sizes = [1, 2, 3, 5, 8, 13, 21, 34];
    let partition = |index: usize| PartitionPicture {
        replicas: (0..3).map(|i| NodeId(1 + ((index + i) % 3) as i32)).collect(),
        factor: 3,
        bytes: sizes[index % sizes.len()] << 20,
        bytes_per_second: 1,
        is_busy: false,
    };
    picture.partitions = (0..100).map(partition).collect();
    let made = plan(&picture, Goals::ALL);
    let after = after(&picture, &made);
    let all: Vec<NodeId> = picture.brokers.iter().map(|broker| broker.id).collect();
    assert_eq!(spread(&counts(&after, |partition| partition.replicas.clone()), &all), 0);
    assert_eq!(spread(&counts(&after, |partition| partition.replicas[..1].to_vec()), &all), 0);
    let mut bytes: BTreeMap<NodeId, u64> = BTreeMap::new();
    after.partitions.iter().for_each(|p| p.replicas.iter().for_each(|id| *bytes.entry(*id).or_default() += p.bytes));
    let mean = bytes.values().sum::<u64>() / 5;
    assert!(bytes.values().all(|sum| sum.abs_diff(mean) * 20 <= mean), "{bytes:?} around {mean}");
    let moved: usize = made.moves.iter().map(|one| one.newcomers().count()).sum();
    assert!(moved <= 160, "{moved} replicas are copied where 120 must be");

    picture = after;
    picture.brokers[4].is_leaving = true;
    let made = plan(&picture, Goals::NONE);
    assert!(
        made.stuck.is_empty()
            && made.moves.iter().all(|one| one.from.contains(&NodeId(5)) && !one.to.contains(&NodeId(5)))
    );
    assert_eq!(made.moves.len(), 60);
    picture.brokers[3].is_leaving = true;
    picture.brokers[2].is_leaving = true;
    let stuck = plan(&picture, Goals::NONE).stuck;
    assert_eq!(stuck.len(), 100, "three replicas need three brokers");
}

#[test]
#[ignore = "a matter of the release build"]
fn a_hundred_brokers_and_twenty_thousand_partitions_are_planned_within_two_seconds() {
    for filled in [100, 60] {
        let picture = large(100, filled, 20_000);
        let started = Instant::now();
        let made = plan(&picture, Goals::ALL);
        let took = started.elapsed();
        println!("{filled} of 100 brokers filled: {} moves in {took:?}", made.moves.len());
        assert!(took.as_secs_f64() < 2.0, "{took:?}");
    }
}
