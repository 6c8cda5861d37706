//! Frames, headers, version negotiation and metadata: what breaks clients before the first record.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    ApiVersionsRequest, ApiVersionsResponse, FetchRequest, MetadataRequest, ProduceRequest,
};
use kafka_protocol::protocol::{Decodable, Encodable, Request};
use thalweg_tests::calls::{Fetch, append, create_topic, metadata, produce_request, read_from, text, topic_name};
use thalweg_tests::{Batch, Conn, ErrorCode, target, unique};
use uuid::Uuid;

const API_VERSIONS: i16 = 18;

fn api_versions(conn: &mut Conn, version: i16) -> ApiVersionsResponse {
    let request = if version < 3 {
        ApiVersionsRequest::default()
    } else {
        ApiVersionsRequest::default()
            .with_client_software_name(text("thalweg-tests"))
            .with_client_software_version(text("1.0"))
    };
    conn.call(version, &request)
}

fn range(conn: &mut Conn, key: i16) -> (i16, i16) {
    let answer = api_versions(conn, 0);
    let api = answer.api_keys.iter().find(|api| api.api_key == key).expect("the API is advertised");
    (api.min_version, api.max_version)
}

/// Cases 1 and 3: a version above ours gets a v0 body with error 35 and the one entry for key 18, and the connection
/// then serves every version we named.
#[test]
fn api_versions_above_ours_is_answered_in_v0_and_the_connection_lives() {
    let target = target();
    let mut conn = target.conn();
    let (min, max) = range(&mut conn, API_VERSIONS);
    for version in [max + 1, 99, i16::MAX] {
        let id = conn.send_parts(API_VERSIONS, version, 2, &[2, b'x', 2, b'1', 0]);
        let body = conn.receive_body(0, id);
        let mut expected = BytesMut::new();
        expected.put_i16(ErrorCode::UnsupportedVersion.code());
        expected.put_i32(1);
        expected.put_i16(API_VERSIONS);
        expected.put_i16(min);
        expected.put_i16(max);
        assert_eq!(body, expected.freeze(), "v{version}");
        for lower in min..=max.min(4) {
            assert_eq!(api_versions(&mut conn, lower).error_code, 0, "v{lower} after the refusal");
        }
    }
}

/// Case 103: librdkafka 2.0.2 reads past a tagged field by a byte, so none may be written for a default value, and
/// none that Kafka does not define.
#[test]
fn api_versions_writes_no_tag_for_a_default() {
    let target = target();
    let mut conn = target.conn();
    let request = ApiVersionsRequest::default()
        .with_client_software_name(text("librdkafka"))
        .with_client_software_version(text("2.0.2"));
    let id = conn.send(3, &request);
    let mut body = conn.receive_body(0, id);
    assert_eq!(body.get_i16(), 0);
    let apis = body.get_u8() as usize - 1;
    assert!(apis < 127, "the count fits one byte");
    for _ in 0..apis {
        let (_key, min, max) = (body.get_i16(), body.get_i16(), body.get_i16());
        assert!(min <= max, "aiokafka asserts that");
        assert_eq!(body.get_u8(), 0, "an entry carries no tag");
    }
    assert_eq!(body.get_i32(), 0, "throttle time");
    for _ in 0..body.get_u8() {
        let (tag, size) = (body.get_u8(), get_unsigned_varint(&mut body));
        let value = body.split_to(size);
        match tag {
            0 | 2 => assert!(value.len() > 1, "an empty feature list is the default"),
            1 => assert_ne!(value.as_ref(), (-1i64).to_be_bytes(), "epoch -1 is the default"),
            other => panic!("tag {other} in ApiVersions v3"),
        }
    }
    assert!(body.is_empty());
}

