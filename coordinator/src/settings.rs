//! What an operator decides about coordinators.

/// The coordinator's part of the configuration. Durations in milliseconds; defaults are Kafka's where Kafka has the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoordinatorSettings {
    /// `num.partitions`: of topics created without a number.
    pub default_partitions: i32,
    /// `default.replication.factor`.
    pub default_replication_factor: i32,
    /// Nobody has said that number: where topics do not grow, one on fewer brokers gets as many replicas as there are brokers.
    pub default_factor_bends: bool,
    /// `min.insync.replicas` of topics that do not set it.
    pub default_min_isr: i32,
    /// The most partitions that one topic may have.
    pub partitions_per_topic_max: i32,
    /// How long a broker may lead after its last heartbeat (REPLICATION B4).
    pub broker_lease_ms: u32,
    /// `broker.heartbeat.interval.ms`: how often a broker should be heard from.
    pub broker_heartbeat_interval_ms: u32,
    /// How often partitions get their preferred leader back.
    pub preferred_leader_interval_ms: u32,
    /// `group.initial.rebalance.delay.ms`: how long the first members of an empty group wait for others.
    pub group_initial_rebalance_delay_ms: u32,
    /// `group.min.session.timeout.ms`.
    pub group_min_session_timeout_ms: i32,
    /// `group.max.session.timeout.ms`.
    pub group_max_session_timeout_ms: i32,
    /// `group.max.size`: members of one group.
    pub group_max_size: usize,
    /// `offset.metadata.max.bytes`: of one committed offset.
    pub offset_metadata_max_bytes: usize,
    /// `offsets.retention.minutes`, in milliseconds: how long an empty group keeps its offsets.
    pub offsets_retention_ms: i64,
    /// `offsets.retention.check.interval.ms`.
    pub offsets_retention_check_interval_ms: u32,
    /// Producer ids given to a broker at a time.
    pub producer_id_block: i32,
    /// `coordinator.replacement.delay.ms`: a coordinator that is silent for so long is replaced by a spare one.
    pub coordinator_replacement_delay_ms: u64,
}

impl Default for CoordinatorSettings {
    fn default() -> CoordinatorSettings {
        CoordinatorSettings {
            default_partitions: 1,
            default_replication_factor: 1,
            default_factor_bends: false,
            default_min_isr: 1,
            partitions_per_topic_max: 100_000,
            broker_lease_ms: 9_000,
            broker_heartbeat_interval_ms: 2_000,
            preferred_leader_interval_ms: 300_000,
            group_initial_rebalance_delay_ms: 3_000,
            group_min_session_timeout_ms: 6_000,
            group_max_session_timeout_ms: 1_800_000,
            group_max_size: i32::MAX as usize,
            offset_metadata_max_bytes: 4_096,
            offsets_retention_ms: 7 * 24 * 3_600_000,
            offsets_retention_check_interval_ms: 600_000,
            producer_id_block: 1_000,
            coordinator_replacement_delay_ms: 600_000,
        }
    }
}
