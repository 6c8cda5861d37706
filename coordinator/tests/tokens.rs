//! Tokens and the numbers of nodes, in the registries.

use thalweg_coordinator::registry::context::{Context, Seed};
use thalweg_coordinator::registry::tokens::Admitted;
use thalweg_coordinator::registry::{Machine, Outcome, features};
use thalweg_coordinator::session::command;
use thalweg_model::Timestamp;
use thalweg_proto::v1::command::Kind;
use thalweg_proto::v1::*;

struct Cluster {
    machine: Machine,
    index: u64,
    time_ms: i64,
}

impl Cluster {
    fn new(level: u32) -> Cluster {
        let mut cluster = Cluster { machine: Machine::default(), index: 0, time_ms: 1_000_000 };
        cluster.apply(features::founding([3; 16], level));
        cluster
    }

    fn apply(&mut self, kind: Kind) -> Outcome {
        self.index += 1;
        let context = Context {
            index: self.index,
            time: Timestamp(self.time_ms),
            seed: Seed::new(self.index, 1),
            default_min_isr: 1,
        };
        let (outcome, _) = self.machine.apply(&context, &command(kind)).unwrap();
        self.machine.end_entry(self.index);
        outcome
    }

    fn token(&mut self, id: &str, ttl_ms: i64) -> Outcome {
        self.apply(Kind::CreateToken(CreateToken { id: id.into(), secret_hash: hash(id), ttl_ms }))
    }

    fn admit(&mut self, token: &str, broker: bool, coordinator: bool) -> Result<(i32, u64), String> {
        let (token_id, secret_hash) = (token.to_owned(), hash(token));
        match self.apply(Kind::AdmitNode(AdmitNode { token_id, secret_hash, broker, coordinator })) {
            Outcome::Admitted(Admitted { broker_id, coordinator_id }) => Ok((broker_id, coordinator_id)),
            Outcome::Refused(refused) => Err(refused.message),
            other => panic!("{other:?}"),
        }
    }

    fn register(&mut self, broker_id: i32, dir: u8) -> i32 {
        let request = RegisterBrokerRequest {
            broker_id,
            incarnation: 1,
            log_dirs: vec![LogDir { dir_id: vec![dir; 16].into(), ..LogDir::default() }],
            endpoints: vec![Endpoint { host: "h".into(), port: 1, ..Endpoint::default() }],
            levels: Some(Levels::ours()),
            ..RegisterBrokerRequest::default()
        };
        match self.apply(Kind::RegisterBroker(RegisterBroker { request: Some(request) })) {
            Outcome::Registered(answer) => answer.broker_id,
            other => panic!("{other:?}"),
        }
    }
}

fn hash(text: &str) -> bytes::Bytes {
    let mut hash = text.as_bytes().to_vec();
    hash.resize(32, 0);
    hash.into()
}

fn refusal(outcome: Outcome) -> String {
    match outcome {
        Outcome::Refused(refused) => refused.message,
        other => panic!("{other:?}"),
    }
}

/// Goal: no number of a node is ever given twice. Method: numbers by tokens, by registration, by hand, and of nodes that are
/// gone, in turn.
#[test]
fn numbers_of_nodes_are_never_given_twice() {
    let mut cluster = Cluster::new(features::LEVEL);
    cluster.token("t", 60_000);
    assert_eq!(cluster.register(-1, 1), 1, "the first node, by itself");
    cluster.apply(Kind::AdmitCoordinator(AdmitCoordinator { id: 1, identity: vec![1; 16].into() }));
    assert_eq!(cluster.admit("t", true, true), Ok((2, 2)));
    assert_eq!(cluster.admit("t", true, true), Ok((3, 3)), "2 may be on its way");
    assert_eq!(cluster.register(-1, 9), 4, "what tokens gave is not given otherwise");
    assert_eq!(cluster.admit("t", false, true), Ok((-1, 4)));
    assert_eq!(cluster.admit("t", true, false), Ok((5, 0)));
    assert_eq!(cluster.register(7, 7), 7, "by hand");
    cluster.apply(Kind::UnregisterBroker(UnregisterBroker { broker_id: 7 }));
    assert_eq!(cluster.register(-1, 8), 8, "7 is gone, and its number with it");
    cluster.apply(Kind::AdmitCoordinator(AdmitCoordinator { id: 9, identity: vec![9; 16].into() }));
    cluster.apply(Kind::RetireCoordinator(RetireCoordinator { id: 9 }));
    assert_eq!(cluster.admit("t", true, true), Ok((9, 10)));
    assert_eq!(cluster.machine.state().token("t").unwrap().joined_count, 5);
    assert!(cluster.admit("t", false, false).unwrap_err().contains("a broker, a coordinator or both"));
}