fn get_unsigned_varint(body: &mut Bytes) -> usize {
    let mut value = 0;
    for shift in (0..35).step_by(7) {
        let byte = body.get_u8();
        value |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}

/// What old clients must find: librdkafka below 2.11.1 tests exact versions, and any compression needs Produce from 0.
#[test]
fn advertised_ranges_hold_what_old_clients_test_for() {
    let target = target();
    let mut conn = target.conn();
    let must_hold = [
        (0, 0, 11),
        (1, 4, 16),
        (2, 1, 10),
        (3, 0, 13),
        (8, 2, 9),
        (9, 1, 9),
        (10, 0, 6),
        (11, 0, 9),
        (12, 0, 4),
        (13, 0, 5),
        (14, 0, 5),
        (15, 0, 6),
        (16, 0, 5),
        (18, 0, 4),
        (19, 2, 7),
        (20, 1, 6),
        (21, 0, 2),
        (22, 0, 4),
        (23, 2, 4),
        (32, 1, 4),
        (33, 0, 2),
        (35, 1, 4),
        (37, 0, 3),
        (42, 0, 2),
        (44, 0, 1),
        (47, 0, 0),
        (60, 0, 2),
        (61, 0, 0),
        (74, 0, 1),
        (75, 0, 0),
    ];
    for (key, min, max) in must_hold {
        let (got_min, got_max) = range(&mut conn, key);
        assert!(got_min <= min && max <= got_max, "key {key}: {got_min}-{got_max} lacks part of {min}-{max}");
    }
    // Kafka shows its share-state APIs (83-87) on the clients' listener too.
    let internal: Vec<i16> = [4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82]
        .into_iter()
        .chain(if target.is_kafka() { 0..0 } else { 83..88 })
        .collect();
    for api in api_versions(&mut conn, 0).api_keys {
        assert!(!internal.contains(&api.api_key), "key {} is between brokers", api.api_key);
    }
}

/// v3+ with a software name that does not match Kafka's pattern: error 42.
#[test]
fn api_versions_refuses_a_malformed_software_name() {
    let target = target();
    for (name, version) in [("", "1"), ("a", ""), ("-a", "1"), ("a.", "1"), ("a b", "1"), ("ä", "1"), ("a", "1_0")] {
        let mut conn = target.conn();
        let request = ApiVersionsRequest::default()
            .with_client_software_name(text(name))
            .with_client_software_version(text(version));
        let answer = conn.call(3, &request);
        assert_eq!(answer.error_code, ErrorCode::InvalidRequest.code(), "{name:?} {version:?}");
    }
}

/// Case 5: Produce one version above ours: closed, nothing appended.
#[test]
fn a_produce_version_above_ours_closes_and_appends_nothing() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    let (_, max) = range(&mut conn, ProduceRequest::KEY);
    let mut body = BytesMut::new();
    produce_request(1, &topic, &[(0, Some(Batch::values(&["x"]).encode()))]).encode(&mut body, 12).unwrap();
    for version in [max + 1, -1, i16::MAX] {
        let mut bad = target.conn();
        bad.send_parts(ProduceRequest::KEY, version, 2, &body);
        bad.expect_closed();
    }
    assert!(read_from(&mut conn, &topic, 0).is_empty());
}

/// An unknown API, and a version outside the range of any API but ApiVersions, closes without an answer.
#[test]
fn an_unknown_api_or_version_closes_without_an_answer() {
    let target = target();
    for (key, version, header) in [(999, 0, 1), (-1, 0, 1), (3, 14, 2), (1, 3, 1), (10, 7, 2), (4, 0, 1)] {
        let mut conn = target.conn();
        conn.send_parts(key, version, header, &[0; 64]);
        conn.expect_closed();
    }
}

/// A size of 0, below 0 or above socket.request.max.bytes (100 MiB) closes; a 2 GiB one is not waited for.
#[test]
fn a_bad_frame_length_closes() {
    let target = target();
    for length in [0, -1, i32::MIN, (100 << 20) + 1, i32::MAX] {
        let mut conn = target.conn();
        conn.send_bytes(&length.to_be_bytes());
        conn.expect_closed();
    }
}

/// Garbage, a TLS hello and an HTTP request on the plain port close; the node serves on.
#[test]
fn garbage_and_foreign_protocols_close_and_the_node_lives_on() {
    let target = target();
    let tls_hello: &[u8] = &[
        0x16, 3, 1, 0, 0x2f, 1, 0, 0, 0x2b, 3, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19,
        20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 0, 0, 4, 0x13, 1, 0x13, 2, 1, 0,
    ];
    for bytes in [tls_hello, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"] {
        let mut conn = target.conn();
        conn.send_bytes(bytes);
        conn.expect_closed();
    }
    for seed in 0..64u8 {
        let mut conn = target.conn();
        let garbage: Vec<u8> = (0..200u32).map(|i| (i * 167 + u32::from(seed) * 59 + (i * i) % 251) as u8).collect();
        conn.send_frame(&garbage);
        conn.expect_closed();
    }
    // A well-formed header, then a body that ends early or counts what is not there.
    for body in [&[][..], &[0xff; 3], &[0x7f, 0xff, 0xff, 0xff], &[0x7f; 40]] {
        for (key, version, header) in [(0, 9, 2), (1, 12, 2), (2, 7, 2), (3, 12, 2), (11, 6, 2), (19, 5, 2), (8, 8, 2)]
        {
            let mut conn = target.conn();
            conn.send_parts(key, version, header, body);
            conn.expect_closed();
        }
    }
    assert_eq!(api_versions(&mut target.conn(), 3).error_code, 0);
}

