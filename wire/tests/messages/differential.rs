//! Our bytes against those of kafka-protocol, which serves as an oracle only: it must never see a client's bytes.

use bytes::{Bytes, BytesMut};
use kafka_protocol::protocol::{Decodable, Encodable, Message};
use thalweg_wire::messages::all;

use crate::support::sample;

/// A message of the oracle: its versions, and reading and writing in one go.
struct Oracle {
    name: &'static str,
    min: i16,
    max: i16,
    transcode: fn(&Bytes, i16) -> Bytes,
    describe: fn(&Bytes, i16) -> String,
}

fn oracle<M: Message + Decodable + Encodable + std::fmt::Debug>(name: &'static str) -> Oracle {
    Oracle {
        name,
        min: M::VERSIONS.min,
        max: M::VERSIONS.max,
        transcode: |body, version| {
            let mut rest = body.clone();
            let value = M::decode(&mut rest, version).expect("valid for the oracle");
            assert!(rest.is_empty(), "the oracle leaves {} bytes", rest.len());
            let mut out = BytesMut::new();
            value.encode(&mut out, version).expect("the oracle writes what it read");
            out.freeze()
        },
        describe: |body, version| format!("{:?}", M::decode(&mut body.clone(), version).expect("valid for the oracle")),
    }
}

macro_rules! oracles {
    ($($request:ident $response:ident,)+) => {
        vec![$(
            oracle::<kafka_protocol::messages::$request>(stringify!($request)),
            oracle::<kafka_protocol::messages::$response>(stringify!($response)),
        )+]
    };
}

fn oracles() -> Vec<Oracle> {
    oracles! {
        ProduceRequest ProduceResponse,
        FetchRequest FetchResponse,
        ListOffsetsRequest ListOffsetsResponse,
        MetadataRequest MetadataResponse,
        OffsetCommitRequest OffsetCommitResponse,
        OffsetFetchRequest OffsetFetchResponse,
        FindCoordinatorRequest FindCoordinatorResponse,
        JoinGroupRequest JoinGroupResponse,
        HeartbeatRequest HeartbeatResponse,
        LeaveGroupRequest LeaveGroupResponse,
        SyncGroupRequest SyncGroupResponse,
        DescribeGroupsRequest DescribeGroupsResponse,
        ListGroupsRequest ListGroupsResponse,
        SaslHandshakeRequest SaslHandshakeResponse,
        ApiVersionsRequest ApiVersionsResponse,
        CreateTopicsRequest CreateTopicsResponse,
        DeleteTopicsRequest DeleteTopicsResponse,
        DeleteRecordsRequest DeleteRecordsResponse,
        InitProducerIdRequest InitProducerIdResponse,
        OffsetForLeaderEpochRequest OffsetForLeaderEpochResponse,
        AddPartitionsToTxnRequest AddPartitionsToTxnResponse,
        AddOffsetsToTxnRequest AddOffsetsToTxnResponse,
        EndTxnRequest EndTxnResponse,
        WriteTxnMarkersRequest WriteTxnMarkersResponse,
        TxnOffsetCommitRequest TxnOffsetCommitResponse,
        DescribeConfigsRequest DescribeConfigsResponse,
        AlterConfigsRequest AlterConfigsResponse,
        AlterReplicaLogDirsRequest AlterReplicaLogDirsResponse,
        DescribeLogDirsRequest DescribeLogDirsResponse,
        SaslAuthenticateRequest SaslAuthenticateResponse,
        CreatePartitionsRequest CreatePartitionsResponse,
        DeleteGroupsRequest DeleteGroupsResponse,
        ElectLeadersRequest ElectLeadersResponse,
        IncrementalAlterConfigsRequest IncrementalAlterConfigsResponse,
        AlterPartitionReassignmentsRequest AlterPartitionReassignmentsResponse,
        ListPartitionReassignmentsRequest ListPartitionReassignmentsResponse,
        OffsetDeleteRequest OffsetDeleteResponse,
        DescribeQuorumRequest DescribeQuorumResponse,
        UpdateFeaturesRequest UpdateFeaturesResponse,
        DescribeClusterRequest DescribeClusterResponse,
        DescribeProducersRequest DescribeProducersResponse,
        UnregisterBrokerRequest UnregisterBrokerResponse,
        DescribeTransactionsRequest DescribeTransactionsResponse,
        ListTransactionsRequest ListTransactionsResponse,
        ConsumerGroupHeartbeatRequest ConsumerGroupHeartbeatResponse,
        ConsumerGroupDescribeRequest ConsumerGroupDescribeResponse,
        ListConfigResourcesRequest ListConfigResourcesResponse,
        DescribeTopicPartitionsRequest DescribeTopicPartitionsResponse,
    }
}

