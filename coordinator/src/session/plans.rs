//! Carries a plan out: begins its moves a few at a time, and ends it when all are done.
//!
//! Nothing here outlives the leadership but what the registries say; the next leader goes on from that.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_model::{MonoTime, NodeId};
use thalweg_proto::v1::command::Kind;
use thalweg_proto::v1::{AlterReassignmentsRequest, EndPlan, PlanRecord, PlanStep, Reassignment};

use super::{Effect, Purpose, Session};
use crate::registry::plans::{Progress, progress, wanted};
use crate::registry::state::State;
use crate::registry::{Machine, Outcome};

/// What this leadership knows of the plan under way.
#[derive(Debug, Default)]
pub(super) struct PlanRun {
    /// A command of the plan is under way.
    is_settling: bool,
    /// The plan that the rest is about.
    id: u64,
    /// Moves that were refused when they were to begin: they are left out.
    refused: BTreeSet<(String, i32)>,
    /// While there is a plan.
    next_look: Option<MonoTime>,
}

impl PlanRun {
    pub fn restore(machine: &Machine, now: MonoTime) -> PlanRun {
        PlanRun { next_look: machine.state().plan().map(|_| now), ..PlanRun::default() }
    }

    pub fn next_deadline(&self) -> Option<MonoTime> {
        self.next_look.filter(|_| !self.is_settling)
    }
}

impl Session {
    pub(super) fn tick_plan(&mut self, now: MonoTime, machine: &Machine, out: &mut Vec<Effect>) {
        let run = &mut self.plan;
        let Some(plan) = machine.state().plan() else {
            run.next_look = None;
            return;
        };
        if run.is_settling || run.next_look.is_some_and(|due| now < due) {
            return;
        }
        run.next_look = Some(now.plus_ms(LOOK_INTERVAL_MS));
        if run.id != plan.id {
            (run.id, run.refused) = (plan.id, BTreeSet::new());
        }
        match next(machine.state(), plan, &run.refused) {
            Next::Wait => {}
            Next::Begin(partitions) => {
                run.is_settling = true;
                let request = AlterReassignmentsRequest { partitions, fixed_replication_factor: false };
                self.propose(Purpose::PlanMoves, Kind::AlterReassignments(request), out);
            }
            Next::End => {
                run.is_settling = true;
                self.propose(Purpose::PlanEnd, Kind::EndPlan(EndPlan { id: plan.id, cancel: false }), out);
            }
        }
    }

    pub(super) fn plan_moves_settled(&mut self, outcome: Outcome) {
        self.plan.is_settling = false;
        if let Outcome::Reassigned(answers) = outcome {
            let refused =
                answers.into_iter().filter(|answer| answer.error.as_ref().is_some_and(|error| error.code != 0));
            self.plan.refused.extend(refused.map(|answer| (answer.topic, answer.partition)));
        }
    }

    pub(super) fn plan_ended(&mut self) {
        self.plan.is_settling = false;
    }
}

/// What a plan needs now.
#[derive(Debug, PartialEq)]
enum Next {
    Wait,
    Begin(Vec<Reassignment>),
    End,
}

fn next(state: &State, plan: &PlanRecord, refused: &BTreeSet<(String, i32)>) -> Next {
    let mut moving = 0;
    let mut arriving: BTreeMap<NodeId, usize> = BTreeMap::new();
    let mut waiting = Vec::new();
    let note = |step: &PlanStep, arriving: &mut BTreeMap<NodeId, usize>| {
        newcomers(step).for_each(|id| *arriving.entry(id).or_default() += 1);
    };
    for step in &plan.steps {
        match progress(state, step) {
            Progress::Moving => {
                moving += 1;
                note(step, &mut arriving);
            }
            Progress::Waiting if !refused.contains(&(step.topic.clone(), step.partition)) => waiting.push(step),
            Progress::Waiting | Progress::Done | Progress::Overtaken => {}
        }
    }
    if moving == 0 && waiting.is_empty() {
        return Next::End;
    }
    let mut begun = Vec::new();
    for step in waiting {
        // An order of replicas alone copies nothing.
        let is_copied = newcomers(step).next().is_some();
        let has_room = moving < MOVES_MAX
            && newcomers(step).all(|id| arriving.get(&id).copied().unwrap_or(0) < ARRIVALS_PER_BROKER_MAX);
        if is_copied && !has_room {
            continue;
        }
        moving += usize::from(is_copied);
        note(step, &mut arriving);
        begun.push(wanted(step));
        if begun.len() == BEGUN_AT_ONCE_MAX {
            break;
        }
    }
    if begun.is_empty() { Next::Wait } else { Next::Begin(begun) }
}

/// Brokers that copy the partition.
fn newcomers(step: &PlanStep) -> impl Iterator<Item = NodeId> + '_ {
    step.to.iter().filter(|id| !step.from.contains(id)).map(|id| NodeId(*id))
}

const LOOK_INTERVAL_MS: u64 = 200;
/// Moves under way at a time, of the whole cluster.
const MOVES_MAX: usize = 64;
/// Replicas under way to one broker at a time. They share its limit; more at a time would only end later, all of them.
const ARRIVALS_PER_BROKER_MAX: usize = 4;
/// Moves that one command begins.
const BEGUN_AT_ONCE_MAX: usize = 256;
