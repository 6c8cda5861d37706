//! What groups went through lately: each rebalance with who caused it, how long it took and what it moved; and how fast
//! members commit. For people who ask why; no decision depends on it. Gone when leadership ends.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use thalweg_model::{ErrorCode, MonoTime};
use thalweg_proto::v1::{
    ExplainRequest, ExplainResponse, GroupCommit, GroupMember, MovedPartition, Rebalance, RebalanceCause,
    RebalanceMember,
};

use super::Session;
use super::progress::Progress;
use super::subscription;
use crate::registry::state::State;
use crate::registry::{error, ok};

/// What a group tells its journal, in the order in which it happens.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Note {
    Joined {
        member: Who,
        /// It was in the group already, and its metadata has changed or it asks for a rebalance.
        again: bool,
        reason: String,
    },
    Left(Who, Departure),
    /// The barrier is open: a rebalance has begun, or begins anew.
    Opened,
    /// The barrier is closed, and the generation stored.
    Closed {
        generation_id: i32,
        protocol: String,
        member_count: usize,
    },
    /// Everybody may know their partitions.
    Assigned(Vec<(Who, Bytes)>),
}

/// A member, as people know it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Who {
    pub member_id: String,
    pub instance_id: Option<String>,
    pub client_id: String,
    pub client_host: String,
}

/// Why a member is not in the group any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Departure {
    /// With the reason that it gave.
    Left(String),
    SessionExpired,
    /// It did not join again in time.
    MissedBarrier,
    /// It was told its generation and never asked for its partitions.
    NeverSynced,
}

/// The journals of all groups.
pub(super) struct Journals {
    journals: BTreeMap<String, Journal>,
    progress: Progress,
    since: MonoTime,
}

#[derive(Default)]
struct Journal {
    open: Option<Entry>,
    /// Oldest first.
    done: VecDeque<Entry>,
    /// Who had each partition after the last assignment; `None` if there were too many to remember.
    owners: Option<BTreeMap<(String, i32), String>>,
    changed_at: MonoTime,
}

#[derive(Clone, Debug)]
struct Entry {
    started_at: MonoTime,
    closed_at: Option<MonoTime>,
    assigned_at: Option<MonoTime>,
    /// How often the barrier opened again before everybody knew their partitions.
    restart_count: u32,
    generation_id: i32,
    protocol: String,
    causes: Vec<(MonoTime, Cause)>,
    left_out_count: u32,
    members: Vec<(Who, u32)>,
    moved: Vec<MovedPartition>,
    moved_count: u32,
}

#[derive(Clone, Debug)]
struct Cause {
    kind: &'static str,
    member: Who,
    reason: String,
}

impl Journals {
    pub fn new(now: MonoTime) -> Journals {
        Journals { journals: BTreeMap::new(), progress: Progress::default(), since: now }
    }

    /// Takes a group's notes up.
    pub fn take(&mut self, now: MonoTime, group_id: &str, notes: Vec<Note>) {
        if notes.is_empty() {
            return;
        }
        if !self.journals.contains_key(group_id) {
            self.make_room();
            self.journals.insert(group_id.to_owned(), Journal { owners: Some(BTreeMap::new()), ..Journal::default() });
        }
        let Some(journal) = self.journals.get_mut(group_id) else { return };
        journal.changed_at = now;
        for note in notes {
            journal.take(now, note);
        }
    }

    /// A commit that was let in.
    pub fn committed(&mut self, now: MonoTime, commit: &GroupCommit) {
        self.progress.take(now, commit);
    }

    /// Forgets the group that has been quiet for longest.
    fn make_room(&mut self) {
        if self.journals.len() < GROUPS_MAX {
            return;
        }
        let quietest = self.journals.iter().min_by_key(|(_, journal)| journal.changed_at);
        if let Some(id) = quietest.map(|(id, _)| id.clone()) {
            self.journals.remove(&id);
        }
    }
}

