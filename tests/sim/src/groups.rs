//! Calls of groups' members at the coordinators, and what may come of them: offsets are read as they were committed last (17),
//! and nothing is given to two members, nor done by one whose generation is over (18).

use std::collections::BTreeMap;

use thalweg_coordinator::registry::state::State;
use thalweg_coordinator::registry::{Machine, Outcome};
use thalweg_coordinator::session::{self, Call, Reply};
use thalweg_proto::v1;
use thalweg_proto::v1::command::Kind;

use crate::coordinator::{Asker, TOPIC};
use crate::members::group_id;
use crate::message::{Body, Node};
use crate::world::World;

/// What a member asks the coordinators.
#[derive(Clone, Debug)]
pub enum GroupCall {
    Session(Box<Call>),
    /// Every offset that the group has committed.
    Offsets {
        group: usize,
    },
}

#[derive(Clone, Debug)]
pub enum GroupAnswer {
    Session(Reply),
    /// Partitions without an offset are left out.
    Offsets(Vec<(i32, i64)>),
}

/// A partition, as a group sees it.
type Place = (usize, i32);

/// What groups have come to so far.
#[derive(Debug, Default)]
pub struct GroupWatch {
    /// What was committed, and when; -1 where it was removed.
    history: BTreeMap<Place, Vec<(u64, i64)>>,
    generations: BTreeMap<usize, i32>,
    /// Of each group and generation: who was given what.
    owners: BTreeMap<(usize, i32), BTreeMap<i32, String>>,
}

impl GroupWatch {
    fn current(&self, place: Place) -> i64 {
        self.history.get(&place).and_then(|history| history.last()).map_or(-1, |(_, offset)| *offset)
    }

    fn changed(&mut self, now: u64, place: Place, offset: i64) {
        self.history.entry(place).or_default().push((now, offset));
    }

    /// 18: a partition has one owner in a generation.
    ///
    /// # Errors
    /// Who has it already.
    pub fn given(&mut self, group: usize, generation: i32, member: &str, given: &[i32]) -> Result<(), String> {
        let owners = self.owners.entry((group, generation)).or_default();
        for partition in given {
            let owner = owners.entry(*partition).or_insert_with(|| member.to_owned());
            if owner != member {
                return Err(format!(
                    "group {group}: in generation {generation} partition {partition} is {owner}'s and {member}'s"
                ));
            }
        }
        Ok(())
    }

    /// 17: what is said to be committed was, while the call was under way.
    ///
    /// # Errors
    /// It was not.
    pub fn was_committed(&self, place: Place, offset: i64, since: u64, now: u64) -> Result<(), String> {
        let history = self.history.get(&place).map_or(&[][..], |history| history);
        if history.iter().any(|(at, committed)| *committed == offset && (since..=now).contains(at)) {
            return Ok(());
        }
        let (group, partition) = place;
        Err(format!("group {group}, partition {partition}: {offset} is said to be committed, and is not"))
    }

    /// 17: what is read was current at some moment while the call was under way.
    ///
    /// # Errors
    /// It was not: it is older, or was never there.
    pub fn was_current(&self, place: Place, offset: i64, since: u64, now: u64) -> Result<(), String> {
        let history = self.history.get(&place).map_or(&[][..], |history| history);
        let first = history.first().map_or(u64::MAX, |(at, _)| *at);
        let was_none = offset == -1 && first >= since;
        let ends = history.iter().skip(1).map(|(at, _)| *at).chain([u64::MAX]);
        let mut stood = history.iter().zip(ends);
        if was_none || stood.any(|((from, value), to)| *value == offset && *from <= now && to >= since) {
            return Ok(());
        }
        let ((group, partition), now) = (place, self.current(place));
        Err(format!("group {group}, partition {partition}: {offset} was read, and {now} is committed"))
    }

    /// A command was applied.
    ///
    /// # Errors
    /// The invariant that does not hold, and how.
    fn applied(&mut self, now: u64, kind: &Kind, outcome: &Outcome, state: &State) -> Result<(), (u8, String)> {
        match (kind, outcome) {
            (Kind::CommitOffsets(commit), Outcome::Committed(result)) => self.committed(now, commit, result, state),
            (Kind::SaveGeneration(command), Outcome::Done) => {
                let Some((group, saved)) = command.group.as_ref().and_then(|saved| Some((of(&saved.group_id)?, saved)))
                else {
                    return Ok(());
                };
                let before = self.generations.insert(group, saved.generation_id).unwrap_or(0);
                if saved.generation_id <= before {
                    return Err((6, format!("group {group}: generation {} after {before}", saved.generation_id)));
                }
                Ok(())
            }
            (Kind::SaveAssignment(command), Outcome::Done) => {
                let Some(group) = of(&command.group_id) else { return Ok(()) };
                for share in &command.assignments {
                    let given: Vec<i32> = share.assignment.iter().map(|partition| i32::from(*partition)).collect();
                    let stored = state.group(&command.group_id).map_or(&[][..], |stored| &stored.members);
                    let member = stored.iter().find(|member| member.member_id == share.member_id);
                    let Some(member) = member else { continue };
                    let name = member.instance_id.as_ref().unwrap_or(&member.member_id);
                    self.given(group, command.generation_id, name, &given).map_err(|what| (18, what))?;
                }
                Ok(())
            }
            (Kind::DeleteTopics(_) | Kind::ExpireOffsets(_), _) => self.removed(now, kind, state),
            _ => Ok(()),
        }
    }

