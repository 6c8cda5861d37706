//! A cluster on the way to its plan: where replicas lie now, and what each broker would hold.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_model::NodeId;

use super::plan::Reason;
use super::{PartitionPicture, Picture};

/// Brokers and racks are numbered here; `at` is a broker's number.
pub(super) struct Draft<'a> {
    picture: &'a Picture,
    racks: Vec<usize>,
    /// By partition: its replicas in order. A broker that the picture does not know is kept and never chosen.
    replicas: Vec<Vec<usize>>,
    /// By broker: the partitions that have a replica there which is not preferred as leader.
    followed: Vec<BTreeSet<usize>>,
    /// And those whose is.
    led: Vec<BTreeSet<usize>>,
    /// Open brokers by what they hold.
    by_count: BTreeSet<(usize, usize)>,
    ids: Vec<NodeId>,
    /// Why a partition changes: the first reason.
    reasons: BTreeMap<usize, Reason>,
}

impl<'a> Draft<'a> {
    pub fn new(picture: &'a Picture) -> Draft<'a> {
        let mut ids: Vec<NodeId> = picture.brokers.iter().map(|broker| broker.id).collect();
        let mut numbers: BTreeMap<NodeId, usize> = ids.iter().copied().zip(0..).collect();
        for id in picture.partitions.iter().flat_map(|partition| &partition.replicas) {
            numbers.entry(*id).or_insert_with(|| {
                ids.push(*id);
                ids.len() - 1
            });
        }
        let mut names: BTreeMap<&str, usize> = BTreeMap::new();
        let mut next = 0;
        let racks = (0..ids.len()).map(|at| {
            let rack = picture.brokers.get(at).and_then(|broker| broker.rack.as_deref());
            let fresh = next;
            // Brokers without a rack share one, as those of one rack do.
            let rack = *names.entry(rack.unwrap_or_default()).or_insert(fresh);
            next += usize::from(rack == fresh);
            rack
        });
        let racks = racks.collect();
        let replicas: Vec<Vec<usize>> = picture
            .partitions
            .iter()
            .map(|partition| partition.replicas.iter().map(|id| numbers[id]).collect())
            .collect();
        let mut followed = vec![BTreeSet::new(); ids.len()];
        let mut led = vec![BTreeSet::new(); ids.len()];
        for (index, replicas) in replicas.iter().enumerate() {
            for (place, at) in replicas.iter().enumerate() {
                let held = if place == 0 { &mut led[*at] } else { &mut followed[*at] };
                held.insert(index);
            }
        }
        let open =
            (0..picture.brokers.len()).filter(|at| picture.brokers[*at].is_open && !picture.brokers[*at].is_leaving);
        let by_count = open.map(|at| (followed[at].len() + led[at].len(), at)).collect();
        Draft { picture, racks, replicas, followed, led, by_count, ids, reasons: BTreeMap::new() }
    }

    pub fn id(&self, at: usize) -> NodeId {
        self.ids[at]
    }

    pub fn rack(&self, at: usize) -> usize {
        self.racks[at]
    }

    pub fn partition(&self, index: usize) -> &'a PartitionPicture {
        &self.picture.partitions[index]
    }

    pub fn replicas(&self, index: usize) -> &[usize] {
        &self.replicas[index]
    }

