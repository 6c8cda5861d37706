//! A leader of the coordinators that has not heard that another one leads: some still ask it. It answers nobody, since it makes
//! sure first that it leads (REPLICATION R6), and what it proposes comes to nothing.

use thalweg_coordinator::registry::Machine;

use crate::groups::{GroupAnswer, GroupCall, offsets};
use crate::message::{Body, Message, Node};
use crate::plan::MS;
use crate::world::World;

/// What is left of a leadership.
pub struct Deposed {
    until: u64,
    /// The registries as it knows them, for the mutant that answers from them.
    registries: Option<Machine>,
}

impl World {
    /// A leadership is over, and perhaps its leader does not know.
    pub fn depose(&mut self, downtime: u64) {
        if self.rng.chance(500) {
            let until = self.now + downtime + self.rng.between(0, 3_000) * MS;
            let answers = thalweg_model::mutant!("read-index");
            let registries = answers.then(|| self.coordinator.machine.clone());
            self.coordinator.deposed = Some(Deposed { until, registries });
            self.tell(|world| format!("the old leader lives on for {} ms", (until - world.now) / MS));
        }
    }

    /// Whether somebody takes the deposed leader for the leader.
    pub fn is_for_deposed(&mut self) -> bool {
        let now = self.now;
        self.coordinator.deposed.as_ref().is_some_and(|deposed| deposed.until > now) && self.rng.chance(400)
    }

    pub fn deposed_received(&mut self, message: Message) {
        let Some(registries) = self.coordinator.deposed.as_ref().and_then(|deposed| deposed.registries.as_ref()) else {
            return;
        };
        if let Body::Group { call, request: GroupCall::Offsets { group } } = message.body {
            let offsets = offsets(registries, group, self.plan.partition_count);
            let body = Body::GroupAnswer { call, answer: GroupAnswer::Offsets(offsets) };
            self.send(Node::COORDINATOR, message.from, body);
        }
    }
}
