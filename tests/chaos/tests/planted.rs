//! The checker finds each fault that is planted in a good history, and none in the good one.

use std::collections::BTreeSet;

use thalweg_chaos::check::{Kind, check};
use thalweg_chaos::history::{ClientHistory, Event};
use thalweg_chaos::made;

/// Clients of [`made::good`].
const WRITER: usize = 0;
const READER: usize = 1;
const MEMBER: usize = 2;
const OTHER_MEMBER: usize = 3;
const LAST: usize = 4;

/// Offsets per partition.
const DEPTH: u64 = 25;

type Plant = fn(&mut [ClientHistory]);

/// Goal: every rule is noticed when it is broken. Method: one hand-made fault each in a history that is good otherwise;
/// what else it may show beside is listed, anything further is a false alarm.
const PLANTED: &[(&str, Plant, Kind, &[Kind])] = &[
    (
        "an acknowledged record is skipped over at the end",
        lose_one,
        Kind::LostWrite,
        &[Kind::Vanished, Kind::IntPollSkip],
    ),
    (
        "another record stands in an acknowledged one's place",
        overwrite,
        Kind::LostWrite,
        &[Kind::Inconsistent, Kind::Vanished],
    ),
    ("a record that stands somewhere, as its producer was told, stands nowhere", lose_somewhere, Kind::LostWrite, &[]),
    ("the log ends before acknowledged records", cut_tail, Kind::Unseen, &[Kind::Vanished]),
    (
        "a record that only a consumer saw, of a send without an answer, is gone",
        vanish,
        Kind::Vanished,
        &[Kind::IntPollSkip],
    ),
    ("the producer was told a wrong offset", misplace, Kind::Misplaced, &[Kind::Inconsistent, Kind::NonmonotonicSend]),
    ("two readers see different values at one offset", disagree, Kind::Inconsistent, &[Kind::Phantom, Kind::Vanished]),
    (
        "two records are acknowledged at one offset",
        acknowledge_twice,
        Kind::Inconsistent,
        &[Kind::LostWrite, Kind::Misplaced, Kind::NonmonotonicSend],
    ),
    ("a retry wrote its record again", double, Kind::Duplicate, &[]),
    ("a value that nobody sent", phantom, Kind::Phantom, &[]),
    ("a value that is not even a number of ours", garbage, Kind::Phantom, &[]),
    ("a record is read before it was sent", read_early, Kind::Phantom, &[]),
    ("an answer to what was never sent", answer_nothing, Kind::Phantom, &[]),
    ("a record whose send failed for sure is read", read_failed, Kind::AbortedRead, &[]),
    (
        "a record goes to another partition",
        stray,
        Kind::WrongPartition,
        &[Kind::Inconsistent, Kind::Misplaced, Kind::LostWrite],
    ),
    ("two records of one producer swap places", swap, Kind::NonmonotonicSend, &[]),
    ("a send is never answered", never_answer, Kind::Unanswered, &[]),
    ("a send is answered twice", answer_twice, Kind::TwoAnswers, &[Kind::AbortedRead]),
    ("one value is sent twice", send_twice, Kind::TwoAnswers, &[]),
    ("a partition is not read out at the end", leave_unread, Kind::NotReadOut, &[]),
    ("a consumer skips records between polls", skip, Kind::PollSkip, &[]),
    ("a consumer goes back between polls", go_back, Kind::NonmonotonicPoll, &[]),
    ("a gap within one poll", skip_within, Kind::IntPollSkip, &[]),
    ("a step back within one poll", go_back_within, Kind::IntNonmonotonicPoll, &[]),
    ("a consumer does not begin where it was put", begin_elsewhere, Kind::PollSkip, &[]),
    ("a consumer is reset", reset, Kind::Reset, &[]),
    ("the end that consumers are told falls", shrink, Kind::EndRegress, &[]),
    ("a group's offset is gone", forget_offset, Kind::OffsetLost, &[]),
    ("a group falls back to an older commit", old_offset, Kind::OffsetRegress, &[]),
    ("a group has an offset that nobody committed", invent_offset, Kind::OffsetPhantom, &[]),
    ("an offset is found before it was committed", foresee_offset, Kind::OffsetPhantom, &[]),
    ("a group commits what none of its members read", commit_unread, Kind::CommitUnread, &[Kind::PollSkip]),
    ("a member commits after its generation is over", zombie, Kind::ZombieCommit, &[]),
    ("a newer generation that did not know the member at all", zombie_of_gap, Kind::ZombieCommit, &[]),
    ("two members own one partition", share, Kind::TwoOwners, &[]),
    ("a member falls back to an older generation", rejuvenate, Kind::GenerationRegress, &[]),
];

