//! Topics and their configuration: creating, widening, deleting, describing.

use kafka_protocol::messages::alter_configs_request::{
    AlterConfigsResource as SetResource, AlterableConfig as SetConfig,
};
use kafka_protocol::messages::alter_replica_log_dirs_request::{AlterReplicaLogDir, AlterReplicaLogDirTopic};
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use kafka_protocol::messages::create_topics_response::CreatableTopicResult;
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::DescribeConfigsResult;
use kafka_protocol::messages::describe_log_dirs_request::DescribableLogDirTopic;
use kafka_protocol::messages::describe_topic_partitions_request::{Cursor, TopicRequest};
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::{
    AlterConfigsRequest, AlterReplicaLogDirsRequest, BrokerId, CreatePartitionsRequest, CreateTopicsRequest,
    DeleteTopicsRequest, DescribeClusterRequest, DescribeConfigsRequest, DescribeLogDirsRequest,
    DescribeProducersRequest, DescribeTopicPartitionsRequest, IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
};
use thalweg_tests::calls::{
    append, create_topic, delete_topic, init_producer_id, list_offset, metadata, produce, text, topic_id, topic_name,
};
use thalweg_tests::{Batch, Conn, ErrorCode, Node, target, unique};
use uuid::Uuid;

const TOPIC: i8 = 2;
const BROKER: i8 = 4;

fn code(error: ErrorCode) -> i16 {
    error.code()
}

fn create(conn: &mut Conn, version: i16, topic: CreatableTopic, validate_only: bool) -> CreatableTopicResult {
    let request = CreateTopicsRequest::default()
        .with_topics(vec![topic])
        .with_timeout_ms(30_000)
        .with_validate_only(validate_only);
    conn.call(version, &request).topics.remove(0)
}

fn topic_of(name: &str, partitions: i32, replication_factor: i16) -> CreatableTopic {
    CreatableTopic::default()
        .with_name(topic_name(name))
        .with_num_partitions(partitions)
        .with_replication_factor(replication_factor)
}

/// Case 77: creating twice is 36, -1 takes the defaults from v4, a bad name is 17 at once; each thing that is wrong has
/// its own code and a message.
#[test]
fn every_wrong_topic_has_its_own_error() {
    let target = target();
    let mut conn = target.conn();
    let name = unique("t");
    for version in 4..=7 {
        let defaults = format!("{name}-{version}");
        assert_eq!(create(&mut conn, version, topic_of(&defaults, -1, -1), false).error_code, 0, "v{version}");
        while target.is_kafka() && list_offset(&mut conn, &defaults, 0, -1).0 != 0 {}
        assert_eq!(metadata(&mut conn, 12, Some(&[&defaults]), false).topics[0].partitions.len(), 1);
    }
    assert_eq!(create(&mut conn, 2, topic_of(&name, 2, 1), false).error_code, 0);
    let config = |key: &str, value: Option<&str>| {
        let config = CreatableTopicConfig::default().with_name(text(key)).with_value(value.map(text));
        topic_of(&unique("bad"), 1, 1).with_configs(vec![config])
    };
    let assigned = |brokers: &[(i32, &[i32])], partitions, factor| {
        let assignments = brokers
            .iter()
            .map(|(p, ids)| {
                let ids = ids.iter().map(|id| BrokerId(*id)).collect();
                CreatableReplicaAssignment::default().with_partition_index(*p).with_broker_ids(ids)
            })
            .collect();
        topic_of(&unique("bad"), partitions, factor).with_assignments(assignments)
    };
    let cases = [
        ("twice", topic_of(&name, 1, 1), ErrorCode::TopicAlreadyExists),
        ("no partitions", topic_of(&unique("bad"), 0, 1), ErrorCode::InvalidPartitions),
        ("-2 partitions", topic_of(&unique("bad"), -2, 1), ErrorCode::InvalidPartitions),
        ("no replicas", topic_of(&unique("bad"), 1, 0), ErrorCode::InvalidReplicationFactor),
        ("more replicas than brokers", topic_of(&unique("bad"), 1, 3), ErrorCode::InvalidReplicationFactor),
        ("an empty name", topic_of("", 1, 1), ErrorCode::InvalidTopicException),
        ("a path", topic_of("../x", 1, 1), ErrorCode::InvalidTopicException),
        ("a long name", topic_of(&"x".repeat(250), 1, 1), ErrorCode::InvalidTopicException),
        ("an unknown key", config("no.such.key", Some("1")), ErrorCode::InvalidConfig),
        ("a bad value", config("retention.ms", Some("soon")), ErrorCode::InvalidConfig),
        ("a value out of range", config("max.message.bytes", Some("-1")), ErrorCode::InvalidConfig),
        ("a null value", config("retention.ms", None), ErrorCode::InvalidConfig),
        ("an unknown broker", assigned(&[(0, &[77])], -1, -1), ErrorCode::InvalidReplicaAssignment),
        ("a hole in the partitions", assigned(&[(1, &[1])], -1, -1), ErrorCode::InvalidReplicaAssignment),
        ("a count beside an assignment", assigned(&[(0, &[1])], 1, -1), ErrorCode::InvalidRequest),
    ];
    for (what, topic, expected) in cases {
        for version in [4, 7] {
            let got = create(&mut conn, version, topic.clone(), false);
            assert_eq!(
                ErrorCode::from_code(got.error_code),
                Some(expected),
                "{what}, v{version}: {:?}",
                got.error_message
            );
            assert!(got.error_message.is_some_and(|m| !m.is_empty()), "{what}: a message says what is wrong");
        }
    }
    assert_eq!(metadata(&mut conn, 12, Some(&[&name]), false).topics[0].partitions.len(), 2, "the first stays");
}

