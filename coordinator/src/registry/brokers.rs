//! The brokers: which life of each is registered, whether it may lead (REPLICATION B2-B5).

use std::collections::BTreeSet;

use bytes::Bytes;
use thalweg_model::{Durability, ErrorCode, NodeId, TopicId, mutant};
use thalweg_proto::v1::record::Kind;
use thalweg_proto::v1::{BrokerRecord, LogDir, Record, RegisterBrokerRequest, RegisterBrokerResponse};

use super::context::Context;
use super::election::{Partition, Rules, without};
use super::state::{State, partition_record};
use super::{Outcome, configs, error, features, min_isr, ok, tokens};

/// What a registration says about the records that the broker held before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disks {
    Safe,
    /// The page cache may be gone: records that were not flushed may be missing.
    Lossy,
    /// A log directory is gone, or is older than what it passes for.
    Wiped,
}

/// A new life of a broker, fenced; what its disks may have lost is settled in the same entry (B2, B3).
pub fn register(state: &State, context: &Context, request: &RegisterBrokerRequest) -> (Outcome, Vec<Record>) {
    // Nodes of an earlier version do not see what came with a later level, and all have to come to the same.
    let level = state.feature_level(features::VERSION);
    let plain = (level < 2).then(|| without_level_2(request));
    let request = plain.as_ref().unwrap_or(request);
    if let Err(refused) = validate(state, context, request) {
        return (registered(refused), Vec::new());
    }
    let id = match request.broker_id {
        -1 => id_for(state, request),
        id => NodeId(id),
    };
    let stored = state.broker(id);
    // Numbers of lives are kept in the directories: those of others, such as a replaced disk's, say nothing about these.
    if let Some(stored) = stored.filter(|stored| is_same_storage(stored, request) || mutant!("lives-per-storage")) {
        if request.incarnation < stored.incarnation && !mutant!("incarnation-order") {
            let message = format!(
                "broker {id} has registered its life number {} already, this is number {}: its directories are an older copy; \
                 start it with the present ones, or with empty directories",
                stored.incarnation, request.incarnation
            );
            return (registered(error(ErrorCode::InvalidRegistration, message)), Vec::new());
        }
        let is_other = !stored.process_id.is_empty() && stored.process_id != request.process_id;
        if request.incarnation == stored.incarnation && is_other {
            let message = format!(
                "another process has registered life number {} of broker {id}: its directories and these are copies of each \
                 other; stop one of the two and give it empty directories and an id of its own",
                stored.incarnation
            );
            return (registered(error(ErrorCode::InvalidRegistration, message)), Vec::new());
        }
        if request.incarnation == stored.incarnation {
            return (accepted(state, stored), Vec::new());
        }
    }
    if let Some(stored) =
        stored.filter(|stored| level >= features::LEVEL_OF_REPLACEMENTS && !is_same_storage(stored, request))
        && let Some(refused) = unaware(stored, context, request)
    {
        return (Outcome::Registered(refused), Vec::new());
    }
    let disks = stored.map_or(Disks::Safe, |stored| classify(stored, request));
    // An index may carry two lives of one broker; each still gets an epoch of its own.
    let epoch = (context.index as i64).max(stored.map_or(0, |stored| stored.epoch.saturating_add(1)));
    let broker = BrokerRecord {
        id: id.0,
        epoch,
        incarnation: request.incarnation,
        endpoints: request.endpoints.clone(),
        rack: request.rack.clone(),
        fenced: true,
        shutting_down: false,
        log_dir_ids: request.log_dirs.iter().map(|dir| dir.dir_id.clone()).collect(),
        version: request.version.clone(),
        boot_id: request.boot_id.clone(),
        process_id: request.process_id.clone(),
        served_epoch: stored.map_or(0, |stored| stored.served_epoch),
        // An operator's word outlives the broker's lives.
        cordoned: stored.is_some_and(|stored| stored.cordoned),
        draining: stored.is_some_and(|stored| stored.draining),
        levels: request.levels.filter(|_| level >= features::LEVEL_OF_LEVELS),
    };
    let outcome = accepted(state, &broker);
    let mut records = vec![broker_record(broker)];
    records.extend(take_out(state, context, id, disks));
    (outcome, records)
}

