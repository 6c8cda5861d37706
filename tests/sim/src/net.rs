//! The network: messages are lost, doubled, delayed and overtaken; links are cut in either direction.

use std::collections::BTreeMap;

use crate::message::{Body, Event, Message, Node};
use crate::nemesis::Fault;
use crate::plan::MS;
use crate::world::{Phase, World};

/// Which links are cut now. Cuts of one link add up.
#[derive(Clone, Debug, Default)]
pub struct Links {
    cuts: BTreeMap<(Node, Node), u32>,
}

impl Links {
    pub fn is_cut(&self, from: Node, to: Node) -> bool {
        !self.cuts.is_empty() && self.cuts.contains_key(&(from, to))
    }

    pub fn cut(&mut self, from: Node, to: Node) {
        *self.cuts.entry((from, to)).or_default() += 1;
    }

    pub fn mend(&mut self, from: Node, to: Node) {
        if let Some(count) = self.cuts.get_mut(&(from, to)) {
            *count -= 1;
            if *count == 0 {
                self.cuts.remove(&(from, to));
            }
        }
    }

    pub fn mend_all(&mut self) {
        self.cuts.clear();
    }
}

impl World {
    /// Remembers some of what brokers say to each other and to the coordinators, to say it again much later.
    fn remember(&mut self, from: Node, to: Node, body: &Body) {
        let is_call =
            matches!(body, Body::Fetch { .. } | Body::AlterIsr { .. } | Body::Register { .. } | Body::Heartbeat { .. });
        if !is_call || !self.rng.chance(60) {
            return;
        }
        let message = Message { from, to, body: body.clone() };
        if self.echoes.len() < ECHOES_MAX {
            self.echoes.push(message);
        } else {
            let place = self.rng.index(ECHOES_MAX);
            self.echoes[place] = message;
        }
    }

    /// A few old calls come once more, whatever has become of whoever made them.
    pub fn echo(&mut self) -> bool {
        let count = self.rng.between(1, 8);
        for _ in 0..count {
            let Some(message) = self.rng.pick(&self.echoes).cloned() else { return false };
            let delay = self.rng.below(100 * MS);
            self.after(delay, Event::Deliver(Box::new(message)));
        }
        true
    }

    /// Sends, as the network likes: any message may be lost or come twice, whatever carries it. That is harsher than the
    /// connections of the product are; the rules have to bear a repetition of every call.
    pub fn send(&mut self, from: Node, to: Node, body: Body) {
        let network = self.plan.network;
        let is_hostile = matches!(self.phase, Phase::Faults { .. });
        if self.links.is_cut(from, to) || (is_hostile && self.rng.chance(network.loss_per_mille)) {
            return;
        }
        if is_hostile && self.plan.faults.contains(&Fault::Echo) {
            self.remember(from, to, &body);
        }
        let copies = if is_hostile && self.rng.chance(network.duplicate_per_mille) { 2 } else { 1 };
        for copy in 0..copies {
            let mut delay = self.rng.between(network.delay_min, network.delay_max);
            if is_hostile && self.rng.chance(network.slow_per_mille) {
                delay += self.rng.between(50, 1_500) * MS;
            }
            // A repetition may come much later.
            if copy > 0 && self.rng.chance(300) {
                delay += self.rng.between(10, 3_000) * MS;
            }
            self.after(delay, Event::Deliver(Box::new(Message { from, to, body: body.clone() })));
        }
    }
}

const ECHOES_MAX: usize = 40;
