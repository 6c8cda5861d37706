//! Which levels of thalweg.version brokers can do, as far as this leader has heard; raising the cluster's (REPLICATION R4).

use thalweg_proto::v1::command::Kind;
use thalweg_proto::v1::{BrokerLevels, NodeLevels, RaiseLevel, RaiseLevelResponse};

use super::{Effect, Purpose, Reply, Session, Ticket};
use crate::registry::{Machine, Outcome, features, ok};

impl Session {
    /// Of every registered broker: what its registration says, or else what it says with its heartbeats.
    pub(super) fn broker_levels(&self, machine: &Machine) -> Vec<NodeLevels> {
        let described = machine.state().brokers().map(|(id, broker)| {
            let levels = broker.levels.or_else(|| self.brokers.levels(id));
            let unknown = match levels {
                Some(_) => "",
                None if broker.fenced => "it does not run",
                None => "it has not said so, as earlier versions do not",
            };
            NodeLevels {
                coordinator: false,
                id: u64::from(id.0.unsigned_abs()),
                levels,
                unknown: unknown.to_owned(),
                version: broker.version.clone(),
                answers: !broker.fenced,
            }
        });
        described.collect()
    }

    /// Who asks has made sure that every coordinator can do the level.
    pub(super) fn raise_level(
        &mut self,
        machine: &Machine,
        ticket: Ticket,
        level: u32,
        validate_only: bool,
        out: &mut Vec<Effect>,
    ) {
        let heard = machine.state().brokers().filter_map(|(id, broker)| {
            let levels = Some(self.brokers.levels(id)?);
            Some(BrokerLevels { broker_id: id.0, broker_epoch: broker.epoch, levels })
        });
        let command = RaiseLevel { level, brokers: heard.collect() };
        if validate_only {
            let (outcome, _) = features::raise(machine.state(), &command);
            return self.level_raised(machine, ticket, level, outcome, machine.feed_index(), out);
        }
        self.propose(Purpose::RaiseLevel { ticket, level }, Kind::RaiseLevel(command), out);
    }

    pub(super) fn level_raised(
        &mut self,
        machine: &Machine,
        ticket: Ticket,
        level: u32,
        outcome: Outcome,
        index: u64,
        out: &mut Vec<Effect>,
    ) {
        let answer = match outcome {
            Outcome::Done => RaiseLevelResponse { error: Some(ok()), level, index },
            other => RaiseLevelResponse {
                error: Some(super::brokers::refusal(other)),
                level: machine.state().feature_level(features::VERSION),
                index,
            },
        };
        out.push(Effect::Reply(ticket, Reply::RaiseLevel(answer)));
    }
}
