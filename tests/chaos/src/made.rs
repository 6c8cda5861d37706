//! Histories as a cluster without faults would give them, of any size: what faults are planted in, and what speed is
//! measured with.

use crate::history::{ClientHistory, Event};

pub const PARTITIONS: u32 = 4;
/// Records of one poll.
const POLL: u64 = 5;

/// A writer, a reader with assigned partitions, a group of two and a last reader: `records` records, about four events
/// for each. Values are 0, 1, 2... round the partitions.
pub fn good(records: u64) -> Vec<ClientHistory> {
    let records = records.next_multiple_of(u64::from(PARTITIONS) * POLL);
    let everything: Vec<u32> = (0..PARTITIONS).collect();
    let (some, rest) = everything.split_at(PARTITIONS as usize / 2);
    vec![
        client("writer", None, written(records)),
        client("reader", None, read(records, &everything, false)),
        client("member-a", Some("g"), member(records, some)),
        client("member-b", Some("g"), member(records, rest)),
        client("last", None, read(records, &everything, true)),
    ]
}

/// As text, in the form that [`ClientHistory::parse`] reads.
pub fn text(history: &ClientHistory) -> String {
    let group = history.group.as_ref().map(|group| format!(" {group}")).unwrap_or_default();
    let mut text = format!("client {}{group}\n", history.name);
    for (_, event) in &history.events {
        text.push_str(&line(event));
        text.push('\n');
    }
    text
}

fn client(name: &str, group: Option<&str>, events: Vec<Event>) -> ClientHistory {
    let events = events.into_iter().enumerate().map(|(index, event)| (index as u32 + 2, event)).collect();
    ClientHistory { name: name.to_owned(), group: group.map(str::to_owned), events }
}

/// When a value is sent; its answer comes 3 later, its readers 5 later.
fn at(value: u64) -> u64 {
    1000 + value * 10
}

fn written(records: u64) -> Vec<Event> {
    let mut events = Vec::new();
    for value in 0..records {
        let (partition, offset) = place(value);
        events.push(Event::Send { at: at(value), value, partition });
        events.push(Event::Ok { at: at(value) + 3, value, partition, offset: Some(offset) });
    }
    events
}

fn place(value: u64) -> (u32, u64) {
    ((value % u64::from(PARTITIONS)) as u32, value / u64::from(PARTITIONS))
}

fn value(partition: u32, offset: u64) -> u64 {
    offset * u64::from(PARTITIONS) + u64::from(partition)
}

/// In polls of five; `last` after everything was written.
fn read(records: u64, partitions: &[u32], last: bool) -> Vec<Event> {
    let per_partition = records / u64::from(PARTITIONS);
    let mut events: Vec<Event> =
        partitions.iter().map(|&partition| Event::From { partition, offset: Some(0) }).collect();
    for first in (0..per_partition).step_by(POLL as usize) {
        for &partition in partitions {
            events.extend(polled(partition, first, if last { records } else { 0 }));
        }
    }
    for &partition in partitions {
        if last {
            events.push(Event::Whole { partition, offset: per_partition });
        } else {
            let asked = at(records) + 1;
            events.push(Event::End { asked, at: asked + 1, partition, offset: per_partition });
        }
    }
    events
}

fn polled(partition: u32, first: u64, after: u64) -> Vec<Event> {
    let when = at(value(partition, first + POLL - 1).max(after)) + 5;
    let got = |offset| Event::Got { partition, offset, value: Some(value(partition, offset)) };
    [Event::Poll { at: when }].into_iter().chain((first..first + POLL).map(got)).collect()
}

/// Commits after each poll, and asks at the end.
fn member(records: u64, partitions: &[u32]) -> Vec<Event> {
    let per_partition = records / u64::from(PARTITIONS);
    let mut events = vec![Event::Join { at: 900, generation: 1, partitions: partitions.to_vec() }];
    events.extend(partitions.iter().map(|&partition| Event::From { partition, offset: Some(0) }));
    for first in (0..per_partition).step_by(POLL as usize) {
        for &partition in partitions {
            let offset = first + POLL;
            let when = at(value(partition, offset - 1)) + 6;
            events.extend(polled(partition, first, 0));
            events.push(Event::Commit { at: when, partition, offset, generation: Some(1) });
            events.push(Event::Committed { at: when + 1, partition, offset });
        }
    }
    for &partition in partitions {
        let asked = at(records) + 20;
        events.push(Event::Found { asked, at: asked + 1, partition, offset: Some(per_partition) });
    }
    events
}

fn line(event: &Event) -> String {
    let or = |number: &Option<u64>, none: &str| number.map_or(none.to_owned(), |number| number.to_string());
    match event {
        Event::Send { at, value, partition } => format!("send {at} {value} {partition}"),
        Event::Ok { at, value, partition, offset } => format!("ok {at} {value} {partition} {}", or(offset, "-")),
        Event::Fail { at, value } => format!("fail {at} {value}"),
        Event::Info { at, value } => format!("info {at} {value}"),
        Event::From { partition, offset } => format!("from {partition} {}", or(offset, "-")),
        Event::Poll { at } => format!("poll {at}"),
        Event::Got { partition, offset, value } => format!("got {partition} {offset} {}", or(value, "?")),
        Event::Reset { at, partition } => format!("reset {at} {partition}"),
        Event::Join { at, generation, partitions } => {
            let list: Vec<String> = partitions.iter().map(u32::to_string).collect();
            format!("join {at} {generation} {}", if list.is_empty() { "-".to_owned() } else { list.join(",") })
        }
        Event::Commit { at, partition, offset, generation: None } => format!("commit {at} {partition} {offset}"),
        Event::Commit { at, partition, offset, generation: Some(generation) } => {
            format!("commit {at} {partition} {offset} {generation}")
        }
        Event::Committed { at, partition, offset } => format!("committed {at} {partition} {offset}"),
        Event::Uncommitted { at, partition, offset } => format!("uncommitted {at} {partition} {offset}"),
        Event::Found { asked, at, partition, offset } => format!("found {asked} {at} {partition} {}", or(offset, "-")),
        Event::End { asked, at, partition, offset } => format!("end {asked} {at} {partition} {offset}"),
        Event::Whole { partition, offset } => format!("whole {partition} {offset}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_as_text_reads_back_the_same() {
        let mut events: Vec<Event> = good(20).into_iter().flat_map(|c| c.events).map(|(_, event)| event).collect();
        events.extend([
            Event::Ok { at: 1, value: 2, partition: 3, offset: None },
            Event::Fail { at: 1, value: 2 },
            Event::Info { at: 1, value: 2 },
            Event::From { partition: 1, offset: None },
            Event::Got { partition: 1, offset: 2, value: None },
            Event::Reset { at: 1, partition: 2 },
            Event::Join { at: 1, generation: 2, partitions: Vec::new() },
            Event::Commit { at: 1, partition: 2, offset: 3, generation: None },
            Event::Uncommitted { at: 1, partition: 2, offset: 3 },
            Event::Found { asked: 1, at: 2, partition: 3, offset: None },
        ]);
        let written = client("all", Some("g"), events);
        let read = ClientHistory::parse(&text(&written)).unwrap();
        assert_eq!((read.name, read.group, read.events), (written.name, written.group, written.events));
    }
}
