//! A leader's proposal of other in-sync replicas (REPLICATION 3.4, AlterISR).

use std::collections::BTreeSet;

use thalweg_model::{ErrorCode, NodeId, PartitionEpoch, TopicId, mutant};
use thalweg_proto::v1::{AlterIsrRequest, AlterIsrResponse, IsrMember, KafkaError, PartitionIsr, PartitionIsrResult};
use thalweg_proto::v1::{BrokerRecord, Record};

use super::brokers::rules;
use super::context::Context;
use super::election::{ChangeError, Partition, Rules, without};
use super::state::{State, partition_record, topic_id};
use super::{Outcome, error, ok};

/// What a proposal for one partition comes to.
enum Verdict {
    Accepted(Partition),
    /// Somebody may not enter. The partition is the same but for its partition epoch, so that a copy of the proposal that
    /// comes late, when that broker may enter again, is not taken: its leader has stopped counting that broker by then.
    Ineligible(Partition, KafkaError),
    Refused(KafkaError),
}

/// Decides on each partition by itself; the order of the answers is that of the request.
///
/// Source: REPLICATION 3.4, KIP-497 (compare and set on the partition epoch), KIP-903 (broker epochs of those who enter).
pub fn alter(state: &State, context: &Context, request: &AlterIsrRequest) -> (Outcome, Vec<Record>) {
    let sender = NodeId(request.broker_id);
    if state.broker(sender).is_none_or(|broker| broker.epoch != request.broker_epoch) {
        let message = format!("broker {sender} is not registered at epoch {}; register again", request.broker_epoch);
        let refused = error(ErrorCode::StaleBrokerEpoch, message);
        return (answer(refused, Vec::new()), Vec::new());
    }
    let mut records = Vec::new();
    let mut seen = BTreeSet::new();
    let results = request.partitions.iter().map(|wanted| {
        let is_first = seen.insert((&wanted.topic_id, wanted.partition));
        let error = match decide(state, context, sender, wanted, is_first) {
            Ok((topic, Verdict::Accepted(next))) => {
                records.push(partition_record(topic, wanted.partition, &next));
                ok()
            }
            Ok((topic, Verdict::Ineligible(next, refused))) => {
                records.push(partition_record(topic, wanted.partition, &next));
                refused
            }
            Ok((_, Verdict::Refused(refused))) | Err(refused) => refused,
        };
        PartitionIsrResult { error: Some(error) }
    });
    let results = results.collect();
    (answer(ok(), results), records)
}

fn decide(
    state: &State,
    context: &Context,
    sender: NodeId,
    wanted: &PartitionIsr,
    is_first: bool,
) -> Result<(TopicId, Verdict), KafkaError> {
    let invalid = |message: String| Err(error(ErrorCode::InvalidRequest, message));
    let Ok(topic) = topic_id(&wanted.topic_id) else { return invalid("a topic id has 16 bytes".to_owned()) };
    if !is_first {
        return invalid(format!("partition {} is named more than once", wanted.partition));
    }
    if state.topic_name(topic).is_none() {
        return Err(error(ErrorCode::UnknownTopicId, format!("there is no topic with id {topic}")));
    }
    let Some(partition) = state.partition(topic, wanted.partition) else {
        let message = format!("topic {topic} has no partition {}", wanted.partition);
        return Err(error(ErrorCode::UnknownTopicOrPartition, message));
    };
    let verdict = match check(partition, sender, wanted) {
        Ok(()) => judge(state, context, topic, partition, wanted),
        Err(refused) => Verdict::Refused(refused),
    };
    Ok((topic, verdict))
}

