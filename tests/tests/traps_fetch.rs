//! Fetch: bounds, waiting, sizes, sessions.

use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_protocol::messages::fetch_request::ForgottenTopic;
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::{DeleteRecordsRequest, FetchRequest, FetchResponse};
use thalweg_tests::batch::{Codec, Record, read_batches, read_records, read_values};
use thalweg_tests::calls::{
    Fetch, append, create_topic, delete_topic, list_offset, produce_request, topic_id, topic_name,
};
use thalweg_tests::{Batch, Conn, ErrorCode, Node, target};
use uuid::Uuid;

fn code(error: ErrorCode) -> i16 {
    error.code()
}

fn size(data: &PartitionData) -> usize {
    data.records.as_ref().map_or(0, Bytes::len)
}

/// Every version from 4 serves the same records, and Fetch v12 carries none of the tags of later versions (case 7).
#[test]
fn every_version_serves_and_writes_only_its_own_tags() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    append(&mut conn, &topic, Batch::values(&["a", "b"]).encode());
    for version in 4..=18 {
        let answer = Fetch { version, ..Fetch::default() }.call(&mut conn, &topic, &[(0, 0)]);
        let data = &answer.responses[0].partitions[0];
        assert_eq!(read_values(data.records.as_ref().unwrap()), ["a", "b"], "v{version}");
        assert_eq!((data.high_watermark, data.last_stable_offset), (2, 2));
        assert!(data.aborted_transactions.is_none(), "v{version}: null when reading uncommitted");
        assert!(answer.unknown_tagged_fields.is_empty() && data.unknown_tagged_fields.is_empty());
        assert!(answer.node_endpoints.is_empty());
        assert_eq!(data.current_leader.leader_id.0, -1, "v{version}: no leader hint without an error");
        if version >= 11 {
            assert_eq!(data.preferred_read_replica.0, -1);
        }
        if version >= 5 {
            assert_eq!(data.log_start_offset, 0);
        }
    }
}

/// A name that no topic can have is an unknown topic like any other, and does not wait.
#[test]
fn impossible_names_are_unknown_topics() {
    let target = target();
    let mut conn = target.conn();
    for name in ["", "no such name", &"x".repeat(300)] {
        let waiting = Fetch { version: 12, max_wait_ms: i32::MAX, ..Fetch::default() };
        let answer = waiting.call(&mut conn, name, &[(3, 0)]);
        assert_eq!((answer.responses.len(), answer.responses[0].topic.as_str()), (1, name));
        let data = &answer.responses[0].partitions[0];
        assert_eq!((data.partition_index, data.error_code), (3, code(ErrorCode::UnknownTopicOrPartition)));
    }
}

/// Case 31: at the log end empty, beyond it and below the start error 1.
#[test]
fn offsets_outside_the_log_are_errors_and_its_end_is_empty() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    append(&mut conn, &topic, Batch::values(&["a", "b"]).encode());
    let at_end = Fetch::default().one(&mut conn, &topic, 2);
    assert_eq!((at_end.error_code, size(&at_end)), (0, 0));
    for offset in [3, 12, i64::MAX, -1, i64::MIN] {
        let waiting = Fetch { max_wait_ms: 20_000, ..Fetch::default() };
        let started = Instant::now();
        let answer = waiting.one(&mut conn, &topic, offset);
        assert_eq!(answer.error_code, code(ErrorCode::OffsetOutOfRange), "offset {offset}");
        assert_eq!(size(&answer), 0);
        assert!(started.elapsed() < Duration::from_secs(10), "an error does not wait");
    }
    delete_records(&mut conn, &topic, 1);
    assert_eq!(Fetch::default().one(&mut conn, &topic, 0).error_code, code(ErrorCode::OffsetOutOfRange));
}

fn delete_records(conn: &mut Conn, topic: &str, offset: i64) {
    let partition = DeleteRecordsPartition::default().with_partition_index(0).with_offset(offset);
    let topic = DeleteRecordsTopic::default().with_name(topic_name(topic)).with_partitions(vec![partition]);
    let request = DeleteRecordsRequest::default().with_topics(vec![topic]).with_timeout_ms(10_000);
    assert_eq!(conn.call(2, &request).topics[0].partitions[0].error_code, 0);
}

