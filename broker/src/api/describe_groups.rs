//! DescribeGroups (key 15, versions 0-6): state and members of classic groups.
//!
//! A group that does not exist is in state Dead: with error 0 before version 6, with 69 and a sentence from then on
//! (KIP-1043). Operations are told only on request (versions 3 and later); without authorization they are all of a group's.

use thalweg_model::ErrorCode;
use thalweg_proto::v1;
use thalweg_wire::messages::describe_groups::{DescribedGroup, DescribedGroupMember};
use thalweg_wire::messages::{DescribeGroupsRequest, DescribeGroupsResponse};

use super::authorized_operations::{GROUP_OPERATIONS, told};
use super::context::RequestContext;
use super::group_gateway::code_and_message;
use crate::services::Services;

pub async fn handle(
    services: &Services,
    cx: &RequestContext,
    request: DescribeGroupsRequest,
) -> DescribeGroupsResponse {
    let operations = told(GROUP_OPERATIONS, request.include_authorized_operations);
    if request.groups.is_empty() {
        return DescribeGroupsResponse::default();
    }
    let forwarded = v1::DescribeRequest { group_ids: request.groups.clone() };
    let groups = match services.groups.describe(forwarded).await {
        Ok(described) => described.groups.into_iter().map(|group| answer(cx.version(), group, operations)).collect(),
        Err(code) => request.groups.into_iter().map(|group_id| failed(group_id, code)).collect(),
    };
    DescribeGroupsResponse { groups, ..Default::default() }
}

fn answer(version: i16, group: v1::DescribedGroup, authorized_operations: i32) -> DescribedGroup {
    let (code, error_message) = code_and_message(group.error.as_ref());
    if code == ErrorCode::GroupIdNotFound {
        let code = if version >= 6 { code } else { ErrorCode::None };
        let dead = DescribedGroup { group_state: DEAD.to_owned(), error_message, ..failed(group.group_id, code) };
        // Version 6 answers an error, and errors tell no operations.
        return if version >= 6 { dead } else { DescribedGroup { authorized_operations, ..dead } };
    }
    if code.is_error() {
        return DescribedGroup { error_message, ..failed(group.group_id, code) };
    }
    let members = group.members.into_iter();
    DescribedGroup {
        group_id: group.group_id,
        group_state: group.state,
        protocol_type: group.protocol_type,
        protocol_data: group.protocol_name,
        members: members
            .map(|member| DescribedGroupMember {
                member_id: member.member_id,
                group_instance_id: member.instance_id,
                client_id: member.client_id,
                client_host: member.client_host,
                member_metadata: member.metadata,
                member_assignment: member.assignment,
            })
            .collect(),
        authorized_operations,
        ..Default::default()
    }
}

fn failed(group_id: String, code: ErrorCode) -> DescribedGroup {
    DescribedGroup { group_id, error_code: code.code(), ..Default::default() }
}

const DEAD: &str = "Dead";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_group_is_dead_and_an_error_only_from_version_6_on() {
        let unknown = || v1::DescribedGroup {
            group_id: "g".into(),
            error: Some(v1::KafkaError { code: 69, message: "no group 'g'".into() }),
            ..Default::default()
        };
        let old = answer(5, unknown(), i32::MIN);
        assert_eq!((old.group_state.as_str(), old.error_code), ("Dead", 0));
        let new = answer(6, unknown(), i32::MIN);
        assert_eq!(
            (new.group_state.as_str(), new.error_code, new.error_message.as_deref()),
            ("Dead", 69, Some("no group 'g'"))
        );
    }
}