/// Refuses directories that would take the place of others and do not know whose place that is now: numbers of lives tell
/// nothing between them, and this may be a call that a disk made before it was replaced. It would be taken for an empty disk, and
/// what lies on the present one would not be counted on any more. Whoever is alive learns the epoch from the answer, and asks again.
fn unaware(
    stored: &BrokerRecord,
    context: &Context,
    request: &RegisterBrokerRequest,
) -> Option<RegisterBrokerResponse> {
    // Several lives in one entry have epochs beyond it.
    let known = context.index.min(u64::try_from(stored.epoch).unwrap_or(0));
    if request.metadata_index >= known || mutant!("replacement-is-aware") {
        return None;
    }
    let message = format!(
        "broker {} has registered with other directories, at epoch {}; to take their place, ask again with this knowledge",
        stored.id, stored.epoch
    );
    let refused = error(ErrorCode::StaleBrokerEpoch, message);
    Some(RegisterBrokerResponse {
        error: Some(refused),
        broker_id: -1,
        broker_epoch: -1,
        index: known,
        ..Default::default()
    })
}

/// The lease of this life ran out: it leaves every ISR and leads nothing (B5). Always safe.
pub fn fence(state: &State, context: &Context, id: NodeId, epoch: i64) -> (Outcome, Vec<Record>) {
    let Some(stored) = current(state, id, epoch) else { return (Outcome::Done, Vec::new()) };
    if stored.fenced {
        return (Outcome::Done, Vec::new());
    }
    let mut records = vec![broker_record(BrokerRecord { fenced: true, ..stored.clone() })];
    records.extend(take_out(state, context, id, Disks::Safe));
    (Outcome::Done, records)
}

/// The broker has recovered its logs and knows its registration: it may lead again.
pub fn unfence(state: &State, context: &Context, id: NodeId, epoch: i64) -> (Outcome, Vec<Record>) {
    let Some(stored) = current(state, id, epoch) else { return (Outcome::Done, Vec::new()) };
    if !stored.fenced || stored.shutting_down {
        return (Outcome::Done, Vec::new());
    }
    let served_epoch = if state.feature_level(features::VERSION) < 2 { stored.served_epoch } else { stored.epoch };
    let mut records = vec![broker_record(BrokerRecord { fenced: false, served_epoch, ..stored.clone() })];
    let eligible = |other| other == id || state.is_eligible(other);
    records.extend(change_where(state, context, &eligible, |partition| {
        (partition.leader.is_none() && partition.replicas.contains(&id)).then(|| (partition.isr.clone(), Vec::new()))
    }));
    (Outcome::Done, records)
}

/// A controlled stop: leadership moves away; ISRs that can spare the broker let it go (REPLICATION 3.4).
///
/// Where nobody else in sync could lead it leads on: a follower that comes in by then takes over.
pub fn begin_shutdown(state: &State, context: &Context, id: NodeId, epoch: i64) -> (Outcome, Vec<Record>) {
    let Some(stored) = current(state, id, epoch) else { return (Outcome::Done, Vec::new()) };
    if stored.shutting_down {
        return (Outcome::Done, Vec::new());
    }
    let mut records = vec![broker_record(BrokerRecord { shutting_down: true, ..stored.clone() })];
    let eligible = |other| other != id && state.is_eligible(other);
    for (topic, index, partition) in state.partitions().filter(|(_, _, partition)| partition.isr.contains(&id)) {
        let rules = rules(state, context, topic, partition, &eligible);
        let rest = without(&partition.isr, id);
        if partition.leader == Some(id) && !rest.iter().any(|other| eligible(*other)) {
            continue;
        }
        let isr = if rest.len() >= rules.min_isr { rest } else { partition.isr.clone() };
        records.extend(changed(topic, index, partition, partition.change(&isr, rules).ok()));
    }
    (Outcome::Done, records)
}

/// Whether a broker that is to stop should wait for this partition: another live replica may come into sync, and until then
/// the partition would lose its leader, or fall below its minimum.
pub fn needs(state: &State, context: &Context, topic: TopicId, partition: &Partition, id: NodeId) -> bool {
    if !partition.isr.contains(&id) {
        return false;
    }
    let is_eligible = |other| other != id && state.is_eligible(other);
    let rest = without(&partition.isr, id);
    let min_isr = rules(state, context, topic, partition, &is_eligible).min_isr;
    let is_spared = partition.leader != Some(id) && rest.len() >= min_isr;
    let may_come = partition.replicas.iter().any(|other| is_eligible(*other) && !rest.contains(other));
    // The lead moves in the entry that says that the broker is to stop, so whom it could move to has it.
    !is_spared && may_come
}

