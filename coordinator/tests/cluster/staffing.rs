//! Coordinators that join with a token, are spare, and take the places of those that are gone.

use std::time::Duration;

use thalweg_coordinator::JoinToken;
use thalweg_proto::v1::admin_client::AdminClient;
use thalweg_proto::v1::nodes_client::NodesClient;
use thalweg_proto::v1::*;

use crate::membership::{described, remove, wait_for_voters};
use crate::nodes::{Nodes, within};

async fn token(nodes: &Nodes) -> String {
    let create =
        |channel| async move { NodesClient::new(channel).create_token(CreateTokenRequest { ttl_ms: 60_000 }).await };
    let answer = nodes.call(create).await;
    assert_eq!(answer.error, Some(KafkaError::default()));
    answer.token
}

async fn admitted(nodes: &Nodes, token: &str) -> JoinClusterResponse {
    let request = JoinClusterRequest {
        token: token.to_owned(),
        broker: true,
        coordinator: true,
        levels: Some(Levels::ours()),
        version: "0".to_owned(),
    };
    nodes.call(|channel| join(channel, request.clone())).await
}

async fn join(
    channel: tonic::transport::Channel,
    request: JoinClusterRequest,
) -> Result<tonic::Response<JoinClusterResponse>, tonic::Status> {
    NodesClient::new(channel).join(request).await
}

/// A coordinator starts under the number that a token gave it.
async fn join_and_start(nodes: &mut Nodes, token: &str) -> u64 {
    let answer = admitted(nodes, token).await;
    assert_eq!(answer.error, Some(KafkaError::default()));
    nodes.joined.insert(answer.coordinator_id, answer.cluster_id);
    nodes.start(answer.coordinator_id).await;
    answer.coordinator_id
}

async fn want(nodes: &Nodes, key: &str, value: &str, broker: &str) -> KafkaError {
    let change = ConfigChange { key: key.to_owned(), op: 0, value: Some(value.to_owned()) };
    let resource = ConfigResource { kind: 4, name: broker.to_owned(), changes: vec![change], replace_all: false };
    let request = AlterConfigsRequest { resources: vec![resource], validate_only: false };
    let alter = |channel| {
        let request = request.clone();
        async move { AdminClient::new(channel).alter_configs(request).await }
    };
    nodes.call(alter).await.resources.remove(0).error.unwrap()
}

