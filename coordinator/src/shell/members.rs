//! Changing who coordinates: adding, removing, handing the lead over (REPLICATION R5).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use openraft::ChangeMembers;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::{ChangeMembershipError, ClientWriteError, RaftError};
use thalweg_model::ErrorCode;
use thalweg_proto::v1::command::Kind;
use thalweg_proto::v1::{AdmitCoordinator, KafkaError, Levels, NodeLevels, OfferCoordinator, RetireCoordinator};
use tracing::info;

use super::batcher::{Batcher, Raft};
use super::identity::Identity;
use super::network::Network;
use super::state_machine::Shared;
use super::types::{CoordinatorNode, Membership, TypeConfig};
use crate::error::ProposeError;
use crate::registry::{Outcome, error, features};
use crate::session::command;

/// Cheap to clone.
#[derive(Clone)]
pub struct Members {
    pub me: Arc<Identity>,
    pub raft: Raft,
    pub batcher: Batcher,
    pub network: Network,
    pub shared: Arc<Shared>,
    /// Of thalweg.version: what this node can work at.
    pub levels: Levels,
}

/// Why the members are as they were.
#[derive(Clone, Debug, PartialEq)]
pub enum MembersError {
    /// Whoever asked is told.
    Refused(KafkaError),
    Propose(ProposeError),
}

impl From<ProposeError> for MembersError {
    fn from(cause: ProposeError) -> MembersError {
        MembersError::Propose(cause)
    }
}

impl Members {
    /// Makes the node at `address` a voter, or brings a member's address up to date. This node leads.
    ///
    /// # Errors
    /// It does not answer, is not who it should be, or does not catch up in time; then it stays a learner and the call can
    /// be repeated.
    pub async fn add(&self, id: u64, address: String) -> Result<(), MembersError> {
        self.learn(id, address).await?;
        if self.membership().voter_ids().any(|voter| voter == id) {
            return Ok(());
        }
        self.wait_until_caught_up(id).await?;
        self.change(ChangeMembers::AddVoterIds(BTreeSet::from([id]))).await?;
        info!(coordinator = id, "a coordinator has become a voter");
        Ok(())
    }

    /// Makes nodes voters in the place of others, all at once: no set of voters in between has a say of its own. Those that go
    /// keep their ids: with the data that they voted with they can be made voters again. This node leads.
    ///
    /// # Errors
    /// As of [`Members::add`] and [`Members::remove`]; with the node that is to blame, if one is. Then the voters are as before.
    pub async fn replace(&self, add: BTreeMap<u64, String>, drop: &[u64]) -> Result<(), (Option<u64>, MembersError)> {
        let ids: BTreeSet<u64> = add.keys().copied().collect();
        for (id, address) in add {
            self.learn(id, address).await.map_err(|cause| (Some(id), cause))?;
        }
        for id in &ids {
            self.wait_until_caught_up(*id).await.map_err(|cause| (Some(*id), cause))?;
        }
        let drop = drop.iter().copied().collect();
        let both = vec![ChangeMembers::AddVoterIds(ids), ChangeMembers::RemoveVoters(drop)];
        self.change(ChangeMembers::Batch(both)).await.map_err(|cause| (None, cause))
    }

    /// The entry of a change that is agreed on by the voters before and after it, and not finished yet.
    pub fn unfinished(&self) -> Option<u64> {
        let metrics = self.raft.server_metrics();
        let now = metrics.borrow_watched();
        let is_joint = now.membership_config.membership().get_joint_config().len() > 1;
        is_joint.then(|| now.membership_config.log_id().as_ref().map_or(0, |id| id.index))
    }

    /// Finishes the change that a leader before this one began. This node leads.
    ///
    /// # Errors
    /// It cannot be agreed on now, or another one is under way.
    pub async fn finish(&self) -> Result<(), MembersError> {
        self.change(ChangeMembers::AddVoterIds(BTreeSet::new())).await
    }

    /// Lets a node follow without a vote, or brings its address up to date.
    async fn learn(&self, id: u64, address: String) -> Result<(), MembersError> {
        let node = self.identified(id, address).await?;
        self.decide(Kind::AdmitCoordinator(AdmitCoordinator { id, identity: node.identity.clone() })).await?;
        let membership = self.membership();
        if membership.get_node(&id) == Some(&node) {
            return Ok(());
        }
        let nodes = BTreeMap::from([(id, node)]);
        self.change(match membership.get_node(&id) {
            Some(_) => ChangeMembers::SetNodes(nodes),
            None => ChangeMembers::AddNodes(nodes),
        })
        .await
    }