/// Case 33: without data the answer comes at max_wait and not at once; with data it comes when the data comes.
#[test]
fn a_fetch_waits_for_data_and_not_longer() {
    let target = target();
    let (mut conn, mut writer) = (target.conn(), target.conn());
    let topic = target.topic(&mut conn);
    let started = Instant::now();
    let empty = Fetch { max_wait_ms: 400, ..Fetch::default() }.one(&mut conn, &topic, 0);
    assert_eq!(size(&empty), 0);
    assert!(started.elapsed() >= Duration::from_millis(400), "{:?}", started.elapsed());

    let long = Fetch { max_wait_ms: 25_000, ..Fetch::default() };
    let started = Instant::now();
    let id = conn.send(12, &long.request(&topic, Uuid::nil(), &[(0, 0)]));
    append(&mut writer, &topic, Batch::values(&["now"]).encode());
    let answer = conn.receive::<FetchRequest>(12, id);
    assert_eq!(read_values(answer.responses[0].partitions[0].records.as_ref().unwrap()), ["now"]);
    assert!(started.elapsed() < Duration::from_secs(20), "woken by the data, not by the clock");
}

/// min_bytes holds the answer back until that much is there, over all partitions together.
#[test]
fn a_fetch_waits_for_min_bytes_over_all_partitions() {
    let target = target();
    let (mut conn, mut writer) = (target.conn(), target.conn());
    let topic = target.topic_with(&mut conn, 2, &[]);
    let batch = Batch::values(&[&"x".repeat(1000)]).encode();
    let waiting = Fetch { max_wait_ms: 25_000, min_bytes: batch.len() as i32 + 500, ..Fetch::default() };
    let id = conn.send(12, &waiting.request(&topic, Uuid::nil(), &[(0, 0), (1, 0)]));
    for partition in [0, 1] {
        let answer = writer.call(9, &produce_request(-1, &topic, &[(partition, Some(batch.clone()))]));
        assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
    }
    let answer = conn.receive::<FetchRequest>(12, id);
    assert_eq!(answer.responses[0].partitions.iter().map(size).sum::<usize>(), 2 * batch.len());
    // min_bytes 0 never waits.
    let at_once = Fetch { max_wait_ms: 25_000, min_bytes: 0, ..Fetch::default() };
    let started = Instant::now();
    at_once.one(&mut conn, &topic, 1);
    assert!(started.elapsed() < Duration::from_secs(20));
}

/// Case 35: the first batch is returned even when it is larger than both limits; later ones respect both.
#[test]
fn the_first_batch_is_returned_whatever_the_limits() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic_with(&mut conn, 2, &[]);
    let batch = Batch::values(&[&"x".repeat(5000)]).encode();
    for _ in 0..3 {
        for partition in [0, 1] {
            conn.call(9, &produce_request(-1, &topic, &[(partition, Some(batch.clone()))]));
        }
    }
    for (max_bytes, partition_max_bytes) in [(1, 1), (1, 1 << 20), (50 << 20, 1), (0, 0)] {
        let limits = Fetch { max_bytes, partition_max_bytes, ..Fetch::default() };
        let answer = limits.call(&mut conn, &topic, &[(0, 0), (1, 0)]);
        let partitions = &answer.responses[0].partitions;
        let whole: Vec<usize> =
            partitions.iter().map(|p| read_batches(p.records.as_deref().unwrap_or_default()).len()).collect();
        // Only the first partition of the answer has the right to exceed.
        assert_eq!(whole.iter().sum::<usize>(), 1, "{max_bytes} {partition_max_bytes}: {whole:?}");
    }
    let two = Fetch { partition_max_bytes: 2 * batch.len() as i32 + 100, ..Fetch::default() };
    let answer = two.call(&mut conn, &topic, &[(0, 0), (1, 0)]);
    for partition in &answer.responses[0].partitions {
        assert_eq!(read_batches(partition.records.as_ref().unwrap()).len(), 2);
        assert!(size(partition) <= 2 * batch.len() + 100);
    }
    let all_of_it = Fetch { max_bytes: 3 * batch.len() as i32, ..Fetch::default() };
    let answer = all_of_it.call(&mut conn, &topic, &[(0, 0), (1, 0)]);
    assert!(answer.responses[0].partitions.iter().map(size).sum::<usize>() <= 3 * batch.len());
}

