//! Joining: who may, and as whom.

use thalweg_model::ErrorCode;
use thalweg_proto::v1::command::Kind;
use thalweg_proto::v1::{JoinRequest, JoinResponse, JoinedMember, KafkaError, ReplaceMember};

use super::member::{Member, Waiter};
use super::{
    Cx, Group, GroupEffect, InFlight, MEMBER_ID_REQUIRED_SINCE, Phase, SKIP_ASSIGNMENT_SINCE, refused_join,
    refused_sync,
};
use crate::registry::{error, ok};
use crate::session::journal::{Note, Who};
use crate::session::{Reply, Ticket};

impl Group {
    pub(super) fn join(&mut self, cx: &mut Cx<'_>, ticket: Ticket, request: JoinRequest, fresh_id: &str) {
        if let Err(refused) = self.admit(cx, &request) {
            cx.reply(ticket, refused_join(&request.member_id, refused));
        } else if request.member_id.is_empty() {
            self.join_as_new(cx, ticket, request, fresh_id);
        } else if request.instance_id.is_none() && self.pending.remove(&request.member_id).is_some() {
            let id = request.member_id.clone();
            self.add(cx, ticket, id, request);
        } else if let Err(refused) = self.check(&request.member_id, request.instance_id.as_deref(), None) {
            cx.reply(ticket, refused_join(&request.member_id, refused));
        } else {
            self.rejoin(cx, ticket, request);
        }
    }

    /// Whether the group has a protocol and a place for the member.
    pub(super) fn admit(&mut self, cx: &Cx<'_>, request: &JoinRequest) -> Result<(), KafkaError> {
        let others = &self.members;
        let shares = |protocol: &thalweg_proto::v1::JoinProtocol| {
            others.values().all(|member| member.protocols.iter().any(|own| own.name == protocol.name))
        };
        let same_type = others.is_empty() || self.protocol_type.as_ref() == Some(&request.protocol_type);
        if request.protocol_type.is_empty() || !same_type || !request.protocols.iter().any(shares) {
            let ours = self.protocol_type.as_deref().unwrap_or("any");
            let message = format!(
                "group '{}' is of protocol type '{ours}', and the member must offer a protocol that all members know",
                self.id
            );
            return Err(error(ErrorCode::InconsistentGroupProtocol, message));
        }
        let max = cx.settings.group_max_size;
        let known = self.members.get(&request.member_id);
        let has_place = match self.phase {
            Phase::Empty => true,
            Phase::Preparing { .. } => {
                known.is_some_and(|member| member.joining.is_some())
                    || self.members.values().filter(|member| member.joining.is_some()).count() < max
            }
            Phase::Completing { .. } | Phase::Stable { .. } => known.is_some() || self.members.len() < max,
        };
        let replaces = request.instance_id.as_ref().is_some_and(|instance| self.instances.contains_key(instance));
        if !has_place && !replaces {
            self.pending.remove(&request.member_id);
            let message = format!("group '{}' is full with {max} members (group.max.size)", self.id);
            return Err(error(ErrorCode::GroupMaxSizeReached, message));
        }
        Ok(())
    }

    pub(super) fn join_as_new(&mut self, cx: &mut Cx<'_>, ticket: Ticket, request: JoinRequest, fresh_id: &str) {
        if let Some(instance) = &request.instance_id {
            let id = format!("{instance}-{fresh_id}");
            match self.instances.get(instance).cloned() {
                Some(old) => self.replace(cx, ticket, &old, id, request),
                None => self.add(cx, ticket, id, request),
            }
            return;
        }
        let id = format!("{}-{fresh_id}", request.client_id);
        if request.api_version >= MEMBER_ID_REQUIRED_SINCE {
            let timeout = u64::try_from(request.session_timeout_ms).unwrap_or(0);
            self.pending.insert(id.clone(), cx.now.plus_ms(timeout));
            let message = format!("join group '{}' again as this member", self.id);
            cx.reply(ticket, refused_join(&id, error(ErrorCode::MemberIdRequired, message)));
        } else {
            self.add(cx, ticket, id, request);
        }
    }

    pub(super) fn add(&mut self, cx: &mut Cx<'_>, ticket: Ticket, id: String, request: JoinRequest) {
        if let Some(instance) = &request.instance_id {
            self.instances.insert(instance.clone(), id.clone());
        }
        if self.members.is_empty() {
            self.protocol_type = Some(request.protocol_type.clone());
        }
        self.leader.get_or_insert_with(|| id.clone());
        if let Phase::Preparing { initial: Some(initial), .. } = &mut self.phase {
            initial.has_new_member = true;
        }
        let reason = request.reason.clone();
        let mut member = Member::new(request);
        member.wait_to_join(cx.now, ticket);
        self.notes.push(Note::Joined { member: Who::of(&member.to_record(&id)), again: false, reason });
        self.members.insert(id, member);
        self.rebalance(cx);
    }

