//! Topics that left the number of their replicas to the cluster gain some when brokers join.
//!
//! Carried out as a plan like any other: throttled, shown by `thalweg rebalance status`, gone on with by the next leader.

use thalweg_model::MonoTime;
use thalweg_proto::v1::command::Kind;
use thalweg_proto::v1::{PlanStep, StartPlan};

use super::{Effect, Purpose, Session};
use crate::planner::{self, BrokerPicture, Goals, PartitionPicture, Picture};
use crate::registry::state::{State, id_bytes};
use crate::registry::{Machine, configs, features};
use crate::settings::CoordinatorSettings;

/// When this leadership looks next, and what it has begun.
#[derive(Debug)]
pub(super) struct Growth {
    /// `None`: one replica is all that a topic gets.
    next_look: Option<MonoTime>,
    begun: Vec<PlanStep>,
}

impl Growth {
    pub fn restore(settings: &CoordinatorSettings, now: MonoTime) -> Growth {
        let is_any = settings.default_replication_factor > 1;
        Growth { next_look: is_any.then(|| now.plus_ms(LOOK_INTERVAL_MS)), begun: Vec::new() }
    }

    pub fn next_deadline(&self) -> Option<MonoTime> {
        self.next_look
    }
}

impl Session {
    pub(super) fn tick_growth(&mut self, now: MonoTime, machine: &Machine, out: &mut Vec<Effect>) {
        if self.growth.next_look.is_none_or(|due| now < due) {
            return;
        }
        self.growth.next_look = Some(now.plus_ms(LOOK_INTERVAL_MS));
        let state = machine.state();
        let is_known = state.feature_level(features::VERSION) >= features::LEVEL_OF_CLUSTER_KEYS;
        if !is_known || state.plan().is_some() || !configs::grows_replicas(state) {
            return;
        }
        let steps = steps(state, self.settings.default_replication_factor);
        if steps.is_empty() {
            return;
        }
        // What was begun and is as it was did not work: somebody called it off, or it was refused.
        if steps == self.growth.begun {
            self.growth.next_look = Some(now.plus_ms(AGAIN_INTERVAL_MS));
        }
        self.growth.begun.clone_from(&steps);
        self.propose(Purpose::Unwatched, Kind::StartPlan(StartPlan { steps }), out);
    }
}

/// What the topics lack that are to grow to `factor` replicas, as far as there are brokers.
fn steps(state: &State, factor: i32) -> Vec<PlanStep> {
    let mut picture = Picture::default();
    for (id, broker) in state.brokers() {
        picture.brokers.push(BrokerPicture {
            id,
            rack: broker.rack.clone(),
            is_open: state.takes_replicas(id),
            // Emptying brokers is another plan's.
            is_leaving: false,
        });
    }
    let open = picture.brokers.iter().filter(|broker| broker.is_open).count();
    let wanted = usize::try_from(factor).unwrap_or(1).min(open);
    let mut places = Vec::new();
    for (name, topic) in state.topics() {
        for (index, partition) in state.partitions_of(topic.id) {
            // The others are there so that what grows goes where there is least.
            let factor = if topic.grows { wanted.max(partition.replicas.len()) } else { partition.replicas.len() };
            places.push((name, topic.id, index));
            picture.partitions.push(PartitionPicture {
                replicas: partition.replicas.clone(),
                factor,
                bytes: 0,
                bytes_per_second: 0,
                is_busy: partition.is_moving() || partition.replicas.is_empty(),
            });
        }
    }
    if picture.partitions.iter().all(|partition| partition.is_busy || partition.factor <= partition.replicas.len()) {
        return Vec::new();
    }
    let step = |planned: planner::Move| {
        let (name, id, partition) = places[planned.partition];
        PlanStep {
            topic: name.to_owned(),
            topic_id: id_bytes(id),
            partition,
            from: planned.from.iter().map(|id| id.0).collect(),
            to: planned.to.iter().map(|id| id.0).collect(),
            bytes: 0,
            reason: REASON.to_owned(),
        }
    };
    planner::plan(&picture, Goals::NONE).moves.into_iter().map(step).take(STEPS_MAX).collect()
}

const REASON: &str = "brokers have joined, and its creator left the number of replicas to the cluster";
const LOOK_INTERVAL_MS: u64 = 2_000;
const AGAIN_INTERVAL_MS: u64 = 60_000;
/// Of one plan; the rest comes with the next.
const STEPS_MAX: usize = 10_000;
