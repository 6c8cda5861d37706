//! Partitions of a topic that comes and goes. Each life of the topic has partitions of its own, numbered through all lives:
//! what is meant for one life reaches no other, as with topic ids on the wire (KIP-516).

use std::collections::BTreeMap;
use std::ops::Range;

use thalweg_model::{PartitionIndex, TopicId};

use crate::broker::Broker;
use crate::coordinator::TOPIC;
use crate::log::SimLog;
use crate::world::World;

/// A partition of one life of the topic.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub topic: TopicId,
    pub index: PartitionIndex,
}

/// Every partition that ever was, by its number.
#[derive(Debug, Default)]
pub struct Parts {
    all: Vec<Part>,
    numbers: BTreeMap<(TopicId, PartitionIndex), usize>,
    /// Of the life that the coordinators know; empty while there is no topic.
    live: Range<usize>,
}

impl Parts {
    pub fn get(&self, partition: usize) -> Part {
        self.all[partition]
    }

    pub fn number(&self, topic: TopicId, index: PartitionIndex) -> Option<usize> {
        self.numbers.get(&(topic, index)).copied()
    }

    pub fn live(&self) -> Range<usize> {
        self.live.clone()
    }

    pub fn is_live(&self, partition: usize) -> bool {
        self.live.contains(&partition)
    }

    /// Also those whose topic is gone.
    pub fn count(&self) -> usize {
        self.all.len()
    }
}

impl World {
    /// The coordinators have applied a command: the topic may be gone, or there anew.
    pub fn follow_topic(&mut self) {
        let topic = self.coordinator.machine.state().topic(TOPIC).map(|topic| topic.id);
        let known = self.parts.all.get(self.parts.live.start).map(|part| part.topic);
        if topic == known.filter(|_| !self.parts.live.is_empty()) {
            return;
        }
        for partition in self.parts.live() {
            self.checker.forget(partition);
        }
        let first = self.parts.count();
        if let Some(topic) = topic {
            let state = self.coordinator.machine.state();
            let indexes: Vec<i32> = state.partitions_of(topic).map(|(index, _)| index).collect();
            indexes.into_iter().for_each(|index| self.add_part(Part { topic, index: PartitionIndex(index) }));
        }
        self.parts.live = first..self.parts.count();
        let live = self.parts.live();
        self.tell(|_| format!("coordinator: the topic has partitions {live:?}"));
    }

    fn add_part(&mut self, part: Part) {
        self.parts.numbers.insert((part.topic, part.index), self.parts.all.len());
        self.parts.all.push(part);
        self.checker.watch(self.brokers.iter().map(Broker::is_in_trouble).collect());
        for broker in &mut self.brokers {
            broker.disk.logs.push(SimLog::default());
            if let Some(process) = &mut broker.process {
                process.hosted.push(None);
            }
        }
        self.producers.iter_mut().for_each(|producer| producer.add_partition());
        self.consumers.iter_mut().for_each(|consumer| consumer.add_partition());
    }

    /// One of the topic's partitions, if there is a topic.
    pub fn any_live(&mut self) -> Option<usize> {
        let live = self.parts.live();
        (!live.is_empty()).then(|| live.start + self.rng.index(live.len()))
    }
}