/// A topic named twice in one request is error 42 for both, and validate_only creates nothing.
#[test]
fn duplicates_are_refused_and_validation_creates_nothing() {
    let target = target();
    let mut conn = target.conn();
    let name = unique("t");
    let twice = CreateTopicsRequest::default()
        .with_topics(vec![topic_of(&name, 1, 1), topic_of(&name, 2, 1)])
        .with_timeout_ms(30_000);
    let answer = conn.call(7, &twice);
    assert!(!answer.topics.is_empty());
    assert!(answer.topics.iter().all(|t| t.error_code == code(ErrorCode::InvalidRequest)), "{:?}", answer.topics);
    assert_eq!(create(&mut conn, 7, topic_of(&name, 3, 1), true).error_code, 0);
    assert_eq!(create(&mut conn, 7, topic_of(&name, 0, 1), true).error_code, code(ErrorCode::InvalidPartitions));
    assert_eq!(metadata(&mut conn, 12, Some(&[&name]), false).topics[0].error_code, 3);
}

/// v5+ answers with what was created, or would be: counts, id, and the whole configuration with its sources.
#[test]
fn create_topics_answers_with_what_it_made() {
    let target = target();
    let mut conn = target.conn();
    let name = unique("t");
    let config = CreatableTopicConfig::default().with_name(text("retention.ms")).with_value(Some(text("12345")));
    let asked = topic_of(&name, 3, 1).with_configs(vec![config]);
    for validate_only in [true, false] {
        let made = create(&mut conn, 7, asked.clone(), validate_only);
        assert_eq!((made.error_code, made.num_partitions, made.replication_factor), (0, 3, 1));
        if !validate_only {
            assert_eq!(made.topic_id, topic_id(&mut conn, &name));
        }
        let configs = made.configs.expect("a configuration");
        let of = |key: &str| configs.iter().find(|c| &*c.name == key).expect("a known key");
        assert_eq!((of("retention.ms").value.as_deref(), of("retention.ms").config_source), (Some("12345"), 1));
        assert_eq!((of("cleanup.policy").value.as_deref(), of("cleanup.policy").config_source), (Some("delete"), 5));
    }
}

