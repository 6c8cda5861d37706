//! What groups commit and find, and who owns what.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{Kind, Report};
use crate::history::{ClientHistory, Event, Micros};

/// A commit from asking to its answer.
#[derive(Clone, Copy)]
struct Commit {
    asked: Micros,
    /// `None`: refused, or never answered. It may count at any time after `asked`.
    answered: Option<Micros>,
    offset: u64,
    generation: Option<u32>,
}

/// An answer to what a group has committed.
struct Found {
    asked: Micros,
    at: Micros,
    offset: Option<u64>,
    witness: String,
}

/// All that concerns one partition of one group.
#[derive(Default)]
struct Offsets {
    commits: Vec<Commit>,
    found: Vec<Found>,
    read: BTreeSet<u64>,
}

/// When a generation is known to have begun, at the latest.
type Generations = BTreeMap<u32, Micros>;

pub(super) fn check(histories: &[ClientHistory], report: &mut Report) {
    let mut groups: BTreeMap<&str, Vec<&ClientHistory>> = BTreeMap::new();
    for history in histories {
        if let Some(group) = &history.group {
            groups.entry(group).or_default().push(history);
        }
    }
    for (group, members) in groups {
        check_group(group, &members, report);
    }
}

fn check_group(group: &str, members: &[&ClientHistory], report: &mut Report) {
    let generations = check_owners(group, members, report);
    let mut partitions: BTreeMap<u32, Offsets> = BTreeMap::new();
    for member in members {
        collect(member, &mut partitions);
    }
    for (partition, offsets) in &partitions {
        let name = format!("group {group} partition {partition}");
        report.figures.commits += offsets.commits.iter().filter(|commit| commit.answered.is_some()).count();
        check_found(&name, offsets, report);
        check_read(&name, offsets, report);
        check_zombies(&name, offsets, &generations, report);
    }
}

/// Owners are one per partition and generation; a member's generations grow.
fn check_owners(group: &str, members: &[&ClientHistory], report: &mut Report) -> Generations {
    let mut generations = Generations::new();
    let mut owners: HashMap<(u32, u32), &str> = HashMap::new();
    for member in members {
        let mut last = 0;
        for (line, event) in &member.events {
            let Event::Join { at, generation, partitions } = event else { continue };
            if *generation < last {
                report.add(Kind::GenerationRegress, format!("{generation} after {last}, {}:{line}", member.name));
            }
            last = *generation;
            let began = generations.entry(*generation).or_insert(*at);
            *began = (*began).min(*at);
            for partition in partitions {
                let owner = *owners.entry((*generation, *partition)).or_insert(&member.name);
                if owner != member.name {
                    let story = format!(
                        "group {group} generation {generation} partition {partition}: {owner} and {}",
                        member.name
                    );
                    report.add(Kind::TwoOwners, story);
                }
            }
        }
    }
    generations
}

fn collect(member: &ClientHistory, partitions: &mut BTreeMap<u32, Offsets>) {
    // One commit of a partition is under way at a time in each client.
    let mut under_way: HashMap<u32, usize> = HashMap::new();
    for &(line, ref event) in &member.events {
        match *event {
            Event::Commit { at, partition, offset, generation } => {
                let commits = &mut partitions.entry(partition).or_default().commits;
                under_way.insert(partition, commits.len());
                commits.push(Commit { asked: at, answered: None, offset, generation });
            }
            Event::Committed { at, partition, offset } => {
                let commits = &mut partitions.entry(partition).or_default().commits;
                match under_way.remove(&partition).map(|index| &mut commits[index]) {
                    Some(commit) if commit.offset == offset => commit.answered = Some(at),
                    // An answer to nothing: taken as asked and answered at once, so that it is held to its word.
                    _ => commits.push(Commit { asked: at, answered: Some(at), offset, generation: None }),
                }
            }
            Event::Uncommitted { partition, .. } => {
                under_way.remove(&partition);
            }
            Event::Found { asked, at, partition, offset } => {
                let witness = format!("{}:{line}", member.name);
                partitions.entry(partition).or_default().found.push(Found { asked, at, offset, witness });
            }
            Event::Got { partition, offset, .. } => {
                partitions.entry(partition).or_default().read.insert(offset);
            }
            _ => {}
        }
    }
}

