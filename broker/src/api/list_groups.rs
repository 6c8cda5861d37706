//! ListGroups (key 16, versions 0-5): the groups that this broker fronts.
//!
//! Clients ask every broker and put the answers together, so each group is listed by the one broker that FindCoordinator
//! names. 4 filters by state (KIP-518), 5 by type (KIP-848).

use thalweg_model::ErrorCode;
use thalweg_proto::v1;
use thalweg_wire::messages::list_groups::ListedGroup;
use thalweg_wire::messages::{ListGroupsRequest, ListGroupsResponse};

use super::context::RequestContext;
use super::group_gateway::front_of;
use super::metadata::kafka_code;
use crate::services::Services;

pub async fn handle(services: &Services, cx: &RequestContext, request: ListGroupsRequest) -> ListGroupsResponse {
    let forwarded = v1::ListRequest { states: request.states_filter, types: request.types_filter };
    let listed = match services.groups.list(forwarded).await {
        Ok(listed) => listed,
        Err(code) => return failed(code),
    };
    let code = kafka_code(listed.error.as_ref());
    if code.is_error() {
        return failed(code);
    }
    let image = services.image();
    let is_ours = |group: &v1::ListedGroup| {
        let front = front_of(&image, &group.group_id, |id, broker| cx.address_of(services, id, broker).is_some());
        front == Some(services.node_id())
    };
    let ours = listed.groups.into_iter().filter(is_ours).map(|group| ListedGroup {
        group_id: group.group_id,
        protocol_type: group.protocol_type,
        group_state: group.state,
        group_type: group.group_type,
    });
    ListGroupsResponse { groups: ours.collect(), ..Default::default() }
}

fn failed(code: ErrorCode) -> ListGroupsResponse {
    ListGroupsResponse { error_code: code.code(), ..Default::default() }
}
