//! The same commands give the same state: on every node, after any restart, in every later version.

use std::collections::BTreeMap;

use proptest::prelude::*;
use prost::Message;
use thalweg_coordinator::registry::context::{Context, Seed};
use thalweg_coordinator::registry::hash::StateHash;
use thalweg_coordinator::registry::keys::{Op, ops};
use thalweg_coordinator::registry::state::State;
use thalweg_coordinator::registry::{Machine, features};
use thalweg_coordinator::session::command;
use thalweg_model::Timestamp;
use thalweg_proto::v1::command::Kind;
use thalweg_proto::v1::*;

/// Applies an entry; returns its records and, as text, its outcomes.
fn apply(machine: &mut Machine, index: u64, batch: &CommandBatch) -> (Vec<Record>, String) {
    let seed = Seed::new(batch.seed_high, batch.seed_low);
    let (mut records, mut outcomes) = (Vec::new(), String::new());
    for (position, command) in batch.commands.iter().enumerate() {
        let context = Context {
            index,
            time: Timestamp(batch.time_ms),
            seed: seed.of_command(position),
            default_min_isr: batch.default_min_isr,
        };
        let (outcome, changes) = machine.apply(&context, command).unwrap();
        outcomes += &format!("{outcome:?}\n");
        records.extend(changes);
    }
    machine.end_entry(index);
    (records, outcomes)
}

/// What a store would hold.
fn store(map: &mut BTreeMap<Vec<u8>, Vec<u8>>, records: &[Record]) {
    for op in records.iter().flat_map(|record| ops(record).unwrap()) {
        match op {
            Op::Put { key, value } => drop(map.insert(key, value)),
            Op::Delete { key } => drop(map.remove(&key)),
            Op::DeleteRange { from, to } => map.retain(|key, _| *key < from || *key >= to),
        }
    }
}

fn rebuilt(map: &BTreeMap<Vec<u8>, Vec<u8>>) -> State {
    let mut state = State::default();
    for value in map.values() {
        state.replay(&Record::decode(&value[..]).unwrap()).unwrap();
    }
    state
}

fn copied(state: &State) -> State {
    let mut copy = State::default();
    state.records().for_each(|record| copy.replay(&record).unwrap());
    copy
}

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "a.c", "a_c", "bad name", ""]).prop_map(str::to_owned)
}

fn registration() -> impl Strategy<Value = Kind> {
    (-1..4i32, 0..5u64, 0..3u8, any::<bool>(), 0..3u8).prop_map(|(broker_id, incarnation, dir, clean, boot)| {
        let request = RegisterBrokerRequest {
            broker_id,
            incarnation,
            boot_id: boot.to_string(),
            log_dirs: vec![LogDir { dir_id: vec![dir; 16].into(), clean, ..LogDir::default() }],
            endpoints: vec![Endpoint { host: "h".into(), port: 1, ..Endpoint::default() }],
            levels: Some(Levels::ours()),
            ..RegisterBrokerRequest::default()
        };
        Kind::RegisterBroker(RegisterBroker { request: Some(request) })
    })
}

fn topics() -> impl Strategy<Value = Kind> {
    let config = prop::option::of(prop::sample::select(vec![
        ("min.insync.replicas", "2"),
        ("durability", "replicated"),
        ("nonsense", "1"),
    ]));
    let topic = (name(), 0..4i32, 0..4i32, any::<bool>(), config).prop_map(
        |(name, partitions, replication_factor, default_factor, config)| NewTopic {
            name,
            partitions,
            replication_factor,
            default_factor,
            configs: config
                .map(|(key, value)| ConfigEntry { key: key.into(), value: Some(value.into()) })
                .into_iter()
                .collect(),
            ..NewTopic::default()
        },
    );
    prop_oneof![
        3 => prop::collection::vec(topic, 1..3)
            .prop_map(|topics| Kind::CreateTopics(CreateTopics { topics, partitions_max: 3 })),
        1 => name().prop_map(|name| {
            Kind::DeleteTopics(DeleteTopics { topics: vec![TopicRef { name, ..TopicRef::default() }] })
        }),
        1 => (name(), 0..5i32).prop_map(|(name, partitions)| {
            let topics = vec![GrowTopic { name, partitions, assignments: vec![] }];
            Kind::CreatePartitions(CreatePartitions { topics, partitions_max: 4 })
        }),
        1 => (name(), any::<bool>()).prop_map(|(name, replace_all)| {
            let changes = vec![ConfigChange { key: "retention.ms".into(), op: 0, value: Some("7".into()) }];
            Kind::AlterConfigs(AlterConfigs { resources: vec![ConfigResource { kind: 2, name, changes, replace_all }] })
        }),
    ]
}

