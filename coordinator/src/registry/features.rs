//! The cluster's name and what it may do: levels that only rise, agreed on by all nodes (REPLICATION R4).

use thalweg_model::{ErrorCode, NodeId, TopicId};
use thalweg_proto::v1::command::Kind;
use thalweg_proto::v1::{
    BrokerRecord, ClusterRecord, FeatureRecord, InitCluster, Levels, RaiseLevel, Record, RegisterBrokerRequest, record,
};

use super::state::{State, topic_id};
use super::{Outcome, error};

/// The feature that says which commands may be applied.
pub const VERSION: &str = "thalweg.version";

/// The highest level of [`VERSION`] that this program knows.
pub const LEVEL: u32 = *thalweg_proto::LEVELS.end();

/// The level at which a command became part of the language. Level 2 also gave registrations what tells copies of a directory
/// from the directory (`process_id`, `last_broker_epoch`, `metadata_index`); level 3 gave moves and plans; level 4 keeps which
/// levels a broker can do with its registration, never gives a broker's number twice, and gave tokens and coordinators to spare;
/// level 5 tells a replaced disk that comes back from a call that it made long ago.
pub fn level_of(kind: &Kind) -> u32 {
    match kind {
        Kind::InitCluster(_) => 0,
        Kind::VerifyHash(_)
        | Kind::RegisterBroker(_)
        | Kind::FenceBroker(_)
        | Kind::UnfenceBroker(_)
        | Kind::BeginShutdown(_)
        | Kind::CreateTopics(_)
        | Kind::DeleteTopics(_)
        | Kind::CreatePartitions(_)
        | Kind::AlterConfigs(_)
        | Kind::AllocateProducerIds(_)
        | Kind::AlterIsr(_)
        | Kind::ElectLeaders(_)
        | Kind::TakeOffline(_)
        | Kind::AdmitCoordinator(_)
        | Kind::RetireCoordinator(_)
        | Kind::SaveGeneration(_)
        | Kind::SaveAssignment(_)
        | Kind::ReplaceMember(_)
        | Kind::CommitOffsets(_)
        | Kind::DeleteGroup(_)
        | Kind::DeleteOffsets(_)
        | Kind::ExpireOffsets(_)
        | Kind::RaiseLevel(_) => 1,
        Kind::AlterReassignments(_)
        | Kind::StartPlan(_)
        | Kind::EndPlan(_)
        | Kind::MarkBroker(_)
        | Kind::UnregisterBroker(_) => 3,
        Kind::CreateToken(_) | Kind::RevokeToken(_) | Kind::AdmitNode(_) | Kind::OfferCoordinator(_) => 4,
    }
}

/// The command that needs no level: it sets them.
pub fn is_first(kind: &Kind) -> bool {
    matches!(kind, Kind::InitCluster(_))
}

/// Names the cluster, once.
pub fn init(state: &State, command: &InitCluster) -> (Outcome, Vec<Record>) {
    if state.cluster_id().is_some() {
        return (Outcome::Done, Vec::new());
    }
    let id = match topic_id(&command.cluster_id) {
        Ok(TopicId(bytes)) if bytes != [0; 16] => TopicId(bytes).to_base64(),
        Ok(_) | Err(_) => {
            return (Outcome::Refused(error(ErrorCode::InvalidRequest, "a cluster id has 16 bytes")), Vec::new());
        }
    };
    let cluster = record::Kind::Cluster(ClusterRecord { cluster_id: id });
    let features = command.features.iter().cloned().map(record::Kind::Feature);
    (Outcome::Done, std::iter::once(cluster).chain(features).map(|kind| Record { kind: Some(kind) }).collect())
}

/// What a new cluster begins with. `random` becomes its name.
pub fn first_command(random: [u8; 16]) -> Kind {
    founding(random, LEVEL)
}

/// As [`first_command`], at a level that every founder can do.
pub fn founding(random: [u8; 16], level: u32) -> Kind {
    let cluster_id = bytes::Bytes::copy_from_slice(&random);
    let features = vec![FeatureRecord { name: VERSION.to_owned(), level }];
    Kind::InitCluster(InitCluster { cluster_id, features })
}

/// Raises the level, if every registered broker can do it (REPLICATION R4). Who asks has made sure of the coordinators.
///
/// What a broker can do is in its registration from level 4 on; below that the command carries what the leader heard from it.
/// Either is of one life of the broker, so one that came back as an earlier version meanwhile is found here.
pub fn raise(state: &State, command: &RaiseLevel) -> (Outcome, Vec<Record>) {
    let (level, now) = (command.level, state.feature_level(VERSION));
    let refuse = |message: String| (Outcome::Refused(error(ErrorCode::InvalidUpdateVersion, message)), Vec::new());
    if level == now {
        return (Outcome::Done, Vec::new());
    }
    if level < now {
        return refuse(format!(
            "thalweg.version is at level {now}, and a level is never lowered: what came with it may be stored already"
        ));
    }
    for (id, broker) in state.brokers() {
        let heard = command.brokers.iter().find(|one| one.broker_id == id.0 && one.broker_epoch == broker.epoch);
        let levels = broker.levels.or_else(|| heard.and_then(|heard| heard.levels));
        if let Some(reason) = incapable(id, broker, levels, level) {
            return refuse(reason);
        }
    }
    let feature = FeatureRecord { name: VERSION.to_owned(), level };
    (Outcome::Done, vec![Record { kind: Some(record::Kind::Feature(feature)) }])
}

fn incapable(id: NodeId, broker: &BrokerRecord, levels: Option<Levels>, level: u32) -> Option<String> {
    let way_out =
        || format!("start it as the newer version, or, if it is gone for good, forget it: thalweg broker remove {id}");
    let version = &broker.version;
    match levels {
        Some(levels) if levels.contains(level) => None,
        Some(levels) => Some(format!(
            "broker {id} (version {version}) can do levels {levels} of thalweg.version, not {level}; {}",
            way_out()
        )),
        None if broker.fenced => Some(format!(
            "broker {id} does not run, and which levels of thalweg.version it can do is not known; {}",
            way_out()
        )),
        None => Some(format!(
            "broker {id} (version {version}) has not said which levels of thalweg.version it can do, as earlier versions do \
             not; {}",
            way_out()
        )),
    }
}

/// Whether a broker can work in this cluster at all.
///
/// # Errors
/// Says which levels do not fit, and the way out.
pub fn check_registration(state: &State, request: &RegisterBrokerRequest) -> Result<(), String> {
    let level = state.feature_level(VERSION);
    let version = &request.version;
    match request.levels {
        _ if level < LEVEL_OF_LEVELS => Ok(()),
        Some(levels) if levels.contains(level) => Ok(()),
        Some(levels) if levels.min > level => Err(format!(
            "this broker (version {version}) works at levels {levels} of thalweg.version, and the cluster is at {level}: first \
             run a version in between everywhere, and type thalweg cluster upgrade finalize"
        )),
        Some(_) | None => Err(format!(
            "the cluster is at level {level} of thalweg.version, and this broker (version {version}) is too old for it; start \
             the newer version"
        )),
    }
}

/// At which registrations keep what their broker can do.
pub const LEVEL_OF_LEVELS: u32 = 4;
/// At which the cluster's own keys are checked and heeded.
pub const LEVEL_OF_CLUSTER_KEYS: u32 = 4;
/// At which numbers of nodes are given by the registries, never twice.
pub const LEVEL_OF_NODE_IDS: u32 = 4;
/// At which other directories take a broker's place only if they know whose place that is.
pub const LEVEL_OF_REPLACEMENTS: u32 = 5;