/// client_id has an int16 length even in the flexible header, may be null or empty, and the tags after it are read.
#[test]
fn a_client_id_may_be_null_or_empty_in_every_header() {
    let target = target();
    for client_id in [None, Some(String::new()), Some("ä 日本".to_owned())] {
        let mut conn = target.conn();
        conn.client_id = client_id;
        for version in [0, 1, 8, 9, 12] {
            assert!(!metadata(&mut conn, version, Some(&[]), false).brokers.is_empty(), "v{version}");
        }
    }
}

/// Unknown tagged fields, in the header and in the body, are skipped.
#[test]
fn unknown_tags_in_a_request_are_skipped() {
    let target = target();
    let mut conn = target.conn();
    let mut frame = BytesMut::new();
    frame.put_i16(MetadataRequest::KEY);
    frame.put_i16(12);
    frame.put_i32(77);
    frame.put_i16(-1);
    frame.put_slice(&[2, 100, 3, 1, 2, 3, 101, 0]); // two tags: 100 with three bytes, 101 with none
    let request = MetadataRequest::default()
        .with_topics(Some(vec![]))
        .with_unknown_tagged_field(9, Bytes::from_static(b"whatever"))
        .with_unknown_tagged_field(100_000, Bytes::from_static(&[0; 300]));
    request.encode(&mut frame, 12).unwrap();
    conn.send_frame(&frame);
    assert!(!conn.receive::<MetadataRequest>(12, 77).brokers.is_empty());
}

/// Bytes after a request's last field are ignored.
#[test]
fn bytes_after_the_last_field_are_ignored() {
    let target = target();
    let mut conn = target.conn();
    for version in [1, 9, 12] {
        let mut body = BytesMut::new();
        MetadataRequest::default().with_topics(Some(vec![])).encode(&mut body, version).unwrap();
        body.put_slice(&[0xab; 17]);
        let id = conn.send_parts(MetadataRequest::KEY, version, if version < 9 { 1 } else { 2 }, &body);
        assert!(!conn.receive::<MetadataRequest>(version, id).brokers.is_empty());
    }
}

/// A tag that Kafka defines for later versions only closes the connection: replica_state (1) is of Fetch v15.
#[test]
fn a_known_tag_in_a_version_without_it_closes() {
    let target = target();
    let mut conn = target.conn();
    let request = Fetch::default().request("t", Uuid::nil(), &[(0, 0)]);
    let request = request.with_unknown_tagged_field(1, Bytes::from_static(&[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0]));
    let mut body = BytesMut::new();
    request.encode(&mut body, 12).unwrap();
    conn.send_parts(FetchRequest::KEY, 12, 2, &body);
    conn.expect_closed();
}

/// Answers leave in the order of the requests, also when the first one waits for data.
#[test]
fn pipelined_requests_are_answered_in_order_behind_a_waiting_fetch() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    let waiting = Fetch { max_wait_ms: 300, ..Fetch::default() };
    let fetch = conn.send(12, &waiting.request(&topic, Uuid::nil(), &[(0, 0)]));
    let others: Vec<i32> =
        (0..20).map(|_| conn.send(12, &MetadataRequest::default().with_topics(Some(vec![])))).collect();
    assert_eq!(conn.receive::<FetchRequest>(12, fetch).responses[0].partitions[0].error_code, 0);
    for id in others {
        conn.receive::<MetadataRequest>(12, id);
    }
}

/// Produces in flight on one connection are appended in the order sent.
#[test]
fn pipelined_produces_keep_their_order() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    let ids: Vec<i32> = (0..50)
        .map(|i| conn.send(9, &produce_request(-1, &topic, &[(0, Some(Batch::values(&[&i.to_string()]).encode()))])))
        .collect();
    for (offset, id) in (0i64..).zip(ids) {
        let answer = conn.receive::<ProduceRequest>(9, id);
        assert_eq!(answer.responses[0].partition_responses[0].base_offset, offset);
    }
    let expected: Vec<String> = (0..50).map(|i| i.to_string()).collect();
    assert_eq!(read_from(&mut conn, &topic, 0), expected);
}

