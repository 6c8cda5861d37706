//! What can be set on a topic, under Kafka's names.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// When a record counts as stored (REPLICATION 3.1, 3.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// A replica counts a record once it is on stable storage. One group commit serves every waiting partition.
    #[default]
    Flushed,
    /// A replica counts a record once the kernel has it; flushed after `flush.messages` or `flush.ms`.
    Replicated,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Durability::Flushed => "flushed",
            Durability::Replicated => "replicated",
        })
    }
}

/// `compression.type`: what the broker turns batches into. `Producer` leaves them as they came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompressionType {
    #[default]
    Producer,
    Uncompressed,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

/// `message.timestamp.type`: whose clock stamps a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimestampType {
    #[default]
    CreateTime,
    LogAppendTime,
}

/// `cleanup.policy`: a set, never both false (KIP-71).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanupPolicy {
    pub delete: bool,
    pub compact: bool,
}

/// The kinds of value, numbered as DescribeConfigs numbers them (KIP-569).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigType {
    Boolean = 1,
    String = 2,
    Int = 3,
    Long = 5,
    Double = 6,
    List = 7,
}

/// One key that a topic knows.
#[derive(Clone, Copy, Debug)]
pub struct ConfigKey {
    pub name: &'static str,
    pub kind: ConfigType,
    /// As text, in the form DescribeConfigs shows.
    pub default: &'static str,
    /// One sentence for people.
    pub doc: &'static str,
}

/// A topic's configuration with every default filled in.
///
/// Sizes in bytes, durations in milliseconds; `-1` means "no limit" where a field says so.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicConfig {
    pub cleanup_policy: CleanupPolicy,
    pub compression_type: CompressionType,
    pub delete_retention_ms: i64,
    pub durability: Durability,
    pub file_delete_delay_ms: i64,
    pub flush_messages: i64,
    pub flush_ms: i64,
    pub index_interval_bytes: i32,
    pub max_compaction_lag_ms: i64,
    pub max_message_bytes: i32,
    pub message_timestamp_after_max_ms: i64,
    pub message_timestamp_before_max_ms: i64,
    pub message_timestamp_type: TimestampType,
    pub min_cleanable_dirty_ratio: f64,
    pub min_compaction_lag_ms: i64,
    pub min_insync_replicas: i32,
    pub preallocate: bool,
    /// `-1`: no limit by size.
    pub retention_bytes: i64,
    /// `-1`: no limit by time.
    pub retention_ms: i64,
    pub segment_bytes: i32,
    pub segment_index_bytes: i32,
    pub segment_jitter_ms: i64,
    pub segment_ms: i64,
    pub unclean_leader_election_enable: bool,
}

impl Default for TopicConfig {
    fn default() -> TopicConfig {
        TopicConfig::from_overrides(&BTreeMap::new()).expect("the defaults of KEYS are valid")
    }
}

impl TopicConfig {
    /// Reads overrides over the defaults of [`KEYS`].
    ///
    /// # Errors
    /// An unknown key (with the nearest known one) or a value that its key does not take; the caller's fault.
    pub fn from_overrides(overrides: &BTreeMap<String, String>) -> Result<TopicConfig, TopicConfigError> {
        for name in overrides.keys() {
            if key(name).is_none() {
                return Err(TopicConfigError::UnknownKey { key: name.clone(), nearest: nearest_key(name) });
            }
        }
        let values = Values { overrides };
        let config = TopicConfig {
            cleanup_policy: values.read("cleanup.policy", parse_cleanup_policy)?,
            compression_type: values.read("compression.type", parse_compression_type)?,
            delete_retention_ms: values.at_least("delete.retention.ms", 0)?,
            durability: values.read("durability", parse_durability)?,
            file_delete_delay_ms: values.at_least("file.delete.delay.ms", 0)?,
            flush_messages: values.at_least("flush.messages", 1)?,
            flush_ms: values.at_least("flush.ms", 0)?,
            index_interval_bytes: values.at_least("index.interval.bytes", 0)?,
            max_compaction_lag_ms: values.at_least("max.compaction.lag.ms", 1)?,
            max_message_bytes: values.at_least("max.message.bytes", 0)?,
            message_timestamp_after_max_ms: values.at_least("message.timestamp.after.max.ms", 0)?,
            message_timestamp_before_max_ms: values.at_least("message.timestamp.before.max.ms", 0)?,
            message_timestamp_type: values.read("message.timestamp.type", parse_timestamp_type)?,
            min_cleanable_dirty_ratio: values.read("min.cleanable.dirty.ratio", parse_ratio)?,
            min_compaction_lag_ms: values.at_least("min.compaction.lag.ms", 0)?,
            min_insync_replicas: values.at_least("min.insync.replicas", 1)?,
            preallocate: values.read("preallocate", parse_bool)?,
            retention_bytes: values.at_least("retention.bytes", -1)?,
            retention_ms: values.at_least("retention.ms", -1)?,
            segment_bytes: values.at_least("segment.bytes", SEGMENT_BYTES_MIN)?,
            segment_index_bytes: values.at_least("segment.index.bytes", 12)?,
            segment_jitter_ms: values.at_least("segment.jitter.ms", 0)?,
            segment_ms: values.at_least("segment.ms", 1)?,
            unclean_leader_election_enable: values.read("unclean.leader.election.enable", parse_bool)?,
        };
        Ok(config)
    }
}

