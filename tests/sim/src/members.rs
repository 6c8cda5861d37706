//! Members of consumer groups: they join, are given partitions, fetch and commit offsets; they leave, die, and stand still for
//! so long that they act for a generation that is over.

use std::collections::BTreeMap;

use thalweg_coordinator::session::{Call, Reply};
use thalweg_model::ErrorCode;
use thalweg_proto::v1;

use crate::broker::code;
use crate::coordinator::TOPIC;
use crate::groups::{GroupAnswer, GroupCall};
use crate::message::{Body, Event, Node};
use crate::plan::MS;
use crate::world::{Phase, World};

/// A client that is a member of a group, most of the time.
pub struct Member {
    group: usize,
    instance: Option<String>,
    /// As the coordinators named it; empty before.
    id: String,
    generation: i32,
    state: State,
    /// What it deals out as the leader of its generation.
    shares: Vec<v1::SyncAssignment>,
    /// The partitions that it was given, and how far it has come in each.
    positions: BTreeMap<i32, Option<i64>>,
    /// The call that stands, and since when. There is one at a time, as on a connection.
    asked: Option<(u64, u64, Wanted)>,
    next_call: u64,
    next_heartbeat: u64,
    pub paused_until: u64,
    /// It is gone until then.
    pub away_until: u64,
    /// It has committed in the generation that it is in now, after the faults were over.
    is_proved: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Out,
    /// Knows its generation, and not yet its partitions.
    Joined,
    Stable,
}

/// What a call was about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    Join,
    Sync,
    Heartbeat,
    Leave,
    Commit(Vec<(i32, i64)>),
    Offsets,
}

impl Member {
    pub fn new(group: usize, instance: Option<String>) -> Member {
        Member {
            group,
            instance,
            id: String::new(),
            generation: -1,
            state: State::Out,
            shares: Vec::new(),
            positions: BTreeMap::new(),
            asked: None,
            next_call: 0,
            next_heartbeat: 0,
            paused_until: 0,
            away_until: 0,
            is_proved: false,
        }
    }

    /// Starts over, as another process does.
    fn forget(&mut self) {
        self.id.clear();
        self.leave_generation();
    }

    fn leave_generation(&mut self) {
        self.generation = -1;
        self.state = State::Out;
        self.positions.clear();
        self.shares.clear();
        self.is_proved = false;
    }

    /// What its refusals mean to it; as the Java client has it.
    fn refused(&mut self, error: ErrorCode) {
        match error {
            ErrorCode::UnknownMemberId | ErrorCode::FencedInstanceId => self.forget(),
            ErrorCode::IllegalGeneration | ErrorCode::RebalanceInProgress => self.leave_generation(),
            _ => {}
        }
    }
}

impl World {
    pub fn start_members(&mut self) {
        for member in 0..self.members.len() {
            let at = self.rng.below(500 * MS);
            self.after(at, Event::Member { member });
        }
    }

    /// A member does what is due.
    pub fn member(&mut self, member: usize) {
        let pause = self.rng.between(10, self.plan.groups.pause_max) * MS;
        self.after(pause, Event::Member { member });
        let this = &mut self.members[member];
        if this.paused_until > self.now || this.away_until > self.now {
            return;
        }
        if let Some((call, since, wanted)) = &this.asked {
            let patience = match wanted {
                Wanted::Join => self.plan.groups.rebalance_timeout_ms + 3_000,
                Wanted::Sync | Wanted::Heartbeat | Wanted::Leave | Wanted::Commit(_) | Wanted::Offsets => 1_500,
            };
            if self.now - since < u64::from(patience) * MS {
                return;
            }
            let call = *call;
            this.asked = None;
            self.send_call(member, Body::GroupWithdrawn { call });
            return;
        }
        let (request, wanted) = self.choose_call(member);
        self.ask_group(member, request, wanted);
    }