impl Journal {
    fn take(&mut self, now: MonoTime, note: Note) {
        match note {
            Note::Joined { member, again, reason } => {
                let kind = if again { "joined again" } else { "joined" };
                self.cause(now, Cause { kind, member, reason: shortened(reason) });
            }
            Note::Left(member, departure) => {
                let (kind, reason) = match departure {
                    Departure::Left(reason) => ("left", reason),
                    Departure::SessionExpired => ("session expired", String::new()),
                    Departure::MissedBarrier => ("did not join again in time", String::new()),
                    Departure::NeverSynced => ("never asked for its partitions", String::new()),
                };
                self.cause(now, Cause { kind, member, reason: shortened(reason) });
            }
            Note::Opened => {
                let entry = self.entry(now);
                // What opened before and was not carried to its end begins anew.
                if entry.closed_at.take().is_some() {
                    entry.restart_count += 1;
                }
            }
            Note::Closed { generation_id, protocol, member_count } => {
                let entry = self.entry(now);
                entry.closed_at = Some(now);
                entry.generation_id = generation_id;
                entry.protocol = protocol;
                if member_count == 0 {
                    self.assigned(now, Vec::new());
                }
            }
            Note::Assigned(assignments) => self.assigned(now, assignments),
        }
    }

    /// The rebalance that is going on, or a new one.
    fn entry(&mut self, now: MonoTime) -> &mut Entry {
        self.open.get_or_insert_with(|| Entry {
            started_at: now,
            closed_at: None,
            assigned_at: None,
            restart_count: 0,
            generation_id: -1,
            protocol: String::new(),
            causes: Vec::new(),
            left_out_count: 0,
            members: Vec::new(),
            moved: Vec::new(),
            moved_count: 0,
        })
    }

    fn cause(&mut self, now: MonoTime, cause: Cause) {
        let entry = self.entry(now);
        if entry.causes.len() < CAUSES_MAX {
            entry.causes.push((now, cause));
        } else {
            entry.left_out_count += 1;
        }
    }

    fn assigned(&mut self, now: MonoTime, assignments: Vec<(Who, Bytes)>) {
        let mut owners: Option<BTreeMap<(String, i32), String>> = Some(BTreeMap::new());
        let mut members = Vec::new();
        for (who, bytes) in assignments {
            let partitions = subscription::partitions(&bytes).unwrap_or_default();
            let count = partitions.len();
            if let Some(known) = &mut owners {
                known.extend(
                    partitions.into_iter().map(|(topic, index)| ((topic.to_owned(), index), who.member_id.clone())),
                );
                if known.len() > OWNERS_MAX {
                    owners = None;
                }
            }
            members.push((who, u32::try_from(count).unwrap_or(u32::MAX)));
        }
        let mut moved = Vec::new();
        if let (Some(before), Some(after)) = (&self.owners, &owners) {
            let gone = before.keys().filter(|tp| !after.contains_key(*tp));
            for tp in after.keys().chain(gone) {
                let owner = |of: &BTreeMap<(String, i32), String>| of.get(tp).cloned().unwrap_or_default();
                let (from, to) = (owner(before), owner(after));
                if from != to {
                    moved.push(MovedPartition { topic: tp.0.clone(), partition: tp.1, from, to });
                }
            }
        }
        self.owners = owners;
        let Some(mut entry) = self.open.take() else { return };
        entry.assigned_at = Some(now);
        entry.moved_count = u32::try_from(moved.len()).unwrap_or(u32::MAX);
        moved.truncate(MOVED_MAX);
        entry.moved = moved;
        members.truncate(MEMBERS_MAX);
        entry.members = members;
        if self.done.len() == ENTRIES_MAX {
            self.done.pop_front();
        }
        self.done.push_back(entry);
    }

    fn rebalances(&self, now: MonoTime) -> Vec<Rebalance> {
        self.open.iter().chain(self.done.iter().rev()).map(|entry| entry.answer(now)).collect()
    }
}