/// Half-closed: everything that was read is still answered, a waiting fetch too, then the broker closes.
#[test]
fn a_half_closed_connection_gets_its_answers() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    let waiting = Fetch { max_wait_ms: 300, ..Fetch::default() };
    let fetch = conn.send(12, &waiting.request(&topic, Uuid::nil(), &[(0, 0)]));
    let asked = conn.send(12, &MetadataRequest::default().with_topics(Some(vec![])));
    conn.shutdown_write();
    conn.receive::<FetchRequest>(12, fetch);
    conn.receive::<MetadataRequest>(12, asked);
    conn.expect_closed();
}

/// Requests cut into single bytes and requests glued together are the same requests.
#[test]
fn framing_does_not_depend_on_packets() {
    let target = target();
    let mut conn = target.conn();
    let mut body = BytesMut::new();
    MetadataRequest::default().with_topics(Some(vec![])).encode(&mut body, 12).unwrap();
    let mut frame = BytesMut::new();
    frame.put_slice(&[0, 3, 0, 12, 0, 0, 0, 9, 0xff, 0xff, 0]);
    frame.put_slice(&body);
    let mut framed = BytesMut::new();
    framed.put_i32(frame.len() as i32);
    framed.put_slice(&frame);
    for byte in &framed {
        conn.send_bytes(&[*byte]);
    }
    conn.receive::<MetadataRequest>(12, 9);
    conn.send_bytes(&framed.repeat(5));
    for _ in 0..5 {
        conn.receive::<MetadataRequest>(12, 9);
    }
}

/// Metadata: the controller is a broker of the list, the cluster id is stable, and the address is that of the listener
/// the request came in on.
#[test]
fn metadata_names_a_live_controller_and_the_address_we_came_to() {
    let target = target();
    let mut conn = target.conn();
    let mut cluster_ids = Vec::new();
    for version in 1..=13 {
        let answer = metadata(&mut conn, version, Some(&[]), false);
        assert!(answer.brokers.iter().any(|broker| broker.node_id == answer.controller_id), "v{version}");
        assert_eq!(answer.brokers.len(), 1);
        let broker = &answer.brokers[0];
        assert_eq!(format!("{}:{}", &*broker.host, broker.port), conn.peer().to_string());
        assert_eq!(answer.error_code, 0);
        if (8..=10).contains(&version) {
            assert_eq!(answer.cluster_authorized_operations, i32::MIN);
        }
        if version >= 2 {
            cluster_ids.push(answer.cluster_id.expect("a cluster id").to_string());
        }
    }
    cluster_ids.dedup();
    assert_eq!(cluster_ids.len(), 1);
    assert!(!cluster_ids[0].is_empty());
}

/// Topics null = all, empty = none from v1; in v0 empty = all.
#[test]
fn metadata_tells_null_topics_from_empty_ones() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    let names = |answer: kafka_protocol::messages::MetadataResponse| -> Vec<String> {
        answer.topics.iter().map(|t| t.name.as_ref().expect("a name").to_string()).collect()
    };
    assert!(names(metadata(&mut conn, 0, Some(&[]), true)).contains(&topic));
    for version in 1..=13 {
        assert!(names(metadata(&mut conn, version, Some(&[]), false)).is_empty(), "v{version}: empty is none");
        assert!(names(metadata(&mut conn, version, None, false)).contains(&topic), "v{version}: null is all");
    }
}

/// v10 and v11 requests may not name a topic by id, nor leave its name null.
#[test]
fn metadata_by_id_is_refused_before_v12() {
    let target = target();
    for version in [10, 11] {
        for topic in [
            MetadataRequestTopic::default().with_topic_id(Uuid::from_u128(7)).with_name(Some(topic_name("x"))),
            MetadataRequestTopic::default().with_name(None),
        ] {
            let mut conn = target.conn();
            let answer = conn.call(version, &MetadataRequest::default().with_topics(Some(vec![topic])));
            let codes: Vec<i16> = answer.topics.iter().map(|t| t.error_code).collect();
            assert_eq!(codes, [ErrorCode::InvalidRequest.code()], "v{version}");
        }
    }
}