/// DeleteTopics: by name and, from v6, by id; unknown ones are 3 and 100; asking with both is malformed.
#[test]
fn delete_topics_by_name_and_by_id() {
    let target = target();
    let mut conn = target.conn();
    let (by_name, by_id) = (target.topic(&mut conn), target.topic(&mut conn));
    let id = topic_id(&mut conn, &by_id);
    for version in 1..=5 {
        let request = DeleteTopicsRequest::default()
            .with_topic_names(vec![topic_name(&unique("missing"))])
            .with_timeout_ms(30_000);
        assert_eq!(conn.call(version, &request).responses[0].error_code, 3, "v{version}");
    }
    let states = [
        DeleteTopicState::default().with_name(Some(topic_name(&by_name))),
        DeleteTopicState::default().with_name(None).with_topic_id(id),
        DeleteTopicState::default().with_name(None).with_topic_id(Uuid::from_u128(3)),
        DeleteTopicState::default().with_name(Some(topic_name("missing-too"))),
    ];
    let request = DeleteTopicsRequest::default().with_topics(states.to_vec()).with_timeout_ms(30_000);
    let answer = conn.call(6, &request);
    let of = |name: Option<&str>, id: Option<Uuid>| {
        let found = answer.responses.iter().find(|r| {
            name.is_none_or(|n| r.name.as_ref().is_some_and(|m| m.as_str() == n)) && id.is_none_or(|i| r.topic_id == i)
        });
        found.expect("an answer for each").error_code
    };
    assert_eq!((of(Some(&by_name), None), of(None, Some(id))), (0, 0));
    assert_eq!(of(None, Some(Uuid::from_u128(3))), code(ErrorCode::UnknownTopicId));
    assert_eq!(of(Some("missing-too"), None), 3);
    for topic in [&by_name, &by_id] {
        assert_eq!(metadata(&mut conn, 12, Some(&[topic]), false).topics[0].error_code, 3);
        assert_eq!(list_offset(&mut conn, topic, 0, -1).0, 3);
    }
}

/// A topic created again has another id and is empty.
#[test]
fn a_recreated_topic_is_a_new_one() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    append(&mut conn, &topic, Batch::values(&["old"]).encode());
    let old = topic_id(&mut conn, &topic);
    assert_eq!(delete_topic(&mut conn, &topic), 0);
    while create_topic(&mut conn, &topic, 1, &[]).error_code != 0 {
        assert!(target.is_kafka(), "a deleted name is free when the deletion is answered");
    }
    assert_ne!(topic_id(&mut conn, &topic), old);
    while target.is_kafka() && list_offset(&mut conn, &topic, 0, -1).0 != 0 {}
    assert_eq!(list_offset(&mut conn, &topic, 0, -1).1, 0);
    assert_eq!(append(&mut conn, &topic, Batch::values(&["new"]).encode()), 0);
}

fn widen(conn: &mut Conn, topic: &str, count: i32, validate_only: bool) -> i16 {
    let topic = CreatePartitionsTopic::default().with_name(topic_name(topic)).with_count(count).with_assignments(None);
    let request = CreatePartitionsRequest::default()
        .with_topics(vec![topic])
        .with_timeout_ms(30_000)
        .with_validate_only(validate_only);
    conn.call(3, &request).results[0].error_code
}

/// CreatePartitions only adds; the new partitions serve when it has answered and the old ones keep their records.
#[test]
fn create_partitions_only_adds() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic_with(&mut conn, 2, &[]);
    append(&mut conn, &topic, Batch::values(&["kept"]).encode());
    for count in [2, 1, 0, -1] {
        assert_eq!(widen(&mut conn, &topic, count, false), code(ErrorCode::InvalidPartitions), "to {count}");
    }
    assert_eq!(widen(&mut conn, &unique("missing"), 5, false), 3);
    assert_eq!(widen(&mut conn, &topic, 4, true), 0);
    assert_eq!(metadata(&mut conn, 12, Some(&[&topic]), false).topics[0].partitions.len(), 2, "only validated");
    assert_eq!(widen(&mut conn, &topic, 4, false), 0);
    while target.is_kafka() && list_offset(&mut conn, &topic, 3, -1).0 != 0 {}
    let ends: Vec<(i16, i64)> = (0..4).map(|p| list_offset(&mut conn, &topic, p, -1)).map(|r| (r.0, r.1)).collect();
    assert_eq!(ends, [(0, 1), (0, 0), (0, 0), (0, 0)]);
}