#[test]
fn a_good_history_shows_nothing() {
    let histories = made::good(4 * DEPTH);
    let report = check(&histories);
    assert!(report.anomalies.is_empty(), "{:?}", report.anomalies);
    assert_eq!((report.figures.sent, report.figures.acknowledged), (100, 100));
    assert_eq!(report.figures.read, 300);
    assert_eq!(report.figures.visible_after.len(), 100);
}

#[test]
fn each_planted_fault_is_found_and_nothing_else() {
    for (what, plant, kind, beside) in PLANTED {
        let mut histories = made::good(4 * DEPTH);
        plant(&mut histories);
        let report = check(&histories);
        let found: BTreeSet<Kind> = report.anomalies.keys().copied().collect();
        assert!(found.contains(kind), "{what}: {kind} was not found, only {:?}", report.anomalies);
        let allowed: BTreeSet<Kind> = beside.iter().copied().chain([*kind]).collect();
        assert!(found.is_subset(&allowed), "{what}: {:?}", report.anomalies);
    }
}

#[test]
fn every_rule_has_a_planted_fault() {
    let planted: BTreeSet<Kind> = PLANTED.iter().map(|(_, _, kind, _)| *kind).collect();
    assert_eq!(planted, Kind::ALL.iter().copied().collect());
}

/// Goal: what a run of faults brings with it is no false alarm.
#[test]
fn unknown_outcomes_reassignments_and_repeated_commits_are_no_faults() {
    let mut histories = made::good(4 * DEPTH);
    // Nobody knows of a send: it may be there, and it may be missing.
    let ok = find(&histories[WRITER], |event| matches!(event, Event::Ok { value: 17, .. }));
    histories[WRITER].events[ok].1 = Event::Info { at: 0, value: 17 };
    push(&mut histories, WRITER, [Event::Send { at: 0, value: 900, partition: 1 }, Event::Info { at: 1, value: 900 }]);
    push(&mut histories, WRITER, [Event::Send { at: 0, value: 901, partition: 1 }, Event::Fail { at: 1, value: 901 }]);
    // Nobody says where a record stands that an earlier try wrote.
    let ok = find(&histories[WRITER], |event| matches!(event, Event::Ok { value: 18, .. }));
    histories[WRITER].events[ok].1 = Event::Ok { at: 1_200, value: 18, partition: 2, offset: None };
    // A commit without an answer may count, now or later.
    let late = 1_000_000;
    push(
        &mut histories,
        MEMBER,
        [
            Event::Commit { at: late, partition: 0, offset: 5, generation: Some(1) },
            Event::Uncommitted { at: late + 1, partition: 0, offset: 5 },
            Event::Found { asked: late + 2, at: late + 3, partition: 0, offset: Some(DEPTH) },
            Event::Found { asked: late + 4, at: late + 5, partition: 0, offset: Some(5) },
        ],
    );
    // The next owner goes on where the group stands, and reads again what was not committed.
    push(
        &mut histories,
        OTHER_MEMBER,
        [
            Event::Join { at: late + 6, generation: 2, partitions: vec![0, 1, 2, 3] },
            Event::From { partition: 0, offset: None },
            Event::Poll { at: late + 7 },
            got(0, 20),
            got(0, 21),
        ],
    );
    let report = check(&histories);
    assert!(report.anomalies.is_empty(), "{:?}", report.anomalies);
    assert_eq!((report.figures.unknown, report.figures.failed), (2, 1));
}

fn got(partition: u32, offset: u64) -> Event {
    Event::Got { partition, offset, value: Some(offset * u64::from(made::PARTITIONS) + u64::from(partition)) }
}

fn find(history: &ClientHistory, which: impl Fn(&Event) -> bool) -> usize {
    history.events.iter().position(|(_, event)| which(event)).expect("the history has such an event")
}

fn find_got(history: &ClientHistory, partition: u32, offset: u64) -> usize {
    find(
        history,
        |event| matches!(event, Event::Got { partition: p, offset: o, .. } if (*p, *o) == (partition, offset)),
    )
}

fn push(histories: &mut [ClientHistory], client: usize, events: impl IntoIterator<Item = Event>) {
    histories[client].events.extend(events.into_iter().map(|event| (0, event)));
}

/// Removes what `which` chooses from everybody's history.
fn forget(histories: &mut [ClientHistory], which: impl Fn(&Event) -> bool) {
    for history in histories {
        history.events.retain(|(_, event)| !which(event));
    }
}

