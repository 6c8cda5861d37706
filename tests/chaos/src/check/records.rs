//! What became of each record: sends, their answers, and where the values stand.

use std::collections::HashMap;

use super::{Kind, Place, Report, at};
use crate::history::{ClientHistory, Event, Micros};

/// One record's life.
struct Sent {
    place: Place,
    at: Micros,
    partition: u32,
    outcome: Outcome,
    /// The first poll that gave it.
    read_at: Option<Micros>,
}

#[derive(Clone, Copy)]
enum Outcome {
    Pending,
    Ok { at: Micros, offset: Option<u64> },
    Failed,
    Unknown,
}

/// What stands where, as all clients together saw it.
#[derive(Default)]
struct Seen {
    /// Value and first witness by partition and offset; acknowledgements count as seen.
    values: HashMap<(u32, u64), (u64, Place)>,
    /// Where a reader found each value first.
    read_at: HashMap<u64, (u32, u64)>,
    /// What the readers after healing found.
    whole: HashMap<(u32, u64), u64>,
    /// Exclusive ends of the partitions that were read out.
    ends: HashMap<u32, u64>,
}

pub(super) fn check(histories: &[ClientHistory], report: &mut Report) {
    let mut sends = collect_sends(histories, report);
    let mut seen = Seen::default();
    collect_answers(histories, &mut sends, &mut seen, report);
    collect_reads(histories, &mut sends, &mut seen, report);
    check_acknowledged(histories, &sends, &seen, report);
    check_vanished(histories, &seen, report);
    check_order(histories, &sends, report);
    take_figures(&sends, report);
}

fn collect_sends(histories: &[ClientHistory], report: &mut Report) -> HashMap<u64, Sent> {
    let mut sends = HashMap::new();
    for (client, history) in histories.iter().enumerate() {
        for &(line, ref event) in &history.events {
            let Event::Send { at: when, value, partition } = *event else { continue };
            let place = Place { client, line };
            let sent = Sent { place, at: when, partition, outcome: Outcome::Pending, read_at: None };
            if let Some(before) = sends.insert(value, sent) {
                let (first, second) = (at(histories, before.place), at(histories, place));
                report.add(Kind::TwoAnswers, format!("value {value} was sent twice, at {first} and {second}"));
            }
        }
    }
    sends
}

fn collect_answers(histories: &[ClientHistory], sends: &mut HashMap<u64, Sent>, seen: &mut Seen, report: &mut Report) {
    for (client, history) in histories.iter().enumerate() {
        for &(line, ref event) in &history.events {
            let place = Place { client, line };
            let (value, outcome) = match *event {
                Event::Ok { at, value, offset, .. } => (value, Outcome::Ok { at, offset }),
                Event::Fail { value, .. } => (value, Outcome::Failed),
                Event::Info { value, .. } => (value, Outcome::Unknown),
                _ => continue,
            };
            let Some(sent) = sends.get_mut(&value) else {
                report
                    .add(Kind::Phantom, format!("value {value} was answered at {} but not sent", at(histories, place)));
                continue;
            };
            if !matches!(sent.outcome, Outcome::Pending) {
                report.add(Kind::TwoAnswers, format!("value {value}, the second time at {}", at(histories, place)));
            }
            sent.outcome = outcome;
            if let Event::Ok { partition, offset, .. } = *event {
                if partition != sent.partition {
                    let story = format!(
                        "value {value} was sent to partition {} and acknowledged in {partition}: {}",
                        sent.partition,
                        at(histories, place)
                    );
                    report.add(Kind::WrongPartition, story);
                }
                if let Some(offset) = offset {
                    note_value(histories, seen, (partition, offset), value, place, report);
                }
            }
        }
    }
}

fn collect_reads(histories: &[ClientHistory], sends: &mut HashMap<u64, Sent>, seen: &mut Seen, report: &mut Report) {
    for (client, history) in histories.iter().enumerate() {
        let is_last_reader = history.events.iter().any(|(_, event)| matches!(event, Event::Whole { .. }));
        let mut now = 0;
        for &(line, ref event) in &history.events {
            let place = Place { client, line };
            match *event {
                Event::Poll { at } => now = at,
                Event::Whole { partition, offset } => {
                    let end = seen.ends.entry(partition).or_default();
                    *end = (*end).max(offset);
                }
                Event::Got { partition, offset, value } => {
                    report.figures.read += 1;
                    let Some(value) = value else {
                        let story = format!("partition {partition} offset {offset}: {}", at(histories, place));
                        report.add(Kind::Phantom, format!("a value that is no number of ours at {story}"));
                        continue;
                    };
                    if is_last_reader {
                        seen.whole.insert((partition, offset), value);
                    }
                    note_value(histories, seen, (partition, offset), value, place, report);
                    note_read(histories, sends, seen, (partition, offset), value, (now, place), report);
                }
                _ => {}
            }
        }
    }
}

/// Two witnesses of one offset must agree.
fn note_value(
    histories: &[ClientHistory],
    seen: &mut Seen,
    (partition, offset): (u32, u64),
    value: u64,
    place: Place,
    report: &mut Report,
) {
    let &mut (known, witness) = seen.values.entry((partition, offset)).or_insert((value, place));
    if known != value {
        let story = format!(
            "partition {partition} offset {offset}: {known} says {}, {value} says {}",
            at(histories, witness),
            at(histories, place)
        );
        report.add(Kind::Inconsistent, story);
    }
}

