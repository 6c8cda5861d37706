//! Between openraft's types and their stored form.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use openraft::EntryPayload;
use prost::Message;
use thalweg_proto::v1;
use thalweg_proto::v1::log_entry::Payload;

use super::types::{Commands, CoordinatorNode, Entry, LogId, Membership, StoredMembership, Vote};

pub fn log_id_to(id: &LogId) -> v1::LogId {
    v1::LogId { term: id.leader_id.term, node_id: id.leader_id.node_id, index: id.index }
}

pub fn log_id_from(id: &v1::LogId) -> LogId {
    LogId::new(leader_id(id.term, id.node_id), id.index)
}

pub fn vote_to(vote: &Vote) -> v1::Vote {
    v1::Vote { term: vote.leader_id.term, node_id: vote.leader_id.node_id, committed: vote.committed }
}

pub fn vote_from(vote: &v1::Vote) -> Vote {
    Vote { leader_id: leader_id(vote.term, vote.node_id), committed: vote.committed }
}

pub fn membership_to(membership: &Membership) -> v1::Membership {
    let configs = membership.get_joint_config().iter();
    v1::Membership {
        configs: configs.map(|voters| v1::VoterSet { ids: voters.iter().copied().collect() }).collect(),
        nodes: membership.nodes().map(|(id, node)| node_to(*id, node)).collect(),
    }
}

fn node_to(id: u64, node: &CoordinatorNode) -> v1::RaftNode {
    v1::RaftNode { id, address: node.address.clone(), identity: node.identity.clone() }
}

fn node_from(node: &v1::RaftNode) -> CoordinatorNode {
    CoordinatorNode { address: node.address.clone(), identity: node.identity.clone() }
}

/// # Errors
/// A voter without a node: the bytes are damaged or not ours.
pub fn membership_from(membership: &v1::Membership) -> io::Result<Membership> {
    if membership.configs.is_empty() {
        return Ok(Membership::default());
    }
    let configs: Vec<BTreeSet<u64>> =
        membership.configs.iter().map(|voters| voters.ids.iter().copied().collect()).collect();
    let nodes: BTreeMap<u64, CoordinatorNode> =
        membership.nodes.iter().map(|node| (node.id, node_from(node))).collect();
    Membership::new(configs, nodes).map_err(|cause| invalid(format!("a stored membership is not valid: {cause}")))
}

pub fn entry_to(entry: &Entry) -> v1::LogEntry {
    let payload = match &entry.payload {
        EntryPayload::Blank => None,
        EntryPayload::Normal(commands) => Some(Payload::Commands(commands.0.clone())),
        EntryPayload::Membership(membership) => Some(Payload::Membership(membership_to(membership))),
    };
    v1::LogEntry { id: Some(log_id_to(&entry.log_id)), payload }
}

/// # Errors
/// The bytes are damaged or not ours.
pub fn entry_from(entry: v1::LogEntry) -> io::Result<Entry> {
    let id = entry.id.ok_or_else(|| invalid("a log entry has no id"))?;
    let payload = match entry.payload {
        None => EntryPayload::Blank,
        Some(Payload::Commands(commands)) => EntryPayload::Normal(Commands(commands)),
        Some(Payload::Membership(membership)) => EntryPayload::Membership(membership_from(&membership)?),
    };
    Ok(Entry { log_id: log_id_from(&id), payload })
}

pub fn stored_membership_from(applied: &v1::Applied) -> io::Result<StoredMembership> {
    let membership = applied.membership.as_ref().map(membership_from).transpose()?.unwrap_or_default();
    Ok(StoredMembership::new(applied.membership_id.as_ref().map(log_id_from), membership))
}

/// # Errors
/// The bytes are damaged or not ours.
pub fn decode<M: Message + Default>(bytes: &[u8], what: &str) -> io::Result<M> {
    M::decode(bytes).map_err(|cause| invalid(format!("{what} in the coordinator's store cannot be read: {cause}")))
}

pub fn invalid(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.into())
}

fn leader_id(term: u64, node_id: u64) -> openraft::impls::leader_id_adv::LeaderId<u64, u64> {
    openraft::impls::leader_id_adv::LeaderId { term, node_id }
}