fn set_value(histories: &mut [ClientHistory], clients: &[usize], partition: u32, offset: u64, value: Option<u64>) {
    for &client in clients {
        let index = find_got(&histories[client], partition, offset);
        histories[client].events[index].1 = Event::Got { partition, offset, value };
    }
}

/// Appends one more record behind the end of a partition, as the readers see it.
fn append(histories: &mut [ClientHistory], partition: u32, value: Option<u64>) {
    let event = Event::Got { partition, offset: DEPTH, value };
    push(histories, READER, [Event::Poll { at: 1_000_000 }, event.clone()]);
    push(histories, LAST, [Event::Poll { at: 1_000_000 }, event, Event::Whole { partition, offset: DEPTH + 1 }]);
}

fn lose_one(histories: &mut [ClientHistory]) {
    let index = find_got(&histories[LAST], 1, 12);
    histories[LAST].events.remove(index);
}

fn lose_somewhere(histories: &mut [ClientHistory]) {
    push(
        histories,
        WRITER,
        [Event::Send { at: 1, value: 500, partition: 1 }, Event::Ok { at: 2, value: 500, partition: 1, offset: None }],
    );
}

fn overwrite(histories: &mut [ClientHistory]) {
    push(histories, WRITER, [Event::Send { at: 1, value: 500, partition: 1 }, Event::Info { at: 2, value: 500 }]);
    set_value(histories, &[LAST], 1, 12, Some(500));
}

fn cut_tail(histories: &mut [ClientHistory]) {
    let last = &mut histories[LAST].events;
    last.retain(|(_, event)| !matches!(event, Event::Got { partition: 1, offset: 20.., .. }));
    for (_, event) in last {
        if let Event::Whole { partition: 1, offset } = event {
            *offset = 20;
        }
    }
}

fn vanish(histories: &mut [ClientHistory]) {
    let ok = find(&histories[WRITER], |event| matches!(event, Event::Ok { partition: 1, offset: Some(12), .. }));
    let Event::Ok { at, value, .. } = histories[WRITER].events[ok].1 else { unreachable!() };
    histories[WRITER].events[ok].1 = Event::Info { at, value };
    let index = find_got(&histories[LAST], 1, 12);
    histories[LAST].events.remove(index);
}

fn misplace(histories: &mut [ClientHistory]) {
    let ok = find(&histories[WRITER], |event| matches!(event, Event::Ok { partition: 2, offset: Some(7), .. }));
    if let (_, Event::Ok { offset, .. }) = &mut histories[WRITER].events[ok] {
        *offset = Some(9);
    }
}

fn disagree(histories: &mut [ClientHistory]) {
    set_value(histories, &[READER], 3, 3, Some(700));
}

fn acknowledge_twice(histories: &mut [ClientHistory]) {
    push(
        histories,
        WRITER,
        [
            Event::Send { at: 1, value: 500, partition: 1 },
            Event::Ok { at: 2, value: 500, partition: 1, offset: Some(12) },
        ],
    );
}

fn double(histories: &mut [ClientHistory]) {
    append(histories, 1, Some(5));
}

fn phantom(histories: &mut [ClientHistory]) {
    append(histories, 1, Some(12_345));
}

fn garbage(histories: &mut [ClientHistory]) {
    append(histories, 1, None);
}

fn read_early(histories: &mut [ClientHistory]) {
    let index = find(&histories[READER], |event| matches!(event, Event::Poll { .. }));
    histories[READER].events[index].1 = Event::Poll { at: 5 };
}

fn answer_nothing(histories: &mut [ClientHistory]) {
    push(histories, WRITER, [Event::Info { at: 1, value: 12_345 }]);
}

fn read_failed(histories: &mut [ClientHistory]) {
    push(histories, WRITER, [Event::Send { at: 1, value: 500, partition: 1 }, Event::Fail { at: 2, value: 500 }]);
    append(histories, 1, Some(500));
}

fn stray(histories: &mut [ClientHistory]) {
    let send = find(&histories[WRITER], |event| matches!(event, Event::Send { value: 41, .. }));
    if let (_, Event::Send { partition, .. }) = &mut histories[WRITER].events[send] {
        *partition = 3;
    }
}

fn swap(histories: &mut [ClientHistory]) {
    // Values 40 and 44 are neighbours in partition 0.
    for (value, elsewhere) in [(40, 11), (44, 10)] {
        let ok = find(&histories[WRITER], |event| matches!(event, Event::Ok { value: v, .. } if *v == value));
        if let (_, Event::Ok { offset, .. }) = &mut histories[WRITER].events[ok] {
            *offset = Some(elsewhere);
        }
    }
    set_value(histories, &[READER, MEMBER, LAST], 0, 10, Some(44));
    set_value(histories, &[READER, MEMBER, LAST], 0, 11, Some(40));
}