fn groups() -> impl Strategy<Value = Kind> {
    let id = || prop::sample::select(vec!["g", "h"]).prop_map(str::to_owned);
    let members = prop::collection::vec(prop::sample::select(vec!["m", "n"]), 0..3);
    prop_oneof![
        (id(), 0..4i32, members).prop_map(|(group_id, generation_id, members)| {
            let members =
                members.into_iter().map(|id| GroupMember { member_id: id.into(), ..GroupMember::default() }).collect();
            let group = GroupRecord { group_id, generation_id, members, ..GroupRecord::default() };
            Kind::SaveGeneration(SaveGeneration { group: Some(group) })
        }),
        (id(), 0..4i32).prop_map(|(group_id, generation_id)| {
            let assignments = vec![SyncAssignment { member_id: "m".into(), assignment: "x".into() }];
            Kind::SaveAssignment(SaveAssignment { group_id, generation_id, assignments })
        }),
        (id(), -1..4i32, name(), 0..3i32, any::<i64>()).prop_map(
            |(group_id, generation_id, topic, partition, offset)| {
                let offsets = vec![CommitOffset { topic, partition, offset, ..CommitOffset::default() }];
                Kind::CommitOffsets(GroupCommit {
                    group_id,
                    generation_id,
                    member_id: if generation_id < 0 { String::new() } else { "m".into() },
                    offsets,
                    ..GroupCommit::default()
                })
            }
        ),
        id().prop_map(|group_id| Kind::DeleteGroup(DeleteGroup { group_id })),
        id().prop_map(|group_id| Kind::ExpireOffsets(ExpireOffsets { group_ids: vec![group_id], retention_ms: 20 })),
    ]
}

/// Of whichever partition of the state `topic` falls on; see [`with_current_epochs`].
fn isr() -> impl Strategy<Value = Kind> {
    let isr = prop::collection::vec(1..4i32, 1..4);
    (1..4i32, any::<u8>(), isr, any::<bool>(), 0..8i64).prop_map(|(broker_id, pick, isr, recovered, broker_epoch)| {
        let isr = isr.into_iter().map(|broker_id| IsrMember { broker_id, broker_epoch }).collect();
        let partitions = vec![PartitionIsr { partition: i32::from(pick), isr, recovered, ..PartitionIsr::default() }];
        Kind::AlterIsr(AlterIsrRequest { broker_id, broker_epoch, partitions })
    })
}

/// Of topics, or of whichever partition `topic` falls on; see [`with_current_epochs`].
fn moves() -> impl Strategy<Value = Kind> {
    let replicas = || prop::collection::vec(1..5i32, 0..4);
    let broker_id = || 1..5i32;
    prop_oneof![
        4 => (name(), 0..3i32, replicas(), any::<bool>(), any::<bool>()).prop_map(
            |(topic, partition, replicas, cancel, fixed_replication_factor)| {
                let partitions = vec![Reassignment { topic, partition, replicas, cancel }];
                Kind::AlterReassignments(AlterReassignmentsRequest { partitions, fixed_replication_factor })
            }
        ),
        2 => (any::<u8>(), replicas()).prop_map(|(pick, to)| {
            let steps = vec![PlanStep { partition: i32::from(pick), to, ..PlanStep::default() }];
            Kind::StartPlan(StartPlan { steps })
        }),
        1 => any::<bool>().prop_map(|cancel| Kind::EndPlan(EndPlan { id: 0, cancel })),
        1 => (broker_id(), any::<Option<bool>>(), any::<Option<bool>>()).prop_map(|(broker_id, cordoned, draining)| {
            Kind::MarkBroker(MarkBroker { broker_id, cordoned, draining })
        }),
        1 => broker_id().prop_map(|broker_id| Kind::UnregisterBroker(UnregisterBroker { broker_id })),
    ]
}