fn describe(conn: &mut Conn, version: i16, kind: i8, name: &str, keys: Option<&[&str]>) -> DescribeConfigsResult {
    let resource = DescribeConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(name))
        .with_configuration_keys(keys.map(|keys| keys.iter().map(|k| text(k)).collect()));
    let request = DescribeConfigsRequest::default().with_resources(vec![resource]).with_include_synonyms(true);
    let request = if version < 3 { request } else { request.with_include_documentation(true) };
    conn.call(version, &request).results.remove(0)
}

/// `(value, source)` of one key, or `None` when it is not listed.
fn config(conn: &mut Conn, topic: &str, key: &str) -> Option<(String, i8)> {
    let found = describe(conn, 4, TOPIC, topic, Some(&[key])).configs;
    found.first().map(|c| (c.value.as_ref().expect("a value").to_string(), c.config_source))
}

/// DescribeConfigs lists every topic key with its source, type and synonyms; null keys = all; an unknown topic is 3.
#[test]
fn describe_configs_shows_every_topic_key() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic_with(&mut conn, 1, &[("cleanup.policy", "compact,delete"), ("retention.ms", "777")]);
    let keys = [
        ("cleanup.policy", 7),
        ("compression.type", 2),
        ("delete.retention.ms", 5),
        ("file.delete.delay.ms", 5),
        ("flush.messages", 5),
        ("flush.ms", 5),
        ("index.interval.bytes", 3),
        ("max.compaction.lag.ms", 5),
        ("max.message.bytes", 3),
        ("message.timestamp.after.max.ms", 5),
        ("message.timestamp.before.max.ms", 5),
        ("message.timestamp.type", 2),
        ("min.cleanable.dirty.ratio", 6),
        ("min.compaction.lag.ms", 5),
        ("min.insync.replicas", 3),
        ("preallocate", 1),
        ("retention.bytes", 5),
        ("retention.ms", 5),
        ("segment.bytes", 3),
        ("segment.index.bytes", 3),
        ("segment.jitter.ms", 5),
        ("segment.ms", 5),
        ("unclean.leader.election.enable", 1),
    ];
    for version in 1..=4 {
        let all = describe(&mut conn, version, TOPIC, &topic, None);
        assert_eq!(all.error_code, 0);
        for (key, kind) in keys {
            let got = all.configs.iter().find(|c| &*c.name == key).unwrap_or_else(|| panic!("v{version} lacks {key}"));
            let source = match key {
                "cleanup.policy" | "retention.ms" => 1,
                // Eligible leader replicas make it a cluster-wide setting (KIP-966).
                "min.insync.replicas" => 3,
                _ => 5,
            };
            assert_eq!(got.config_source, source, "v{version} {key}");
            assert!(!got.is_sensitive && !got.read_only && got.value.is_some());
            if version >= 3 {
                assert_eq!(got.config_type, kind, "{key}");
                assert!(got.documentation.as_ref().is_some_and(|d| !d.is_empty()));
            }
        }
        let retention = all.configs.iter().find(|c| &*c.name == "retention.ms").expect("listed");
        let first = &retention.synonyms[0];
        assert_eq!((&*first.name, first.value.as_deref(), first.source), ("retention.ms", Some("777"), 1));
    }
    let some = describe(&mut conn, 4, TOPIC, &topic, Some(&["retention.ms", "no.such.key"]));
    assert_eq!(some.configs.len(), 1);
    assert_eq!(describe(&mut conn, 4, TOPIC, &unique("missing"), None).error_code, 3);
    assert_ne!(describe(&mut conn, 4, TOPIC, "../x", None).error_code, 0);
}

