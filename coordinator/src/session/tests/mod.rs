//! Scripted histories: calls and time go in, answers and proposals come out.

mod brokers;
mod classic;
mod commits;
mod growth;
mod levels;
mod plans;
mod rebalance;
mod statics;

use std::collections::BTreeMap;

use bytes::Bytes;
use thalweg_model::{MonoTime, Timestamp};
use thalweg_proto::v1;
use thalweg_proto::v1::*;

use super::{Call, Effect, Event, Life, Reply, Session, Ticket, command};
use crate::registry::context::{Context, Seed};
use crate::registry::{Machine, Outcome, features};
use crate::settings::CoordinatorSettings;

/// A leader whose Raft commits at once, or when told to.
struct Leader {
    machine: Machine,
    session: Session,
    settings: CoordinatorSettings,
    now: MonoTime,
    index: u64,
    tickets: u64,
    replies: BTreeMap<Ticket, Reply>,
    /// Commands applied for sessions so far.
    proposals: u64,
    /// While `true`, commands wait in `held`.
    hold: bool,
    held: Vec<Effect>,
    probes: Vec<Life>,
}

impl Leader {
    fn new() -> Leader {
        let settings = CoordinatorSettings { group_initial_rebalance_delay_ms: 0, ..CoordinatorSettings::default() };
        Leader::with(settings)
    }

    fn with(settings: CoordinatorSettings) -> Leader {
        let machine = Machine::default();
        let session = Session::restore(settings.clone(), &machine, MonoTime::ZERO);
        let mut leader = Leader {
            machine,
            session,
            settings,
            now: MonoTime::ZERO,
            index: 0,
            tickets: 0,
            replies: BTreeMap::new(),
            proposals: 0,
            hold: false,
            held: Vec::new(),
            probes: Vec::new(),
        };
        leader.apply(&command(features::first_command([9; 16])));
        leader
    }

    /// The same registries under a new leader.
    fn fail_over(&mut self) {
        self.session = Session::restore(self.settings.clone(), &self.machine, self.now);
        self.held.clear();
    }

    fn apply(&mut self, command: &Command) -> Outcome {
        self.index += 1;
        let context = Context {
            index: self.index,
            time: Timestamp(i64::try_from(self.now.0 / 1_000_000).unwrap()),
            seed: Seed::new(self.index, 7),
            default_min_isr: 1,
        };
        let (outcome, _) = self.machine.apply(&context, command).unwrap();
        self.machine.end_entry(self.index);
        outcome
    }