/// Tokens, nodes, and what the cluster is told of itself.
fn nodes() -> impl Strategy<Value = Kind> {
    let id = || prop::sample::select(vec!["a", "b"]).prop_map(str::to_owned);
    let hash = |id: &str| bytes::Bytes::from(vec![id.len() as u8 + id.as_bytes()[0]; 32]);
    prop_oneof![
        2 => (id(), 0..5i64).prop_map(move |(id, seconds)| {
            let secret_hash = hash(&id);
            Kind::CreateToken(CreateToken { id, secret_hash, ttl_ms: seconds * 1_000 })
        }),
        1 => id().prop_map(|id| Kind::RevokeToken(RevokeToken { id })),
        3 => (id(), any::<bool>(), any::<bool>()).prop_map(move |(token_id, broker, coordinator)| {
            let secret_hash = hash(&token_id);
            Kind::AdmitNode(AdmitNode { token_id, secret_hash, broker, coordinator })
        }),
        2 => (0..4u64, 0..3u8, 0..2u16).prop_map(|(id, identity, port)| {
            let (identity, address) = (vec![identity; 16].into(), format!("h:{port}"));
            Kind::OfferCoordinator(OfferCoordinator { id, identity, address })
        }),
        1 => (0..4u64).prop_map(|id| Kind::RetireCoordinator(RetireCoordinator { id })),
        1 => (1..6u32, 1..4i32).prop_map(|(level, broker_id)| {
            let brokers = vec![BrokerLevels { broker_id, broker_epoch: 1, levels: Some(Levels::ours()) }];
            // What this program knows; above that it would stop.
            Kind::RaiseLevel(RaiseLevel { level: level.min(features::LEVEL), brokers })
        }),
        1 => prop::sample::select(vec![("coordinators", "3"), ("coordinators", "4"), ("auto.grow.replicas.enable", "false")])
            .prop_map(|(key, value)| {
                let changes = vec![ConfigChange { key: key.into(), op: 0, value: Some(value.into()) }];
                let resource = ConfigResource { kind: 4, changes, ..ConfigResource::default() };
                Kind::AlterConfigs(AlterConfigs { resources: vec![resource] })
            }),
    ]
}

fn kind() -> impl Strategy<Value = Kind> {
    let broker = (1..4i32, 0..200i64);
    prop_oneof![
        2 => registration(),
        2 => broker.clone().prop_map(|(broker_id, broker_epoch)| {
            Kind::UnfenceBroker(UnfenceBroker { broker_id, broker_epoch })
        }),
        1 => broker.clone().prop_map(|(broker_id, broker_epoch)| {
            Kind::FenceBroker(FenceBroker { broker_id, broker_epoch })
        }),
        1 => broker.prop_map(|(broker_id, broker_epoch)| {
            Kind::AllocateProducerIds(AllocateProducerIds { broker_id, broker_epoch, count: 10 })
        }),
        4 => topics(),
        4 => groups(),
        3 => isr(),
        3 => moves(),
        3 => nodes(),
    ]
}

