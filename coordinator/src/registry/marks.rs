//! What operators say of brokers: cordoned, draining, gone.

use thalweg_model::{ErrorCode, NodeId};
use thalweg_proto::v1::record::Kind;
use thalweg_proto::v1::{BrokerRecord, BrokerRemoved, MarkBroker, Record, UnregisterBroker};

use super::state::State;
use super::{Outcome, error, features, tokens};

/// Says that a broker is given no replicas, or is to hold nothing, or may again.
pub fn mark(state: &State, command: &MarkBroker) -> (Outcome, Vec<Record>) {
    let id = NodeId(command.broker_id);
    let Some(stored) = state.broker(id) else { return (unknown(id), Vec::new()) };
    let is_last = || !state.brokers().any(|(other, _)| other != id && state.takes_replicas(other));
    let is_closing = command.draining == Some(true) && !stored.draining;
    if is_closing && is_last() {
        let message = format!(
            "broker {id} is the last that takes replicas; nothing could leave it. Start another broker, or uncordon one, first"
        );
        return refused(message);
    }
    let marked = BrokerRecord {
        cordoned: command.cordoned.unwrap_or(stored.cordoned),
        draining: command.draining.unwrap_or(stored.draining),
        ..stored.clone()
    };
    let record = (marked != *stored).then(|| Record { kind: Some(Kind::Broker(marked)) });
    (Outcome::Done, record.into_iter().collect())
}

/// Forgets a broker that is gone for good (KIP-500, API 64).
pub fn unregister(state: &State, command: &UnregisterBroker) -> (Outcome, Vec<Record>) {
    let id = NodeId(command.broker_id);
    let Some(stored) = state.broker(id) else { return (unknown(id), Vec::new()) };
    let held = state.partitions().filter(|(_, _, partition)| partition.replicas.contains(&id)).count();
    if held > 0 {
        return refused(format!("broker {id} holds {held} replicas; `thalweg broker drain {id}` moves them away"));
    }
    if !stored.fenced {
        return refused(format!("broker {id} is alive and would register anew; stop it first"));
    }
    let removed = Kind::BrokerRemoved(BrokerRemoved { id: id.0 });
    // Nothing else would know that the number was given.
    let is_kept = state.feature_level(features::VERSION) >= features::LEVEL_OF_NODE_IDS;
    let ids = is_kept.then(|| Kind::NodeIds(tokens::next_ids(state)));
    (Outcome::Done, std::iter::once(removed).chain(ids).map(|kind| Record { kind: Some(kind) }).collect())
}

fn unknown(id: NodeId) -> Outcome {
    Outcome::Refused(error(ErrorCode::BrokerIdNotRegistered, format!("there is no broker {id}")))
}

fn refused(message: String) -> (Outcome, Vec<Record>) {
    (Outcome::Refused(error(ErrorCode::InvalidRequest, message)), Vec::new())
}
