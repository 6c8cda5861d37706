//! A member of a group, and until when it counts as alive.

use bytes::Bytes;
use thalweg_model::MonoTime;
use thalweg_proto::v1::{GroupMember, GroupProtocol, JoinRequest};

use super::super::Ticket;
use super::{NEVER, NEW_MEMBER_WAIT_MS};

pub(super) struct Member {
    pub instance_id: Option<String>,
    pub client_id: String,
    pub client_host: String,
    pub session_timeout_ms: i32,
    pub rebalance_timeout_ms: i32,
    pub protocols: Vec<GroupProtocol>,
    pub assignment: Bytes,
    /// Waits at the barrier. Invariant: at most one of `join` and `sync`.
    pub joining: Option<Waiter>,
    pub syncing: Option<Ticket>,
    /// Has asked for the assignment of this generation.
    pub has_synced: bool,
    /// Has not been in a generation yet.
    pub is_new: bool,
    /// Dropped at this time. Far off while it waits for us.
    pub deadline: MonoTime,
}

/// Whoever called may have gone away since; the member has joined all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiter(pub Ticket);

impl Member {
    pub fn new(request: JoinRequest) -> Member {
        let mut member = Member {
            instance_id: request.instance_id.clone(),
            client_id: String::new(),
            client_host: String::new(),
            session_timeout_ms: 0,
            rebalance_timeout_ms: 0,
            protocols: Vec::new(),
            assignment: Bytes::new(),
            joining: None,
            syncing: None,
            has_synced: false,
            is_new: true,
            deadline: NEVER,
        };
        member.update(request);
        member
    }

    pub fn restore(stored: &GroupMember, assigned: bool, now: MonoTime) -> Member {
        let mut member = Member {
            instance_id: stored.instance_id.clone(),
            client_id: stored.client_id.clone(),
            client_host: stored.client_host.clone(),
            session_timeout_ms: stored.session_timeout_ms,
            rebalance_timeout_ms: stored.rebalance_timeout_ms,
            protocols: stored.protocols.clone(),
            assignment: stored.assignment.clone(),
            joining: None,
            syncing: None,
            // Whether it had is not stored; whoever has not, asks again.
            has_synced: assigned,
            is_new: false,
            deadline: NEVER,
        };
        member.renew(now);
        member
    }

    pub fn to_record(&self, id: &str) -> GroupMember {
        GroupMember {
            member_id: id.to_owned(),
            instance_id: self.instance_id.clone(),
            client_id: self.client_id.clone(),
            client_host: self.client_host.clone(),
            session_timeout_ms: self.session_timeout_ms,
            rebalance_timeout_ms: self.rebalance_timeout_ms,
            protocols: self.protocols.clone(),
            assignment: self.assignment.clone(),
        }
    }

    /// What it joins with now. Its place and assignment stay.
    pub fn update(&mut self, request: JoinRequest) {
        self.client_id = request.client_id;
        self.client_host = request.client_host;
        self.session_timeout_ms = request.session_timeout_ms;
        self.rebalance_timeout_ms = request.rebalance_timeout_ms;
        let protocols = request.protocols.into_iter();
        self.protocols = protocols.map(|one| GroupProtocol { name: one.name, metadata: one.metadata }).collect();
    }

    /// Whether it would join with just what it has.
    pub fn offers(&self, request: &JoinRequest) -> bool {
        self.protocols.len() == request.protocols.len()
            && self
                .protocols
                .iter()
                .zip(&request.protocols)
                .all(|(own, other)| own.name == other.name && own.metadata == other.metadata)
    }

    pub fn metadata(&self, protocol: Option<&str>) -> Bytes {
        let own = self.protocols.iter().find(|own| Some(own.name.as_str()) == protocol);
        own.map(|own| own.metadata.clone()).unwrap_or_default()
    }

    /// Has been heard from. Without effect while it waits for us: then nothing is heard from it.
    pub fn renew(&mut self, now: MonoTime) {
        if self.joining.is_none() && self.syncing.is_none() {
            self.deadline = now.plus_ms(u64::try_from(self.session_timeout_ms).unwrap_or(0));
        }
    }

    pub fn wait_to_join(&mut self, now: MonoTime, ticket: Ticket) {
        self.joining = Some(Waiter(ticket));
        // A member without a past may be a client that gave up and joined again as another; such must not pile up.
        self.deadline = if self.is_new { now.plus_ms(NEW_MEMBER_WAIT_MS) } else { NEVER };
    }
}
