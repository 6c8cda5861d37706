//! Each consumer sees every offset once and in order; ends never fall.

use std::collections::{BTreeMap, HashMap};

use super::{Kind, Report};
use crate::history::{ClientHistory, Event, Micros};

/// Where a consumer stands in a partition.
struct Position {
    /// `None` until the first record after an assignment shows it.
    next: Option<u64>,
    /// The poll that gave the last record.
    poll: usize,
}

pub(super) fn check(histories: &[ClientHistory], report: &mut Report) {
    let mut ends: BTreeMap<u32, Vec<(Micros, Micros, u64)>> = BTreeMap::new();
    for history in histories {
        let mut positions: HashMap<u32, Position> = HashMap::new();
        let mut poll = 0;
        for &(line, ref event) in &history.events {
            match *event {
                Event::From { partition, offset } => {
                    positions.insert(partition, Position { next: offset, poll: 0 });
                }
                Event::Poll { .. } => poll += 1,
                Event::Got { partition, offset, .. } => {
                    let position = positions.entry(partition).or_insert(Position { next: None, poll: 0 });
                    if let Some(kind) = position.step_kind(offset, poll) {
                        let expected = position.next.unwrap_or_default();
                        let story = format!(
                            "partition {partition}: offset {offset} where {expected} was next, {}:{line}",
                            history.name
                        );
                        report.add(kind, story);
                    }
                    *position = Position { next: Some(offset + 1), poll };
                }
                Event::Reset { partition, .. } => {
                    report.add(Kind::Reset, format!("partition {partition}, {}:{line}", history.name));
                }
                Event::End { asked, at, partition, offset } => {
                    ends.entry(partition).or_default().push((asked, at, offset))
                }
                _ => {}
            }
        }
    }
    for (partition, ends) in ends {
        check_ends(partition, ends, report);
    }
}

impl Position {
    /// What is wrong with `offset` as the next record.
    fn step_kind(&self, offset: u64, poll: usize) -> Option<Kind> {
        let within = self.poll == poll;
        match offset.cmp(&self.next?) {
            std::cmp::Ordering::Equal => None,
            std::cmp::Ordering::Less => Some(if within { Kind::IntNonmonotonicPoll } else { Kind::NonmonotonicPoll }),
            std::cmp::Ordering::Greater => Some(if within { Kind::IntPollSkip } else { Kind::PollSkip }),
        }
    }
}

/// An end that was answered before another was asked for is not above it. `ends` are (asked, answered, end).
fn check_ends(partition: u32, mut ends: Vec<(Micros, Micros, u64)>, report: &mut Report) {
    let mut answered = ends.clone();
    answered.sort_unstable_by_key(|&(_, at, _)| at);
    ends.sort_unstable_by_key(|&(asked, _, _)| asked);
    let mut before = answered.into_iter().peekable();
    let mut highest = 0;
    for (asked, _, end) in ends {
        while let Some(&(_, at, earlier)) = before.peek()
            && at < asked
        {
            highest = highest.max(earlier);
            before.next();
        }
        if end < highest {
            report.add(Kind::EndRegress, format!("partition {partition}: {end}, asked at {asked}, after {highest}"));
        }
    }
}