/// A broker's own resource lists its properties, read-only or not, with their sources.
#[test]
fn describe_configs_shows_the_brokers_properties() {
    let target = target();
    let mut conn = target.conn();
    let broker = metadata(&mut conn, 9, Some(&[]), false).brokers[0].node_id.0.to_string();
    let all = describe(&mut conn, 4, BROKER, &broker, None);
    assert_eq!(all.error_code, 0, "{:?}", all.error_message);
    for (key, default) in [("log.flush.interval.messages", "9223372036854775807"), ("log.retention.bytes", "-1")] {
        let got = all.configs.iter().find(|c| &*c.name == key).unwrap_or_else(|| panic!("{key} is not listed"));
        assert_eq!((got.value.as_deref(), got.config_source), (Some(default), 5), "{key}");
    }
    let set = all.configs.iter().find(|c| &*c.name == "group.min.session.timeout.ms").expect("listed");
    assert_eq!((set.value.as_deref(), set.config_source), (Some("1000"), 4), "given on the command line");
    assert_ne!(describe(&mut conn, 4, BROKER, "4711", None).error_code, 0);
}

/// 0 set, 1 delete, 2 append, 3 subtract.
fn incremental(conn: &mut Conn, topic: &str, changes: &[(&str, i8, Option<&str>)]) -> i16 {
    let configs = changes
        .iter()
        .map(|(key, operation, value)| {
            AlterableConfig::default()
                .with_name(text(key))
                .with_config_operation(*operation)
                .with_value(value.map(text))
        })
        .collect();
    let resource =
        AlterConfigsResource::default().with_resource_type(TOPIC).with_resource_name(text(topic)).with_configs(configs);
    conn.call(1, &IncrementalAlterConfigsRequest::default().with_resources(vec![resource])).responses[0].error_code
}

fn alter(conn: &mut Conn, topic: &str, configs: &[(&str, &str)]) -> i16 {
    let configs = configs
        .iter()
        .map(|(key, value)| SetConfig::default().with_name(text(key)).with_value(Some(text(value))))
        .collect();
    let resource =
        SetResource::default().with_resource_type(TOPIC).with_resource_name(text(topic)).with_configs(configs);
    conn.call(2, &AlterConfigsRequest::default().with_resources(vec![resource])).responses[0].error_code
}

/// Case 83: AlterConfigs naming one key resets all others; IncrementalAlterConfigs keeps them, appends to and subtracts
/// from lists, and an unknown key is error 40 with the broker alive.
#[test]
fn alter_configs_replaces_and_incremental_alter_configs_changes() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic_with(&mut conn, 1, &[("retention.ms", "777"), ("segment.bytes", "2000000")]);
    assert_eq!(incremental(&mut conn, &topic, &[("max.message.bytes", 0, Some("5000"))]), 0);
    assert_eq!(config(&mut conn, &topic, "retention.ms"), Some(("777".into(), 1)));
    assert_eq!(config(&mut conn, &topic, "max.message.bytes"), Some(("5000".into(), 1)));
    assert_eq!(produce(&mut conn, &topic, Batch::values(&[&"x".repeat(6000)]).encode()).error_code, 10, "in force");

    assert_eq!(incremental(&mut conn, &topic, &[("cleanup.policy", 2, Some("compact"))]), 0);
    assert_eq!(config(&mut conn, &topic, "cleanup.policy"), Some(("delete,compact".into(), 1)));
    assert_eq!(incremental(&mut conn, &topic, &[("cleanup.policy", 3, Some("delete"))]), 0);
    assert_eq!(config(&mut conn, &topic, "cleanup.policy"), Some(("compact".into(), 1)));
    let no_list = incremental(&mut conn, &topic, &[("retention.ms", 2, Some("1"))]);
    assert_eq!(no_list, code(ErrorCode::InvalidConfig), "append to what is no list");
    for bad in [("no.such.key", 0, Some("1")), ("retention.ms", 0, Some("x")), ("retention.ms", 0, None)] {
        let expected = if bad.2.is_none() { ErrorCode::InvalidRequest } else { ErrorCode::InvalidConfig };
        assert_eq!(incremental(&mut conn, &topic, &[bad]), code(expected), "{bad:?}");
    }
    let twice = incremental(&mut conn, &topic, &[("retention.ms", 0, Some("1")), ("retention.ms", 0, Some("2"))]);
    assert_eq!(twice, code(ErrorCode::InvalidRequest));
    assert_eq!(config(&mut conn, &topic, "retention.ms"), Some(("777".into(), 1)), "nothing of a refused change");

    assert_eq!(alter(&mut conn, &topic, &[("retention.ms", "888")]), 0);
    assert_eq!(config(&mut conn, &topic, "retention.ms"), Some(("888".into(), 1)));
    assert_eq!(config(&mut conn, &topic, "max.message.bytes"), Some(("1048588".into(), 5)));
    assert_eq!(config(&mut conn, &topic, "segment.bytes"), Some(("1073741824".into(), 5)));
    assert_eq!(alter(&mut conn, &topic, &[("no.such.key", "1")]), code(ErrorCode::InvalidConfig));
    assert_eq!(alter(&mut conn, &unique("missing"), &[("retention.ms", "1")]), 3);
    assert_eq!(incremental(&mut conn, &unique("missing"), &[("retention.ms", 0, Some("1"))]), 3);
}