/// An offset inside a batch returns that whole batch.
#[test]
fn an_offset_inside_a_batch_returns_the_whole_batch() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    for codec in Codec::ALL {
        let batch = Batch::values(&["a", "b", "c", "d"]).codec(codec).encode();
        let base = append(&mut conn, &topic, batch);
        for offset in base..base + 4 {
            let data = Fetch::default().one(&mut conn, &topic, offset);
            let batches = read_batches(data.records.as_ref().unwrap());
            assert_eq!((batches[0].base_offset, batches[0].records.len()), (base, 4), "{codec:?}");
        }
    }
}

/// Case 37: read_committed on an empty and on a fully trimmed log: empty, the last stable offset at the start.
#[test]
fn read_committed_on_an_empty_or_trimmed_log_is_empty() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    let committed = Fetch { isolation_level: 1, ..Fetch::default() };
    let empty = committed.one(&mut conn, &topic, 0);
    assert_eq!((empty.error_code, empty.last_stable_offset, size(&empty)), (0, 0, 0));
    assert!(empty.aborted_transactions.is_none_or(|aborted| aborted.is_empty()));
    append(&mut conn, &topic, Batch::values(&["a", "b"]).encode());
    assert_eq!(read_values(committed.one(&mut conn, &topic, 0).records.as_ref().unwrap()), ["a", "b"]);
    delete_records(&mut conn, &topic, 2);
    let trimmed = committed.one(&mut conn, &topic, 2);
    assert_eq!((trimmed.error_code, trimmed.last_stable_offset, trimmed.log_start_offset), (0, 2, 2));
    assert_eq!(size(&trimmed), 0);
}

/// Case 43: an empty rack id is no rack.
#[test]
fn an_empty_rack_id_is_no_rack() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    append(&mut conn, &topic, Batch::values(&["a"]).encode());
    for rack in ["", "nowhere"] {
        for version in [11, 12] {
            let fetch = Fetch { version, rack_id: rack.to_owned(), ..Fetch::default() };
            let data = fetch.one(&mut conn, &topic, 0);
            assert_eq!((data.error_code, data.preferred_read_replica.0), (0, -1));
            assert_eq!(read_values(data.records.as_ref().unwrap()), ["a"]);
        }
    }
}

/// A leader epoch newer than the current one is 75, the current one is right, a negative one is not checked.
#[test]
fn a_leader_epoch_from_the_future_is_unknown() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    append(&mut conn, &topic, Batch::values(&["a"]).encode());
    let current = list_offset(&mut conn, &topic, 0, -1).3;
    for (epoch, expected) in [(current, 0), (-1, 0), (-2, 0), (current + 1, 75), (i32::MAX, 75)] {
        let fetch = Fetch { current_leader_epoch: epoch, ..Fetch::default() };
        assert_eq!(fetch.one(&mut conn, &topic, 0).error_code, expected, "epoch {epoch}");
    }
}

/// A leader epoch older than the current one is 74, with the leader named in a tag from v16 and no tag before (case 7).
#[test]
fn an_old_leader_epoch_is_fenced_and_only_v16_names_the_leader() {
    let Some(mut node) = Node::own(&[]) else { return };
    assert_eq!(create_topic(&mut node.conn(), "t", 1, &[]).error_code, 0);
    append(&mut node.conn(), "t", Batch::values(&["a"]).encode());
    node.kill();
    node.restart();
    let mut conn = node.conn();
    let current = list_offset(&mut conn, "t", 0, -1).3;
    if current == 0 {
        println!("not run: a restart without another replica kept leader epoch 0, so none is older");
        return;
    }
    for version in [12, 15, 16, 17] {
        let fenced = Fetch { version, current_leader_epoch: current - 1, ..Fetch::default() };
        let answer = fenced.call(&mut conn, "t", &[(0, 0)]);
        let data = &answer.responses[0].partitions[0];
        assert_eq!(data.error_code, code(ErrorCode::FencedLeaderEpoch));
        assert!(answer.unknown_tagged_fields.is_empty() && data.unknown_tagged_fields.is_empty(), "v{version}");
        if version < 16 {
            assert!(answer.node_endpoints.is_empty(), "v{version}");
        } else {
            assert_eq!(data.current_leader.leader_epoch, current, "v{version}");
        }
    }
}