fn note_read(
    histories: &[ClientHistory],
    sends: &mut HashMap<u64, Sent>,
    seen: &mut Seen,
    (partition, offset): (u32, u64),
    value: u64,
    (now, place): (Micros, Place),
    report: &mut Report,
) {
    let whereabouts = || format!("partition {partition} offset {offset}: {}", at(histories, place));
    let first = *seen.read_at.entry(value).or_insert((partition, offset));
    if first != (partition, offset) {
        let story = format!("value {value} at partition {} offset {} and {}", first.0, first.1, whereabouts());
        report.add(Kind::Duplicate, story);
    }
    let Some(sent) = sends.get_mut(&value) else {
        report.add(Kind::Phantom, format!("value {value}, which nobody sent, at {}", whereabouts()));
        return;
    };
    if now < sent.at {
        report.add(Kind::Phantom, format!("value {value} was read before it was sent, at {}", whereabouts()));
    }
    if sent.partition != partition {
        report.add(
            Kind::WrongPartition,
            format!("value {value} was sent to {} and read at {}", sent.partition, whereabouts()),
        );
    }
    if matches!(sent.outcome, Outcome::Failed) {
        report.add(Kind::AbortedRead, format!("value {value} at {}", whereabouts()));
    }
    sent.read_at = Some(sent.read_at.map_or(now, |before| before.min(now)));
}

fn check_acknowledged(histories: &[ClientHistory], sends: &HashMap<u64, Sent>, seen: &Seen, report: &mut Report) {
    let mut sorted: Vec<(&u64, &Sent)> = sends.iter().collect();
    sorted.sort_by_key(|(value, _)| **value);
    let mut not_read_out = std::collections::BTreeSet::new();
    for (value, sent) in sorted {
        let story = |what: String| format!("value {value}, sent at {}: {what}", at(histories, sent.place));
        let offset = match sent.outcome {
            Outcome::Ok { offset, .. } => offset,
            Outcome::Pending => {
                report.add(Kind::Unanswered, story(format!("to partition {}", sent.partition)));
                continue;
            }
            Outcome::Failed | Outcome::Unknown => continue,
        };
        let Some(&end) = seen.ends.get(&sent.partition) else {
            not_read_out.insert(sent.partition);
            continue;
        };
        let stands = seen.read_at.get(value).copied().filter(|place| seen.whole.get(place) == Some(value));
        let Some(offset) = offset else {
            if stands.is_none() {
                report.add(Kind::LostWrite, story(format!("partition {}", sent.partition)));
            }
            continue;
        };
        let place = format!("partition {} offset {offset}", sent.partition);
        if seen.whole.get(&(sent.partition, offset)) == Some(value) {
            continue;
        }
        match stands {
            Some((partition, elsewhere)) => {
                report
                    .add(Kind::Misplaced, story(format!("acknowledged at {place}, stands at {partition} {elsewhere}")));
            }
            None if offset >= end => report.add(Kind::Unseen, story(format!("{place}, the log ends at {end}"))),
            None => report.add(Kind::LostWrite, story(place)),
        }
    }
    for partition in not_read_out {
        report.add(Kind::NotReadOut, format!("partition {partition}"));
    }
}

/// What a consumer was given once stays.
fn check_vanished(histories: &[ClientHistory], seen: &Seen, report: &mut Report) {
    let mut gone: Vec<((u32, u64), u64)> = Vec::new();
    for (&value, &place) in &seen.read_at {
        if seen.ends.contains_key(&place.0) && seen.whole.get(&place) != Some(&value) {
            gone.push((place, value));
        }
    }
    gone.sort_unstable();
    for ((partition, offset), value) in gone {
        let witness = seen.values.get(&(partition, offset)).map_or(String::new(), |(_, place)| at(histories, *place));
        report.add(
            Kind::Vanished,
            format!("value {value} at partition {partition} offset {offset}; first seen at {witness}"),
        );
    }
}

/// One producer's records of one partition have offsets in the order in which they were sent.
fn check_order(histories: &[ClientHistory], sends: &HashMap<u64, Sent>, report: &mut Report) {
    for history in histories {
        let mut highest: HashMap<u32, (u64, u64)> = HashMap::new();
        for (_, event) in &history.events {
            let &Event::Send { value, .. } = event else { continue };
            let Some(sent) = sends.get(&value) else { continue };
            let Outcome::Ok { offset: Some(offset), .. } = sent.outcome else { continue };
            let &(before, earlier) = highest.get(&sent.partition).unwrap_or(&(offset, value));
            if before > offset {
                let story = format!(
                    "value {value} of {} got offset {offset} of partition {}, the earlier {earlier} got {before}",
                    history.name, sent.partition
                );
                report.add(Kind::NonmonotonicSend, story);
            }
            if before <= offset {
                highest.insert(sent.partition, (offset, value));
            }
        }
    }
}

fn take_figures(sends: &HashMap<u64, Sent>, report: &mut Report) {
    let figures = &mut report.figures;
    figures.sent = sends.len();
    let mut answered: Vec<Micros> = Vec::new();
    for sent in sends.values() {
        match sent.outcome {
            Outcome::Ok { at, .. } => {
                answered.push(at);
                if let Some(read_at) = sent.read_at {
                    figures.visible_after.push(read_at.saturating_sub(at));
                }
            }
            Outcome::Failed => figures.failed += 1,
            Outcome::Unknown => figures.unknown += 1,
            Outcome::Pending => {}
        }
    }
    figures.acknowledged = answered.len();
    figures.visible_after.sort_unstable();
    answered.sort_unstable();
    figures.longest_gap = answered.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
}
