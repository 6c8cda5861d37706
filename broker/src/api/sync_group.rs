//! SyncGroup (key 14, versions 0-5): brings the leader's assignment, or fetches one's own.
//!
//! Assignments are opaque and go through untouched. From version 5 on the member says which protocol it expects (KIP-559)
//! and must do so: error 23.

use thalweg_model::ErrorCode;
use thalweg_proto::v1;
use thalweg_wire::messages::{SyncGroupRequest, SyncGroupResponse};

use super::context::RequestContext;
use super::metadata::kafka_code;
use crate::services::Services;

pub async fn handle(services: &Services, cx: &RequestContext, request: SyncGroupRequest) -> SyncGroupResponse {
    if cx.version() >= 5 && (request.protocol_type.is_none() || request.protocol_name.is_none()) {
        return refused(ErrorCode::InconsistentGroupProtocol);
    }
    match services.groups.sync(forwarded(request)).await {
        Ok(synced) => answer(synced),
        Err(code) => refused(code),
    }
}

fn forwarded(request: SyncGroupRequest) -> v1::SyncRequest {
    let assignments = request.assignments.into_iter();
    v1::SyncRequest {
        group_id: request.group_id,
        generation_id: request.generation_id,
        member_id: request.member_id,
        instance_id: request.group_instance_id,
        protocol_type: request.protocol_type,
        protocol_name: request.protocol_name,
        assignments: assignments
            .map(|given| v1::SyncAssignment { member_id: given.member_id, assignment: given.assignment })
            .collect(),
    }
}

fn answer(synced: v1::SyncResponse) -> SyncGroupResponse {
    let code = kafka_code(synced.error.as_ref());
    if code.is_error() {
        return refused(code);
    }
    SyncGroupResponse {
        protocol_type: synced.protocol_type,
        protocol_name: synced.protocol_name,
        assignment: synced.assignment,
        ..Default::default()
    }
}

fn refused(code: ErrorCode) -> SyncGroupResponse {
    SyncGroupResponse { error_code: code.code(), ..Default::default() }
}