/// Unknown topics by name are 3, by id 100; a partition that is not there is 3.
#[test]
fn unknown_topics_and_partitions_are_named_one_by_one() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    append(&mut conn, &topic, Batch::values(&["a"]).encode());
    let answer = Fetch::default().call(&mut conn, &topic, &[(0, 0), (7, 0)]);
    let codes: Vec<(i32, i16)> =
        answer.responses[0].partitions.iter().map(|p| (p.partition_index, p.error_code)).collect();
    assert!(codes.contains(&(0, 0)) && codes.contains(&(7, 3)), "{codes:?}");
    assert_eq!(Fetch::default().one(&mut conn, "no-such-topic", 0).error_code, 3);
    for id in [Uuid::nil(), Uuid::from_u128(99)] {
        let by_id = Fetch { version: 13, ..Fetch::default() };
        let answer = conn.call(13, &by_id.request("", id, &[(0, 0)]));
        let codes: Vec<i16> = answer.responses.iter().flat_map(|t| &t.partitions).map(|p| p.error_code).collect();
        assert_eq!((answer.error_code, codes), (0, vec![code(ErrorCode::UnknownTopicId)]));
    }
}

/// Headers, null and empty keys and values come back as they went (the part of case 47 without compaction).
#[test]
fn keys_values_and_headers_keep_null_and_empty_apart() {
    let target = target();
    let mut conn = target.conn();
    let some = |s: &'static str| Some(Bytes::from_static(s.as_bytes()));
    let records = vec![
        Record { key: None, value: None, ..Record::of("") },
        Record { key: some(""), value: some(""), ..Record::of("") },
        Record { key: some("k"), value: None, ..Record::of("") },
        Record {
            headers: vec![
                ("a".into(), some("1")),
                ("a".into(), None),
                (String::new(), some("")),
                ("ü".into(), some("2")),
            ],
            ..Record::keyed("k", "v")
        },
        Record { headers: vec![("b".into(), some("3"))], ..Record::of("w") },
    ];
    for codec in Codec::ALL {
        let topic = target.topic(&mut conn);
        append(&mut conn, &topic, Batch::of(records.clone()).codec(codec).encode());
        let data = Fetch::default().one(&mut conn, &topic, 0);
        let got = read_records(data.records.as_ref().unwrap());
        for (i, (sent, got)) in records.iter().zip(&got).enumerate() {
            assert_eq!(&Record { offset: i as i64, ..sent.clone() }, got, "{codec:?}");
        }
        assert_eq!(got.len(), records.len());
    }
}

/// A partition named twice in one request is answered once.
#[test]
fn a_partition_named_twice_is_answered_once() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    append(&mut conn, &topic, Batch::values(&["a"]).encode());
    append(&mut conn, &topic, Batch::values(&["b"]).encode());
    let answer = Fetch::default().call(&mut conn, &topic, &[(0, 0), (0, 1)]);
    let partitions: Vec<&PartitionData> = answer.responses.iter().flat_map(|t| &t.partitions).collect();
    assert_eq!(partitions.len(), 1);
    assert_eq!(read_values(partitions[0].records.as_ref().unwrap()), ["b"]);
}

