//! How far a plan has come: once, or until its end.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use thalweg_client::admin::Admin;
use thalweg_client::admin::placement::{PlacementReport, PlanStep, StepProgress};
use thalweg_model::NodeId;

use super::plan::duration;
use crate::cli::failure::Failure;
use crate::cli::output::{bytes, note};

/// Counts of moves, and bytes.
#[derive(Debug, Default)]
pub struct Come {
    pub done: usize,
    pub moving: usize,
    pub waiting: usize,
    pub left_out: usize,
    pub bytes: u64,
    pub copied: u64,
    /// Brokers that something is to go to and that are not alive.
    pub waits_for: BTreeSet<i32>,
}

/// What is known beyond one look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Show {
    pub bytes_per_second: Option<u64>,
    pub with_bar: bool,
}

/// How far these moves have come.
pub async fn progress_of(admin: &Admin, report: &PlacementReport, steps: &[PlanStep]) -> Come {
    let mut come = Come::default();
    let mut arriving: BTreeMap<i32, Vec<&PlanStep>> = BTreeMap::new();
    for step in steps {
        come.bytes += step.bytes;
        match step.progress.unwrap_or_else(|| seen(report, step)) {
            StepProgress::Done => {
                come.done += 1;
                come.copied += step.bytes;
            }
            StepProgress::Moving => {
                come.moving += 1;
                step.newcomers().for_each(|id| arriving.entry(id).or_default().push(step));
            }
            StepProgress::Waiting => come.waiting += 1,
            StepProgress::Overtaken => come.left_out += 1,
        }
    }
    for (id, steps) in arriving {
        if report.brokers.iter().any(|broker| broker.id == id && broker.is_fenced) {
            come.waits_for.insert(id);
            continue;
        }
        // A broker that does not answer now has copied as much as before.
        let Ok(dirs) = admin.log_dirs(NodeId(id)).await else { continue };
        for step in steps {
            let here = dirs.iter().flat_map(|dir| &dir.partitions);
            let size = here
                .filter(|(tp, _)| tp.topic.as_str() == step.topic && tp.partition.0 == step.partition)
                .map(|(_, size)| *size)
                .sum::<u64>();
            come.copied += size.min(step.bytes / step.newcomers().count().max(1) as u64);
        }
    }
    come
}

/// As the placement shows it, when no plan says so.
fn seen(report: &PlacementReport, step: &PlanStep) -> StepProgress {
    let topic = report.topics.iter().find(|topic| topic.name == step.topic && topic.id == step.topic_id);
    let index = usize::try_from(step.partition).ok();
    let Some(partition) = topic.zip(index).and_then(|(topic, index)| topic.partitions.get(index)) else {
        return StepProgress::Overtaken;
    };
    let is_moving = !partition.adding.is_empty() || !partition.removing.is_empty();
    let is_there = partition.replicas.iter().filter(|id| !partition.removing.contains(id)).eq(&step.to);
    match (is_moving, is_there) {
        (true, true) => StepProgress::Moving,
        (false, true) => StepProgress::Done,
        (false, false) if partition.replicas == step.from => StepProgress::Waiting,
        (true | false, false) => StepProgress::Overtaken,
    }
}

impl Come {
    /// One line for people.
    pub fn line(&self, show: Show) -> String {
        let total = self.done + self.moving + self.waiting + self.left_out;
        let by_count = || (self.done + self.left_out) as u64 * 100 / total.max(1) as u64;
        let share = self.copied.saturating_mul(100).checked_div(self.bytes).unwrap_or_else(by_count);
        let bar = if show.with_bar {
            let filled = usize::try_from(share).unwrap_or(0).min(100) * BAR_WIDTH / 100;
            format!("[{}{}] ", "#".repeat(filled), ".".repeat(BAR_WIDTH - filled))
        } else {
            String::new()
        };
        let rate = show.bytes_per_second.filter(|rate| *rate > 0).map_or(String::new(), |rate| {
            let left = self.bytes.saturating_sub(self.copied) / rate;
            format!(", {}/s, {} left", bytes(rate), duration(left))
        });
        format!(
            "{bar}{share} %: {} of {total} moves done, {} under way, {} of {} copied{rate}",
            self.done,
            self.moving,
            bytes(self.copied),
            bytes(self.bytes)
        )
    }
}

/// Shows the way until no plan is under way; then says what was left out.
///
/// # Errors
/// Moves were left out, or no broker answers for long.
pub async fn watch(admin: &Admin, steps: &[PlanStep]) -> Result<(), Failure> {
    let is_terminal = io::stderr().is_terminal();
    let started = Instant::now();
    let (mut looks_without, mut was_seen, mut silent_since) = (0, false, None::<Instant>);
    let (mut last, mut rate, mut told) = (None::<(Instant, u64)>, None::<u64>, 0);
    loop {
        let report = match admin.placement().await {
            Ok(report) => report,
            Err(error) => {
                // A broker may be restarting; the plan goes on meanwhile.
                if silent_since.get_or_insert_with(Instant::now).elapsed() > SILENCE_MAX {
                    return Err(error.into());
                }
                tokio::time::sleep(LOOK_INTERVAL).await;
                continue;
            }
        };
        silent_since = None;
        let come = progress_of(admin, &report, steps).await;
        was_seen |= report.plan.is_some();
        // Another broker may not have heard of the plan yet.
        looks_without = if report.plan.is_some() { 0 } else { looks_without + 1 };
        let has_ended = looks_without > 0 && (was_seen || looks_without > 3);
        let now = Instant::now();
        if let Some((then, copied)) = last {
            let speed = (come.copied.saturating_sub(copied) as f64 / (now - then).as_secs_f64()) as u64;
            rate = Some(rate.map_or(speed, |rate| (rate * 3 + speed) / 4));
        }
        last = Some((now, come.copied));
        let show = Show { bytes_per_second: rate, with_bar: is_terminal };
        if is_terminal {
            // Without a stderr there is nobody to show it to.
            let _ = write!(io::stderr(), "\r\x1b[K{}", come.line(show));
        } else if has_ended || now.duration_since(started).as_secs() / TOLD_EVERY_S >= told {
            told = now.duration_since(started).as_secs() / TOLD_EVERY_S + 1;
            note(&come.line(show));
        }
        if has_ended {
            if is_terminal {
                note("");
            }
            return ended(&come);
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

fn ended(come: &Come) -> Result<(), Failure> {
    let left = come.left_out + come.waiting + come.moving;
    if left == 0 {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "the plan has ended with {left} moves not made: somebody else moved those partitions, deleted them, or called it off; \
         `thalweg rebalance plan` shows what is left to do"
    )))
}

const LOOK_INTERVAL: Duration = Duration::from_millis(500);
const SILENCE_MAX: Duration = Duration::from_secs(60);
const TOLD_EVERY_S: u64 = 10;
const BAR_WIDTH: usize = 24;