    /// Who is at an address, if it is the coordinator with this id, and can be one of this cluster.
    async fn identified(&self, id: u64, address: String) -> Result<CoordinatorNode, MembersError> {
        let who = self.network.identify(&address).await.map_err(|status| {
            refused(ErrorCode::NetworkException, format!("no coordinator answers at {address}: {}", status.message()))
        })?;
        if who.id != id {
            return Err(refused(
                ErrorCode::InvalidVoterKey,
                format!("at {address} is coordinator {}, not {id}", who.id),
            ));
        }
        if !who.cluster_id.is_empty() && Some(who.cluster_id) != self.me.cluster() {
            let message =
                format!("coordinator {id} at {address} belongs to another cluster; give it an empty data directory");
            return Err(refused(ErrorCode::InconsistentClusterId, message));
        }
        let level = self.level();
        if !who.levels.is_some_and(|levels| levels.contains(level)) && level >= features::LEVEL_OF_LEVELS {
            let message = format!(
                "the cluster is at level {level} of thalweg.version, and coordinator {id} at {address} (version {}) cannot work \
                 at it; start the same version there as elsewhere",
                who.version
            );
            return Err(refused(ErrorCode::InvalidVoterKey, message));
        }
        Ok(CoordinatorNode { address, identity: who.identity })
    }

    /// Notes where a node without a vote can be had. This node leads.
    ///
    /// # Errors
    /// As of [`Members::add`], and of a cluster whose level knows no spare ones.
    pub async fn take_offer(&self, id: u64, address: String) -> Result<(), MembersError> {
        let node = self.identified(id, address).await?;
        let offer = OfferCoordinator { id, identity: node.identity, address: node.address };
        let is_known = {
            let machine = self.shared.machine();
            let known = machine.state().coordinator(id);
            known.is_some_and(|known| {
                !known.removed && known.identity == offer.identity && known.address == offer.address
            })
        };
        if is_known { Ok(()) } else { self.decide(Kind::OfferCoordinator(offer)).await }
    }

    /// Takes a node out of the cluster; its id is not used again. This node leads.
    ///
    /// # Errors
    /// There is no such node, or it is the last voter.
    pub async fn remove(&self, id: u64) -> Result<(), MembersError> {
        let membership = self.membership();
        let is_spare = || {
            let machine = self.shared.machine();
            machine.state().coordinator(id).is_some_and(|node| !node.removed && !node.address.is_empty())
        };
        if membership.get_node(&id).is_none() && is_spare() {
            return self.decide(Kind::RetireCoordinator(RetireCoordinator { id })).await;
        }
        if membership.get_node(&id).is_none() {
            return Err(refused(ErrorCode::VoterNotFound, format!("there is no coordinator {id}")));
        }
        let is_voter = membership.voter_ids().any(|voter| voter == id);
        if is_voter && membership.voter_ids().count() == 1 {
            let message = format!("coordinator {id} is the last voter; add another one first");
            return Err(refused(ErrorCode::InvalidRequest, message));
        }
        // First: whatever interrupts this, the id does not come into other hands.
        self.decide(Kind::RetireCoordinator(RetireCoordinator { id })).await?;
        let ids = BTreeSet::from([id]);
        self.change(if is_voter { ChangeMembers::RemoveVoters(ids) } else { ChangeMembers::RemoveNodes(ids) }).await?;
        info!(coordinator = id, "a coordinator has been removed");
        Ok(())
    }

    /// Hands the lead to `to`, or to whoever has caught up furthest; returns the new leader.
    ///
    /// # Errors
    /// There is no such voter, or it did not take over in time; then this node may lead on.
    pub async fn transfer_leader(&self, to: Option<u64>) -> Result<u64, MembersError> {
        let me = self.me.node_id;
        let Some(to) = to.or_else(|| self.successor()) else {
            return Err(refused(ErrorCode::VoterNotFound, "no other voter answers".to_owned()));
        };
        if !self.membership().voter_ids().any(|voter| voter == to) {
            return Err(refused(ErrorCode::VoterNotFound, format!("coordinator {to} is no voter")));
        }
        if to == me {
            return Ok(me);
        }
        self.raft.trigger().transfer_leader(to).await.map_err(|_| ProposeError::Stopped)?;
        let mut raft = self.raft.server_metrics();
        let moved = async {
            loop {
                if let Some(leader) = raft.borrow_watched().current_leader.filter(|leader| *leader != me) {
                    return Some(leader);
                }
                raft.changed().await.ok()?;
            }
        };
        let told = || refused(ErrorCode::RequestTimedOut, format!("coordinator {to} has not taken the lead over"));
        tokio::time::timeout(TRANSFER_TIMEOUT, moved).await.ok().flatten().ok_or_else(told)
    }