/// A session without partitions to add is refused by its id and epoch; sessionless fetches keep none.
#[test]
fn fetch_sessions_check_their_id_and_epoch() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    append(&mut conn, &topic, Batch::values(&["a"]).encode());
    assert_eq!(Fetch::default().call(&mut conn, &topic, &[(0, 0)]).session_id, 0);
    let unknown = Fetch { session_id: 987_654, session_epoch: 3, ..Fetch::default() };
    let answer = conn.call(12, &unknown.request(&topic, Uuid::nil(), &[(0, 0)]));
    assert_eq!((answer.error_code, answer.responses.len()), (code(ErrorCode::FetchSessionIdNotFound), 0));

    let opened = Fetch { session_epoch: 0, ..Fetch::default() }.call(&mut conn, &topic, &[(0, 0)]);
    assert_eq!(opened.error_code, 0);
    assert_eq!(opened.responses[0].partitions.len(), 1, "a full answer");
    if opened.session_id == 0 {
        assert!(!target.is_kafka());
        println!("no session is kept, which the protocol allows");
        return;
    }
    let at = |epoch| Fetch { session_id: opened.session_id, session_epoch: epoch, ..Fetch::default() };
    let wrong = conn.call(12, &none_added(&at(5)));
    assert_eq!(wrong.error_code, code(ErrorCode::InvalidFetchSessionEpoch));
    // The partition's offset has not moved, so its data comes again; at the end of the log nothing comes.
    let again = conn.call(12, &none_added(&at(1)));
    assert_eq!((again.error_code, again.session_id), (0, opened.session_id));
    assert_eq!(values(&again), ["a"]);
    let moved = at(2).call(&mut conn, &topic, &[(0, 1)]);
    assert_eq!((moved.error_code, values(&moved).len()), (0, 0));
    let quiet = conn.call(12, &none_added(&at(3)));
    assert_eq!((quiet.error_code, quiet.responses.len()), (0, 0), "only changed partitions are listed");
    append(&mut conn, &topic, Batch::values(&["b"]).encode());
    let changed = conn.call(12, &none_added(&at(4)));
    assert_eq!(values(&changed), ["b"]);
    // Names and ids may not mix in one session.
    let mixed = conn.call(13, &none_added(&Fetch { version: 13, ..at(5) }));
    assert_eq!(mixed.error_code, code(ErrorCode::FetchSessionTopicIdError));
    // Epoch -1 closes it.
    let closed = conn.call(12, &none_added(&at(-1)));
    assert_eq!((closed.error_code, closed.session_id), (0, 0));
    let gone = conn.call(12, &none_added(&at(5)));
    assert_eq!(gone.error_code, code(ErrorCode::FetchSessionIdNotFound));
}

fn none_added(fetch: &Fetch) -> FetchRequest {
    fetch.request("", Uuid::nil(), &[]).with_topics(vec![])
}

fn values(answer: &FetchResponse) -> Vec<String> {
    let records = answer.responses.iter().flat_map(|t| &t.partitions).filter_map(|p| p.records.as_ref());
    records.flat_map(|records| read_values(records)).collect()
}

/// A partition that a session forgets is not answered any more.
#[test]
fn a_forgotten_partition_leaves_its_session() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic_with(&mut conn, 2, &[]);
    let opened = Fetch { session_epoch: 0, ..Fetch::default() }.call(&mut conn, &topic, &[(0, 0), (1, 0)]);
    if opened.session_id == 0 {
        println!("not run: no session is kept, which the protocol allows");
        return;
    }
    let next = Fetch { session_id: opened.session_id, session_epoch: 1, ..Fetch::default() };
    let forgotten = ForgottenTopic::default().with_topic(topic_name(&topic)).with_partitions(vec![0]);
    conn.call(12, &none_added(&next).with_forgotten_topics_data(vec![forgotten]));
    for partition in [0, 1] {
        let batch = Batch::values(&[&partition.to_string()]).encode();
        conn.call(9, &produce_request(-1, &topic, &[(partition, Some(batch))]));
    }
    let next = Fetch { session_id: opened.session_id, session_epoch: 2, ..Fetch::default() };
    assert_eq!(values(&conn.call(12, &none_added(&next))), ["1"]);
}

