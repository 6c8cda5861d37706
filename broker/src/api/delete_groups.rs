//! DeleteGroups (key 42, versions 0-2): removes empty groups with their offsets. Not empty: 68; unknown: 69.

use thalweg_proto::v1;
use thalweg_wire::messages::delete_groups::DeletableGroupResult;
use thalweg_wire::messages::{DeleteGroupsRequest, DeleteGroupsResponse};

use super::context::RequestContext;
use super::group_gateway::code_and_message;
use crate::services::Services;

pub async fn handle(services: &Services, _: &RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse {
    if request.groups_names.is_empty() {
        return DeleteGroupsResponse::default();
    }
    let forwarded = v1::DeleteRequest { group_ids: request.groups_names.clone() };
    let results = match services.groups.delete(forwarded).await {
        Ok(deleted) => deleted.groups.into_iter().map(answer).collect(),
        Err(code) => {
            let names = request.groups_names.into_iter();
            names
                .map(|group_id| DeletableGroupResult { group_id, error_code: code.code(), ..Default::default() })
                .collect()
        }
    };
    DeleteGroupsResponse { results, ..Default::default() }
}

fn answer(group: v1::DeletedGroup) -> DeletableGroupResult {
    let (code, error_message) = code_and_message(group.error.as_ref());
    DeletableGroupResult { group_id: group.group_id, error_code: code.code(), error_message }
}
