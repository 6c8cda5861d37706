//! JoinGroup (key 11, versions 0-9): enters a rebalance of a classic group.
//!
//! The call to the coordinator stays open for as long as the barrier does; a client that goes away cancels it.
//! - Version 0 has no rebalance timeout of its own: the session timeout.
//! - From version 4 on the coordinator asks a new member to come again with a given id (KIP-394).
//! - From version 7 on protocol type and name are null on errors, before they are empty.

use thalweg_model::ErrorCode;
use thalweg_proto::v1;
use thalweg_wire::messages::join_group::JoinGroupResponseMember;
use thalweg_wire::messages::{JoinGroupRequest, JoinGroupResponse};

use super::context::RequestContext;
use super::metadata::kafka_code;
use crate::services::Services;

pub async fn handle(services: &Services, cx: &RequestContext, request: JoinGroupRequest) -> JoinGroupResponse {
    let member_id = request.member_id.clone();
    match services.groups.join(forwarded(cx, request)).await {
        Ok(joined) => answer(joined, member_id),
        Err(code) => refused(code, member_id),
    }
}

fn forwarded(cx: &RequestContext, request: JoinGroupRequest) -> v1::JoinRequest {
    let has_own_timeout = cx.version() >= 1;
    let protocols = request.protocols.into_iter();
    v1::JoinRequest {
        group_id: request.group_id,
        member_id: request.member_id,
        instance_id: request.group_instance_id,
        protocol_type: request.protocol_type,
        protocols: protocols
            .map(|protocol| v1::JoinProtocol { name: protocol.name, metadata: protocol.metadata })
            .collect(),
        session_timeout_ms: request.session_timeout_ms,
        rebalance_timeout_ms: if has_own_timeout { request.rebalance_timeout_ms } else { request.session_timeout_ms },
        client_id: cx.client_id().to_owned(),
        client_host: cx.client_host(),
        api_version: i32::from(cx.version()),
        reason: request.reason.unwrap_or_default(),
    }
}

fn answer(joined: v1::JoinResponse, asked_as: String) -> JoinGroupResponse {
    let code = kafka_code(joined.error.as_ref());
    if code.is_error() {
        return refused(code, if joined.member_id.is_empty() { asked_as } else { joined.member_id });
    }
    let members = joined.members.into_iter();
    JoinGroupResponse {
        generation_id: joined.generation_id,
        protocol_type: joined.protocol_type,
        protocol_name: joined.protocol_name,
        leader: joined.leader,
        skip_assignment: joined.skip_assignment,
        member_id: joined.member_id,
        members: members
            .map(|member| JoinGroupResponseMember {
                member_id: member.member_id,
                group_instance_id: member.instance_id,
                metadata: member.metadata,
            })
            .collect(),
        ..Default::default()
    }
}

/// `member_id` is the one that the client came with, or (error 79) the one to come with.
fn refused(code: ErrorCode, member_id: String) -> JoinGroupResponse {
    JoinGroupResponse { error_code: code.code(), protocol_name: None, member_id, ..Default::default() }
}
