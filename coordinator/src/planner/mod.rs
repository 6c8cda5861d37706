//! Which replicas should lie elsewhere. Pure: a picture of the cluster in, moves out; equal pictures give equal moves.
//!
//! Stages, each of which keeps what those before it have reached:
//! 1. replicas leave brokers that are to be empty, and partitions get the replicas that they should have;
//! 2. replicas of one partition go to different racks, as far as there are racks;
//! 3. brokers hold equally many replicas, then bytes, then traffic, by moves and exchanges that make the worst pair better;
//! 4. brokers are preferred as leader of equally many partitions, which copies nothing.
//!
//! Nothing moves without need: a move makes an unequal pair of brokers more equal, or cures a fault.

mod balance;
pub mod coordinators;
mod draft;
mod leaders;
mod plan;

use std::collections::BTreeSet;

use thalweg_model::NodeId;

use draft::Draft;
pub use plan::{Move, Plan, Reason, Stuck};

/// The cluster as the planner sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Picture {
    /// Each id once.
    pub brokers: Vec<BrokerPicture>,
    pub partitions: Vec<PartitionPicture>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct BrokerPicture {
    pub id: NodeId,
    pub rack: Option<String>,
    /// May be given replicas: alive, not cordoned, not on its way out.
    pub is_open: bool,
    /// Is to hold nothing.
    pub is_leaving: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PartitionPicture {
    /// Ordered, the first preferred as leader; never empty, each broker once.
    pub replicas: Vec<NodeId>,
    /// How many replicas it should have; more than now only makes it grow.
    pub factor: usize,
    /// Of one replica.
    pub bytes: u64,
    /// Written to it, and so to each of its replicas.
    pub bytes_per_second: u64,
    /// Left alone, because it is being moved already.
    pub is_busy: bool,
}

/// What is asked for beside empty brokers and full sets of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goals {
    pub racks: bool,
    pub replicas: bool,
    pub bytes: bool,
    pub traffic: bool,
    pub leaders: bool,
}

impl Goals {
    pub const ALL: Goals = Goals { racks: true, replicas: true, bytes: true, traffic: true, leaders: true };
    /// Only what must be.
    pub const NONE: Goals = Goals { racks: false, replicas: false, bytes: false, traffic: false, leaders: false };
}

/// The moves that bring the cluster nearest to the goals.
pub fn plan(picture: &Picture, goals: Goals) -> Plan {
    let mut draft = Draft::new(picture);
    let mut stuck = Vec::new();
    for index in 0..picture.partitions.len() {
        if !picture.partitions[index].is_busy {
            stuck.extend(complete(&mut draft, index));
        }
    }
    if goals.racks {
        (0..picture.partitions.len()).for_each(|index| spread(&mut draft, index));
    }
    if goals.replicas {
        balance::replicas(&mut draft);
    }
    if goals.bytes {
        balance::exchange(&mut draft, Reason::Bytes, |partition| partition.bytes, |_| 0);
    }
    if goals.traffic {
        let kept = |partition: &PartitionPicture| if goals.bytes { partition.bytes } else { 0 };
        balance::exchange(&mut draft, Reason::Traffic, |partition| partition.bytes_per_second, kept);
    }
    if goals.leaders {
        leaders::balance(&mut draft);
    }
    Plan::new(picture, draft, stuck)
}

/// Takes replicas from brokers that are to be empty, and adds those that are missing.
fn complete(draft: &mut Draft<'_>, index: usize) -> Option<Stuck> {
    let leaving: Vec<usize> = draft.replicas(index).iter().copied().filter(|at| draft.is_leaving(*at)).collect();
    for from in leaving {
        match draft.best_for(index, Some(from)) {
            Some(to) => draft.shift(index, from, to, Reason::Drain),
            None => {
                let broker = draft.id(from);
                return Some(Stuck { partition: index, broker: Some(broker) });
            }
        }
    }
    while draft.replicas(index).len() < draft.partition(index).factor {
        match draft.best_for(index, None) {
            Some(to) => draft.grow(index, to),
            None => return Some(Stuck { partition: index, broker: None }),
        }
    }
    None
}

/// Moves replicas that share a rack to racks that the partition is not in.
fn spread(draft: &mut Draft<'_>, index: usize) {
    if draft.partition(index).is_busy {
        return;
    }
    loop {
        let mut seen = BTreeSet::new();
        // The first replica of a rack stays, so that the preferred leader does.
        let twice = draft.replicas(index).iter().copied().find(|at| !seen.insert(draft.rack(*at)));
        let Some(from) = twice else { return };
        let is_new = |to: &usize| draft.replicas(index).iter().all(|at| draft.rack(*at) != draft.rack(*to));
        let Some(to) = draft.best_for(index, Some(from)).filter(is_new) else { return };
        draft.shift(index, from, to, Reason::Racks);
    }
}