/// Whether the sender leads, knows the partition as it is, and asks for something that can be.
fn check(partition: &Partition, sender: NodeId, wanted: &PartitionIsr) -> Result<(), KafkaError> {
    let (leader_epoch, partition_epoch) = (partition.leader_epoch.0, partition.partition_epoch.0);
    if wanted.leader_epoch > leader_epoch || wanted.partition_epoch > partition_epoch {
        let message = format!(
            "this coordinator knows leader epoch {leader_epoch} and partition epoch {partition_epoch}, older than {} and {}",
            wanted.leader_epoch, wanted.partition_epoch
        );
        return Err(error(ErrorCode::NotController, message));
    }
    if wanted.leader_epoch < leader_epoch && !mutant!("leader-epoch-in-proposal") {
        let message = format!("the leader epoch is {leader_epoch}, not {}", wanted.leader_epoch);
        return Err(error(ErrorCode::FencedLeaderEpoch, message));
    }
    if partition.leader != Some(sender) {
        return Err(error(ErrorCode::InvalidRequest, format!("broker {sender} does not lead this partition")));
    }
    if wanted.partition_epoch < partition_epoch && !mutant!("partition-epoch-cas") {
        let message = format!("the partition epoch is {partition_epoch}, not {}", wanted.partition_epoch);
        return Err(error(ErrorCode::InvalidUpdateVersion, message));
    }
    let members: BTreeSet<NodeId> = ids(wanted).collect();
    if !members.contains(&sender) {
        return Err(error(ErrorCode::InvalidRequest, "a leader is in sync with itself"));
    }
    if members.len() != wanted.isr.len() {
        return Err(error(ErrorCode::InvalidRequest, "a broker is named more than once"));
    }
    if partition.recovering && members.len() > 1 {
        let message = "a leader that recovers is alone in sync until it has said that it is done";
        return Err(error(ErrorCode::InvalidRequest, message));
    }
    Ok(())
}

fn judge(state: &State, context: &Context, topic: TopicId, partition: &Partition, wanted: &PartitionIsr) -> Verdict {
    let entering = wanted.isr.iter().filter(|member| !partition.isr.contains(&NodeId(member.broker_id)));
    let stranger = entering.clone().find(|member| !partition.replicas.contains(&NodeId(member.broker_id)));
    if let Some(stranger) = stranger {
        let message = ChangeError::NotAReplica(NodeId(stranger.broker_id)).to_string();
        return Verdict::Refused(error(ErrorCode::InvalidRequest, message));
    }
    if let Some(reason) = entering.clone().find_map(|member| unfit(state, member)) {
        let partition_epoch =
            if mutant!("partition-epoch-on-refusal") { partition.partition_epoch } else { next_epoch(partition) };
        let next = Partition { partition_epoch, ..partition.clone() };
        return Verdict::Ineligible(next, error(ErrorCode::IneligibleReplica, reason));
    }
    let eligible = |id| state.is_eligible(id);
    let rules = rules(state, context, topic, partition, &eligible);
    let isr = spared(ids(wanted).collect(), rules);
    match partition.change(&isr, rules) {
        Ok(mut next) => {
            next.recovering = partition.recovering && !wanted.recovered;
            // Also where nothing else changed: the leader's proposal ends with a larger partition epoch and nothing less.
            next.partition_epoch = next_epoch(partition);
            Verdict::Accepted(next)
        }
        Err(cause) => Verdict::Refused(error(ErrorCode::InvalidRequest, cause.to_string())),
    }
}

/// Without those who are to stop, as far as the rest suffices (REPLICATION 3.4, controlled shutdown). The leader counts
/// whom it proposed until it hears of this, which is only more.
fn spared(mut isr: Vec<NodeId>, rules: Rules<'_>) -> Vec<NodeId> {
    for id in isr.clone() {
        let rest = without(&isr, id);
        if !(rules.is_eligible)(id)
            && rest.len() >= rules.min_isr
            && rest.iter().any(|other| (rules.is_eligible)(*other))
        {
            isr = rest;
        }
    }
    isr
}

