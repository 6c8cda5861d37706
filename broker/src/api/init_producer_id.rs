//! InitProducerId (key 22, versions 0-4): a producer id for an idempotent producer.
//!
//! - Without a transactional id every call gives a fresh id with epoch 0, whatever id and epoch are sent along (as Kafka does);
//!   one of the two alone is refused (42).
//! - Transactions are not served yet: a transactional id is refused (53), as FindCoordinator does.

use thalweg_model::{ErrorCode, ProducerEpoch, ProducerId};
use thalweg_wire::messages::{InitProducerIdRequest, InitProducerIdResponse};

use super::context::RequestContext;
use crate::services::Services;

pub async fn handle(services: &Services, _: &RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse {
    let (producer_id, producer_epoch) = match init(services, &request).await {
        Ok(producer) => producer,
        Err(error) => {
            return InitProducerIdResponse { error_code: error.code(), producer_epoch: -1, ..Default::default() };
        }
    };
    InitProducerIdResponse { producer_id, producer_epoch, ..Default::default() }
}

async fn init(services: &Services, request: &InitProducerIdRequest) -> Result<(i64, i16), ErrorCode> {
    match request.transactional_id.as_deref() {
        None => {}
        // Kafka: an empty id is no id at all, and not null either.
        Some("") => return Err(ErrorCode::InvalidRequest),
        Some(_) => return Err(ErrorCode::TransactionalIdAuthorizationFailed),
    }
    if (request.producer_id == ProducerId::NONE.0) != (request.producer_epoch == ProducerEpoch::NONE.0) {
        return Err(ErrorCode::InvalidRequest);
    }
    services.producer_ids.next(services).await.map(|id| (id.0, 0))
}
