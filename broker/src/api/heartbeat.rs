//! Heartbeat (key 12, versions 0-4): keeps a member of a classic group alive. The clock that counts is the coordinator's.

use thalweg_proto::v1;
use thalweg_wire::messages::{HeartbeatRequest, HeartbeatResponse};

use super::context::RequestContext;
use super::metadata::kafka_code;
use crate::services::Services;

pub async fn handle(services: &Services, _: &RequestContext, request: HeartbeatRequest) -> HeartbeatResponse {
    let member = v1::MemberHeartbeat {
        group_id: request.group_id,
        generation_id: request.generation_id,
        member_id: request.member_id,
        instance_id: request.group_instance_id,
    };
    let code = match services.groups.heartbeat(member).await {
        Ok(error) => kafka_code(Some(&error)),
        Err(code) => code,
    };
    HeartbeatResponse { error_code: code.code(), ..Default::default() }
}