/// v12+: a topic is found by its id alone; an unknown id is error 100 with a null name; an id is never zero.
#[test]
fn metadata_finds_topics_by_id() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    let by_name = metadata(&mut conn, 12, Some(&[&topic]), false);
    let id = by_name.topics[0].topic_id;
    assert!(!id.is_nil());
    assert_eq!(by_name.topics[0].topic_authorized_operations, i32::MIN);
    for version in [12, 13] {
        let asked = [id, Uuid::from_u128(0xdead_beef)]
            .map(|id| MetadataRequestTopic::default().with_topic_id(id).with_name(None))
            .to_vec();
        let answer = conn.call(version, &MetadataRequest::default().with_topics(Some(asked)));
        let found = answer.topics.iter().find(|t| t.topic_id == id).expect("the known id");
        assert_eq!((found.error_code, found.name.clone()), (0, Some(topic_name(&topic))));
        assert_eq!(found.partitions.len(), 1);
        let missing = answer.topics.iter().find(|t| t.topic_id != id).expect("the unknown id");
        assert_eq!((missing.error_code, missing.name.clone()), (ErrorCode::UnknownTopicId.code(), None));
    }
}

/// v0 to v3 create a missing topic implicitly; a name that no topic can have is error 17 and is never created.
#[test]
fn metadata_creates_topics_implicitly_in_old_versions_and_never_bad_names() {
    let target = target();
    let mut conn = target.conn();
    for version in [0, 1, 3, 4] {
        let name = unique("auto");
        let first = metadata(&mut conn, version, Some(&[&name]), true).topics[0].error_code;
        if target.is_kafka() {
            // It answers LEADER_NOT_AVAILABLE at first; we create fully before we answer.
            while metadata(&mut conn, version, Some(&[&name]), true).topics[0].error_code != 0 {}
        } else {
            assert_eq!(first, 0, "v{version}");
        }
        append_when_ready(&target, &mut conn, &name);
    }
    let long = "a".repeat(250);
    for bad in ["", ".", "..", "../x", "a/b", "a b", "ä", &long] {
        for version in [4, 9, 12] {
            let answer = metadata(&mut conn, version, Some(&[bad]), true);
            assert_eq!(answer.topics[0].error_code, ErrorCode::InvalidTopicException.code(), "v{version} {bad:?}");
        }
        let created = create_topic(&mut conn, bad, 1, &[]).error_code;
        assert_eq!(created, ErrorCode::InvalidTopicException.code(), "{bad:?}");
    }
    let all = metadata(&mut conn, 12, None, false);
    assert!(all.topics.iter().all(|t| t.name.as_ref().is_some_and(|n| !n.contains('/') && !n.is_empty())));
}

fn append_when_ready(target: &thalweg_tests::Target, conn: &mut Conn, topic: &str) {
    if target.is_kafka() {
        while thalweg_tests::calls::list_offset(conn, topic, 0, -1).0 != 0 {}
    }
    assert_eq!(append(conn, topic, Batch::values(&["x"]).encode()), 0);
}

/// Case 79: allow_auto_topic_creation=false for a missing topic: error 3, nothing created.
#[test]
fn metadata_without_auto_creation_creates_nothing() {
    let target = target();
    let mut conn = target.conn();
    let name = unique("missing");
    for version in 4..=13 {
        let answer = metadata(&mut conn, version, Some(&[&name]), false);
        assert_eq!(answer.topics[0].error_code, ErrorCode::UnknownTopicOrPartition.code(), "v{version}");
    }
    let all = metadata(&mut conn, 12, None, false);
    assert!(!all.topics.iter().any(|t| t.name == Some(topic_name(&name))));
}

/// Decoding stays within what arrived: a v0 body of an error answer reads as v0 and nothing else.
#[test]
fn every_api_versions_version_is_served() {
    let target = target();
    let mut conn = target.conn();
    for version in 0..=4 {
        let answer = api_versions(&mut conn, version);
        assert_eq!(answer.error_code, 0);
        assert!(answer.api_keys.iter().any(|api| api.api_key == API_VERSIONS && api.min_version == 0));
        if version < 4 {
            assert!(answer.supported_features.iter().all(|f| f.min_version > 0), "v{version} omits features from 0");
        }
    }
    // The header of an answer to ApiVersions is v0 in every version: the body starts right after the correlation id.
    let id = conn.send(
        3,
        &ApiVersionsRequest::default().with_client_software_name(text("a")).with_client_software_version(text("1")),
    );
    let mut frame = conn.receive_frame().expect("an answer");
    assert_eq!(frame.get_i32(), id);
    assert_eq!(ApiVersionsResponse::decode(&mut frame, 3).expect("no tag byte before it").error_code, 0);
}