/// Every answer is one that a commit explains which no later one had replaced.
///
/// A commit without an answer may count at any time: a client may send it again, behind others.
fn check_found(name: &str, offsets: &Offsets, report: &mut Report) {
    let mut commits: Vec<Commit> = offsets.commits.clone();
    commits.sort_by_key(|commit| commit.answered.unwrap_or(Micros::MAX));
    // When an offset was asked for first by a commit that was never answered, and last by one that was.
    let mut unanswered: HashMap<u64, Micros> = HashMap::new();
    let mut answered: HashMap<u64, Vec<Commit>> = HashMap::new();
    for commit in &commits {
        match commit.answered {
            Some(_) => answered.entry(commit.offset).or_default().push(*commit),
            None => {
                let first = unanswered.entry(commit.offset).or_insert(commit.asked);
                *first = (*first).min(commit.asked);
            }
        }
    }
    // The newest start among the commits answered by a time: who was answered before that start is replaced.
    let mut newest_start: Vec<(Micros, Micros)> = Vec::new();
    for commit in commits.iter().filter_map(|commit| commit.answered.map(|at| (at, commit.asked))) {
        let newest = newest_start.last().map_or(0, |&(_, start)| start).max(commit.1);
        newest_start.push((commit.0, newest));
    }
    for found in &offsets.found {
        let index = newest_start.partition_point(|&(at, _)| at < found.asked);
        let replaced_before = index.checked_sub(1).map(|last| newest_start[last].1);
        let Some(offset) = found.offset else {
            if replaced_before.is_some() {
                report.add(Kind::OffsetLost, format!("{name}: {}", found.witness));
            }
            continue;
        };
        let same = answered.get(&offset).map_or(&[][..], Vec::as_slice);
        let may_be_unanswered = unanswered.get(&offset).is_some_and(|&asked| asked <= found.at);
        let stands = same.iter().rev().any(|commit| {
            commit.asked <= found.at
                && replaced_before.is_none_or(|start| commit.answered.is_none_or(|answered| answered >= start))
        });
        if may_be_unanswered || stands {
            continue;
        }
        if same.iter().any(|commit| commit.asked <= found.at) {
            report.add(Kind::OffsetRegress, format!("{name}: {offset} is an older commit, {}", found.witness));
        } else {
            report.add(Kind::OffsetPhantom, format!("{name}: {offset}, {}", found.witness));
        }
    }
}

/// What a group has committed it has been given.
fn check_read(name: &str, offsets: &Offsets, report: &mut Report) {
    let committed = offsets.commits.iter().filter(|commit| commit.answered.is_some()).map(|commit| commit.offset).max();
    let Some(committed) = committed else { return };
    let mut next = 0;
    for &offset in offsets.read.range(..committed) {
        if offset != next {
            break;
        }
        next += 1;
    }
    if next < committed {
        report.add(Kind::CommitUnread, format!("{name}: committed {committed}, never given {next}"));
    }
}

/// A generation that is over commits nothing any more.
fn check_zombies(name: &str, offsets: &Offsets, generations: &Generations, report: &mut Report) {
    // Per generation: when it or a newer one was first known to be there.
    let mut known_from: BTreeMap<u32, Micros> = BTreeMap::new();
    let mut earliest = Micros::MAX;
    for (&generation, &began) in generations.iter().rev() {
        earliest = earliest.min(began);
        known_from.insert(generation, earliest);
    }
    for commit in &offsets.commits {
        let (Some(_), Some(generation)) = (commit.answered, commit.generation) else { continue };
        let newer = known_from.range(generation + 1..).next();
        if newer.is_some_and(|(_, &began)| commit.asked > began) {
            report.add(Kind::ZombieCommit, format!("{name}: {} by generation {generation}", commit.offset));
        }
    }
}
