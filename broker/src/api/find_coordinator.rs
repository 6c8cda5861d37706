//! FindCoordinator (key 10, versions 0-6): which broker fronts a group.
//!
//! - Addresses are those of the listener that the request came in on, as in Metadata.
//! - An error's node is -1, its host empty, its port -1.
//! - Transactional ids have no coordinator yet: 53, on which every client gives up at once and shows the message; 15 would
//!   have them try again until their time is up. Share groups and unknown kinds: 42.
//! - Version 4 asks for several keys at once (KIP-699).

use thalweg_model::{ErrorCode, NodeId};
use thalweg_wire::messages::find_coordinator::Coordinator;
use thalweg_wire::messages::{FindCoordinatorRequest, FindCoordinatorResponse};

use super::context::RequestContext;
use super::group_gateway::front_of;
use crate::machine::image::Image;
use crate::services::Services;

pub async fn handle(
    services: &Services,
    cx: &RequestContext,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse {
    let image = services.image();
    let find = |key: &str| answer(key, find(services, cx, &image, request.key_type, key));
    if cx.version() >= 4 {
        let coordinators = request.coordinator_keys.iter().map(|key| find(key)).collect();
        return FindCoordinatorResponse { coordinators, ..Default::default() };
    }
    let found = find(&request.key);
    FindCoordinatorResponse {
        error_code: found.error_code,
        error_message: found.error_message,
        node_id: found.node_id,
        host: found.host,
        port: found.port,
        ..Default::default()
    }
}

fn find(
    services: &Services,
    cx: &RequestContext,
    image: &Image,
    key_type: i8,
    key: &str,
) -> Result<(NodeId, String, u16), (ErrorCode, &'static str)> {
    match key_type {
        KEY_GROUP => {}
        KEY_TRANSACTION => {
            return Err((ErrorCode::TransactionalIdAuthorizationFailed, "transactions are not served yet"));
        }
        KEY_SHARE => return Err((ErrorCode::InvalidRequest, "share groups are not served")),
        _ => return Err((ErrorCode::InvalidRequest, "unknown kind of coordinator")),
    }
    let front = front_of(image, key, |id, broker| cx.address_of(services, id, broker).is_some());
    let address = front.and_then(|id| Some((id, cx.address_of(services, id, image.brokers.get(&id)?)?)));
    let (id, (host, port)) = address.ok_or((ErrorCode::CoordinatorNotAvailable, "no broker is live"))?;
    Ok((id, host, port))
}

fn answer(key: &str, found: Result<(NodeId, String, u16), (ErrorCode, &'static str)>) -> Coordinator {
    let key = key.to_owned();
    match found {
        Ok((id, host, port)) => {
            Coordinator { key, node_id: id.0, host, port: i32::from(port), error_code: 0, error_message: None }
        }
        Err((code, message)) => Coordinator {
            key,
            node_id: NodeId::NONE.0,
            host: String::new(),
            port: -1,
            error_code: code.code(),
            error_message: Some(message.to_owned()),
        },
    }
}

const KEY_GROUP: i8 = 0;
const KEY_TRANSACTION: i8 = 1;
const KEY_SHARE: i8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_no_node() {
        let found = answer("g", Err((ErrorCode::CoordinatorNotAvailable, "why")));
        assert_eq!((found.node_id, found.host.as_str(), found.port, found.error_code), (-1, "", -1, 15));
    }
}