/// Case 41: with one hot and many cool partitions and room for one batch, every partition progresses; in a session, as
/// consumers use it, and without.
#[test]
fn a_hot_partition_does_not_starve_the_others() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic_with(&mut conn, 8, &[]);
    let batch = Batch::values(&[&"x".repeat(2000)]).encode();
    for _ in 0..100 {
        conn.call(9, &produce_request(1, &topic, &[(0, Some(batch.clone()))]));
    }
    for partition in 1..8 {
        conn.call(9, &produce_request(-1, &topic, &[(partition, Some(batch.clone()))]));
    }
    let mut positions = vec![0i64; 8];
    let mut session = (0, 0);
    let all: Vec<(i32, i64)> = (0..8).map(|p| (p, 0)).collect();
    let mut moved = all.clone();
    for _ in 0..40 {
        let fetch = Fetch {
            session_id: session.0,
            session_epoch: session.1,
            max_bytes: batch.len() as i32,
            max_wait_ms: 1000,
            ..Fetch::default()
        };
        let request = if moved.is_empty() { none_added(&fetch) } else { fetch.request(&topic, Uuid::nil(), &moved) };
        let answer = conn.call(12, &request);
        assert_eq!(answer.error_code, 0);
        session = (answer.session_id, if answer.session_id == 0 { -1 } else { session.1 + 1 });
        moved.clear();
        for data in answer.responses.iter().flat_map(|t| &t.partitions) {
            if let Some(last) = read_batches(data.records.as_deref().unwrap_or_default()).last() {
                positions[data.partition_index as usize] = last.last_offset + 1;
                moved.push((data.partition_index, last.last_offset + 1));
            }
        }
        if session.0 == 0 {
            // A client without a session names all of them, those it got data from last.
            let got: Vec<i32> = moved.iter().map(|m| m.0).collect();
            let mut rest: Vec<(i32, i64)> =
                (0..8).filter(|p| !got.contains(p)).map(|p| (p, positions[p as usize])).collect();
            rest.extend(moved.iter().copied());
            moved = rest;
        }
    }
    assert!(positions.iter().all(|position| *position >= 1), "{positions:?}");
    assert!(positions[0] > 1, "{positions:?}");
}

/// A topic created again under its name is another topic: a fetch by the old id says so, also inside a session, and
/// says it again instead of answering nothing.
#[test]
fn a_recreated_topic_is_not_read_under_its_old_id() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    append(&mut conn, &topic, Batch::values(&["old"]).encode());
    let old = topic_id(&mut conn, &topic);
    let by_id = Fetch { version: 13, ..Fetch::default() };
    let opened = conn.call(13, &Fetch { session_epoch: 0, ..by_id.clone() }.request("", old, &[(0, 0)]));
    assert_eq!(values(&opened), ["old"]);
    assert_eq!(delete_topic(&mut conn, &topic), 0);
    while create_topic(&mut conn, &topic, 1, &[]).error_code == code(ErrorCode::TopicAlreadyExists) {
        assert!(target.is_kafka(), "a deleted name is free when the deletion is answered");
    }
    let new = topic_id(&mut conn, &topic);
    assert_ne!(new, old);
    let gone = [code(ErrorCode::UnknownTopicId), code(ErrorCode::InconsistentTopicId)];
    let answer = conn.call(13, &by_id.request("", old, &[(0, 0)]));
    assert!(gone.contains(&answer.responses[0].partitions[0].error_code));
    if opened.session_id != 0 {
        let next = Fetch { session_id: opened.session_id, session_epoch: 1, ..by_id };
        let answer = conn.call(13, &none_added(&next));
        let codes: Vec<i16> = answer.responses.iter().flat_map(|t| &t.partitions).map(|p| p.error_code).collect();
        assert_eq!(answer.error_code, 0);
        // Kafka may not have caught up with the deletion here and say 3, which sends clients for metadata too.
        let told = codes.iter().all(|code| gone.contains(code) || target.is_kafka() && *code == 3);
        assert!(told && codes.len() == 1, "{codes:?}");
    }
}

/// A record becomes visible to a consumer exactly when the high watermark passes it, and acks=all says that it did. With one
/// replica acks=1 says the same here: readers are told before the producer is.
#[test]
fn an_acknowledged_record_is_visible_at_once() {
    let target = target();
    let (mut writer, mut reader) = (target.conn(), target.conn());
    let topic = target.topic(&mut writer);
    for i in 0..100 {
        let acks = if i % 2 == 0 { -1 } else { 1 };
        let batch = Batch::values(&[&i.to_string()]).encode();
        let answer = writer.call(9, &produce_request(acks, &topic, &[(0, Some(batch))]));
        let offset = answer.responses[0].partition_responses[0].base_offset;
        let data = Fetch::default().one(&mut reader, &topic, offset);
        assert_eq!(data.high_watermark, offset + 1);
        assert_eq!(read_values(data.records.as_ref().unwrap()), [i.to_string()]);
    }
}