    fn choose_call(&mut self, member: usize) -> (GroupCall, Wanted) {
        let is_due = self.now >= self.members[member].next_heartbeat;
        let this = &self.members[member];
        let unknown = this.positions.values().any(Option::is_none);
        match this.state {
            State::Out => (self.join(member), Wanted::Join),
            State::Joined => (self.sync(member), Wanted::Sync),
            State::Stable if is_due => (self.heartbeat(member), Wanted::Heartbeat),
            State::Stable if unknown || self.rng.chance(100) => self.fetch_offsets(member),
            State::Stable => self.commit_more(member),
        }
    }

    fn join(&self, member: usize) -> GroupCall {
        let (this, groups) = (&self.members[member], &self.plan.groups);
        let request = v1::JoinRequest {
            group_id: group_id(this.group),
            member_id: this.id.clone(),
            instance_id: this.instance.clone(),
            protocol_type: "consumer".to_owned(),
            protocols: vec![v1::JoinProtocol { name: "range".to_owned(), metadata: vec![0].into() }],
            session_timeout_ms: groups.session_timeout_ms as i32,
            rebalance_timeout_ms: groups.rebalance_timeout_ms as i32,
            client_id: format!("c{member}"),
            client_host: "h".to_owned(),
            api_version: 9,
            reason: String::new(),
        };
        session(Call::Join { request, fresh_id: String::new() })
    }

    fn sync(&self, member: usize) -> GroupCall {
        let this = &self.members[member];
        session(Call::Sync(v1::SyncRequest {
            group_id: group_id(this.group),
            generation_id: this.generation,
            member_id: this.id.clone(),
            instance_id: this.instance.clone(),
            assignments: this.shares.clone(),
            ..v1::SyncRequest::default()
        }))
    }

    /// Often enough to hear of a rebalance before it is over.
    fn heartbeat(&mut self, member: usize) -> GroupCall {
        let (this, groups) = (&mut self.members[member], &self.plan.groups);
        this.next_heartbeat = self.now + u64::from(groups.session_timeout_ms.min(groups.rebalance_timeout_ms)) * MS / 4;
        let heartbeat = v1::MemberHeartbeat {
            group_id: group_id(this.group),
            generation_id: this.generation,
            member_id: this.id.clone(),
            instance_id: this.instance.clone(),
        };
        session(Call::Heartbeat(v1::HeartbeatRequest { members: vec![heartbeat] }))
    }

    fn fetch_offsets(&self, member: usize) -> (GroupCall, Wanted) {
        (GroupCall::Offsets { group: self.members[member].group }, Wanted::Offsets)
    }

    /// Of each partition that it was given, a little more than before.
    fn commit_more(&mut self, member: usize) -> (GroupCall, Wanted) {
        let this = &mut self.members[member];
        let mut offsets = Vec::new();
        for (partition, position) in &mut this.positions {
            let next = position.unwrap_or(0) + self.rng.between(1, 5) as i64;
            *position = Some(next);
            offsets.push((*partition, next));
        }
        let commit = v1::GroupCommit {
            group_id: group_id(this.group),
            generation_id: this.generation,
            member_id: this.id.clone(),
            instance_id: this.instance.clone(),
            offsets: offsets.iter().map(|(partition, offset)| committed(*partition, *offset)).collect(),
        };
        (session(Call::Commit(v1::CommitRequest { groups: vec![commit] })), Wanted::Commit(offsets))
    }

    pub fn leave_group(&mut self, member: usize) {
        let this = &mut self.members[member];
        let leaving =
            v1::LeavingMember { member_id: this.id.clone(), instance_id: this.instance.clone(), reason: String::new() };
        let request = v1::LeaveRequest { group_id: group_id(this.group), members: vec![leaving] };
        this.forget();
        self.ask_group(member, session(Call::Leave(request)), Wanted::Leave);
    }

    /// The process is gone, and whatever it waited for.
    pub fn end_member(&mut self, member: usize, until: u64) {
        let this = &mut self.members[member];
        this.away_until = until;
        this.forget();
        if let Some((call, ..)) = this.asked.take() {
            self.send_call(member, Body::GroupWithdrawn { call });
        }
    }

