//! Classic consumer groups, as far as a load needs them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use thalweg_wire::messages::find_coordinator::FindCoordinatorRequest;
use thalweg_wire::messages::heartbeat::HeartbeatRequest;
use thalweg_wire::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol};
use thalweg_wire::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use thalweg_wire::messages::sync_group::{SyncGroupRequest, SyncGroupRequestAssignment};

use super::Connection;

/// One member that is alone in its group.
#[derive(Clone, Debug)]
pub struct Member {
    pub group: String,
    /// The broker that fronts the group.
    pub address: SocketAddr,
    generation_id: i32,
    member_id: String,
}

/// Where the group is fronted. Kafka answers "not available" until it has made its topic for offsets.
pub fn find_coordinator(broker: SocketAddr, group: &str) -> Result<SocketAddr> {
    let request = FindCoordinatorRequest { key: group.to_owned(), ..FindCoordinatorRequest::default() };
    let began = Instant::now();
    loop {
        let answer = Connection::open(broker)?.call(&request, 3)?;
        if answer.error_code == 0 {
            return Ok(SocketAddr::new(answer.host.parse()?, u16::try_from(answer.port)?));
        }
        ensure!(began.elapsed() < FOUND_WITHIN, "{group} has no coordinator: error {}", answer.error_code);
        std::thread::sleep(Duration::from_millis(50));
    }
}

impl Member {
    /// Joins a group that nobody is in, with `metadata_bytes` of subscription.
    pub fn join(connection: &mut Connection, address: SocketAddr, group: &str) -> Result<Member> {
        let protocol = JoinGroupRequestProtocol { name: "range".to_owned(), metadata: SUBSCRIPTION.as_slice().into() };
        let mut join = JoinGroupRequest {
            group_id: group.to_owned(),
            session_timeout_ms: 300_000,
            rebalance_timeout_ms: 300_000,
            protocol_type: "consumer".to_owned(),
            protocols: vec![protocol],
            ..JoinGroupRequest::default()
        };
        let began = Instant::now();
        let (generation_id, member_id) = loop {
            let answer = connection.call(&join, 5)?;
            match answer.error_code {
                0 => break (answer.generation_id, answer.member_id),
                MEMBER_ID_REQUIRED => join.member_id = answer.member_id,
                LOADING | NOT_COORDINATOR if began.elapsed() < FOUND_WITHIN => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                error => bail!("cannot join {group}: error {error}"),
            }
        };
        let sync = SyncGroupRequest {
            group_id: group.to_owned(),
            generation_id,
            member_id: member_id.clone(),
            assignments: vec![SyncGroupRequestAssignment {
                member_id: member_id.clone(),
                assignment: NO_ASSIGNMENT.as_slice().into(),
            }],
            ..SyncGroupRequest::default()
        };
        let answer = connection.call(&sync, 3)?;
        ensure!(answer.error_code == 0, "cannot sync {group}: error {}", answer.error_code);
        Ok(Member { group: group.to_owned(), address, generation_id, member_id })
    }

    pub fn heartbeat(&self) -> HeartbeatRequest {
        HeartbeatRequest {
            group_id: self.group.clone(),
            generation_id: self.generation_id,
            member_id: self.member_id.clone(),
            ..HeartbeatRequest::default()
        }
    }

    /// Commits `offset` for the first `partition_count` partitions of `topic`.
    pub fn commit(&self, topic: &str, partition_count: i32, offset: i64) -> OffsetCommitRequest {
        let partition = |partition_index| OffsetCommitRequestPartition {
            partition_index,
            committed_offset: offset,
            ..OffsetCommitRequestPartition::default()
        };
        OffsetCommitRequest {
            group_id: self.group.clone(),
            generation_id_or_member_epoch: self.generation_id,
            member_id: self.member_id.clone(),
            topics: vec![OffsetCommitRequestTopic {
                name: topic.to_owned(),
                partitions: (0..partition_count).map(partition).collect(),
                ..OffsetCommitRequestTopic::default()
            }],
            ..OffsetCommitRequest::default()
        }
    }
}

/// Joins one group after another, each with one member, over a connection to each broker.
pub fn join_groups(broker: SocketAddr, prefix: &str, count: usize) -> Result<Vec<Member>> {
    let mut connections: Vec<(SocketAddr, Connection)> = Vec::new();
    let mut members = Vec::with_capacity(count);
    for index in 0..count {
        let group = format!("{prefix}-{index}");
        let address = find_coordinator(broker, &group)?;
        if !connections.iter().any(|(known, _)| *known == address) {
            connections.push((address, Connection::open(address)?));
        }
        let (_, connection) = connections.iter_mut().find(|(known, _)| *known == address).context("just put there")?;
        members.push(Member::join(connection, address, &group)?);
    }
    Ok(members)
}

/// A consumer's subscription of version 0 without topics: version, count, null user data.
const SUBSCRIPTION: [u8; 10] = [0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
const NO_ASSIGNMENT: [u8; 10] = SUBSCRIPTION;
const MEMBER_ID_REQUIRED: i16 = 79;
const LOADING: i16 = 14;
const NOT_COORDINATOR: i16 = 16;
const FOUND_WITHIN: Duration = Duration::from_secs(60);