#[test]
fn a_token_lets_in_until_it_expires_or_is_revoked_and_says_which() {
    let mut cluster = Cluster::new(features::LEVEL);
    assert_eq!(cluster.token("a", 60_000), Outcome::Done);
    cluster.time_ms += 59_999;
    assert!(cluster.admit("a", true, false).is_ok());
    cluster.time_ms += 180_001;
    let expired = cluster.admit("a", true, false).unwrap_err();
    assert!(expired.contains("expired 3 minutes ago") && expired.contains("token create"), "{expired}");
    assert_eq!(cluster.token("b", 60_000), Outcome::Done);
    let (token_id, secret_hash) = ("b".to_owned(), hash("a"));
    let wrong = AdmitNode { token_id, secret_hash, broker: true, coordinator: false };
    assert!(refusal(cluster.apply(Kind::AdmitNode(wrong))).contains("secret"));
    assert_eq!(cluster.apply(Kind::RevokeToken(RevokeToken { id: "b".into() })), Outcome::Done);
    assert!(cluster.admit("b", true, false).unwrap_err().contains("was revoked"));
    assert!(refusal(cluster.apply(Kind::RevokeToken(RevokeToken { id: "b".into() }))).contains("no token b"));
    assert!(cluster.machine.state().token("a").is_some(), "kept, to say that it expired");
    cluster.time_ms += 8 * 24 * 3_600_000;
    cluster.token("c", 60_000);
    assert_eq!(cluster.machine.state().tokens().count(), 1, "forgotten a week later");
}

#[test]
fn tokens_are_bounded_in_time_and_number() {
    let mut cluster = Cluster::new(features::LEVEL);
    for ttl_ms in [0, -1, 999, 31 * 24 * 3_600_000, i64::MIN, i64::MAX] {
        assert!(refusal(cluster.token("x", ttl_ms)).contains("30 days"), "{ttl_ms}");
    }
    let short = CreateToken { id: "x".into(), secret_hash: vec![1; 31].into(), ttl_ms: 60_000 };
    assert!(refusal(cluster.apply(Kind::CreateToken(short))).contains("hash"));
    for id in 0..1_000 {
        assert_eq!(cluster.token(&id.to_string(), 60_000), Outcome::Done);
    }
    assert!(refusal(cluster.token("more", 60_000)).contains("revoke"));
    assert!(refusal(cluster.token("0", 60_000)).contains("ask again"), "an id stands once");
}

/// What level 3 does, nodes of the version before do too, so it stays as it was.
#[test]
fn before_level_4_there_are_no_tokens_and_numbers_go_on_as_they_did() {
    let mut cluster = Cluster::new(3);
    assert!(refusal(cluster.token("a", 60_000)).contains("upgrade it first"));
    assert_eq!(cluster.register(7, 7), 7);
    cluster.apply(Kind::UnregisterBroker(UnregisterBroker { broker_id: 7 }));
    assert_eq!(cluster.register(-1, 8), 1);
    assert_eq!(cluster.machine.state().node_ids(), NodeIdsRecord::default());
}

#[test]
fn a_coordinator_that_offers_itself_keeps_its_number_and_its_data() {
    let mut cluster = Cluster::new(features::LEVEL);
    let offer = |id, identity: u8, address: &str| {
        Kind::OfferCoordinator(OfferCoordinator { id, identity: vec![identity; 16].into(), address: address.into() })
    };
    assert_eq!(cluster.apply(offer(2, 2, "h:9093")), Outcome::Done);
    assert_eq!(cluster.apply(offer(2, 2, "moved:9093")), Outcome::Done);
    assert_eq!(cluster.machine.state().coordinator(2).unwrap().address, "moved:9093");
    assert!(refusal(cluster.apply(offer(2, 7, "h:9093"))).contains("other data"));
    for address in ["", "h", "h:0", ":1", "h:70000"] {
        assert!(refusal(cluster.apply(offer(3, 3, address))).contains("host:port"), "{address}");
    }
    cluster.apply(Kind::RetireCoordinator(RetireCoordinator { id: 2 }));
    assert!(refusal(cluster.apply(offer(2, 2, "h:9093"))).contains("never used again"));
}