    /// All partitions that have a replica there, those that it is not preferred to lead first.
    pub fn held(&self, at: usize) -> impl Iterator<Item = usize> + '_ {
        self.followed[at].iter().chain(&self.led[at]).copied()
    }

    pub fn held_count(&self, at: usize) -> usize {
        self.followed[at].len() + self.led[at].len()
    }

    /// The partitions that it is preferred to lead.
    pub fn led(&self, at: usize) -> &BTreeSet<usize> {
        &self.led[at]
    }

    pub fn leads(&self, at: usize) -> usize {
        self.led[at].len()
    }

    pub fn is_leaving(&self, at: usize) -> bool {
        self.picture.brokers.get(at).is_some_and(|broker| broker.is_leaving)
    }

    /// May be given replicas.
    pub fn is_open(&self, at: usize) -> bool {
        self.picture.brokers.get(at).is_some_and(|broker| broker.is_open && !broker.is_leaving)
    }

    /// Open brokers, those with the fewest replicas first.
    pub fn open(&self) -> impl DoubleEndedIterator<Item = (usize, usize)> + '_ {
        self.by_count.iter().copied()
    }

    /// The broker that a replica should go to, instead of `from` if given: in a rack that the others are not in if there is one,
    /// then the one that holds the fewest.
    pub fn best_for(&self, index: usize, from: Option<usize>) -> Option<usize> {
        let others = || self.replicas[index].iter().copied().filter(|at| Some(*at) != from);
        let racks: BTreeSet<usize> = others().map(|at| self.racks[at]).collect();
        let mut fallback = None;
        for (_, at) in &self.by_count {
            if self.replicas[index].contains(at) {
                continue;
            }
            if !racks.contains(&self.racks[*at]) {
                return Some(*at);
            }
            fallback = fallback.or(Some(*at));
        }
        fallback
    }

    /// Whether the partition may have its replica on `to` instead of `from`, in no fewer racks than before.
    pub fn may_shift(&self, index: usize, from: usize, to: usize) -> bool {
        let replicas = &self.replicas[index];
        if self.partition(index).is_busy || !self.is_open(to) || replicas.contains(&to) {
            return false;
        }
        let is_taken = |rack| replicas.iter().any(|at| *at != from && self.racks[*at] == rack);
        self.racks[to] == self.racks[from] || !is_taken(self.racks[to]) || is_taken(self.racks[from])
    }

    /// Moves a replica; the newcomer takes its place in the order.
    pub fn shift(&mut self, index: usize, from: usize, to: usize, reason: Reason) {
        let place = self.replicas[index].iter().position(|at| *at == from);
        let Some(place) = place else { return };
        self.replicas[index][place] = to;
        self.recount(from, |followed, led| followed.remove(&index) || led.remove(&index));
        self.recount(to, |followed, led| if place == 0 { led.insert(index) } else { followed.insert(index) });
        self.reasons.entry(index).or_insert(reason);
    }

    /// Adds a replica at the end of the order.
    pub fn grow(&mut self, index: usize, to: usize) {
        self.replicas[index].push(to);
        let is_first = self.replicas[index].len() == 1;
        self.recount(to, |followed, led| if is_first { led.insert(index) } else { followed.insert(index) });
        self.reasons.entry(index).or_insert(Reason::Factor);
    }

    /// Makes another of its replicas the preferred leader.
    pub fn prefer(&mut self, index: usize, leader: usize) {
        let place = self.replicas[index].iter().position(|at| *at == leader);
        let Some(place) = place.filter(|place| *place > 0) else { return };
        let before = self.replicas[index][0];
        self.led[before].remove(&index);
        self.followed[before].insert(index);
        self.followed[leader].remove(&index);
        self.led[leader].insert(index);
        self.replicas[index].swap(0, place);
        self.reasons.entry(index).or_insert(Reason::Leaders);
    }

    fn recount(&mut self, at: usize, change: impl FnOnce(&mut BTreeSet<usize>, &mut BTreeSet<usize>) -> bool) {
        let was_there = self.by_count.remove(&(self.held_count(at), at));
        change(&mut self.followed[at], &mut self.led[at]);
        if was_there {
            self.by_count.insert((self.held_count(at), at));
        }
    }

    pub fn into_changes(self) -> impl Iterator<Item = (usize, Vec<NodeId>, Reason)> + 'a {
        let Draft { picture, replicas, ids, mut reasons, .. } = self;
        replicas.into_iter().enumerate().filter_map(move |(index, replicas)| {
            let reason = reasons.remove(&index)?;
            let to: Vec<NodeId> = replicas.into_iter().map(|at| ids[at]).collect();
            (to != picture.partitions[index].replicas).then_some((index, to, reason))
        })
    }
}
