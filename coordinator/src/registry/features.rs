//! The cluster's name and what it may do: levels that only rise, agreed on by all nodes (REPLICATION R4).

use thalweg_model::{ErrorCode, TopicId};
use thalweg_proto::v1::command::Kind;
use thalweg_proto::v1::{ClusterRecord, FeatureRecord, InitCluster, Record, record};

use super::state::{State, topic_id};
use super::{Outcome, error};

/// The feature that says which commands may be applied.
pub const VERSION: &str = "thalweg.version";

/// The highest level of [`VERSION`] that this program knows.
pub const LEVEL: u32 = 3;

/// The level at which a command became part of the language. Level 2 also gave registrations what tells copies of a directory
/// from the directory (`process_id`, `last_broker_epoch`, `metadata_index`); level 3 gave moves and plans.
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
        | Kind::ExpireOffsets(_) => 1,
        Kind::AlterReassignments(_)
        | Kind::StartPlan(_)
        | Kind::EndPlan(_)
        | Kind::MarkBroker(_)
        | Kind::UnregisterBroker(_) => 3,
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
    let cluster_id = bytes::Bytes::copy_from_slice(&random);
    let features = vec![FeatureRecord { name: VERSION.to_owned(), level: LEVEL }];
    Kind::InitCluster(InitCluster { cluster_id, features })
}
