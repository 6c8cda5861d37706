//! Topics: created, grown, deleted.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_model::{ErrorCode, NodeId, TopicConfig, TopicId, TopicName};
use thalweg_proto::v1::config_record::Resource;
use thalweg_proto::v1::record::Kind;
use thalweg_proto::v1::{
    ConfigEntry, ConfigRecord, CreatedTopic, DeletedTopic, GrowTopic, GrownTopic, KafkaError, NewTopic, OffsetRemoved,
    Record, ReplicaAssignment, TopicRef, TopicRemoved,
};

use super::context::{Context, Seed};
use super::election::Partition;
use super::min_isr::{self, MIN_ISR};
use super::placement::{Candidate, place};
use super::state::{State, Topic, id_bytes, partition_record, topic_id};
use super::{configs, error, features, ok};

/// Creates topics, each on its own: one that is refused does not stop the others.
pub fn create(
    state: &State,
    context: &Context,
    topics: &[NewTopic],
    partitions_max: i32,
) -> (Vec<CreatedTopic>, Vec<Record>) {
    let mut named: BTreeMap<&str, usize> = BTreeMap::new();
    for topic in topics {
        *named.entry(&topic.name).or_default() += 1;
    }
    let mut seed = context.seed;
    let mut created: BTreeSet<&str> = BTreeSet::new();
    let mut results = Vec::with_capacity(topics.len());
    let mut records = Vec::new();
    for topic in topics {
        let duplicate = named.get(topic.name.as_str()).is_some_and(|count| *count > 1);
        let result = if duplicate {
            Err(error(ErrorCode::InvalidRequest, format!("topic '{}' is named more than once", topic.name)))
        } else {
            plan(state, &created, topic, partitions_max, &mut seed)
        };
        match result {
            Ok(placed) => {
                created.insert(&topic.name);
                results.push(CreatedTopic {
                    name: topic.name.clone(),
                    error: Some(ok()),
                    topic_id: id_bytes(placed.id),
                    partitions: placed.replicas.len() as i32,
                    replication_factor: placed.replicas.first().map_or(0, Vec::len) as i32,
                });
                records.extend(placed.records(state, context, topic));
            }
            Err(refused) => results.push(CreatedTopic {
                name: topic.name.clone(),
                error: Some(refused),
                partitions: -1,
                replication_factor: -1,
                ..CreatedTopic::default()
            }),
        }
    }
    (results, records)
}

/// Deletes topics with all that hangs on them: partitions, configuration, every group's offsets.
pub fn delete(state: &State, topics: &[TopicRef]) -> (Vec<DeletedTopic>, Vec<Record>) {
    let mut gone: BTreeSet<TopicId> = BTreeSet::new();
    let mut results = Vec::with_capacity(topics.len());
    let mut records = Vec::new();
    for topic in topics {
        match find(state, topic) {
            Ok((name, id)) if gone.insert(id) => {
                results.push(DeletedTopic { name: name.to_owned(), topic_id: id_bytes(id), error: Some(ok()) });
                records.extend(removal(state, name, id));
            }
            Ok((name, id)) => results.push(DeletedTopic {
                name: name.to_owned(),
                topic_id: id_bytes(id),
                error: Some(error(ErrorCode::InvalidRequest, format!("topic '{name}' is named more than once"))),
            }),
            Err(refused) => results.push(DeletedTopic {
                name: topic.name.clone(),
                topic_id: topic.topic_id.clone(),
                error: Some(refused),
            }),
        }
    }
    (results, records)
}

/// Adds partitions to topics.
pub fn grow(
    state: &State,
    context: &Context,
    topics: &[GrowTopic],
    partitions_max: i32,
) -> (Vec<GrownTopic>, Vec<Record>) {
    let mut seed = context.seed;
    let mut results = Vec::with_capacity(topics.len());
    let mut records = Vec::new();
    for topic in topics {
        let result = if topics.iter().filter(|other| other.name == topic.name).count() > 1 {
            Err(error(ErrorCode::InvalidRequest, format!("topic '{}' is named more than once", topic.name)))
        } else {
            growth(state, context, topic, partitions_max, &mut seed)
        };
        let outcome = match result {
            Ok(added) => {
                records.extend(added);
                ok()
            }
            Err(refused) => refused,
        };
        results.push(GrownTopic { name: topic.name.clone(), error: Some(outcome) });
    }
    (results, records)
}

/// A topic that can be created.
struct Placed {
    id: TopicId,
    replicas: Vec<Vec<NodeId>>,
}