/// Looks a key up by its exact name.
pub fn key(name: &str) -> Option<&'static ConfigKey> {
    KEYS.iter().find(|key| key.name == name)
}

/// The known key that a mistyped one most likely means.
pub fn nearest_key(name: &str) -> &'static str {
    KEYS.iter().map(|key| key.name).min_by_key(|known| edit_distance(name, known)).unwrap_or("retention.ms")
}

/// Why a topic's configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicConfigError {
    UnknownKey { key: String, nearest: &'static str },
    InvalidValue { key: &'static str, value: String, expected: String },
}

impl fmt::Display for TopicConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TopicConfigError::UnknownKey { key, nearest } => {
                write!(f, "unknown topic configuration '{key}'; did you mean '{nearest}'?")
            }
            TopicConfigError::InvalidValue { key, value, expected } => {
                write!(f, "invalid value '{value}' for {key}: expected {expected}")
            }
        }
    }
}

impl std::error::Error for TopicConfigError {}

struct Values<'a> {
    overrides: &'a BTreeMap<String, String>,
}

impl Values<'_> {
    fn read<T>(
        &self,
        name: &'static str,
        parse: impl Fn(&str) -> Result<T, &'static str>,
    ) -> Result<T, TopicConfigError> {
        let default = key(name).expect("from_overrides reads only keys of KEYS").default;
        let text = self.overrides.get(name).map_or(default, String::as_str);
        parse(text.trim()).map_err(|expected| TopicConfigError::InvalidValue {
            key: name,
            value: text.to_owned(),
            expected: expected.to_owned(),
        })
    }

    fn at_least<T>(&self, name: &'static str, least: T) -> Result<T, TopicConfigError>
    where
        T: FromStr + PartialOrd + fmt::Display + Copy,
    {
        let value = self.read(name, |text| text.parse::<T>().map_err(|_| "a whole number"))?;
        if value < least {
            return Err(TopicConfigError::InvalidValue {
                key: name,
                value: value.to_string(),
                expected: format!("at least {least}"),
            });
        }
        Ok(value)
    }
}

fn parse_bool(text: &str) -> Result<bool, &'static str> {
    match text.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("true or false"),
    }
}

fn parse_ratio(text: &str) -> Result<f64, &'static str> {
    text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio)).ok_or("a number from 0 to 1")
}

fn parse_durability(text: &str) -> Result<Durability, &'static str> {
    match text {
        "flushed" => Ok(Durability::Flushed),
        "replicated" => Ok(Durability::Replicated),
        _ => Err("flushed or replicated"),
    }
}

fn parse_timestamp_type(text: &str) -> Result<TimestampType, &'static str> {
    match text {
        "CreateTime" => Ok(TimestampType::CreateTime),
        "LogAppendTime" => Ok(TimestampType::LogAppendTime),
        _ => Err("CreateTime or LogAppendTime"),
    }
}

fn parse_compression_type(text: &str) -> Result<CompressionType, &'static str> {
    match text {
        "producer" => Ok(CompressionType::Producer),
        "uncompressed" => Ok(CompressionType::Uncompressed),
        "gzip" => Ok(CompressionType::Gzip),
        "snappy" => Ok(CompressionType::Snappy),
        "lz4" => Ok(CompressionType::Lz4),
        "zstd" => Ok(CompressionType::Zstd),
        _ => Err("producer, uncompressed, gzip, snappy, lz4 or zstd"),
    }
}

fn parse_cleanup_policy(text: &str) -> Result<CleanupPolicy, &'static str> {
    let mut policy = CleanupPolicy { delete: false, compact: false };
    for word in text.split(',') {
        match word.trim() {
            "delete" => policy.delete = true,
            "compact" => policy.compact = true,
            _ => return Err("a list of delete and compact"),
        }
    }
    Ok(policy)
}

/// Levenshtein distance; keys are short, so the plain table does.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

const fn entry(name: &'static str, kind: ConfigType, default: &'static str, doc: &'static str) -> ConfigKey {
    ConfigKey { name, kind, default, doc }
}

const SEGMENT_BYTES_MIN: i32 = 1 << 20;