    fn ask_group(&mut self, member: usize, request: GroupCall, wanted: Wanted) {
        let this = &mut self.members[member];
        this.next_call += 1;
        let call = this.next_call;
        this.asked = Some((call, self.now, wanted));
        self.send_call(member, Body::Group { call, request });
    }

    fn send_call(&mut self, member: usize, body: Body) {
        self.send(self.member_node(member), Node::COORDINATOR, body);
    }

    pub fn member_node(&self, member: usize) -> Node {
        Node(self.brokers.len() + 1 + self.producers.len() + self.consumers.len() + member)
    }

    pub fn group_answered(&mut self, member: usize, call: u64, answer: GroupAnswer) {
        if let Some(until) = Some(self.members[member].paused_until).filter(|until| *until > self.now) {
            let node = self.member_node(member);
            let body = Body::GroupAnswer { call, answer };
            let message = crate::message::Message { from: Node::COORDINATOR, to: node, body };
            return self.at(until, Event::Deliver(Box::new(message)));
        }
        let Some((asked, since, wanted)) = self.members[member].asked.clone() else { return };
        if asked != call {
            return;
        }
        self.members[member].asked = None;
        match (answer, wanted) {
            (GroupAnswer::Session(Reply::Join(answer)), Wanted::Join) => self.joined(member, &answer),
            (GroupAnswer::Session(Reply::Sync(answer)), Wanted::Sync) => self.synced(member, &answer),
            (GroupAnswer::Session(Reply::Heartbeat(answer)), Wanted::Heartbeat) => {
                self.members[member].refused(code(answer.errors.first()));
            }
            (GroupAnswer::Session(Reply::Leave(_)), Wanted::Leave) => {}
            (GroupAnswer::Session(Reply::Commit(answer)), Wanted::Commit(offsets)) => {
                self.commit_answered(member, since, &answer, &offsets);
            }
            (GroupAnswer::Offsets(offsets), Wanted::Offsets) => self.offsets_fetched(member, since, &offsets),
            (answer, wanted) => self.checker.fail(0, format!("a call for {wanted:?} was answered with {answer:?}")),
        }
    }

    fn joined(&mut self, member: usize, answer: &v1::JoinResponse) {
        let this = &mut self.members[member];
        match code(answer.error.as_ref()) {
            ErrorCode::None => {}
            ErrorCode::MemberIdRequired => return this.id.clone_from(&answer.member_id),
            error => return this.refused(error),
        }
        this.id.clone_from(&answer.member_id);
        this.generation = answer.generation_id;
        this.state = State::Joined;
        let assigns = answer.leader == this.id && !answer.skip_assignment;
        let shares = if assigns { self.shares(&answer.members) } else { Vec::new() };
        self.members[member].shares = shares;
        let request = self.sync(member);
        self.ask_group(member, request, Wanted::Sync);
    }

    /// The leader deals the partitions out.
    fn shares(&mut self, members: &[v1::JoinedMember]) -> Vec<v1::SyncAssignment> {
        let mut shares = vec![Vec::new(); members.len()];
        for partition in 0..self.plan.partition_count {
            shares[self.rng.index(members.len())].push(partition as u8);
        }
        let share = |(member, share): (&v1::JoinedMember, Vec<u8>)| v1::SyncAssignment {
            member_id: member.member_id.clone(),
            assignment: share.into(),
        };
        members.iter().zip(shares).map(share).collect()
    }

    fn synced(&mut self, member: usize, answer: &v1::SyncResponse) {
        let this = &mut self.members[member];
        let error = code(answer.error.as_ref());
        if error != ErrorCode::None {
            return this.refused(error);
        }
        this.state = State::Stable;
        this.positions = answer.assignment.iter().map(|partition| (i32::from(*partition), None)).collect();
        this.next_heartbeat = 0;
        // A static member's place stays its own when it comes back under another id (KIP-345).
        let (group, generation, id) = (this.group, this.generation, this.instance.as_ref().unwrap_or(&this.id).clone());
        let given: Vec<i32> = this.positions.keys().copied().collect();
        self.checker.groups.given(group, generation, &id, &given).unwrap_or_else(|what| self.checker.fail(18, what));
    }

