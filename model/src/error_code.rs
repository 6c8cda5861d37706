//! Kafka's error codes: the one list of what a client can be told.

use std::fmt;

macro_rules! error_codes {
    ($($variant:ident = $code:literal, $name:literal, $retriable:literal, $message:literal;)+) => {
        /// An error as the Kafka protocol numbers it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(i16)]
        pub enum ErrorCode {
            $(#[doc = $message] $variant = $code,)+
        }

        impl ErrorCode {
            /// Every code, ascending.
            pub const ALL: &[ErrorCode] = &[$(ErrorCode::$variant),+];

            /// `None` for a number that this version does not know.
            pub fn from_code(code: i16) -> Option<ErrorCode> {
                match code {
                    $($code => Some(ErrorCode::$variant),)+
                    _ => None,
                }
            }

            /// Kafka's name, such as `NOT_LEADER_OR_FOLLOWER`.
            pub fn name(self) -> &'static str {
                match self {
                    $(ErrorCode::$variant => $name,)+
                }
            }

            /// Whether the same request may succeed later.
            pub fn is_retriable(self) -> bool {
                match self {
                    $(ErrorCode::$variant => $retriable,)+
                }
            }

            /// What happened, as a clause for people.
            pub fn message(self) -> &'static str {
                match self {
                    $(ErrorCode::$variant => $message,)+
                }
            }
        }
    };
}

