//! What the planner comes to.

use thalweg_model::NodeId;

use super::{Picture, draft::Draft};

/// Moves, and what cannot be moved.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// In the order of the picture's partitions; each at most once.
    pub moves: Vec<Move>,
    pub stuck: Vec<Stuck>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// The place in the picture.
    pub partition: usize,
    pub from: Vec<NodeId>,
    /// Ordered, the first preferred as leader.
    pub to: Vec<NodeId>,
    pub reason: Reason,
}

/// Why a partition is moved: the first of the reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// A broker is to be empty.
    Drain,
    /// It has fewer replicas than it should.
    Factor,
    /// Replicas share a rack.
    Racks,
    Replicas,
    Bytes,
    Traffic,
    Leaders,
}

/// A partition for whose replica there is no other place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck {
    pub partition: usize,
    /// Where it stays; `None`: it lacks a replica.
    pub broker: Option<NodeId>,
}

impl Plan {
    pub(super) fn new(picture: &Picture, draft: Draft<'_>, stuck: Vec<Stuck>) -> Plan {
        let moves = draft.into_changes().map(|(partition, to, reason)| {
            let from = picture.partitions[partition].replicas.clone();
            Move { partition, from, to, reason }
        });
        Plan { moves: moves.collect(), stuck }
    }
}

impl Move {
    /// Brokers that copy the partition.
    pub fn newcomers(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.to.iter().copied().filter(|id| !self.from.contains(id))
    }
}

impl Reason {
    /// For people.
    pub fn text(self) -> &'static str {
        match self {
            Reason::Drain => "a broker is to be empty",
            Reason::Factor => "it lacks a replica",
            Reason::Racks => "replicas share a rack",
            Reason::Replicas => "brokers hold unequally many replicas",
            Reason::Bytes => "brokers hold unequally many bytes",
            Reason::Traffic => "brokers are written to unequally",
            Reason::Leaders => "brokers lead unequally many partitions",
        }
    }
}