    fn commit_answered(&mut self, member: usize, since: u64, answer: &v1::CommitResponse, offsets: &[(i32, i64)]) {
        let this = &mut self.members[member];
        let errors = answer.groups.first().map(|group| &group.errors[..]).unwrap_or_default();
        let mut is_good = true;
        for ((partition, offset), error) in offsets.iter().zip(errors) {
            match code(Some(error)) {
                ErrorCode::None => {
                    let place = (this.group, *partition);
                    let seen = self.checker.groups.was_committed(place, *offset, since, self.now);
                    seen.unwrap_or_else(|what| self.checker.fail(17, what));
                }
                // While there is no topic.
                ErrorCode::UnknownTopicOrPartition => is_good = false,
                error => {
                    is_good = false;
                    this.refused(error);
                }
            }
        }
        this.is_proved |= is_good && matches!(self.phase, Phase::Heal { .. });
    }

    fn offsets_fetched(&mut self, member: usize, since: u64, offsets: &[(i32, i64)]) {
        let this = &mut self.members[member];
        for partition in 0..self.plan.partition_count as i32 {
            let offset = offsets.iter().find(|(other, _)| *other == partition).map_or(-1, |(_, offset)| *offset);
            let seen = self.checker.groups.was_current((this.group, partition), offset, since, self.now);
            seen.unwrap_or_else(|what| self.checker.fail(17, what));
            if let Some(position) = this.positions.get_mut(&partition) {
                *position = Some(offset.max(0));
            }
        }
    }

    /// Whether the member waits for the answer to this call.
    fn waits_for(&self, node: Node, call: u64) -> bool {
        let Node(first) = self.member_node(0);
        let asked = self.members.get(node.0 - first).and_then(|member| member.asked.as_ref());
        asked.is_some_and(|(asked, ..)| *asked == call)
    }

    /// 21: everybody is in the group's one generation, every partition is somebody's, and commits are taken.
    pub fn are_groups_well(&self) -> Result<(), String> {
        // 20: nothing is kept for those who have gone away.
        if let Some((node, call)) = self.coordinator.unwanted_call(|node, call| self.waits_for(node, call)) {
            return Err(format!("the coordinators keep call {call} of {node:?}, and nobody waits for it"));
        }
        for group in 0..self.plan.groups.sizes.len() {
            let members: Vec<&Member> = self.members.iter().filter(|member| member.group == group).collect();
            let Some(stored) = self.coordinator.machine.state().group(&group_id(group)) else {
                return Err(format!("group {group} is not there"));
            };
            let is_in = |member: &&Member| {
                member.state == State::Stable && member.generation == stored.generation_id && member.is_proved
            };
            if !members.iter().all(is_in) {
                return Err(format!("group {group} is at {}, and not everybody with it", stored.generation_id));
            }
            let mut given: Vec<i32> = members.iter().flat_map(|member| member.positions.keys().copied()).collect();
            given.sort_unstable();
            if !given.into_iter().eq(0..self.plan.partition_count as i32) || stored.members.len() != members.len() {
                return Err(format!("group {group} has not dealt out each partition once: {stored:?}"));
            }
        }
        Ok(())
    }
}

fn session(call: Call) -> GroupCall {
    GroupCall::Session(Box::new(call))
}

fn committed(partition: i32, offset: i64) -> v1::CommitOffset {
    v1::CommitOffset { topic: TOPIC.to_owned(), partition, offset, leader_epoch: -1, ..v1::CommitOffset::default() }
}

pub fn group_id(group: usize) -> String {
    format!("g{group}")
}
