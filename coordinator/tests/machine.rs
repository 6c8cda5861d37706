//! The replicated machine: commands in, outcome and records out.

use thalweg_coordinator::registry::context::{Context, Seed};
use thalweg_coordinator::registry::state::State;
use thalweg_coordinator::registry::{ApplyError, Machine, Outcome, features};
use thalweg_coordinator::session::command;
use thalweg_model::{NodeId, Timestamp};
use thalweg_proto::v1::command::Kind;
use thalweg_proto::v1::config_change::Op;
use thalweg_proto::v1::record::Kind as Record;
use thalweg_proto::v1::*;

struct Cluster {
    machine: Machine,
    index: u64,
    time_ms: i64,
}

impl Cluster {
    /// With `brokers` alive under ids from 1.
    fn new(brokers: i32) -> Cluster {
        Cluster::at_level(features::LEVEL, brokers)
    }

    fn at_level(level: u32, brokers: i32) -> Cluster {
        let mut cluster = Cluster { machine: Machine::default(), index: 0, time_ms: 1_000 };
        let features = vec![FeatureRecord { name: features::VERSION.to_owned(), level }];
        cluster.apply(Kind::InitCluster(InitCluster { cluster_id: vec![3; 16].into(), features }));
        for id in 1..=brokers {
            let (outcome, _) = cluster.apply(register(registration(id, 1)));
            cluster.unfence(&registered(outcome));
        }
        cluster
    }

    fn apply(&mut self, kind: Kind) -> (Outcome, Vec<Record>) {
        self.index += 1;
        let context = Context {
            index: self.index,
            time: Timestamp(self.time_ms),
            seed: Seed::new(1, self.index),
            default_min_isr: 1,
        };
        let (outcome, records) = self.machine.apply(&context, &command(kind)).unwrap();
        self.machine.end_entry(self.index);
        (outcome, records.into_iter().filter_map(|record| record.kind).collect())
    }

    fn state(&self) -> &State {
        self.machine.state()
    }

    fn unfence(&mut self, broker: &RegisterBrokerResponse) {
        let RegisterBrokerResponse { broker_id, broker_epoch, .. } = *broker;
        self.apply(Kind::UnfenceBroker(UnfenceBroker { broker_id, broker_epoch }));
    }

    fn fence(&mut self, id: i32) {
        let broker_epoch = self.state().broker(NodeId(id)).unwrap().epoch;
        self.apply(Kind::FenceBroker(FenceBroker { broker_id: id, broker_epoch }));
    }