impl Entry {
    fn answer(&self, now: MonoTime) -> Rebalance {
        let since = |from: MonoTime, to: MonoTime| i64::try_from(to.since(from).as_millis()).unwrap_or(i64::MAX);
        Rebalance {
            generation_id: self.generation_id,
            age_ms: since(self.started_at, now),
            barrier_ms: self.closed_at.map_or(-1, |closed| since(self.started_at, closed)),
            assignment_ms: self.closed_at.zip(self.assigned_at).map_or(-1, |(closed, end)| since(closed, end)),
            restart_count: self.restart_count,
            protocol: self.protocol.clone(),
            causes: self
                .causes
                .iter()
                .map(|(at, cause)| RebalanceCause {
                    kind: cause.kind.to_owned(),
                    member_id: cause.member.member_id.clone(),
                    instance_id: cause.member.instance_id.clone(),
                    client_id: cause.member.client_id.clone(),
                    client_host: cause.member.client_host.clone(),
                    reason: cause.reason.clone(),
                    age_ms: since(*at, now),
                })
                .collect(),
            causes_left_out: self.left_out_count,
            members: self
                .members
                .iter()
                .map(|(who, partition_count)| RebalanceMember {
                    member_id: who.member_id.clone(),
                    instance_id: who.instance_id.clone(),
                    client_id: who.client_id.clone(),
                    client_host: who.client_host.clone(),
                    partition_count: *partition_count,
                })
                .collect(),
            moved: self.moved.clone(),
            moved_count: self.moved_count,
        }
    }
}

impl Who {
    pub fn of(record: &GroupMember) -> Who {
        Who {
            member_id: record.member_id.clone(),
            instance_id: record.instance_id.clone(),
            client_id: record.client_id.clone(),
            client_host: record.client_host.clone(),
        }
    }
}

impl Session {
    pub(super) fn explain(&self, now: MonoTime, state: &State, request: &ExplainRequest) -> ExplainResponse {
        let id = &request.group_id;
        let journals = self.groups.journals();
        let journal = journals.journals.get(id);
        if journal.is_none() && state.group(id).is_none() && self.groups.get(id).is_none() {
            let refused = error(ErrorCode::GroupIdNotFound, format!("there is no group '{id}'"));
            return ExplainResponse { error: Some(refused), ..ExplainResponse::default() };
        }
        ExplainResponse {
            error: Some(ok()),
            rebalances: journal.map(|journal| journal.rebalances(now)).unwrap_or_default(),
            progress: journals.progress.answer(now, id),
            journal_age_ms: i64::try_from(now.since(journals.since).as_millis()).unwrap_or(i64::MAX),
        }
    }
}

/// A client's words are kept as far as a person would read them.
fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(REASON_CHARACTERS_MAX) {
        text.truncate(end);
    }
    text
}

