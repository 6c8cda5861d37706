//! Leaders that die, are cut off, or step down.

use std::collections::BTreeSet;

use thalweg_proto::v1::admin_client::AdminClient;
use thalweg_proto::v1::record::Kind;
use thalweg_proto::v1::registry_client::RegistryClient;
use thalweg_proto::v1::*;
use tonic::Code;

use crate::nodes::{Nodes, create_topic, within};

/// Goal: nothing that was answered is lost. Method: leaders are killed while topics are created, each comes back with what
/// its disk kept; whatever was answered is on every node in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_is_replaced_and_nothing_answered_is_lost() {
    let mut nodes = Nodes::three().await;
    nodes.join_broker(1).await;
    let mut answered = BTreeSet::new();
    for round in 0..3 {
        let leader = nodes.leader().await;
        for i in 0..5 {
            let name = format!("before-{round}-{i}");
            assert_eq!(nodes.create(&name).await.topics[0].error, Some(KafkaError::default()));
            answered.insert(name);
        }
        // One is under way while its leader dies: it may or may not come to pass.
        let name = format!("during-{round}");
        let channel = nodes.channel(leader);
        let during = tokio::spawn(create_topic(channel, name.clone()));
        nodes.kill(leader);
        if during.await.unwrap().is_ok() {
            answered.insert(name);
        }
        let next = nodes.leader().await;
        assert_ne!(next, leader);
        let name = format!("after-{round}");
        assert_eq!(nodes.create(&name).await.topics[0].error, Some(KafkaError::default()));
        answered.insert(name);
        nodes.start(leader).await;
        nodes.wait_until_equal(leader, next).await;
    }
    for id in [1, 2, 3] {
        let topics: BTreeSet<String> = nodes.topics(id).into_iter().collect();
        assert!(answered.is_subset(&topics), "node {id} lacks {:?}", answered.difference(&topics));
    }
}

/// Goal: a minority grants and changes nothing, and says so in time. Method: both followers are killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_without_a_majority_answers_nothing() {
    let mut nodes = Nodes::three().await;
    nodes.join_broker(1).await;
    let leader = nodes.leader().await;
    let followers: Vec<u64> = [1, 2, 3].into_iter().filter(|id| *id != leader).collect();
    followers.iter().for_each(|id| nodes.kill(*id));

    let beat = BrokerHeartbeatRequest { broker_id: 1, ..BrokerHeartbeatRequest::default() };
    let mut registry = RegistryClient::new(nodes.channel(leader));
    let refused = within("a refusal", registry.broker_heartbeat(beat)).await.unwrap_err();
    assert!([Code::Unavailable, Code::Aborted].contains(&refused.code()), "{refused:?}");
    let refused = within("a refusal", registry.feed(FeedRequest::default())).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
    let refused = within("a refusal", create_topic(nodes.channel(leader), "lost".into())).await.unwrap_err();
    assert!([Code::Unavailable, Code::Aborted].contains(&refused.code()), "{refused:?}");

    for id in followers {
        nodes.start(id).await;
    }
    assert_eq!(nodes.create("found").await.topics[0].error, Some(KafkaError::default()));
}

/// Goal: a node that has missed what the others' logs no longer hold comes back by a snapshot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_laggard_catches_up_by_snapshot() {
    let mut nodes = Nodes::new(&[1, 2, 3]);
    nodes.snapshot_every_entries = 50;
    let mut nodes = nodes.started().await;
    nodes.join_broker(1).await;
    let leader = nodes.leader().await;
    let away = if leader == 3 { 2 } else { 3 };
    nodes.kill(away);
    for i in 0..120 {
        nodes.create(&format!("t{i}")).await;
    }
    let applied = nodes.coordinator(leader).shared().machine().progress().next_index;
    nodes.start(away).await;
    nodes.wait_until_equal(away, leader).await;
    assert_eq!(nodes.topics(away).len(), 120);
    // It goes on from there: its next start finds the snapshot's state on its own disk.
    nodes.kill(away);
    nodes.start(away).await;
    let again = nodes.coordinator(away).shared().machine().progress().next_index;
    assert!(again + 50 >= applied, "started with {again} of {applied} entries");
    nodes.create("last").await;
    nodes.wait_until_equal(away, nodes.leader().await).await;
}

/// Goal: who follows the feed sees each change once, whoever leads. Method: a subscriber moves to the next leader with the
/// index that it has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn feed_subscribers_move_over_without_gap_or_repeat() {
    let mut nodes = Nodes::three().await;
    nodes.join_broker(1).await;
    let mut seen: Vec<String> = Vec::new();
    let mut index = 0;
    let mut images = 0;
    for round in 0..3 {
        let leader = nodes.leader().await;
        let from = |channel| async move {
            RegistryClient::new(channel).feed(FeedRequest { from_index: index, ..FeedRequest::default() }).await
        };
        let mut feed = nodes.call(from).await;
        for i in 0..4 {
            nodes.create(&format!("t-{round}-{i}")).await;
        }
        let last = format!("t-{round}-3");
        while seen.last() != Some(&last) {
            let item = within("an item", feed.message()).await.unwrap().unwrap();
            images += usize::from(item.image_start);
            assert!(item.index >= index);
            index = item.index;
            seen.extend(item.records.into_iter().filter_map(|record| match record.kind {
                Some(Kind::Topic(topic)) => Some(topic.name),
                _ => None,
            }));
        }
        nodes.kill(leader);
        within("the end", async { while let Ok(Some(_)) = feed.message().await {} }).await;
        nodes.leader().await;
        nodes.start(leader).await;
    }
    let expected: Vec<String> = (0..3).flat_map(|round| (0..4).map(move |i| format!("t-{round}-{i}"))).collect();
    assert_eq!((seen, images), (expected, 1));
}

/// An orderly stop is no outage: the lead is handed over first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_stops_in_order_hands_over_first() {
    let mut nodes = Nodes::three().await;
    let leader = nodes.leader().await;
    let term = |describe: DescribeCoordinatorsResponse| describe.term;
    let describe =
        |channel| async move { AdminClient::new(channel).describe_coordinators(DescribeCoordinatorsRequest {}).await };
    let before = term(nodes.call(describe).await);
    nodes.stop(leader).await;
    // It has waited for the other, so there is one to answer at once and without an election of its own.
    let described = nodes.call(describe).await;
    assert!(described.nodes.iter().any(|node| node.leader && node.id != leader), "{described:?}");
    assert_eq!(described.term, before + 1);
}

/// REPLICATION R8. Method: one follower is given a false hash while it is away; the next round index finds it out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_state_differs_from_the_leaders_stops_itself() {
    let mut nodes = Nodes::three().await;
    nodes.join_broker(1).await;
    let leader = nodes.leader().await;
    let liar = if leader == 3 { 2 } else { 3 };
    nodes.kill(liar);
    nodes.falsify_hash(liar);
    nodes.start(liar).await;
    let enough = 1_010;
    while nodes.coordinator(leader).shared().machine().progress().next_index < enough {
        nodes.create("same").await;
    }
    // Sessions compare whenever something happens to them.
    nodes.join_broker(1).await;
    let reason = nodes.failed(liar).await;
    assert!(reason.contains("differs from the leader's"), "{reason}");
    assert_eq!(nodes.create("on").await.topics[0].error, Some(KafkaError::default()), "the others go on");
}