impl Placed {
    fn records(&self, state: &State, context: &Context, topic: &NewTopic) -> Vec<Record> {
        let stored = Topic {
            id: self.id,
            internal: is_internal(&topic.name),
            created_at_ms: context.time.0,
            grows: grows(state, topic),
        };
        let mut records = vec![Record { kind: Some(Kind::Topic(stored.to_record(&topic.name))) }];
        for entry in topic.configs.iter().filter(|entry| entry.value.is_some()) {
            records.push(config_record(&topic.name, &entry.key, entry.value.clone()));
        }
        // The default is meant for topics with more replicas. Said on the topic, so that its leaders go by the same number;
        // but for a topic that is to get them.
        let factor = self.replicas.first().map_or(1, Vec::len);
        let is_set = topic.configs.iter().any(|entry| entry.key == MIN_ISR && entry.value.is_some());
        if !is_set && !stored.grows && min_isr::check(min_isr::default(state, context), factor).is_err() {
            records.push(config_record(&topic.name, MIN_ISR, Some(factor.to_string())));
        }
        let own_min_isr =
            topic.configs.iter().find(|entry| entry.key == MIN_ISR).and_then(|entry| entry.value.as_ref());
        let min_isr = own_min_isr.and_then(|value| value.parse().ok()).unwrap_or(min_isr::default(state, context));
        for (index, replicas) in self.replicas.iter().enumerate() {
            records.push(partition_record(self.id, index as i32, &on_live(state, replicas, min_isr)));
        }
        records
    }
}

fn plan(
    state: &State,
    created: &BTreeSet<&str>,
    topic: &NewTopic,
    partitions_max: i32,
    seed: &mut Seed,
) -> Result<Placed, KafkaError> {
    let name =
        TopicName::new(&topic.name).map_err(|cause| error(ErrorCode::InvalidTopicException, cause.to_string()))?;
    if state.topic(name.as_str()).is_some() {
        return Err(error(ErrorCode::TopicAlreadyExists, format!("topic '{name}' exists already")));
    }
    if let Some(other) = colliding(state, created, name.as_str()) {
        let message = format!("topic '{name}' would be told from '{other}' only by '.' and '_', which metrics cannot");
        return Err(error(ErrorCode::InvalidTopicException, message));
    }
    let config = check_configs(&topic.configs)?;
    let replicas = if topic.assignments.is_empty() {
        check_count(topic.partitions, partitions_max)?;
        let brokers = Candidates::of(state);
        let mut factor = topic.replication_factor;
        if grows(state, topic) {
            // As many as there are brokers now, one that restarts among them; the others come with more brokers.
            factor = factor.min(brokers.count()).max(1);
        }
        brokers.check_factor(factor)?;
        brokers.place(topic.partitions as usize, factor as usize, next_seed(seed))
    } else {
        if topic.partitions != -1 || topic.replication_factor != -1 {
            let message = "give either replica assignments or counts of partitions and replicas, not both";
            return Err(error(ErrorCode::InvalidRequest, message));
        }
        check_count(i32::try_from(topic.assignments.len()).unwrap_or(i32::MAX), partitions_max)?;
        assigned(state, &topic.assignments, 0, None)?
    };
    let factor = replicas.first().map_or(0, Vec::len);
    if topic.configs.iter().any(|entry| entry.key == MIN_ISR && entry.value.is_some()) {
        min_isr::check(config.min_insync_replicas, factor)?;
    }
    let mut id = seed.next_topic_id();
    while state.topic_name(id).is_some() {
        id = seed.next_topic_id();
    }
    Ok(Placed { id, replicas })
}

/// The most replicas that a new topic can have now, on brokers that live or restart.
pub fn factor_max(state: &State) -> i32 {
    Candidates::of(state).count()
}

/// Whether a new topic is to gain replicas when brokers join.
pub fn grows(state: &State, topic: &NewTopic) -> bool {
    let is_known = state.feature_level(features::VERSION) >= features::LEVEL_OF_CLUSTER_KEYS;
    is_known && topic.default_factor && topic.assignments.is_empty() && configs::grows_replicas(state)
}

fn growth(
    state: &State,
    context: &Context,
    topic: &GrowTopic,
    partitions_max: i32,
    seed: &mut Seed,
) -> Result<Vec<Record>, KafkaError> {
    let Some(stored) = state.topic(&topic.name) else {
        let message = format!("there is no topic '{}'", topic.name);
        return Err(error(ErrorCode::UnknownTopicOrPartition, message));
    };
    let now = state.partitions_of(stored.id).count() as i32;
    if topic.partitions <= now {
        let message = format!(
            "topic '{}' has {now} partitions; the new total must be larger than that, {} is not",
            topic.name, topic.partitions
        );
        return Err(error(ErrorCode::InvalidPartitions, message));
    }
    check_count(topic.partitions, partitions_max)?;
    let added = topic.partitions - now;
    let factor = state.partition(stored.id, 0).map_or(1, |first| first.target().len());
    let replicas = if topic.assignments.is_empty() {
        let brokers = Candidates::of(state);
        brokers.check_factor(i32::try_from(factor).unwrap_or(i32::MAX))?;
        brokers.place(added as usize, factor, next_seed(seed))
    } else {
        if topic.assignments.len() != added as usize {
            let message = format!(
                "{added} partitions are to be added to '{}', but replicas are assigned to {}",
                topic.name,
                topic.assignments.len()
            );
            return Err(error(ErrorCode::InvalidReplicaAssignment, message));
        }
        assigned(state, &topic.assignments, now, Some(factor))?
    };
    let partitions = replicas.iter().enumerate();
    let min_isr = min_isr::of_topic(state, context, stored.id);
    let record = |i, replicas: &[NodeId]| partition_record(stored.id, now + i, &on_live(state, replicas, min_isr));
    Ok(partitions.map(|(i, replicas)| record(i as i32, replicas)).collect())
}