    fn create(&mut self, topics: Vec<NewTopic>) -> Vec<(i32, String)> {
        match self.apply(Kind::CreateTopics(CreateTopics { topics, partitions_max: 10 })).0 {
            Outcome::CreatedTopics(topics) => topics.into_iter().map(|topic| told(topic.error)).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn create_one(&mut self, topic: NewTopic) -> (i32, String) {
        self.create(vec![topic]).remove(0)
    }

    fn alter(&mut self, resources: Vec<ConfigResource>) -> Vec<(i32, String)> {
        match self.apply(Kind::AlterConfigs(AlterConfigs { resources })).0 {
            Outcome::AlteredConfigs(altered) => altered.into_iter().map(|one| told(one.error)).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn config(&self, topic: &str, key: &str) -> Option<&str> {
        let config = self.state().config(config_record::Resource::Topic, topic)?;
        config.get(key).map(String::as_str)
    }

    fn partition(&self, topic: &str, index: i32) -> PartitionRecord {
        let id = self.state().topic(topic).unwrap().id;
        self.state().partition(id, index).unwrap().to_record(&[], index)
    }

    fn commit(&mut self, group_id: &str, offset: i64) {
        let offsets = vec![CommitOffset { topic: "t".into(), offset, leader_epoch: -1, ..CommitOffset::default() }];
        let commit = GroupCommit { group_id: group_id.into(), generation_id: -1, offsets, ..GroupCommit::default() };
        let (outcome, _) = self.apply(Kind::CommitOffsets(commit));
        assert_eq!(outcome, Outcome::Committed(GroupCommitResult { errors: vec![KafkaError::default()] }));
    }

    fn expire(&mut self, group_ids: &[&str], retention_ms: i64) {
        let group_ids = group_ids.iter().map(|id| (*id).to_owned()).collect();
        self.apply(Kind::ExpireOffsets(ExpireOffsets { group_ids, retention_ms }));
    }
}

fn told(error: Option<KafkaError>) -> (i32, String) {
    error.map(|error| (error.code, error.message)).unwrap_or_default()
}

fn register(request: RegisterBrokerRequest) -> Kind {
    Kind::RegisterBroker(RegisterBroker { request: Some(request) })
}

fn registration(id: i32, incarnation: u64) -> RegisterBrokerRequest {
    RegisterBrokerRequest {
        broker_id: id,
        incarnation,
        boot_id: "boot".into(),
        log_dirs: vec![LogDir { dir_id: vec![id as u8; 16].into(), ..LogDir::default() }],
        endpoints: vec![Endpoint { host: "h".into(), port: 9092, ..Endpoint::default() }],
        levels: Some(Levels::ours()),
        ..RegisterBrokerRequest::default()
    }
}

fn registered(outcome: Outcome) -> RegisterBrokerResponse {
    match outcome {
        Outcome::Registered(answer) => answer,
        other => panic!("{other:?}"),
    }
}

fn topic(name: &str, partitions: i32, replication_factor: i32) -> NewTopic {
    NewTopic { name: name.into(), partitions, replication_factor, ..NewTopic::default() }
}

fn configured(name: &str, factor: i32, configs: &[(&str, &str)]) -> NewTopic {
    let configs = configs.iter().map(|(key, value)| ConfigEntry { key: (*key).into(), value: Some((*value).into()) });
    NewTopic { configs: configs.collect(), ..topic(name, 1, factor) }
}

fn assigned(name: &str, replicas: &[&[i32]]) -> NewTopic {
    let assignments = replicas
        .iter()
        .enumerate()
        .map(|(partition, replicas)| ReplicaAssignment { partition: partition as i32, replicas: replicas.to_vec() });
    NewTopic { assignments: assignments.collect(), ..topic(name, -1, -1) }
}

fn change(key: &str, op: Op, value: Option<&str>) -> ConfigChange {
    ConfigChange { key: key.into(), op: op as i32, value: value.map(str::to_owned) }
}

fn on_topic(name: &str, changes: Vec<ConfigChange>) -> ConfigResource {
    ConfigResource { kind: 2, name: name.into(), changes, replace_all: false }
}

#[test]
fn creating_a_topic_emits_the_topic_its_configuration_and_its_partitions() {
    let mut cluster = Cluster::new(1);
    let create = CreateTopics {
        topics: vec![NewTopic { partitions: 2, ..configured("t", 1, &[("retention.ms", "1000")]) }],
        partitions_max: 10,
    };
    let (outcome, records) = cluster.apply(Kind::CreateTopics(create));
    let Outcome::CreatedTopics(created) = outcome else { panic!() };
    assert_eq!((created[0].partitions, created[0].replication_factor), (2, 1));
    let id = &created[0].topic_id;
    assert!(id.len() == 16 && id.iter().any(|byte| *byte != 0));
    let kinds: Vec<&str> = records
        .iter()
        .map(|record| match record {
            Record::Topic(topic) => {
                assert_eq!((&topic.topic_id, topic.created_at_ms), (id, 1_000));
                "topic"
            }
            Record::Config(config) => {
                assert_eq!((config.key.as_str(), config.value.as_deref()), ("retention.ms", Some("1000")));
                "config"
            }
            Record::Partition(partition) => {
                assert_eq!((&partition.replicas, &partition.isr, partition.leader), (&vec![1], &vec![1], 1));
                "partition"
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(kinds, ["topic", "config", "partition", "partition"]);
}

/// Case 77 and its neighbours: each cause has its code, and the message says the way out.
#[test]
fn each_reason_not_to_create_a_topic_has_its_own_code() {
    let mut cluster = Cluster::new(2);
    assert_eq!(cluster.create_one(topic("a.b", 1, 1)).0, 0);
    let cases: Vec<(NewTopic, i32, &str)> = vec![
        (topic("a.b", 1, 1), 36, "exists already"),
        (topic("a_b", 1, 1), 17, "'a.b'"),
        (topic("../x", 1, 1), 17, "'/'"),
        (topic("", 1, 1), 17, "empty"),
        (topic("x", 0, 1), 37, "at least 1"),
        (topic("x", 11, 1), 37, "at most 10"),
        (topic("x", 1, 0), 38, "at least 1"),
        (topic("x", 1, 3), 38, "there are 2"),
        (configured("x", 2, &[("min.insync.replicas", "3")]), 40, "2 or less"),
        (
            NewTopic { configs: configured("x", 1, &[("min.insync.replicas", "2")]).configs, ..assigned("x", &[&[1]]) },
            40,
            "1 or less",
        ),
        (configured("x", 1, &[("retention.m", "1")]), 40, "retention.ms"),
        (configured("x", 1, &[("segment.bytes", "1")]), 40, "segment.bytes"),
        (configured("x", 1, &[("retention.ms", "1"), ("retention.ms", "2")]), 40, "more than once"),
        (NewTopic { partitions: 2, ..assigned("x", &[&[1]]) }, 42, "not both"),
        (assigned("x", &[&[]]), 39, "needs replicas"),
        (assigned("x", &[&[1, 1]]), 39, "each broker once"),
        (assigned("x", &[&[7]]), 39, "broker 7"),
        (assigned("x", &[&[1], &[1, 2]]), 39, "others have 1"),
    ];
    for (topic, code, part) in cases {
        let (told, message) = cluster.create_one(topic.clone());
        assert_eq!(told, code, "{topic:?}: {message}");
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
    let gap =
        NewTopic { assignments: vec![ReplicaAssignment { partition: 1, replicas: vec![1] }], ..topic("x", -1, -1) };
    assert_eq!(cluster.create_one(gap).0, 39);
    let twice = cluster.create(vec![topic("y", 1, 1), topic("z", 1, 1), topic("y", 1, 1)]);
    assert_eq!(twice.iter().map(|(code, _)| *code).collect::<Vec<_>>(), [42, 0, 42]);
    assert!(cluster.state().topic("x").is_none() && cluster.state().topic("y").is_none());
}

#[test]
fn without_a_live_broker_no_topic_is_created() {
    let mut cluster = Cluster::new(1);
    cluster.fence(1);
    let (code, message) = cluster.create_one(topic("x", 1, 1));
    assert_eq!(code, 38);
    assert!(message.contains("none of the 1 brokers is alive"), "{message}");
}

/// A rolling restart does not keep topics from being created.
#[test]
fn a_broker_that_is_away_gets_replicas_only_where_the_others_do_not_suffice() {
    let mut cluster = Cluster::new(3);
    cluster.fence(2);
    assert_eq!(cluster.create(vec![topic("two", 6, 2), topic("three", 6, 3)]), vec![(0, String::new()); 2]);
    for index in 0..6 {
        let two = cluster.partition("two", index);
        assert!(!two.replicas.contains(&2), "{two:?}");
        let three = cluster.partition("three", index);
        assert_eq!((three.replicas.len(), three.replicas[2], &three.isr[..]), (3, 2, &[1, 3][..]));
        assert_eq!(three.leader, three.replicas[0]);
    }
    let leaders = |id| (0..6).filter(|index| cluster.partition("three", *index).leader == id).count();
    assert_eq!((leaders(1), leaders(3)), (3, 3));
}

#[test]
fn chosen_replicas_are_taken_in_order_and_the_dead_are_not_in_sync() {
    let mut cluster = Cluster::new(3);
    cluster.fence(2);
    assert_eq!(cluster.create_one(assigned("t", &[&[2, 3], &[3, 1]])).0, 0);
    let first = cluster.partition("t", 0);
    assert_eq!((first.replicas, first.isr, first.leader), (vec![2, 3], vec![3], 3));
    assert_eq!(cluster.partition("t", 1).leader, 3);
    assert_eq!(cluster.create_one(assigned("u", &[&[2]])).0, 39);
}

/// Goal: a disk that fails before anything could be committed costs nothing but itself. Method: a topic is made while one of its
/// replicas lives, which then comes back empty. Levels below 4 derive the records that they always did.
#[test]
fn a_topic_that_is_made_while_too_few_live_is_led_by_whoever_comes() {
    for (level, elr, leader) in [(3, vec![], -1), (4, vec![1, 3], 1)] {
        let mut cluster = Cluster::at_level(level, 3);
        cluster.fence(1);
        cluster.fence(3);
        let configs = configured("t", 3, &[("min.insync.replicas", "2")]).configs;
        let wanted = NewTopic { configs, ..assigned("t", &[&[1, 2, 3]]) };
        assert_eq!(cluster.create_one(wanted).0, 0);
        let made = cluster.partition("t", 0);
        assert_eq!((made.isr, made.elr, made.leader), (vec![2], elr, 2), "level {level}");
        let log_dirs = vec![LogDir { dir_id: vec![9; 16].into(), ..LogDir::default() }];
        cluster.apply(register(RegisterBrokerRequest { log_dirs, ..registration(2, 2) }));
        let back = registered(cluster.apply(register(registration(1, 2))).0);
        cluster.unfence(&back);
        let left = cluster.partition("t", 0);
        assert_eq!((left.leader, left.lost), (leader, vec![2]), "level {level}");
    }
}

#[test]
fn deleting_a_topic_takes_its_partitions_configuration_and_offsets_along() {
    let mut cluster = Cluster::new(1);
    cluster.create_one(configured("t", 1, &[("retention.ms", "5")]));
    cluster.commit("g", 4);
    let before = cluster.state().topic("t").unwrap().id;
    let delete = DeleteTopics { topics: vec![TopicRef { name: "t".into(), ..TopicRef::default() }] };
    let (_, records) = cluster.apply(Kind::DeleteTopics(delete.clone()));
    assert!(matches!(
        &records[..],
        [Record::OffsetRemoved(_), Record::Config(ConfigRecord { value: None, .. }), Record::TopicRemoved(_)]
    ));
    assert!(cluster.state().partitions().next().is_none());
    assert!(cluster.state().offset("g", "t", 0).is_none() && cluster.config("t", "retention.ms").is_none());
    assert!(cluster.state().group("g").is_some());

    let (outcome, _) = cluster.apply(Kind::DeleteTopics(delete));
    assert!(matches!(outcome, Outcome::DeletedTopics(topics) if told(topics[0].error.clone()).0 == 3));
    cluster.create_one(topic("t", 1, 1));
    assert_ne!(cluster.state().topic("t").unwrap().id, before, "a new life, a new id");
}

#[test]
fn topics_are_deleted_by_id_and_each_once() {
    let mut cluster = Cluster::new(1);
    cluster.create_one(topic("t", 1, 1));
    let id = bytes::Bytes::copy_from_slice(&cluster.state().topic("t").unwrap().id.0);
    let by_id = TopicRef { topic_id: id.clone(), ..TopicRef::default() };
    let topics = vec![
        TopicRef { topic_id: vec![1; 16].into(), ..TopicRef::default() },
        TopicRef { topic_id: vec![1; 3].into(), ..TopicRef::default() },
        TopicRef { name: "t".into(), topic_id: id },
        TopicRef::default(),
        by_id.clone(),
        by_id,
    ];
    let (Outcome::DeletedTopics(deleted), _) = cluster.apply(Kind::DeleteTopics(DeleteTopics { topics })) else {
        panic!()
    };
    let codes: Vec<i32> = deleted.iter().map(|topic| told(topic.error.clone()).0).collect();
    assert_eq!(codes, [100, 42, 42, 42, 0, 42]);
    assert_eq!(deleted[4].name, "t");
}

#[test]
fn partitions_are_only_added() {
    let mut cluster = Cluster::new(2);
    cluster.create_one(topic("t", 2, 2));
    let mut grow = |name: &str, partitions: i32, assignments: Vec<ReplicaAssignment>| {
        let topics = vec![GrowTopic { name: name.into(), partitions, assignments }];
        match cluster.apply(Kind::CreatePartitions(CreatePartitions { topics, partitions_max: 10 })).0 {
            Outcome::GrownTopics(grown) => told(grown[0].error.clone()).0,
            other => panic!("{other:?}"),
        }
    };
    let one = |partition| ReplicaAssignment { partition, replicas: vec![2, 1] };
    assert_eq!(grow("none", 3, vec![]), 3);
    assert_eq!((grow("t", 2, vec![]), grow("t", 1, vec![]), grow("t", 11, vec![])), (37, 37, 37));
    assert_eq!((grow("t", 4, vec![one(2)]), grow("t", 3, vec![one(0)])), (39, 39));
    assert_eq!(grow("t", 3, vec![one(2)]), 0);
    assert_eq!(grow("t", 4, vec![]), 0);
    assert_eq!(cluster.partition("t", 2).replicas, [2, 1]);
    assert_eq!(cluster.partition("t", 3).replicas.len(), 2);
}

/// Case 83.
#[test]
fn configurations_change_as_a_whole_or_not_at_all() {
    let mut cluster = Cluster::new(1);
    cluster.create_one(configured("t", 1, &[("retention.ms", "1"), ("segment.bytes", "2000000")]));
    let set = change("retention.ms", Op::Set, Some("2"));
    let bad = change("segment.bytes", Op::Set, Some("1"));
    assert_eq!(cluster.alter(vec![on_topic("t", vec![set.clone(), bad])])[0].0, 40);
    assert_eq!(cluster.config("t", "retention.ms"), Some("1"));
    assert_eq!(cluster.alter(vec![on_topic("t", vec![set.clone()])])[0].0, 0);
    assert_eq!(
        (cluster.config("t", "retention.ms"), cluster.config("t", "segment.bytes")),
        (Some("2"), Some("2000000"))
    );
    let replace = ConfigResource { replace_all: true, ..on_topic("t", vec![change("flush.ms", Op::Set, Some("9"))]) };
    assert_eq!(cluster.alter(vec![replace])[0].0, 0);
    assert_eq!((cluster.config("t", "retention.ms"), cluster.config("t", "flush.ms")), (None, Some("9")));

    let append = change("cleanup.policy", Op::Append, Some("compact"));
    assert_eq!(cluster.alter(vec![on_topic("t", vec![append])])[0].0, 0);
    assert_eq!(cluster.config("t", "cleanup.policy"), Some("delete,compact"));
    let subtract = change("cleanup.policy", Op::Subtract, Some("delete"));
    assert_eq!(cluster.alter(vec![on_topic("t", vec![subtract])])[0].0, 0);
    assert_eq!(cluster.config("t", "cleanup.policy"), Some("compact"));
    let delete = change("cleanup.policy", Op::Delete, None);
    assert_eq!(cluster.alter(vec![on_topic("t", vec![delete])])[0].0, 0);
    assert_eq!(cluster.config("t", "cleanup.policy"), None);
}

#[test]
fn what_cannot_be_configured_is_refused_by_name() {
    let mut cluster = Cluster::new(1);
    cluster.create_one(topic("t", 1, 1));
    let set = |key: &str| vec![change(key, Op::Set, Some("1"))];
    let twice = vec![change("flush.ms", Op::Set, Some("1")), change("flush.ms", Op::Set, Some("2"))];
    let cases = [
        (on_topic("none", set("flush.ms")), 3),
        (on_topic("t", set("flush.m")), 40),
        (on_topic("t", vec![change("min.insync.replicas", Op::Set, Some("2"))]), 40),
        (on_topic("t", vec![change("flush.m", Op::Delete, None)]), 40),
        (on_topic("t", vec![change("flush.ms", Op::Append, Some("1"))]), 40),
        (on_topic("t", vec![change("flush.ms", Op::Set, None)]), 42),
        (on_topic("t", twice), 42),
        (ConfigResource { kind: 4, ..on_topic("one", set("x")) }, 42),
        (ConfigResource { kind: 8, ..on_topic("1", set("x")) }, 42),
        (ConfigResource { kind: 4, ..on_topic("", set("log.retention.ms")) }, 0),
    ];
    for (resource, code) in cases {
        let (told, message) = cluster.alter(vec![resource.clone()]).remove(0);
        assert_eq!(told, code, "{resource:?}: {message}");
    }
    let resource = on_topic("t", set("flush.ms"));
    assert_eq!(
        cluster.alter(vec![resource.clone(), resource]).iter().map(|(code, _)| *code).collect::<Vec<_>>(),
        [42, 42]
    );
}

/// REPLICATION B2, B3: what a registration says about the disks decides who stays eligible.
#[test]
fn a_registration_settles_what_the_disks_may_have_lost() {
    let with_dir =
        |request: RegisterBrokerRequest, dir: LogDir| RegisterBrokerRequest { log_dirs: vec![dir], ..request };
    let same = |clean_broker_epoch: i64, clean: bool, io_error: bool| LogDir {
        dir_id: vec![1; 16].into(),
        clean,
        clean_broker_epoch,
        io_error,
        last_broker_epoch: None,
    };
    let other = LogDir { dir_id: vec![77; 16].into(), ..LogDir::default() };
    let rebooted = RegisterBrokerRequest { boot_id: "other".into(), ..registration(1, 2) };
    let epoch = Cluster::new(2).state().broker(NodeId(1)).unwrap().epoch;
    // (registration, flushed topic keeps it, replicated topic keeps it)
    let cases = [
        (with_dir(registration(1, 2), same(0, false, false)), true, true),
        (with_dir(rebooted.clone(), same(epoch, true, false)), true, true),
        (with_dir(rebooted.clone(), same(epoch, false, false)), true, false),
        (with_dir(rebooted, same(epoch - 1, true, false)), true, false),
        (with_dir(registration(1, 2), same(epoch, true, true)), true, false),
        (RegisterBrokerRequest { metadata_index: epoch as u64, ..with_dir(registration(1, 2), other) }, false, false),
    ];
    for (request, flushed, replicated) in cases {
        let mut cluster = Cluster::new(2);
        let settings = [("min.insync.replicas", "2")];
        cluster.create_one(configured("flushed", 2, &settings));
        cluster.create_one(configured("replicated", 2, &[settings[0], ("durability", "replicated")]));
        let (outcome, _) = cluster.apply(register(request.clone()));
        assert_eq!(told(registered(outcome).error).0, 0);
        for (topic, kept) in [("flushed", flushed), ("replicated", replicated)] {
            let partition = cluster.partition(topic, 0);
            assert_eq!(partition.isr, [2], "{request:?}");
            assert_eq!((partition.elr == [1], partition.lost == [1]), (kept, !kept), "{topic}: {request:?}");
        }
    }
}

/// Goal: a copy of a directory does not pass for it, nor do older registries pass for the present ones (REPLICATION B2). Method:
/// what a registration knows of the past, against what is stored.
#[test]
fn copies_of_directories_and_older_registries_are_told_apart() {
    let of = |id: i32, incarnation: u64, process: u8, last: Option<i64>| {
        let mut request = registration(id, incarnation);
        request.process_id = vec![process; 16].into();
        request.log_dirs[0].last_broker_epoch = last;
        request
    };
    let mut cluster = Cluster::new(2);
    cluster.create_one(configured("t", 2, &[("min.insync.replicas", "2")]));
    let mut register = |request: RegisterBrokerRequest| {
        let (outcome, _) = cluster.apply(register(request));
        let answer = registered(outcome);
        let lost = cluster.partition("t", 0).lost.contains(&1);
        (told(answer.error).0, answer.broker_epoch, lost)
    };
    let (code, first, lost) = register(of(1, 2, 1, None));
    assert_eq!((code, lost), (0, false));
    assert_eq!(register(of(1, 2, 1, None)).1, first, "the same process");
    assert_eq!(register(of(1, 2, 2, None)).0, 119, "a copy that counts as many lives");
    let (_, second, lost) = register(of(1, 3, 3, Some(first)));
    assert!(second > first && !lost);
    let (code, third, lost) = register(of(1, 4, 4, Some(first)));
    assert_eq!((code, lost), (0, false), "the life between was never let in");
    assert_eq!(register(of(1, 5, 4, Some(1_000_000))).0, 119, "it knows more than these registries");
    let older = RegisterBrokerRequest { metadata_index: 1_000_000, ..of(1, 5, 4, Some(third)) };
    assert_eq!(register(older).0, 119);
    assert_eq!(register(of(9, 1, 5, Some(1))).0, 119, "it was removed");
    cluster.apply(Kind::UnfenceBroker(UnfenceBroker { broker_id: 1, broker_epoch: third }));
    let (outcome, _) = cluster.apply(Kind::RegisterBroker(RegisterBroker { request: Some(of(1, 6, 5, Some(second))) }));
    assert_eq!(told(registered(outcome).error).0, 0);
    assert_eq!(cluster.partition("t", 0).lost, [1], "somebody else served as this broker since");
}

#[test]
fn a_sole_replica_on_a_lossy_disk_leads_again_but_not_on_a_wiped_one() {
    let lossy = RegisterBrokerRequest { boot_id: "other".into(), ..registration(1, 2) };
    let wiped = RegisterBrokerRequest {
        log_dirs: vec![LogDir { dir_id: vec![77; 16].into(), ..LogDir::default() }],
        ..registration(1, 2)
    };
    for (request, leader) in [(lossy, 1), (wiped, -1)] {
        let mut cluster = Cluster::new(1);
        let metadata_index = cluster.state().broker(NodeId(1)).unwrap().epoch as u64;
        let request = RegisterBrokerRequest { metadata_index, ..request };
        cluster.create_one(configured("t", 1, &[("durability", "replicated")]));
        let (outcome, _) = cluster.apply(register(request));
        cluster.unfence(&registered(outcome));
        assert_eq!(cluster.partition("t", 0).leader, leader);
    }
}

#[test]
fn registrations_are_idempotent_monotone_and_bound_to_the_cluster() {
    let mut cluster = Cluster::new(1);
    let first = cluster.state().broker(NodeId(1)).unwrap().epoch;
    let mut register = |request: RegisterBrokerRequest| registered(cluster.apply(register(request)).0);
    let cluster_id = register(registration(1, 1)).cluster_id;
    assert_eq!(cluster_id.len(), 22);
    assert_eq!(register(registration(1, 1)).broker_epoch, first);
    assert_eq!(told(register(registration(1, 0)).error).0, 119);
    assert!(register(registration(1, 5)).broker_epoch > first);
    let foreign = RegisterBrokerRequest { cluster_id: "AAAAAAAAAAAAAAAAAAAAAA".into(), ..registration(1, 6) };
    assert_eq!(told(register(foreign).error).0, 104);
    let own = RegisterBrokerRequest { cluster_id, ..registration(1, 6) };
    assert_eq!(told(register(own).error).0, 0);
    let silent = RegisterBrokerRequest { endpoints: vec![], ..registration(1, 7) };
    assert_eq!(told(register(silent).error).0, 119);
    let diskless = RegisterBrokerRequest { log_dirs: vec![], ..registration(1, 7) };
    assert_eq!(told(register(diskless).error).0, 119);

    let unnamed = RegisterBrokerRequest { broker_id: -1, ..registration(9, 1) };
    let given = register(unnamed.clone()).broker_id;
    assert_eq!((given, register(unnamed).broker_id), (2, 2), "asked again by the same storage");
}

/// Goal: a broker whose disk was replaced comes back, and does not pass for one that has its records. Method: the new
/// directories have counted no life, as many as the coordinator knows, or fewer.
#[test]
fn a_replaced_disk_counts_its_lives_anew_and_is_taken_for_empty() {
    for known in [1, 5] {
        let mut cluster = Cluster::new(3);
        let first = registered(cluster.apply(register(registration(1, known))).0);
        cluster.unfence(&first);
        cluster.create_one(configured("t", 3, &[("min.insync.replicas", "3")]));
        let log_dirs = vec![LogDir { dir_id: vec![77; 16].into(), ..LogDir::default() }];
        let metadata_index = first.broker_epoch as u64;
        let replaced = RegisterBrokerRequest { log_dirs, metadata_index, ..registration(1, 1) };
        let answer = registered(cluster.apply(register(replaced.clone())).0);
        assert!(answer.broker_epoch > first.broker_epoch, "{answer:?}");
        let partition = cluster.partition("t", 0);
        assert_eq!((partition.isr, partition.elr, partition.lost), (vec![2, 3], vec![], vec![1]));
        let again = registered(cluster.apply(register(replaced)).0);
        assert_eq!(again.broker_epoch, answer.broker_epoch, "asked again by the same storage");
    }
}

/// Goal: a call that a disk made before it was replaced takes nobody's place. Method: a new disk is told whose place it takes, and
/// asks again; then the old disk's calls come once more. Level 4 takes whoever comes.
#[test]
fn a_late_call_of_a_disk_that_was_replaced_changes_nothing() {
    for level in [4, 5] {
        let mut cluster = Cluster::at_level(level, 2);
        cluster.create_one(configured("t", 2, &[("min.insync.replicas", "2")]));
        let epoch = cluster.state().broker(NodeId(1)).unwrap().epoch;
        let log_dirs = vec![LogDir { dir_id: vec![77; 16].into(), ..LogDir::default() }];
        let fresh = RegisterBrokerRequest { log_dirs, ..registration(1, 1) };
        let answer = registered(cluster.apply(register(fresh.clone())).0);
        if level == 4 {
            assert_eq!(told(answer.error).0, 0);
            continue;
        }
        assert_eq!((answer.broker_id, answer.index), (-1, epoch as u64));
        assert_eq!(told(answer.error).0, 77);
        assert!(cluster.partition("t", 0).lost.is_empty());
        let aware = RegisterBrokerRequest { metadata_index: answer.index, ..fresh };
        let taken = registered(cluster.apply(register(aware.clone())).0);
        assert_eq!(told(taken.error.clone()).0, 0);
        assert_eq!(cluster.partition("t", 0).lost, [1]);
        let before = cluster.state().clone();
        let known_then = RegisterBrokerRequest { metadata_index: epoch as u64, ..registration(1, 1) };
        for late in [registration(1, 1), known_then, RegisterBrokerRequest { incarnation: 9, ..registration(1, 1) }] {
            let answer = registered(cluster.apply(register(late)).0);
            assert_eq!((told(answer.error).0, answer.index), (77, taken.broker_epoch as u64));
        }
        assert_eq!(*cluster.state(), before);
        assert_eq!(registered(cluster.apply(register(aware)).0).broker_epoch, taken.broker_epoch);
    }
}

#[test]
fn two_lives_in_one_entry_get_two_epochs() {
    let mut cluster = Cluster::new(1);
    let context = Context { index: 50, time: Timestamp(0), seed: Seed::new(0, 0), default_min_isr: 1 };
    let mut epoch = |incarnation| {
        let command = command(register(registration(1, incarnation)));
        registered(cluster.machine.apply(&context, &command).unwrap().0).broker_epoch
    };
    assert_eq!((epoch(2), epoch(3)), (50, 51));
}

#[test]
fn generations_follow_each_other() {
    let mut cluster = Cluster::new(1);
    let save = |generation_id: i32, members: &[&str]| {
        let members =
            members.iter().map(|id| GroupMember { member_id: (*id).into(), ..GroupMember::default() }).collect();
        let group = GroupRecord {
            group_id: "g".into(),
            protocol_type: "consumer".into(),
            generation_id,
            members,
            ..GroupRecord::default()
        };
        Kind::SaveGeneration(SaveGeneration { group: Some(group) })
    };
    assert_eq!(cluster.apply(save(1, &["b", "a"])).0, Outcome::Done);
    for wrong in [0, 1, 3] {
        let (outcome, records) = cluster.apply(save(wrong, &["a"]));
        assert!(matches!(outcome, Outcome::Refused(error) if error.code == 22) && records.is_empty());
    }
    let late = SaveAssignment { group_id: "g".into(), generation_id: 2, assignments: vec![] };
    assert!(matches!(cluster.apply(Kind::SaveAssignment(late)).0, Outcome::Refused(error) if error.code == 22));
    cluster.time_ms = 5_000;
    assert_eq!(cluster.apply(save(2, &[])).0, Outcome::Done);
    assert_eq!(cluster.state().group("g").unwrap().changed_at_ms, 5_000);
}

#[test]
fn what_empty_groups_keep_expires_by_the_leaders_time() {
    let mut cluster = Cluster::new(1);
    cluster.create_one(topic("t", 1, 1));
    cluster.commit("old", 1);
    cluster.time_ms += 500;
    cluster.commit("young", 2);
    cluster.time_ms += 499;
    cluster.expire(&["old", "young", "none"], 1_000);
    assert!(cluster.state().offset("old", "t", 0).is_some());
    cluster.time_ms += 1;
    cluster.expire(&["old", "young"], 1_000);
    assert!(cluster.state().offset("old", "t", 0).is_none() && cluster.state().group("old").is_none());
    assert!(cluster.state().offset("young", "t", 0).is_some());
}

#[test]
fn commands_above_the_level_are_refused_and_unknown_ones_below_it_stop_the_node() {
    let mut machine = Machine::default();
    let context = |index| Context { index, time: Timestamp(0), seed: Seed::new(0, 0), default_min_isr: 1 };
    let delete = Kind::DeleteGroup(DeleteGroup { group_id: "g".into() });
    let (outcome, _) = machine.apply(&context(1), &command(delete)).unwrap();
    assert!(matches!(outcome, Outcome::Refused(error) if error.code == 35), "the cluster has no level yet");
    machine.apply(&context(1), &command(features::first_command([1; 16]))).unwrap();
    let above = Command { level: features::LEVEL + 1, kind: None };
    let (outcome, _) = machine.apply(&context(1), &above).unwrap();
    assert!(matches!(outcome, Outcome::Refused(_)));
    let stopped = machine.apply(&context(1), &Command { level: 1, kind: None });
    assert_eq!(stopped, Err(ApplyError::UnknownCommand { index: 1, level: 1 }));
}

/// REPLICATION R8.
#[test]
fn a_node_whose_hash_differs_stops() {
    let mut cluster = Cluster::new(1);
    while cluster.index < 1_000 {
        cluster.apply(Kind::VerifyHash(VerifyHash { index: 0, hash: 5 }));
    }
    let hash = cluster.machine.progress().checked_hash.0;
    let verify = |hash| command(Kind::VerifyHash(VerifyHash { index: 1_000, hash }));
    let context = Context { index: 1_001, time: Timestamp(0), seed: Seed::new(0, 0), default_min_isr: 1 };
    assert!(cluster.machine.apply(&context, &verify(hash)).is_ok());
    let diverged = cluster.machine.apply(&context, &verify(hash ^ 1));
    assert_eq!(diverged, Err(ApplyError::Diverged { index: 1_000, ours: hash, leaders: hash ^ 1 }));
}

/// Goal: no replica is elected that the leader's own minimum did not oblige it to wait for. Method: change the minimum in each
/// of its places; who is eligible follows in the same entry.
#[test]
fn a_smaller_minimum_takes_eligibility_from_those_who_may_now_be_left_behind() {
    let min_isr = |value: Option<&str>| match value {
        Some(value) => vec![change("min.insync.replicas", Op::Set, Some(value))],
        None => vec![change("min.insync.replicas", Op::Delete, None)],
    };
    let everywhere = |value| ConfigResource { kind: 4, ..on_topic("", min_isr(value)) };
    let mut cluster = Cluster::new(2);
    cluster.create_one(configured("own", 2, &[("min.insync.replicas", "2")]));
    cluster.create_one(topic("default", 1, 2));
    assert_eq!(cluster.alter(vec![everywhere(Some("2"))])[0].0, 0);
    cluster.fence(2);
    let elr = |cluster: &Cluster, topic: &str| cluster.partition(topic, 0).elr;
    assert_eq!((elr(&cluster, "own"), elr(&cluster, "default")), (vec![2], vec![2]));
    let before = cluster.partition("default", 0).partition_epoch;

    assert_eq!(cluster.alter(vec![everywhere(Some("1"))])[0].0, 0);
    assert_eq!((elr(&cluster, "own"), elr(&cluster, "default")), (vec![2], vec![]));
    assert_eq!(cluster.partition("default", 0).partition_epoch, before + 1, "its leader is told");
    assert_eq!(cluster.alter(vec![on_topic("own", min_isr(None))])[0].0, 0);
    assert_eq!(elr(&cluster, "own"), Vec::<i32>::new(), "the default holds for it now");

    let (code, message) =
        cluster.alter(vec![ConfigResource { kind: 4, ..on_topic("1", min_isr(Some("2"))) }]).remove(0);
    assert_eq!((code, message.contains("not for one broker")), (40, true));
    assert_eq!(cluster.alter(vec![everywhere(None)])[0].0, 0);
    let set = |cluster: &Cluster| cluster.state().config(config_record::Resource::Broker, "").unwrap().len();
    assert_eq!(set(&cluster), 1, "there always is one");
}

/// A topic with fewer replicas than the default asks for says so itself; its leader goes by the same number.
#[test]
fn a_topic_with_few_replicas_does_not_take_a_default_that_it_cannot_fulfil() {
    let mut cluster = Cluster::new(1);
    let all = ConfigResource { kind: 4, ..on_topic("", vec![change("min.insync.replicas", Op::Set, Some("2"))]) };
    cluster.alter(vec![all]);
    assert_eq!(cluster.create_one(topic("small", 1, 1)).0, 0);
    assert_eq!(cluster.config("small", "min.insync.replicas"), Some("1"));
}

#[test]
fn leaders_are_elected_on_request_preferred_or_of_whoever_is_left() {
    let mut cluster = Cluster::new(3);
    cluster.create_one(assigned("t", &[&[1, 2], &[2, 1]]));
    let elect = |cluster: &mut Cluster, election: i32, partitions: Option<Vec<i32>>| {
        let topics = partitions.iter().cloned();
        let topics = topics.map(|partitions| TopicPartitions { topic: "t".into(), partitions, ..Default::default() });
        let request = ElectLeadersRequest { election, all: partitions.is_none(), topics: topics.collect() };
        match cluster.apply(Kind::ElectLeaders(request)).0 {
            Outcome::ElectedLeaders(elected) => {
                elected.into_iter().map(|one| (one.partition, told(one.error).0)).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(elect(&mut cluster, 0, Some(vec![0, 7])), [(0, 84), (7, 3)]);
    assert_eq!(elect(&mut cluster, 0, None), []);
    // 1 goes and comes back, not yet in sync.
    cluster.fence(1);
    let broker_epoch = cluster.state().broker(NodeId(1)).unwrap().epoch;
    cluster.apply(Kind::UnfenceBroker(UnfenceBroker { broker_id: 1, broker_epoch }));
    assert_eq!(elect(&mut cluster, 0, Some(vec![0, 1])), [(0, 80), (1, 84)]);
    assert_eq!(elect(&mut cluster, 1, Some(vec![0])), [(0, 84)], "it has a leader");

    // 2, alone in sync, goes; 1 is alive but may lack records.
    cluster.fence(2);
    assert_eq!((cluster.partition("t", 0).leader, cluster.partition("t", 0).elr), (-1, vec![2]));
    assert_eq!(elect(&mut cluster, 1, None), [(0, 0), (1, 0)]);
    let after = cluster.partition("t", 0);
    assert_eq!((after.leader, after.isr, after.elr, after.recovering), (1, vec![1], vec![], true));
    cluster.fence(1);
    assert_eq!(cluster.partition("t", 0).elr, [1]);
    assert_eq!(elect(&mut cluster, 1, Some(vec![0])), [(0, 83)]);
}