/// Goal: who coordinates takes care of itself. Method: one node; two more join, and three vote; a fourth is spare until one of
/// the three is gone for good; that one comes back with its data and is spare in its turn; the wanted number goes down and up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joined_coordinators_vote_when_they_are_wanted_and_replace_who_is_gone() {
    let mut nodes = Nodes::new(&[1]);
    nodes.replacement_delay_ms = 2_500;
    let mut nodes = nodes.started().await;
    nodes.create("before").await;
    let token = token(&nodes).await;

    assert_eq!(join_and_start(&mut nodes, &token).await, 2);
    within("2 to offer itself", until_spare(&nodes, 2)).await;
    assert_eq!(described(&nodes).await, [(1, true)], "two are no better than one");
    assert_eq!(join_and_start(&mut nodes, &token).await, 3);
    within("three voters", async {
        // Two would be those that one death stops; they would stand for as long as one of them waits for the other.
        while voters(&nodes, 1).await != [vec![1, 2, 3]] {
            assert!(!voters(&nodes, 1).await.iter().any(|set| set.len() == 2));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    nodes.wait_until_equal(3, nodes.leader().await).await;
    assert_eq!(join_and_start(&mut nodes, &token).await, 4);
    within("4 to offer itself", until_spare(&nodes, 4)).await;

    // The first node itself: whoever leads then replaces it.
    nodes.kill(1);
    wait_for_voters(&nodes, &[2, 3, 4]).await;
    nodes.create("after").await;
    nodes.start(1).await;
    within("1 to offer itself", until_spare(&nodes, 1)).await;
    assert_eq!(described(&nodes).await, [(2, true), (3, true), (4, true)]);

    assert_eq!(want(&nodes, "coordinators", "1", "").await.code, 0);
    let leader = nodes.leader().await;
    wait_for_voters(&nodes, &[leader]).await;
    assert_eq!(want(&nodes, "coordinators", "3", "").await.code, 0);
    within("three voters", async {
        while described(&nodes).await.iter().filter(|(_, voter)| *voter).count() != 3 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    for value in ["0", "2", "4", "7", "x", ""] {
        let refused = want(&nodes, "coordinators", value, "").await;
        assert!(refused.code == 40 && refused.message.contains("1 or 3 or 5"), "{value}: {}", refused.message);
    }
    assert!(want(&nodes, "coordinators", "3", "1").await.message.contains("the cluster's"));
}

/// Goal: a leader that dies in the middle of a change leaves no cluster that hangs on one node. Method: the first step of growing
/// from one to three is in its log alone; it comes back with one of the others; then it dies for good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_its_leader_did_not_finish_is_finished_by_the_next() {
    let mut nodes = Nodes::three().await;
    nodes.create("before").await;
    let leader = nodes.leader().await;
    nodes.wait_until_equal(1, leader).await;
    let mut membership = nodes.identify(1).await.membership.unwrap();
    for id in [1, 2, 3] {
        nodes.kill(id);
    }
    membership.configs = vec![VoterSet { ids: vec![1] }, VoterSet { ids: vec![1, 2, 3] }];
    let unfinished = nodes.append(1, membership);
    nodes.start(1).await;
    nodes.start(2).await;
    within("the change to be finished", async {
        let index = |answer: &IdentifyResponse| answer.membership_id.map_or(0, |id| id.index);
        while index(&nodes.identify(2).await) <= unfinished {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(voters(&nodes, 2).await, [[1, 2, 3]]);
    nodes.start(3).await;
    nodes.create("between").await;
    nodes.kill(1);
    nodes.create("after").await;
}

/// What an operator says stands over what takes care of itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spare_coordinator_that_is_removed_or_lost_its_data_is_refused() {
    let mut nodes = Nodes::new(&[1]).started().await;
    let token = token(&nodes).await;
    let id = join_and_start(&mut nodes, &token).await;
    within("it to offer itself", until_spare(&nodes, id)).await;
    nodes.kill(id);
    nodes.wipe(id);
    nodes.start(id).await;
    let reason = nodes.failed(id).await;
    assert!(reason.contains("other data"), "{reason}");
    nodes.kill(id);
    nodes.wipe(id);
    let next = join_and_start(&mut nodes, &token).await;
    within("it to offer itself", until_spare(&nodes, next)).await;
    assert_eq!(remove(&nodes, next).await, KafkaError::default());
    let reason = nodes.failed(next).await;
    assert!(reason.contains("never used again"), "{reason}");
}

/// Each token that may not let in is refused for its own reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_is_foreign_garbled_revoked_or_of_an_older_program_is_refused() {
    let nodes = Nodes::new(&[1]).started().await;
    let good = token(&nodes).await;
    let refused = |answer: JoinClusterResponse| {
        let error = answer.error.unwrap();
        assert!(error.code != 0 && answer.broker_id == -1 && answer.coordinators.is_empty());
        error.message
    };
    assert!(refused(admitted(&nodes, &good[..good.len() - 1]).await).contains("garbled"));
    assert!(refused(admitted(&nodes, "nonsense").await).contains("no token"));
    let foreign = JoinToken::new("AAAAAAAAAAAAAAAAAAAAAA", 1, [1; 16]).to_string();
    let message = refused(admitted(&nodes, &foreign).await);
    assert!(message.contains("of cluster AAAAAAAAAAAAAAAAAAAAAA") && message.contains("--join"), "{message}");
    let cluster = good.parse::<JoinToken>().unwrap().cluster_id;
    let unknown = JoinToken::new(&cluster, 1, [1; 16]).to_string();
    assert!(refused(admitted(&nodes, &unknown).await).contains("was revoked"));

    let old = JoinClusterRequest { token: good.clone(), broker: true, ..JoinClusterRequest::default() };
    let message = refused(nodes.call(|channel| join(channel, old.clone())).await);
    assert!(
        message.contains(&format!("level {}", *thalweg_proto::LEVELS.end()))
            && message.contains("the version there that runs here"),
        "{message}"
    );

    let id = good.parse::<JoinToken>().unwrap().id;
    let listed =
        nodes.call(|channel| async move { NodesClient::new(channel).list_tokens(ListTokensRequest {}).await }).await;
    assert_eq!(listed.tokens.iter().map(|token| token.id.as_str()).collect::<Vec<_>>(), [id.as_str()]);
    let revoke = |channel| {
        let request = RevokeTokenRequest { id: id.clone() };
        async move { NodesClient::new(channel).revoke_token(request).await }
    };
    assert_eq!(nodes.call(revoke).await.error, Some(KafkaError::default()));
    assert!(refused(admitted(&nodes, &good).await).contains("was revoked"));
    assert_eq!(nodes.call(revoke).await.error.unwrap().code, 69, "once");
}

/// The sets of voters that decide, as a node knows them: two while they change.
async fn voters(nodes: &Nodes, id: u64) -> Vec<Vec<u64>> {
    let membership = nodes.identify(id).await.membership.unwrap_or_default();
    membership.configs.into_iter().map(|voters| voters.ids).collect()
}

async fn until_spare(nodes: &Nodes, id: u64) {
    let describe =
        |channel| async move { AdminClient::new(channel).describe_coordinators(DescribeCoordinatorsRequest {}).await };
    loop {
        let leader = nodes.leader().await;
        let answer = describe(nodes.channel(leader)).await;
        if answer.is_ok_and(|answer| answer.get_ref().nodes.iter().any(|node| node.id == id && node.spare)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