/// Why this life of a broker may not enter an ISR; `None` if it may.
fn unfit(state: &State, member: &IsrMember) -> Option<String> {
    let id = member.broker_id;
    let standing = |broker: &BrokerRecord| match broker {
        BrokerRecord { epoch, .. } if *epoch != member.broker_epoch && !mutant!("broker-epoch-at-join") => Some(
            format!("broker {id} has registered at epoch {epoch}, what the leader counted was {}", member.broker_epoch),
        ),
        BrokerRecord { fenced: true, .. } if !mutant!("fenced-at-join") => Some(format!("broker {id} is fenced")),
        BrokerRecord { shutting_down: true, .. } => Some(format!("broker {id} is shutting down")),
        BrokerRecord { .. } => None,
    };
    state.broker(NodeId(id)).map_or_else(|| Some(format!("broker {id} is not registered")), standing)
}

fn next_epoch(partition: &Partition) -> PartitionEpoch {
    PartitionEpoch(partition.partition_epoch.0.saturating_add(1))
}

fn ids(wanted: &PartitionIsr) -> impl Iterator<Item = NodeId> {
    wanted.isr.iter().map(|member| NodeId(member.broker_id))
}

fn answer(error: KafkaError, partitions: Vec<PartitionIsrResult>) -> Outcome {
    Outcome::AlteredIsr(AlterIsrResponse { error: Some(error), partitions, index: 0 })
}

#[cfg(test)]
mod tests {
    use thalweg_model::Timestamp;
    use thalweg_proto::v1::command::Kind;
    use thalweg_proto::v1::record;

    use super::super::context::Seed;
    use super::super::state::id_bytes;
    use super::*;

    const TOPIC: TopicId = TopicId([7; 16]);

    fn context() -> Context {
        Context { index: 100, time: Timestamp(0), seed: Seed::new(1, 2), default_min_isr: 2 }
    }

    /// Brokers 1 to 4 live at epochs 11 to 14; one partition on 1, 2, 3 led by 1 with `isr`, at leader epoch 5, partition
    /// epoch 9.
    fn state(isr: &[i32], change: impl FnOnce(&mut Partition, &mut [BrokerRecord])) -> State {
        let mut partition = Partition::new([1, 2, 3].map(NodeId).to_vec());
        partition.isr = isr.iter().copied().map(NodeId).collect();
        partition.leader_epoch.0 = 5;
        partition.partition_epoch.0 = 9;
        let mut brokers =
            [1, 2, 3, 4].map(|id| BrokerRecord { id, epoch: i64::from(id) + 10, ..BrokerRecord::default() });
        change(&mut partition, &mut brokers);
        let topic = record::Kind::Topic(thalweg_proto::v1::TopicRecord {
            name: "t".into(),
            topic_id: id_bytes(TOPIC),
            ..Default::default()
        });
        let mut state = State::default();
        state.replay(&Record { kind: Some(topic) }).unwrap();
        state.replay(&partition_record(TOPIC, 0, &partition)).unwrap();
        for broker in brokers {
            state.replay(&Record { kind: Some(record::Kind::Broker(broker)) }).unwrap();
        }
        state
    }

    fn wanted(isr: &[i32]) -> PartitionIsr {
        let isr = isr.iter().map(|id| IsrMember { broker_id: *id, broker_epoch: i64::from(*id) + 10 }).collect();
        PartitionIsr { topic_id: id_bytes(TOPIC), leader_epoch: 5, partition_epoch: 9, isr, ..PartitionIsr::default() }
    }

    fn from_1(partitions: Vec<PartitionIsr>) -> AlterIsrRequest {
        AlterIsrRequest { broker_id: 1, broker_epoch: 11, partitions }
    }

    /// The codes: of the whole, then of each partition; the partition afterwards if it has changed.
    fn run(state: &State, request: &AlterIsrRequest) -> (Vec<i32>, Option<Partition>) {
        // Through the machine's door, so that the command is known to lead here.
        let (outcome, records) = super::super::decide(state, &context(), &Kind::AlterIsr(request.clone()));
        let Outcome::AlteredIsr(answer) = outcome else { panic!("{outcome:?}") };
        let errors = std::iter::once(answer.error).chain(answer.partitions.into_iter().map(|one| one.error));
        let mut after = state.clone();
        records.iter().for_each(|record| after.replay(record).unwrap());
        let changed = (!records.is_empty()).then(|| after.partition(TOPIC, 0).unwrap().clone());
        (errors.map(|error| error.unwrap().code).collect(), changed)
    }