error_codes! {
    UnknownServerError = -1, "UNKNOWN_SERVER_ERROR", false, "the server met an unexpected error";
    None = 0, "NONE", false, "no error";
    OffsetOutOfRange = 1, "OFFSET_OUT_OF_RANGE", false, "the offset lies outside the partition's log";
    CorruptMessage = 2, "CORRUPT_MESSAGE", true, "the record batch is corrupt, has a bad size or a wrong checksum";
    UnknownTopicOrPartition = 3, "UNKNOWN_TOPIC_OR_PARTITION", true, "this server does not have that topic or partition";
    InvalidFetchSize = 4, "INVALID_FETCH_SIZE", false, "the fetch size is not valid";
    LeaderNotAvailable = 5, "LEADER_NOT_AVAILABLE", true, "the partition has no leader at the moment";
    NotLeaderOrFollower = 6, "NOT_LEADER_OR_FOLLOWER", true, "this broker is not the leader or a replica of the partition";
    RequestTimedOut = 7, "REQUEST_TIMED_OUT", true, "the request ran out of time";
    BrokerNotAvailable = 8, "BROKER_NOT_AVAILABLE", false, "the broker is not available";
    ReplicaNotAvailable = 9, "REPLICA_NOT_AVAILABLE", true, "the replica is not available";
    MessageTooLarge = 10, "MESSAGE_TOO_LARGE", false, "the batch is larger than max.message.bytes allows";
    StaleControllerEpoch = 11, "STALE_CONTROLLER_EPOCH", false, "the controller has moved";
    OffsetMetadataTooLarge = 12, "OFFSET_METADATA_TOO_LARGE", false, "the metadata of the committed offset is too long";
    NetworkException = 13, "NETWORK_EXCEPTION", true, "the connection broke before an answer came";
    CoordinatorLoadInProgress = 14, "COORDINATOR_LOAD_IN_PROGRESS", true, "the coordinator is loading";
    CoordinatorNotAvailable = 15, "COORDINATOR_NOT_AVAILABLE", true, "the coordinator is not available";
    NotCoordinator = 16, "NOT_COORDINATOR", true, "this is not the coordinator";
    InvalidTopicException = 17, "INVALID_TOPIC_EXCEPTION", false, "the topic's name is not valid";
    RecordListTooLarge = 18, "RECORD_LIST_TOO_LARGE", false, "the batch is larger than a segment may be";
    NotEnoughReplicas = 19, "NOT_ENOUGH_REPLICAS", true, "fewer replicas are in sync than min.insync.replicas asks for";
    NotEnoughReplicasAfterAppend = 20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", true, "written, but to fewer in-sync replicas than asked for";
    InvalidRequiredAcks = 21, "INVALID_REQUIRED_ACKS", false, "acks must be -1, 0 or 1";
    IllegalGeneration = 22, "ILLEGAL_GENERATION", false, "the group has moved on to another generation";
    InconsistentGroupProtocol = 23, "INCONSISTENT_GROUP_PROTOCOL", false, "the member shares no protocol with the group";
    InvalidGroupId = 24, "INVALID_GROUP_ID", false, "the group id is not valid";
    UnknownMemberId = 25, "UNKNOWN_MEMBER_ID", false, "the group does not know this member";
    InvalidSessionTimeout = 26, "INVALID_SESSION_TIMEOUT", false, "the session timeout is outside the allowed range";
    RebalanceInProgress = 27, "REBALANCE_IN_PROGRESS", false, "the group is rebalancing, join again";
    InvalidCommitOffsetSize = 28, "INVALID_COMMIT_OFFSET_SIZE", false, "the committed offset's data is too large";
    TopicAuthorizationFailed = 29, "TOPIC_AUTHORIZATION_FAILED", false, "not authorized for the topic";
    GroupAuthorizationFailed = 30, "GROUP_AUTHORIZATION_FAILED", false, "not authorized for the group";
    ClusterAuthorizationFailed = 31, "CLUSTER_AUTHORIZATION_FAILED", false, "not authorized for the cluster";
    InvalidTimestamp = 32, "INVALID_TIMESTAMP", false, "the record's timestamp is outside the allowed range";
    UnsupportedSaslMechanism = 33, "UNSUPPORTED_SASL_MECHANISM", false, "this SASL mechanism is not supported";
    IllegalSaslState = 34, "ILLEGAL_SASL_STATE", false, "the request does not fit the SASL state";
    UnsupportedVersion = 35, "UNSUPPORTED_VERSION", false, "this version of the API is not supported";
    TopicAlreadyExists = 36, "TOPIC_ALREADY_EXISTS", false, "the topic exists already";
    InvalidPartitions = 37, "INVALID_PARTITIONS", false, "the number of partitions is not valid";
    InvalidReplicationFactor = 38, "INVALID_REPLICATION_FACTOR", false, "the replication factor is not valid";
    InvalidReplicaAssignment = 39, "INVALID_REPLICA_ASSIGNMENT", false, "the replica assignment is not valid";
    InvalidConfig = 40, "INVALID_CONFIG", false, "the configuration is not valid";
    NotController = 41, "NOT_CONTROLLER", true, "this is not the controller";
    InvalidRequest = 42, "INVALID_REQUEST", false, "the request is malformed";
    UnsupportedForMessageFormat = 43, "UNSUPPORTED_FOR_MESSAGE_FORMAT", false, "the message format does not support this";
    PolicyViolation = 44, "POLICY_VIOLATION", false, "a policy refuses the request";
    OutOfOrderSequenceNumber = 45, "OUT_OF_ORDER_SEQUENCE_NUMBER", false, "the producer's sequence number skips records";
    DuplicateSequenceNumber = 46, "DUPLICATE_SEQUENCE_NUMBER", false, "the producer's sequence number was seen before";
    InvalidProducerEpoch = 47, "INVALID_PRODUCER_EPOCH", false, "the producer's epoch is old";
    InvalidTxnState = 48, "INVALID_TXN_STATE", false, "the transaction is in the wrong state";
    InvalidProducerIdMapping = 49, "INVALID_PRODUCER_ID_MAPPING", false, "the producer id does not belong to this transactional id";
    InvalidTransactionTimeout = 50, "INVALID_TRANSACTION_TIMEOUT", false, "the transaction timeout is larger than the broker allows";
    ConcurrentTransactions = 51, "CONCURRENT_TRANSACTIONS", true, "another operation of this transaction is under way";
    TransactionCoordinatorFenced = 52, "TRANSACTION_COORDINATOR_FENCED", false, "the transaction coordinator has been replaced";
    TransactionalIdAuthorizationFailed = 53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", false, "not authorized for the transactional id";
    SecurityDisabled = 54, "SECURITY_DISABLED", false, "security is switched off";
    OperationNotAttempted = 55, "OPERATION_NOT_ATTEMPTED", false, "the operation was not tried";
    KafkaStorageError = 56, "KAFKA_STORAGE_ERROR", true, "the disk of this log failed";
    LogDirNotFound = 57, "LOG_DIR_NOT_FOUND", false, "the log directory does not exist";
    SaslAuthenticationFailed = 58, "SASL_AUTHENTICATION_FAILED", false, "authentication failed";
    UnknownProducerId = 59, "UNKNOWN_PRODUCER_ID", false, "the producer id is not known any more";
    ReassignmentInProgress = 60, "REASSIGNMENT_IN_PROGRESS", false, "the partition is being moved";
    DelegationTokenAuthDisabled = 61, "DELEGATION_TOKEN_AUTH_DISABLED", false, "delegation tokens are switched off";
    DelegationTokenNotFound = 62, "DELEGATION_TOKEN_NOT_FOUND", false, "the delegation token does not exist";
    DelegationTokenOwnerMismatch = 63, "DELEGATION_TOKEN_OWNER_MISMATCH", false, "the delegation token belongs to another owner";
    DelegationTokenRequestNotAllowed = 64, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", false, "delegation tokens are not allowed on this connection";
    DelegationTokenAuthorizationFailed = 65, "DELEGATION_TOKEN_AUTHORIZATION_FAILED", false, "not authorized for the delegation token";
    DelegationTokenExpired = 66, "DELEGATION_TOKEN_EXPIRED", false, "the delegation token has expired";
    InvalidPrincipalType = 67, "INVALID_PRINCIPAL_TYPE", false, "the principal type is not supported";
    NonEmptyGroup = 68, "NON_EMPTY_GROUP", false, "the group still has members";
    GroupIdNotFound = 69, "GROUP_ID_NOT_FOUND", false, "the group does not exist";
    FetchSessionIdNotFound = 70, "FETCH_SESSION_ID_NOT_FOUND", true, "the fetch session does not exist";
    InvalidFetchSessionEpoch = 71, "INVALID_FETCH_SESSION_EPOCH", true, "the fetch session is at another epoch";
    ListenerNotFound = 72, "LISTENER_NOT_FOUND", true, "the leader has no such listener";
    TopicDeletionDisabled = 73, "TOPIC_DELETION_DISABLED", false, "deleting topics is switched off";
    FencedLeaderEpoch = 74, "FENCED_LEADER_EPOCH", true, "the request carries an older leader epoch";
    UnknownLeaderEpoch = 75, "UNKNOWN_LEADER_EPOCH", true, "the request carries a leader epoch that this broker has not seen";
    UnsupportedCompressionType = 76, "UNSUPPORTED_COMPRESSION_TYPE", false, "the client's version does not support the compression";
    StaleBrokerEpoch = 77, "STALE_BROKER_EPOCH", false, "the broker's epoch is old";
    OffsetNotAvailable = 78, "OFFSET_NOT_AVAILABLE", true, "the new leader's high watermark has not caught up yet";
    MemberIdRequired = 79, "MEMBER_ID_REQUIRED", false, "join again with the member id given here";
    PreferredLeaderNotAvailable = 80, "PREFERRED_LEADER_NOT_AVAILABLE", true, "the preferred leader is not available";
    GroupMaxSizeReached = 81, "GROUP_MAX_SIZE_REACHED", false, "the group is full";
    FencedInstanceId = 82, "FENCED_INSTANCE_ID", false, "another member took this instance id";
    EligibleLeadersNotAvailable = 83, "ELIGIBLE_LEADERS_NOT_AVAILABLE", true, "no eligible leader is available";
    ElectionNotNeeded = 84, "ELECTION_NOT_NEEDED", true, "the partition has the wanted leader already";
    NoReassignmentInProgress = 85, "NO_REASSIGNMENT_IN_PROGRESS", false, "the partition is not being moved";
    GroupSubscribedToTopic = 86, "GROUP_SUBSCRIBED_TO_TOPIC", false, "the group is subscribed to the topic";
    InvalidRecord = 87, "INVALID_RECORD", false, "the record does not fit the topic's rules";
    UnstableOffsetCommit = 88, "UNSTABLE_OFFSET_COMMIT", true, "an open transaction holds the offset";
    ThrottlingQuotaExceeded = 89, "THROTTLING_QUOTA_EXCEEDED", true, "the quota is used up";
    ProducerFenced = 90, "PRODUCER_FENCED", false, "a newer producer took over";
    ResourceNotFound = 91, "RESOURCE_NOT_FOUND", false, "the resource does not exist";
    DuplicateResource = 92, "DUPLICATE_RESOURCE", false, "the resource is named twice";
    UnacceptableCredential = 93, "UNACCEPTABLE_CREDENTIAL", false, "the credential does not meet the rules";
    InconsistentVoterSet = 94, "INCONSISTENT_VOTER_SET", false, "the voter sets differ";
    InvalidUpdateVersion = 95, "INVALID_UPDATE_VERSION", false, "the update version is not valid";
    FeatureUpdateFailed = 96, "FEATURE_UPDATE_FAILED", false, "the features could not be updated";
    PrincipalDeserializationFailure = 97, "PRINCIPAL_DESERIALIZATION_FAILURE", false, "the forwarded principal cannot be read";
    SnapshotNotFound = 98, "SNAPSHOT_NOT_FOUND", false, "the snapshot does not exist";
    PositionOutOfRange = 99, "POSITION_OUT_OF_RANGE", false, "the position lies outside the snapshot";
    UnknownTopicId = 100, "UNKNOWN_TOPIC_ID", true, "this server does not have that topic id";
    DuplicateBrokerRegistration = 101, "DUPLICATE_BROKER_REGISTRATION", false, "a live broker uses this id";
    BrokerIdNotRegistered = 102, "BROKER_ID_NOT_REGISTERED", false, "the broker id is not registered";
    InconsistentTopicId = 103, "INCONSISTENT_TOPIC_ID", true, "the topic id is not that of the topic's log";
    InconsistentClusterId = 104, "INCONSISTENT_CLUSTER_ID", false, "the cluster id is another one";
    TransactionalIdNotFound = 105, "TRANSACTIONAL_ID_NOT_FOUND", false, "the transactional id does not exist";
    FetchSessionTopicIdError = 106, "FETCH_SESSION_TOPIC_ID_ERROR", true, "the fetch session mixes topic names and topic ids";
    IneligibleReplica = 107, "INELIGIBLE_REPLICA", false, "the replica may not enter the ISR";
    NewLeaderElected = 108, "NEW_LEADER_ELECTED", false, "the change elected another leader";
    OffsetMovedToTieredStorage = 109, "OFFSET_MOVED_TO_TIERED_STORAGE", false, "the offset lies in tiered storage";
    FencedMemberEpoch = 110, "FENCED_MEMBER_EPOCH", false, "the member's epoch is old, join again";
    UnreleasedInstanceId = 111, "UNRELEASED_INSTANCE_ID", false, "another member still holds the instance id";
    UnsupportedAssignor = 112, "UNSUPPORTED_ASSIGNOR", false, "the assignor is not supported";
    StaleMemberEpoch = 113, "STALE_MEMBER_EPOCH", false, "the member's epoch is old, retry with the new one";
    MismatchedEndpointType = 114, "MISMATCHED_ENDPOINT_TYPE", false, "the request went to the wrong kind of endpoint";
    UnsupportedEndpointType = 115, "UNSUPPORTED_ENDPOINT_TYPE", false, "the endpoint type is not supported";
    UnknownControllerId = 116, "UNKNOWN_CONTROLLER_ID", false, "the controller id is not known";
    UnknownSubscriptionId = 117, "UNKNOWN_SUBSCRIPTION_ID", false, "the telemetry subscription is not known";
    TelemetryTooLarge = 118, "TELEMETRY_TOO_LARGE", false, "the telemetry is too large";
    InvalidRegistration = 119, "INVALID_REGISTRATION", false, "the registration is not valid";
    TransactionAbortable = 120, "TRANSACTION_ABORTABLE", false, "the transaction must be aborted";
    InvalidRecordState = 121, "INVALID_RECORD_STATE", false, "the record is in another delivery state";
    ShareSessionNotFound = 122, "SHARE_SESSION_NOT_FOUND", true, "the share session does not exist";
    InvalidShareSessionEpoch = 123, "INVALID_SHARE_SESSION_EPOCH", true, "the share session is at another epoch";
    FencedStateEpoch = 124, "FENCED_STATE_EPOCH", false, "the share state's epoch is old";
    InvalidVoterKey = 125, "INVALID_VOTER_KEY", false, "the voter key does not match";
    DuplicateVoter = 126, "DUPLICATE_VOTER", false, "the voter is in the set already";
    VoterNotFound = 127, "VOTER_NOT_FOUND", false, "the voter is not in the set";
    InvalidRegularExpression = 128, "INVALID_REGULAR_EXPRESSION", false, "the regular expression is not valid";
    RebootstrapRequired = 129, "REBOOTSTRAP_REQUIRED", false, "the client must bootstrap again";
    StreamsInvalidTopology = 130, "STREAMS_INVALID_TOPOLOGY", false, "the topology is not valid";
    StreamsInvalidTopologyEpoch = 131, "STREAMS_INVALID_TOPOLOGY_EPOCH", false, "the topology epoch is not valid";
    StreamsTopologyFenced = 132, "STREAMS_TOPOLOGY_FENCED", false, "the topology epoch is old";
    ShareSessionLimitReached = 133, "SHARE_SESSION_LIMIT_REACHED", true, "too many share sessions are open";
}

impl ErrorCode {
    /// The number on the wire.
    pub fn code(self) -> i16 {
        self as i16
    }

    pub fn is_error(self) -> bool {
        self != ErrorCode::None
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name(), self.message())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_dense_and_read_back() {
        for (i, code) in ErrorCode::ALL.iter().enumerate() {
            assert_eq!(code.code(), i as i16 - 1);
            assert_eq!(ErrorCode::from_code(code.code()), Some(*code));
        }
        assert_eq!(ErrorCode::from_code(134), None);
        assert_eq!(ErrorCode::from_code(-2), None);
    }
}