    fn event(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let mut effects = Vec::new();
            self.session.on(self.now, &self.machine, event, &mut effects);
            for effect in effects {
                match effect {
                    Effect::Reply(ticket, reply) => {
                        assert!(self.replies.insert(ticket, reply).is_none(), "{ticket:?} was answered twice");
                    }
                    Effect::Probe(life, _) => self.probes.push(life),
                    Effect::Propose(..) if self.hold => self.held.push(effect),
                    Effect::Propose(proposal, command) => {
                        self.proposals += 1;
                        let outcome = self.apply(&command);
                        events.push(Event::Settled { proposal, outcome, feed_index: self.machine.feed_index() });
                    }
                }
            }
        }
    }

    /// Lets what was held commit.
    fn release(&mut self) {
        self.hold = false;
        for effect in std::mem::take(&mut self.held) {
            let Effect::Propose(proposal, command) = effect else { continue };
            let outcome = self.apply(&command);
            self.event(Event::Settled { proposal, outcome, feed_index: self.machine.feed_index() });
        }
    }

    fn call(&mut self, call: Call) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.event(Event::Call(ticket, call));
        ticket
    }

    fn reply(&mut self, ticket: Ticket) -> Reply {
        self.replies.remove(&ticket).unwrap_or_else(|| panic!("{ticket:?} was not answered"))
    }

    fn is_waiting(&self, ticket: Ticket) -> bool {
        !self.replies.contains_key(&ticket)
    }

    /// Time passes; every timer that is due in between goes off in its turn.
    fn pass_ms(&mut self, ms: u64) {
        let end = self.now.plus_ms(ms);
        while self.session.next_deadline() <= end {
            self.now = self.session.next_deadline().max(self.now);
            self.event(Event::Tick);
        }
        self.now = end;
        self.event(Event::Tick);
    }

    fn join(&mut self, request: JoinRequest) -> Ticket {
        let fresh_id = format!("id{}", self.tickets + 1);
        self.call(Call::Join { request, fresh_id })
    }

    fn joined(&mut self, ticket: Ticket) -> JoinResponse {
        match self.reply(ticket) {
            Reply::Join(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    fn sync(&mut self, member: &JoinResponse, assignments: &[(&str, &'static str)]) -> Ticket {
        let assignments = assignments.iter().map(|(member_id, assignment)| SyncAssignment {
            member_id: (*member_id).to_owned(),
            assignment: Bytes::from_static(assignment.as_bytes()),
        });
        self.call(Call::Sync(SyncRequest {
            group_id: GROUP.to_owned(),
            generation_id: member.generation_id,
            member_id: member.member_id.clone(),
            assignments: assignments.collect(),
            ..SyncRequest::default()
        }))
    }

    fn synced(&mut self, ticket: Ticket) -> SyncResponse {
        match self.reply(ticket) {
            Reply::Sync(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    fn heartbeat(&mut self, member: &JoinResponse) -> i32 {
        self.heartbeat_as(&member.member_id, None, member.generation_id)
    }

    fn heartbeat_as(&mut self, member_id: &str, instance_id: Option<&str>, generation_id: i32) -> i32 {
        let heartbeat = MemberHeartbeat {
            group_id: GROUP.to_owned(),
            generation_id,
            member_id: member_id.to_owned(),
            instance_id: instance_id.map(str::to_owned),
        };
        let ticket = self.call(Call::Heartbeat(HeartbeatRequest { members: vec![heartbeat] }));
        match self.reply(ticket) {
            Reply::Heartbeat(answer) => answer.errors[0].code,
            other => panic!("{other:?}"),
        }
    }

    fn leave(&mut self, member_id: &str, instance_id: Option<&str>) -> i32 {
        let member = LeavingMember {
            member_id: member_id.to_owned(),
            instance_id: instance_id.map(str::to_owned),
            reason: String::new(),
        };
        let ticket = self.call(Call::Leave(LeaveRequest { group_id: GROUP.to_owned(), members: vec![member] }));
        match self.reply(ticket) {
            Reply::Leave(answer) => answer.members[0].error.as_ref().unwrap().code,
            other => panic!("{other:?}"),
        }
    }

    fn describe(&mut self) -> DescribedGroup {
        let ticket = self.call(Call::Describe(DescribeRequest { group_ids: vec![GROUP.to_owned()] }));
        match self.reply(ticket) {
            Reply::Describe(answer) => answer.groups[0].clone(),
            other => panic!("{other:?}"),
        }
    }

    /// Joins in both rounds; `None` if the barrier stays open.
    fn enter(&mut self, client_id: &str) -> Ticket {
        let first = self.join(joining("", client_id));
        let given = self.joined(first);
        assert_eq!(code(&given.error), 79);
        self.join(joining(&given.member_id, client_id))
    }

    /// A group of one, stable, assigned "a".
    fn stable_one(&mut self) -> JoinResponse {
        let ticket = self.enter("one");
        let one = self.joined(ticket);
        let sync = self.sync(&one, &[(&one.member_id, "a")]);
        assert_eq!(self.synced(sync).assignment, "a");
        one
    }

    /// A group of two, stable, assigned "a" to the leader and "b" to the follower.
    fn stable_two(&mut self) -> (JoinResponse, JoinResponse) {
        let one = self.stable_one();
        let two = self.enter("two");
        let again = self.join(joining(&one.member_id, "one"));
        let (one, two) = (self.joined(again), self.joined(two));
        assert_eq!(one.leader, one.member_id);
        let follower = self.sync(&two, &[]);
        let leader = self.sync(&one, &[(&one.member_id, "a"), (&two.member_id, "b")]);
        assert_eq!((self.synced(leader).assignment, self.synced(follower).assignment), ("a".into(), "b".into()));
        (one, two)
    }

    /// One live broker and topic `t` with two partitions.
    fn with_topic(&mut self) {
        let registration = RegisterBrokerRequest {
            broker_id: 1,
            incarnation: 1,
            log_dirs: vec![LogDir { dir_id: vec![1; 16].into(), ..LogDir::default() }],
            endpoints: vec![Endpoint { host: "h".into(), port: 1, ..Endpoint::default() }],
            levels: Some(Levels::ours()),
            ..RegisterBrokerRequest::default()
        };
        let registered =
            self.apply(&command(v1::command::Kind::RegisterBroker(RegisterBroker { request: Some(registration) })));
        let Outcome::Registered(RegisterBrokerResponse { broker_epoch, .. }) = registered else { panic!() };
        self.apply(&command(v1::command::Kind::UnfenceBroker(UnfenceBroker { broker_id: 1, broker_epoch })));
        let topic = NewTopic { name: "t".into(), partitions: 2, replication_factor: 1, ..NewTopic::default() };
        self.apply(&command(v1::command::Kind::CreateTopics(CreateTopics { topics: vec![topic], partitions_max: 9 })));
        self.fail_over();
    }
}

const GROUP: &str = "g";
const SESSION_MS: i32 = 10_000;
const REBALANCE_MS: i32 = 60_000;

fn joining(member_id: &str, client_id: &str) -> JoinRequest {
    JoinRequest {
        group_id: GROUP.to_owned(),
        member_id: member_id.to_owned(),
        protocol_type: "consumer".to_owned(),
        protocols: vec![JoinProtocol { name: "range".to_owned(), metadata: Bytes::from_static(b"meta") }],
        session_timeout_ms: SESSION_MS,
        rebalance_timeout_ms: REBALANCE_MS,
        client_id: client_id.to_owned(),
        client_host: "/127.0.0.1".to_owned(),
        api_version: 5,
        ..JoinRequest::default()
    }
}

fn with_protocols(member_id: &str, names: &[&str]) -> JoinRequest {
    let protocols = names.iter().map(|name| JoinProtocol { name: (*name).to_owned(), metadata: Bytes::new() });
    JoinRequest { protocols: protocols.collect(), ..joining(member_id, "c") }
}

fn code(error: &Option<KafkaError>) -> i32 {
    error.as_ref().map_or(0, |error| error.code)
}