    fn numbers(ids: &[NodeId]) -> Vec<i32> {
        ids.iter().map(|id| id.0).collect()
    }

    #[test]
    fn a_leader_that_knows_the_partition_as_it_is_shrinks_and_grows_the_isr() {
        let (codes, shrunk) = run(&state(&[1, 2, 3], |_, _| {}), &from_1(vec![wanted(&[1, 3])]));
        let shrunk = shrunk.unwrap();
        assert_eq!((codes, numbers(&shrunk.isr)), (vec![0, 0], vec![1, 3]));
        assert_eq!((shrunk.leader_epoch.0, shrunk.partition_epoch.0), (5, 10));

        let (codes, grown) = run(&state(&[1], |p, _| p.elr = vec![NodeId(3)]), &from_1(vec![wanted(&[2, 1])]));
        let grown = grown.unwrap();
        assert_eq!((codes, numbers(&grown.isr), grown.elr.len()), (vec![0, 0], vec![1, 2], 0));

        let (codes, alone) = run(&state(&[1, 2], |_, _| {}), &from_1(vec![wanted(&[1])]));
        let alone = alone.unwrap();
        assert_eq!((codes, numbers(&alone.isr), numbers(&alone.elr)), (vec![0, 0], vec![1], vec![2]), "below min ISR");
    }

    /// Goal: every proposal that is not of the present moment, or not possible, changes nothing, and says why.
    #[test]
    fn each_reason_to_refuse_a_proposal_has_its_own_code_and_changes_nothing() {
        let good = || wanted(&[1, 2]);
        let cases: Vec<(&str, PartitionIsr, i32)> = vec![
            ("older leader epoch", PartitionIsr { leader_epoch: 4, ..good() }, 74),
            ("older partition epoch", PartitionIsr { partition_epoch: 8, ..good() }, 95),
            ("leader epoch above ours", PartitionIsr { leader_epoch: 6, ..good() }, 41),
            ("partition epoch above ours", PartitionIsr { partition_epoch: 10, ..good() }, 41),
            (
                "old leader epoch, new partition epoch",
                PartitionIsr { leader_epoch: 4, partition_epoch: 10, ..good() },
                41,
            ),
            ("without the leader", wanted(&[2, 3]), 42),
            ("nobody", wanted(&[]), 42),
            ("a broker twice", wanted(&[1, 2, 2]), 42),
            ("no replica", wanted(&[1, 4]), 42),
            ("a topic id of 3 bytes", PartitionIsr { topic_id: vec![1; 3].into(), ..good() }, 42),
            ("an unknown topic", PartitionIsr { topic_id: vec![1; 16].into(), ..good() }, 100),
            ("an unknown partition", PartitionIsr { partition: 1, ..good() }, 3),
            ("a negative partition", PartitionIsr { partition: -1, ..good() }, 3),
        ];
        let state = state(&[1, 2, 3], |_, _| {});
        for (what, proposal, code) in cases {
            assert_eq!(run(&state, &from_1(vec![proposal])), (vec![0, code], None), "{what}");
        }
        let not_leading = AlterIsrRequest { broker_id: 2, broker_epoch: 12, partitions: vec![good()] };
        assert_eq!(run(&state, &not_leading), (vec![0, 42], None));
        for (broker_id, broker_epoch) in [(1, 10), (1, 12), (9, 1)] {
            let stale = AlterIsrRequest { broker_id, broker_epoch, partitions: vec![good()] };
            assert_eq!(run(&state, &stale), (vec![77], None), "broker {broker_id} at {broker_epoch}");
        }
    }

