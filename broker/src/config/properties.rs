//! The one table of what can be set on a node, under Kafka's broker property names.

use std::collections::BTreeMap;
use std::time::Duration;

use thalweg_model::topic_config::{self, ConfigType};
use thiserror::Error;

/// Who reads a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Broker,
    /// Read by brokers, and changed while they run.
    Running,
    Coordinator,
    /// Kept by the coordinators for all nodes; never in a node's own file.
    Cluster,
    /// The default of this topic key for topics that do not set it themselves.
    TopicDefault(&'static str),
    /// Follows from how the node was started; shown by DescribeConfigs, never set by name.
    Shown,
}

/// One row of [`PROPERTIES`].
#[derive(Clone, Copy, Debug)]
pub struct Property {
    pub name: &'static str,
    pub kind: ConfigType,
    /// As text, in the form DescribeConfigs shows.
    pub default: &'static str,
    /// The least value of a number.
    pub least: i64,
    pub scope: Scope,
    /// One sentence for people.
    pub doc: &'static str,
}

/// What this node was told, over the defaults of [`PROPERTIES`]. Every value in it has been checked.
#[derive(Clone, Debug, Default)]
pub struct Properties {
    given: BTreeMap<&'static str, String>,
}

/// Why a property is refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PropertyError {
    #[error("unknown property '{key}'; did you mean '{nearest}'?")]
    UnknownKey { key: String, nearest: &'static str },
    #[error("invalid value '{value}' for {key}: expected {expected}")]
    InvalidValue { key: &'static str, value: String, expected: String },
    #[error("{key} follows from how the node is started and cannot be set here")]
    NotSettable { key: &'static str },
    #[error("{key} is the cluster's and not one node's: type thalweg cluster config set {key} VALUE")]
    OfCluster { key: &'static str },
}

impl Properties {
    /// Checks each pair; a later pair of the same key wins.
    ///
    /// # Errors
    /// An unknown key (with the nearest known one), a value that its key does not take; the caller's fault.
    pub fn parse<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Properties, PropertyError> {
        let mut properties = Properties::default();
        for (key, value) in pairs {
            properties.set(key, value)?;
        }
        Ok(properties)
    }

    /// # Errors
    /// As [`Properties::parse`].
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), PropertyError> {
        if let Some((name, ms)) = retention_in_other_units(key, value)? {
            // Kafka's precedence: milliseconds over minutes over hours, whatever their order.
            self.given.entry(name).or_insert(ms);
            return Ok(());
        }
        let property = property(key)
            .ok_or_else(|| PropertyError::UnknownKey { key: key.to_owned(), nearest: nearest_property(key) })?;
        if property.scope == Scope::Shown {
            return Err(PropertyError::NotSettable { key: property.name });
        }
        if property.scope == Scope::Cluster {
            return Err(PropertyError::OfCluster { key: property.name });
        }
        check(property, value.trim())?;
        self.given.insert(property.name, value.trim().to_owned());
        Ok(())
    }

    /// Records what DescribeConfigs shows for a property of [`Scope::Shown`].
    pub fn show(&mut self, name: &'static str, value: String) {
        self.given.insert(name, value);
    }

    /// The value as text, and whether it was given rather than a default. `None` for an unknown name.
    pub fn text(&self, name: &str) -> Option<(&str, bool)> {
        match self.given.get(name) {
            Some(value) => Some((value, true)),
            None => property(name).map(|property| (property.default, false)),
        }
    }

    /// A number of the table.
    ///
    /// # Panics
    /// If `name` is not a number of [`PROPERTIES`]: an error of the program.
    pub fn number(&self, name: &str) -> i64 {
        let (text, _) = self.text(name).expect("the name is one of the table");
        text.parse().expect("values are checked when they are set")
    }

    /// # Panics
    /// If `name` is not a boolean of [`PROPERTIES`]: an error of the program.
    pub fn boolean(&self, name: &str) -> bool {
        let (text, _) = self.text(name).expect("the name is one of the table");
        text.eq_ignore_ascii_case("true")
    }

    /// A number that serves as a count or size here; negative ones become 0.
    pub fn size(&self, name: &str) -> usize {
        usize::try_from(self.number(name)).unwrap_or(0)
    }

    /// A span of time given in milliseconds; negative ones become 0.
    ///
    /// # Panics
    /// As [`Properties::number`].
    pub fn millis(&self, name: &str) -> Duration {
        Duration::from_millis(u64::try_from(self.number(name)).unwrap_or(0))
    }

    /// What was given of the defaults for topics, under the topics' own keys.
    pub fn topic_defaults(&self) -> BTreeMap<String, String> {
        let given = self.given.iter();
        given.filter_map(|(name, value)| Some((topic_key(name)?.to_owned(), value.clone()))).collect()
    }
}

/// Looks a property up by its exact name.
pub fn property(name: &str) -> Option<&'static Property> {
    PROPERTIES.iter().find(|property| property.name == name)
}

/// The topic key that a broker property is the default of.
pub fn topic_key(name: &str) -> Option<&'static str> {
    match property(name)?.scope {
        Scope::TopicDefault(key) => Some(key),
        Scope::Broker | Scope::Running | Scope::Coordinator | Scope::Cluster | Scope::Shown => None,
    }
}