/// What every partition is judged by. `min.insync.replicas` beyond [`Partition::factor`] counts as that number.
pub fn rules<'a>(
    state: &State,
    context: &Context,
    topic: TopicId,
    partition: &Partition,
    is_eligible: &'a dyn Fn(NodeId) -> bool,
) -> Rules<'a> {
    let min_isr = min_isr::bounded(min_isr::of_topic(state, context, topic), partition.factor());
    Rules { min_isr, is_eligible }
}

/// The broker leaves every ISR; where its disk is in doubt, every ELR too.
fn take_out(state: &State, context: &Context, id: NodeId, disks: Disks) -> Vec<Record> {
    let eligible = |other| other != id && state.is_eligible(other);
    let mut records = Vec::new();
    for (topic, index, partition) in state.partitions().filter(|(_, _, p)| p.replicas.contains(&id)) {
        let doubtful = match disks {
            Disks::Safe => false,
            Disks::Wiped => true,
            // A sole replica is kept: there is no better copy that waiting could bring back.
            Disks::Lossy => partition.replicas.len() > 1 && is_replicated(state, topic),
        };
        let in_sets = partition.isr.contains(&id) || partition.elr.contains(&id);
        let is_news = doubtful && !partition.lost.contains(&id);
        if !in_sets && !is_news {
            continue;
        }
        let isr = without(&partition.isr, id);
        let doubtful = if doubtful && !mutant!("doubtful-excluded") { vec![id] } else { Vec::new() };
        let rules = rules(state, context, topic, partition, &eligible);
        records.extend(changed(topic, index, partition, partition.change_losing(&isr, &doubtful, rules).ok()));
    }
    records
}

/// Runs `change` where `wanted` gives an ISR and the doubtful replicas.
fn change_where(
    state: &State,
    context: &Context,
    is_eligible: &dyn Fn(NodeId) -> bool,
    wanted: impl Fn(&Partition) -> Option<(Vec<NodeId>, Vec<NodeId>)>,
) -> Vec<Record> {
    let mut records = Vec::new();
    for (topic, index, partition) in state.partitions() {
        if let Some((isr, doubtful)) = wanted(partition) {
            let rules = rules(state, context, topic, partition, is_eligible);
            records.extend(changed(topic, index, partition, partition.change_losing(&isr, &doubtful, rules).ok()));
        }
    }
    records
}

pub(super) fn changed(topic: TopicId, index: i32, before: &Partition, after: Option<Partition>) -> Option<Record> {
    let after = after?;
    (after != *before).then(|| partition_record(topic, index, &after))
}

fn is_replicated(state: &State, topic: TopicId) -> bool {
    let replicated = Durability::Replicated.to_string();
    let config = state.topic_name(topic).and_then(|name| configs::of_topic(state, name));
    config.and_then(|config| config.get("durability")) == Some(&replicated)
}

fn without_level_2(request: &RegisterBrokerRequest) -> RegisterBrokerRequest {
    let mut plain = request.clone();
    plain.process_id = Bytes::new();
    plain.metadata_index = 0;
    plain.log_dirs.iter_mut().for_each(|dir| dir.last_broker_epoch = None);
    plain
}

