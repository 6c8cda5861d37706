//! Members of a classic group, step by step.

use bytes::Bytes;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, SyncGroupRequest};
use thalweg_model::ErrorCode;

use crate::calls::{group_id, text};
use crate::{Conn, target};

/// How a member joins. Times in milliseconds.
#[derive(Clone)]
pub struct Join {
    pub version: i16,
    pub group: String,
    pub member_id: String,
    pub instance_id: Option<String>,
    pub session_timeout: i32,
    pub rebalance_timeout: i32,
    pub protocol_type: &'static str,
    pub protocols: Vec<(&'static str, &'static [u8])>,
}

impl Join {
    pub fn new(group: &str) -> Join {
        Join {
            version: 7,
            group: group.to_owned(),
            member_id: String::new(),
            instance_id: None,
            session_timeout: 20_000,
            rebalance_timeout: 20_000,
            protocol_type: "consumer",
            protocols: vec![("range", b"meta")],
        }
    }

    pub fn request(&self) -> JoinGroupRequest {
        let protocols = self
            .protocols
            .iter()
            .map(|(name, data)| {
                JoinGroupRequestProtocol::default().with_name(text(name)).with_metadata(Bytes::from_static(data))
            })
            .collect();
        let request = JoinGroupRequest::default()
            .with_group_id(group_id(&self.group))
            .with_session_timeout_ms(self.session_timeout)
            .with_rebalance_timeout_ms(if self.version == 0 { -1 } else { self.rebalance_timeout })
            .with_member_id(text(&self.member_id))
            .with_protocol_type(text(self.protocol_type))
            .with_protocols(protocols);
        match &self.instance_id {
            Some(id) => request.with_group_instance_id(Some(text(id))),
            None => request,
        }
    }

    pub fn send(&self, conn: &mut Conn) -> i32 {
        conn.send(self.version, &self.request())
    }

    pub fn receive(&self, conn: &mut Conn, id: i32) -> JoinGroupResponse {
        conn.receive::<JoinGroupRequest>(self.version, id)
    }

    pub fn call(&self, conn: &mut Conn) -> JoinGroupResponse {
        conn.call(self.version, &self.request())
    }

    /// Takes the member id that the first round gives; dynamic members from v4 only.
    pub fn with_id(mut self, conn: &mut Conn) -> Join {
        let first = self.call(conn);
        assert_eq!(first.error_code, ErrorCode::MemberIdRequired.code());
        self.member_id = first.member_id.to_string();
        self
    }
}

/// A member that has joined, with the connection it lives on.
pub struct Member {
    pub conn: Conn,
    pub join: Join,
    pub generation: i32,
    pub leads: bool,
    pub members: usize,
}

impl Member {
    /// Joins alone or last: the barrier must close with this join.
    pub fn join(mut conn: Conn, join: Join) -> Member {
        let join = if join.instance_id.is_none() { join.with_id(&mut conn) } else { join };
        let answer = join.call(&mut conn);
        Member::joined(conn, join, &answer)
    }

    pub fn joined(conn: Conn, mut join: Join, answer: &JoinGroupResponse) -> Member {
        assert_eq!(answer.error_code, 0);
        join.member_id = answer.member_id.to_string();
        let leads = answer.leader == answer.member_id;
        assert_eq!(leads, !answer.members.is_empty(), "the leader alone sees the members");
        Member { conn, join, generation: answer.generation_id, leads, members: answer.members.len() }
    }

    /// Starts another join of this member; to be finished with [`Member::rejoined`].
    pub fn rejoin(&mut self) -> i32 {
        self.join.send(&mut self.conn)
    }

    pub fn rejoined(&mut self, id: i32) {
        let answer = self.join.receive(&mut self.conn, id);
        assert_eq!(answer.error_code, 0);
        self.generation = answer.generation_id;
        self.leads = answer.leader == answer.member_id;
        self.members = answer.members.len();
    }

    pub fn sync_request(&self, assignments: &[(&str, &'static [u8])]) -> SyncGroupRequest {
        let assignments = assignments
            .iter()
            .map(|(id, data)| {
                SyncGroupRequestAssignment::default().with_member_id(text(id)).with_assignment(Bytes::from_static(data))
            })
            .collect();
        SyncGroupRequest::default()
            .with_group_id(group_id(&self.join.group))
            .with_generation_id(self.generation)
            .with_member_id(text(&self.join.member_id))
            .with_group_instance_id(self.join.instance_id.as_deref().map(text))
            .with_assignments(assignments)
    }

    /// `(error_code, assignment)`.
    pub fn sync(&mut self, assignments: &[(&str, &'static [u8])]) -> (i16, Bytes) {
        let request = self.sync_request(assignments);
        let answer = self.conn.call(3, &request);
        (answer.error_code, answer.assignment)
    }

    pub fn heartbeat(&mut self) -> i16 {
        self.heartbeat_at(self.generation)
    }

    pub fn heartbeat_at(&mut self, generation: i32) -> i16 {
        let request = HeartbeatRequest::default()
            .with_group_id(group_id(&self.join.group))
            .with_generation_id(generation)
            .with_member_id(text(&self.join.member_id))
            .with_group_instance_id(self.join.instance_id.as_deref().map(text));
        self.conn.call(3, &request).error_code
    }

    pub fn id(&self) -> &str {
        &self.join.member_id
    }

    /// Beats until the group rebalances, as a client does between polls.
    pub fn await_rebalance(&mut self) {
        while self.heartbeat() == 0 {}
        assert_eq!(self.heartbeat(), ErrorCode::RebalanceInProgress.code());
    }
}

/// A stable group of one, assigned `b"all"`.
pub fn stable_group(group: &str) -> Member {
    stable_group_on(target().conn(), group)
}

pub fn stable_group_on(conn: Conn, group: &str) -> Member {
    let mut member = Member::join(conn, Join::new(group));
    let id = member.id().to_owned();
    assert_eq!(member.sync(&[(&id, b"all")]), (0, Bytes::from_static(b"all")));
    member
}

/// Adds a member to a stable group of one; both end in the same generation, synced.
pub fn joined_by(leader: &mut Member, join: Join) -> Member {
    let mut conn = target().conn();
    let join = if join.instance_id.is_none() { join.with_id(&mut conn) } else { join };
    let waiting = join.send(&mut conn);
    leader.await_rebalance();
    let again = leader.rejoin();
    leader.rejoined(again);
    let answer = join.receive(&mut conn, waiting);
    let mut follower = Member::joined(conn, join, &answer);
    assert_eq!(follower.generation, leader.generation);
    let (first, second) = (leader.id().to_owned(), follower.id().to_owned());
    assert!(leader.leads && leader.members == 2);
    assert_eq!(leader.sync(&[(&first, b"1"), (&second, b"2")]).0, 0);
    assert_eq!(follower.sync(&[]), (0, Bytes::from_static(b"2")));
    follower
}
