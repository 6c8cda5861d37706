//! Bytes written down by hand: what must never change by accident.

use bytes::{Bytes, BytesMut};
use thalweg_wire::messages::api_versions::{ApiVersion, FinalizedFeatureKey, SupportedFeatureKey};
use thalweg_wire::messages::fetch::{FetchPartition, FetchTopic, ForgottenTopic};
use thalweg_wire::messages::produce::{PartitionProduceData, TopicProduceData};
use thalweg_wire::messages::{ApiVersionsResponse, FetchRequest, FetchResponse, ProduceRequest, ProduceResponse};
use thalweg_wire::{Message, header};

fn encoded(message: &impl Message, version: i16) -> Vec<u8> {
    let mut out = BytesMut::new();
    message.encode(&mut out, version).unwrap();
    out.to_vec()
}

fn api_versions(error_code: i16) -> ApiVersionsResponse {
    let key = ApiVersion { api_key: 18, min_version: 0, max_version: 4 };
    ApiVersionsResponse { error_code, api_keys: vec![key], ..Default::default() }
}

/// What a client of a newer version gets: readable by every client (KIP-511).
#[test]
fn an_unsupported_api_versions_request_gets_version_0_with_one_entry() {
    assert_eq!(encoded(&api_versions(35), 0), [0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 4]);
}

/// Old librdkafka reads each tagged field one byte short and dies of default ones.
#[test]
fn api_versions_carries_no_tag_that_has_its_default() {
    let expected = [0, 0, 2, 0, 18, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0];
    for version in [3, 4] {
        assert_eq!(encoded(&api_versions(0), version), expected);
    }
}

#[test]
fn api_versions_features_are_tags_0_1_2() {
    let mut response = api_versions(0);
    response.supported_features.push(SupportedFeatureKey { name: "f".into(), min_version: 0, max_version: 1 });
    response.finalized_features_epoch = 9;
    response.finalized_features.push(FinalizedFeatureKey {
        name: "f".into(),
        max_version_level: 1,
        min_version_level: 1,
    });
    let mut expected = vec![0, 0, 2, 0, 18, 0, 0, 0, 4, 0, 0, 0, 0, 0, 3];
    expected.extend_from_slice(&[0, 8, 2, 2, b'f', 0, 0, 0, 1, 0]);
    expected.extend_from_slice(&[1, 8, 0, 0, 0, 0, 0, 0, 0, 9]);
    expected.extend_from_slice(&[2, 8, 2, 2, b'f', 0, 1, 0, 1, 0]);
    assert_eq!(encoded(&response, 4), expected);
}

fn produce() -> ProduceRequest {
    let partition = PartitionProduceData { index: 2, records: Some(Bytes::from_static(b"RR")) };
    let topic = TopicProduceData { name: "t".into(), partition_data: vec![partition], ..Default::default() };
    ProduceRequest { acks: -1, timeout_ms: 1000, topic_data: vec![topic], ..Default::default() }
}

#[test]
fn a_produce_request_in_both_styles() {
    let plain = [
        &[0xff, 0xff, 0xff, 0xff, 0, 0, 3, 0xe8, 0, 0, 0, 1, 0, 1, b't'][..],
        &[0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 2, b'R', b'R'],
    ];
    assert_eq!(encoded(&produce(), 3), plain.concat());
    let compact = [&[0, 0xff, 0xff, 0, 0, 3, 0xe8, 2, 2, b't', 2, 0, 0, 0, 2, 3, b'R', b'R', 0, 0, 0][..]];
    assert_eq!(encoded(&produce(), 9), compact.concat());
    assert_eq!(ProduceRequest::decode_body(&Bytes::from(plain.concat()), 3).unwrap(), produce());
    assert_eq!(ProduceRequest::decode_body(&Bytes::from(compact.concat()), 9).unwrap(), produce());
}

#[test]
fn an_empty_produce_answer_is_a_whole_frame() {
    let mut out = BytesMut::new();
    header::encode_response(&mut out, 9, 0x0102_0304, &ProduceResponse::default()).unwrap();
    assert_eq!(out, &[0, 0, 0, 11, 1, 2, 3, 4, 0, 1, 0, 0, 0, 0, 0][..]);
}

#[test]
fn a_fetch_request_of_version_12() {
    let partition = FetchPartition {
        partition: 1,
        current_leader_epoch: 5,
        fetch_offset: 9,
        partition_max_bytes: 64,
        ..Default::default()
    };
    let request = FetchRequest {
        max_wait_ms: 500,
        min_bytes: 1,
        max_bytes: 256,
        isolation_level: 1,
        session_id: 3,
        session_epoch: 4,
        topics: vec![FetchTopic { topic: "t".into(), partitions: vec![partition], ..Default::default() }],
        forgotten_topics_data: vec![ForgottenTopic { topic: "u".into(), partitions: vec![7], ..Default::default() }],
        rack_id: "r".into(),
        ..Default::default()
    };
    let expected = [
        &[0xff, 0xff, 0xff, 0xff, 0, 0, 1, 0xf4, 0, 0, 0, 1, 0, 0, 1, 0, 1, 0, 0, 0, 3, 0, 0, 0, 4][..],
        &[2, 2, b't', 2, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 9, 0xff, 0xff, 0xff, 0xff],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 64, 0, 0],
        &[2, 2, b'u', 2, 0, 0, 0, 7, 0, 2, b'r', 0],
    ];
    assert_eq!(encoded(&request, 12), expected.concat());
    assert_eq!(FetchRequest::decode_body(&Bytes::from(expected.concat()), 12).unwrap(), request);
}

#[test]
fn an_empty_fetch_answer_of_version_4_and_of_version_17() {
    assert_eq!(encoded(&FetchResponse::default(), 4), [0; 8]);
    assert_eq!(encoded(&FetchResponse::default(), 17), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
}