    fn committed(
        &mut self,
        now: u64,
        commit: &v1::GroupCommit,
        result: &v1::GroupCommitResult,
        state: &State,
    ) -> Result<(), (u8, String)> {
        let Some(group) = of(&commit.group_id) else { return Ok(()) };
        let accepted = commit.offsets.iter().zip(&result.errors).filter(|(_, error)| error.code == 0);
        for (offset, _) in accepted {
            let generation = self.generations.get(&group).copied().unwrap_or(0);
            if commit.generation_id != generation {
                let who = &commit.member_id;
                let what = format!(
                    "group {group}: {who} commits in generation {}, {generation} has begun",
                    commit.generation_id
                );
                return Err((18, what));
            }
            self.changed(now, (group, offset.partition), offset.offset);
            let stored = state.offset(&commit.group_id, &offset.topic, offset.partition);
            if stored.map(|stored| stored.offset) != Some(offset.offset) {
                return Err((17, format!("group {group}: {} is not kept", offset.offset)));
            }
        }
        Ok(())
    }

    /// Offsets go with their topic, or with the time, once nobody is in the group; never else.
    fn removed(&mut self, now: u64, kind: &Kind, state: &State) -> Result<(), (u8, String)> {
        // A group that is gone begins anew.
        let is_there = |group: &usize| state.group(&group_id(*group)).is_some();
        self.generations.retain(|group, _| is_there(group));
        self.owners.retain(|(group, _), _| is_there(group));
        let places: Vec<Place> = self.history.keys().copied().collect();
        for place in places {
            let (group, partition) = place;
            let id = group_id(group);
            if self.current(place) == -1 || state.offset(&id, TOPIC, partition).is_some() {
                continue;
            }
            let is_empty = state.group(&id).is_none_or(|stored| stored.members.is_empty());
            if matches!(kind, Kind::ExpireOffsets(_)) && !is_empty {
                return Err((17, format!("group {group} has members, and lost its offset of partition {partition}")));
            }
            self.changed(now, place, -1);
        }
        Ok(())
    }
}

impl World {
    /// A member has asked whoever leads the coordinators.
    pub fn group_asked(&mut self, from: Node, call: u64, request: GroupCall) {
        match request {
            GroupCall::Session(mut request) => {
                let ticket = self.ticket(Asker::Member { node: from, call });
                // Drawn where the call arrives: a repetition is given another one.
                if let Call::Join { fresh_id, .. } = &mut *request {
                    *fresh_id = format!("{}", ticket.0);
                }
                self.session_event(session::Event::Call(ticket, *request));
            }
            GroupCall::Offsets { group } => {
                let offsets = offsets(&self.coordinator.machine, group, self.plan.partition_count);
                self.send(Node::COORDINATOR, from, Body::GroupAnswer { call, answer: GroupAnswer::Offsets(offsets) });
            }
        }
    }

    /// A member does not wait any more.
    pub fn group_withdrawn(&mut self, from: Node, call: u64) {
        for ticket in self.coordinator.tickets_of(from, call) {
            self.session_event(session::Event::Withdrawn(ticket));
        }
    }

    pub fn check_groups(&mut self, kind: &Kind, outcome: &Outcome) {
        let state = self.coordinator.machine.state();
        if let Err((invariant, what)) = self.checker.groups.applied(self.now, kind, outcome, state) {
            self.checker.fail(invariant, what);
        }
    }
}

/// What a group has committed, as these registries have it.
pub fn offsets(machine: &Machine, group: usize, partition_count: usize) -> Vec<(i32, i64)> {
    let id = group_id(group);
    let offset = |partition: i32| Some((partition, machine.state().offset(&id, TOPIC, partition)?.offset));
    (0..partition_count as i32).filter_map(offset).collect()
}

/// The group's number.
fn of(id: &str) -> Option<usize> {
    id.strip_prefix('g')?.parse().ok()
}