    /// A member that the group knows joins again.
    pub(super) fn rejoin(&mut self, cx: &mut Cx<'_>, ticket: Ticket, request: JoinRequest) {
        let id = request.member_id.clone();
        let is_leader = self.leader.as_ref() == Some(&id);
        let is_unchanged = self.members.get(&id).is_some_and(|member| member.offers(&request));
        match self.phase {
            // It may have missed the answer: same generation again (case 59).
            Phase::Completing { .. } if is_unchanged => self.answer_at_once(cx, ticket, &id, is_leader),
            // A leader asks for a rebalance by joining, as when the topics have changed.
            Phase::Stable { .. } if is_unchanged && !is_leader => self.answer_at_once(cx, ticket, &id, false),
            Phase::Empty => {
                let refused = self.unknown(&id);
                cx.reply(ticket, refused_join(&id, refused));
            }
            Phase::Preparing { .. } | Phase::Completing { .. } | Phase::Stable { .. } => {
                if let Some(member) = self.members.get_mut(&id) {
                    if let Some(Waiter(earlier)) = member.joining.take() {
                        // The client gave that call up; it may still be open at a broker.
                        cx.reply(earlier, refused_join(&id, error(ErrorCode::RebalanceInProgress, "joined again")));
                    }
                    // Whoever answers an open barrier asks for nothing.
                    let asks = !matches!(self.phase, Phase::Preparing { .. });
                    let reason = request.reason.clone();
                    member.update(request);
                    member.wait_to_join(cx.now, ticket);
                    if asks {
                        self.notes.push(Note::Joined { member: Who::of(&member.to_record(&id)), again: true, reason });
                    }
                }
                self.rebalance(cx);
            }
        }
    }

    pub(super) fn answer_at_once(&mut self, cx: &mut Cx<'_>, ticket: Ticket, id: &str, with_members: bool) {
        if let Some(member) = self.members.get_mut(id) {
            member.renew(cx.now);
        }
        cx.reply(ticket, Reply::Join(self.joined(id, with_members)));
    }

    /// A static member comes back under a new id; whoever used the old one is fenced (KIP-345).
    pub(super) fn replace(&mut self, cx: &mut Cx<'_>, ticket: Ticket, old: &str, id: String, request: JoinRequest) {
        let Some(mut member) = self.members.remove(old) else { return };
        let fenced =
            |id: &str| error(ErrorCode::FencedInstanceId, format!("instance of '{id}' joined again elsewhere"));
        if let Some(Waiter(waiting)) = member.joining.take() {
            cx.reply(waiting, refused_join(old, fenced(old)));
        }
        if let Some(waiting) = member.syncing.take() {
            cx.reply(waiting, refused_sync(fenced(old)));
        }
        let is_unchanged = member.offers(&request);
        let api_version = request.api_version;
        if let Some(instance) = &request.instance_id {
            self.instances.insert(instance.clone(), id.clone());
        }
        let old_leader = self.leader.clone();
        if self.leader.as_deref() == Some(old) {
            self.leader = Some(id.clone());
        }
        let reason = request.reason.clone();
        member.update(request);
        if is_unchanged && self.is_stable() {
            member.renew(cx.now);
            self.members.insert(id.clone(), member);
            self.store_replacement(cx, ticket, old, &id, old_leader, api_version);
            return;
        }
        member.wait_to_join(cx.now, ticket);
        self.notes.push(Note::Joined { member: Who::of(&member.to_record(&id)), again: true, reason });
        self.members.insert(id, member);
        self.rebalance(cx);
    }

    /// Nothing but the id has changed: no rebalance, but the id must outlive this leader.
    pub(super) fn store_replacement(
        &mut self,
        cx: &mut Cx<'_>,
        ticket: Ticket,
        old: &str,
        id: &str,
        old_leader: Option<String>,
        api_version: i32,
    ) {
        let is_leader = self.leader.as_deref() == Some(id);
        // From v9 on a leader is told not to assign; before, it is told of another leader, so that it does not (KIP-814).
        let knows_skip = api_version >= SKIP_ASSIGNMENT_SINCE;
        let mut answer = self.joined(id, is_leader && knows_skip);
        answer.skip_assignment = is_leader && knows_skip;
        if is_leader && !knows_skip {
            answer.leader = old_leader.unwrap_or_default();
        }
        let command = ReplaceMember {
            group_id: self.id.clone(),
            generation_id: self.generation,
            old_member_id: old.to_owned(),
            member: self.members.get(id).map(|member| member.to_record(id)),
            leader_id: self.leader.clone(),
        };
        self.in_flight = Some(InFlight::Replacement { ticket, answer });
        cx.out.push(GroupEffect::Propose(Kind::ReplaceMember(command)));
    }

    pub(super) fn joined(&self, id: &str, with_members: bool) -> JoinResponse {
        let members = self.members.iter().filter(|_| with_members).map(|(id, member)| JoinedMember {
            member_id: id.clone(),
            instance_id: member.instance_id.clone(),
            metadata: member.metadata(self.protocol_name.as_deref()),
        });
        JoinResponse {
            error: Some(ok()),
            generation_id: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol_name: self.protocol_name.clone(),
            leader: self.leader.clone().unwrap_or_default(),
            skip_assignment: false,
            member_id: id.to_owned(),
            members: members.collect(),
        }
    }
}
