//! What an admin client changes, as the coordinators decide it.

use std::future::Future;
use std::time::Duration;

use thalweg_model::ErrorCode;
use thalweg_proto::v1;
use thalweg_proto::v1::admin_client::AdminClient;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use tracing::warn;

use crate::services::Services;

/// Why a change is not made: the code and a sentence for people.
pub type Refusal = (ErrorCode, String);

/// Changes configurations, each resource on its own; answers when this broker has brought the changes about.
///
/// # Errors
/// Of the call as a whole: no coordinator leads (41), its answer was lost (7).
pub async fn alter_configs(
    services: &Services,
    request: v1::AlterConfigsRequest,
) -> Result<Vec<v1::AlteredConfig>, Refusal> {
    let send = |mut admin: AdminClient<Channel>, request| async move { admin.alter_configs(request).await };
    let response = call(services, request, send).await?;
    services.applied(response.index).await;
    Ok(response.resources)
}

/// Gives topics more partitions; answers when those that are placed here serve.
///
/// # Errors
/// As [`alter_configs`].
pub async fn create_partitions(
    services: &Services,
    request: v1::CreatePartitionsRequest,
) -> Result<Vec<v1::GrownTopic>, Refusal> {
    let send = |mut admin: AdminClient<Channel>, request| async move { admin.create_partitions(request).await };
    let response = call(services, request, send).await?;
    services.applied(response.index).await;
    Ok(response.topics)
}

async fn call<Q, A, F, Fut>(services: &Services, request: Q, send: F) -> Result<A, Refusal>
where
    Q: Clone,
    F: Fn(AdminClient<Channel>, Request<Q>) -> Fut,
    Fut: Future<Output = Result<Response<A>, Status>>,
{
    let attempt = |channel| {
        let mut request = Request::new(request.clone());
        request.set_timeout(CALL_MAX);
        send(AdminClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX), request)
    };
    services.coordinators.call(PATIENCE, attempt).await.map_err(|error| {
        warn!(%error, "admin call failed");
        (error.admin_code(), error.to_string())
    })
}

const PATIENCE: Duration = Duration::from_secs(10);
const CALL_MAX: Duration = Duration::from_secs(30);
const ANSWER_BYTES_MAX: usize = 64 << 20;
