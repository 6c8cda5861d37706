//! What an admin client changes, as the coordinators decide it.

use std::future::Future;
use std::time::Duration;

use thalweg_model::ErrorCode;
use thalweg_proto::v1;
use thalweg_proto::v1::admin_client::AdminClient;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use tracing::warn;

use super::group_gateway::code_and_message;
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

/// Begins, redirects and calls off moves; answers in the order of the request, when this broker knows of it.
///
/// # Errors
/// As [`alter_configs`]; of the cluster: it does not know moves yet (35).
pub async fn alter_reassignments(
    services: &Services,
    request: v1::AlterReassignmentsRequest,
) -> Result<Vec<v1::ReassignedPartition>, Refusal> {
    let send = |mut admin: AdminClient<Channel>, request| async move { admin.alter_reassignments(request).await };
    let response = call(services, request, send).await?;
    refused(response.error.as_ref())?;
    services.applied(response.index).await;
    Ok(response.partitions)
}

/// Elects leaders; answers when this broker knows of it.
///
/// # Errors
/// As [`alter_configs`]; there is no such kind of election (42).
pub async fn elect_leaders(
    services: &Services,
    request: v1::ElectLeadersRequest,
) -> Result<Vec<v1::ElectedPartition>, Refusal> {
    let send = |mut admin: AdminClient<Channel>, request| async move { admin.elect_leaders(request).await };
    let response = call(services, request, send).await?;
    refused(response.error.as_ref())?;
    services.applied(response.index).await;
    Ok(response.partitions)
}

/// Carries out what an operator orders; answers when this broker knows of it.
///
/// # Errors
/// As [`alter_configs`]; the reason for which the coordinators refuse.
pub async fn operate(services: &Services, request: v1::OperateRequest) -> Result<(), Refusal> {
    let send = |admin: AdminClient<Channel>, request| async move {
        // A plan of a large cluster is long.
        admin.max_encoding_message_size(ANSWER_BYTES_MAX).operate(request).await
    };
    let response = call(services, request, send).await?;
    refused(response.error.as_ref())?;
    services.applied(response.index).await;
    Ok(())
}

/// Raises the cluster's level; answers when this broker knows of it.
///
/// # Errors
/// As [`alter_configs`]; it is lower than now, or some node cannot do it (95); the coordinators are too old to be asked (35).
pub async fn raise_level(services: &Services, level: u32, validate_only: bool) -> Result<(), Refusal> {
    let request = v1::RaiseLevelRequest { level, validate_only };
    let send = |mut admin: AdminClient<Channel>, request| async move { admin.raise_level(request).await };
    let response = call(services, request, send).await?;
    refused(response.error.as_ref())?;
    services.applied(response.index).await;
    Ok(())
}

/// Who coordinates, as whoever leads knows it.
///
/// # Errors
/// As [`alter_configs`].
pub async fn describe_coordinators(services: &Services) -> Result<v1::DescribeCoordinatorsResponse, Refusal> {
    let send = |mut admin: AdminClient<Channel>, request| async move { admin.describe_coordinators(request).await };
    call(services, v1::DescribeCoordinatorsRequest {}, send).await
}

fn refused(error: Option<&v1::KafkaError>) -> Result<(), Refusal> {
    let (code, message) = code_and_message(error);
    if code.is_error() { Err((code, message.unwrap_or_default())) } else { Ok(()) }
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