/// Broker epochs are indexes, which a generator cannot know; this makes most of them the current ones.
fn with_current_epochs(state: &State, kind: Kind) -> Kind {
    let current = |id: i32, given: i64| {
        let known = state.broker(thalweg_model::NodeId(id)).map(|broker| broker.epoch);
        known.filter(|_| given % 4 != 0).unwrap_or(given)
    };
    match kind {
        Kind::RegisterBroker(mut command) => {
            if let Some(request) = &mut command.request {
                let given = i64::try_from(request.incarnation).unwrap_or(0);
                request.metadata_index = u64::try_from(current(request.broker_id, given)).unwrap_or(0);
            }
            Kind::RegisterBroker(command)
        }
        Kind::UnfenceBroker(mut command) => {
            command.broker_epoch = current(command.broker_id, command.broker_epoch);
            Kind::UnfenceBroker(command)
        }
        Kind::FenceBroker(mut command) => {
            command.broker_epoch = current(command.broker_id, command.broker_epoch);
            Kind::FenceBroker(command)
        }
        Kind::AllocateProducerIds(mut command) => {
            command.broker_epoch = current(command.broker_id, command.broker_epoch);
            Kind::AllocateProducerIds(command)
        }
        Kind::StartPlan(mut command) => {
            for step in &mut command.steps {
                let all: Vec<_> = state.partitions().collect();
                let pick = usize::try_from(step.partition).unwrap_or(0) % all.len().max(1);
                let Some((topic, index, partition)) = all.get(pick) else { continue };
                step.topic = state.topic_name(*topic).unwrap_or_default().to_owned();
                step.topic_id = topic.0.to_vec().into();
                step.partition = *index;
                step.from = partition.replicas.iter().map(|id| id.0).collect();
            }
            Kind::StartPlan(command)
        }
        Kind::AlterIsr(mut command) => {
            if let Some(wanted) = command.partitions.first_mut() {
                aim(state, wanted, &mut command.broker_id);
                wanted
                    .isr
                    .iter_mut()
                    .for_each(|member| member.broker_epoch = current(member.broker_id, member.broker_epoch));
            }
            command.broker_epoch = current(command.broker_id, command.broker_epoch);
            Kind::AlterIsr(command)
        }
        other => other,
    }
}

