//! What a log needs to know of its topic's and the broker's configuration.

use thalweg_model::topic_config::TimestampType;
use thalweg_model::{Durability, TopicConfig};

/// A log's settings. Sizes in bytes, durations in milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct LogConfig {
    /// A segment is closed before it would grow past this. At most 2^31-1: positions are 4 bytes in an index.
    pub segment_bytes: u32,
    pub segment_ms: i64,
    /// A segment closes up to this much earlier, by a hash of its place, so that logs do not all roll at once.
    pub segment_jitter_ms: i64,
    pub segment_index_bytes: u32,
    pub index_interval_bytes: u32,
    /// `-1`: no limit.
    pub retention_ms: i64,
    /// `-1`: no limit.
    pub retention_bytes: i64,
    /// `cleanup.policy` contains `delete`.
    pub delete: bool,
    /// `cleanup.policy` contains `compact`: offsets may have gaps.
    pub compact: bool,
    pub timestamp_type: TimestampType,
    pub durability: Durability,
    pub flush_messages: i64,
    pub flush_ms: i64,
    /// How long, by the log's own time, a silent producer is remembered.
    pub producer_id_expiration_ms: i64,
    /// How many producers a log remembers; the longest silent one goes first.
    pub producer_count_max: usize,
}

impl LogConfig {
    /// The broker-wide settings keep their defaults.
    pub fn from_topic(topic: &TopicConfig) -> LogConfig {
        LogConfig {
            segment_bytes: u32::try_from(topic.segment_bytes).unwrap_or(0),
            segment_ms: topic.segment_ms,
            segment_jitter_ms: topic.segment_jitter_ms,
            segment_index_bytes: u32::try_from(topic.segment_index_bytes).unwrap_or(0),
            index_interval_bytes: u32::try_from(topic.index_interval_bytes).unwrap_or(0),
            retention_ms: topic.retention_ms,
            retention_bytes: topic.retention_bytes,
            delete: topic.cleanup_policy.delete,
            compact: topic.cleanup_policy.compact,
            timestamp_type: topic.message_timestamp_type,
            durability: topic.durability,
            flush_messages: topic.flush_messages,
            flush_ms: topic.flush_ms,
            producer_id_expiration_ms: PRODUCER_ID_EXPIRATION_MS,
            producer_count_max: PRODUCER_COUNT_MAX,
        }
    }

    /// How many entries an offset index may get before its segment is closed.
    pub(crate) fn index_entries_max(&self) -> u32 {
        (self.segment_index_bytes / crate::offset_index::ENTRY_LEN as u32).max(1)
    }
}

impl Default for LogConfig {
    fn default() -> LogConfig {
        LogConfig::from_topic(&TopicConfig::default())
    }
}

/// Kafka's `producer.id.expiration.ms`.
const PRODUCER_ID_EXPIRATION_MS: i64 = 24 * 3600 * 1000;
const PRODUCER_COUNT_MAX: usize = 100_000;
