//! Request and response bodies, one file per API, declared field by field as Kafka 4.4 defines them.
//!
//! Names are Kafka's, as snake case. Error codes stay numbers here: an answer may carry one that we do not know.

pub mod add_offsets_to_txn;
pub mod add_partitions_to_txn;
pub mod alter_configs;
pub mod alter_partition_reassignments;
pub mod alter_replica_log_dirs;
pub mod api_versions;
pub mod consumer_group_describe;
pub mod consumer_group_heartbeat;
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
pub mod describe_transactions;
pub mod elect_leaders;
pub mod end_txn;
pub mod fetch;
pub mod find_coordinator;
pub mod heartbeat;
pub mod incremental_alter_configs;
pub mod init_producer_id;
pub mod inspect;
pub mod join_group;
pub mod leave_group;
pub mod list_config_resources;
pub mod list_groups;
pub mod list_offsets;
pub mod list_partition_reassignments;
pub mod list_transactions;
pub mod metadata;
pub mod offset_commit;
pub mod offset_delete;
pub mod offset_fetch;
pub mod offset_for_leader_epoch;
pub mod produce;
pub mod sasl_authenticate;
pub mod sasl_handshake;
pub mod sync_group;
pub mod txn_offset_commit;
pub mod unregister_broker;
pub mod update_features;
pub mod write_txn_markers;

use bytes::{Bytes, BytesMut};

use crate::api::ApiKey;
use crate::codec::{DecodeError, EncodeError, FieldSpec, Message, Request, Structure};

/// One message as data: for tests, fuzzers and dumps that go over all of them.
#[derive(Clone, Copy)]
pub struct MessageInfo {
    pub key: ApiKey,
    pub name: &'static str,
    pub is_request: bool,
    pub version_min: i16,
    pub version_max: i16,
    pub flexible_from: i16,
    pub fields: fn() -> Vec<FieldSpec>,
    /// Reads a body and drops it.
    pub decode: fn(&Bytes, i16) -> Result<(), DecodeError>,
    /// Reads a body and writes it again in the same version.
    pub transcode: fn(&Bytes, i16) -> Result<Bytes, TranscodeError>,
    /// Reads a body; for people.
    pub describe: fn(&Bytes, i16) -> Result<String, DecodeError>,
}

/// Why [`MessageInfo::transcode`] failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TranscodeError {
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

fn info<M: Message + std::fmt::Debug>(name: &'static str, is_request: bool) -> MessageInfo {
    MessageInfo {
        key: M::KEY,
        name,
        is_request,
        version_min: *M::VERSIONS.start(),
        version_max: *M::VERSIONS.end(),
        flexible_from: M::FLEXIBLE_FROM,
        fields: <M as Structure>::fields,
        decode: |body, version| M::decode_body(body, version).map(drop),
        transcode: |body, version| {
            let mut out = BytesMut::new();
            M::decode_body(body, version)?.encode(&mut out, version)?;
            Ok(out.freeze())
        },
        describe: |body, version| Ok(format!("{:#?}", M::decode_body(body, version)?)),
    }
}

macro_rules! apis {
    ($($module:ident: $request:ident => $response:ident;)+) => {
        $(
            pub use $module::{$request, $response};

            impl Request for $request {
                type Response = $response;
            }
        )+

        /// Every message, by key, request before response.
        pub fn all() -> Vec<MessageInfo> {
            vec![$(
                info::<$request>(stringify!($request), true),
                info::<$response>(stringify!($response), false),
            )+]
        }
    };
}

apis! {
    produce: ProduceRequest => ProduceResponse;
    fetch: FetchRequest => FetchResponse;
    list_offsets: ListOffsetsRequest => ListOffsetsResponse;
    metadata: MetadataRequest => MetadataResponse;
    offset_commit: OffsetCommitRequest => OffsetCommitResponse;
    offset_fetch: OffsetFetchRequest => OffsetFetchResponse;
    find_coordinator: FindCoordinatorRequest => FindCoordinatorResponse;
    join_group: JoinGroupRequest => JoinGroupResponse;
    heartbeat: HeartbeatRequest => HeartbeatResponse;
    leave_group: LeaveGroupRequest => LeaveGroupResponse;
    sync_group: SyncGroupRequest => SyncGroupResponse;
    describe_groups: DescribeGroupsRequest => DescribeGroupsResponse;
    list_groups: ListGroupsRequest => ListGroupsResponse;
    sasl_handshake: SaslHandshakeRequest => SaslHandshakeResponse;
    api_versions: ApiVersionsRequest => ApiVersionsResponse;
    create_topics: CreateTopicsRequest => CreateTopicsResponse;
    delete_topics: DeleteTopicsRequest => DeleteTopicsResponse;
    delete_records: DeleteRecordsRequest => DeleteRecordsResponse;
    init_producer_id: InitProducerIdRequest => InitProducerIdResponse;
    offset_for_leader_epoch: OffsetForLeaderEpochRequest => OffsetForLeaderEpochResponse;
    add_partitions_to_txn: AddPartitionsToTxnRequest => AddPartitionsToTxnResponse;
    add_offsets_to_txn: AddOffsetsToTxnRequest => AddOffsetsToTxnResponse;
    end_txn: EndTxnRequest => EndTxnResponse;
    write_txn_markers: WriteTxnMarkersRequest => WriteTxnMarkersResponse;
    txn_offset_commit: TxnOffsetCommitRequest => TxnOffsetCommitResponse;
    describe_configs: DescribeConfigsRequest => DescribeConfigsResponse;
    alter_configs: AlterConfigsRequest => AlterConfigsResponse;
    alter_replica_log_dirs: AlterReplicaLogDirsRequest => AlterReplicaLogDirsResponse;
    describe_log_dirs: DescribeLogDirsRequest => DescribeLogDirsResponse;
    sasl_authenticate: SaslAuthenticateRequest => SaslAuthenticateResponse;
    create_partitions: CreatePartitionsRequest => CreatePartitionsResponse;
    delete_groups: DeleteGroupsRequest => DeleteGroupsResponse;
    elect_leaders: ElectLeadersRequest => ElectLeadersResponse;
    incremental_alter_configs: IncrementalAlterConfigsRequest => IncrementalAlterConfigsResponse;
    alter_partition_reassignments: AlterPartitionReassignmentsRequest => AlterPartitionReassignmentsResponse;
    list_partition_reassignments: ListPartitionReassignmentsRequest => ListPartitionReassignmentsResponse;
    offset_delete: OffsetDeleteRequest => OffsetDeleteResponse;
    describe_quorum: DescribeQuorumRequest => DescribeQuorumResponse;
    update_features: UpdateFeaturesRequest => UpdateFeaturesResponse;
    describe_cluster: DescribeClusterRequest => DescribeClusterResponse;
    describe_producers: DescribeProducersRequest => DescribeProducersResponse;
    unregister_broker: UnregisterBrokerRequest => UnregisterBrokerResponse;
    describe_transactions: DescribeTransactionsRequest => DescribeTransactionsResponse;
    list_transactions: ListTransactionsRequest => ListTransactionsResponse;
    consumer_group_heartbeat: ConsumerGroupHeartbeatRequest => ConsumerGroupHeartbeatResponse;
    consumer_group_describe: ConsumerGroupDescribeRequest => ConsumerGroupDescribeResponse;
    list_config_resources: ListConfigResourcesRequest => ListConfigResourcesResponse;
    describe_topic_partitions: DescribeTopicPartitionsRequest => DescribeTopicPartitionsResponse;
    inspect: InspectRequest => InspectResponse;
}
