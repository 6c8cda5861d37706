//! LeaveGroup (key 13, versions 0-5): leaves a classic group.
//!
//! Versions 0-2 name one member, whose error is the answer's. From version 3 on there are several, by member id or
//! instance id (KIP-345), each with an error of its own.

use thalweg_model::ErrorCode;
use thalweg_proto::v1;
use thalweg_wire::messages::leave_group::MemberResponse;
use thalweg_wire::messages::{LeaveGroupRequest, LeaveGroupResponse};

use super::context::RequestContext;
use super::metadata::kafka_code;
use crate::services::Services;

pub async fn handle(services: &Services, cx: &RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse {
    if request.group_id.is_empty() {
        return refused(ErrorCode::InvalidGroupId);
    }
    match services.groups.leave(forwarded(cx.version(), request)).await {
        Ok(left) => answer(cx.version(), left),
        Err(code) => refused(code),
    }
}

fn forwarded(version: i16, request: LeaveGroupRequest) -> v1::LeaveRequest {
    let members = if version >= 3 {
        let members = request.members.into_iter();
        members
            .map(|member| v1::LeavingMember {
                member_id: member.member_id,
                instance_id: member.group_instance_id,
                reason: member.reason.unwrap_or_default(),
            })
            .collect()
    } else {
        vec![v1::LeavingMember { member_id: request.member_id, ..Default::default() }]
    };
    v1::LeaveRequest { group_id: request.group_id, members }
}

fn answer(version: i16, left: v1::LeaveResponse) -> LeaveGroupResponse {
    let code = kafka_code(left.error.as_ref());
    if code.is_error() {
        return refused(code);
    }
    if version < 3 {
        return refused(left.members.first().map_or(ErrorCode::None, |member| kafka_code(member.error.as_ref())));
    }
    let members = left.members.into_iter();
    LeaveGroupResponse {
        members: members
            .map(|member| MemberResponse {
                error_code: kafka_code(member.error.as_ref()).code(),
                member_id: member.member_id,
                group_instance_id: member.instance_id,
            })
            .collect(),
        ..Default::default()
    }
}

fn refused(code: ErrorCode) -> LeaveGroupResponse {
    LeaveGroupResponse { error_code: code.code(), ..Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unknown_member() -> v1::LeaveResponse {
        let error = v1::KafkaError { code: 25, message: "who".into() };
        let member = v1::LeftMember { member_id: "m".into(), instance_id: None, error: Some(error) };
        v1::LeaveResponse { error: None, members: vec![member] }
    }

    #[test]
    fn old_versions_see_the_members_error_as_the_answers_and_new_ones_below_it() {
        let old = answer(2, unknown_member());
        assert_eq!((old.error_code, old.members.len()), (25, 0));
        let new = answer(3, unknown_member());
        assert_eq!((new.error_code, new.members[0].error_code), (0, 25));
    }

    #[test]
    fn old_versions_name_one_member_outside_the_list() {
        let request = LeaveGroupRequest { group_id: "g".into(), member_id: "m".into(), ..Default::default() };
        assert_eq!(forwarded(0, request.clone()).members[0].member_id, "m");
        assert!(forwarded(3, request).members.is_empty());
    }
}