fn never_answer(histories: &mut [ClientHistory]) {
    push(histories, WRITER, [Event::Send { at: 1, value: 500, partition: 1 }]);
}

fn answer_twice(histories: &mut [ClientHistory]) {
    push(histories, WRITER, [Event::Fail { at: 1_000_000, value: 8 }]);
}

fn send_twice(histories: &mut [ClientHistory]) {
    push(
        histories,
        WRITER,
        [
            Event::Send { at: 1, value: 500, partition: 1 },
            Event::Send { at: 1, value: 500, partition: 1 },
            Event::Info { at: 2, value: 500 },
        ],
    );
}

fn leave_unread(histories: &mut [ClientHistory]) {
    forget(histories, |event| matches!(event, Event::Whole { partition: 3, .. }));
}

fn skip(histories: &mut [ClientHistory]) {
    // A whole poll: offsets 10 to 14 of partition 1.
    histories[READER].events.retain(|(_, event)| !matches!(event, Event::Got { partition: 1, offset: 10..=14, .. }));
}

fn go_back(histories: &mut [ClientHistory]) {
    push(histories, READER, [Event::Poll { at: 1_000_000 }, got(1, 3)]);
}

fn skip_within(histories: &mut [ClientHistory]) {
    let index = find_got(&histories[READER], 1, 12);
    histories[READER].events.remove(index);
}

fn go_back_within(histories: &mut [ClientHistory]) {
    let index = find_got(&histories[READER], 1, 24);
    histories[READER].events.insert(index + 1, (0, got(1, 24)));
}

fn begin_elsewhere(histories: &mut [ClientHistory]) {
    push(histories, READER, [Event::From { partition: 1, offset: Some(4) }, Event::Poll { at: 1_000_000 }, got(1, 9)]);
}

fn reset(histories: &mut [ClientHistory]) {
    push(histories, READER, [Event::Reset { at: 1, partition: 1 }]);
}

fn shrink(histories: &mut [ClientHistory]) {
    push(histories, MEMBER, [Event::End { asked: 1_000_000, at: 1_000_001, partition: 1, offset: DEPTH - 1 }]);
}

fn find_offset(histories: &mut [ClientHistory], offset: Option<u64>) {
    push(histories, MEMBER, [Event::Found { asked: 1_000_000, at: 1_000_001, partition: 0, offset }]);
}

fn forget_offset(histories: &mut [ClientHistory]) {
    find_offset(histories, None);
}

fn old_offset(histories: &mut [ClientHistory]) {
    find_offset(histories, Some(DEPTH - 5));
}

fn invent_offset(histories: &mut [ClientHistory]) {
    find_offset(histories, Some(DEPTH - 2));
}

fn foresee_offset(histories: &mut [ClientHistory]) {
    push(histories, MEMBER, [Event::Found { asked: 1, at: 2, partition: 0, offset: Some(10) }]);
}

fn commit_unread(histories: &mut [ClientHistory]) {
    histories[MEMBER].events.retain(|(_, event)| !matches!(event, Event::Got { partition: 1, offset: 5..=9, .. }));
}

/// The other member begins generation 2; the first goes on committing in generation 1.
fn zombie(histories: &mut [ClientHistory]) {
    push(histories, OTHER_MEMBER, [Event::Join { at: 1_000_000, generation: 2, partitions: vec![0, 1, 2, 3] }]);
    commit_late(histories);
}

fn zombie_of_gap(histories: &mut [ClientHistory]) {
    push(histories, OTHER_MEMBER, [Event::Join { at: 1_000_000, generation: 7, partitions: vec![] }]);
    commit_late(histories);
}

fn commit_late(histories: &mut [ClientHistory]) {
    push(
        histories,
        MEMBER,
        [
            Event::Commit { at: 1_000_010, partition: 0, offset: DEPTH, generation: Some(1) },
            Event::Committed { at: 1_000_011, partition: 0, offset: DEPTH },
        ],
    );
}

fn share(histories: &mut [ClientHistory]) {
    push(histories, OTHER_MEMBER, [Event::Join { at: 901, generation: 1, partitions: vec![1] }]);
}

fn rejuvenate(histories: &mut [ClientHistory]) {
    push(
        histories,
        MEMBER,
        [
            Event::Join { at: 1_000_000, generation: 3, partitions: vec![] },
            Event::Join { at: 1_000_001, generation: 2, partitions: vec![] },
        ],
    );
}
