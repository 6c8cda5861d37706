//! Kafka's APIs: one file each, named as Kafka names it.
//!
//! A handler is `async fn handle(&Services, &RequestContext, XRequest) -> XResponse`; a line in the table below makes it
//! served and advertised. Produce and Fetch stand apart: one answers in two phases, the other with files.

mod admin_calls;
pub mod alter_configs;
pub mod alter_partition_reassignments;
pub mod alter_replica_log_dirs;
pub mod api_versions;
mod authorized_operations;
mod config_resource;
pub mod context;
pub mod create_partitions;
pub mod create_topics;
pub mod delete_groups;
pub mod delete_records;
pub mod delete_topics;
pub mod describe_cluster;
pub mod describe_configs;
pub mod describe_groups;
pub mod describe_log_dirs;
pub mod describe_producers;
pub mod describe_quorum;
pub mod describe_topic_partitions;
#[cfg(test)]
mod documented;
pub mod elect_leaders;
pub mod error_map;
pub mod fetch;
pub mod find_coordinator;
mod group_gateway;
pub mod heartbeat;
pub mod incremental_alter_configs;
pub mod init_producer_id;
pub mod inspect;
mod inspect_node;
mod inspect_placement;
pub mod join_group;
pub mod leave_group;
pub mod list_config_resources;
pub mod list_groups;
pub mod list_offsets;
pub mod list_partition_reassignments;
pub mod metadata;
pub mod offset_commit;
pub mod offset_delete;
pub mod offset_fetch;
pub mod offset_for_leader_epoch;
pub mod produce;
pub mod recompress;
pub mod replica_fetch;
pub mod sync_group;
#[cfg(test)]
pub(crate) mod testing;
pub mod unregister_broker;
pub mod update_features;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use thalweg_model::{ErrorCode, LeaderEpoch, PartitionIndex};
use thalweg_wire::{ApiKey, messages};

pub use context::{CloseReason, ConnectionInfo, Reply, RequestContext};

use crate::services::Services;
use crate::shell::partitions::Partition;

macro_rules! handlers {
    ($($key:ident => $module:ident($request:ident);)+) => {
        /// Answers any request but Produce and Fetch. Dropping the future cancels the request.
        ///
        /// # Errors
        /// The connection must end; see [`CloseReason`].
        pub async fn answer(services: &Services, cx: &RequestContext, body: &Bytes) -> Result<Reply, CloseReason> {
            match cx.header.api_key {
                $(ApiKey::$key => {
                    let request = cx.decode::<messages::$request>(body)?;
                    // Boxed, so that a connection does not carry the largest of all handlers' states.
                    let response = Box::pin($module::handle(services, cx, request)).await;
                    cx.encode(&response)
                })+
                api => Err(CloseReason::NotServed { api }),
            }
        }

        /// Whether there is a handler; only then ApiVersions lists the API.
        pub fn is_served(key: ApiKey) -> bool {
            matches!(key, ApiKey::Produce | ApiKey::Fetch $(| ApiKey::$key)+)
        }
    };
}

handlers! {
    ListOffsets => list_offsets(ListOffsetsRequest);
    Metadata => metadata(MetadataRequest);
    ApiVersions => api_versions(ApiVersionsRequest);
    CreateTopics => create_topics(CreateTopicsRequest);
    DeleteTopics => delete_topics(DeleteTopicsRequest);
    DeleteRecords => delete_records(DeleteRecordsRequest);
    InitProducerId => init_producer_id(InitProducerIdRequest);
    OffsetForLeaderEpoch => offset_for_leader_epoch(OffsetForLeaderEpochRequest);
    OffsetCommit => offset_commit(OffsetCommitRequest);
    OffsetFetch => offset_fetch(OffsetFetchRequest);
    FindCoordinator => find_coordinator(FindCoordinatorRequest);
    JoinGroup => join_group(JoinGroupRequest);
    Heartbeat => heartbeat(HeartbeatRequest);
    LeaveGroup => leave_group(LeaveGroupRequest);
    SyncGroup => sync_group(SyncGroupRequest);
    DescribeGroups => describe_groups(DescribeGroupsRequest);
    ListGroups => list_groups(ListGroupsRequest);
    DescribeConfigs => describe_configs(DescribeConfigsRequest);
    AlterConfigs => alter_configs(AlterConfigsRequest);
    CreatePartitions => create_partitions(CreatePartitionsRequest);
    DeleteGroups => delete_groups(DeleteGroupsRequest);
    ElectLeaders => elect_leaders(ElectLeadersRequest);
    AlterPartitionReassignments => alter_partition_reassignments(AlterPartitionReassignmentsRequest);
    ListPartitionReassignments => list_partition_reassignments(ListPartitionReassignmentsRequest);
    IncrementalAlterConfigs => incremental_alter_configs(IncrementalAlterConfigsRequest);
    OffsetDelete => offset_delete(OffsetDeleteRequest);
    AlterReplicaLogDirs => alter_replica_log_dirs(AlterReplicaLogDirsRequest);
    DescribeLogDirs => describe_log_dirs(DescribeLogDirsRequest);
    DescribeProducers => describe_producers(DescribeProducersRequest);
    DescribeCluster => describe_cluster(DescribeClusterRequest);
    UpdateFeatures => update_features(UpdateFeaturesRequest);
    DescribeQuorum => describe_quorum(DescribeQuorumRequest);
    UnregisterBroker => unregister_broker(UnregisterBrokerRequest);
    ListConfigResources => list_config_resources(ListConfigResourcesRequest);
    DescribeTopicPartitions => describe_topic_partitions(DescribeTopicPartitionsRequest);
    Inspect => inspect(InspectRequest);
}

/// The partition by name, if this broker may answer for it as the leader.
///
/// # Errors
/// Unknown 3, elsewhere or fenced 6, offline 56, another epoch 74 or 75.
pub(crate) fn leader(
    services: &Services,
    topic: &str,
    index: i32,
    epoch: LeaderEpoch,
) -> Result<Arc<Partition>, ErrorCode> {
    let index = PartitionIndex(index);
    let Some(partition) = services.partitions.partition(topic, index) else {
        return Err(services.absent(topic, index));
    };
    if !services.may_lead() {
        return Err(ErrorCode::NotLeaderOrFollower);
    }
    partition.check_leader(epoch)?;
    Ok(partition)
}

/// How long a client's timeout lets an admin call take.
pub(crate) fn patience(timeout_ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0)).clamp(PATIENCE_MIN, PATIENCE_MAX)
}

/// A call with a deadline; past it the answer counts as lost.
pub(crate) async fn in_time<T>(
    limit: Duration,
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<tonic::Response<T>, tonic::Status> {
    match tokio::time::timeout(limit, call).await {
        Ok(result) => result,
        Err(_) => Err(tonic::Status::deadline_exceeded("the coordinator did not answer in time")),
    }
}

/// Whether a request waits for others for so long that it must not outlive its client: end of input cancels it.
pub fn ends_with_input(key: ApiKey) -> bool {
    matches!(key, ApiKey::JoinGroup | ApiKey::SyncGroup)
}

const PATIENCE_MIN: Duration = Duration::from_secs(1);
const PATIENCE_MAX: Duration = Duration::from_secs(60);