/// Case 105: a key that was set and unset, or set on a topic of the same name before, is a default again: source 5.
#[test]
fn an_unset_key_is_a_default_again() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic_with(&mut conn, 1, &[("retention.ms", "777")]);
    assert_eq!(incremental(&mut conn, &topic, &[("retention.ms", 1, None)]), 0);
    assert_eq!(config(&mut conn, &topic, "retention.ms"), Some(("604800000".into(), 5)));
    assert_eq!(incremental(&mut conn, &topic, &[("retention.ms", 0, Some("888"))]), 0);
    assert_eq!(delete_topic(&mut conn, &topic), 0);
    while create_topic(&mut conn, &topic, 1, &[]).error_code != 0 {
        assert!(target.is_kafka(), "a deleted name is free when the deletion is answered");
    }
    assert_eq!(config(&mut conn, &topic, "retention.ms"), Some(("604800000".into(), 5)));
}

/// Case 81: an auto-created topic has the normal retention.
#[test]
fn an_auto_created_topic_has_the_normal_defaults() {
    let target = target();
    let mut conn = target.conn();
    let name = unique("auto");
    while metadata(&mut conn, 9, Some(&[&name]), true).topics[0].error_code != 0 {
        assert!(target.is_kafka());
    }
    assert_eq!(config(&mut conn, &name, "retention.ms"), Some(("604800000".into(), 5)));
    assert_eq!(config(&mut conn, &name, "retention.bytes"), Some(("-1".into(), 5)));
    assert_eq!(config(&mut conn, &name, "cleanup.policy"), Some(("delete".into(), 5)));
}

/// DescribeCluster says what Metadata says.
#[test]
fn describe_cluster_agrees_with_metadata() {
    let target = target();
    let mut conn = target.conn();
    let known = metadata(&mut conn, 9, Some(&[]), false);
    for version in 0..=2 {
        let answer = conn.call(version, &DescribeClusterRequest::default());
        assert_eq!(answer.error_code, 0);
        assert_eq!(Some(answer.cluster_id), known.cluster_id);
        assert!(answer.brokers.iter().any(|b| b.broker_id == answer.controller_id));
        let broker = &answer.brokers[0];
        assert_eq!((broker.broker_id, &broker.host, broker.port), {
            let b = &known.brokers[0];
            (b.node_id, &b.host, b.port)
        });
        assert_eq!(answer.cluster_authorized_operations, i32::MIN);
    }
}