const GROUPS_MAX: usize = 1_000;
/// Rebalances kept of one group.
const ENTRIES_MAX: usize = 20;
/// Members named as causes of one rebalance, and as its outcome.
const CAUSES_MAX: usize = 50;
const MEMBERS_MAX: usize = 100;
const MOVED_MAX: usize = 100;
const OWNERS_MAX: usize = 10_000;
const REASON_CHARACTERS_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn who(id: &str) -> Who {
        Who { member_id: id.to_owned(), ..Who::default() }
    }

    /// A `ConsumerProtocolAssignment` of partitions of topic `t`.
    fn assignment(partitions: &[u8]) -> Bytes {
        let mut bytes = b"\0\x01\0\0\0\x01\0\x01t\0\0\0".to_vec();
        bytes.push(u8::try_from(partitions.len()).unwrap());
        partitions.iter().for_each(|partition| bytes.extend([0, 0, 0, *partition]));
        bytes.into()
    }

    fn round(journals: &mut Journals, at_ms: u64, generation_id: i32, shares: &[(&str, &[u8])]) {
        let at = |ms| MonoTime::default().plus_ms(ms);
        journals.take(at(at_ms), "g", vec![Note::Opened]);
        let closed = Note::Closed { generation_id, protocol: "range".into(), member_count: shares.len() };
        journals.take(at(at_ms + 20), "g", vec![closed]);
        let assigned = shares.iter().map(|(id, partitions)| (who(id), assignment(partitions))).collect();
        journals.take(at(at_ms + 25), "g", vec![Note::Assigned(assigned)]);
    }

    fn told(journals: &Journals, at_ms: u64) -> Vec<Rebalance> {
        journals.journals["g"].rebalances(MonoTime::default().plus_ms(at_ms))
    }

    #[test]
    fn a_rebalance_has_its_cause_its_times_and_what_it_moved() {
        let mut journals = Journals::new(MonoTime::default());
        let joined = |id: &str| Note::Joined { member: who(id), again: false, reason: "r".repeat(500) };
        journals.take(MonoTime::default().plus_ms(90), "g", vec![joined("a")]);
        round(&mut journals, 100, 1, &[("a", &[0, 1])]);
        journals.take(MonoTime::default().plus_ms(200), "g", vec![Note::Left(who("x"), Departure::SessionExpired)]);
        round(&mut journals, 200, 2, &[("a", &[0]), ("b", &[1])]);
        let told = told(&journals, 1_000);
        assert_eq!(told.iter().map(|one| one.generation_id).collect::<Vec<_>>(), [2, 1], "newest first");
        assert_eq!((told[0].age_ms, told[0].barrier_ms, told[0].assignment_ms), (800, 20, 5));
        assert_eq!(told[1].barrier_ms, 30, "it counts from its cause");
        assert_eq!((told[0].causes[0].kind.as_str(), told[1].causes[0].kind.as_str()), ("session expired", "joined"));
        assert_eq!(told[1].causes[0].reason.len(), REASON_CHARACTERS_MAX);
        let moved =
            |from: &str, to: &str| MovedPartition { topic: "t".into(), partition: 1, from: from.into(), to: to.into() };
        assert_eq!((told[0].moved.clone(), told[0].moved_count), (vec![moved("a", "b")], 1), "0 stays where it was");
        assert_eq!(told[1].moved_count, 2);
    }

    #[test]
    fn a_barrier_that_opens_again_belongs_to_the_same_rebalance() {
        let mut journals = Journals::new(MonoTime::default());
        let closed = Note::Closed { generation_id: 1, protocol: String::new(), member_count: 2 };
        journals.take(MonoTime::default(), "g", vec![Note::Opened, closed]);
        round(&mut journals, 500, 2, &[("a", &[0])]);
        let told = told(&journals, 525);
        assert_eq!((told.len(), told[0].restart_count, told[0].generation_id), (1, 1, 2));
        assert_eq!(told[0].barrier_ms, 520);
    }

    /// Goal: a group that never rests, and ever new groups, take bounded memory.
    #[test]
    fn the_oldest_are_forgotten() {
        let mut journals = Journals::new(MonoTime::default());
        for i in 0..100 {
            round(&mut journals, 100 * i, i32::try_from(i).unwrap(), &[("a", &[0])]);
        }
        let kept: Vec<i32> = told(&journals, 10_000).iter().map(|one| one.generation_id).collect();
        assert_eq!(kept, (80..100).rev().collect::<Vec<_>>());
        for i in 0..GROUPS_MAX + 50 {
            journals.take(MonoTime::default().plus_ms(20_000 + i as u64), &format!("g{i}"), vec![Note::Opened]);
        }
        assert_eq!(journals.journals.len(), GROUPS_MAX);
        assert!(!journals.journals.contains_key("g"), "it was quiet for longest");
        let flood = (0..200).map(|_| Note::Left(who("a"), Departure::MissedBarrier)).collect();
        journals.take(MonoTime::default().plus_ms(90_000), "g60", flood);
        let entry = journals.journals["g60"].open.clone().unwrap();
        assert_eq!((entry.causes.len(), entry.left_out_count), (CAUSES_MAX, 150));
    }
}
