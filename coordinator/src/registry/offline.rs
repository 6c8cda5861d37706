//! Replicas whose log directory failed under a broker that lives on (REPLICATION B3, G2).

use thalweg_model::NodeId;
use thalweg_proto::v1::{Record, TakeOffline};

use super::brokers::{changed, rules};
use super::context::Context;
use super::election::without;
use super::state::{State, topic_id};
use super::{Outcome, error};

/// The replicas named, or all of the broker's, leave ISR and ELR; what is left of their logs is in doubt.
pub fn take(state: &State, context: &Context, command: &TakeOffline) -> (Outcome, Vec<Record>) {
    let id = NodeId(command.broker_id);
    if state.broker(id).is_none_or(|broker| broker.epoch != command.broker_epoch) {
        let refused = error(thalweg_model::ErrorCode::StaleBrokerEpoch, format!("broker {id} has registered anew"));
        return (Outcome::Refused(refused), Vec::new());
    }
    let mut records = Vec::new();
    for (topic, index, partition) in state.partitions().filter(|(_, _, partition)| partition.replicas.contains(&id)) {
        let is_named = || {
            let mut topics = command.topics.iter();
            topics.any(|named| topic_id(&named.topic_id) == Ok(topic) && named.partitions.contains(&index))
        };
        let is_known = !partition.isr.contains(&id) && !partition.elr.contains(&id) && partition.lost.contains(&id);
        if is_known || !(command.all || is_named()) {
            continue;
        }
        let is_eligible = |other| other != id && state.is_eligible(other);
        let rules = rules(state, context, topic, partition, &is_eligible);
        let next = partition.change_losing(&without(&partition.isr, id), &[id], rules);
        records.extend(changed(topic, index, partition, next.ok()));
    }
    (Outcome::Done, records)
}

/// Whether there is anything left to take from the broker.
pub fn has_any(state: &State, context: &Context, command: &TakeOffline) -> bool {
    !take(state, context, command).1.is_empty()
}
