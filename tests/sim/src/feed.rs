//! The feed: what brokers hear of the registries, in order, some time later.

use std::collections::VecDeque;

use thalweg_coordinator::registry::Machine;
use thalweg_coordinator::registry::state::is_fed;
use thalweg_proto::v1;

use crate::message::{Event, Life, Node};
use crate::plan::MS;
use crate::rng::Rng;
use crate::world::{Phase, World};

/// A broker's way to the feed, and what is on it.
pub struct Stream {
    pub id: u64,
    pub life: Life,
    pub queue: VecDeque<v1::FeedItem>,
    is_due: bool,
}

impl World {
    /// A broker whose feed does not flow asks for it from where it stands.
    pub fn open_stream(&mut self, broker: usize) {
        let Some(process) = &self.brokers[broker].process else { return };
        let (life, from_index, node) = (process.life, process.image.index, Node(broker + 1));
        let is_cut = self.links.is_cut(node, Node::COORDINATOR) || self.links.is_cut(Node::COORDINATOR, node);
        if self.is_for_deposed() {
            // It lets nobody follow before it has made sure that it leads.
            return;
        }
        let coordinator = &mut self.coordinator;
        if coordinator.session.is_none() || is_cut || coordinator.has_stream(broker, life) {
            return;
        }
        let machine = &coordinator.machine;
        let is_at_hand = from_index > 0 && (coordinator.floor..=machine.feed_index()).contains(&from_index);
        let queue = if is_at_hand {
            coordinator.kept.iter().filter(|item| item.index > from_index).cloned().collect()
        } else {
            image(machine, &mut self.rng)
        };
        let id = coordinator.next_stream;
        coordinator.next_stream += 1;
        coordinator.streams[broker] = Some(Stream { id, life, queue, is_due: false });
        self.feed_later(broker);
    }

    /// Items reach the broker, in order; on a link that is cut they wait, or the stream breaks.
    pub fn feed(&mut self, broker: usize, stream: u64) {
        let life = self.life(broker);
        let is_cut = self.links.is_cut(Node::COORDINATOR, Node(broker + 1));
        let Some(open) = self.coordinator.streams[broker].as_mut().filter(|open| open.id == stream) else { return };
        if life != Some(open.life) || (is_cut && self.rng.chance(100)) {
            self.coordinator.streams[broker] = None;
            return;
        }
        if is_cut {
            return self.after(100 * MS, Event::Feed { broker, stream });
        }
        open.is_due = false;
        let count = self.rng.between(1, 4) as usize;
        let items: Vec<v1::FeedItem> = open.queue.drain(..count.min(open.queue.len())).collect();
        for item in &items {
            self.feed_item(broker, item);
        }
        self.feed_later(broker);
    }

    fn feed_later(&mut self, broker: usize) {
        let network = self.plan.network;
        let mut delay = self.rng.between(network.delay_min, network.delay_max);
        if matches!(self.phase, Phase::Faults { .. }) && self.rng.chance(network.slow_per_mille) {
            delay += self.rng.between(50, 1_500) * MS;
        }
        let Some(stream) = &mut self.coordinator.streams[broker] else { return };
        if stream.queue.is_empty() || stream.is_due {
            return;
        }
        stream.is_due = true;
        let stream = stream.id;
        self.after(delay, Event::Feed { broker, stream });
    }

    /// Passes on what an entry has changed.
    pub fn publish(&mut self, index: u64, records: Vec<v1::Record>) {
        if records.is_empty() {
            return;
        }
        let item = v1::FeedItem { index, records, image_start: false, image_complete: false };
        let coordinator = &mut self.coordinator;
        for stream in coordinator.streams.iter_mut().flatten() {
            stream.queue.push_back(item.clone());
        }
        coordinator.kept.push_back(item);
        while coordinator.kept.len() > coordinator.kept_max {
            coordinator.floor = coordinator.kept.pop_front().map_or(index, |oldest| oldest.index);
        }
        for broker in 0..self.brokers.len() {
            self.feed_later(broker);
        }
    }
}

/// The whole state, in pieces of any size.
fn image(machine: &Machine, rng: &mut Rng) -> VecDeque<v1::FeedItem> {
    let index = machine.feed_index();
    let mut items = VecDeque::from([v1::FeedItem { index, image_start: true, ..v1::FeedItem::default() }]);
    for record in machine.state().records().filter(is_fed) {
        if rng.chance(200) {
            items.push_back(v1::FeedItem { index, ..v1::FeedItem::default() });
        }
        if let Some(last) = items.back_mut() {
            last.records.push(record);
        }
    }
    if let Some(last) = items.back_mut() {
        last.image_complete = true;
    }
    items
}
