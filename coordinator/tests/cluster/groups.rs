//! Groups and brokers across a failover.

use thalweg_proto::v1::group_client::GroupClient;
use thalweg_proto::v1::registry_client::RegistryClient;
use thalweg_proto::v1::*;
use tonic::transport::Channel;
use tonic::{Response, Status};

use crate::nodes::{Nodes, broker_beat};

fn joining(member_id: &str) -> JoinRequest {
    JoinRequest {
        group_id: "g".into(),
        member_id: member_id.into(),
        protocol_type: "consumer".into(),
        protocols: vec![JoinProtocol { name: "range".into(), metadata: "m".into() }],
        session_timeout_ms: 30_000,
        rebalance_timeout_ms: 60_000,
        client_id: "app".into(),
        api_version: 5,
        ..JoinRequest::default()
    }
}

async fn join(channel: Channel, request: JoinRequest) -> Result<Response<JoinResponse>, Status> {
    GroupClient::new(channel).join(request).await
}

/// A new member is told its id first (KIP-394).
async fn join_first(nodes: &Nodes) -> JoinResponse {
    let named = nodes.call(|channel| join(channel, joining(""))).await;
    assert_eq!(named.error.unwrap().code, 79);
    nodes.call(|channel| join(channel, joining(&named.member_id))).await
}

async fn beat(nodes: &Nodes, member: &JoinResponse) -> i32 {
    let member = MemberHeartbeat {
        group_id: "g".into(),
        generation_id: member.generation_id,
        member_id: member.member_id.clone(),
        instance_id: None,
    };
    let request = HeartbeatRequest { members: vec![member] };
    let beat = |channel| {
        let request = request.clone();
        async move { GroupClient::new(channel).heartbeat(request).await }
    };
    nodes.call(beat).await.errors[0].code
}

async fn sync(nodes: &Nodes, member: &JoinResponse, assignments: Vec<SyncAssignment>) -> SyncResponse {
    let request = SyncRequest {
        group_id: "g".into(),
        generation_id: member.generation_id,
        member_id: member.member_id.clone(),
        assignments,
        ..SyncRequest::default()
    };
    let sync = |channel| {
        let request = request.clone();
        async move { GroupClient::new(channel).sync(request).await }
    };
    nodes.call(sync).await
}

async fn commit(nodes: &Nodes, member: &JoinResponse, generation_id: i32, offset: i64) -> i32 {
    let offsets = vec![CommitOffset { topic: "t".into(), offset, leader_epoch: -1, ..CommitOffset::default() }];
    let commit = GroupCommit {
        group_id: "g".into(),
        generation_id,
        member_id: member.member_id.clone(),
        offsets,
        ..GroupCommit::default()
    };
    let request = CommitRequest { groups: vec![commit] };
    let commit = |channel| {
        let request = request.clone();
        async move { GroupClient::new(channel).commit(request).await }
    };
    nodes.call(commit).await.groups[0].errors[0].code
}

async fn committed(nodes: &Nodes) -> i64 {
    let topics = vec![TopicPartitions { topic: "t".into(), partitions: vec![0], ..TopicPartitions::default() }];
    let wanted = FetchGroupOffsets { group_id: "g".into(), topics, ..FetchGroupOffsets::default() };
    let request = FetchOffsetsRequest { groups: vec![wanted], require_stable: false };
    let fetch = |channel| {
        let request = request.clone();
        async move { GroupClient::new(channel).fetch_offsets(request).await }
    };
    nodes.call(fetch).await.groups[0].offsets[0].offset
}

/// Goal: a failover costs no member its place (REPLICATION Q1-Q3). Method: a member joins, is assigned and commits; its
/// leader is killed three times; it only goes on beating. Then it joins again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_keep_generation_assignment_and_offsets_across_failovers() {
    let mut nodes = Nodes::three().await;
    nodes.join_broker(1).await;
    nodes.create("t").await;
    let member = join_first(&nodes).await;
    assert_eq!((member.error.clone().unwrap().code, member.generation_id), (0, 1));
    let assignment = SyncAssignment { member_id: member.member_id.clone(), assignment: "mine".into() };
    assert_eq!(sync(&nodes, &member, vec![assignment]).await.assignment, "mine");
    for round in 0..3 {
        assert_eq!(commit(&nodes, &member, 1, round).await, 0);
        let leader = nodes.leader().await;
        nodes.kill(leader);
        assert_eq!(beat(&nodes, &member).await, 0, "round {round}");
        assert_eq!(committed(&nodes).await, round);
        assert_eq!(sync(&nodes, &member, vec![]).await.assignment, "mine");
        nodes.start(leader).await;
    }
    // A join that waits while its leader dies is answered by nobody; asked again, it leads to the next generation, once.
    let again = nodes.call(|channel| join(channel, joining(&member.member_id))).await;
    assert_eq!((again.error.clone().unwrap().code, again.generation_id), (0, 2));
    assert_eq!(commit(&nodes, &member, 1, 99).await, 22, "the old generation is over");
    let leader = nodes.leader().await;
    nodes.kill(leader);
    assert_eq!(commit(&nodes, &member, 1, 99).await, 22, "for the next leader too");
    assert_eq!(committed(&nodes).await, 2);
}

/// Goal: no generation is used twice, even where nobody heard of it (Q3). Method: members join while leaders die; every
/// answer's generation is larger than those before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn generations_only_grow_while_leaders_die() {
    let mut nodes = Nodes::three().await;
    let member = join_first(&nodes).await;
    let mut last = member.generation_id;
    for _ in 0..4 {
        let leader = nodes.leader().await;
        let request = JoinRequest {
            protocols: vec![JoinProtocol { name: "range".into(), metadata: format!("m{last}").into() }],
            ..joining(&member.member_id)
        };
        let under_way = tokio::spawn(join(nodes.channel(leader), request.clone()));
        nodes.kill(leader);
        let heard = under_way.await.unwrap().ok().map(|answer| answer.into_inner());
        if let Some(answer) = heard.filter(|answer| answer.generation_id > 0) {
            assert!(answer.generation_id > last);
            last = answer.generation_id;
        }
        let answer = nodes.call(|channel| join(channel, request.clone())).await;
        assert_eq!(answer.error.unwrap().code, 0);
        assert!(answer.generation_id >= last, "{} after {last}", answer.generation_id);
        last = answer.generation_id;
        nodes.start(leader).await;
    }
}

/// Goal: a coordinator failover fences no broker that lives: leases start again in full (REPLICATION 3.1).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_keeps_its_registration_across_a_failover() {
    let mut nodes = Nodes::three().await;
    let broker = nodes.join_broker(7).await;
    let beat = BrokerHeartbeatRequest {
        broker_id: 7,
        broker_epoch: broker.broker_epoch,
        metadata_index: broker.index,
        ..BrokerHeartbeatRequest::default()
    };
    nodes.kill(nodes.leader().await);
    let answer = nodes.call(|channel| broker_beat(channel, beat.clone())).await;
    assert_eq!((answer.error, answer.fenced), (Some(KafkaError::default()), false));
    let request = AllocateProducerIdsRequest { broker_id: 7, broker_epoch: broker.broker_epoch };
    let ids = |channel| async move { RegistryClient::new(channel).allocate_producer_ids(request).await };
    let first = nodes.call(ids).await;
    assert_eq!(first.error, Some(KafkaError::default()));
}
