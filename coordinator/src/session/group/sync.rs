//! Syncing: the leader assigns, everyone learns its part.

use std::collections::BTreeMap;

use bytes::Bytes;
use thalweg_model::ErrorCode;
use thalweg_proto::v1::command::Kind;
use thalweg_proto::v1::{KafkaError, SaveAssignment, SyncAssignment, SyncRequest, SyncResponse};

use super::{Cx, Group, GroupEffect, InFlight, NEVER, Phase, refused_sync};
use crate::registry::{error, ok};
use crate::session::journal::{Note, Who};
use crate::session::{Reply, Ticket};

impl Group {
    pub(super) fn sync(&mut self, cx: &mut Cx<'_>, ticket: Ticket, request: SyncRequest) {
        if let Err(refused) = self.check_sync(&request) {
            cx.reply(ticket, refused_sync(refused));
            return;
        }
        let id = request.member_id;
        let Some(member) = self.members.get_mut(&id) else { return };
        member.has_synced = true;
        match self.phase {
            Phase::Empty => {
                let refused = self.unknown(&id);
                cx.reply(ticket, refused_sync(refused));
            }
            Phase::Preparing { .. } => {
                let refused = self.rebalancing();
                cx.reply(ticket, refused_sync(refused));
            }
            Phase::Stable { .. } => {
                member.renew(cx.now);
                let assignment = member.assignment.clone();
                cx.reply(ticket, self.synced(assignment));
            }
            Phase::Completing { .. } => {
                if let Some(earlier) = member.syncing.replace(ticket) {
                    cx.reply(earlier, refused_sync(error(ErrorCode::RebalanceInProgress, "synced again")));
                }
                member.deadline = NEVER;
                if self.leader.as_ref() == Some(&id) {
                    self.store_assignment(cx, request.assignments);
                }
            }
        }
    }

    pub(super) fn check_sync(&self, request: &SyncRequest) -> Result<(), KafkaError> {
        self.check(&request.member_id, request.instance_id.as_deref(), Some(request.generation_id))?;
        let differs = |given: &Option<String>, ours: &Option<String>| given.is_some() && given != ours;
        if differs(&request.protocol_type, &self.protocol_type) || differs(&request.protocol_name, &self.protocol_name)
        {
            let message = format!(
                "group '{}' uses protocol '{}' of type '{}'",
                self.id,
                self.protocol_name.as_deref().unwrap_or_default(),
                self.protocol_type.as_deref().unwrap_or_default()
            );
            return Err(error(ErrorCode::InconsistentGroupProtocol, message));
        }
        Ok(())
    }

    pub(super) fn store_assignment(&mut self, cx: &mut Cx<'_>, assignments: Vec<SyncAssignment>) {
        let command = SaveAssignment {
            group_id: self.id.clone(),
            generation_id: self.generation,
            assignments: assignments.clone(),
        };
        self.in_flight = Some(InFlight::Assignment { assignments });
        cx.out.push(GroupEffect::Propose(Kind::SaveAssignment(command)));
    }

    pub(super) fn assigned(&mut self, cx: &mut Cx<'_>, assignments: Vec<SyncAssignment>) {
        let Phase::Completing { sync_deadline } = self.phase else { return };
        self.phase = Phase::Stable { sync_deadline };
        let mut given: BTreeMap<String, Bytes> =
            assignments.into_iter().map(|one| (one.member_id, one.assignment)).collect();
        let mut answers = Vec::new();
        for (id, member) in &mut self.members {
            member.assignment = given.remove(id).unwrap_or_default();
            if let Some(ticket) = member.syncing.take() {
                member.renew(cx.now);
                answers.push((ticket, member.assignment.clone()));
            }
        }
        let shares =
            self.members.iter().map(|(id, member)| (Who::of(&member.to_record(id)), member.assignment.clone()));
        self.notes.push(Note::Assigned(shares.collect()));
        for (ticket, assignment) in answers {
            cx.reply(ticket, self.synced(assignment));
        }
    }

    pub(super) fn synced(&self, assignment: Bytes) -> Reply {
        Reply::Sync(SyncResponse {
            error: Some(ok()),
            protocol_type: self.protocol_type.clone(),
            protocol_name: self.protocol_name.clone(),
            assignment,
        })
    }
}