/// The broker property that holds the default of a topic key.
pub fn default_of_topic_key(key: &str) -> Option<&'static Property> {
    PROPERTIES.iter().find(|property| property.scope == Scope::TopicDefault(key_name(key).unwrap_or("")))
}

/// Checks a value by its property's rules.
///
/// # Errors
/// [`PropertyError::InvalidValue`], with what is expected; the caller's fault.
pub fn check(property: &'static Property, value: &str) -> Result<(), PropertyError> {
    let invalid =
        |expected: String| PropertyError::InvalidValue { key: property.name, value: value.to_owned(), expected };
    match property.kind {
        ConfigType::Boolean if !["true", "false"].contains(&value.to_ascii_lowercase().as_str()) => {
            return Err(invalid("true or false".to_owned()));
        }
        ConfigType::Int | ConfigType::Long => {
            let most = if property.kind == ConfigType::Int { i64::from(i32::MAX) } else { i64::MAX };
            let number: i64 = value.parse().map_err(|_| invalid("a whole number".to_owned()))?;
            if number < property.least || number > most {
                return Err(invalid(format!("a number from {} to {most}", property.least)));
            }
        }
        ConfigType::Boolean | ConfigType::String | ConfigType::Double | ConfigType::List => {}
    }
    if let Scope::TopicDefault(key) = property.scope {
        let overrides = BTreeMap::from([(key.to_owned(), value.to_owned())]);
        thalweg_model::TopicConfig::from_overrides(&overrides).map_err(|error| match error {
            thalweg_model::TopicConfigError::InvalidValue { expected, .. } => invalid(expected),
            thalweg_model::TopicConfigError::UnknownKey { .. } => invalid("a value of a known topic key".to_owned()),
        })?;
    }
    Ok(())
}

fn key_name(key: &str) -> Option<&'static str> {
    topic_config::key(key).map(|key| key.name)
}

/// `log.retention.minutes` and `.hours`, as `log.retention.ms`; `-1` stays "no limit".
fn retention_in_other_units(key: &str, value: &str) -> Result<Option<(&'static str, String)>, PropertyError> {
    let (key, name, factor): (&'static str, _, i64) = match key {
        "log.retention.minutes" => ("log.retention.minutes", "log.retention.ms", 60_000),
        "log.retention.hours" => ("log.retention.hours", "log.retention.ms", 3_600_000),
        "log.roll.hours" => ("log.roll.hours", "log.roll.ms", 3_600_000),
        _ => return Ok(None),
    };
    let number: Option<i64> = value.trim().parse().ok();
    match number {
        Some(-1) if name == "log.retention.ms" => Ok(Some((name, "-1".to_owned()))),
        Some(number) if number > 0 => Ok(Some((name, number.saturating_mul(factor).to_string()))),
        Some(_) | None => Err(PropertyError::InvalidValue {
            key,
            value: value.to_owned(),
            expected: "a whole number above 0".to_owned(),
        }),
    }
}

/// The known property that a mistyped one most likely means: the one that shares the most letter pairs.
pub fn nearest_property(name: &str) -> &'static str {
    let settable = PROPERTIES.iter().filter(|property| property.scope != Scope::Shown);
    settable.map(|property| property.name).max_by_key(|known| likeness(name, known)).unwrap_or("num.partitions")
}

