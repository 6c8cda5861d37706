//! Producer ids, given to brokers in blocks and never twice (REPLICATION P1).

use thalweg_model::{ErrorCode, NodeId};
use thalweg_proto::v1::record::Kind;
use thalweg_proto::v1::{AllocateProducerIds, AllocateProducerIdsResponse, KafkaError, ProducerIdsRecord, Record};

use super::state::State;
use super::{Outcome, error, ok};

/// The next block, to a broker in its current life.
pub fn allocate(state: &State, request: &AllocateProducerIds) -> (Outcome, Vec<Record>) {
    match next(state, request) {
        Ok((first, next)) => {
            let record = ProducerIdsRecord { next_producer_id: next };
            let answer = AllocateProducerIdsResponse { error: Some(ok()), first, count: request.count };
            (Outcome::ProducerIds(answer), vec![Record { kind: Some(Kind::ProducerIds(record)) }])
        }
        Err(refused) => {
            let answer = AllocateProducerIdsResponse { error: Some(refused), first: -1, count: 0 };
            (Outcome::ProducerIds(answer), Vec::new())
        }
    }
}

fn next(state: &State, request: &AllocateProducerIds) -> Result<(i64, i64), KafkaError> {
    let id = NodeId(request.broker_id);
    let Some(broker) = state.broker(id) else {
        return Err(error(ErrorCode::BrokerIdNotRegistered, format!("broker {id} is not registered")));
    };
    if broker.epoch != request.broker_epoch {
        let message = format!("broker {id} is at epoch {}, not {}", broker.epoch, request.broker_epoch);
        return Err(error(ErrorCode::StaleBrokerEpoch, message));
    }
    let first = state.next_producer_id();
    let next = first.checked_add(i64::from(request.count.max(1)));
    next.map(|next| (first, next)).ok_or_else(|| error(ErrorCode::UnknownServerError, "producer ids are used up"))
}