fn find<'a>(state: &'a State, topic: &'a TopicRef) -> Result<(&'a str, TopicId), KafkaError> {
    match (topic.name.is_empty(), topic.topic_id.is_empty()) {
        (false, true) => match state.topic(&topic.name) {
            Some(stored) => Ok((&topic.name, stored.id)),
            None => Err(error(ErrorCode::UnknownTopicOrPartition, format!("there is no topic '{}'", topic.name))),
        },
        (true, false) => {
            let id =
                topic_id(&topic.topic_id).map_err(|_| error(ErrorCode::InvalidRequest, "a topic id has 16 bytes"))?;
            match state.topic_name(id) {
                Some(name) => Ok((name, id)),
                None => Err(error(ErrorCode::UnknownTopicId, format!("there is no topic with id {id}"))),
            }
        }
        _ => Err(error(ErrorCode::InvalidRequest, "name a topic either by its name or by its id")),
    }
}

fn removal(state: &State, name: &str, id: TopicId) -> Vec<Record> {
    let mut records = Vec::new();
    for (group, topics) in state.offsets() {
        for partition in topics.get(name).into_iter().flat_map(BTreeMap::keys) {
            let removed = OffsetRemoved { group_id: group.to_owned(), topic: name.to_owned(), partition: *partition };
            records.push(Record { kind: Some(Kind::OffsetRemoved(removed)) });
        }
    }
    for key in state.config(Resource::Topic, name).into_iter().flat_map(BTreeMap::keys) {
        records.push(config_record(name, key, None));
    }
    let removed = TopicRemoved { name: name.to_owned(), topic_id: id_bytes(id) };
    records.push(Record { kind: Some(Kind::TopicRemoved(removed)) });
    records
}

fn check_configs(configs: &[ConfigEntry]) -> Result<TopicConfig, KafkaError> {
    let mut overrides = BTreeMap::new();
    for entry in configs {
        let Some(value) = &entry.value else { continue };
        if overrides.insert(entry.key.clone(), value.clone()).is_some() {
            return Err(error(ErrorCode::InvalidConfig, format!("{} is set more than once", entry.key)));
        }
    }
    TopicConfig::from_overrides(&overrides).map_err(|cause| error(ErrorCode::InvalidConfig, cause.to_string()))
}

fn check_count(partitions: i32, partitions_max: i32) -> Result<(), KafkaError> {
    if partitions < 1 {
        let message = format!("a topic has at least 1 partition, {partitions} were asked for");
        return Err(error(ErrorCode::InvalidPartitions, message));
    }
    if partitions > partitions_max {
        let message = format!("a topic has at most {partitions_max} partitions here, {partitions} were asked for");
        return Err(error(ErrorCode::InvalidPartitions, message));
    }
    Ok(())
}

/// Brokers that can take replicas.
struct Candidates {
    live: Vec<Candidate>,
    /// Registered, but fenced or stopping: taken only where there are too few others, so that topics can be created while
    /// a broker restarts.
    away: Vec<NodeId>,
}

impl Candidates {
    fn of(state: &State) -> Candidates {
        let usable = state.brokers().filter(|(_, broker)| !broker.cordoned && !broker.draining);
        let (live, away): (Vec<_>, Vec<_>) = usable.partition(|(id, _)| state.is_eligible(*id));
        let live = live.into_iter().map(|(id, broker)| Candidate { id, rack: broker.rack.clone() }).collect();
        Candidates { live, away: away.into_iter().map(|(id, _)| id).collect() }
    }

    fn count(&self) -> i32 {
        i32::try_from(self.live.len() + self.away.len()).unwrap_or(i32::MAX)
    }