/// Twice the shared letter pairs per pair of both, in thousandths (the Sørensen–Dice measure).
fn likeness(a: &str, b: &str) -> usize {
    let pairs = |text: &str| -> Vec<(u8, u8)> { text.as_bytes().windows(2).map(|two| (two[0], two[1])).collect() };
    let (a, mut b) = (pairs(a), pairs(b));
    let total = a.len() + b.len();
    let mut shared = 0;
    for pair in &a {
        if let Some(at) = b.iter().position(|other| other == pair) {
            b.swap_remove(at);
            shared += 1;
        }
    }
    2_000 * shared / total.max(1)
}

const fn number(
    name: &'static str,
    kind: ConfigType,
    default: &'static str,
    least: i64,
    scope: Scope,
    doc: &'static str,
) -> Property {
    Property { name, kind, default, least, scope, doc }
}

const fn other(
    name: &'static str,
    kind: ConfigType,
    default: &'static str,
    scope: Scope,
    doc: &'static str,
) -> Property {
    Property { name, kind, default, least: i64::MIN, scope, doc }
}

use ConfigType::{Boolean, Double, Int, List, Long, String as Text};
use Scope::{Broker, Cluster, Coordinator, Running, Shown, TopicDefault};

/// Every property, in the order of names. Kafka's (4.4) but for `log.durability`, `log.dir.reserve.bytes`.
#[rustfmt::skip]
pub const PROPERTIES: &[Property] = &[
    other("advertised.listeners", List, "", Shown, "the addresses that clients are told"),
    other("auto.create.topics.enable", Boolean, "true", Broker, "create a topic when a client asks for its metadata"),
    other("auto.grow.replicas.enable", Boolean, "true", Cluster, "topics that left the number of their replicas to the cluster get as many as there are brokers, and more when brokers join, up to default.replication.factor"),
    number("broker.heartbeat.interval.ms", Int, "2000", 1, Broker, "how often the broker tells the coordinator that it lives"),
    other("broker.id", Int, "-1", Shown, "this broker"),
    other("broker.rack", Text, "", Shown, "where this broker stands"),
    number("broker.session.timeout.ms", Int, "9000", 1_000, Coordinator, "a broker that is silent for this long is fenced"),
    other("compression.type", Text, "producer", TopicDefault("compression.type"), "what batches are stored as; producer leaves them as sent"),
    number("connections.max.idle.ms", Long, "600000", 1, Broker, "a connection without traffic is closed after this long"),
    number("coordinator.replacement.delay.ms", Long, "600000", 1, Coordinator, "a coordinator that is silent for this long is replaced by a spare one, if there is any"),
    number("coordinators", Int, "3", 1, Cluster, "how many coordinators there should be: 1, 3 or 5; unless set, 3 and whatever more were put there by hand"),
    number("default.replication.factor", Int, "3", 1, Coordinator, "replicas of a topic whose creator does not say; unless set, as many as there are brokers if those are fewer"),
    number("fetch.max.bytes", Int, "57671680", 1_024, Broker, "the most one fetch answers, whatever the client asks"),
    number("follower.replication.throttled.rate", Long, "20971520", 1, Running, "bytes per second that replicas moved to this broker may copy, all together; in-sync replicas are never held back"),
    number("group.initial.rebalance.delay.ms", Int, "3000", 0, Coordinator, "how long an empty group waits for more members before its first rebalance"),
    number("group.max.session.timeout.ms", Int, "1800000", 1, Coordinator, "the longest session timeout a member may ask for"),
    number("group.max.size", Int, "2147483647", 1, Coordinator, "the most members of a group"),
    number("group.min.session.timeout.ms", Int, "6000", 1, Coordinator, "the shortest session timeout a member may ask for"),
    number("leader.replication.throttled.rate", Long, "9223372036854775807", 1, Running, "bytes per second that each broker may copy from this one for replicas moved there"),
    other("listeners", List, "", Shown, "the addresses that the broker listens on"),
    number("log.cleaner.delete.retention.ms", Long, "86400000", 0, TopicDefault("delete.retention.ms"), "how long compaction keeps a tombstone"),
    number("log.cleaner.max.compaction.lag.ms", Long, "9223372036854775807", 1, TopicDefault("max.compaction.lag.ms"), "the longest that a record stays uncompacted"),
    other("log.cleaner.min.cleanable.ratio", Double, "0.5", TopicDefault("min.cleanable.dirty.ratio"), "how much of a log must be uncompacted before compaction runs"),
    number("log.cleaner.min.compaction.lag.ms", Long, "0", 0, TopicDefault("min.compaction.lag.ms"), "the shortest that a record stays uncompacted"),
    other("log.cleanup.policy", List, "delete", TopicDefault("cleanup.policy"), "delete old segments, compact by key, or both"),
    number("log.dir.reserve.bytes", Long, "67108864", 0, Broker, "below this much free space of a log directory produces are refused"),
    other("log.dirs", List, "", Shown, "where the logs are"),
    other("log.durability", Text, "flushed", TopicDefault("durability"), "flushed: acknowledged means on disk; replicated: in the page cache of the in-sync replicas"),
    number("log.flush.interval.messages", Long, "9223372036854775807", 1, TopicDefault("flush.messages"), "flush after this many records"),
    number("log.flush.interval.ms", Long, "5", 0, TopicDefault("flush.ms"), "flush at the latest this long after the first unflushed record"),
    number("log.flush.offset.checkpoint.interval.ms", Int, "60000", 1, Broker, "how often recovery points are written"),
    number("log.flush.start.offset.checkpoint.interval.ms", Int, "60000", 1, Broker, "how often log start offsets are written"),
    number("log.index.interval.bytes", Int, "4096", 0, TopicDefault("index.interval.bytes"), "bytes of log between two index entries"),
    number("log.index.size.max.bytes", Int, "10485760", 12, TopicDefault("segment.index.bytes"), "the largest index of a segment"),
    number("log.message.timestamp.after.max.ms", Long, "3600000", 0, TopicDefault("message.timestamp.after.max.ms"), "how far a timestamp may lie in the future"),
    number("log.message.timestamp.before.max.ms", Long, "9223372036854775807", 0, TopicDefault("message.timestamp.before.max.ms"), "how far a timestamp may lie in the past"),
    other("log.message.timestamp.type", Text, "CreateTime", TopicDefault("message.timestamp.type"), "whose clock stamps records: the producer's or the broker's"),
    other("log.preallocate", Boolean, "false", TopicDefault("preallocate"), "reserve a segment's space when it is created"),
    number("log.retention.bytes", Long, "-1", -1, TopicDefault("retention.bytes"), "bytes kept per partition; -1 for no limit"),
    number("log.retention.check.interval.ms", Long, "300000", 1, Broker, "how often old segments are looked for"),
    number("log.retention.ms", Long, "604800000", -1, TopicDefault("retention.ms"), "how long records are kept; -1 for ever"),
    number("log.roll.jitter.ms", Long, "0", 0, TopicDefault("segment.jitter.ms"), "spreads closing by time over this long"),
    number("log.roll.ms", Long, "604800000", 1, TopicDefault("segment.ms"), "a segment is closed at this age"),
    number("log.segment.bytes", Int, "1073741824", 1_048_576, TopicDefault("segment.bytes"), "a segment is closed at this size"),
    number("log.segment.delete.delay.ms", Long, "60000", 0, TopicDefault("file.delete.delay.ms"), "how long a deleted segment's file stays"),
    number("max.connections", Int, "2147483647", 0, Broker, "the most connections at a time"),
    number("max.connections.per.ip", Int, "2147483647", 0, Broker, "the most connections of one address at a time"),
    number("max.incremental.fetch.session.cache.slots", Int, "1000", 0, Broker, "the most fetch sessions kept (KIP-227)"),
    number("message.max.bytes", Int, "1048588", 0, TopicDefault("max.message.bytes"), "the largest batch accepted, as sent"),
    number("min.insync.replicas", Int, "1", 1, TopicDefault("min.insync.replicas"), "fewer in-sync replicas than this refuse acks=all; the file counts at the cluster's first start only, later changes are AlterConfigs on all brokers or on a topic"),
    other("node.id", Int, "-1", Shown, "this node"),
    number("num.io.threads", Int, "0", 0, Broker, "threads that append to logs; 0 for one per core, at most 8"),
    number("num.partitions", Int, "1", 1, Coordinator, "partitions of a topic whose creator does not say"),
    number("num.recovery.threads.per.data.dir", Int, "2", 1, Broker, "threads that open the logs of a directory at start"),
    number("offset.metadata.max.bytes", Int, "4096", 0, Coordinator, "the longest metadata of a committed offset"),
    number("offsets.retention.check.interval.ms", Long, "600000", 1, Coordinator, "how often expired offsets are looked for"),
    number("offsets.retention.minutes", Int, "10080", 1, Coordinator, "how long an empty group keeps its offsets"),
    number("producer.id.expiration.ms", Int, "86400000", 1, Broker, "an idle producer's sequence state is kept this long"),
    number("queued.max.request.bytes", Long, "134217728", 1_048_576, Broker, "bytes of all requests under way; more are not read from their sockets"),
    number("queued.max.requests", Int, "500", 1, Broker, "produce requests that wait for one worker thread"),
    number("replica.alter.log.dirs.io.max.bytes.per.second", Long, "9223372036854775807", 1, Running, "understood for Kafka's tools; replicas do not move between the directories of a broker"),
    number("replica.fetch.backoff.ms", Int, "1000", 1, Broker, "the longest that a follower leaves a partition alone that its leader cannot serve"),
    number("replica.fetch.max.bytes", Int, "1048576", 1_024, Broker, "bytes that a follower asks for per partition at a time"),
    number("replica.fetch.response.max.bytes", Int, "10485760", 1_024, Broker, "bytes that a follower asks for per fetch"),
    number("replica.fetch.wait.max.ms", Int, "500", 1, Broker, "how long a leader may wait for news before it answers a follower"),
    number("replica.high.watermark.checkpoint.interval.ms", Long, "5000", 1, Broker, "how often high watermarks are written"),
    number("replica.lag.time.max.ms", Long, "10000", 1, Broker, "a follower that lacks something for longer than this leaves the in-sync replicas"),
    number("replica.socket.timeout.ms", Int, "30000", 1, Broker, "a leader that takes this long to answer a follower counts as gone"),
    number("socket.request.max.bytes", Int, "104857600", 1_024, Broker, "the largest request accepted"),
    other("unclean.leader.election.enable", Boolean, "false", TopicDefault("unclean.leader.election.enable"), "let a replica lead that may lack acknowledged records"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_its_defaults_pass_their_own_checks() {
        assert!(PROPERTIES.windows(2).all(|pair| pair[0].name < pair[1].name));
        for property in PROPERTIES.iter().filter(|property| !matches!(property.scope, Scope::Shown | Scope::Cluster)) {
            check(property, property.default).unwrap();
        }
    }

    #[test]
    fn every_topic_key_has_a_broker_default_of_the_same_value() {
        for key in topic_config::KEYS {
            // Replicas of one topic, so nothing that all topics could have.
            if key.name.ends_with("replication.throttled.replicas") {
                assert!(default_of_topic_key(key.name).is_none());
                continue;
            }
            let property = default_of_topic_key(key.name).unwrap_or_else(|| panic!("{} has no default", key.name));
            assert_eq!(property.default, key.default, "{}", key.name);
        }
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_nearest_one() {
        let error = Properties::parse([("num.partition", "3")]).unwrap_err();
        assert_eq!(error, PropertyError::UnknownKey { key: "num.partition".into(), nearest: "num.partitions" });
        let error = Properties::parse([("group.initial.rebalance.delay", "0")]).unwrap_err();
        assert!(error.to_string().contains("group.initial.rebalance.delay.ms"), "{error}");
    }

    #[test]
    fn values_out_of_range_and_shown_names_are_refused() {
        for (name, value) in [("num.partitions", "0"), ("max.connections", "4294967296"), ("log.durability", "maybe")] {
            let error = Properties::parse([(name, value)]).unwrap_err();
            assert!(matches!(error, PropertyError::InvalidValue { key, .. } if key == name), "{error}");
        }
        assert_eq!(
            Properties::parse([("broker.id", "3")]).unwrap_err(),
            PropertyError::NotSettable { key: "broker.id" }
        );
        let error = Properties::parse([("coordinators", "3")]).unwrap_err().to_string();
        assert!(error.contains("cluster config set coordinators"), "{error}");
    }

    #[test]
    fn milliseconds_win_over_hours_whatever_their_order() {
        for pairs in [
            [("log.retention.ms", "5"), ("log.retention.hours", "1")],
            [("log.retention.hours", "1"), ("log.retention.ms", "5")],
        ] {
            assert_eq!(Properties::parse(pairs).unwrap().number("log.retention.ms"), 5);
        }
        let hours = Properties::parse([("log.retention.hours", "2")]).unwrap();
        assert_eq!(hours.topic_defaults(), BTreeMap::from([("retention.ms".to_owned(), "7200000".to_owned())]));
    }
}