fn validate(
    state: &State,
    context: &Context,
    request: &RegisterBrokerRequest,
) -> Result<(), thalweg_proto::v1::KafkaError> {
    let Some(cluster) = state.cluster_id() else {
        return Err(error(ErrorCode::CoordinatorLoadInProgress, "the cluster is being founded"));
    };
    if !request.cluster_id.is_empty() && request.cluster_id != cluster {
        let message = format!(
            "the broker's directories belong to cluster {}, the coordinators are those of cluster {cluster}; point the broker \
             at its own cluster or give it empty directories, or, if the coordinators came back without their data, bring that back",
            request.cluster_id
        );
        return Err(error(ErrorCode::InconsistentClusterId, message));
    }
    let invalid = |message: &str| Err(error(ErrorCode::InvalidRegistration, message));
    features::check_registration(state, request).or_else(|message| invalid(&message))?;
    if request.broker_id < -1 {
        return invalid("a broker id is 0 or more, or -1 to be given one");
    }
    if request.endpoints.is_empty() {
        return invalid("a broker needs at least one endpoint that clients reach it at");
    }
    if request.log_dirs.is_empty() || request.log_dirs.iter().any(|dir| dir.dir_id.len() != 16) {
        return invalid("a broker needs at least one log directory, each with an id of 16 bytes");
    }
    let ids: BTreeSet<&Bytes> = request.log_dirs.iter().map(|dir| &dir.dir_id).collect();
    if ids.len() < request.log_dirs.len() {
        return invalid("two log directories have the same id; one is a copy of the other");
    }
    let epochs = request.log_dirs.iter().filter_map(|dir| u64::try_from(dir.last_broker_epoch?).ok());
    let known = epochs.max().unwrap_or(0).max(request.metadata_index);
    if known > context.index {
        return invalid(&format!(
            "the broker's directories know of entry {known} of the registries, which end at {}: the coordinators' data was \
             restored from an older copy; bring the newer one back, or give the broker empty directories",
            context.index
        ));
    }
    let id = NodeId(request.broker_id);
    if known > 0 && request.broker_id >= 0 && state.broker(id).is_none() {
        return invalid(&format!(
            "broker {id} was in this cluster, and is not any more: it was removed; give it empty directories and another id"
        ));
    }
    Ok(())
}

/// The id that this storage had before, so that a repeated request gets one id; else a new one, never used before.
fn id_for(state: &State, request: &RegisterBrokerRequest) -> NodeId {
    if let Some((id, _)) = state.brokers().find(|(_, stored)| is_same_storage(stored, request)) {
        return id;
    }
    if state.feature_level(features::VERSION) >= features::LEVEL_OF_NODE_IDS {
        return NodeId(tokens::next_ids(state).next_broker_id);
    }
    NodeId(state.brokers().map(|(id, _)| id.0).max().map_or(1, |id| id.saturating_add(1)))
}

/// Whether the registration comes from directories that the stored life had, at least one of them.
pub fn is_same_storage(stored: &BrokerRecord, request: &RegisterBrokerRequest) -> bool {
    request.log_dirs.iter().any(|dir| stored.log_dir_ids.contains(&dir.dir_id))
}

fn classify(stored: &BrokerRecord, request: &RegisterBrokerRequest) -> Disks {
    let here = |id: &Bytes| request.log_dirs.iter().any(|dir| dir.dir_id == *id);
    if !stored.log_dir_ids.iter().all(here) && !mutant!("wiped-check") {
        return Disks::Wiped;
    }
    // Somebody else has served as this broker since: these are a copy of its directories. A life that was registered and never
    // let in may not have heard of it, and nobody counted on what it wrote.
    let is_behind = |dir: &LogDir| dir.last_broker_epoch.is_some_and(|last| last < stored.served_epoch);
    if request.log_dirs.iter().any(|dir| stored.log_dir_ids.contains(&dir.dir_id) && is_behind(dir)) {
        return Disks::Wiped;
    }
    let rebooted = request.boot_id != stored.boot_id;
    let lossy = request.log_dirs.iter().filter(|dir| stored.log_dir_ids.contains(&dir.dir_id)).any(|dir| {
        let clean = dir.clean && dir.clean_broker_epoch == stored.epoch;
        (dir.io_error || (rebooted && !clean)) && !mutant!("lossy-check")
    });
    if lossy { Disks::Lossy } else { Disks::Safe }
}

fn current(state: &State, id: NodeId, epoch: i64) -> Option<&BrokerRecord> {
    state.broker(id).filter(|stored| stored.epoch == epoch)
}

fn broker_record(broker: BrokerRecord) -> Record {
    Record { kind: Some(Kind::Broker(broker)) }
}

/// The index is filled in by whoever answers.
fn accepted(state: &State, broker: &BrokerRecord) -> Outcome {
    Outcome::Registered(RegisterBrokerResponse {
        error: Some(ok()),
        cluster_id: state.cluster_id().unwrap_or_default().to_owned(),
        broker_id: broker.id,
        broker_epoch: broker.epoch,
        index: 0,
    })
}

fn registered(refused: thalweg_proto::v1::KafkaError) -> Outcome {
    Outcome::Registered(RegisterBrokerResponse {
        error: Some(refused),
        broker_id: -1,
        broker_epoch: -1,
        ..RegisterBrokerResponse::default()
    })
}