    /// Goal: a refused member cannot come in by a late copy of the same proposal (FAILURES 23). Method: refuse, make the
    /// member fit, send the same bytes again.
    #[test]
    fn a_proposal_with_an_unfit_member_is_used_up() {
        type MakeUnfit = fn(&mut BrokerRecord);
        let unfit: [(&str, MakeUnfit); 3] = [
            ("fenced", |broker| broker.fenced = true),
            ("stopping", |broker| broker.shutting_down = true),
            ("another life", |broker| broker.epoch = 99),
        ];
        for (what, make_unfit) in unfit {
            let state = state(&[1], |_, brokers| make_unfit(&mut brokers[1]));
            let proposal = from_1(vec![wanted(&[1, 2])]);
            let (codes, after) = run(&state, &proposal);
            let after = after.unwrap();
            assert_eq!((codes, numbers(&after.isr), after.partition_epoch.0), (vec![0, 107], vec![1], 10), "{what}");
            let mut fit = state.clone();
            fit.replay(&partition_record(TOPIC, 0, &after)).unwrap();
            let broker = BrokerRecord { id: 2, epoch: 12, ..BrokerRecord::default() };
            fit.replay(&Record { kind: Some(record::Kind::Broker(broker)) }).unwrap();
            assert_eq!(run(&fit, &proposal), (vec![0, 95], None), "{what}");
        }
        let gone = PartitionIsr {
            isr: vec![IsrMember { broker_id: 2, broker_epoch: -1 }, wanted(&[1]).isr[0]],
            ..wanted(&[])
        };
        assert_eq!(run(&state(&[1], |_, _| {}), &from_1(vec![gone])).0, [0, 107], "an epoch must be given");
    }

    #[test]
    fn a_member_that_stays_is_not_judged_again() {
        let state = state(&[1, 2, 3], |_, brokers| brokers[1].shutting_down = true);
        let (codes, after) = run(&state, &from_1(vec![wanted(&[1, 2])]));
        assert_eq!((codes, numbers(&after.unwrap().isr)), (vec![0, 0], vec![1, 2]));
    }

    #[test]
    fn a_recovering_leader_is_alone_until_it_says_that_it_has_recovered() {
        let recovering = || state(&[1], |partition, _| partition.recovering = true);
        let with_2 = PartitionIsr { recovered: true, ..wanted(&[1, 2]) };
        assert_eq!(run(&recovering(), &from_1(vec![with_2])), (vec![0, 42], None));
        let done = PartitionIsr { recovered: true, ..wanted(&[1]) };
        let (codes, after) = run(&recovering(), &from_1(vec![done]));
        let after = after.unwrap();
        assert_eq!((codes, after.recovering, after.partition_epoch.0), (vec![0, 0], false, 10));
        let (_, still) = run(&recovering(), &from_1(vec![wanted(&[1])]));
        assert!(still.unwrap().recovering);
    }

    /// Goal: a proposal always ends, since its leader waits for a larger partition epoch (L7).
    #[test]
    fn a_proposal_of_what_is_so_already_moves_the_partition_epoch() {
        let (codes, after) = run(&state(&[1, 2], |_, _| {}), &from_1(vec![wanted(&[1, 2])]));
        assert_eq!((codes, after.unwrap().partition_epoch.0), (vec![0, 0], 10));
    }

    #[test]
    fn partitions_of_one_call_stand_or_fall_alone() {
        let proposals = vec![PartitionIsr { partition: 5, ..wanted(&[1]) }, wanted(&[1, 2]), wanted(&[1])];
        let (codes, after) = run(&state(&[1, 2, 3], |_, _| {}), &from_1(proposals));
        assert_eq!((codes, numbers(&after.unwrap().isr)), (vec![0, 3, 0, 42], vec![1, 2]));
    }

    /// A leader that is to stop leads on only while nobody else is in sync (REPLICATION 3.4, controlled shutdown).
    #[test]
    fn a_leader_that_stops_hands_over_to_whom_it_lets_in() {
        let state = state(&[1], |_, brokers| brokers[0].shutting_down = true);
        let (codes, after) = run(&state, &from_1(vec![wanted(&[1, 3])]));
        let after = after.unwrap();
        assert_eq!((codes, after.leader, after.leader_epoch.0), (vec![0, 0], Some(NodeId(3)), 6));
    }
}