/// DescribeTopicPartitions: sorted by name, cut at the limit with a cursor that goes on there, unknown topics 3.
#[test]
fn describe_topic_partitions_pages() {
    let target = target();
    let mut conn = target.conn();
    let mut names = [target.topic_with(&mut conn, 3, &[]), target.topic_with(&mut conn, 2, &[])];
    names.sort();
    let counts = names.clone().map(|n| metadata(&mut conn, 12, Some(&[&n]), false).topics[0].partitions.len());
    let asked: Vec<TopicRequest> = names.iter().map(|n| TopicRequest::default().with_name(topic_name(n))).collect();
    let request = DescribeTopicPartitionsRequest::default().with_topics(asked).with_response_partition_limit(2);
    let (mut seen, mut cursor, mut pages) = (Vec::new(), None::<Cursor>, 0);
    loop {
        let answer = conn.call(0, &request.clone().with_cursor(cursor));
        pages += 1;
        let mut on_page = 0;
        for topic in &answer.topics {
            assert_eq!(topic.error_code, 0);
            for partition in &topic.partitions {
                assert_eq!((partition.error_code, partition.replica_nodes.len(), partition.isr_nodes.len()), (0, 1, 1));
                seen.push((topic.name.as_ref().expect("a name").to_string(), partition.partition_index));
                on_page += 1;
            }
        }
        assert!(on_page <= 2);
        let Some(next) = answer.next_cursor else { break };
        cursor = Some(Cursor::default().with_topic_name(next.topic_name).with_partition_index(next.partition_index));
    }
    let expected: Vec<(String, i32)> =
        names.iter().zip(counts).flat_map(|(n, count)| (0..count as i32).map(|p| (n.clone(), p))).collect();
    assert_eq!(seen, expected);
    assert_eq!(pages, 3);
    let missing = vec![TopicRequest::default().with_name(topic_name(&unique("missing")))];
    let answer = conn.call(0, &request.with_topics(missing).with_cursor(None));
    assert_eq!(answer.topics[0].error_code, 3);
}

/// DescribeLogDirs: null topics = all; sizes are those of the log; the totals of the disk are there from v4.
#[test]
fn describe_log_dirs_shows_sizes() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic_with(&mut conn, 2, &[]);
    let batch = Batch::values(&["x"; 10]).encode();
    append(&mut conn, &topic, batch.clone());
    for version in 1..=4 {
        let asked = DescribableLogDirTopic::default().with_topic(topic_name(&topic)).with_partitions(vec![0, 1]);
        for topics in [Some(vec![asked]), None] {
            let all = topics.is_none();
            let answer = conn.call(version, &DescribeLogDirsRequest::default().with_topics(topics));
            assert_eq!(answer.error_code, 0);
            let dir = &answer.results[0];
            assert!(dir.error_code == 0 && dir.log_dir.starts_with('/'), "{}", &*dir.log_dir);
            let found = dir.topics.iter().find(|t| t.name == topic_name(&topic)).expect("our topic");
            assert!(all || dir.topics.len() == 1);
            let mut sizes: Vec<(i32, i64)> =
                found.partitions.iter().map(|p| (p.partition_index, p.partition_size)).collect();
            sizes.sort_unstable();
            assert_eq!(sizes, [(0, batch.len() as i64), (1, 0)], "v{version}");
            assert!(found.partitions.iter().all(|p| p.offset_lag == 0 && !p.is_future_key));
            if version >= 4 {
                // A total of -1 is "not known" (KIP-827).
                assert!(dir.usable_bytes > 0 && dir.total_bytes >= dir.usable_bytes);
            }
        }
    }
}

/// AlterReplicaLogDirs: the directory that a replica is in is granted, whatever else the request holds; a strange one is 57, a
/// partition that does not exist 3.
#[test]
fn a_replica_may_be_told_to_stay_in_its_log_dir() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic_with(&mut conn, 1, &[]);
    let home = conn.call(1, &DescribeLogDirsRequest::default().with_topics(None)).results[0].log_dir.to_string();
    for version in 1..=2 {
        let partitions =
            |indexes| AlterReplicaLogDirTopic::default().with_name(topic_name(&topic)).with_partitions(indexes);
        let dir = |path: &str, indexes| {
            AlterReplicaLogDir::default().with_path(text(path)).with_topics(vec![partitions(indexes)])
        };
        for (asked, expected) in
            [(dir(&home, vec![0, 7]), [(0, 0), (7, 3)]), (dir("/strange", vec![0, 7]), [(0, 57), (7, 57)])]
        {
            let answer = conn.call(version, &AlterReplicaLogDirsRequest::default().with_dirs(vec![asked]));
            let mut found: Vec<(i32, i16)> =
                answer.results[0].partitions.iter().map(|p| (p.partition_index, p.error_code)).collect();
            found.sort_unstable();
            assert_eq!(
                (&answer.results[0].topic_name, found.as_slice()),
                (&topic_name(&topic), &expected[..]),
                "v{version}"
            );
        }
    }
}

