//! Producer ids out of blocks that the coordinator gives to this broker; no id is ever given twice (REPLICATION P1).

use std::ops::Range;
use std::time::Duration;

use thalweg_model::{ErrorCode, ProducerId};
use thalweg_proto::v1;
use thalweg_proto::v1::registry_client::RegistryClient;
use tokio::sync::Mutex;
use tracing::warn;

use crate::api::metadata::kafka_code;
use crate::services::Services;

/// What is left of the current block. What is left when the broker stops is never used.
#[derive(Debug, Default)]
pub struct ProducerIds {
    left: Mutex<Range<i64>>,
}

impl ProducerIds {
    /// # Errors
    /// `COORDINATOR_NOT_AVAILABLE`: no block can be had now; the client tries again.
    pub async fn next(&self, services: &Services) -> Result<ProducerId, ErrorCode> {
        // Held across the call on purpose: everybody who comes meanwhile needs its outcome.
        let mut left = self.left.lock().await;
        if left.is_empty() {
            *left = allocate(services).await?;
        }
        left.next().map(ProducerId).ok_or(ErrorCode::CoordinatorNotAvailable)
    }
}

async fn allocate(services: &Services) -> Result<Range<i64>, ErrorCode> {
    let image = services.image();
    let broker_epoch = image.brokers.get(&services.node_id()).map_or(-1, |broker| broker.epoch.0);
    let request = v1::AllocateProducerIdsRequest { broker_id: services.node_id().0, broker_epoch };
    drop(image);
    let call = services
        .coordinators
        .call(PATIENCE, |channel| async move { RegistryClient::new(channel).allocate_producer_ids(request).await });
    let block = tokio::time::timeout(PATIENCE, call).await.map_err(|_| ErrorCode::CoordinatorNotAvailable)?;
    let block = block.map_err(|error| {
        warn!(%error, "no block of producer ids");
        error.group_code()
    })?;
    match kafka_code(block.error.as_ref()) {
        ErrorCode::None => Ok(block.first..block.first.saturating_add(i64::from(block.count))),
        code => {
            warn!(%code, "no block of producer ids");
            Err(ErrorCode::CoordinatorNotAvailable)
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(5);