/// Points a proposal at a partition that exists, mostly as its leader would.
fn aim(state: &State, wanted: &mut PartitionIsr, sender: &mut i32) {
    let pick = wanted.partition as usize;
    let count = state.partitions().count();
    let Some((topic, index, partition)) = state.partitions().nth(pick % count.max(1)) else { return };
    let record = partition.to_record(&topic.0, index);
    (wanted.topic_id, wanted.partition) = (record.topic_id, index);
    (wanted.leader_epoch, wanted.partition_epoch) =
        (record.leader_epoch, record.partition_epoch - i32::from(pick.is_multiple_of(7)));
    if !pick.is_multiple_of(5) && record.leader >= 0 {
        *sender = record.leader;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Goal: nodes agree whatever their past. Method: one node runs through, one is rebuilt after each entry from what a
    /// store holds, one from a copy of all records; outcomes, states and rolling hashes are equal at every entry.
    #[test]
    fn three_nodes_with_different_pasts_agree(
        entries in prop::collection::vec((prop::collection::vec(kind(), 1..4), any::<(u64, u64)>()), 1..40),
    ) {
        let mut nodes = [Machine::default(), Machine::default(), Machine::default()];
        let mut held = BTreeMap::new();
        for (i, (kinds, (seed_high, seed_low))) in entries.into_iter().enumerate() {
            let index = i as u64 + 1;
            let mut commands = Vec::new();
            if i == 0 {
                commands.push(command(features::first_command([5; 16])));
            }
            commands.extend(kinds.into_iter().map(|kind| command(with_current_epochs(nodes[0].state(), kind))));
            let batch = CommandBatch { time_ms: i as i64, seed_high, seed_low, default_min_isr: 1, commands };
            let (records, outcomes) = apply(&mut nodes[0], index, &batch);
            for node in &mut nodes[1..] {
                prop_assert_eq!(&apply(node, index, &batch), &(records.clone(), outcomes.clone()));
            }
            store(&mut held, &records);
            let progress = nodes[0].progress();
            nodes[1] = Machine::restored(rebuilt(&held), nodes[1].progress());
            nodes[2] = Machine::restored(copied(nodes[2].state()), nodes[2].progress());
            for node in &nodes[1..] {
                prop_assert_eq!(node.state(), nodes[0].state());
                prop_assert_eq!(node.progress(), progress);
            }
        }
    }
}

/// A recording: entries as they stood in a log, each with its length before it.
fn entries(mut bytes: &[u8]) -> Vec<CommandBatch> {
    let mut batches = Vec::new();
    while !bytes.is_empty() {
        batches.push(CommandBatch::decode_length_delimited(&mut bytes).unwrap());
    }
    batches
}

/// Outcomes, records and final state of a recording, in one number.
fn digest(batches: &[CommandBatch]) -> u64 {
    let mut machine = Machine::default();
    let mut digest = StateHash::default();
    for (i, batch) in batches.iter().enumerate() {
        let (records, _) = apply(&mut machine, i as u64 + 1, batch);
        records.iter().for_each(|record| digest.feed(&record.encode_to_vec()));
    }
    machine.state().records().for_each(|record| digest.feed(&record.encode_to_vec()));
    digest.feed(&machine.progress().hash.0.to_be_bytes());
    digest.0
}

/// Goal: a later version applies an old log as it was applied then (REPLICATION R3, R4). Method: a recorded log and the
/// digest it gave. If this fails, nodes of two versions would drift apart: put the change behind a feature level.
#[test]
fn recorded_commands_still_give_the_recorded_state() {
    let recordings: [(&[u8], &str); 3] = [
        (include_bytes!("golden/level-1.bin"), include_str!("golden/level-1.digest")),
        (include_bytes!("golden/level-4.bin"), include_str!("golden/level-4.digest")),
        (include_bytes!("golden/level-5.bin"), include_str!("golden/level-5.digest")),
    ];
    for (bytes, recorded) in recordings {
        let batches = entries(bytes);
        assert!(batches.iter().map(|batch| batch.commands.len()).sum::<usize>() > 500);
        assert_eq!(format!("{:016x}", digest(&batches)), recorded.trim());
    }
}

/// Makes a recording that begins a level below the present one and is raised to it on its way. Never run again for a level
/// that was released.
#[test]
#[ignore = "writes tests/golden"]
fn record_commands() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let mut machine = Machine::default();
    let mut bytes = Vec::new();
    let mut batches = Vec::new();
    for i in 0..600u64 {
        let kind = kind().new_tree(&mut runner).unwrap().current();
        let kind = match i {
            0 => features::founding([5; 16], features::LEVEL - 1),
            RAISED_AT => raise(machine.state()),
            // Not by chance before.
            _ if matches!(kind, Kind::RaiseLevel(_)) => Kind::DeleteGroup(DeleteGroup { group_id: "g".into() }),
            _ => with_current_epochs(machine.state(), kind),
        };
        let batch = CommandBatch {
            time_ms: i as i64 * 300,
            seed_high: i.wrapping_mul(0x9E37_79B9_7F4A_7C15),
            seed_low: !i,
            default_min_isr: 1,
            commands: vec![command(kind)],
        };
        apply(&mut machine, i + 1, &batch);
        batch.encode_length_delimited(&mut bytes).unwrap();
        batches.push(batch);
    }
    let dir = std::path::Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("tests/golden");
    assert_eq!(machine.state().feature_level(features::VERSION), features::LEVEL);
    std::fs::write(dir.join(format!("level-{}.bin", features::LEVEL)), bytes).unwrap();
    std::fs::write(dir.join(format!("level-{}.digest", features::LEVEL)), format!("{:016x}\n", digest(&batches)))
        .unwrap();
}

/// To the present level, as if every registered broker had said that it can do it.
fn raise(state: &State) -> Kind {
    let brokers = state.brokers().map(|(id, broker)| BrokerLevels {
        broker_id: id.0,
        broker_epoch: broker.epoch,
        levels: Some(Levels::ours()),
    });
    Kind::RaiseLevel(RaiseLevel { level: features::LEVEL, brokers: brokers.collect() })
}

const RAISED_AT: u64 = 150;
