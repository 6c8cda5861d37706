//! A plan as a file and as a picture for people.

use std::collections::{BTreeMap, BTreeSet};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use thalweg_client::admin::placement::PlanStep;
use thalweg_coordinator::planner::{self, Goals};

use super::Situation;
use crate::cli::failure::Failure;
use crate::cli::output::{Table, bytes, list, print_line};

/// What apply takes. A key that is not known is an error: whoever wrote it meant something.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PlanFile {
    version: u32,
    cluster_id: String,
    pub steps: Vec<PlanStep>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Goal {
    /// Replicas of one partition in different racks
    Racks,
    /// Brokers hold equally many replicas
    Replicas,
    /// Brokers hold equally many bytes
    Bytes,
    /// Brokers are written to equally
    Traffic,
    /// Brokers lead equally many partitions
    Leaders,
}

/// Moves, and what cannot move, in words.
pub struct Made {
    pub steps: Vec<PlanStep>,
    pub stuck: Vec<String>,
}

pub fn goals(wanted: &[Goal]) -> Goals {
    Goals {
        racks: wanted.contains(&Goal::Racks),
        replicas: wanted.contains(&Goal::Replicas),
        bytes: wanted.contains(&Goal::Bytes),
        traffic: wanted.contains(&Goal::Traffic),
        leaders: wanted.contains(&Goal::Leaders),
    }
}

/// The moves that bring the cluster nearest to the goals; replicas leave brokers that drain in any case.
pub fn made(situation: &Situation, goals: Goals, grow_to: usize) -> Made {
    let (names, picture) = situation.picture(grow_to);
    let plan = planner::plan(&picture, goals);
    let ids: BTreeMap<&str, &str> =
        situation.report.topics.iter().map(|topic| (topic.name.as_str(), topic.id.as_str())).collect();
    let numbers = |nodes: &[thalweg_model::NodeId]| nodes.iter().map(|id| id.0).collect::<Vec<_>>();
    let steps = plan.moves.iter().filter_map(|one| {
        let (topic, partition) = *names.get(one.partition)?;
        Some(PlanStep {
            topic: topic.to_owned(),
            topic_id: ids.get(topic).copied().unwrap_or_default().to_owned(),
            partition,
            bytes: situation.size(topic, partition) * one.newcomers().count() as u64,
            from: numbers(&one.from),
            to: numbers(&one.to),
            reason: one.reason.text().to_owned(),
            progress: None,
        })
    });
    let stuck = plan.stuck.iter().filter_map(|stuck| {
        let (topic, partition) = *names.get(stuck.partition)?;
        Some(match stuck.broker {
            Some(broker) => format!(
                "{topic}-{partition} cannot leave broker {broker}: every other broker holds a replica of it already, is dead, \
                 cordoned or draining"
            ),
            None => format!("{topic}-{partition} cannot get another replica: there is no broker that could take it"),
        })
    });
    Made { steps: steps.collect(), stuck: stuck.collect() }
}

/// What moves, what it costs, and how the brokers will stand.
pub fn show(situation: &Situation, steps: &[PlanStep]) -> Result<(), Failure> {
    let mut table = Table::new(&["PARTITION", "FROM", "TO", "BYTES", "WHY"]);
    for step in steps.iter().take(SHOWN_MAX) {
        table.row(vec![
            format!("{}-{}", step.topic, step.partition),
            list(&step.from),
            list(&step.to),
            bytes(step.bytes),
            step.reason.clone(),
        ]);
    }
    table.print()?;
    if steps.len() > SHOWN_MAX {
        print_line(&format!("... and {} more, all of them in the file", steps.len() - SHOWN_MAX))?;
    }
    print_line("")?;
    shares(situation, steps).print()?;
    print_line("")?;
    let copied: u64 = steps.iter().map(|step| step.bytes).sum();
    let count = steps.iter().map(|step| step.newcomers().count()).sum::<usize>();
    print_line(&format!(
        "{} partitions change, {count} replicas are copied, {} in all, {} at {}/s for each broker",
        steps.len(),
        bytes(copied),
        duration(seconds(steps, situation.report.move_rate)),
        bytes(situation.report.move_rate)
    ))?;
    print_line(&risk(situation, steps))
}

/// The time that the broker takes that is given most.
fn seconds(steps: &[PlanStep], rate: u64) -> u64 {
    let mut given: BTreeMap<i32, u64> = BTreeMap::new();
    for step in steps {
        let count = step.newcomers().count().max(1) as u64;
        step.newcomers().for_each(|id| *given.entry(id).or_default() += step.bytes / count);
    }
    given.into_values().max().unwrap_or(0).div_ceil(rate.max(1))
}