/// DescribeProducers shows who wrote, with the last sequence.
#[test]
fn describe_producers_shows_idempotent_producers() {
    use kafka_protocol::messages::describe_producers_request::TopicRequest;
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    let (id, epoch) = init_producer_id(&mut conn);
    append(&mut conn, &topic, Batch::values(&["a", "b"]).producer(id, epoch, 0).encode());
    append(&mut conn, &topic, Batch::values(&["nobody"]).encode());
    let asked = TopicRequest::default().with_name(topic_name(&topic)).with_partition_indexes(vec![0, 5]);
    let answer = conn.call(0, &DescribeProducersRequest::default().with_topics(vec![asked]));
    let of = |index| answer.topics[0].partitions.iter().find(|p| p.partition_index == index).expect("asked for");
    assert_eq!((of(5).error_code, of(0).error_code), (3, 0));
    let producers = &of(0).active_producers;
    assert_eq!(producers.len(), 1);
    let got = &producers[0];
    assert_eq!((got.producer_id.0, got.producer_epoch, got.last_sequence), (id, i32::from(epoch), 1));
    assert_eq!(got.current_txn_start_offset, -1);
}

/// ListConfigResources: v0 knows client metrics only and so lists nothing; v1 lists topics and brokers by type.
#[test]
fn list_config_resources_lists_by_type() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    let none = conn.call(0, &ListConfigResourcesRequest::default());
    assert_eq!((none.error_code, none.config_resources.len()), (0, 0));
    let request = ListConfigResourcesRequest::default().with_resource_types(vec![TOPIC, BROKER]);
    let answer = conn.call(1, &request);
    assert_eq!(answer.error_code, 0);
    assert!(answer.config_resources.iter().any(|r| r.resource_type == TOPIC && *r.resource_name == *topic));
    assert!(answer.config_resources.iter().any(|r| r.resource_type == BROKER));
    let odd = ListConfigResourcesRequest::default().with_resource_types(vec![99]);
    assert_eq!(conn.call(1, &odd).error_code, code(ErrorCode::UnsupportedVersion));
}

/// Topics, their ids, partitions and configuration are there after a kill and after a clean stop; deleted ones are not.
#[test]
fn topics_survive_a_restart_and_deleted_ones_do_not() {
    let Some(mut node) = Node::own(&[]) else { return };
    let mut conn = node.conn();
    assert_eq!(create_topic(&mut conn, "kept", 3, &[("retention.ms", "777")]).error_code, 0);
    assert_eq!(create_topic(&mut conn, "gone", 1, &[]).error_code, 0);
    let id = topic_id(&mut conn, "kept");
    append(&mut conn, "kept", Batch::values(&["x"]).encode());
    assert_eq!(delete_topic(&mut conn, "gone"), 0);
    let cluster = metadata(&mut conn, 9, Some(&[]), false).cluster_id;
    for clean in [false, true] {
        if clean {
            assert_eq!(node.stop(), Some(0));
        } else {
            node.kill();
        }
        node.restart();
        let mut conn = node.conn();
        let answer = metadata(&mut conn, 12, Some(&["kept", "gone"]), false);
        assert_eq!(answer.cluster_id, cluster);
        let of = |name: &str| answer.topics.iter().find(|t| t.name == Some(topic_name(name))).expect("asked for");
        assert_eq!((of("kept").topic_id, of("kept").partitions.len(), of("gone").error_code), (id, 3, 3));
        assert_eq!(config(&mut conn, "kept", "retention.ms"), Some(("777".into(), 1)));
        assert_eq!(list_offset(&mut conn, "kept", 0, -1).1, 1);
    }
}