/// Goal: both codecs agree on every byte. Method: what the declaration writes, both read and write back unchanged.
#[test]
fn the_oracle_and_we_agree_on_every_message_and_version() {
    // Ours alone: nobody else can read it.
    let ours: Vec<_> = all().into_iter().filter(|info| !info.key.is_private()).collect();
    let oracles = oracles();
    assert_eq!(ours.len(), oracles.len());
    let mut versions = 0;
    for (info, oracle) in ours.iter().zip(&oracles) {
        assert_eq!(info.name, oracle.name);
        for version in info.version_min.max(oracle.min)..=info.version_max.min(oracle.max) {
            for seed in 0..20 {
                let bytes = Bytes::from(sample(info, version, seed).bytes);
                let theirs = (oracle.transcode)(&bytes, version);
                assert_eq!(theirs, bytes, "{} v{version} seed {seed}", info.name);
                assert_eq!((info.transcode)(&theirs, version).unwrap(), bytes, "{} v{version} seed {seed}", info.name);
            }
            versions += 1;
        }
    }
    assert!(versions > 300, "{versions}");
}

/// Goal: the bytes carry the same names. Method: both decoders print their value; numbers and booleans under names
/// that both have must agree.
#[test]
fn the_oracle_and_we_agree_on_what_each_number_means() {
    let mut compared = 0;
    for (info, oracle) in all().iter().zip(&oracles()) {
        for version in info.version_min.max(oracle.min)..=info.version_max.min(oracle.max) {
            let bytes = Bytes::from(sample(info, version, 3).bytes);
            let ours = named_numbers(&(info.describe)(&bytes, version).unwrap());
            let theirs = named_numbers(&(oracle.describe)(&bytes, version));
            let both = |mine: &[(String, String)], other: &[(String, String)]| -> Vec<(String, String)> {
                let known = |pair: &&(String, String)| other.iter().any(|(name, _)| *name == pair.0);
                mine.iter().filter(known).cloned().collect()
            };
            assert_eq!(both(&ours, &theirs), both(&theirs, &ours), "{} v{version}", info.name);
            compared += both(&ours, &theirs).len();
        }
    }
    assert!(compared > 2_000, "{compared}");
}

/// The `name: value` pairs of a `Debug` text whose value is a number or a boolean, wrapped or not; sorted.
fn named_numbers(text: &str) -> Vec<(String, String)> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut pairs: Vec<(String, String)> = text
        .match_indices(": ")
        .filter_map(|(at, _)| {
            let name = text[..at].rsplit(|c| !is_word(c)).next()?;
            let value = text[at + 2..].trim_start_matches(|c: char| c.is_ascii_alphabetic() && c != 't' && c != 'f');
            let value = value.trim_start_matches('(').split(|c: char| !is_word(c) && c != '-').next()?;
            let counts = value.parse::<i64>().is_ok() || value == "true" || value == "false";
            counts.then(|| (name.to_owned(), value.to_owned()))
        })
        .collect();
    pairs.sort();
    pairs
}