/// Moves never take in-sync replicas away before others are there. What lacks some already is a risk all the same.
fn risk(situation: &Situation, steps: &[PlanStep]) -> String {
    let named: BTreeSet<(&str, i32)> = steps.iter().map(|step| (step.topic.as_str(), step.partition)).collect();
    let mut tight = Vec::new();
    for topic in &situation.report.topics {
        for (index, partition) in (0..).zip(&topic.partitions) {
            let needed = usize::try_from(topic.min_isr).unwrap_or(1).min(partition.replicas.len());
            if named.contains(&(&topic.name, index)) && partition.isr.len() <= needed {
                tight.push(format!("{}-{index}", topic.name));
            }
        }
    }
    if tight.is_empty() {
        return "min-ISR risk: none; every partition has an in-sync replica to spare throughout".to_owned();
    }
    let count = tight.len();
    tight.truncate(5);
    let more = if count > tight.len() { ", ..." } else { "" };
    format!(
        "min-ISR risk: {count} partitions have no in-sync replica to spare, now as during the move; if one of their brokers dies, \
         acks=all waits: {}{more}",
        tight.join(", ")
    )
}

/// Replicas, preferred leaders and bytes of each broker, before and after.
fn shares(situation: &Situation, steps: &[PlanStep]) -> Table {
    let moved: BTreeMap<(&str, i32), &PlanStep> =
        steps.iter().map(|step| ((step.topic.as_str(), step.partition), step)).collect();
    let mut shares: BTreeMap<i32, [[u64; 3]; 2]> =
        situation.report.brokers.iter().map(|b| (b.id, [[0; 3]; 2])).collect();
    for topic in &situation.report.topics {
        for (index, partition) in (0..).zip(&topic.partitions) {
            let size = situation.size(&topic.name, index);
            let after = moved.get(&(topic.name.as_str(), index)).map_or(&partition.replicas, |step| &step.to);
            for (when, replicas) in [&partition.replicas, after].into_iter().enumerate() {
                for (place, id) in replicas.iter().enumerate() {
                    let share = &mut shares.entry(*id).or_default()[when];
                    share[0] += 1;
                    share[1] += u64::from(place == 0);
                    share[2] += size;
                }
            }
        }
    }
    let mut table = Table::new(&["BROKER", "REPLICAS", "LEADERS", "BYTES"]);
    for (id, [before, after]) in shares {
        let change = |at: usize, text: &dyn Fn(u64) -> String| match before[at] == after[at] {
            true => text(before[at]),
            false => format!("{} -> {}", text(before[at]), text(after[at])),
        };
        let number = |count: u64| count.to_string();
        table.row(vec![id.to_string(), change(0, &number), change(1, &number), change(2, &bytes)]);
    }
    table
}

/// `40 s`, `12 min`, `3 h 5 min`.
pub fn duration(seconds: u64) -> String {
    match seconds {
        0..=90 => format!("{seconds} s"),
        91..=5_400 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
    }
}

impl PlanFile {
    pub fn new(situation: &Situation, steps: Vec<PlanStep>) -> PlanFile {
        PlanFile { version: VERSION, cluster_id: situation.report.cluster_id.clone(), steps }
    }

    /// # Errors
    /// It is for another cluster, or of another version.
    pub fn check(&self, cluster_id: &str) -> Result<(), Failure> {
        if self.version != VERSION {
            let message = format!("the plan has version {}, this program knows {VERSION}; make it anew", self.version);
            return Err(Failure::usage(message));
        }
        if self.cluster_id != cluster_id {
            let message =
                format!("the plan is for cluster {}, this is {cluster_id}; name the other with -b", self.cluster_id);
            return Err(Failure::usage(message));
        }
        Ok(())
    }
}

const VERSION: u32 = 1;
const SHOWN_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_two_figures() {
        assert_eq!([0, 90, 91, 5_400, 11_100].map(duration), ["0 s", "90 s", "2 min", "90 min", "3 h 5 min"]);
    }

    #[test]
    fn a_broker_takes_the_time_of_all_that_comes_to_it() {
        let step = |from: &[i32], to: &[i32], bytes| PlanStep {
            from: from.into(),
            to: to.into(),
            bytes,
            ..PlanStep::default()
        };
        let steps = [step(&[1], &[2], 100), step(&[1], &[2, 3], 100), step(&[1, 2], &[2, 1], 0)];
        assert_eq!(seconds(&steps, 10), 15, "150 bytes come to broker 2");
    }
}