    /// Of thalweg.version, as applied here.
    pub fn level(&self) -> u32 {
        self.shared.machine().state().feature_level(features::VERSION)
    }

    /// Which levels each coordinator can do, as it says now; sorted by id.
    pub async fn describe_levels(&self) -> Vec<NodeLevels> {
        let membership = self.membership();
        let asked = membership.nodes().map(|(id, node)| async {
            let mut levels = NodeLevels { coordinator: true, id: *id, ..NodeLevels::default() };
            if *id == self.me.node_id {
                levels.answers = true;
                levels.levels = Some(self.levels);
                levels.version = env!("CARGO_PKG_VERSION").to_owned();
                return levels;
            }
            match self.network.identify(&node.address).await {
                Ok(who) => {
                    levels.unknown = match who.levels {
                        Some(_) => String::new(),
                        None => "it has not said so, as earlier versions do not".to_owned(),
                    };
                    (levels.levels, levels.version, levels.answers) = (who.levels, who.version, true);
                }
                Err(_) => levels.unknown = format!("it does not answer at {}", node.address),
            }
            levels
        });
        futures_util::future::join_all(asked).await
    }

    pub fn membership(&self) -> Membership {
        self.raft.server_metrics().borrow_watched().membership_config.membership().clone()
    }

    /// Of the other voters that answer the one whose log has come furthest.
    fn successor(&self) -> Option<u64> {
        let metrics = self.raft.metrics();
        let now = metrics.borrow_watched();
        let voters: BTreeSet<u64> = now.membership_config.membership().voter_ids().collect();
        let others = now.replication.iter().flatten().filter(|(id, _)| **id != self.me.node_id && voters.contains(id));
        let others = others.filter(|(id, _)| !self.network.is_unreachable(**id));
        others.max_by_key(|(_, matched)| **matched).map(|(id, _)| *id)
    }

    async fn wait_until_caught_up(&self, id: u64) -> Result<(), MembersError> {
        let mut raft = self.raft.metrics();
        let caught_up = async {
            loop {
                {
                    let now = raft.borrow_watched();
                    let last = now.last_log_index.unwrap_or(0);
                    let matched = now.replication.as_ref().and_then(|nodes| nodes.get(&id)).copied().flatten();
                    if matched.is_some_and(|matched| matched.index + LAG_MAX >= last) {
                        return Some(());
                    }
                }
                raft.changed().await.ok()?;
            }
        };
        let message = format!("coordinator {id} has not caught up yet; it goes on doing so, ask again");
        let told = || refused(ErrorCode::RequestTimedOut, message);
        tokio::time::timeout(CATCH_UP_TIMEOUT, caught_up).await.ok().flatten().ok_or_else(told)
    }

    async fn decide(&self, kind: Kind) -> Result<(), MembersError> {
        match self.batcher.propose(command(kind)).await?.outcome {
            Outcome::Refused(refused) => Err(MembersError::Refused(refused)),
            _ => Ok(()),
        }
    }

    /// Makes one change of the membership, and returns once it is committed.
    pub(super) async fn change(&self, change: ChangeMembers<u64, CoordinatorNode>) -> Result<(), MembersError> {
        let changed = tokio::time::timeout(CHANGE_TIMEOUT, self.raft.change_membership(change, false)).await;
        match changed {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(cause)) => Err(change_error(cause)),
            Err(_) => Err(MembersError::Propose(ProposeError::Unknown)),
        }
    }
}

fn change_error(cause: RaftError<TypeConfig, ClientWriteError<TypeConfig>>) -> MembersError {
    match cause {
        RaftError::APIError(ClientWriteError::ForwardToLeader(forward)) => ProposeError::not_leader(forward).into(),
        RaftError::APIError(ClientWriteError::LogEntryDiscarded(_)) => ProposeError::Unknown.into(),
        RaftError::APIError(ClientWriteError::ChangeMembershipError(ChangeMembershipError::InProgress(_))) => {
            let message = "another change of the coordinators is under way; ask again".to_owned();
            refused(ErrorCode::RequestTimedOut, message)
        }
        RaftError::APIError(cause) => refused(ErrorCode::InvalidRequest, cause.to_string()),
        RaftError::Fatal(_) => ProposeError::Stopped.into(),
    }
}

fn refused(code: ErrorCode, message: String) -> MembersError {
    MembersError::Refused(error(code, message))
}

/// Entries that a learner may lack when it becomes a voter.
const LAG_MAX: u64 = 1_000;
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(30);
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(2);
