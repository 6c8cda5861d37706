//! Who is part of a cluster, and who is not let in.

use thalweg_proto::v1::admin_client::AdminClient;
use thalweg_proto::v1::*;

use crate::nodes::{Nodes, within};

pub async fn described(nodes: &Nodes) -> Vec<(u64, bool)> {
    let describe =
        |channel| async move { AdminClient::new(channel).describe_coordinators(DescribeCoordinatorsRequest {}).await };
    let leader = nodes.leader().await;
    let answer = describe(nodes.channel(leader)).await.unwrap().into_inner();
    answer.nodes.iter().filter(|node| !node.spare).map(|node| (node.id, node.voter)).collect()
}

async fn add(nodes: &Nodes, id: u64) -> KafkaError {
    let address = nodes.address(id);
    let add = |channel| {
        let request = AddCoordinatorRequest { id, address: address.clone() };
        async move { AdminClient::new(channel).add_coordinator(request).await }
    };
    nodes.call(add).await.error.unwrap()
}

pub async fn remove(nodes: &Nodes, id: u64) -> KafkaError {
    let remove =
        |channel| async move { AdminClient::new(channel).remove_coordinator(RemoveCoordinatorRequest { id }).await };
    nodes.call(remove).await.error.unwrap()
}

pub async fn wait_for_voters(nodes: &Nodes, voters: &[u64]) {
    within("the voters", async {
        let wanted: Vec<(u64, bool)> = voters.iter().map(|id| (*id, true)).collect();
        while described(nodes).await != wanted {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// Goal: one cluster, whatever the order. Method: the founder comes last; before it, nobody belongs anywhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_started_in_any_order_found_one_cluster() {
    let mut nodes = Nodes::new(&[1, 2, 3]);
    nodes.start(3).await;
    nodes.start(2).await;
    for id in [2, 3] {
        assert!(nodes.identify(id).await.cluster_id.is_empty(), "coordinator {id} has not waited for 1");
    }
    nodes.start(1).await;
    wait_for_voters(&nodes, &[1, 2, 3]).await;
    let clusters = [nodes.identify(1).await, nodes.identify(2).await, nodes.identify(3).await];
    assert!(!clusters[0].cluster_id.is_empty());
    assert!(clusters.iter().all(|answer| answer.cluster_id == clusters[0].cluster_id));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_node_joins_by_itself_and_replaces_one_that_is_removed() {
    let mut nodes = Nodes::three().await;
    nodes.join_broker(1).await;
    nodes.create("before").await;
    nodes.start(4).await;
    wait_for_voters(&nodes, &[1, 2, 3, 4]).await;
    assert_eq!(add(&nodes, 4).await, KafkaError::default(), "again changes nothing");

    // The leader itself is removed: another one takes over.
    let gone = nodes.leader().await;
    assert_eq!(remove(&nodes, gone).await, KafkaError::default());
    let reason = nodes.failed(gone).await;
    assert!(reason.contains("removed") && reason.contains("never used again"), "{reason}");
    let rest: Vec<u64> = [1, 2, 3, 4].into_iter().filter(|id| *id != gone).collect();
    nodes.kill(gone);
    wait_for_voters(&nodes, &rest).await;
    nodes.create("after").await;
    let leader = nodes.leader().await;
    for id in rest {
        nodes.wait_until_equal(id, leader).await;
        assert_eq!(nodes.topics(id), ["after", "before"]);
    }

    // It does not come back, neither with its data nor without.
    nodes.start(gone).await;
    assert!(nodes.failed(gone).await.contains("never used again"));
    nodes.kill(gone);
    nodes.wipe(gone);
    nodes.start(gone).await;
    let reason = nodes.failed(gone).await;
    assert!(reason.contains("never used again"), "{reason}");
    assert_eq!(remove(&nodes, 9).await.code, 127);
}

/// Goal: a node that forgot its votes does not vote under its old id (R5). Method: its disk is lost; it is told the way out,
/// follows it, and is a voter again under another id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wiped_node_is_refused_and_comes_back_under_another_id() {
    let mut nodes = Nodes::three().await;
    nodes.join_broker(1).await;
    nodes.create("kept").await;
    let wiped = if nodes.leader().await == 1 { 2 } else { 1 };
    nodes.kill(wiped);
    nodes.wipe(wiped);
    nodes.start(wiped).await;
    let reason = nodes.failed(wiped).await;
    assert!(reason.contains(&format!("remove coordinator {wiped}")) && reason.contains("another id"), "{reason}");
    assert!(nodes.topics(wiped).is_empty(), "it takes nothing in");
    assert_eq!(add(&nodes, wiped).await.code, 125, "not by force either");
    nodes.kill(wiped);

    assert_eq!(remove(&nodes, wiped).await, KafkaError::default());
    nodes.start(5).await;
    let mut voters: Vec<u64> = [1, 2, 3, 5].into_iter().filter(|id| *id != wiped).collect();
    voters.sort_unstable();
    wait_for_voters(&nodes, &voters).await;
    nodes.wait_until_equal(5, nodes.leader().await).await;
    assert_eq!(nodes.topics(5), ["kept"]);
}

/// Goal: a founder that lost its disk founds nothing while any other knows a cluster, and nothing alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wiped_founder_founds_no_second_cluster() {
    let mut nodes = Nodes::three().await;
    let cluster = nodes.identify(1).await.cluster_id;
    for id in [1, 2, 3] {
        nodes.kill(id);
    }
    nodes.wipe(1);
    nodes.wipe(2);
    nodes.start(1).await;
    nodes.start(2).await;
    assert!(nodes.identify(1).await.cluster_id.is_empty() && nodes.identify(2).await.cluster_id.is_empty());
    nodes.start(3).await;
    for id in [1, 2] {
        let reason = nodes.failed(id).await;
        assert!(reason.contains("lost or replaced"), "{reason}");
    }
    assert_eq!(nodes.identify(3).await.cluster_id, cluster);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lead_is_handed_to_whom_an_operator_names() {
    let nodes = Nodes::three().await;
    for to in [2, 3, 1, 1] {
        let transfer =
            |channel| async move { AdminClient::new(channel).transfer_leader(TransferLeaderRequest { to }).await };
        let answer = nodes.call(transfer).await;
        assert_eq!((answer.error, answer.leader), (Some(KafkaError::default()), to));
        assert_eq!(nodes.leader().await, to);
    }
    let nobody =
        |channel| async move { AdminClient::new(channel).transfer_leader(TransferLeaderRequest { to: 9 }).await };
    assert_eq!(nodes.call(nobody).await.error.unwrap().code, 127);
}
