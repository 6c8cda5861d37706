//! Which ids coordinators have had, and whose data each stands for (REPLICATION R5).
//!
//! A coordinator that lost its disk has forgotten how it voted and what it acknowledged. Under its old id it could help to
//! elect a leader that lacks what was answered, so an id is bound to the data that it was given to.

use bytes::Bytes;
use thalweg_model::ErrorCode;
use thalweg_proto::v1::record::Kind;
use thalweg_proto::v1::{CoordinatorRecord, OfferCoordinator, Record};

use super::state::State;
use super::{Outcome, error};

/// Binds an id to the data of the node that asks for it.
pub fn admit(state: &State, id: u64, identity: &Bytes) -> (Outcome, Vec<Record>) {
    let refuse = |message: String| (Outcome::Refused(error(ErrorCode::InvalidVoterKey, message)), Vec::new());
    if id == 0 {
        return refuse("a coordinator's id is 1 or more".to_owned());
    }
    if identity.len() != 16 {
        return refuse(format!("coordinator {id} does not say which data it has"));
    }
    match state.coordinator(id) {
        Some(known) if known.removed => refuse(format!(
            "coordinator {id} was removed, and ids are never used again; \
             give the node another id and an empty data directory"
        )),
        Some(known) if known.identity != *identity => refuse(format!(
            "coordinator {id} belongs to other data: its data directory was lost or replaced. If that data is gone, remove \
             coordinator {id} and give this node another id and an empty data directory"
        )),
        Some(_) => (Outcome::Done, Vec::new()),
        None => (Outcome::Done, vec![record(id, identity.clone(), false)]),
    }
}

/// As [`admit`]; and keeps where the node can be reached when another voter is wanted.
pub fn offer(state: &State, command: &OfferCoordinator) -> (Outcome, Vec<Record>) {
    if !is_address(&command.address) {
        let message =
            format!("'{}' is not host:port, where coordinator {} could be reached", command.address, command.id);
        return (Outcome::Refused(error(ErrorCode::InvalidRequest, message)), Vec::new());
    }
    let (outcome, records) = admit(state, command.id, &command.identity);
    let known = state.coordinator(command.id);
    if outcome != Outcome::Done || known.is_some_and(|known| known.address == command.address) {
        return (outcome, records);
    }
    let offered = CoordinatorRecord {
        id: command.id,
        identity: command.identity.clone(),
        removed: false,
        address: command.address.clone(),
    };
    (Outcome::Done, vec![Record { kind: Some(Kind::Coordinator(offered)) }])
}

fn is_address(text: &str) -> bool {
    text.len() <= ADDRESS_LENGTH_MAX
        && text
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0))
}

/// Gives an id up. Unknown ids too: whoever had it before there were records does not come back.
pub fn retire(state: &State, id: u64) -> (Outcome, Vec<Record>) {
    let known = state.coordinator(id);
    if known.is_some_and(|known| known.removed) {
        return (Outcome::Done, Vec::new());
    }
    let identity = known.map(|known| known.identity.clone()).unwrap_or_default();
    (Outcome::Done, vec![record(id, identity, true)])
}

fn record(id: u64, identity: Bytes, removed: bool) -> Record {
    Record {
        kind: Some(Kind::Coordinator(CoordinatorRecord { id, identity, removed, ..CoordinatorRecord::default() })),
    }
}

/// Of names in DNS, with a port.
const ADDRESS_LENGTH_MAX: usize = 261;

#[cfg(test)]
mod tests {
    use super::*;

    fn told(outcome: Outcome) -> String {
        match outcome {
            Outcome::Done => String::new(),
            Outcome::Refused(refused) => refused.message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_id_stays_with_its_data_and_is_never_used_again() {
        let mut state = State::default();
        let mut run = |decide: &dyn Fn(&State) -> (Outcome, Vec<Record>)| {
            let (outcome, records) = decide(&state);
            records.iter().for_each(|record| state.replay(record).unwrap());
            told(outcome)
        };
        let (ours, other) = (Bytes::from(vec![1; 16]), Bytes::from(vec![2; 16]));
        assert_eq!(run(&|state| admit(state, 2, &ours)), "");
        assert_eq!(run(&|state| admit(state, 2, &ours)), "", "again");
        assert!(run(&|state| admit(state, 2, &other)).contains("lost or replaced"));
        assert!(run(&|state| admit(state, 3, &Bytes::new())).contains("which data"));
        assert_eq!(run(&|state| retire(state, 2)), "");
        assert_eq!(run(&|state| retire(state, 2)), "", "again");
        assert!(run(&|state| admit(state, 2, &ours)).contains("never used again"));
        assert_eq!(run(&|state| admit(state, 3, &other)), "", "another id is free");
    }
}
