//! How a cluster comes about, and how a node becomes and stays part of one.
//!
//! A cluster is founded once, by the node with the lowest id among the configured peers, and only when every one of them
//! has answered, has the same list, and belongs to no cluster. So nobody founds a second one: not in another order, not with
//! a node missing, not after a disk was lost. A node that any peer knows a cluster for asks that cluster's leader to be
//! added; the leader refuses data under an id that is bound to other data (REPLICATION R5).
//!
//! A node that joined with a token, or was part of a cluster and is not any more, offers itself instead: the leader makes it a
//! voter when there are fewer than are wanted.

mod peer;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::async_runtime::WatchReceiver;
use thalweg_model::ErrorCode;
use thalweg_proto::v1::admin_client::AdminClient;
use thalweg_proto::v1::nodes_client::NodesClient;
use thalweg_proto::v1::{AddCoordinatorRequest, IdentifyResponse, KafkaError, OfferRequest};
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tracing::{info, warn};

use super::batcher::Raft;
use super::identity::Identity;
use super::network::Network;
use super::types::CoordinatorNode;
use view::{Answers, Known, Step, View, known, who_knows};

pub use peer::{CoordinatorPeer, peer_list};

/// Finds the node's place, then watches that it keeps it.
pub struct Formation {
    pub me: Arc<Identity>,
    /// How the others reach this node.
    pub address: String,
    /// As configured, this node perhaps among them.
    pub peers: Vec<CoordinatorPeer>,
    /// It joined by itself: it does not ask to be a voter, it offers to be one.
    pub stands_by: bool,
    pub raft: Raft,
    pub network: Network,
    pub stop: CancellationToken,
}

