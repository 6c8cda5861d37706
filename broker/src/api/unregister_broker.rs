//! UnregisterBroker (key 64, version 0): forgets a broker that is gone for good.
//!
//! Refused (42) while it lives or holds replicas; unknown is 102.

use thalweg_model::ErrorCode;
use thalweg_proto::v1;
use thalweg_wire::messages::{UnregisterBrokerRequest, UnregisterBrokerResponse};
use v1::operate_request::Kind;

use super::admin_calls;
use super::context::RequestContext;
use crate::services::Services;

pub async fn handle(
    services: &Services,
    _: &RequestContext,
    request: UnregisterBrokerRequest,
) -> UnregisterBrokerResponse {
    let kind = Kind::UnregisterBroker(v1::UnregisterBroker { broker_id: request.broker_id });
    let (code, error_message) = match admin_calls::operate(services, v1::OperateRequest { kind: Some(kind) }).await {
        Ok(()) => (ErrorCode::None, None),
        Err((code, message)) => (code, Some(message)),
    };
    UnregisterBrokerResponse { error_code: code.code(), error_message, ..Default::default() }
}
