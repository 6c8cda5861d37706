//! openraft's types, and ours in their place.

use std::fmt;

use bytes::Bytes;
use openraft::declare_raft_types;
use thalweg_proto::v1::CommandBatch;

use crate::registry::Outcome;

declare_raft_types!(
    /// How openraft sees this cluster.
    pub TypeConfig:
        D = Commands,
        R = Answers,
        NodeId = u64,
        Node = CoordinatorNode,
        Term = u64,
);

/// A member as all members know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoordinatorNode {
    /// host:port of its gRPC service.
    pub address: String,
    /// 16 bytes, of the data that it was admitted with; empty in stores from before there was one.
    pub identity: Bytes,
}

pub type LogId = openraft::type_config::alias::LogIdOf<TypeConfig>;
pub type Vote = openraft::type_config::alias::VoteOf<TypeConfig>;
pub type Entry = openraft::type_config::alias::EntryOf<TypeConfig>;
pub type StoredMembership = openraft::type_config::alias::StoredMembershipOf<TypeConfig>;
pub type SnapshotMeta = openraft::type_config::alias::SnapshotMetaOf<TypeConfig>;
pub type Membership = openraft::Membership<u64, CoordinatorNode>;

/// What one Raft entry carries.
#[derive(Clone, Debug, PartialEq)]
pub struct Commands(pub CommandBatch);

impl fmt::Display for Commands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} commands", self.0.commands.len())
    }
}

/// One outcome for each command of an entry, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answers {
    pub outcomes: Vec<Outcome>,
    /// Brokers that have the feed up to here know what these outcomes changed.
    pub feed_index: u64,
}