/// Every key a topic takes, in the order of names. `durability` is ours; the others are Kafka's (4.4).
pub const KEYS: &[ConfigKey] = &[
    entry("cleanup.policy", ConfigType::List, "delete", "delete old segments, compact by key, or both"),
    entry(
        "compression.type",
        ConfigType::String,
        "producer",
        "what batches are stored as; producer leaves them as sent",
    ),
    entry("delete.retention.ms", ConfigType::Long, "86400000", "how long compaction keeps a tombstone"),
    entry(
        "durability",
        ConfigType::String,
        "flushed",
        "flushed: acknowledged means on disk; replicated: in the page cache of the in-sync replicas",
    ),
    entry("file.delete.delay.ms", ConfigType::Long, "60000", "how long a deleted segment's file stays"),
    entry("flush.messages", ConfigType::Long, "9223372036854775807", "flush after this many records"),
    entry("flush.ms", ConfigType::Long, "5", "flush at the latest this long after the first unflushed record"),
    entry(
        "follower.replication.throttled.replicas",
        ConfigType::List,
        "",
        "understood for Kafka's tools; whichever replicas are on their way in are held back, and no others",
    ),
    entry("index.interval.bytes", ConfigType::Int, "4096", "bytes of log between two index entries"),
    entry(
        "leader.replication.throttled.replicas",
        ConfigType::List,
        "",
        "understood for Kafka's tools; whichever replicas are on their way in are held back, and no others",
    ),
    entry(
        "max.compaction.lag.ms",
        ConfigType::Long,
        "9223372036854775807",
        "the longest that a record stays uncompacted",
    ),
    entry("max.message.bytes", ConfigType::Int, "1048588", "the largest batch accepted, as sent"),
    entry("message.timestamp.after.max.ms", ConfigType::Long, "3600000", "how far a timestamp may lie in the future"),
    entry(
        "message.timestamp.before.max.ms",
        ConfigType::Long,
        "9223372036854775807",
        "how far a timestamp may lie in the past",
    ),
    entry(
        "message.timestamp.type",
        ConfigType::String,
        "CreateTime",
        "whose clock stamps records: the producer's or the broker's",
    ),
    entry(
        "min.cleanable.dirty.ratio",
        ConfigType::Double,
        "0.5",
        "how much of a log must be uncompacted before compaction runs",
    ),
    entry("min.compaction.lag.ms", ConfigType::Long, "0", "the shortest that a record stays uncompacted"),
    entry("min.insync.replicas", ConfigType::Int, "1", "fewer in-sync replicas than this refuse acks=all"),
    entry("preallocate", ConfigType::Boolean, "false", "reserve a segment's space when it is created"),
    entry("retention.bytes", ConfigType::Long, "-1", "bytes kept per partition; -1 for no limit"),
    entry("retention.ms", ConfigType::Long, "604800000", "how long records are kept; -1 for ever"),
    entry("segment.bytes", ConfigType::Int, "1073741824", "a segment is closed at this size"),
    entry("segment.index.bytes", ConfigType::Int, "10485760", "the largest index of a segment"),
    entry("segment.jitter.ms", ConfigType::Long, "0", "spreads closing by time over this long"),
    entry("segment.ms", ConfigType::Long, "604800000", "a segment is closed at this age"),
    entry(
        "unclean.leader.election.enable",
        ConfigType::Boolean,
        "false",
        "let a replica lead that may lack acknowledged records",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn overrides(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn keys_stand_in_order_and_once() {
        assert!(KEYS.windows(2).all(|pair| pair[0].name < pair[1].name));
    }

    #[test]
    fn defaults_are_safe() {
        let config = TopicConfig::default();
        assert_eq!(config.durability, Durability::Flushed);
        assert_eq!(config.retention_ms, 7 * 24 * 3600 * 1000);
        assert!(!config.unclean_leader_election_enable);
    }

    #[test]
    fn an_unknown_key_names_the_nearest() {
        let error = TopicConfig::from_overrides(&overrides(&[("retention.m", "1")])).unwrap_err();
        assert_eq!(error, TopicConfigError::UnknownKey { key: "retention.m".into(), nearest: "retention.ms" });
    }

    #[test]
    fn a_bad_value_names_its_key_and_what_is_expected() {
        for (key, value) in [
            ("retention.ms", "-2"),
            ("segment.bytes", "12"),
            ("cleanup.policy", "none"),
            ("durability", "maybe"),
            ("min.insync.replicas", "0"),
            ("preallocate", "yes"),
            ("max.message.bytes", "4294967296"),
        ] {
            match TopicConfig::from_overrides(&overrides(&[(key, value)])) {
                Err(TopicConfigError::InvalidValue { key: named, .. }) => assert_eq!(named, key),
                other => panic!("{key}={value}: {other:?}"),
            }
        }
    }

    #[test]
    fn cleanup_policy_is_a_set() {
        let config = TopicConfig::from_overrides(&overrides(&[("cleanup.policy", "compact, delete")])).unwrap();
        assert_eq!(config.cleanup_policy, CleanupPolicy { delete: true, compact: true });
    }
}