    fn check_factor(&self, factor: i32) -> Result<(), KafkaError> {
        let refuse = |message: String| Err(error(ErrorCode::InvalidReplicationFactor, message));
        let (live, all) = (self.live.len(), self.live.len() + self.away.len());
        if factor < 1 {
            return refuse(format!("a partition has at least 1 replica, {factor} were asked for"));
        }
        if factor as usize > all {
            return refuse(format!(
                "{factor} replicas need {factor} brokers that are neither cordoned nor draining, and there are {all}, {live} of \
                 them alive"
            ));
        }
        if live == 0 {
            return refuse(format!("none of the {all} brokers is alive"));
        }
        Ok(())
    }

    /// `factor` has been checked. Live brokers come first in each list, so one of them leads.
    fn place(&self, count: usize, factor: usize, seed: Seed) -> Vec<Vec<NodeId>> {
        let mut placed = place(&self.live, count, factor.min(self.live.len()), seed);
        for (index, replicas) in placed.iter_mut().enumerate() {
            let missing = factor.saturating_sub(replicas.len());
            replicas.extend(self.away.iter().cycle().skip(index % self.away.len().max(1)).take(missing).copied());
        }
        placed
    }
}

/// Replicas chosen by the caller for partitions `first..`, all with the same number, `factor` if given.
fn assigned(
    state: &State,
    assignments: &[ReplicaAssignment],
    first: i32,
    factor: Option<usize>,
) -> Result<Vec<Vec<NodeId>>, KafkaError> {
    let refuse = |message: String| Err(error(ErrorCode::InvalidReplicaAssignment, message));
    let mut by_index: Vec<&ReplicaAssignment> = assignments.iter().collect();
    by_index.sort_by_key(|assignment| assignment.partition);
    let factor = factor.unwrap_or_else(|| by_index.first().map_or(0, |assignment| assignment.replicas.len()));
    let mut placed = Vec::with_capacity(by_index.len());
    for (expected, assignment) in (first..).zip(by_index) {
        let index = assignment.partition;
        if index != expected {
            return refuse(format!("replicas are assigned to partition {index} where {expected} comes next"));
        }
        let replicas: Vec<NodeId> = assignment.replicas.iter().copied().map(NodeId).collect();
        let distinct: BTreeSet<NodeId> = replicas.iter().copied().collect();
        if replicas.is_empty() || distinct.len() != replicas.len() {
            return refuse(format!("partition {index} needs replicas, each broker once"));
        }
        if replicas.len() != factor {
            return refuse(format!("partition {index} has {} replicas where others have {factor}", replicas.len()));
        }
        if let Some(unknown) = replicas.iter().find(|id| state.broker(**id).is_none()) {
            return refuse(format!("partition {index} is assigned to broker {unknown}, which does not exist"));
        }
        if !replicas.iter().any(|id| state.is_eligible(*id)) {
            return refuse(format!("no broker that partition {index} is assigned to is alive"));
        }
        placed.push(replicas);
    }
    Ok(placed)
}

/// A new partition: in sync are those replicas that are alive; the first of them leads.
/// While too few are in sync to commit anything, the others are eligible: nothing can be missing from them. Else a partition
/// that is made while one replica lives, whose disk then fails, could never be led again, though nobody was promised anything.
fn on_live(state: &State, replicas: &[NodeId], min_isr: i32) -> Partition {
    let mut partition = Partition::new(replicas.to_vec());
    let (isr, others) = partition.isr.iter().copied().partition(|id| state.is_eligible(*id));
    partition.isr = isr;
    if partition.isr.len() < min_isr::bounded(min_isr, replicas.len())
        && state.feature_level(features::VERSION) >= LEVEL_OF_ELIGIBLE_AT_FIRST
    {
        partition.elr = others;
    }
    partition.leader = replicas.iter().copied().find(|id| partition.isr.contains(id));
    partition.last_leader = partition.leader;
    partition
}

/// The topic whose name equals this one once '.' and '_' are one; Kafka refuses such a pair, too.
fn colliding<'a>(state: &'a State, created: &'a BTreeSet<&str>, name: &str) -> Option<&'a str> {
    if !name.contains(['.', '_']) {
        return None;
    }
    let wanted = name.replace('.', "_");
    let names = state.topics().map(|(other, _)| other).chain(created.iter().copied());
    names.filter(|other| other.len() == name.len()).find(|other| other.replace('.', "_") == wanted)
}

fn is_internal(name: &str) -> bool {
    matches!(name, "__consumer_offsets" | "__transaction_state" | "__share_group_state")
}

fn config_record(topic: &str, key: &str, value: Option<String>) -> Record {
    let record = ConfigRecord { resource: Resource::Topic as i32, name: topic.to_owned(), key: key.to_owned(), value };
    Record { kind: Some(Kind::Config(record)) }
}

fn next_seed(seed: &mut Seed) -> Seed {
    Seed::new(seed.next_u64(), seed.next_u64())
}

/// The level of `thalweg.version` from which on [`on_live`] makes replicas eligible.
const LEVEL_OF_ELIGIBLE_AT_FIRST: u32 = 4;