impl Formation {
    /// Runs until the node stops, or fails with what it found out.
    pub async fn run(self) {
        let stop = self.stop.clone();
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            reason = self.attend() => self.me.fail(reason),
        }
    }

    /// Founds a cluster of one, or lets its only voter lead at once; `false` where others have a say.
    ///
    /// # Errors
    /// Raft has stopped, or the store failed.
    pub async fn stand_alone(&self) -> Result<bool, String> {
        let told = |cause: &dyn fmt::Display| cause.to_string();
        if !self.raft.is_initialized().await.map_err(|cause| told(&cause))? {
            // Who joined is part of a cluster, also if it knows nobody of it any more.
            let is_alone = !self.stands_by && self.peers.iter().all(|peer| peer.id == self.me.node_id);
            if is_alone {
                self.found(&BTreeMap::new()).await?;
            }
            return Ok(is_alone);
        }
        // Raft itself knows best: what it shows to others may be older.
        let voters = self.raft.with_raft_state(|state| state.membership_state.effective().voter_ids().collect());
        let voters: Vec<u64> = voters.await.map_err(|cause| told(&cause))?;
        let is_alone = voters == [self.me.node_id];
        if is_alone {
            // Nobody else's vote is needed, so there is nothing to wait for.
            self.raft.trigger().elect(false).await.map_err(|cause| told(&cause))?;
        }
        Ok(is_alone)
    }

    /// Returns why this node cannot go on.
    async fn attend(&self) -> String {
        let mut told = String::new();
        loop {
            if self.is_settled() {
                tokio::time::sleep(WATCH_INTERVAL).await;
                if self.leads() {
                    continue;
                }
            }
            let answers = self.ask_all().await;
            if self.is_settled() {
                // Whoever took it out may only have had no use for it: then it stands by.
                if let Some(addresses) = self.left_out(&answers)
                    && let Err(reason) = self.offer(&addresses, removed(self.me.node_id)).await
                {
                    return reason;
                }
                continue;
            }
            let mut pause = ASK_INTERVAL;
            match self.next_step(&answers) {
                Step::Refuse(reason) => return reason,
                Step::Wait(reason) if reason != told => {
                    info!(reason, "waiting to become part of the coordinators");
                    told = reason;
                }
                Step::Wait(_) => {}
                Step::Found if self.stands_by => {}
                Step::Found => {
                    if let Err(reason) = self.found(&answers).await {
                        return reason;
                    }
                }
                Step::Join(addresses) => {
                    // Who joined by itself is made a voter by whoever leads, with others at a time; it asks to be one only to
                    // be found at another address.
                    let stands_by = match known(&answers, self.me.node_id) {
                        Known::Voter => false,
                        Known::Learner => self.stands_by,
                        Known::Nothing => self.stands_by || self.has_voted(),
                    };
                    let asked = match stands_by {
                        true => self.offer_or_join(&addresses).await,
                        false => self.join(&addresses).await.map(|()| false),
                    };
                    match asked {
                        Ok(is_offered) if is_offered => pause = WATCH_INTERVAL,
                        Ok(_) => {}
                        Err(reason) => return reason,
                    }
                }
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Whether this node votes, under its data and at its address.
    fn is_settled(&self) -> bool {
        let metrics = self.raft.server_metrics();
        let now = metrics.borrow_watched();
        let membership = now.membership_config.membership();
        let node = CoordinatorNode { address: self.address.clone(), identity: self.me.identity.clone() };
        membership.voter_ids().any(|id| id == self.me.node_id) && membership.get_node(&self.me.node_id) == Some(&node)
    }

    fn leads(&self) -> bool {
        self.raft.server_metrics().borrow_watched().current_leader == Some(self.me.node_id)
    }

    /// Everybody's answer by the address that was asked: of configured nodes and of those that the membership has.
    async fn ask_all(&self) -> Answers {
        let mut known: BTreeSet<CoordinatorPeer> = self.peers.iter().cloned().collect();
        {
            let metrics = self.raft.server_metrics();
            let now = metrics.borrow_watched();
            let nodes = now.membership_config.membership().nodes();
            known.extend(nodes.map(|(id, node)| CoordinatorPeer { id: *id, address: node.address.clone() }));
        }
        let others = known.into_iter().filter(|peer| peer.id != self.me.node_id);
        let asked = others.map(|peer| async {
            let answer = self.network.identify(&peer.address).await.ok();
            (peer, answer)
        });
        futures_util::future::join_all(asked).await.into_iter().collect()
    }

    fn next_step(&self, answers: &Answers) -> Step {
        let view = View {
            id: self.me.node_id,
            identity: &self.me.identity,
            cluster: self.me.cluster(),
            is_new: self.raft.server_metrics().borrow_watched().membership_config.membership().nodes().next().is_none(),
            peers: &self.peers,
        };
        view.next_step(answers)
    }

    /// Whom to ask why this node is no member any more, if somebody knows better than it.
    fn left_out(&self, answers: &Answers) -> Option<Vec<String>> {
        let ours = {
            let metrics = self.raft.server_metrics();
            let now = metrics.borrow_watched();
            now.membership_config.log_id().map_or(0, |id| id.index)
        };
        let cluster = self.me.cluster();
        let newer = answers.iter().filter_map(|(peer, answer)| Some((peer, answer.as_ref()?))).filter(|(_, answer)| {
            Some(&answer.cluster_id) == cluster.as_ref()
                && answer.membership_id.is_some_and(|id| id.index > ours)
                && answer.leader != 0
        });
        let without = |answer: &IdentifyResponse| {
            answer.membership.as_ref().is_some_and(|known| known.nodes.iter().all(|node| node.id != self.me.node_id))
        };
        let knowing: Vec<_> = newer.filter(|(_, answer)| without(answer)).collect();
        (!knowing.is_empty()).then(|| who_knows(&knowing))
    }

    /// Whether its log says that it was part of a cluster.
    fn has_voted(&self) -> bool {
        self.raft.server_metrics().borrow_watched().membership_config.membership().nodes().next().is_some()
    }

    /// Says where this node can be had; `Err` if the cluster does not want it. `before` is the reason where the cluster knows
    /// no spare ones.
    async fn offer(&self, addresses: &[String], before: String) -> Result<(), String> {
        match self.ask_to_stand_by(addresses).await {
            Ok(Some(offered)) => offered,
            Ok(None) => Ok(()),
            Err(TooOld) => Err(before),
        }
    }

    /// Whether it is offered now.
    async fn offer_or_join(&self, addresses: &[String]) -> Result<bool, String> {
        match self.ask_to_stand_by(addresses).await {
            Ok(Some(offered)) => offered.map(|()| true),
            Ok(None) => Ok(false),
            Err(TooOld) => self.join(addresses).await.map(|()| false),
        }
    }

    /// `None` if nobody answers who leads.
    async fn ask_to_stand_by(&self, addresses: &[String]) -> Result<Option<Result<(), String>>, TooOld> {
        for address in addresses {
            let Ok(channel) = self.network.connection(address) else { continue };
            let mut request = tonic::Request::new(OfferRequest { id: self.me.node_id, address: self.address.clone() });
            request.set_timeout(OFFER_TIMEOUT);
            match NodesClient::new(channel).offer(request).await {
                Ok(answer) => {
                    let refused = answer.into_inner().error.unwrap_or_default();
                    if refused.code == i32::from(ErrorCode::UnsupportedVersion.code()) {
                        return Err(TooOld);
                    }
                    return Ok(Some(self.judged(refused)));
                }
                Err(status) if status.code() == Code::Unimplemented => return Err(TooOld),
                // Not the leader, or gone: the next one may know more.
                Err(status) => tracing::debug!(address, %status, "offered in vain"),
            }
        }
        Ok(None)
    }

    /// `Err` if asking again would not help.
    fn judged(&self, refused: KafkaError) -> Result<(), String> {
        let is_final = [ErrorCode::InvalidVoterKey, ErrorCode::InconsistentClusterId]
            .iter()
            .any(|code| i32::from(code.code()) == refused.code);
        if is_final {
            return Err(refused.message);
        }
        if refused.code != 0 {
            warn!(reason = refused.message, "not a coordinator of the cluster yet");
        }
        Ok(())
    }

    async fn found(&self, answers: &Answers) -> Result<(), String> {
        // Stored first: a founder that dies here founds the same cluster when it comes back.
        let cluster = self.me.cluster().unwrap_or_else(|| Bytes::copy_from_slice(&rand::random::<[u8; 16]>()));
        self.me.bind(&cluster).map_err(|cause| cause.to_string())?;
        let own = CoordinatorNode { address: self.address.clone(), identity: self.me.identity.clone() };
        let mut members = BTreeMap::from([(self.me.node_id, own)]);
        for (peer, answer) in answers {
            if let Some(answer) = answer {
                let node = CoordinatorNode { address: peer.address.clone(), identity: answer.identity.clone() };
                members.insert(peer.id, node);
            }
        }
        info!(voters = ?members.keys().collect::<Vec<_>>(), "founding a cluster");
        self.raft.initialize(members).await.map_err(|cause| format!("the cluster cannot be founded: {cause}"))
    }

    /// `Err` if the cluster does not want this node.
    async fn join(&self, addresses: &[String]) -> Result<(), String> {
        for address in addresses {
            let Ok(channel) = self.network.connection(address) else { continue };
            let mut request =
                tonic::Request::new(AddCoordinatorRequest { id: self.me.node_id, address: self.address.clone() });
            request.set_timeout(JOIN_TIMEOUT);
            match AdminClient::new(channel).add_coordinator(request).await {
                Ok(answer) => {
                    return self.judged(answer.into_inner().error.unwrap_or_default());
                }
                // Not the leader, or gone: the next one may know more.
                Err(status) => tracing::debug!(address, %status, "asked in vain to join"),
            }
        }
        Ok(())
    }
}

/// The cluster knows no spare coordinators.
struct TooOld;

fn removed(id: u64) -> String {
    format!(
        "coordinator {id} was removed from the cluster, and ids are never used again; to bring this machine back, give it \
         another coordinator.id and an empty data directory"
    )
}

const ASK_INTERVAL: Duration = Duration::from_millis(300);
const WATCH_INTERVAL: Duration = Duration::from_secs(5);
const OFFER_TIMEOUT: Duration = Duration::from_secs(5);
/// A node that is far behind catches up meanwhile.
const JOIN_TIMEOUT: Duration = Duration::from_secs(45);
